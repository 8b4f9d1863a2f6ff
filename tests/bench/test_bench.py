#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The bench's own arithmetic, and that what went wrong has no figure. Runs no competitor."""
import os
import sys
import tempfile
import unittest

import adapter
import contests
import costs
import figure
import peers
import plot
import processes
import report


def figures(**runs):
    return {key: {"unit": "us" if key.startswith("lat") else "Gb/s", "runs": list(values)}
            for key, values in runs.items()}


class Reports(unittest.TestCase):
    def test_marks_name_figures(self):
        known = contests.all_figures()
        keys = {key for mark in contests.all_marks() for key in (mark.key, mark.reference) if key}
        keys |= {key for _, also in contests.all_also() for key in also}
        keys |= {key for _, _, lines in contests.PLOTS for line in lines for key in line.keys.values()}
        self.assertEqual(keys - set(known), set())

    def test_mark_both_senses(self):
        f = figures(a=[3, 1, 2], b=[4, 4, 4])
        at_least = contests.Mark("", "a", "b", ">=", 0.5)
        self.assertEqual(report.judge(at_least, f), (2, 4, 0.5, True))
        self.assertFalse(report.judge(at_least._replace(number=0.51), f)[3])
        self.assertTrue(report.judge(at_least._replace(sense="<="), f)[3])
        self.assertFalse(report.judge(contests.Mark("", "b", None, "<=", 3.9), f)[3])
        self.assertIsNone(report.judge(at_least._replace(reference="c"), f))

    def test_change_only_outside_the_spread(self):
        before = {"unit": "us", "runs": [10, 11, 12]}
        self.assertTrue(report.changed(before, {"runs": [13, 14, 15]})[1])
        self.assertFalse(report.changed(before, {"runs": [12, 14, 15]})[1])
        self.assertFalse(report.changed(before, {"runs": [20]})[1])
        self.assertAlmostEqual(report.changed(before, {"runs": [22]})[0], 100)

    def test_comparison_knows_what_is_better(self):
        lines = []
        report.print_comparison(figures(lat=[1, 1, 1], bw=[1, 1, 1]),
                                figures(lat=[2, 2, 2], bw=[2, 2, 2]), lines.append)
        words = {line.split()[0]: line.split()[-1] for line in lines[1:]}
        self.assertEqual(words, {"lat": "WORSE", "bw": "better"})

    def test_failure_is_a_missed_mark(self):
        mark = contests.all_marks()[0]
        lines = []
        self.assertGreater(report.print_marks({}, {mark.key: "why"}, lines.append), 0)
        self.assertTrue(any("no result" in line for line in lines))


class Amounts(unittest.TestCase):
    def test_messages_fill_the_time(self):
        self.assertEqual(figure.bandwidth(None, 1000).messages(8, 0.5), 500_000)
        self.assertEqual(figure.latency(None, 8).messages(5, 1), 100_000)
        self.assertEqual(figure.rate(None, 8, step=64).messages(1, 1) % 64, 0)


class Plot(unittest.TestCase):
    def test_labels_do_not_overlap_and_stay_inside(self):
        for wanted in ([50, 50, 50], [50, 51, 349, 350], [0, 400]):
            placed = plot.apart(wanted, 50, 350)
            gaps = [b - a for a, b in zip(placed, placed[1:])]
            self.assertTrue(all(gap >= plot.LABEL_HEIGHT for gap in gaps), placed)
            self.assertTrue(50 <= placed[0] and placed[-1] <= 350, placed)


class Fakes(unittest.TestCase):
    """Programs with the competitors' names that say what they should not."""

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.path = os.environ["PATH"]
        os.environ["PATH"] = self.tmp.name + ":" + self.path
        self.bench = processes.Bench.__new__(processes.Bench)
        self.bench.build, self.bench.rocelink = self.tmp.name, self.tmp.name + "/rocelink"
        self.bench.port = 31000 + os.getpid() % 1700  # below what the kernel gives to clients
        self.bench.device, self.bench.gid = "none", "0"

    def tearDown(self):
        os.environ["PATH"] = self.path
        self.tmp.cleanup()

    def fake(self, name, says, status=0, server_status=0):
        """The server has -1 or no 127.0.0.1, listens on the port after -p, -P or -B, and ends soon."""
        file = os.path.join(self.tmp.name, name)
        with open(file, "w", encoding="utf-8") as f:
            f.write("""#!/usr/bin/python3
import re, socket, sys
port = next(int(a) for a in sys.argv if re.fullmatch(r"[23]\\d{4}", a))
if "127.0.0.1" in sys.argv and "-B" not in sys.argv:
    socket.create_connection(("127.0.0.1", port))
    print(%r)
    sys.exit(%d)
s = socket.create_server(("127.0.0.1", port))
s.accept()
print("x" * 200000)
sys.exit(%d)
""" % (says, status, server_status))
        os.chmod(file, 0o755)

    PERFTEST = " 65536  %d  0.00  12.50  0.1\n"

    def write_bandwidth(self):
        return adapter.write_like("udp", "write", 65536).run(self.bench, 100)

    def test_perftest_average(self):
        self.fake("rocelink", self.PERFTEST % 100)
        self.assertEqual(self.write_bandwidth(), 12.5)

    def test_perftest_other_number(self):
        self.fake("rocelink", self.PERFTEST % 99)
        self.assertRaises(processes.Failure, self.write_bandwidth)

    def test_perftest_no_table(self):
        self.fake("rocelink", "Completion with error\n")
        self.assertRaises(processes.Failure, self.write_bandwidth)

    def test_client_fails(self):
        self.fake("rocelink", self.PERFTEST % 100, status=1)
        self.assertRaises(processes.Failure, self.write_bandwidth)

    def test_server_fails(self):
        self.fake("rocelink", self.PERFTEST % 100, server_status=1)
        self.assertRaises(processes.Failure, self.write_bandwidth)

    def test_impossible_figure(self):
        self.fake("rocelink", " 65536  100  0.00  0.00  0.0\n")
        self.assertRaises(processes.Failure, self.write_bandwidth)

    UCX = ("iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
           " 100,0.06,40.0,42.0,1.0,2.0,10000,20000\n")

    def test_ucx(self):
        self.fake("ucx_perftest", self.UCX)
        value = peers.ucx_bandwidth("posix", 65536).run(self.bench, 100)
        self.assertAlmostEqual(value, 20000 * 65536 * 8 / 1e9)
        self.assertEqual(peers.ucx_latency("posix", 8).run(self.bench, 100), 42.0)
        with self.assertRaises(processes.Failure):
            peers.ucx_latency("posix", 8).run(self.bench, 101)

    def test_libfabric(self):
        self.fake("fi_pingpong", "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   "
                                 "Mxfers/sec\n64k     100     =100     12m     0.01s     99.00      50.00"
                                 "       0.02\n")
        self.assertAlmostEqual(peers.fabric_bandwidth(65536).run(self.bench, 100),
                               65536 * 8 / 50e-6 / 1e9)


class Costs(unittest.TestCase):
    def test_strace_summary(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
            f.write("% time     seconds  usecs/call     calls    errors syscall\n"
                    " 60.27    0.162119        2026        80         1 read\n"
                    "  7.97    0.021425          10      2135           sendmsg\n"
                    "------ ----------- ----------- --------- --------- ----------------\n"
                    "100.00    0.268993          43      2215         1 total\n")
            f.flush()
            self.assertEqual(costs.calls_in(f.name), {"read": 80, "sendmsg": 2135, "total": 2215})

    def test_no_summary(self):
        with tempfile.NamedTemporaryFile("w") as f:
            self.assertRaises(processes.Failure, costs.calls_in, f.name)


if __name__ == "__main__":
    sys.exit(unittest.main())
