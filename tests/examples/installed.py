#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `cmake --install` puts somewhere, as its user has it: installed.py SOURCE BUILD

The tree is moved, then programs are compiled against it by its pkg-config file alone, as C and as C++: the examples,
and the one of the manual page. They run by themselves: no launcher, no environment variable.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from terminal import PATIENCE, Program, free_port

SOURCE, BUILD = (os.path.abspath(p) for p in (sys.argv.pop(1), sys.argv.pop(1)))

CXX = r"""
#include <cstdio>
#include <rocelink/rocelink.h>
int main()
{
	rocelink_error err;
	rocelink_endpoint_options where = {};
	where.size = sizeof(where);
	where.host = "127.0.0.1";
	rocelink_endpoint *ep = rocelink_endpoint_open(&where, &err);
	if (!ep) {
		std::fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	std::printf("%s %s\n", rocelink_version(), ibv_get_device_name(ep->context->device));
	rocelink_endpoint_close(ep);
}
"""


def example_of(name):
    with open(os.path.join(SOURCE, "examples", name), encoding="utf-8") as file:
        return file.read()


def program_of_the_manual():
    with open(os.path.join(SOURCE, "man/librocelink.3"), encoding="utf-8") as file:
        return re.search(r"\.Sh EXAMPLES\n.*?\.Bd -literal\n(.*?)\.Ed\n", file.read(), re.S)[1]


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        first, cls.prefix = (os.path.join(cls.folder, name) for name in ("first", "moved"))
        subprocess.run(["cmake", "--install", BUILD, "--prefix", first], check=True, stdout=subprocess.DEVNULL)
        os.rename(first, cls.prefix)
        where = next(d for d, _, files in os.walk(cls.prefix) if "rocelink.pc" in files)
        cls.lib = os.path.dirname(where)
        cls.env = {"PATH": os.environ["PATH"], "PKG_CONFIG_PATH": where, "HOME": cls.folder}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def compile(self, name, text, compiler="cc"):
        source, program = (os.path.join(self.folder, n) for n in (name, os.path.splitext(name)[0]))
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "rocelink"], env=self.env, check=True,
                               stdout=subprocess.PIPE, text=True).stdout.split()
        # Where the libraries are is the one thing that a folder unknown to the system has to be told.
        subprocess.run([compiler, "-Wall", "-Werror", "-o", program, source, *flags, "-Wl,-rpath," + self.lib],
                       check=True)
        return program

    def start(self, *command):
        return Program(command, env={"PATH": os.environ["PATH"]})

    def told(self, *command):
        with self.start(*command) as it:
            status, said, errors = it.end()
        self.assertEqual((status, errors), (0, ""))
        return said

    def pair(self, server, client):
        with self.start(*server) as first:
            self.assertIn("waiting on port", first.first_words(PATIENCE))
            told = self.told(*client)
            status, said, errors = first.end()
        self.assertEqual((status, errors), (0, ""))
        return said, told

    def test_rc_write(self):
        program, port = self.compile("rc_write.c", example_of("rc_write.c")), free_port()
        said, told = self.pair([program, "listen", "127.0.0.1", port], [program, "connect", "127.0.0.1", port])
        self.assertIn("my memory holds: Hello, memory of yours", said)
        self.assertIn("written to VA", told)

    def test_ud_send(self):
        program, port = self.compile("ud_send.c", example_of("ud_send.c")), free_port()
        said, told = self.pair([program, "listen", "127.0.0.1", port], [program, "connect", "127.0.0.1", port, "hi"])
        self.assertRegex(said, r"from QPN 0x[0-9a-f]{6}: hi\n")
        self.assertIn("sent to QPN", told)

    def test_kv_get(self):
        program, port = self.compile("kv_get.c", example_of("kv_get.c")), free_port()
        with self.start(program, "serve", "127.0.0.1", port, "red=ff0000", "blue=0000ff") as server:
            self.assertIn("serving on port", server.first_words(PATIENCE))
            for key, value in ("red", "ff0000"), ("blue", "0000ff"):
                self.assertEqual(self.told(program, "get", "127.0.0.1", port, key), "%s=%s\n" % (key, value))

    def test_program_of_the_manual(self):
        port = free_port()
        program = self.compile("manual.c", program_of_the_manual().replace("7471", port))
        with self.start(program) as server:
            # It says nothing before it is done: as a person, try until it is there.
            for _ in range(200):
                with self.start(program, "some words") as client:
                    end = client.end()
                if "refused" not in end[2]:
                    break
            self.assertEqual(end, (0, "", ""))
            self.assertEqual(server.end(), (0, "some words\n", ""))

    @unittest.skipUnless(shutil.which("c++"), "no C++ compiler")
    def test_cxx(self):
        self.assertRegex(self.told(self.compile("cxx.cpp", CXX, "c++")), r"^[\d.]+ \w+\n$")

    def test_command_and_manual(self):
        command = os.path.join(self.prefix, "bin", "rocelink")
        self.assertIn("rl_lo", self.told(command, "run", "--", command, "devices"))
        for name in "man1/rocelink-run.1", "man3/rocelink_connect.3":
            self.assertTrue(os.path.exists(os.path.join(self.prefix, "share/man", name)), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
