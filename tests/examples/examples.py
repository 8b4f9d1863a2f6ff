#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
examples.py BUILD_DIR [--sanitized]: the example programs do what they say, over IPv4 and IPv6, and fail with a sentence.

All of them take HOST and PORT, and say on which port they wait before they do so.
"""
import os
import re
import signal
import socket
import sys
import tempfile
import unittest

from terminal import PATIENCE, Program, free_port

BUILD = sys.argv.pop(1)
SANITIZED = "--sanitized" in sys.argv
if SANITIZED:
    sys.argv.remove("--sanitized")


def program(name, *args):
    return [os.path.join(BUILD, "examples", name), *args]


def on_adapter(*command, options=()):
    return [os.path.join(BUILD, "rocelink"), "run", *options, "--", *command]


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


HOSTS = ["127.0.0.1"] + (["::1"] if has_ipv6() else [])


class Examples(unittest.TestCase):
    def pair(self, server, client):
        """The outputs of both, which end well and without a complaint."""
        with Program(server) as first:
            self.assertIn("waiting on port", first.first_words(PATIENCE))
            with Program(client) as second:
                ends = [second.end(), first.end()]
        self.assertEqual([(status, errors) for status, _, errors in ends], [(0, "")] * 2)
        return ends[1][1], ends[0][1]

    @unittest.skipIf(SANITIZED, "a sanitizer's runtime can't come after the adapter's library")
    def test_by_hand(self):
        port = free_port()
        served, told = self.pair(on_adapter(*program("by_hand", "rl_lo", "0", port)),
                                 on_adapter(*program("by_hand", "rl_lo", "0", port, "127.0.0.1")))
        self.assertIn("my memory holds: Hello, memory of yours\n", served)
        sent, received = (re.search(rf"^{word} +(.*)", told, re.M).group(1) for word in ("sent", "received"))
        self.assertEqual(re.findall(r"^(?:received|sent) +(.*)", served, re.M), [received, sent])

    def test_rc_write(self):
        for host in HOSTS:
            port = free_port()
            served, told = self.pair(program("rc_write", "listen", host, port),
                                     program("rc_write", "connect", host, port))
            self.assertEqual(served, f"waiting on port {port}\nmy memory holds: Hello, memory of yours\n")
            self.assertRegex(told, r"^written to VA 0x[0-9a-f]{12} with R_Key 0x[0-9a-f]{8}\n$")

    def test_rc_write_secret(self):
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = (os.path.join(folder, name) for name in ("right", "wrong"))
            for path in (right, wrong):
                with open(path, "w", encoding="ascii") as file:
                    file.write(os.urandom(32).hex() + "\n")
            port = free_port()
            with Program(program("rc_write", "listen", "127.0.0.1", port, right)) as server:
                self.assertIn("waiting on port", server.first_words(PATIENCE))
                for secret, advice in (([], "this side wants TLS"), ([wrong], "give both sides the same")):
                    with Program(program("rc_write", "connect", "127.0.0.1", port, *secret)) as client:
                        status, output, errors = client.end()
                    self.assertEqual((status, output), (1, ""))
                    self.assertIn(advice, errors)
                with Program(program("rc_write", "connect", "127.0.0.1", port, right)) as client:
                    self.assertEqual(client.end()[0], 0)
                served = f"waiting on port {port}\nmy memory holds: Hello, memory of yours\n"
                self.assertEqual(server.end(), (0, served, ""))

    def test_ud_send(self):
        for host in HOSTS:
            for text in ("Hello", "x" * 255):
                port = free_port()
                served, _ = self.pair(program("ud_send", "listen", host, port),
                                      program("ud_send", "connect", host, port, text))
                self.assertRegex(served, rf"^waiting on port {port}\nfrom QPN 0x[0-9a-f]{{6}}: {text}\n$")

    @unittest.skipIf(SANITIZED, "a sanitizer's runtime can't come after the adapter's library")
    def test_ud_counter(self):
        """Its mistake shows under faults, as docs/faults.md says, and only there."""
        loss, worse = ("--fault", "loss=5%"), ("--fault", "loss=5%,dup=3%,reorder=4%,corrupt=1%,seed=3")
        for options, careful, right in (((), [], True), (loss, [], False), (worse, [], False),
                                        (loss, ["careful"], True), (worse, ["careful"], True)):
            with Program(on_adapter(*program("ud_counter", "rl_lo", "0", *careful), options=options)) as it:
                status, output, errors = it.end()
            says = re.fullmatch(r"200 additions; the counter says (\d+)\n", output)
            self.assertTrue(says, (output, errors))
            self.assertEqual((status, int(says[1]) == 200), (0, True) if right else (1, False), (options, careful))

    def test_kv_get(self):
        # So many pairs that some share a first slot, and clients that all read at once.
        pairs = {f"key{i}": f"value of {i}" for i in range(200)}
        for host in HOSTS:
            port = free_port()
            with Program(program("kv_get", "serve", host, port, *(f"{k}={v}" for k, v in pairs.items()))) as server:
                self.assertIn("serving on port", server.first_words(PATIENCE))
                clients = [Program(program("kv_get", "get", host, port, *list(pairs)[i::8])) for i in range(8)]
                for i, client in enumerate(clients):
                    with client:
                        want = "".join(f"{k}={pairs[k]}\n" for k in list(pairs)[i::8])
                        self.assertEqual(client.end(), (0, want, ""))
                with Program(program("kv_get", "get", host, port, "key1", "nokey")) as client:
                    self.assertEqual(client.end(), (1, "key1=value of 1\nnokey: no such key\n", ""))
                server.signal(signal.SIGTERM)
                self.assertEqual(server.end(), (-signal.SIGTERM, f"serving on port {port}\n", ""))

    def test_usage(self):
        for name in ("by_hand", "rc_write", "ud_send", "ud_counter", "kv_get"):
            with Program(program(name)) as it:
                status, output, errors = it.end()
            self.assertEqual((status, output), (2, ""))
            self.assertTrue(errors.startswith("usage: " + name), errors)

    def test_nobody_listens(self):
        port = free_port()
        for command in (["rc_write", "connect"], ["ud_send", "connect"], ["kv_get", "get"]):
            with Program(program(*command, "127.0.0.1", port, *["key"][:command[0] == "kv_get"])) as it:
                status, output, errors = it.end()
            self.assertEqual((status, output), (1, ""))
            self.assertIn(port, errors)
            self.assertIn("refused", errors)

    def test_another_service(self):
        # kv_get names its protocol; a program that offers no table is refused or waited for, never read.
        port = free_port()
        with Program(program("kv_get", "serve", "127.0.0.1", port, "a=1")) as server:
            self.assertIn("serving on port", server.first_words(PATIENCE))
            with Program(program("ud_send", "connect", "127.0.0.1", port)) as client:
                status, output, errors = client.end()
            self.assertEqual((status, output), (1, ""))
            self.assertRegex(errors, r"\bUD\b.*\bRC\b|\bRC\b.*\bUD\b")
            with Program(program("kv_get", "get", "127.0.0.1", port, "a")) as client:
                self.assertEqual(client.end(), (0, "a=1\n", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
