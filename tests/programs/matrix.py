#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
Runs the program matrix: Debian's own verbs programs, unmodified, on the adapter. The hosts are in
hosts.py, the table of what is run in rows.py, what counts as right in expect.py and specials.py.
"""
import argparse
import os
import re
import signal
import sys
import time

import hosts
import rows
from runner import Failure, Runner, Skip


def parse_args():
    p = argparse.ArgumentParser(description="Run unmodified verbs programs on the adapter.")
    p.add_argument("--build", default="build", help="build folder (default: %(default)s)")
    p.add_argument("--select", choices=("short", "full"), default="full",
                   help="short: what ./dev check runs (default: %(default)s)")
    p.add_argument("--filter", metavar="REGEX", default="", help="only rows whose name matches")
    p.add_argument("--sanitizer", choices=("asan", "tsan"), help="the build folder's sanitizer")
    p.add_argument("--minutes", type=float, default=0, help="repeat until this time has passed")
    p.add_argument("--list", action="store_true", help="only list the rows")
    return p.parse_args()


class Tally:
    def __init__(self, out):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self.out = out  # where the outputs of failed rows are kept

    def run(self, runner, row):
        began = time.monotonic()
        runner.path = row.path
        try:
            row.run(runner)
        except Skip as e:
            runner.forget()
            self.skip(row, e)
            return
        except (Failure, LookupError, OSError) as e:
            self.failed += 1
            self.failures.append(row.name)
            directory = os.path.join(self.out, re.sub(r"[^A-Za-z0-9@.-]+", "_", row.name))
            kept = runner.keep(directory)
            print("FAIL  %s: %s\n%s    outputs: %s" % (row.name, e, kept, directory), flush=True)
            return
        runner.forget()
        self.passed += 1
        print("ok    %-60s %5.1f s" % (row.name, time.monotonic() - began), flush=True)

    def skip(self, row, why):
        self.skipped += 1
        print("skip  %s: %s" % (row.name, why), flush=True)


def run_rows(selected, runner, tally, minutes):
    end = time.monotonic() + 60 * minutes
    while True:
        for row in selected:
            if row.place not in runner.world.places:
                tally.skip(row, "no network namespaces here")
            elif runner.sanitizer == "tsan" and row.name.startswith(("ucx ", "open-mpi ", "mpich ")):
                tally.skip(row, "UCX patches functions that the sanitizer intercepts")
            elif row.needs_root and "root" not in runner.world.users():
                tally.skip(row, "not root")
            else:
                tally.run(runner, row)
        if time.monotonic() >= end:
            return


def main():
    args = parse_args()
    args.build = os.path.abspath(args.build)
    selected = [r for r in rows.all_rows(args.select == "full") if re.search(args.filter, r.name)]
    if args.list:
        print("\n".join(r.name for r in selected))
        return 0
    namespaces = hosts.enter_namespace()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A shell starts what runs in the background with SIGINT ignored, which the programs would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tally = Tally(os.path.join(args.build, "matrix-failures"))
    world = hosts.World(namespaces)
    runner = Runner(args.build, world, args.sanitizer)
    try:
        run_rows(selected, runner, tally, args.minutes)
    finally:
        runner.close()
        world.close()
    if tally.failures:
        print("failed rows:\n  " + "\n  ".join(tally.failures))
    print("matrix: %d passed, %d failed, %d skipped" % (tally.passed, tally.failed, tally.skipped))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
