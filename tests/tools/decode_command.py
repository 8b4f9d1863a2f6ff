#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
decode_command.py ROCELINK DATA_DIR: `rocelink decode` on real captures, compared with what tshark reads in them
(tshark.tsv beside this file), on damaged and cut captures, and its picture, in which no two texts may overlap.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

ROCELINK, DATA = sys.argv.pop(1), sys.argv.pop(1)
HERE = os.path.dirname(os.path.abspath(__file__))
# Frames, RoCE packets; frames that told the client's and the server's queue pair.
CAPTURES = {
    "cmpswap": (49, 10, 14, 15), "fetchadd": (49, 10, 14, 15), "rc-ipv4": (41, 30, 4, 6), "rc-ipv6ll": (41, 30, 4, 6),
    "rc-odd": (77, 66, 4, 6), "read": (94, 55, 14, 15), "sendlat": (49, 20, 14, 15), "uc": (36, 24, 4, 6),
    "ud": (17, 6, 4, 6), "write": (95, 55, 14, 15),
}
CLIENT = {"10.77.0.3", "fe80::5054:ff:feaa:3"}
OPTIONAL = ("syndrome", "msn", "va", "rkey", "dma_len", "qkey")


def capture(name):
    return os.path.join(DATA, name + ".pcap")


def run(*args, stdin=None):
    return subprocess.run([ROCELINK, "decode", *args], input=stdin, capture_output=True, timeout=60)


def decode(path):
    done = run("--json", path)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def frames_of(data):
    """(offset of the frame's bytes, their number) in a little-endian pcap file."""
    at = 24
    while at < len(data):
        length, = struct.unpack_from("<I", data, at + 8)
        yield at + 16, length
        at += 16 + length


class Captures(unittest.TestCase):
    def test_every_packet_as_tshark_reads_it(self):
        with open(os.path.join(HERE, "tshark.tsv"), encoding="ascii") as file:
            lines = [line.rstrip("\n").lstrip("# ").split("\t") for line in file]
        columns, rows = lines[1], lines[2:]
        decoded = {name: {e["packet"]: e for e in decode(capture(name))} for name in CAPTURES}
        self.assertEqual(len(rows), sum(row[1] for row in CAPTURES.values()))
        for row in rows:
            want = dict(zip(columns, row))
            got = decoded[want["capture"].removesuffix(".pcap")][int(want["packet"])]
            with self.subTest(want=want):
                self.assertEqual((got["src"], got["dst"]), (want["src"], want["dst"]))
                for key in ("opcode", "dest_qpn", "psn", "pad"):
                    self.assertEqual(got[key], int(want[key]), key)
                for key in OPTIONAL:
                    self.assertEqual(str(got.get(key, "-")), want[key], key)
                if want["src_qpn"] != "-":
                    self.assertEqual(got["src_qpn"], int(want["src_qpn"]))

    def test_counts_and_verdicts(self):
        for name, (frames, roce, _, _) in CAPTURES.items():
            with self.subTest(capture=name):
                done = run("--json", capture(name))
                self.assertEqual(done.stdout.count(b"\n"), frames)
                self.assertEqual(done.stdout.count(b'"icrc":"ok"'), roce)
                self.assertNotIn(b'"icrc":"bad"', done.stdout)

    def test_where_the_fields_come_from(self):
        for name, (_, _, client, server) in CAPTURES.items():
            packets = decode(capture(name))
            values = {e["packet"]: m["values"][0] for e in packets for m in e.get("messages", [])
                      if m["message"] == "record"}
            for e in packets:
                if e["protocol"] != "roce":
                    continue
                with self.subTest(capture=name, packet=e["packet"]):
                    sender, receiver = (client, server) if e["src"] in CLIENT else (server, client)
                    told = e["told"]
                    self.assertEqual(told["dest_qpn"], receiver)
                    self.assertEqual(told["src_qpn"], sender)
                    self.assertEqual(values[receiver]["qpn"], e["dest_qpn"])
                    self.assertEqual(values[receiver]["gid"], e["dst"])
                    first = values[told["psn"]]["psn"]
                    self.assertEqual((first + told["psn_offset"]) % 2**24, e["psn"])
                    self.assertLess(told["psn_offset"], 100)
                    self.assertFalse(e["retransmission"])
                    self.assertNotIn("missing_before", e)
                    if "rkey" in e:
                        self.assertEqual(told["rkey"], receiver)
                        self.assertEqual(values[receiver]["rkey"], e["rkey"])
                        self.assertEqual(values[receiver]["va"] + told["va_offset"], e["va"])

    def test_every_ack_names_its_requests(self):
        acks = [e for e in decode(capture("rc-ipv4")) if e.get("ack") == "ack"]
        self.assertEqual([(e["answers_first"], e["answers_last"]) for e in acks],
                         [(n, n + 3) for n in (12, 17, 22, 27, 32, 37)])

    def test_text_tells_the_conversation(self):
        text = run(capture("rc-ipv4")).stdout.decode()
        for part in ("A is 10.77.0.3", "ibv_*_pingpong exchange, record: QPN 0x000011  PSN 0xa2199e  GID 10.77.0.3",
                     "RC SEND First, 1024 bytes  QPN 0x000011 [#6]  PSN 0xa2199e [#4 +0]  ICRC ok",
                     "acknowledges #12 to #15", "30 RoCE packets", "0 wrong ICRCs"):
            self.assertIn(part, text)

    def test_standard_input(self):
        with open(capture("ud"), "rb") as file:
            done = run("--json", "-", stdin=file.read())
        self.assertEqual(done.stdout, run("--json", capture("ud")).stdout)


    def test_pcapng_and_nanoseconds(self):
        with open(capture("ud"), "rb") as file:
            data = file.read()

        def block(kind, body):
            body += b"\0" * (-len(body) % 4)
            return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

        pcapng = block(0x0a0d0d0a, struct.pack("<IHHq", 0x1a2b3c4d, 1, 0, -1))
        pcapng += block(1, struct.pack("<HHI", 1, 0, 0))
        nano = struct.pack("<I", 0xa1b23c4d) + data[4:24]
        for at, length in frames_of(data):
            seconds, micros = struct.unpack_from("<II", data, at - 16)
            time = seconds * 1000000 + micros
            pcapng += block(6, struct.pack("<IIIII", 0, time >> 32, time & 0xffffffff, length, length) +
                            data[at:at + length])
            nano += struct.pack("<IIII", seconds, micros * 1000, length, length) + data[at:at + length]
        expected = run("--json", capture("ud")).stdout
        self.assertEqual(run("--json", "-", stdin=pcapng).stdout, expected)
        self.assertEqual(run("--json", "-", stdin=nano).stdout, expected)


class Damage(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "c.pcap")

    def write(self, data):
        with open(self.path, "wb") as file:
            file.write(data)

    def test_a_flipped_bit_flips_the_verdict(self):
        for name in CAPTURES:
            with open(capture(name), "rb") as file:
                data = bytearray(file.read())
            roce = {e["packet"] for e in decode(capture(name)) if e["protocol"] == "roce"}
            damaged = sorted(roce)[::5]
            for number, (at, length) in enumerate(list(frames_of(data)), 1):
                if number in damaged:
                    data[at + length - 1 - number % 8] ^= 1 << number % 8
            self.write(data)
            for e in decode(self.path):
                if e["packet"] in roce:
                    with self.subTest(capture=name, packet=e["packet"]):
                        self.assertEqual(e["icrc"], "bad" if e["packet"] in damaged else "ok")

    def test_a_changed_identification_is_noticed(self):
        with open(capture("rc-ipv4"), "rb") as file:
            data = bytearray(file.read())
        frames = list(frames_of(data))
        data[frames[11][0] + 14 + 5] ^= 1
        self.write(data)
        self.assertEqual([e["packet"] for e in decode(self.path) if e.get("icrc") == "bad"], [12])

    def test_lost_packets_are_missed(self):
        with open(capture("rc-ipv4"), "rb") as file:
            data = file.read()
        kept = [data[at - 16:at + length] for n, (at, length) in enumerate(frames_of(data), 1) if n not in (13, 14)]
        self.write(data[:24] + b"".join(kept))
        self.assertEqual({e["packet"]: e["missing_before"] for e in decode(self.path) if "missing_before" in e}, {13: 2})

    def test_a_cut_file_tells_what_it_has_and_fails(self):
        with open(capture("ud"), "rb") as file:
            data = file.read()
        for cut in (len(data) - 1, len(data) - 1000, 30):
            self.write(data[:cut])
            done = run("--json", self.path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"truncated", done.stderr)
            self.assertIn(self.path.encode(), done.stderr)
            whole = sum(at + length <= cut for at, length in frames_of(data[:cut].ljust(len(data), b"\0"))
                        if cut > 40)
            self.assertEqual(done.stdout.count(b"\n"), whole)

    def test_not_a_capture(self):
        for data in (b"", b"hello, world\n" * 10, b"\xd4\xc3\xb2\xa1"):
            self.write(data)
            done = run(self.path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"not a pcap or pcapng capture", done.stderr)
            self.assertEqual(done.stdout, b"")

    def test_huge_lengths(self):
        with open(capture("ud"), "rb") as file:
            head = file.read(24)
        for claimed in (0xffffffff, 0x7fffffff, 300000):
            self.write(head + struct.pack("<IIII", 0, 0, claimed, claimed) + b"x" * 100)
            done = run("--json", self.path)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout, b"")

    def test_usage(self):
        self.assertEqual(run().returncode, 2)
        self.assertEqual(run("--nonsense", capture("ud")).returncode, 2)
        self.assertEqual(run("/nonexistent").returncode, 1)
        self.assertEqual(run("--help").returncode, 0)
        self.assertLessEqual(len(run("--help").stdout.splitlines()), 24)
        self.assertEqual(run("--svg", "/nonexistent/x.svg", capture("ud")).returncode, 1)


class Picture(unittest.TestCase):
    NAMESPACE = "{http://www.w3.org/2000/svg}"
    ADVANCE = 0.61  # of the font size: as wide as any of the fonts named in the picture

    def boxes(self, root):
        for text in root.iter(self.NAMESPACE + "text"):
            size, width = float(text.get("font-size")), 0
            width = len(text.text or "") * size * self.ADVANCE
            x, y = float(text.get("x")), float(text.get("y"))
            left = x - {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor")]
            yield left, y - 0.78 * size, left + width, y + 0.24 * size, text.text

    def test_no_two_texts_overlap(self):
        for name in CAPTURES:
            with tempfile.NamedTemporaryFile(suffix=".svg") as file:
                done = run("--svg", file.name, capture(name))
                self.assertEqual((done.returncode, done.stdout), (0, b""))
                root = ElementTree.parse(file.name).getroot()
            boxes = sorted(self.boxes(root), key=lambda b: b[1])
            self.assertGreater(len(boxes), CAPTURES[name][1])
            width, height = float(root.get("width")), float(root.get("height"))
            for i, a in enumerate(boxes):
                self.assertTrue(a[0] >= 0 and a[1] >= 0 and a[2] <= width and a[3] <= height, (name, a))
                for b in boxes[i + 1:]:
                    if b[1] >= a[3]:
                        break
                    self.assertFalse(a[0] < b[2] and b[0] < a[2], (name, a, b))

    def test_one_arrow_per_packet(self):
        with tempfile.NamedTemporaryFile(suffix=".svg") as file:
            run("--svg", file.name, capture("rc-ipv4"))
            root = ElementTree.parse(file.name).getroot()
        arrows = [g for g in root.iter(self.NAMESPACE + "g")]
        self.assertEqual(len(arrows), 30 + 4)  # the connection, two records, "done"


if __name__ == "__main__":
    unittest.main()
