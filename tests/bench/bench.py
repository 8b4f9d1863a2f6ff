#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
Runs the adapter (unmodified perftest, UDP path) and its competitors over loopback in one go. The runs are
interleaved, so that what the machine does meanwhile hits all alike; the figures are medians, and the ratios
are of medians of this run only.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import connect

HOST = "127.0.0.1"


class Bench:
    def __init__(self, build, seconds):
        self.rocelink = os.path.join(build, "rocelink")
        self.seconds = seconds
        self.port = 21000
        self.device, self.gid = self._loopback_device()

    def adapter(self, argv):
        return [self.rocelink, "run", "--path", "udp", "--"] + argv

    def _loopback_device(self):
        text = subprocess.run(self.adapter(["ibv_devinfo", "-v"]), check=True, capture_output=True,
                              text=True).stdout
        device = None
        for line in text.splitlines():
            if m := re.match(r"hca_id:\s*(\S+)", line):
                device = m[1]
            if m := re.search(r"GID\[\s*(\d+)\]:\s*::ffff:127\.0\.0\.1,", line):
                return device, m[1]
        raise SystemExit("bench: no device has the GID ::ffff:127.0.0.1")

    def next_port(self):
        self.port += 1
        return str(self.port)

    def pair(self, server, client, port):
        """Output of the client; both must succeed."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(server, start_new_session=True, **quiet) as process:
            try:
                wait_listening(int(port))
                done = subprocess.run(client, capture_output=True, text=True, check=False,
                                      timeout=30 + 5 * self.seconds)
                if done.returncode:
                    raise RuntimeError("%s: status %d\n%s%s" % (" ".join(client), done.returncode,
                                                                done.stdout, done.stderr))
                return done.stdout
            finally:
                if process.poll() is None:
                    try:
                        process.wait(2)
                    except subprocess.TimeoutExpired:
                        os.killpg(process.pid, signal.SIGKILL)

    def perftest(self, program, args):
        """Last row of perftest's table."""
        port = self.next_port()
        argv = self.adapter([program, "-F", "-d", self.device, "-x", self.gid, "-p", port] + args)
        output = self.pair(argv, argv + [HOST], port)
        rows = [ln.split() for ln in output.splitlines() if re.match(r"^ *\d+ +\d+ +[\d.]+", ln)]
        return [float(field) for field in rows[-1]]


def wait_listening(port):
    for _ in range(1000):
        for family in ("tcp", "tcp6"):
            with open("/proc/net/" + family) as f:
                if re.search(r":%04X [0-9A-F]+:0000 0A" % port, f.read()):
                    return
        time.sleep(0.005)
    raise RuntimeError("nothing listens on TCP port %d" % port)


def perftest_bandwidth(program, size):
    def run(bench):
        row = bench.perftest(program, ["-s", str(size), "-D", str(bench.seconds), "--report_gbits"])
        return row[3]  # average; column 2 is the peak
    return run


def perftest_latency(program, size):
    def run(bench):
        return bench.perftest(program, ["-s", str(size), "-n", "20000"])[4]  # typical
    return run


def iperf3_tcp(bench):
    port = bench.next_port()
    output = bench.pair(["iperf3", "-s", "-1", "-B", HOST, "-p", port],
                        ["iperf3", "-c", HOST, "-p", port, "-J", "-t", str(bench.seconds)], port)
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 1e9


def libfabric_latency(size, iterations):
    """fi_pingpong over tcp: microseconds per half round trip."""
    def run(bench):
        port = bench.next_port()
        args = ["-p", "tcp", "-e", "msg", "-I", str(iterations), "-S", str(size)]
        output = bench.pair(["fi_pingpong", "-B", port] + args,
                            ["fi_pingpong", "-P", port] + args + [HOST], port)
        return float(output.splitlines()[-1].split()[-2])
    return run


# name, unit, {who: how}, reference, mark: what our median divided by the reference's should reach
CONTESTS = [
    ("64 KiB RC WRITE bandwidth", "Gb/s", {
        "adapter ib_write_bw": perftest_bandwidth("ib_write_bw", 65536),
        "iperf3 TCP": iperf3_tcp,
    }, "iperf3 TCP", (">=", 0.8)),
    ("8-byte SEND latency, half round trip", "us", {
        "adapter ib_send_lat": perftest_latency("ib_send_lat", 8),
        "libfabric tcp": libfabric_latency(8, 20000),
    }, "libfabric tcp", ("<=", 2.0)),
] + connect.contests()


def measure(bench, rounds):
    """{contest: {who: [figure...]}}, the runners of a contest one after the other in each round."""
    figures = {name: {who: [] for who in runners} for name, _, runners, _, _ in CONTESTS}
    for n in range(rounds):
        for name, _, runners, _, _ in CONTESTS:
            for who, run in runners.items():
                figures[name][who].append(run(bench))
        print("round %d of %d" % (n + 1, rounds), file=sys.stderr, flush=True)
    return figures


def report(figures):
    results = []
    for name, unit, runners, reference, (sense, mark) in CONTESTS:
        medians = {who: statistics.median(values) for who, values in figures[name].items()}
        ours = next(iter(runners))
        ratio = medians[ours] / medians[reference]
        reached = ratio >= mark if sense == ">=" else ratio <= mark
        print("\n%s (%s)" % (name, unit))
        for who, median in medians.items():
            values = figures[name][who]
            print("  %-22s %8.2f   (%.2f ... %.2f)   %5.2f x %s" % (
                who, median, min(values), max(values), median / medians[reference], reference))
        print("  mark: %s %.1f x %s: %s" % (sense, mark, reference,
                                            "reached" if reached else "MISSED"))
        results.append({"contest": name, "unit": unit, "medians": medians, "runs": figures[name],
                        "reference": reference, "ratio": ratio, "mark": sense + str(mark),
                        "reached": reached})
    return results


def main():
    p = argparse.ArgumentParser(description="Compare the adapter with iperf3 and libfabric.")
    p.add_argument("--build", default="build")
    p.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    p.add_argument("--seconds", type=int, default=2, help="of each bandwidth run (default: %(default)s)")
    p.add_argument("--json", metavar="FILE", help="write all figures there")
    args = p.parse_args()
    bench = Bench(os.path.abspath(args.build), args.seconds)
    began = time.time()
    results = report(measure(bench, args.rounds))
    for remark in connect.remarks():
        print("\n" + remark)
    print("\n%d processors, %s, %.0f s" % (os.cpu_count(), os.uname().release, time.time() - began))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
