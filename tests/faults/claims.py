#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
claims.py: docs/security.md names the tests that hold each of its claims. Is each there, with the function it names
defined and used, and does every claim have one?
"""
import glob
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REFERENCE = re.compile(r"`(\w+\.(?:c|py))(?: (\w+))?`")


def wrong_with(file, function):
    """Nothing, or what is wrong with a reference."""
    paths = glob.glob(os.path.join(TOP, "tests", "*", file))
    if len(paths) != 1:
        return "%d files of this name below tests/" % len(paths)
    if not function:
        return None
    with open(paths[0], encoding="utf-8") as f:
        text = f.read()
    if not re.search(r"^(?:static void|def) %s\(" % function, text, re.M):
        return "no function %s in it" % function
    if file in ("specials.py", "floods.py"):  # their functions are rows of the matrix
        with open(os.path.join(TOP, "tests", "programs", "rows.py"), encoding="utf-8") as f:
            text += f.read()
    return None if len(re.findall(r"\b%s\b" % function, text)) > 1 else "%s is never run" % function


def main():
    with open(os.path.join(TOP, "docs", "security.md"), encoding="utf-8") as f:
        rows = [line.strip("| \n").rsplit("|", 1) for line in f if line.startswith("|")]
    claims = [row for row in rows if row[0].strip() != "claim" and not set(row[0]) <= set("-| ")]
    wrong, references = [], 0
    for claim, tests in claims:
        found = REFERENCE.findall(tests)
        references += len(found)
        if not found and tests.strip() != "by nature":
            wrong.append("no test: " + claim)
        wrong += ["%s %s: %s" % (*one, wrong_with(*one)) for one in found if wrong_with(*one)]
    if wrong or len(claims) < 10:
        sys.exit("\n".join(wrong) or "docs/security.md has only %d claims" % len(claims))
    print("%d claims, %d tests named, all there" % (len(claims), references))


if __name__ == "__main__":
    main()
