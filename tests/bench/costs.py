# SPDX-License-Identifier: BSD-2-Clause
"""
What an operation costs, counted instead of timed, once for each path: system calls and allocations (the
difference of two runs of different length, so that start-up doesn't count), memory and processor
time of idle queue pairs.
"""
import glob
import os
import re
import tempfile

from adapter import check, last_row
from processes import HOST, Failure, pair, run

FEW, MANY = 1000, 9000
SIZE = 65536
IDLE_QPS = 1000


def writes(bench, path, n, wrap, env=None):
    """ib_write_bw of n messages; wrap("server" or "client", argv) is what is started."""
    port = bench.next_port()
    argv = ["ib_write_bw", "-F", "-d", bench.device, "-x", bench.gid, "-p", port, "-s", str(SIZE),
            "-n", str(n), "-N"]
    client, _ = pair(wrap("server", bench.adapter(path, argv)),
                     wrap("client", bench.adapter(path, argv + [HOST])), port, env=env)
    check(last_row(client, "ib_write_bw"), SIZE, n, "ib_write_bw")


def calls_in(summary):
    """Of `strace -c`: {name: calls}, without those of waiting and sleeping processes."""
    calls = {}
    with open(summary, encoding="ascii") as f:
        for line in f:
            if m := re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line):
                calls[m[2]] = int(m[1])
    if "total" not in calls:
        raise Failure("strace -c wrote no summary")
    return calls


def system_calls(bench, path):
    """{side: calls per message}"""
    with tempfile.TemporaryDirectory() as tmp:
        def count(n):
            writes(bench, path, n, lambda side, argv:
                   ["strace", "-f", "-c", "-o", os.path.join(tmp, side), *argv])
            return {side: calls_in(os.path.join(tmp, side))["total"] for side in ("client", "server")}
        few, many = count(FEW), count(MANY)
    return {side: (many[side] - few[side]) / (MANY - FEW) for side in few}


def allocations(bench, path):
    """{"both": allocations per message}; perftest's own tables are one allocation however long."""
    def count(n):
        with tempfile.TemporaryDirectory() as tmp:
            env = dict(os.environ, LD_PRELOAD=bench.program("bench_malloc_count.so"),
                       MALLOC_COUNT=os.path.join(tmp, "count"))
            writes(bench, path, n, lambda _, argv: argv, env)
            counts = glob.glob(os.path.join(tmp, "count.*"))
            if len(counts) != 2:
                raise Failure("%d processes counted their allocations, not 2" % len(counts))
            return sum(int(open(name, encoding="ascii").read()) for name in counts)
    few, many = count(FEW), count(MANY)
    if few < 100:
        raise Failure("only %d allocations at start-up: the counter didn't count" % few)
    return {"both": (many - few) / (MANY - FEW)}


def idle(bench, path):
    output = run(bench.adapter(path, [bench.program("bench_verbs"), bench.device, bench.gid, "idle",
                                      str(IDLE_QPS)]), timeout=120)
    memory, cpu = map(float, output.split())
    return {"memory": memory / 1024, "cpu": cpu}


# key, what is counted, who counts it, which of its results, unit, mark (at most)
COUNTED = [
    ("calls.client", "system calls per 64 KiB WRITE, sender", system_calls, "client", "", 2),
    ("calls.server", "system calls per 64 KiB WRITE, receiver", system_calls, "server", "", 2),
    ("allocations", "allocations per WRITE after start-up, both sides", allocations, "both", "", 0.001),
    ("idle.memory", "memory of an idle connected QP with its queues", idle, "memory", "KiB", 4),
    ("idle.cpu", "processor time of an adapter with 1,000 idle QPs", idle, "cpu", "%", 0.1),
]


def measure(bench, wanted, failed):
    """{key: value} of those whose key is wanted; in failed[key] why one has none."""
    values, results = {}, {}
    for path in ("udp", "shm"):
        for key, _, how, part, _, _ in COUNTED:
            name = "%s.%s" % (path, key)
            if name in wanted:
                try:
                    if (how, path) not in results:
                        results[how, path] = how(bench, path)
                    values[name] = results[how, path][part]
                except Failure as e:
                    failed[name] = str(e)
    return values
