#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
soak.py BUILD [MINUTES]: pairs of stock programs that write, read, send, add atomically and send datagrams, on both
paths, all at once and without a pause; beside them short-lived pairs that check their data come and go. The memory and
the descriptors of every process must stay what they were when it had warmed up, and all must end well.

Exit status 77: network namespaces are not allowed here.
"""
import os
import sys
import time

import kill

WARM_UP_S = 20
SAMPLE_S = 5
RSS_SLACK_KIB = 512
FINISH_WITHIN_S = 300
CHURN_S = 3
# A process of many on few processors may not run for seconds: 8 times 4 s until a connection is given up.
LONG_LIVED = [
    ("udp", ["ib_write_bw", "-s", "65536", "-u", "20"]),
    ("shm", ["ib_write_bw", "-s", "65536", "-u", "20"]),
    ("udp", ["ib_read_bw", "-s", "20000", "-u", "20"]),
    ("shm", ["ib_send_bw", "-s", "5001", "-u", "20", "-r", "64"]),
    ("udp", ["ib_send_bw", "-s", "300", "-q", "8", "-u", "20", "-r", "64"]),
    ("shm", ["ib_atomic_bw", "-u", "20"]),
    ("udp", ["ib_send_lat", "-s", "64", "-u", "20"]),
    ("shm", ["ib_read_lat", "-s", "4096", "-u", "20"]),
]


class Watched(kill.Side):
    """A program, what it was when it had warmed up, and the most it has been since."""

    def __init__(self, build, path, program, *more):
        # They take what is left: those that come and go have the usual patience.
        super().__init__(build, path, program, *more, before=["chrt", "-i", "0"])
        self.name = "%s (%s)" % (program[0], path)
        self.base = self.peak = None

    def measure(self):
        """(KiB resident, descriptors), or None when it has ended."""
        folder = "/proc/%d/" % self.process.pid
        try:
            with open(folder + "status", encoding="ascii") as f:
                rss = [int(line.split()[1]) for line in f if line.startswith("VmRSS")]
            return (rss[0], len(os.listdir(folder + "fd"))) if rss else None
        except (FileNotFoundError, ProcessLookupError):
            return None

    def sample(self, warm):
        now = self.measure()
        if now is None:
            return
        if not warm or self.base is None:
            self.base = self.peak = now
        self.peak = tuple(map(max, self.peak, now))

    def grew(self):
        rss, fds = (b - a for a, b in zip(self.base, self.peak))
        if rss > RSS_SLACK_KIB or fds > 0:
            return ["%s: %d KiB and %d descriptors when warm, at most %d and %d later" %
                    (self.name, *self.base, *self.peak)]
        return []


def start_pairs(build, seconds):
    programs = [(path, program + ["-D", str(seconds), "-p", str(20000 + i)])
                for i, (path, program) in enumerate(LONG_LIVED)]
    servers = [Watched(build, path, program) for path, program in programs]
    kill.await_listening({20000 + i for i in range(len(programs))})
    return servers + [Watched(build, path, program, "localhost") for path, program in programs]


def churn(build, number):
    """A pair that comes, checks its data and goes."""
    path, port = ("udp", "shm")[number % 2], 21000 + number % 1000
    program = ["ibv_rc_pingpong", "-c", "-g", "0", "-n", "300", "-s", "5001", "-p", str(port)]
    server = kill.Side(build, path, program)
    kill.await_listening({port})
    pair = (server, kill.Side(build, path, program, "localhost"))
    wrong = ["short-lived pair %d (%s): %s" % (number, path, one.said()[-200:])
             for one in reversed(pair) if one.end(FINISH_WITHIN_S) != 0]
    for one in pair:
        one.output.close()
    return wrong


def watch(build, everyone, seconds):
    """Until it is over; (short-lived pairs, what went wrong)."""
    start, wrong, pairs, due = time.monotonic(), [], 0, 0
    while time.monotonic() < start + seconds and not wrong:
        for one in everyone:
            one.sample(time.monotonic() > start + WARM_UP_S)
        if time.monotonic() >= due:
            wrong += churn(build, pairs)
            pairs, due = pairs + 1, time.monotonic() + CHURN_S
        time.sleep(min(SAMPLE_S, 1))
    return pairs, wrong


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    kill.isolate()
    build, seconds = sys.argv[1], int(float(sys.argv[2] if len(sys.argv) > 2 else 1) * 60)
    everyone = start_pairs(build, seconds)
    # What a program allocates for its report at the end isn't the adapter's: they aren't watched to the end.
    pairs, wrong = watch(build, everyone, seconds - 5)
    for one in everyone:
        status = one.end(FINISH_WITHIN_S)
        if status != 0:
            wrong.append("%s: %s: %s" % (one.name, status, one.said()[-300:]))
        wrong += one.grew()
    left = kill.left_behind()
    if left:
        wrong.append("left behind: %s" % " ".join(left))
    if wrong:
        sys.exit("\n".join(wrong))
    print("%d s of %d processes, %d short-lived pairs beside them; memory grew by %d KiB at most, descriptors by none" %
          (seconds, len(everyone), pairs, max(one.peak[0] - one.base[0] for one in everyone)))


if __name__ == "__main__":
    main()
