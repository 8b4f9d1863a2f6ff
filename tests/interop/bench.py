# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's driver and the adapter side by side: the same programs in the same guest, both ends in it,
turn and turn about. Only ratios mean anything: the processor is usually an emulated one."""
import itertools
import re
import statistics

import lab

FIRST_PORT = 18100
TRIES = 4

# name, program and options (so many messages: with -D perftest's result is 0 now and then in an emulated guest), unit
MEASUREMENTS = [
    ("WRITE 64 KiB", "ib_write_bw -s 65536 -n 1000", "MB/s"),
    ("SEND 64 KiB", "ib_send_bw -s 65536 -n 1000", "MB/s"),
    ("READ 64 KiB", "ib_read_bw -s 65536 -n 1000", "MB/s"),
    ("WRITE 64 B", "ib_write_bw -s 64 -n 50000", "MB/s"),
    ("SEND 64 B", "ib_send_bw -s 64 -n 50000", "MB/s"),
    ("READ 64 B", "ib_read_bw -s 64 -n 20000", "MB/s"),
    ("SEND 8 B latency", "ib_send_lat -s 8 -n 5000", "us"),
]
TIMEOUT_S = 60


def value(text, unit):
    """perftest's average column: of bandwidth the 4th, of latency the 6th."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3 and re.fullmatch(r"\d+", fields[0]) and re.fullmatch(r"[\d.]+", fields[2]):
            return float(fields[3] if unit == "MB/s" else fields[5])
    return None


def measure(node, command, unit, port):
    line = f"{command} -d {node.device} -x {node.gids['v4']} -u 18 -F -p {port}"
    # A processor each: two programs that poll on one of them only wait for each other.
    server = node.start(f"taskset 1 {line}")
    try:
        node.wait_listening(port, server)
        status, text = node.run(f"taskset 2 {line} {node.v4}", TIMEOUT_S)
        server.wait(15)
    except lab.LabError as e:
        return None, str(e)
    got = value(text, unit) if status == 0 else None
    return got, None if got else f"status {status}: {text[-400:]}"


def run(kernel, udp, shm, rounds, chosen=""):
    """[(name, unit, the kernel's, UDP's, its gain, the same-host path's, its gain)]; medians, None where nothing was
    measured."""
    rows, port = [], FIRST_PORT
    nodes = (kernel, udp, shm)
    for name, command, unit in MEASUREMENTS:
        if not re.search(chosen, name):
            continue
        seen = {node: [] for node in nodes}
        for _, node in itertools.product(range(rounds), nodes):
            # Where the processor is emulated perftest's own clock check fails now and then.
            for _ in range(TRIES):
                port += 1
                got, wrong = measure(node, command, unit, port)
                if got:
                    seen[node].append(got)
                    break
            else:
                print(f"bench {name}: no figure from {node.name}: {wrong}", flush=True)
        theirs, *ours = (statistics.median(seen[node]) if seen[node] else None for node in nodes)
        gains = [gain(theirs, one, unit) for one in ours]
        rows.append((name, unit, theirs, ours[0], gains[0], ours[1], gains[1]))
        print(f"bench {name:18} kernel {show(theirs)} {unit}; adapter, UDP {show(ours[0])}: {show(gains[0])} times; "
              f"same host {show(ours[1])}: {show(gains[1])} times", flush=True)
    return rows


def gain(theirs, ours, unit):
    if not ours or not theirs:
        return None
    return ours / theirs if unit == "MB/s" else theirs / ours


def show(number):
    return f"{number:.2f}" if number else "-"
