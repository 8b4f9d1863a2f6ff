# SPDX-License-Identifier: BSD-2-Clause
"""
The table of what is tested where, a part of docs/verbs.md, from groups.tsv and from what ctest runs: each test that is
named must be there and mention what the group is about, and a group whose packets leave must have some that run
between two processes and within one, by both ways, and with loss. Where a test runs is what ctest says.
"""
import json
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
COLUMNS = ("right use", "limits", "wrong uses", "races")
TITLE = "## What is tested where\n"

INTRO = """
Tests of the right use, the limits, wrong uses and races of each group of calls. *two*: some of them run between two processes,
*one*: within one process; each by UDP and through shared memory, *lossy*: also while packets are lost, doubled and overtaken.
*simulated*: scenarios of `tests/sim` under each loss of the first packets, and random loss, doubling, reordering and damage.

"""


def source_of(program):
    """test_verbs_x is built from test_x.c, others from a file of their own name."""
    return program.replace("test_verbs_", "test_") + ".c"


class Runs:
    """Where ctest runs which test program: {file: {(two | one, udp | shm, lossy)}}."""

    def __init__(self, build):
        self.of = {}
        out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True,
                             check=True).stdout
        for test in json.loads(out)["tests"]:
            if not test.get("command"):
                continue
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            environment = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []) if "=" in e)
            two = environment.get("TEST_ENDS") == "processes"
            # Queue pairs of one process reach each other through memory unless told otherwise.
            path = environment.get("ROCELINK_PATH", "shm")
            lossy = "loss=" in environment.get("ROCELINK_FAULT", "")
            self.of.setdefault(source_of(os.path.basename(test["command"][0])), set()).add(
                ("two" if two else "one", "shm" if path == "auto" else path, lossy))


class Groups:
    def __init__(self, tests, build, errors):
        self.tests = tests
        self.errors = errors
        self.runs = Runs(build)
        with open(os.path.join(TOP, "tests", "sim", "scenarios.c")) as f:
            self.scenarios = set(re.findall(r'\{ "([\w-]+)", IBV_QPT_', f.read()))
        with open(os.path.join(HERE, "groups.tsv")) as f:
            self.rows = [line.rstrip("\n").split("\t") for line in f if line.strip() and not line.startswith("#")]

    def check_test(self, group, names, test):
        path, _, function = test.partition(" ")
        if not self.tests.is_test(path, function) or (path, function) not in self.tests.direct:
            self.errors.append("groups.tsv: there is no test %s" % test)
        elif not names & self.tests.words(path, function):
            self.errors.append("groups.tsv: %s: %s mentions none of %s" % (group, test, ", ".join(sorted(names))))
        elif path not in self.runs.of:
            self.errors.append("groups.tsv: %s: ctest runs no test of %s" % (group, path))

    def where(self, group, kind, tests):
        """The cells of two, one and lossy; what is missing there is an error."""
        runs = set().union(*(self.runs.of.get(t.split(" ")[0], set()) for t in tests))
        cells = []
        for two in ("two", "one"):
            for lossy in (False, True):
                paths = sorted(path for where, path, lost in runs if where == two and lost == lossy)
                cells.append(", ".join(paths))
                if kind == "wire" and paths != ["shm", "udp"]:
                    self.errors.append("groups.tsv: %s: nothing of it runs %s%s by %s" % (
                        group, "between two processes" if two == "two" else "within one",
                        " with loss" if lossy else "", " or ".join({"shm", "udp"} - set(paths))))
        return cells if kind == "wire" else ["-"] * 4

    def row(self, fields):
        group, names, kind, *cells = fields
        columns = [[t for t in cell.split(", ") if t != "-"] for cell in cells[:len(COLUMNS)]]
        for test in sum(columns, []):
            self.check_test(group, set(names.split(" ")), test)
        simulated = [s for s in cells[len(COLUMNS)].split(", ") if s != "-"]
        self.errors += ["groups.tsv: %s: there is no scenario %s" % (group, s) for s in simulated
                        if s not in self.scenarios]
        two, two_lossy, one, one_lossy = self.where(group, kind, sum(columns, []))
        tested = [", ".join("`%s`" % t for t in column) or "-" for column in columns]
        return "| " + " | ".join([group] + tested + [two, one, "two: %s; one: %s" % (two_lossy, one_lossy)
                                                     if kind == "wire" else "-",
                                                     ", ".join(simulated) or "-"]) + " |"

    def document(self):
        head = ("",) + COLUMNS + ("two", "one", "lossy", "simulated")
        return (TITLE + INTRO + "| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|\n" +
                "\n".join(self.row(fields) for fields in self.rows) + "\n\n")
