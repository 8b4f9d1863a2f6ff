#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Many connections and many queue pairs, process to process: many.py BUILD

1,000 connections one after the other, 200 clients at once to one listener, in one process and each in its own, 1,000
queue pairs in one exchange; nothing is left behind: no descriptor, no memory, no name of a socket.
"""
import json
import os
import subprocess
import sys
import unittest

PATIENCE = 120
# The adapter keeps its same-host path to a process that lives, however many queue pairs they have had.
PATH_FILES = 2
SANITIZED = False


def run(build, how, connections, queue_pairs, mode="", processes=1):
    """(figures of each client, the server's); RuntimeError if one fails. Each of the processes makes its share."""
    program = os.path.join(build, "tests", "link_many")

    def start(what, port, number):
        return subprocess.Popen([program, what, port, str(number), str(queue_pairs), mode], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(process):
        out, errors = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise RuntimeError("%s: %d: %s" % (" ".join(process.args), process.returncode, errors))
        return json.loads(out)

    everybody = [start("serve", "0", connections)]
    try:
        first = everybody[0].stdout.readline().split()
        if not first:
            end(everybody[0])
        for _ in range(processes):
            everybody.append(start(how, first[1], connections // processes))
        # A server whose client has failed would wait for the others: it is asked last.
        clients = [end(client) for client in everybody[1:]]
        return clients, end(everybody[0])
    finally:
        for process in everybody:
            process.kill()
            process.communicate()


def names_in_use():
    """The adapter's names of sockets in this network namespace."""
    with open("/proc/net/unix", encoding="utf-8") as file:
        return {line.split()[-1] for line in file if "@rocelink/" in line}


class Many(unittest.TestCase):
    build = "build"

    def check(self, *args, **more):
        clients, server = run(self.build, *args, **more)
        for client in clients:
            self.assertLessEqual(client["files_left"], PATH_FILES)
        self.assertEqual(server["files_left"], 0)
        return clients[0], server

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

    def test_200_processes_at_once(self):
        before = names_in_use()
        _, server = self.check("sequential", 200, 1, "secret", processes=200)
        # 100 at once leave as much as 400, 1 to 1.5 MiB: what grows with each is seen one after the other.
        self.grew_no_more_than(2048, server)
        # Others on this machine come and go; none of 200 stays.
        self.assertLess(len(names_in_use() - before), 20)

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
