#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
check.py BUILD [--sanitizer asan|tsan]: every test that ctest has, among them the short program matrix. The last line
adds up: each cmocka test, each row of the matrix, and each ctest entry that is neither is one.
"""
import argparse
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
MATRIX = "programs"


def cmocka_counts(output):
    """(passed, failed, skipped) as the program's groups said, or None when it isn't a cmocka program."""
    groups = {what: sum(map(int, re.findall(r"\[ +%s +\] (\d+) test\(s\)" % what, output)))
              for what in ("PASSED", "FAILED", "SKIPPED")}
    return tuple(groups.values()) if "[==========]" in output else None


def matrix_counts(output):
    """As its last line says."""
    said = re.search(r"^matrix: (\d+) passed, (\d+) failed, (\d+) skipped", output, re.M)
    return tuple(map(int, said.groups())) if said else None


def entry_counts(case):
    """(passed, failed, skipped) of one ctest entry."""
    status = case.get("status")
    if status in ("disabled", "notrun"):
        why = case.find("skipped")
        asked = status == "disabled" or (why is not None and why.get("message", "").startswith("SKIP"))
        return (0, 0, 1) if asked else (0, 1, 0)  # a program that isn't there has failed
    output = case.findtext("system-out") or ""
    counts = matrix_counts(output) if case.get("name") == MATRIX else cmocka_counts(output)
    passed, failed, skipped = counts or (int(status == "run"), 0, 0)
    if status == "fail" and failed == 0:
        failed = 1  # crashed, ran out of time, or a sanitizer spoke up
    return passed, failed, skipped


def sanitizer_environment():
    suppressions = os.path.join(HERE, "programs", "tsan.supp")
    return dict(os.environ, TSAN_OPTIONS="exitcode=66 suppressions=" + suppressions)


def run_all(build, jobs, sanitizer):
    """Run ctest; (passed, failed, skipped) of the matrix and of all else."""
    report = os.path.join(build, "ctest.xml")
    if os.path.exists(report):
        os.unlink(report)
    # The simulation is one thread: nothing for tsan to see. Nor does it follow a copy that a signal handler abandons.
    leave_out = ["-E", "^test_sim|^test_verbs_(memory|odp|regions)"] if sanitizer == "tsan" else []
    # All output, whatever its length: the counts are at its end.
    argv = ["ctest", "--test-dir", build, "-j", str(jobs), "--output-on-failure",
            "--no-tests=ignore", "--output-junit", report,
            "--test-output-size-passed", "100000000", "--test-output-size-failed", "100000000"]
    subprocess.run(argv + leave_out, env=sanitizer_environment(), check=False)
    rows, units = [0, 0, 0], [0, 0, 0]
    if not os.path.exists(report):
        return rows, [0, 1, 0]
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        total = rows if case.get("name") == MATRIX else units
        total[:] = [a + b for a, b in zip(total, entry_counts(case))]
    return rows, units


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("build")
    p.add_argument("--sanitizer", choices=("asan", "tsan"))
    args = p.parse_args()
    rows, units = run_all(os.path.abspath(args.build), os.cpu_count(), args.sanitizer)
    passed, failed, skipped = (a + b for a, b in zip(units, rows))
    print("unit tests: %d passed, %d failed, %d skipped" % tuple(units))
    print("program matrix: %d passed, %d failed, %d skipped" % tuple(rows))
    print("%d passed, %d failed" % (passed, failed) + (", %d skipped" % skipped if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
