#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
network.py BUILD: what happens to interfaces and clocks while a stock program checks its data: an address is
removed and added, an interface goes down and up on either side, its MTU is too small for a while and then larger; the
same to loopback below the same-host path; the wall clock jumps by hours with every look at it. The transfer goes on. An
address that doesn't come back is status 12, in time.

Exit status 77: network namespaces are not allowed here.
"""
import functools
import json
import os
import subprocess
import sys
import time

import kill

OUTAGE_S = 0.4
OUTAGE_MAX_S = 1
TRIES = 5
ITERATIONS = 15000
LOCAL_ITERATIONS = 400000
SIZE = 3000
# Timeout 14 and 7 retries: 8 times 67 ms and at most four times that; the rest is for a busy machine.
ERROR_AFTER_S = 8 * 4.096e-6 * 2 ** 14
ERROR_WITHIN_S = 4 * ERROR_AFTER_S + 4
ADDRESS = "10.9.0.1/24"

# (name, side whose interface it is, what happens first, what undoes it)
EVENTS = [
    ("address removed and added", "a", "addr del {address} dev {dev}", "addr add {address} dev {dev}"),
    ("interface down and up", "a", "link set {dev} down", "link set {dev} up"),
    ("the peer's interface down and up", "b", "link set {dev} down", "link set {dev} up"),
    ("MTU too small, then larger", "a", "link set {dev} mtu 600", "link set {dev} mtu 3000"),
]
LOCAL_EVENTS = [
    ("loopback down and up", "link set lo down", "link set lo up"),
    ("address of loopback removed and added", "addr del 127.0.0.1/8 dev lo", "addr add 127.0.0.1/8 dev lo"),
]


def inside(holder):
    return ["nsenter", "-t", str(holder.pid), "-n"] if holder else []


class End(kill.Side):
    """A program in a namespace: that of a process, or (None) our own."""

    def __init__(self, build, path, holder, program, *more, env=None):
        super().__init__(build, path, program, *more, before=[*inside(holder), "env", *(env or [])])


def ip(holder, command):
    subprocess.run([*inside(holder), "ip", *command.split()], check=True)


def other_host():
    """A second host on the same wire; it ends with us."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    while os.readlink("/proc/%d/ns/net" % holder.pid) == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)
    ip(None, "link add a0 type veth peer name b0 netns %d" % holder.pid)
    for where, dev, address in ((None, "a0", ADDRESS), (holder, "b0", "10.9.0.2/24")):
        ip(where, "link set %s addrgenmode none" % dev)
        ip(where, "link set %s up" % dev)
        ip(where, "addr add %s dev %s" % (address, dev))
    while not (running(None, "a0") and running(holder, "b0")):
        time.sleep(0.01)
    return holder


def running(holder, dev):
    """The kernel notices a carrier a moment after the link is up; before, the adapter has no device for it."""
    said = subprocess.run([*inside(holder), "ip", "-json", "link", "show", dev], capture_output=True, check=True).stdout
    return json.loads(said)[0]["operstate"] == "UP"


def start(build, path, holder, device, server_address, port, iterations=ITERATIONS, env=None):
    program = ["stdbuf", "-oL", "ibv_rc_pingpong", "-c", "-g", "0", "-n", str(iterations), "-s", str(SIZE), "-p", str(port)]
    server = End(build, path, holder, [*program, "-d", device[0]], env=env)
    kill.await_listening({port}, holder.pid if holder else "self")
    client = End(build, path, None, [*program, "-d", device[1]], server_address, env=env)
    # Connected when both know the other's address, which they say.
    for one in (server, client):
        one.await_text("remote address", kill.FINISH_WITHIN_S)
    time.sleep(0.2)
    return server, client


def finish(name, ends):
    wrong = []
    for side, one in zip(("server", "client"), ends):
        status = one.end(kill.FINISH_WITHIN_S)
        said = one.said()
        if status != 0 or "invalid data" in said:
            wrong.append("%s: %s: %s: %s" % (name, side, status, said[-300:]))
        one.output.close()
    return wrong


def interrupted(name, where, begin, first, then):
    """A transfer is under way, is interrupted, and ends well. An outage that a busy machine made too long is repeated."""
    for _ in range(TRIES):
        ends = begin()
        if any(one.process.poll() is not None for one in ends):
            return ["%s: the transfer was over before" % name] + finish(name, ends)
        start = time.monotonic()
        ip(where, first)
        time.sleep(OUTAGE_S)
        ip(where, then)
        outage = time.monotonic() - start
        wrong = finish(name, ends)
        if not wrong or outage < OUTAGE_MAX_S:
            print("%-5s %s" % ("FAIL" if wrong else "ok", name), flush=True)
            return wrong
    return ["%s: outages of %.1f s: the machine is too busy" % (name, outage)]


def address_gone(build, holder):
    """For ever: the client, which has requests on their way, is told in time."""
    name = "address gone for ever"
    program = ["ib_write_bw", "-D", "60", "-x", "0", "-p", "20100"]
    server = End(build, "udp", holder, ["stdbuf", "-oL", *program, "-d", "rl_b0"])
    kill.await_listening({20100}, holder.pid)
    client = End(build, "udp", None, ["stdbuf", "-oL", *program, "-d", "rl_a0"], "10.9.0.2")
    client.await_text("#bytes", kill.FINISH_WITHIN_S)
    time.sleep(0.5)
    ip(None, "addr del %s dev a0" % ADDRESS)
    gone = time.monotonic()
    status, took = client.end(ERROR_WITHIN_S), time.monotonic() - gone
    said = client.said()
    server.process.kill()
    server.process.wait()
    ip(None, "addr add %s dev a0" % ADDRESS)
    if "status 12" not in said or took < ERROR_AFTER_S * 0.9:
        return ["%s: %s after %.2f s: %s" % (name, status, took, said[-300:])]
    print("ok    %s: status 12 after %.2f s" % (name, took), flush=True)
    return []


def clock_jumps(build, shim, path):
    env = ["LD_PRELOAD=" + shim]
    times = {int(subprocess.run(["env", *env, "date", "+%s"], capture_output=True, check=True).stdout) // 1800
             for _ in range(8)}
    if len(times) < 2:
        return ["the clock doesn't jump: the test is broken"]
    wrong = finish("clock jumps, " + path,
                   start(build, path, None, ("rl_lo", "rl_lo"), "127.0.0.1", 20200, iterations=3000, env=env))
    print("%-5s clock jumps, %s" % ("FAIL" if wrong else "ok", path), flush=True)
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    kill.isolate()
    build = os.path.abspath(sys.argv[1])
    shim = os.path.join(build, "tests", "libtest_jumpy_clock.so")
    holder, wrong = other_host(), []
    try:
        wrong += address_gone(build, holder)
        for i, (name, side, first, then) in enumerate(EVENTS):
            words = {"dev": side + "0", "address": ADDRESS}
            begin = functools.partial(start, build, "udp", holder, ("rl_b0", "rl_a0"), "10.9.0.2", 20000 + i)
            wrong += interrupted(name, holder if side == "b" else None, begin, first.format(**words),
                                 then.format(**words))
        for i, (name, first, then) in enumerate(LOCAL_EVENTS):
            for path in ("shm", "udp"):
                begin = functools.partial(start, build, path, None, ("rl_lo", "rl_lo"), "127.0.0.1",
                                          20050 + 2 * i + (path == "udp"),
                                          LOCAL_ITERATIONS if path == "shm" else ITERATIONS)
                wrong += interrupted("%s, %s" % (name, path), None, begin, first, then)
        for path in ("shm", "udp"):
            wrong += clock_jumps(build, shim, path)
    finally:
        holder.kill()
        holder.wait()
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
