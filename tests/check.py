#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
check.py BUILD [--sanitizer asan|tsan]: every unit test (ctest), then the short program matrix. The last line
adds up: each cmocka test, each ctest entry that isn't a cmocka program, and each row of the matrix is one.
"""
import argparse
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))


def cmocka_counts(output):
    """(passed, failed, skipped) as the program's groups said, or None when it isn't a cmocka program."""
    groups = {what: sum(map(int, re.findall(r"\[ +%s +\] (\d+) test\(s\)" % what, output)))
              for what in ("PASSED", "FAILED", "SKIPPED")}
    return tuple(groups.values()) if "[==========]" in output else None


def entry_counts(case):
    """(passed, failed, skipped) of one ctest entry."""
    status = case.get("status")
    if status in ("disabled", "notrun"):
        why = case.find("skipped")
        asked = status == "disabled" or (why is not None and why.get("message", "").startswith("SKIP"))
        return (0, 0, 1) if asked else (0, 1, 0)  # a program that isn't there has failed
    output = case.findtext("system-out") or ""
    passed, failed, skipped = cmocka_counts(output) or (int(status == "run"), 0, 0)
    if status == "fail" and failed == 0:
        failed = 1  # crashed, ran out of time, or a sanitizer spoke up
    return passed, failed, skipped


def sanitizer_environment():
    suppressions = os.path.join(HERE, "programs", "tsan.supp")
    return dict(os.environ, TSAN_OPTIONS="exitcode=66 suppressions=" + suppressions)


def unit_tests(build, jobs, sanitizer):
    """Run ctest; (passed, failed, skipped). The simulation is one thread: nothing for tsan to see."""
    report = os.path.join(build, "ctest.xml")
    if os.path.exists(report):
        os.unlink(report)
    # It doesn't follow a copy that a signal handler abandons, either.
    leave_out = ["-E", "^test_sim|^test_verbs_(memory|odp|regions)"] if sanitizer == "tsan" else []
    # All output, whatever its length: the counts are at its end.
    argv = ["ctest", "--test-dir", build, "-j", str(jobs), "--output-on-failure",
            "--no-tests=ignore", "--output-junit", report,
            "--test-output-size-passed", "100000000", "--test-output-size-failed", "100000000"]
    subprocess.run(argv + leave_out, env=sanitizer_environment(), check=False)
    total = [0, 0, 0]
    if not os.path.exists(report):
        return [0, 1, 0]
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        total = [a + b for a, b in zip(total, entry_counts(case))]
    return total


def program_matrix(build, sanitizer):
    counts = os.path.join(build, "matrix.counts")
    if os.path.exists(counts):
        os.unlink(counts)
    argv = [sys.executable, os.path.join(HERE, "programs", "matrix.py"), "--build", build,
            "--select", "short", "--counts", counts]
    if sanitizer:
        argv += ["--sanitizer", sanitizer]
    subprocess.run(argv, check=False)
    if not os.path.exists(counts):
        return [0, 1, 0]  # broke off
    with open(counts) as f:
        return list(map(int, f.read().split()))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("build")
    p.add_argument("--sanitizer", choices=("asan", "tsan"))
    args = p.parse_args()
    args.build = os.path.abspath(args.build)
    units = unit_tests(args.build, os.cpu_count(), args.sanitizer)
    rows = program_matrix(args.build, args.sanitizer)
    passed, failed, skipped = (a + b for a, b in zip(units, rows))
    print("unit tests: %d passed, %d failed, %d skipped" % tuple(units))
    print("%d passed, %d failed" % (passed, failed) + (", %d skipped" % skipped if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
