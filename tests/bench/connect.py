# SPDX-License-Identifier: BSD-2-Clause
"""
What it takes to connect: librocelink's exchange, plain and with TLS, beside that of Debian's ibv_rc_pingpong.
Contests for the bench (connecting.py); their marks are ratios of this run too.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "link"))
import many  # pylint: disable=wrong-import-position

CONNECTIONS = 200
STOCK_RUNS = 15
STOCK = "with ibv_rc_pingpong"
TEXT = "ibv_rc_pingpong's text"


def build_of(bench):
    return os.path.dirname(bench.rocelink)


def one_by_one(bench):
    """us from the call to an established connection, median."""
    return many.run(build_of(bench), "sequential", CONNECTIONS, 1)[0][0]["p50_us"]


def per_second(how, mode=""):
    def run(bench):
        return many.run(build_of(bench), how, CONNECTIONS, 1, mode)[0][0]["per_second"]
    return run


def queue_pairs_at_once(count):
    """us for each queue pair of one exchange."""
    def run(bench):
        return many.run(build_of(bench), "sequential", 1, count)[0][0]["p50_us"] / count
    return run


def first(mode=""):
    """us of a process's first connection, when nothing is in any cache yet: median over processes."""
    def run(bench):
        return statistics.median(many.run(build_of(bench), "sequential", 1, 1, mode)[0][0]["p50_us"]
                                 for _ in range(STOCK_RUNS))
    return run


def first_to_stock_server(bench):
    """The same client, speaking the text exchange, to the stock program, which serves once."""
    figures = []
    for _ in range(STOCK_RUNS):
        port = bench.next_port()
        with subprocess.Popen(stock_program(bench, port), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            try:
                wait_listening(int(port))
                client = [os.path.join(build_of(bench), "tests", "link_many"), "sequential", port, "1", "1", "stock"]
                done = subprocess.run(client, check=True, capture_output=True, text=True, timeout=60)
                figures.append(json.loads(done.stdout)["p50_us"])
            finally:
                process.kill()
    return statistics.median(figures)


def wait_listening(port):
    for _ in range(1000):
        for family in ("tcp", "tcp6"):
            with open("/proc/net/" + family, encoding="ascii") as f:
                if any(line.split()[1].endswith(":%04X" % port) and line.split()[3] == "0A"
                       for line in f.readlines()[1:]):
                    return
        time.sleep(0.005)
    raise RuntimeError("nothing listens on TCP port %d" % port)


def run_time_ms(argv):
    """From exec to exit. subprocess's own timeout looks after 0.5, 1.5, 3.5, 7.5, 15.5 ms ... whether it has ended."""
    began = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        process.wait()
        took = time.monotonic() - began
        killer.cancel()
    if process.returncode:
        raise RuntimeError("%s: status %d" % (" ".join(argv), process.returncode))
    return took * 1e3


def whole_process(server, client):
    """ms of a client from exec to exit, one message: device, queue pair, exchange, and all of it away again."""
    def run(bench):
        figures = []
        for _ in range(STOCK_RUNS):
            port = bench.next_port()
            with subprocess.Popen(server(bench, port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                try:
                    wait_listening(int(port))
                    figures.append(run_time_ms(client(bench, port)))
                    process.wait(10)
                finally:
                    process.kill()
        return statistics.median(figures)
    return run


def stock_program(bench, port):
    return bench.adapter("auto", ["ibv_rc_pingpong", "-d", bench.device, "-g", bench.gid, "-n", "1", "-p", port])


def our_program(bench, port):
    return [bench.rocelink, "pingpong", "-n", "1", "-p", port]


def contests():
    """Of each: name, unit, {who: how}, reference, mark."""
    found = [
        ("connecting one queue pair, from the call to READY, a process's first", "us", {
            "librocelink": first(),
            "librocelink, TLS": first("secret"),
            STOCK: first_to_stock_server,
        }, STOCK, ("<=", 1.5)),
        ("connections per second", "1/s", {
            "librocelink": per_second("sequential"),
            "200 at once": per_second("crowd"),
            "TLS": per_second("sequential", "secret"),
            TEXT: per_second("sequential", "stock"),
        }, TEXT, (">=", 0.5)),
        ("1,000 queue pairs, each", "us", {
            "in one exchange": queue_pairs_at_once(1000),
            "an exchange each": one_by_one,
        }, "an exchange each", ("<=", 1.0)),
        ("a whole client program, one message", "ms", {
            "rocelink pingpong": whole_process(our_program, lambda b, p: our_program(b, p) + ["127.0.0.1"]),
            "ibv_rc_pingpong": whole_process(stock_program, lambda b, p: stock_program(b, p) + ["127.0.0.1"]),
        }, "ibv_rc_pingpong", ("<=", 1.5)),
    ]
    return found if shutil.which("ibv_rc_pingpong") else found[1:3]


def remarks():
    """What could not be compared, and why."""
    if not os.path.exists("/dev/infiniband/rdma_cm"):
        yield "librdmacm isn't compared: it needs the kernel's RDMA connection manager, and there is none here"
