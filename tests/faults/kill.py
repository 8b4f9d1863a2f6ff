#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
kill.py BUILD [ROUNDS [SEED]]: eight pairs of stock programs that check their data. In each round one process is
killed (SIGKILL) or stopped for a second at a random moment. The other pairs must finish well, and nothing may be left
behind. The peer of one killed may wait for ever where it only waits to be sent something: that is RDMA. So in each
round the server of a ninth pair is killed, whose client has work outstanding: it must end with status 12, in time.

Exit status 77: network namespaces are not allowed here.
"""
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

PAIRS = 8
ITERATIONS = 400
SIZE = 16384
# Timeout 14 and 7 retries: 8 times 268 ms; the rest is for a busy machine.
ERROR_WITHIN_S = 20
WRITES_WITHIN_S = 2
FINISH_WITHIN_S = 120


def isolate():
    """Again in a namespace with nothing but loopback."""
    if os.environ.get("KILL_ISOLATED"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    if subprocess.run(["unshare", "-rn", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        sys.exit(77)
    os.execvpe("unshare", ["unshare", "-rn", sys.executable, *sys.argv], dict(os.environ, KILL_ISOLATED="1"))


def left_behind():
    with open("/proc/net/unix", encoding="ascii", errors="replace") as f:
        names = [line.split()[-1] for line in f if "rocelink" in line]
    return names + [n for n in os.listdir("/dev/shm") if "rocelink" in n]


class Side:
    def __init__(self, build, program, *more):
        argv = [os.path.join(build, "rocelink"), "run", "--", *program, *more]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, patience):
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "not ended after %d s" % patience


def await_listening(ports):
    deadline = time.monotonic() + FINISH_WITHIN_S
    listening = set()
    while not ports <= listening and time.monotonic() < deadline:
        time.sleep(0.05)
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as f:
                rows = [line.split() for line in list(f)[1:]]
            listening |= {int(row[1].rsplit(":")[1], 16) for row in rows if row[3] == "0A"}


def start(build):
    programs = [["ibv_rc_pingpong", "-c", "-g", "0", "-n", str(ITERATIONS), "-s", str(SIZE), "-p", str(20000 + i)]
                for i in range(PAIRS)]
    programs.append(["ib_write_bw", "-D", "60", "-p", str(20000 + PAIRS)])
    servers = [Side(build, program) for program in programs]
    await_listening({20000 + i for i in range(PAIRS + 1)})
    clients = [Side(build, program, "localhost") for program in programs]
    pairs = list(zip(servers, clients))
    return pairs[:PAIRS], pairs[PAIRS]


def writer_fails(server, client):
    time.sleep(WRITES_WITHIN_S)
    server.process.kill()
    server.process.wait()
    status, said = client.end(ERROR_WITHIN_S), client.process.stdout.read()
    if status == 0 or "status 12" not in said:
        return ["the client whose server was killed: %s: %s" % (status, said[-300:])]
    return []


def play(build, choose):
    """One round; what went wrong, as sentences."""
    pairs, writers = start(build)
    time.sleep(choose.uniform(0.05, 0.6))
    i, side = choose.randrange(PAIRS), choose.randrange(2)
    kill = choose.random() < 0.7
    victim, peer = pairs[i][side], pairs[i][1 - side]
    early = victim.process.poll() is not None  # it had finished already
    victim.process.send_signal(signal.SIGKILL if kill else signal.SIGSTOP)
    if not kill:
        time.sleep(1)
        victim.process.send_signal(signal.SIGCONT)
    wrong = writer_fails(*writers)
    if kill and not early and victim.end(FINISH_WITHIN_S) == -signal.SIGKILL:
        with contextlib.suppress(subprocess.TimeoutExpired):
            # 0: it had its last message already; 1: an error. Or it waits.
            status = peer.process.wait(4)
            if status not in (0, 1):
                wrong.append("the peer of the killed process: %s" % status)
        peer.process.kill()
        peer.process.wait()
        pairs.pop(i)
    for number, pair in enumerate(pairs):
        for name, one in zip(("server", "client"), pair):
            status = one.end(FINISH_WITHIN_S)
            if status != 0:
                wrong.append("pair %d, %s: %s: %s" % (number, name, status, one.process.stdout.read()[-300:]))
    for pair in [*pairs, writers, (victim, peer)]:
        for one in pair:
            one.process.stdout.close()
    left = left_behind()
    if left:
        wrong.append("left behind: %s" % " ".join(left))
    return ("killed" if kill else "stopped"), wrong


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    isolate()
    build, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    choose = random.Random(seed)
    counts = {"killed": 0, "stopped": 0}
    for n in range(rounds):
        what, wrong = play(build, choose)
        counts[what] += 1
        if wrong:
            print("round %d of seed %d (%s):\n  %s" % (n, seed, what, "\n  ".join(wrong)))
            sys.exit(1)
    print("%d rounds of %d pairs: %d killed, %d stopped; all others finished" %
          (rounds, PAIRS, counts["killed"], counts["stopped"]))


if __name__ == "__main__":
    main()
