#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
kill.py BUILD [--rounds N] [--seed N] [--path udp|shm|both] [--signal kill|stop|pause|all|together]: eight pairs of stock
programs that check their data. In each round one process is killed (SIGKILL), or stopped for five seconds or for one, at a
random moment while it communicates; or, together, all three befall processes of different pairs. The other pairs must
finish well, and nothing may be left behind. So must a pair of which one paused for a second; five are longer than the
pingpong's timeout and its retries take, so there the pair may end with status 12. The peer of one killed may wait for ever
where it only waits to be sent something: that is RDMA. So in each round of kills the server of a ninth pair is killed too,
whose client has work outstanding: it must end with status 12, in time.

Exit status 77: network namespaces are not allowed here.
"""
import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

PAIRS = 8
ITERATIONS = 4000
SIZE = 16384
STOPPED_S = {"stop": 5, "pause": 1}
SIGNALS = ("kill", "stop", "pause")
WRITES_FOR_S = 0.5
FINISH_WITHIN_S = 120
# Timeout 14 and 7 retries take up to four times 8 * 67 ms.
PEER_WITHIN_S = 4
# Timeout 12 and 7 retries: 8 times 16.8 ms and at most four times that; the rest is for a busy machine.
WRITER_TIMEOUT = 12
ERROR_AFTER_S = 8 * 4.096e-6 * 2 ** WRITER_TIMEOUT
ERROR_WITHIN_S = 4 * ERROR_AFTER_S + 4


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
    def __init__(self, build, path, program, *more, before=()):
        argv = [*before, os.path.join(build, "rocelink"), "run", "--path", path, "--", *program, *more]
        self.output = tempfile.NamedTemporaryFile("w")
        self.process = subprocess.Popen(argv, stdout=self.output, stderr=subprocess.STDOUT)

    def said(self):
        with open(self.output.name, encoding="utf-8") as f:
            return f.read()

    def await_text(self, text, patience):
        deadline = time.monotonic() + patience
        while text not in self.said() and time.monotonic() < deadline and self.process.poll() is None:
            time.sleep(0.02)

    def end(self, patience):
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "not ended after %d s" % patience


def await_listening(ports, pid="self"):
    """In the namespace of this process."""
    deadline = time.monotonic() + FINISH_WITHIN_S
    listening = set()
    while not ports <= listening and time.monotonic() < deadline:
        time.sleep(0.05)
        for table in ("tcp", "tcp6"):
            with open("/proc/%s/net/%s" % (pid, table), encoding="ascii") as f:
                rows = [line.split() for line in list(f)[1:]]
            listening |= {int(row[1].rsplit(":")[1], 16) for row in rows if row[3] == "0A"}


def start(build, path, writers):
    """The pairs, and the pair of writers if asked for."""
    programs = [["ibv_rc_pingpong", "-c", "-g", "0", "-n", str(ITERATIONS), "-s", str(SIZE), "-p", str(20000 + i)]
                for i in range(PAIRS)]
    if writers:
        programs.append(["stdbuf", "-oL", "ib_write_bw", "-D", "60", "-u", str(WRITER_TIMEOUT), "-p", str(20000 + PAIRS)])
    servers = [Side(build, path, program) for program in programs]
    await_listening({20000 + i for i in range(len(programs))})
    clients = [Side(build, path, program, "localhost") for program in programs]
    pairs = list(zip(servers, clients))
    return pairs[:PAIRS], pairs[PAIRS:]


def writer_fails(server, client):
    """How long the client of the killed server took to end, and what is wrong with that."""
    client.await_text("#bytes", FINISH_WITHIN_S)
    time.sleep(WRITES_FOR_S)
    server.process.kill()
    killed = time.monotonic()
    server.process.wait()
    status, took = client.end(ERROR_WITHIN_S), time.monotonic() - killed
    said = client.said()
    if status == 0 or "status 12" not in said or took < ERROR_AFTER_S * 0.9:
        return took, ["the client whose server was killed: %s after %.3f s: %s" % (status, took, said[-300:])]
    return took, []


class Strike:
    """What befalls one process of a pair."""

    def __init__(self, signal_name, pair, choose):
        self.name, self.resumption = signal_name, None
        side = choose.randrange(2)
        self.victim, self.peer = pair[side], pair[1 - side]

    def begin(self):
        """False: it had finished already."""
        if self.victim.process.poll() is not None:
            return False
        self.at = time.monotonic()
        if self.name == "kill":
            self.victim.process.kill()
            return self.victim.process.wait() == -signal.SIGKILL
        self.victim.process.send_signal(signal.SIGSTOP)
        # Whatever this process waits for meanwhile.
        self.resumption = threading.Timer(STOPPED_S[self.name], self.victim.process.send_signal, [signal.SIGCONT])
        self.resumption.start()
        return True


def bury(victim, peer, killed):
    """What went wrong with the peer of the killed."""
    status = 0
    with contextlib.suppress(subprocess.TimeoutExpired):
        # 0: it had its last message already; 1: an error. Or it waits.
        status = peer.process.wait(max(0, killed + PEER_WITHIN_S - time.monotonic()))
    peer.process.kill()
    peer.process.wait()
    return [] if status in (0, 1) else ["the peer of the killed process: %s" % status]


def play(build, path, signal_names, choose):
    """One round: did all strike in time, how long a writer waited for its error, and what went wrong, as sentences."""
    pairs, writers = start(build, path, "kill" in signal_names)
    time.sleep(choose.uniform(0.1, 0.8))
    strikes = {i: Strike(name, pairs[i], choose)
               for i, name in zip(choose.sample(range(PAIRS), len(signal_names)), signal_names)}
    struck, took, wrong = all([one.begin() for one in strikes.values()]), 0, []
    if writers:
        took, wrong = writer_fails(*writers[0])
    for one in strikes.values():
        if one.resumption:
            one.resumption.join()
    for number, pair in enumerate(pairs):
        befell = strikes.get(number)
        if befell and befell.name == "kill":
            wrong += bury(befell.victim, befell.peer, befell.at)
            continue
        for name, one in zip(("server", "client"), pair):
            status = one.end(FINISH_WITHIN_S)
            timed_out = "retry counter exceeded (12)" in one.said()
            if status != 0 and not (befell and befell.name == "stop" and timed_out):
                wrong.append("pair %d, %s: %s: %s" % (number, name, status, one.said()[-300:]))
    for one in sum(pairs + writers, ()):
        one.output.close()
    left = left_behind()
    if left:
        wrong.append("left behind: %s" % " ".join(left))
    return struck, took, wrong


def options():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--rounds", type=int, default=3, help="of each path and signal")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    p.add_argument("--path", choices=("udp", "shm", "both"), default="both")
    p.add_argument("--signal", choices=(*SIGNALS, "all", "together"), default="all")
    return p.parse_args()


def main():
    o = options()
    isolate()
    choose = random.Random(o.seed)
    rounds = {"all": [(name,) for name in SIGNALS], "together": [SIGNALS]}.get(o.signal, [(o.signal,)])
    for path in ("udp", "shm") if o.path == "both" else (o.path,):
        for names in rounds:
            done = late = 0
            times = []
            while done < o.rounds and late <= o.rounds:
                struck, took, wrong = play(o.build, path, names, choose)
                if wrong:
                    sys.exit("path %s, %s, round %d of seed %d:\n  %s" %
                             (path, "+".join(names), done + late, o.seed, "\n  ".join(wrong)))
                done, late = done + struck, late + (not struck)
                times.append(took)
            if done < o.rounds:
                sys.exit("path %s: the pairs end before anything can happen to them" % path)
            befell = ["killed" if name == "kill" else "stopped for %d s" % STOPPED_S[name] for name in names]
            print("path %s: %d rounds of %d pairs, one process %s; all others finished%s" % (
                path, done, PAIRS, ", one ".join(befell),
                "; status 12 after %.2f to %.2f s" % (min(times), max(times)) if max(times) else ""), flush=True)


if __name__ == "__main__":
    main()
