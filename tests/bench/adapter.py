# SPDX-License-Identifier: BSD-2-Clause
"""Runners for the adapter: unmodified perftest, `rocelink pingpong`, and loads of our own."""
import json
import re

from figure import bandwidth, latency, rate, Figure, GBPS
from processes import HOST, Failure, number, pair, run, slow_wire


def last_row(output, program):
    rows = [ln.split() for ln in output.splitlines() if re.match(r"^ *\d+ +\d+ +[\d.]+ +[\d.]+", ln)]
    if not rows:
        raise Failure("%s printed no result:\n%s" % (program, output[-2000:]))
    return rows[-1]


def perftest(bench, path, program, args):
    """The last rows that client and server printed."""
    port = bench.next_port()
    argv = bench.adapter(path, [program, "-F", "-d", bench.device, "-x", bench.gid, "-p", port] + args)
    client, server = pair(argv, argv + [HOST], port)
    return last_row(client, program), server


def check(row, size, n, program):
    """perftest repeats size and number: another one in their place is another table."""
    if int(row[0]) != size or int(row[1]) != n:
        raise Failure("%s: %d messages of %d bytes were asked for, the result is of %s of %s" % (
            program, n, size, row[1], row[0]))


def write_like(path, op, size, args=(), qps=1):
    """Bandwidth of ib_write_bw, ib_send_bw or ib_read_bw; n is of all queue pairs together."""
    program = "ib_%s_bw" % op

    def measure(bench, n):
        each = max(5, n // qps)
        if each > 100:  # perftest's moderated completions count by the hundred; with many queue pairs it hangs on a rest
            each -= each % 100
        row, _ = perftest(bench, path, program, ["-s", str(size), "-n", str(each), "-N",
                                                 "--report_gbits", "-q", str(qps), *args])
        check(row, size, each * qps, program)
        return number(row[3], program)  # average; column 2 is the peak
    figure = bandwidth(measure, size)
    figure.first = max(figure.first, 40 * qps)
    return figure


def message_rate(path, program, size, args=(), step=1):
    def measure(bench, n):
        row, _ = perftest(bench, path, program, ["-n", str(n), "-N", *args]
                          + ([] if "atomic" in program else ["-s", str(size)]))
        check(row, size, n, program)
        return number(row[4], program)
    return rate(measure, size, step=step)


def ud_rate(path, size):
    """Of the datagrams that arrived, as the receiver counts them: UD sends faster than that."""
    def measure(bench, n):
        del n  # perftest's receiver would wait for lost ones, so this one takes a whole second
        _, server = perftest(bench, path, "ib_send_bw", ["-c", "UD", "-s", str(size), "-D", "1"])
        return number(last_row(server, "ib_send_bw")[4], "ib_send_bw -c UD")
    return rate(measure, size)


def half_round_trip(path, op, size, args=()):
    program = "ib_%s_lat" % op

    def measure(bench, n):
        row, _ = perftest(bench, path, program, ["-s", str(size), "-n", str(n), *args])
        check(row, size, n, program)
        return number(row[5], program)  # average: libfabric and TCP tell no other
    return latency(measure, size)


def pingpong(path, op, size, what):
    """rocelink pingpong: its latency or its bandwidth."""
    def measure(bench, n):
        port = bench.next_port()
        argv = bench.adapter(path, [bench.rocelink, "pingpong", "--plain", "--port", port])
        client, _ = pair(argv + ["--listen", HOST],
                         argv + ["--json", "--op", op, "--size", str(size), "--iters", str(n),
                                 "--ib-dev", bench.device, HOST], port)
        result = json.loads(client)
        if (result["size"], result["iterations"], result["op"]) != (size, n, op):
            raise Failure("rocelink pingpong measured something else: " + client)
        if what == "latency":
            return number(result["latency_us"]["mean"], "rocelink pingpong")
        return number(result["bytes_per_second"] * 8 / 1e9, "rocelink pingpong")
    return latency(measure, size) if what == "latency" else bandwidth(measure, size)


def threads(path, count):
    """WRITE of 64 KiB from so many threads, each with its own queue pair and completion queue."""
    size = 65536

    def measure(bench, n):
        output = run(bench.adapter(path, [bench.program("bench_verbs"), bench.device, bench.gid,
                                          "threads", str(count), str(n)]))
        return number(output, "bench_verbs threads")
    return Figure(GBPS, measure, size, first=1024)


def lossy_link(link, size):
    """WRITE over a wire where packets are late and lost."""
    def measure(bench, n):
        port = bench.next_port()
        with slow_wire(bench, *link) as (enter, addresses):
            args = ["ib_write_bw", "-F", "-d", "rl_wire", "-x", "0", "-p", port, "-s", str(size), "-n", str(n), "-N",
                    "--report_gbits"]
            client, _ = pair(enter[1] + bench.adapter("udp", args),
                             enter[0] + bench.adapter("udp", args) + [addresses[1]], port)
        row = last_row(client, "ib_write_bw")
        check(row, size, n, "ib_write_bw")
        return number(row[3], "ib_write_bw")
    return Figure(GBPS, measure, size, first=300)
