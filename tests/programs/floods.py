# SPDX-License-Identifier: BSD-2-Clause
"""Rows of the program matrix: garbage as fast as this machine can make it, beside a transfer that must live."""
import re
import time

from specials import REASONS, finish, garbage_source, require, resident

SECONDS = 5
GROWTH_KIB = 2048  # receive buffers that are used for the first time


def counters(r, host, user, pids):
    """{pid: {name: value}}, drops by their reason, once all these processes have told; they may be too busy to answer."""
    told, deadline = {}, r.deadline(30)
    while not told.keys() >= pids:
        require(time.monotonic() < deadline, "no counters of %s" % (pids - told.keys()))
        process = r.start_plain(host, user, [r.rocelink(), "counters"])
        process.popen.wait(30)
        current = {}
        for line in process.output().splitlines():
            if m := re.match(r"process (\d+)", line):
                current = told.setdefault(int(m[1]), {})
            elif m := re.match(r"  (?:dropped )?(\S+) +(\d+)", line):
                current[m[1]] = int(m[2])
    return told


def watch(r, host, user, pids, seconds):
    """(MB/s that the first process received, garbage per second that all looked at)."""
    first, began = counters(r, host, user, set(pids)), time.monotonic()
    time.sleep(seconds)
    last, took = counters(r, host, user, set(pids)), time.monotonic() - began
    received = last[pids[0]].get("rx_bytes", 0) - first[pids[0]].get("rx_bytes", 0)
    dropped = sum(last[pid].get(reason, 0) - first[pid].get(reason, 0) for pid in pids for reason in REASONS)
    return received / took / 1e6, dropped / took


def flood_once(r, place, user, how, pairs, target):
    host = place.end(is_server=True)[0]
    pids = [pair[0].pid for pair in pairs]  # the servers: on net4 the others are of another host
    ends = [end for pair in pairs for end in pair]
    before = [resident(end) for end in ends]
    quiet = watch(r, host, user, pids, 2)[0]
    source = garbage_source(r, place, user, target, SECONDS + 2, how)
    time.sleep(1)
    busy, looked_at = watch(r, host, user, pids, SECONDS)
    source.wait(r.deadline(20))
    sent = sum(int(n) for n in re.findall(r" (\d+)$", source.output(), re.M)) / (SECONDS + 2)
    print("      %s: %.0f packets/s sent, %.0f looked at; the transfer: %.1f MB/s beside it, %.1f MB/s without" %
          (how, sent, looked_at, busy, quiet), flush=True)
    require(all(end.running() for end in ends), "a transfer broke off")
    require(busy > 0, "the transfer stood still")
    grown = [resident(end) - kib for end, kib in zip(ends, before)]
    require(r.sanitizer or max(grown) <= GROWTH_KIB, "memory grew by %s KiB" % grown)


def garbage_at_full_speed(r, place, user):
    """Packets made beforehand, 64 with one system call and each for itself; all transfers go on, on the memory they had."""
    verified = r.start_pair("ibv_rc_pingpong", ["-c", "-s", "20000", "-n", "100000000"], place, user)
    responder = r.start_pair("ib_write_bw", ["-D", str(4 * SECONDS + 30), "-s", "8192"], place, user, wrap=["stdbuf", "-oL"])
    qpn = responder[0].wait_for(r"^ local address:.* QPN (0x[0-9a-f]+)", r.deadline(10))[1]
    time.sleep(1)  # they have their buffers now
    for how in ("bulk", "single"):
        flood_once(r, place, user, how, [verified, responder], qpn)
    finish(responder, r.deadline(60))
    for process in verified:
        require("invalid data" not in process.output(), "wrong data")
        process.kill()
