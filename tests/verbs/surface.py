#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
surface.py [--write] [--build DIR]: docs/verbs.md, the table of all that libibverbs 44 declares, from three sources that can't
agree by accident: the installed <infiniband/verbs.h> and libibverbs.so.1 say what there is, surface.tsv says what
the adapter does with it, the tests say who tries it. Without --write: is the file what would be written, but for
the choice of tests? A name without a verdict, a verdict without a name, what is said to work without a test, and
a test in the file that isn't there or doesn't mention the name are errors. The table of what is tested where
(groups.py) needs a build: without one it isn't looked at.
"""
import argparse
import fnmatch
import glob
import os
import re
import subprocess
import sys

import groups

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
DOC = os.path.join(TOP, "docs", "verbs.md")
INCLUDE = "/usr/include/infiniband"
VERSION = "1.14.44."
VERDICTS = {"yes": "yes", "refused": "refused", "none": "-"}
NAME = re.compile(r"\b(?:_?ibv_|IBV_|mult_to_ibv|mbps_to_ibv)\w+")

INTRO = """\
# The verbs surface

<!-- Written by tests/verbs/surface.py --write from tests/verbs/surface.tsv and notes.md; edit those. -->

What the adapter does with each name that libibverbs 44 has: its functions, and the opcodes, flags, events,
attributes and capabilities of `<infiniband/verbs.h>`. **yes**: it works, and the tests named use it (some of them, at most
two are listed). **refused**: it fails as it does on a device without the feature, with `EOPNOTSUPP` unless it says
otherwise. **-**: nothing here for it to do. `ctest -R verbs_surface` compares this file with the installed header and with the tests.

"""


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def header_names():
    """[(section, [names])] in the order of the header."""
    sections = []
    for header in ("verbs_api.h", "verbs.h"):
        with open(os.path.join(INCLUDE, header)) as f:
            text = strip_comments(f.read())
        defines = re.findall(r"^#define (IBV_\w+)\b(?!\()[ \t]+\S", text, flags=re.M)
        sections.append(("Constants of " + header, defines))
        for name, body in re.findall(r"\benum(?:\s+(\w+))?\s*\{(.*?)\}", text, flags=re.S):
            names = re.findall(r"(?:^|,)\s*(IBV_\w+)", body)
            if names:
                sections.append(("enum " + (name or names[0].rsplit("_", 1)[0].lower() + "..."), names))
    return [s for s in sections if s[1]]


def function_names():
    """Declared, inline or not, and exported: the three together."""
    with open(os.path.join(INCLUDE, "verbs.h")) as f:
        text = strip_comments(f.read())
    names = set(re.findall(r"^(?:static inline |extern )?[a-z][\w \*]*?\b((?:ibv|mult_to_ibv|mbps_to_ibv|_ibv)_\w+)\(",
                           text, flags=re.M))
    names |= set(re.findall(r"^(ibv_\w+)\(", text, flags=re.M))
    names -= {"ibv_static_providers"} - names
    return names | exported()


def exported():
    library = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    path = re.search(r"libibverbs\.so\.1 .*=> (\S+)", library).group(1)
    table = subprocess.run(["nm", "-D", "--with-symbol-versions", path], capture_output=True, text=True,
                           check=True).stdout
    return {m.group(1) for m in re.finditer(r" T (\w+)@+IBVERBS_1\.\d+$", table, flags=re.M)}


class Tests:
    """Which test mentions which name, itself or through the helpers that it calls."""

    def __init__(self):
        self.direct = {}    # (file, function): identifiers
        self.mentions = {}  # name: [test]
        self.shared = shared = {}
        for path in sorted(glob.glob(os.path.join(TOP, "tests", "**", "*.c"), recursive=True)):
            functions = self.functions(path)
            if os.path.basename(path).startswith("test_"):
                self.direct.update({(os.path.basename(path), name): body for name, body in functions.items()})
            elif "/interop/" not in path:
                shared.update(functions)
        for (path, name), words in sorted(self.direct.items()):
            if self.is_test(path, name):
                self.note(path + " " + name, words, self.closure(path, words, shared))
        for path in sorted(glob.glob(os.path.join(TOP, "tests", "programs", "py_*.py"))):
            with open(path) as f:
                words = set(re.findall(r"\w+", f.read()))
            self.note(os.path.basename(path), words, words)

    def is_test(self, path, name):
        """What main() or a table hands to cmocka."""
        return name != "main" and (name.startswith("test_") or name in self.direct.get((path, "main"), ()))

    def words(self, path, name):
        """All that a test mentions, itself or through what it calls."""
        return self.closure(path, self.direct[path, name], self.shared)

    @staticmethod
    def functions(path):
        """{function: identifiers}; initialisers outside of functions belong to whoever names the variable."""
        with open(path) as f:
            text = re.sub(r'"(?:\\.|[^"\\])*"', '""', strip_comments(f.read()))
        found = re.findall(r"^\w[^\n;={]*?(\w+)\((?:[^;{}]|\n)*?\)\n\{\n(.*?)^\}", text, flags=re.M | re.S)
        found += re.findall(r"^(?:static )?(?:const )?[\w ]*?\b(\w+)(?:\[\w*\])? = \{\n(.*?)^\};", text, flags=re.M | re.S)
        found += re.findall(r"^#define (\w+)(?:\([^)]*\))?((?:.*\\\n)*.*)$", text, flags=re.M)
        return {name: set(re.findall(r"\w+", body)) for name, body in found}

    def closure(self, path, words, shared):
        seen, todo = set(), set(words)
        while todo:
            word = todo.pop()
            if word in seen:
                continue
            seen.add(word)
            todo |= self.direct.get((path, word), set()) | shared.get(word, set())
        return seen

    def note(self, test, direct, all_words):
        for word in all_words:
            if NAME.fullmatch(word):
                self.mentions.setdefault(word, []).append((word not in direct, test))

    def of(self, name):
        """The tests that mention it themselves first."""
        return [test for _, test in sorted(self.mentions.get(name, []))]


def read_verdicts():
    """[(pattern, verdict, note, tests)]; later lines win over earlier ones."""
    rows = []
    with open(os.path.join(HERE, "surface.tsv")) as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            fields = (line.split("\t") + ["", "", ""])[:4]
            if fields[1] not in VERDICTS:
                sys.exit("surface.tsv:%d: verdict %r is none of %s" % (number, fields[1], ", ".join(VERDICTS)))
            rows.append(fields)
    return rows


class Surface:
    def __init__(self, build):
        self.build = build
        self.rows = read_verdicts()
        self.tests = Tests()
        self.used = set()
        self.errors = []
        self.valid = {}  # name: all tests that may stand in its row

    def verdict(self, name):
        found = None
        for i, row in enumerate(self.rows):
            if fnmatch.fnmatchcase(name, row[0]):
                self.used.add(i)
                found = row
        if not found:
            self.errors.append("%s: no verdict" % name)
            return "-", "", []
        _, verdict, note, named = found
        return verdict, note, self.tests_of(name, verdict, named)

    def tests_of(self, name, verdict, named):
        if named:
            return [t for t in named.split(", ") if self.exists(t)]
        tests = self.tests.of(name)
        if verdict == "yes" and not tests:
            self.errors.append("%s: said to work, but no test mentions it" % name)
        return tests

    def exists(self, test):
        """A test named by hand: `file.c test_function`, or a file."""
        words = test.split(" ")
        known = (words[0], words[1]) in self.tests.direct if len(words) == 2 else glob.glob(
            os.path.join(TOP, "tests", "**", words[0]), recursive=True)
        if not known:
            self.errors.append("there is no test %s" % test)
        return known

    def table(self, title, names):
        lines = ["## %s\n" % title, "| name | | tests, reasons |", "|---|---|---|"]
        for name in names:
            verdict, note, tests = self.verdict(name)
            self.valid[name] = tests
            if verdict == "refused" and not note:
                self.errors.append("%s: refused without a reason" % name)
            say = "; ".join(filter(None, [note, ", ".join("`%s`" % t for t in tests[:2 if verdict == "yes" else 1])]))
            lines.append("| `%s` | %s | %s |" % (name, VERDICTS.get(verdict, verdict), say))
        return "\n".join(lines) + "\n\n"

    def document(self):
        text = INTRO + self.table("Functions", sorted(function_names(), key=lambda n: (n.lstrip("_"), n)))
        for title, names in header_names():
            text += self.table(title, names)
        for i, row in enumerate(self.rows):
            if i not in self.used:
                self.errors.append("surface.tsv: nothing is named %s" % row[0])
        if self.build:
            text += groups.Groups(self.tests, self.build, self.errors).document()
        with open(os.path.join(HERE, "notes.md")) as f:
            return text + f.read()


def without_tests(text):
    """The file with the tests of each row left out, but for the table whose tests are chosen."""
    text, _, chosen = text.partition(groups.TITLE)
    return re.sub(r"`[\w.]+(?: \w+)?`(?:, )?(?=[^|\n]*\|$)", "", text, flags=re.M) + chosen


def compare(surface, text):
    if not os.path.exists(DOC):
        return ["there is no docs/verbs.md"]
    with open(DOC) as f:
        found = f.read()
    if not surface.build:
        found = re.sub(groups.TITLE + r".*?(?=^## )", "", found, flags=re.M | re.S)
    if without_tests(found) != without_tests(text):
        return ["docs/verbs.md is not what tests/verbs/surface.py --write writes"]
    errors = []
    for name, rest in re.findall(r"^\| `(\w+)` \| [\w-]+ \| (.*) \|$", found, flags=re.M):
        errors += ["docs/verbs.md: %s: %s doesn't test it" % (name, test)
                   for test in re.findall(r"`([^`]+)`", rest) if test not in surface.valid[name]]
    return errors


def main():
    version = subprocess.run(["pkg-config", "--modversion", "libibverbs"], capture_output=True, text=True,
                             check=False).stdout.strip()
    if not version.startswith(VERSION):
        print("libibverbs %s* isn't installed (%s is): skipped" % (VERSION, version or "none"))
        return 77
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--write", action="store_true")
    p.add_argument("--build")
    args = p.parse_args()
    surface = Surface(args.build or (os.path.join(TOP, "build") if args.write else None))
    text = surface.document()
    if args.write:
        with open(DOC, "w") as f:
            f.write(text)
    else:
        surface.errors += compare(surface, text)
    for error in sorted(set(surface.errors)):
        print(error)
    return 1 if surface.errors else 0


if __name__ == "__main__":
    sys.exit(main())
