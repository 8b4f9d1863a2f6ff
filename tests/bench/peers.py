# SPDX-License-Identifier: BSD-2-Clause
"""Runners for what the adapter is compared with."""
import json
import os
import re

from figure import bandwidth, latency, Figure, GBPS
from processes import HOST, Failure, number, pair, run, slow_wire


def iperf3_figure(size, n, server, client, port):
    """One TCP connection, written and read in pieces of `size`. server, client: prefix and address."""
    output, _ = pair(server[0] + ["iperf3", "-s", "-1", "-B", server[1], "-p", port],
                     client[0] + ["iperf3", "-c", server[1], "-p", port, "-J", "-l", str(size), "-n", str(n * size)], port)
    received = json.loads(output)["end"]["sum_received"]
    # What was still on the way when the last piece was written isn't counted.
    if received["bytes"] < 0.5 * n * size:
        raise Failure("iperf3 received %d of %d bytes" % (received["bytes"], n * size))
    return number(received["bits_per_second"] / 1e9, "iperf3")


def iperf3(size):
    return bandwidth(lambda bench, n: iperf3_figure(size, n, ([], HOST), ([], HOST), bench.next_port()), size)


def iperf3_lossy(link, size):
    """Over a wire where packets are late and lost."""
    def measure(bench, n):
        with slow_wire(bench, *link) as (enter, addresses):
            ends = list(zip(enter, addresses))
            return iperf3_figure(size, n, ends[1], ends[0], bench.next_port())
    return Figure(GBPS, measure, size, first=300)


def fabric_row(bench, size, n):
    """libfabric's fi_pingpong over tcp: us per transfer. It has one message under way at a time."""
    port = bench.next_port()
    args = ["-p", "tcp", "-e", "msg", "-I", str(n), "-S", str(size)]
    output, _ = pair(["fi_pingpong", "-B", port] + args, ["fi_pingpong", "-P", port] + args + [HOST],
                     port)
    lines = [ln for ln in output.splitlines() if ln.strip()]
    if len(lines) != 2 or lines[0].split()[6] != "usec/xfer":
        raise Failure("fi_pingpong printed something else:\n" + output)
    return number(lines[1].split()[6], "fi_pingpong")


def fabric_latency(size):
    return latency(lambda bench, n: fabric_row(bench, size, n), size)


def fabric_bandwidth(size):
    # Its own MB/sec are rounded to hundredths, too coarse for small messages.
    return bandwidth(lambda bench, n: size * 8e-3 / fabric_row(bench, size, n), size)


def ucx(transport, test, size, column):
    """A column of ucx_perftest's only result line. Its MB are 2^20 bytes."""
    def measure(bench, n):
        port = bench.next_port()
        env = dict(os.environ, UCX_TLS=transport, UCX_LOG_LEVEL="error")
        env |= {"UCX_NET_DEVICES": "lo"} if transport == "tcp" else {}
        client = ["ucx_perftest", HOST, "-p", port, "-t", test, "-s", str(size), "-n", str(n), "-w",
                  str(max(10, n // 20)), "-f", "-v"]
        output, _ = pair(["ucx_perftest", "-p", port], client, port, env=env)
        lines = [ln.strip() for ln in output.splitlines() if ln.strip()]
        if "overall_lat" not in lines[0] or not re.match(r"\d+,", lines[-1]):
            raise Failure("ucx_perftest printed something else:\n" + output)
        row = dict(zip(lines[0].split(","), lines[-1].split(",")))
        if int(row["iterations"]) != n:
            raise Failure("ucx_perftest: %s messages instead of %d" % (row["iterations"], n))
        return number(row[column], "ucx_perftest")
    return measure


def ucx_bandwidth(transport, size):
    measure = ucx(transport, "tag_bw", size, "overall_mr")
    return bandwidth(lambda bench, n: measure(bench, n) * size * 8 / 1e9, size)


def ucx_latency(transport, size):
    return latency(ucx(transport, "tag_lat", size, "overall_lat"), size)


def raw(mode, size):
    """Our own bench_raw: the ceiling, memcpy, blocking TCP."""
    def measure(bench, n):
        return number(run([bench.program("bench_raw"), mode, str(size), str(n)]), mode)
    return latency(measure, size) if mode == "tcp" else bandwidth(measure, size)
