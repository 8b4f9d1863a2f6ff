#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The public interface as a user meets it: interface.py SOURCE BUILD

Every function of the header is exported, nothing else is, and each has a manual page; the header compiles alone as C
and C++; what `cmake --install` puts somewhere works from there by its pkg-config file, after being moved, without
an environment variable at run time but the path of the libraries.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = (os.path.abspath(p) for p in sys.argv[1:3])
HEADER = os.path.join(SOURCE, "include/rocelink/rocelink.h")

PROGRAM = r"""
#include <stdio.h>
#include <rocelink/rocelink.h>
int main(void)
{
	struct rocelink_error err;
	struct rocelink_endpoint *e = rocelink_endpoint_open(ROCELINK_ENDPOINT(.host = "127.0.0.1"), &err);
	if (!e) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	printf("%s %s\n", rocelink_version(), ibv_get_device_name(e->context->device));
	rocelink_endpoint_close(e);
	return 0;
}
"""

PROGRAM_CXX = r"""
#include <rocelink/rocelink.h>
int main()
{
	rocelink_error err;
	rocelink_options options = {};
	options.size = sizeof(options);
	rocelink_conn *conn = rocelink_dial("127.0.0.1", "1", &options, &err);
	rocelink_conn_free(conn);
	return conn == nullptr;
}
"""


def run(*command, **kw):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **kw).stdout


def functions():
    text = re.sub(r"/\*.*?\*/", "", open(HEADER).read(), flags=re.S)
    text = re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.M | re.S)
    return set(re.findall(r"\b(rocelink_\w+)\s*\([^)]*\)[^;{]*;", text)) - {"rocelink_trace_fn"}


def check_exports(wanted):
    lines = run("nm", "-D", "--defined-only", os.path.join(BUILD, "librocelink.so")).splitlines()
    exported = {l.split()[-1].split("@")[0] for l in lines if " T " in l or " D " in l or " B " in l}
    assert exported == wanted, "exported, but not in the header, or the reverse: %s" % (exported ^ wanted)


def check_pages(wanted):
    missing = [f for f in wanted if not os.path.exists(os.path.join(SOURCE, "man", f + ".3"))]
    assert not missing, "no manual page: %s" % missing


def check_header():
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c", HEADER)
    if shutil.which("c++"):
        run("c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", HEADER)


def compile_with_pkgconfig(tmp, where, name, text, compiler):
    env = dict(os.environ, PKG_CONFIG_PATH=where)
    flags = run("pkg-config", "--cflags", "--libs", "rocelink", env=env).split()
    source = os.path.join(tmp, name)
    with open(source, "w") as f:
        f.write(text)
    run(compiler, "-Wall", "-o", source + ".out", source, *flags)
    return source + ".out"


def check_installed():
    with tempfile.TemporaryDirectory() as tmp:
        first, moved = os.path.join(tmp, "first"), os.path.join(tmp, "moved")
        run("cmake", "--install", BUILD, "--prefix", first)
        os.rename(first, moved)
        where = [d for d, _, files in os.walk(moved) if "rocelink.pc" in files][0]
        lib = os.path.dirname(where)
        program = compile_with_pkgconfig(tmp, where, "program.c", PROGRAM, "cc")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ROCELINK", "LD_"))}
        out = run(program, env=dict(env, LD_LIBRARY_PATH=lib))
        print("installed program:", out.strip())
        if shutil.which("c++"):
            cxx = compile_with_pkgconfig(tmp, where, "program.cpp", PROGRAM_CXX, "c++")
            run(cxx, env=dict(env, LD_LIBRARY_PATH=lib))


def main():
    wanted = functions()
    assert len(wanted) > 50, wanted
    check_exports(wanted)
    check_pages(wanted)
    check_header()
    check_installed()


if __name__ == "__main__":
    main()
