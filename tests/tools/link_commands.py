#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
link_commands.py ROCELINK: `rocelink devices`, `pingpong` and `doctor` as a person runs them, on the loopback
device; pingpong with the stock programs where they are installed.
"""
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

ROCELINK = sys.argv.pop(1)
TIMEOUT = 60


def run(*args, env=None):
    return subprocess.run([ROCELINK, *args], capture_output=True, text=True, timeout=TIMEOUT,
                          env={**os.environ, **(env or {})})


class Server:
    """A command that says which TCP port it listens on; ended with the block."""

    def __init__(self, *args, env=None):
        self.popen = subprocess.Popen([ROCELINK, *args, "-p", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, env={**os.environ, **(env or {})})
        self.first = ""
        # With --json the line goes to standard error.
        stream = self.popen.stderr if "--json" in args else self.popen.stdout
        self.first = stream.readline()
        found = re.search(r"TCP port (\d+)", self.first)
        self.port = found.group(1) if found else None

    def __enter__(self):
        return self

    def end(self):
        out, err = self.popen.communicate(timeout=TIMEOUT)
        return self.popen.returncode, self.first + out, err

    def __exit__(self, *unused):
        if self.popen.poll() is None:
            self.popen.kill()
        if not self.popen.stdout.closed:
            self.popen.communicate()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def read_all(master):
    """What comes from a terminal until nobody has it open."""
    text = b""
    try:
        while piece := os.read(master, 65536):
            text += piece
    except OSError:
        pass
    return text.decode()


class Devices(unittest.TestCase):
    def test_loopback_is_there_and_chosen_for_localhost(self):
        done = run("devices", "--json", "--to", "127.0.0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        got = json.loads(done.stdout)
        lo = next(d for d in got["devices"] if d["name"] == "rl_lo")
        self.assertTrue(lo["adapter"])
        gids = lo["ports"][0]["gids"]
        self.assertIn("127.0.0.1", [g["address"] for g in gids])
        self.assertEqual(got["to"]["device"], "rl_lo")
        self.assertEqual(gids[got["to"]["gid_index"]]["address"], "127.0.0.1")

    def test_text_marks_the_choice(self):
        done = run("devices", "-v", "--to", "127.0.0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^-> +GID \d+ .*127\.0\.0\.1")
        self.assertRegex(done.stdout, r"(?m)^-> to 127\.0\.0\.1: rl_lo port 1")

    def test_a_wrong_setting_is_the_reason(self):
        done = run("devices", env={"ROCELINK_NONSENSE": "1"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("ROCELINK_ setting in the environment is wrong", done.stderr)

    def test_unknown_host_and_usage(self):
        self.assertEqual(run("devices", "--to", "no-such-host.invalid").returncode, 1)
        self.assertEqual(run("devices", "extra").returncode, 2)


class PingPong(unittest.TestCase):
    def each_at_once(self, check, cases):
        """check(case) of all, which mostly wait; a failure names its case."""
        with ThreadPoolExecutor(len(cases)) as pool:
            for case, done in [(case, pool.submit(check, case)) for case in cases]:
                with self.subTest(case=case):
                    done.result()

    def pair(self, *client, server=()):
        with Server("pingpong", *server) as s:
            done = run("pingpong", "-p", s.port, *client, "localhost")
            status, out, err = s.end()
        self.assertEqual(done.returncode, 0, done.stderr + err)
        self.assertEqual(status, 0, err)
        return done.stdout, out

    def test_every_type_and_operation_verified(self):
        for options in ("", "--op write", "-e --op write", "--op read", "--op fetch-add", "--op cmp-swap", "-t uc",
                        "-t uc --op write", "-t ud", "-e -s 5001", "-s 1 --op write", "-s 100000 -m 256",
                        "-t xrc", "-t xrc -e -s 5001", "-t xrc --op write", "-t xrc -e --op write", "-t xrc --op read",
                        "-t xrc --op fetch-add"):
            with self.subTest(options=options):
                out, _ = self.pair("--json", "--verify", "-n", "60", *options.split())
                got = json.loads(out)
                self.assertGreaterEqual(got["verified_messages"], 60 - got.get("lost_exchanges", 0))
                latency = got["latency_us"]
                order = [latency[k] for k in ("min", "p50", "p90", "p99", "p99_9", "max")]
                self.assertEqual(order, sorted(order))
                self.assertGreater(got["bytes_per_second"], 0)
                self.assertEqual(got["bandwidth_kind"], "stream")
                # UC and UD may lose some on a busy machine, and say so.
                for lost in "lost_messages", "lost_exchanges":
                    self.assertEqual(lost in got, options.startswith("-t u"))
                    self.assertLess(got.get(lost, 0), 60)

    def test_loss_is_counted_and_it_ends(self):
        def check(options):
            # Of 4 faults on the way there and back one hits 1 of 6 exchanges; the seed makes it the same ones.
            with Server("pingpong", env={"ROCELINK_FAULT": "loss=4%,seed=1"}) as s:
                done = run("pingpong", "--json", "--verify", "-p", s.port, "-n", "100", *options.split(), "localhost",
                           env={"ROCELINK_FAULT": "loss=4%,seed=2"})
                status, out, err = s.end()
            self.assertEqual((done.returncode, status), (0, 0), done.stderr + err)
            got = json.loads(done.stdout)
            for lost in got["lost_exchanges"], got["lost_messages"]:
                self.assertTrue(0 < lost < 50, got)
            self.assertEqual(got["verified_messages"], 100 - got["lost_exchanges"])
            self.assertIn("of the stream's 100 messages %d were lost" % got["lost_messages"], out)

        self.each_at_once(check, ("-t ud", "-t uc", "-t uc --op write", "-t uc -e --op write"))

    def test_nothing_gets_through(self):
        def check(options):
            with Server("pingpong", env={"ROCELINK_FAULT": "loss=100%"}) as s:
                done = run("pingpong", "-p", s.port, *options.split(), "localhost")
                status, _, err = s.end()
            self.assertEqual((done.returncode, status), (1, 1))
            for said in done.stderr, err:
                self.assertIn("rocelink doctor", said)

        self.each_at_once(check, ("-t ud", "-t uc --op write"))

    def test_peer_that_ends(self):
        """In the middle of UC and UD too, where silence may be loss: an error, on each side."""
        for kind, ours in (("ud", "client"), ("ud", "server"), ("uc", "client")):
            with self.subTest(kind=kind, ours=ours), Server("pingpong") as s:
                client = subprocess.Popen([ROCELINK, "pingpong", "-t", kind, "-n", "10000000", "-p", s.port, "--explain",
                                           "localhost"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                while "first completion" not in client.stdout.readline():
                    self.assertIsNone(client.poll())
                (s.popen if ours == "client" else client).kill()
                _, err = client.communicate(timeout=TIMEOUT)
                status, _, served = s.end()
            self.assertEqual(client.returncode if ours == "client" else status, 1)
            self.assertRegex(err if ours == "client" else served, "closed the channel|crashed|reset")

    def test_progress_is_for_terminals(self):
        # It is for what takes longer than half a second, as this does.
        slowly = {**os.environ, "ROCELINK_FAULT": "delay=300us"}
        for terminal in (True, False):
            with Server("pingpong") as s:
                args = [ROCELINK, "pingpong", "-p", s.port, "-n", "1200", "-s", "64", "localhost"]
                master, slave = pty.openpty()
                done = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=slave if terminal else subprocess.PIPE,
                                        env=slowly)
                os.close(slave)
                said = read_all(master) if terminal else done.communicate(timeout=TIMEOUT)[1].decode()
                os.close(master)
                self.assertEqual(done.wait(TIMEOUT), 0)
                s.end()
            if terminal:
                self.assertRegex(said, r"latency: \d+ of 1200, \d+%")
                # The last thing takes the line away.
                self.assertTrue(said.endswith("\r\x1b[K"), said[-40:])
            else:
                self.assertEqual(said, "")

    def test_explain_tells_each_step(self):
        out, _ = self.pair("--explain", "-n", "2")
        steps = ("connected to", "RESET -> INIT", "sent HELLO", "received HELLO", "INIT -> RTR", "dest_qp_num",
                 "RTR -> RTS", "sq_psn", "sent READY", "established", "first work request", "first completion")
        at = [out.find(step) for step in steps]
        self.assertNotIn(-1, at, out)
        # The order of what this side does; HELLO and READY of the peer may come in between.
        own = [out.find(s) for s in ("RESET -> INIT", "sent HELLO", "INIT -> RTR", "RTR -> RTS", "sent READY",
                                     "established", "first work request", "first completion")]
        self.assertEqual(own, sorted(own), out)

    def test_rnr_demo_counts(self):
        out, _ = self.pair("--rnr-demo")
        naks = [int(n) for n in re.findall(r"RNR NAKs received: (\d+)", out)]
        self.assertEqual(len(naks), 3, out)
        self.assertGreater(naks[0], 1)
        # The first attempt and three repeats.
        self.assertEqual(naks[1], 4)
        self.assertEqual(naks[2], 0)
        self.assertIn("status 13", out)

    def test_secret(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, secret in (("right", "0123456789abcdef0123456789abcdef"), ("wrong", "f" * 32)):
                with open(os.path.join(folder, name), "w") as f:
                    f.write(secret)
            right, wrong = os.path.join(folder, "right"), os.path.join(folder, "wrong")
            out, _ = self.pair("-n", "10", "--explain", "--secret-file", right, server=("--secret-file", right))
            self.assertIn("TLSv1.3", out)
            with Server("pingpong", "--secret-file", right) as s:
                done = run("pingpong", "-p", s.port, "-n", "10", "--secret-file", wrong, "localhost")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("--secret-file FILE or --plain", done.stderr)

    def test_what_the_server_was_told_must_agree(self):
        with Server("pingpong", "--op", "read") as s:
            done = run("pingpong", "-p", s.port, "--op", "write", "localhost")
            status, _, err = s.end()
        self.assertEqual((done.returncode, status), (1, 1))
        self.assertIn("--op write", done.stderr)
        self.assertIn("--op write", err)

    def test_nobody_there(self):
        done = run("pingpong", "-p", free_port(), "localhost")
        self.assertEqual(done.returncode, 1)
        self.assertIn("refused", done.stderr)

    def test_unknown_device_and_gid(self):
        self.assertIn("rocelink devices", run("pingpong", "-d", "nosuch0", "-g", "0", "localhost").stderr)
        self.assertIn("index 99", run("pingpong", "-d", "rl_lo", "-g", "99", "localhost").stderr)


@unittest.skipUnless(shutil.which("ibv_rc_pingpong"), "ibverbs-utils is not installed")
class Stock(unittest.TestCase):
    PROGRAMS = (("rc", "ibv", ("-s", "5001", "-c")), ("rc", "ibv", ("-e",)), ("uc", "ibv", ()), ("ud", "ibv", ()),
                ("srq", "ibv-srq", ()))

    def ours(self, program, compat, options):
        kind = program if program != "srq" else "rc"
        return ["pingpong", "--compat", compat, "-t", kind, "-n", "100", "--verify", "-d", "rl_lo", "-g", "0",
                *(o for o in options if o != "-c")]

    @staticmethod
    def stock(program, port, options):
        return ["run", "--", "ibv_%s_pingpong" % program, "-d", "rl_lo", "-g", "0", "-n", "100", "-p", port, *options]

    def test_we_serve(self):
        for program, compat, options in self.PROGRAMS:
            with self.subTest(program=program, options=options), Server(*self.ours(program, compat, options)) as s:
                done = run(*self.stock(program, s.port, options), "localhost")
                status, out, err = s.end()
                self.assertEqual((done.returncode, status), (0, 0), done.stdout + done.stderr + err)
                self.assertIn("every byte is right", out)

    def test_we_call(self):
        for program, compat, options in self.PROGRAMS:
            with self.subTest(program=program, options=options):
                port = free_port()
                stock = subprocess.Popen([ROCELINK, *self.stock(program, port, options)], stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True)
                try:
                    done = self.call_when_ready(*self.ours(program, compat, options), "-p", port, "localhost")
                    out, _ = stock.communicate(timeout=TIMEOUT)
                finally:
                    stock.kill()
                self.assertEqual((done.returncode, stock.returncode), (0, 0), done.stderr + out)
                self.assertIn("every byte is right", done.stdout)

    @staticmethod
    def call_when_ready(*args):
        # The stock server does not say when it listens, and takes one connection: so no trial of our own.
        for _ in range(200):
            done = run(*args)
            if "refused" not in done.stderr:
                break
        return done


class Help(unittest.TestCase):
    def test_it_fits_a_screen(self):
        for command in ("run", "devices", "pingpong", "decode", "doctor", "counters", ""):
            lines = run(*([command] if command else []), "--help").stdout.splitlines()
            self.assertLessEqual(len(lines), 24, command)
            self.assertLessEqual(max(map(len, lines)), 80, command)
            self.assertTrue(any("xit status" in line for line in lines), command)

    def test_every_command_has_a_manual_and_completions(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        commands = re.findall(r"(?m)^  (\w+) {2,}", run("--help").stdout)
        self.assertGreaterEqual(len(commands), 6)
        shells = []
        for name in "rocelink.bash", "_rocelink":
            with open(os.path.join(source, "completions", name), encoding="utf-8") as f:
                shells.append(f.read())
        for command in commands:
            with open(os.path.join(source, "man", "rocelink-%s.1" % command), encoding="utf-8") as f:
                page = f.read()
            for text in shells:
                self.assertRegex(text, r"\b%s\b" % command)
            # Every long option of --help is in the manual page and in both completions.
            for option in set(re.findall(r"--([a-z][a-z-]+)", run(command, "--help").stdout)) - {"help"}:
                self.assertIn("Fl -" + option, page, command)
                for text in shells:
                    self.assertIn(option, text, command)


class Doctor(unittest.TestCase):
    def test_probe_counts_both_directions(self):
        with Server("doctor", "--listen", "localhost", "--serve") as s:
            done = run("doctor", "-p", s.port, "127.0.0.1")
        self.assertEqual(done.returncode, 0, done.stdout)
        for way in ("to", "from"):
            self.assertEqual(len(re.findall(r"packets +of \d+ bytes %s 127\.0\.0\.1: 8 of 8" % way, done.stdout)), 2,
                             done.stdout)

    def test_wrong_setting_is_named(self):
        done = run("doctor", env={"ROCELINK_NONSENSE": "1"})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"\[BAD\] +settings .*ROCELINK_NONSENSE")

    def test_peer_that_does_not_serve(self):
        done = run("doctor", "-p", free_port(), "127.0.0.1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"\[BAD\] +probe .*\n +-> start `rocelink doctor --serve` there")

    def test_adapter_process_shares_the_port(self):
        port = free_port()
        stock = shutil.which("ibv_rc_pingpong")
        if not stock:
            self.skipTest("ibverbs-utils is not installed")
        server = subprocess.Popen([ROCELINK, "run", "--", stock, "-d", "rl_lo", "-g", "0", "-p", port],
                                  stdout=subprocess.PIPE, text=True)
        shared = r"\[ok\] +port 4791 +shared with process %d " % server.pid
        try:
            # The stock program is silent until its buffer is full: look until its adapter is up.
            for _ in range(50):
                done = run("doctor")
                if server.poll() is not None or re.search(shared, done.stdout):
                    break
        finally:
            server.kill()
            server.communicate()
        self.assertRegex(done.stdout, shared)


if __name__ == "__main__":
    unittest.main(verbosity=2)
