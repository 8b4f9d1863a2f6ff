#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
Measures the adapter (unmodified perftest, `rocelink pingpong`) and its competitors over loopback in one run. All
figures are taken one after the other in each round, so that what the machine does meanwhile hits all
alike. A figure is the median of the rounds, its spread half of their range; ratios are of this run.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time

import connect
import contests
import costs
import plot
import report
from processes import Bench, Failure


def arguments():
    p = argparse.ArgumentParser(description="Compare the adapter with its competitors.")
    p.add_argument("--build", default="build")
    p.add_argument("--rounds", type=int, help="default: 3; 1 with --quick")
    p.add_argument("--seconds", type=float, help="of each figure (default: 0.4; 0.1 with --quick)")
    p.add_argument("--quick", action="store_true", help="about a minute, for a first look")
    p.add_argument("--filter", metavar="REGEX", default="",
                   help="only marks, lines and costs whose title, key or reference match")
    p.add_argument("--verbose", action="store_true", help="each run on standard error")
    p.add_argument("--list", action="store_true", help="list the keys of all figures")
    p.add_argument("--json", metavar="FILE", help="write all figures there")
    p.add_argument("--svg", metavar="FILE", help="draw bandwidth and latency against message size")
    p.add_argument("--compare", metavar="BASELINE", help="a file of an earlier --json")
    args = p.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.seconds = args.seconds or (0.1 if args.quick else 0.4)
    return args


def chosen(pattern, with_plots):
    """Keys of the figures and of the costs to take."""
    def matches(*texts):
        return any(re.search(pattern, text, re.IGNORECASE) for text in texts if text)
    keys = set()
    for mark in contests.all_marks():
        if matches(mark.title, mark.key, mark.reference):
            keys |= {mark.key} | ({mark.reference} if mark.reference else set())
    for title, also in contests.all_also():
        keys |= {key for key in also if matches(title, key)}
    if with_plots:
        for _, _, lines in contests.PLOTS:
            for line in lines:
                keys |= {key for key in line.keys.values() if matches(line.label, key)}
    if not with_plots and not pattern: # --quick
        keys = {key for key in keys if not key.startswith("connect.")}
    counted = {"%s.%s" % (path, row[0]) for path in contests.PATHS for row in costs.COUNTED
               if matches("%s.%s" % (path, row[0]), row[1])}
    return keys, counted


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text)
        sys.stderr.flush()


def measure(bench, figures, rounds, seconds, verbose):
    """
    {key: {"unit", "runs"}} and {key: why} of those that failed, in whatever round: these have no figure. A
    first round, which isn't kept, finds how many messages fill the time.
    """
    n = {key: figure.first for key, figure in figures.items()}
    runs = {key: [] for key in figures}
    failed = {}
    began = time.time()
    for r in range(rounds + 1):
        for i, (key, figure) in enumerate(figures.items()):
            progress("round %d of %d: %d of %d, %s" % (r, rounds, i + 1, len(figures), key))
            if key in failed or (r == 0 and not figure.most):
                continue
            try:
                value = figure.run(bench, n[key])
            except Failure as e:
                failed[key] = str(e)
                continue
            if verbose:
                print("%6.1f s %-24s n=%-8d %10.3f %s" % (time.time() - began, key, n[key], value,
                                                         figure.unit), file=sys.stderr)
            if r == 0:
                n[key] = figure.messages(value, seconds)
            else:
                runs[key].append(value)
    progress("")
    return {key: {"unit": figures[key].unit, "runs": runs[key]} for key in figures
            if key not in failed}, failed


def about(args, began):
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True,
                            check=False).stdout.strip()
    return {"date": time.strftime("%Y-%m-%d %H:%M", time.localtime(began)), "commit": commit,
            "processors": os.cpu_count(), "kernel": os.uname().release, "rounds": args.rounds,
            "seconds_each": args.seconds, "took_s": round(time.time() - began),
            "load": os.getloadavg()[0]}


def main():
    args = arguments()
    figures = contests.all_figures()
    if args.list:
        print("\n".join(figures))
        return 0
    baseline = None
    if args.compare: # before the work: the file may be missing
        with open(args.compare, encoding="utf-8") as f:
            baseline = json.load(f)["figures"]
    keys, counted = chosen(args.filter, with_plots=bool(args.svg) or not args.filter and not args.quick)
    if not keys and not counted:
        print("bench: nothing matches " + args.filter, file=sys.stderr)
        return 2
    began = time.time()
    try:
        bench = Bench(args.build)
        results, failed = measure(bench, {k: v for k, v in figures.items() if k in keys}, args.rounds,
                                  args.seconds, args.verbose)
        counts = costs.measure(bench, counted, failed)
    except Failure as e:
        print("\nbench: no result: %s" % e, file=sys.stderr)
        return 1
    context = about(args, began)
    missed = report.print_marks(results, failed, print)
    report.print_further(results, print)
    missed += report.print_costs(counts, print)
    report.print_failures(failed, print)
    if baseline:
        report.print_comparison(baseline, results, print)
    for remark in connect.remarks():
        print("\n" + remark)
    print("\n" + contests.NOTES.format(lossy=contests.LOSSY))
    title = "{commit}, {date}: {processors} processors, Linux {kernel}, {rounds} rounds".format(**context)
    print("\n%s, %d s; %d marks missed" % (title, context["took_s"], missed))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"about": context, "figures": results, "costs": counts, "failed": failed}, f, indent=1)
    if args.svg:
        plot.write(results, "rocelink " + title, args.svg)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
