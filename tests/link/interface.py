#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The public interface and what is written about it: interface.py SOURCE BUILD

Every function of the header is exported, and nothing else is. Each has a manual page whose synopsis is the header's
declaration; each structure's members, each constant and each option macro is in a page, and what a page shows of a
structure is what the header says. The header compiles alone, as C and as C++.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD = (os.path.abspath(p) for p in (sys.argv.pop(1), sys.argv.pop(1)))
HEADER = os.path.join(SOURCE, "include/rocelink/rocelink.h")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def plain(text):
    """C in one way of spacing."""
    text = " ".join(re.findall(r"\w+|[^\w\s]", without_comments(text)))
    return text.replace(", }", " }")


with open(HEADER, encoding="utf-8") as header:
    TEXT = without_comments(header.read())
CODE = re.sub(r"^#(?:.*\\\n)*.*$", "", TEXT, flags=re.M)
STRUCTS = {"%s %s" % (kind, name): body for kind, name, body in
           re.findall(r"\b(struct|enum) (rocelink_\w+) \{(.*?)\n\};", CODE, re.S)}


def functions():
    """{name: declaration}"""
    found = re.findall(r"(?<=[;{}])\s*((?:const )?(?:struct |enum )?\w+[ *]+(rocelink_\w+)\s*\([^;{}]*\))(?=\s*;)", CODE)
    return {name: plain(text) for text, name in found}


def page(name):
    path = os.path.join(SOURCE, "man", name + ".3")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    alias = re.match(r"\.so man3/(\w+)\.3\s*$", text)
    return page(alias[1]) if alias else text


def synopsis(text):
    """{name: declaration} of a page."""
    found, kind = {}, ""
    for line in text.split(".Sh SYNOPSIS\n")[1].split(".Sh ")[0].splitlines():
        macro, _, rest = line.partition(" ")
        rest = rest.strip('"')
        if macro == ".Ft":
            kind = rest
        elif macro == ".Fo":
            name, arguments = rest, []
        elif macro == ".Fa":
            arguments.append(rest)
        elif macro == ".Fc":
            found[name] = plain("%s %s(%s)" % (kind, name, ", ".join(arguments)))
    return found


def members(body):
    body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)  # a function: its name
    return {name for line in body.split(";") for name in re.findall(r"(\w+)(?:\[[^]]*\])?\s*(?:,|$)", line.strip())}


class Interface(unittest.TestCase):
    pages = {os.path.basename(p)[:-2]: page(os.path.basename(p)[:-2]) for p in glob.glob(SOURCE + "/man/*.3")}

    def test_exports(self):
        lines = run("nm", "-D", "--defined-only", os.path.join(BUILD, "librocelink.so")).splitlines()
        exported = {l.split()[-1].split("@")[0] for l in lines if l.split()[-2] in "TDB"}
        self.assertEqual(exported, set(functions()))
        self.assertGreater(len(exported), 50)

    def test_each_function_has_its_page(self):
        for name, declaration in functions().items():
            self.assertIn(name, self.pages)
            self.assertEqual(synopsis(self.pages[name]).get(name), declaration)

    def test_pages_know_no_other_functions(self):
        self.assertEqual({n for text in self.pages.values() for n in synopsis(text)} - set(functions()), set())

    def test_what_a_page_shows_of_a_structure(self):
        shown = 0
        for text in self.pages.values():
            for name, body in re.findall(r"^((?:struct|enum) rocelink_\w+) \{\n(.*?)\n\};", text, re.S | re.M):
                self.assertEqual(plain(body).rstrip(" ,"), plain(STRUCTS[name]).rstrip(" ,"), name)
                shown += 1
        self.assertGreaterEqual(shown, 10)

    def test_each_member_is_told(self):
        for name, body in STRUCTS.items():
            if not name.startswith("struct "):
                continue
            wanted = members(body) - {"size"}
            self.assertTrue(wanted, name)
            told = [set(re.findall(r"\w+", text)) for text in self.pages.values()
                    if re.search(r"\b%s\b|\b%s\b" % (name, name[7:].replace("_options", "")), text)]
            missing = min((wanted - words for words in told), key=len)
            self.assertEqual(missing, set(), name)

    def test_each_constant_is_told(self):
        wanted = {n for body in STRUCTS.values() for n in re.findall(r"\bROCELINK_\w+", body)}
        wanted |= set(re.findall(r"^#define (ROCELINK_\w+)", TEXT, re.M))
        words = set(re.findall(r"\w+", "\n".join(self.pages.values())))
        self.assertEqual(wanted - words - {"ROCELINK_ROCELINK_H"}, set())

    def test_header_alone(self):
        run("cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c", HEADER)
        if shutil.which("c++"):
            run("c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", HEADER)


if __name__ == "__main__":
    unittest.main(verbosity=2)
