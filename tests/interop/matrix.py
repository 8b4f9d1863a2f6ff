#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the tables of cases.py between the nodes of the laboratory; started by `run`."""
import argparse
import itertools
import json
import os
import queue
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass

import bench
import cases
import counters
import lab
import report

FIRST_PORT = 18600


@dataclass
class Result:
    pair: str
    group: str
    case: cases.Case
    server: str
    client: str
    faults: list  # (role, key, value)
    deviations: list  # the kernel's known ones
    seconds: float
    texts: dict


class Matrix:
    def __init__(self, options):
        self.options = options
        self.ports = itertools.count(FIRST_PORT)
        self.lock = threading.Lock()
        self.failures = os.path.join(options.build, "interop", "failures")  # whole outputs
        os.makedirs(self.failures, exist_ok=True)
        self.results = []
        self.counted = {}  # group: {side: counters}, where the network was impaired
        self.not_run = 0  # cases that were left out when time was up
        self.began = time.monotonic()

    def run_case(self, pair, group, case, server, client):
        began = time.monotonic()
        for _ in range(case.tries):
            outcome = self.try_case(case, server, client)
            faults, deviations = self.judge(case, server, client, outcome)
            excused = any(case.excuse in text for _, text in outcome.values())
            if not faults or not excused:
                break
        result = Result(pair.name, group.name, case, server.name, client.name, faults, deviations,
                        time.monotonic() - began, {role: text for role, (_, text) in outcome.items()})
        with self.lock:
            self.results.append(result)
            self.say(result)

    def try_case(self, case, server, client):
        with self.lock:
            port = next(self.ports)
        server_job = server.start(case.command(server.device, server.gids[case.gid], port, ""))
        outcome = {}
        try:
            server.wait_listening(port, server_job)
            client_job = client.start(case.command(client.device, client.gids[case.gid], port, server.tcp))
            outcome["client"] = client_job.wait(case.timeout)
            outcome["server"] = server_job.wait(15)
        except (lab.LabError, OSError) as error:
            server_job.kill()
            outcome.setdefault("client", ("not started", str(error)))
            outcome["server"] = server_job.wait(5)
        return outcome

    def judge(self, case, server, client, outcome):
        faults, deviations = [], []
        for role, (status, text) in outcome.items():
            for key, value in cases.judge(case, role, status, text):
                known = cases.kernels_deviation(case, role, key, value, server, client)
                if known:
                    deviations.append(known)
                else:
                    faults.append((role, key, value))
        return faults, deviations

    def say(self, result):
        verdict = "FAIL" if result.faults else "ok  "
        what = f"{result.case.name} ({result.case.gid})"
        print(f"{verdict} {result.group:12} {what:42} {result.server} <- {result.client} {result.seconds:5.1f} s",
              flush=True)
        for role, key, value in result.faults:
            print(f"       {role}: {key}={value}")
        if result.faults:
            path = os.path.join(self.failures, f"{len(self.results):03}.txt")
            with open(path, "w") as file:
                file.writelines(f"--- {role}\n{text}\n" for role, text in result.texts.items())
            print(f"       outputs: {path}", flush=True)

    def run_group(self, pair, group):
        todo = queue.SimpleQueue()
        for case in group.cases:
            if pair.kind and not (pair.kind in case.also and pair.kind in group.also):
                continue
            if not re.search(self.options.filter, f"{pair.name}/{group.name}/{case.name}/{case.gid}"):
                continue
            if pair.kind == cases.ROUTED and not case.passes_router:
                continue
            for server, client in ((pair.a, pair.b), (pair.b, pair.a)):
                if case.kernel_client or not client.kernel:
                    todo.put((case, server, client))
        if todo.empty():
            return
        pair.set_link(group.mtu, group.netem)
        counting = {}
        if group.netem and pair.counted:
            counting = {"adapter": counters.AdapterCounters(pair.a.place),
                        "kernel": counters.KernelCounters(pair.b.place)}
        self.run_queue(pair, group, todo)
        if counting:
            self.counted[group.name] = {side: counter.stop() for side, counter in counting.items()}

    def run_queue(self, pair, group, todo):
        def work():
            while True:
                try:
                    case, server, client = todo.get_nowait()
                except queue.Empty:
                    return
                if time.monotonic() - self.began > self.options.minutes * 60:
                    with self.lock:
                        self.not_run += 1
                    continue
                self.run_case(pair, group, case, server, client)

        workers = [threading.Thread(target=work, daemon=True) for _ in range(self.options.jobs or group.width)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def silent_counters(self):
        """Groups with loss in which a side counted none of the things that loss causes."""
        return [(group, side) for group, sides in self.counted.items() if group.startswith("loss")
                for side, seen in sides.items() if not any(seen.get(name) for name in report.COUNTERS[side])]

    def summary(self):
        for group, side in self.silent_counters():
            print(f"FAIL {group}: the {side}'s counters show no retransmission and no NAK")
        failed = sum(1 for result in self.results if result.faults)
        passed = len(self.results) - failed
        failed += len(self.silent_counters())
        if self.not_run:
            print(f"FAIL {self.not_run} cases not run in {self.options.minutes} minutes")
        seconds = time.monotonic() - self.began
        print(f"interop: {passed} passed, {failed} failed, {self.not_run} not run ({seconds:.0f} s)")
        return failed + self.not_run


def parse_options():
    parser = argparse.ArgumentParser(description="The adapter against the kernel's RoCE v2 driver in a guest.")
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--oracle", action="store_true", help="the kernel's driver against itself, two guests")
    parser.add_argument("--filter", metavar="REGEX", default="", help="only PAIR/GROUP/CASE/GID (of --bench: names) that match")
    parser.add_argument("--jobs", type=int, default=0, help="cases at once (default: the group's own)")
    parser.add_argument("--cpus", type=int, default=1, help="processors of a guest (default: %(default)s)")
    parser.add_argument("--pcap", metavar="FILE", help="capture the data link (tcpdump)")
    parser.add_argument("--report", metavar="FILE", help="write the table of results there")
    parser.add_argument("--minutes", type=float, default=12.5,
                        help="then no case is started any more (default: %(default)s; the speed takes 2 more)")
    parser.add_argument("--bench", type=int, metavar="ROUNDS", nargs="?", const=3, default=0,
                        help="only the speed of both drivers in the guest (default: 3 rounds)")
    parser.add_argument("--json", metavar="FILE", help="with --bench: the figures, also as JSON")
    parser.add_argument("--shell", action="store_true", help="a shell in the laboratory instead of the matrix")
    return parser.parse_args()


def measure(options, rounds):
    """A guest of its own with two processors: both ends of a program poll."""
    with lab.Lab(options.build, False, 2) as laboratory:
        return bench.run(*laboratory.rivals(), rounds, options.filter)


def run_bench(options):
    rows = measure(options, options.bench)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([dict(zip(("name", "unit", "kernel", "udp", "udp_gain", "shm", "shm_gain"), row)) for row in rows], file, indent=1)
    return 0 if all(row[4] and row[6] for row in rows) else 1


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    lab.enter_namespace(options.build)
    if options.bench:
        return run_bench(options)
    matrix = Matrix(options)
    with lab.Lab(options.build, options.oracle, options.cpus) as laboratory:
        print(f"interop: guest ready after {time.monotonic() - matrix.began:.1f} s; {laboratory.describe()}")
        if options.pcap:
            laboratory.capture(options.pcap)
        if options.shell:
            return os.spawnlp(os.P_WAIT, "bash", "bash", "-i")
        for pair in laboratory.pairs():
            for group in cases.GROUPS:
                matrix.run_group(pair, group)
            pair.set_link()
        peer = laboratory.describe()
    speeds = [] if options.oracle or options.filter else measure(options, 1)
    failed = matrix.summary()
    if options.report:
        report.write(options.report, peer, matrix, speeds)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except lab.LabError as error:
        sys.exit(f"interop: {error}")
