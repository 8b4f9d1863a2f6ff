# SPDX-License-Identifier: BSD-2-Clause
"""
What is measured, what each figure must reach, and what is drawn. A figure's key says who, what and
the size: udp.* and shm.* are the adapter's two paths.
"""
from collections import namedtuple

import adapter as our
import connecting
import peers

KIB = 1024
MARK_SIZES = {"64 KiB": 64 * KIB, "1 MiB": 1024 * KIB}
BANDWIDTH_SIZES = [64, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB]
LATENCY_SIZES = [8, 512, 4 * KIB, 32 * KIB]
PATHS = ("udp", "shm")
QPS = 1000
LOSSY = (500, 1000, 1500) # us and lost packets of a million, each way; MTU
BATCH = ["-l", "64", "-t", "256"]

# figure key; what it is divided by (another key, or None: itself); the mark: sense and number
Mark = namedtuple("Mark", "title key reference sense number")
Line = namedtuple("Line", "label keys") # keys: {message size: figure key}


def all_figures():
    f = {}
    for path in PATHS:
        for op in ("write", "send", "read"):
            for size in MARK_SIZES.values():
                f["%s.%s.bw.%d" % (path, op, size)] = our.write_like(path, op, size)
        for size in BANDWIDTH_SIZES:
            f.setdefault("%s.write.bw.%d" % (path, size), our.write_like(path, "write", size))
        for size in LATENCY_SIZES:
            f["%s.send.lat.%d" % (path, size)] = our.half_round_trip(path, "send", size)
        f[path + ".write.lat.8"] = our.half_round_trip(path, "write", 8)
        f[path + ".event.lat.8"] = our.half_round_trip(path, "send", 8, ["-e"])
        f[path + ".pingpong.lat.8"] = our.pingpong(path, "send", 8, "latency")
        f[path + ".pingpong.bw.65536"] = our.pingpong(path, "send", 64 * KIB, "bandwidth")
        f[path + ".write.rate.64"] = our.message_rate(path, "ib_write_bw", 64)
        f[path + ".batch.rate.64"] = our.message_rate(path, "ib_write_bw", 64, BATCH, step=64)
        f[path + ".ud.rate.1024"] = our.ud_rate(path, 1024)
        f[path + ".atomic.rate.8"] = our.message_rate(path, "ib_atomic_bw", 8, ["-A", "FETCH_AND_ADD"])
        f[path + ".qps.bw.4096"] = our.write_like(path, "write", 4 * KIB, qps=QPS)
        f[path + ".threads1.bw.65536"] = our.threads(path, 1)
        f[path + ".threads4.bw.65536"] = our.threads(path, 4)
    f["udp.lossy.bw.65536"] = our.lossy_link(LOSSY, 64 * KIB)
    f["iperf3.lossy.bw.65536"] = peers.iperf3_lossy(LOSSY, 64 * KIB)

    for size in BANDWIDTH_SIZES:
        f["fabric.bw.%d" % size] = peers.fabric_bandwidth(size)
        f["ucx-tcp.bw.%d" % size] = peers.ucx_bandwidth("tcp", size)
        f["ucx-posix.bw.%d" % size] = peers.ucx_bandwidth("posix", size)
        f["memcpy.bw.%d" % size] = peers.raw("memcpy", size)
        if size >= 4 * KIB: # below, iperf3 measures its own loop
            f["iperf3.bw.%d" % size] = peers.iperf3(size)
            f["ceiling.bw.%d" % size] = peers.raw("ceiling", size)
    for size in LATENCY_SIZES:
        f["fabric.lat.%d" % size] = peers.fabric_latency(size)
        f["ucx-tcp.lat.%d" % size] = peers.ucx_latency("tcp", size)
        f["ucx-posix.lat.%d" % size] = peers.ucx_latency("posix", size)
        f["tcp.lat.%d" % size] = peers.raw("tcp", size)
    return f | connecting.figures()


def bandwidth_marks(path, op, label, size):
    def mark(who, factor):
        return Mark("%s %s bandwidth" % (label, op.upper()), "%s.%s.bw.%d" % (path, op, size),
                    "%s.bw.%d" % (who, size), ">=", factor)
    if path == "udp":
        return [mark("iperf3", 1.5), mark("fabric", 1.2), mark("ceiling", 0.8)]
    return [mark("ucx-posix", 1.0)] if size == 64 * KIB else [mark("memcpy", 0.5)]


def all_marks():
    marks = []
    for path in PATHS:
        udp = path == "udp"

        def absolute(title, key, udp_number, shm_number, path=path, udp=udp):
            marks.append(Mark(title, "%s.%s" % (path, key), None, ">=",
                              udp_number if udp else shm_number))

        def against(title, key, reference, sense, factor, path=path):
            marks.append(Mark(title, "%s.%s" % (path, key), reference.replace("PATH", path), sense,
                              factor))

        for label, size in MARK_SIZES.items():
            for op in ("write", "send", "read"):
                marks += bandwidth_marks(path, op, label, size)
        peer, factor = ("fabric", 1.0) if udp else ("ucx-posix", 1.5)
        against("8 B SEND latency", "send.lat.8", peer + ".lat.8", "<=", factor)
        against("8 B WRITE latency", "write.lat.8", peer + ".lat.8", "<=", factor)
        absolute("64 B WRITE rate, post list", "batch.rate.64", 1.0, 3.0)
        absolute("64 B WRITE rate, one by one", "write.rate.64", 1.0, 3.0)
        absolute("UD 1 KiB SEND rate, received", "ud.rate.1024", 0.6, 2.0)
        for label, size in MARK_SIZES.items():
            against(label + " READ against WRITE", "read.bw.%d" % size, "PATH.write.bw.%d" % size,
                    ">=", 0.8)
        absolute("8-byte atomics", "atomic.rate.8", 0.15, 1.0)
        against("event-driven SEND latency", "event.lat.8", "tcp.lat.8", "<=", 1.3)
        against("1,000 QPs, 4 KiB WRITE", "qps.bw.4096", "PATH.write.bw.4096", ">=", 0.85)
        against("4 threads, 4 QPs, 64 KiB", "threads4.bw.65536", "PATH.threads1.bw.65536", ">=", 1.0)
    marks.append(Mark("64 KiB WRITE, slow and lossy wire", "udp.lossy.bw.65536", "iperf3.lossy.bw.65536", ">=", 0.5))
    return marks + [Mark(*row) for row in connecting.contests()]


# Measured and shown without a mark.
ALSO = [
    ("8 B SEND latency, rocelink pingpong", ["udp.pingpong.lat.8", "shm.pingpong.lat.8"]),
    ("64 KiB SEND bandwidth, rocelink pingpong", ["udp.pingpong.bw.65536", "shm.pingpong.bw.65536"]),
]


def all_also():
    return ALSO + connecting.also()


def line(label, pattern, sizes):
    return Line(label, {size: pattern % size for size in sizes})


LARGE = [size for size in BANDWIDTH_SIZES if size >= 4 * KIB]
PLOTS = [
    ("Bandwidth against message size", "Gb/s", [
        line("rocelink shm, WRITE", "shm.write.bw.%d", BANDWIDTH_SIZES),
        line("rocelink udp, WRITE", "udp.write.bw.%d", BANDWIDTH_SIZES),
        line("memcpy", "memcpy.bw.%d", BANDWIDTH_SIZES),
        line("UCX posix", "ucx-posix.bw.%d", BANDWIDTH_SIZES),
        line("UCX tcp", "ucx-tcp.bw.%d", BANDWIDTH_SIZES),
        line("UDP GSO + ICRC", "ceiling.bw.%d", LARGE),
        line("iperf3 TCP", "iperf3.bw.%d", LARGE),
        line("libfabric tcp", "fabric.bw.%d", BANDWIDTH_SIZES),
    ]),
    ("Latency, half round trip, against message size", "us", [
        line("rocelink shm, SEND", "shm.send.lat.%d", LATENCY_SIZES),
        line("rocelink udp, SEND", "udp.send.lat.%d", LATENCY_SIZES),
        line("blocking TCP", "tcp.lat.%d", LATENCY_SIZES),
        line("UCX posix", "ucx-posix.lat.%d", LATENCY_SIZES),
        line("UCX tcp", "ucx-tcp.lat.%d", LATENCY_SIZES),
        line("libfabric tcp", "fabric.lat.%d", LATENCY_SIZES),
    ]),
]

NOTES = """\
Latencies are averages of half round trips. libfabric's fi_pingpong has one message under way at a
time, so its bandwidth is that of a ping-pong; `rocelink pingpong` and perftest keep their queues full.
UD is counted where it arrives. On the slow wire, between two network namespaces, each packet takes
{lossy[0]} us and {lossy[1]} of a million are lost, each way; its MTU is {lossy[2]}.
The kernel's driver is measured side by side in a virtual machine: ./dev bench --guest."""
