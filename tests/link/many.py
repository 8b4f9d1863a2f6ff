#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Many connections and many queue pairs, process to process: many.py BUILD

1,000 connections one after the other, 200 clients at once to one listener, 1,000 queue pairs in one exchange; nothing
is left behind: no descriptor, no memory.
"""
import json
import os
import subprocess
import sys
import unittest

PATIENCE = 120
# The adapter keeps its same-host path to a process that it has a queue pair with, however many there are.
PATH_FILES = 2
SANITIZED = False


def run_pair(build, how, connections, queue_pairs, mode=""):
    """(client's, server's) figures; RuntimeError if either fails."""
    program = os.path.join(build, "tests", "link_many")
    tail = [str(connections), str(queue_pairs), mode]
    with subprocess.Popen([program, "serve", "0", *tail], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as server:
        try:
            first = server.stdout.readline().split()
            if not first:
                raise RuntimeError(server.communicate(timeout=PATIENCE)[1])
            client = subprocess.run([program, how, first[1], *tail], capture_output=True, text=True, check=False,
                                    timeout=PATIENCE)
            # A server whose client has failed would wait for the others.
            if client.returncode:
                server.kill()
            out, errors = server.communicate(timeout=PATIENCE)
        finally:
            server.kill()
    if client.returncode or server.returncode:
        raise RuntimeError("client %d: %s\nserver %d: %s" % (client.returncode, client.stderr, server.returncode,
                                                            errors))
    return json.loads(client.stdout), json.loads(out)


class Many(unittest.TestCase):
    build = "build"

    def check(self, *args):
        client, server = run_pair(self.build, *args)
        for side in (client, server):
            self.assertLessEqual(side["files_left"], PATH_FILES)
        return client, server

    def grew_no_more_than(self, kib, figures):
        # A sanitizer keeps freed memory in quarantine; it has its own way to find leaks.
        if not SANITIZED:
            self.assertLess(figures["grown_kib"], kib, figures)

    def test_one_after_the_other(self):
        for side in self.check("sequential", 1000, 1):
            self.grew_no_more_than(1024, side)

    def test_one_after_the_other_with_a_secret(self):
        for side in self.check("sequential", 200, 1, "secret"):
            self.grew_no_more_than(1024, side)

    def test_exchange_of_the_stock_programs(self):
        self.check("sequential", 200, 1, "stock")

    def test_200_clients_at_once(self):
        self.check("crowd", 200, 1)
        self.check("crowd", 200, 1, "secret")

    def test_1000_queue_pairs_in_one_exchange(self):
        self.check("sequential", 1, 1000)

    def test_several_queue_pairs_many_times(self):
        self.check("sequential", 50, 8)


if __name__ == "__main__":
    Many.build = os.path.abspath(sys.argv.pop(1))
    with open(os.path.join(Many.build, "CMakeCache.txt"), encoding="utf-8") as cache:
        SANITIZED = any(line.startswith("ROCELINK_SANITIZE") and line.split("=")[1].strip() not in ("", "OFF")
                        for line in cache)
    unittest.main(verbosity=2)
