#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
doctor_path.py ROCELINK: `rocelink doctor HOST` between two hosts (network namespaces) with a firewall that drops
what it shall drop: each finding says which direction it is, and each advice what to do about it.
"""
import os
import shutil
import subprocess
import sys
import unittest

ROCELINK = os.path.abspath(sys.argv.pop(1))
INSIDE = "--inside"
PATIENCE = 60


def sh(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE, **more).stdout


class Path(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.other = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"],
                                     stdout=subprocess.PIPE, text=True)
        cls.other.stdout.readline()
        cls.there = ["nsenter", "-t", str(cls.other.pid), "-n"]
        sh("ip", "link", "add", "da", "type", "veth", "peer", "name", "db", "netns", str(cls.other.pid))
        for prefix, name, number in ([], "da", "1"), (cls.there, "db", "2"):
            sh(*prefix, "ip", "addr", "add", "10.9.1.%s/24" % number, "dev", name)
            sh(*prefix, "ip", "link", "set", name, "up")
        # An interface that was set up is one when the kernel has noticed its carrier.
        for prefix, name in ([], "rl_da"), (cls.there, "rl_db"):
            for _ in range(300):
                if any(line.startswith(name) for line in sh(*prefix, ROCELINK, "devices").splitlines()):
                    break
        cls.server = subprocess.Popen([*cls.there, ROCELINK, "doctor", "--serve", "-p", "0"], stdout=subprocess.PIPE,
                                      text=True)
        cls.port = cls.server.stdout.readline().split("port ")[1].split(";")[0]

    @classmethod
    def tearDownClass(cls):
        for process in cls.server, cls.other:
            process.kill()
            process.communicate()

    def doctor(self, where, hook, rule):
        """What it finds about packets: {(direction, is small): (mark, advice)}."""
        for line in "flush ruleset", "add table inet t", "add chain inet t c { type filter hook %s priority 0 ; }" % hook, \
                "add rule inet t c udp dport 4791 " + rule:
            sh(*where, "nft", line)
        done = subprocess.run([ROCELINK, "doctor", "-p", self.port, "10.9.1.2"], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        sh(*where, "nft", "flush ruleset")
        found, key = {}, None
        for line in done.stdout.splitlines():
            words = line.split()
            if words[1:2] == ["packets"]:
                key = (words[5], words[3] == "64")
                found[key] = [words[0], ""]
            elif words[:1] == ["->"] and key:
                found[key][1] = line.split("-> ")[1]
            else:
                key = None
        self.assertEqual(done.returncode, int("[BAD]" in done.stdout), done.stdout)
        self.assertEqual(len(found), 4, done.stdout + done.stderr)
        return found

    def marks(self, found):
        return "".join(found[key][0][1] for key in (("to", True), ("from", True), ("to", False), ("from", False)))

    def test_open(self):
        self.assertEqual(self.marks(self.doctor([], "input", "accept")), "oooo")

    def test_dropped_there(self):
        for verdict in "drop", "reject":
            found = self.doctor(self.there, "input", verdict)
            self.assertEqual(self.marks(found), "BoBo")
            self.assertIn("that host's firewall", found["to", True][1])
            self.assertNotIn("MTU", found["to", False][1])

    def test_dropped_here(self):
        found = self.doctor([], "input", "drop")
        self.assertEqual(self.marks(found), "oBoB")
        self.assertIn("this machine's firewall", found["from", True][1])

    def test_not_let_out(self):
        found = self.doctor([], "output", "drop")
        self.assertEqual(self.marks(found), "BoBo")
        self.assertIn("out of this machine's", found["to", True][1])

    def test_large_ones_dropped(self):
        found = self.doctor(self.there, "input", "meta length > 600 drop")
        self.assertEqual(self.marks(found), "ooBo")
        self.assertRegex(found["to", False][1], "smaller MTU.*-m 512 or less")


def main():
    command = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    inside = INSIDE in sys.argv
    if inside:
        sys.argv.remove(INSIDE)
        unittest.main(verbosity=2)
    if not shutil.which("nft"):
        print("skipped: this needs nft")
        sys.exit(77)
    elif subprocess.run(command + ["true"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("skipped: this needs network namespaces")
        sys.exit(77)
    else:
        os.execvp("unshare", command + [sys.executable, __file__, ROCELINK, INSIDE] + sys.argv[1:])


if __name__ == "__main__":
    main()
