#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
many.py BUILD [--pairs N] [--path udp|shm|both] [--iterations N]: 32 pairs of stock programs on one host, all at once: every
second pair sleeps between messages, the others spin; all check their data. All must end well, having run all at the same
time, and leave nothing behind: no socket, no shared memory, no file.

Exit status 77: network namespaces are not allowed here.
"""
import argparse
import os
import sys
import tempfile
import time

import kill

PAIRS = 32
SIZE = 5001
MEET_WITHIN_S = 120
FINISH_WITHIN_S = 600


def files():
    """Whatever lies where files are made."""
    return set(os.listdir("/dev/shm")) | set(os.listdir(tempfile.gettempdir()))


def memory_kib(sides):
    """(all together, the largest): proportional, what several share counts once."""
    sizes = []
    for one in sides:
        with open("/proc/%d/smaps_rollup" % one.process.pid, encoding="ascii") as f:
            sizes += [int(line.split()[1]) for line in f if line.startswith("Pss:")]
    return sum(sizes), max(sizes)


def program(number, iterations):
    # Many spin on few processors: one may not run for a while.
    return ["stdbuf", "-oL", "ibv_rc_pingpong", "-c", "-g", "0", "-n", str(iterations), "-s", str(SIZE),
            "-p", str(20000 + number)] + (["-e"] if number % 2 else [])


def start(build, path, pairs, iterations):
    programs = [program(i, iterations) for i in range(pairs)]
    servers = [kill.Side(build, path, p) for p in programs]
    kill.await_listening({20000 + i for i in range(pairs)})
    clients = [kill.Side(build, path, p, "localhost") for p in programs]
    deadline = time.monotonic() + MEET_WITHIN_S
    for one in servers + clients:
        one.await_text("remote address", max(0, deadline - time.monotonic()))
    return servers + clients


def play(build, path, pairs, iterations):
    """(Had all met before the first was done, what went wrong, as sentences)."""
    before = files()
    began = time.monotonic()
    sides = start(build, path, pairs, iterations)
    met, all_there = time.monotonic(), all(one.process.poll() is None for one in sides)
    total = largest = 0
    try:
        if all_there:
            total, largest = memory_kib(sides)
    except OSError: # one ended while they were measured: as if it hadn't been there
        all_there = False
    wrong = []
    for number, one in enumerate(sides):
        status = one.end(max(0.1, met + FINISH_WITHIN_S - time.monotonic()))
        if status != 0 or "invalid data" in one.said():
            wrong.append("process %d: %s: %s" % (number, status, one.said()[-300:]))
    done = time.monotonic()
    for one in sides:
        one.output.close()
    left = kill.left_behind() + sorted(name for name in files() - before if "rocelink" in name)
    if left:
        wrong.append("left behind: %s" % " ".join(left))
    if all_there and not wrong:
        print("path %s: %d processes, connected within %.1f s, %d messages each within %.1f s more; %.1f MiB together, "
              "%.1f MiB the largest" % (path, len(sides), met - began, 2 * iterations, done - met, total / 1024,
                                        largest / 1024), flush=True)
    return all_there, wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--pairs", type=int, default=PAIRS)
    p.add_argument("--path", choices=("udp", "shm", "both"), default="both")
    p.add_argument("--iterations", type=int, default=1000)
    o = p.parse_args()
    kill.isolate()
    for path in ("udp", "shm") if o.path == "both" else (o.path,):
        # Messages in memory are faster: the first pairs would end before the last have met.
        for longer in (1, 2, 4, 8, None) if path == "udp" else (2, 4, 8, 16, None):
            if longer is None:
                sys.exit("path %s: the first pairs end before the last have met" % path)
            all_there, wrong = play(o.build, path, o.pairs, o.iterations * longer)
            if wrong:
                sys.exit("path %s:\n  %s" % (path, "\n  ".join(wrong)))
            if all_there:
                break


if __name__ == "__main__":
    main()
