#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Judge RoCE v2 captures with tools that are not ours.

usage: referee.py [-q] FILE...

tshark must dissect every packet to UDP port 4791 as InfiniBand, find none malformed and no wrong IP
or UDP checksum. The ICRC is computed by scapy (contrib/roce, IPv4) and, since scapy doesn't do IPv6,
also here with zlib over the packet's own bytes. Exit status: 0 all is well, 1 something is wrong,
77 tshark or scapy is missing.
"""
import collections
import csv
import logging
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

ROCE_PORT = 4791
EXPERT_ERROR = 0x00800000  # Wireshark's severity "error"
SKIPPED = 77

logging.getLogger("scapy").setLevel(logging.ERROR)
try:
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.utils import PcapReader
except ImportError:
    print("referee: python3-scapy is not installed", file=sys.stderr)
    sys.exit(SKIPPED)

FIELDS = ["frame.number", "frame.protocols", "_ws.malformed", "_ws.expert.severity",
          "_ws.expert.message", "infiniband.bth.opcode"]
OPTIONS = ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE",
           "udp.ignore_ipv6_zero_checksum:TRUE"]  # the kernel's driver sends 0 over IPv6 too


def run_tool(command):
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{command[0]}: {run.stderr.strip()}")
    return run.stdout


def tshark_rows(file):
    # A payload is ours: what a dissector of some upper protocol guesses about it is no complaint.
    command = ["tshark", "-n", "--disable-protocol", "rpcordma", "-r", file,
               "-Y", f"udp.dstport == {ROCE_PORT}", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=;", "-E", "separator=/t"]
    for option in OPTIONS:
        command += ["-o", option]
    for field in FIELDS:
        command += ["-e", field]
    return csv.reader(run_tool(command).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)


def tshark_all_rows(files):
    """The rows of all files, one behind the other. Its start takes longer than a capture does: it starts once."""
    if len(files) == 1:
        return tshark_rows(files[0])
    with tempfile.NamedTemporaryFile(suffix=".pcapng") as whole:
        run_tool(["mergecap", "-a", "-w", whole.name, *files])
        return tshark_rows(whole.name)


def tshark_verdicts(files, sizes):
    """For each file a list of (frame number, opcode or None, complaint or None), one for each packet to the RoCE port."""
    verdicts = [[] for _ in files]
    at, before = 0, 0  # the file, the frames in front of it
    for number, protocols, malformed, severities, messages, opcode in tshark_all_rows(files):
        while int(number) - before > sizes[at]:
            before += sizes[at]
            at += 1
        complaint = None
        if malformed:
            complaint = "malformed"
        elif "infiniband" not in protocols.split(":"):
            complaint = f"not taken for InfiniBand but for {protocols}"
        elif any(int(s, 0) >= EXPERT_ERROR for s in severities.split(";") if s):
            complaint = messages
        verdicts[at].append((int(number) - before, int(opcode.split(";")[0], 0) if opcode else None, complaint))
    return verdicts


def icrc_by_zlib(packet):
    """ICRC of raw bytes from the IP header on (annex A17.3.3), without anybody's packet library."""
    masked = bytearray(packet[:-4])
    if masked[0] >> 4 == 4:
        udp = (masked[0] & 15) * 4
        for at in (1, 8, 10, 11):
            masked[at] = 0xff
    else:
        udp = 40
        masked[0] |= 0x0f
        for at in (1, 2, 3, 7):
            masked[at] = 0xff
    for at in (udp + 6, udp + 7, udp + 8 + 4):
        masked[at] = 0xff
    return zlib.crc32(b"\xff" * 8 + bytes(masked))


def icrc_by_scapy(ip):
    again = ip.copy()
    del again[BTH].icrc
    return struct.unpack("<I", bytes(again)[-4:])[0]


def icrc_verdicts(file):
    """(frames in the file, [(frame number, complaint or None)] with one for each packet to the RoCE port)."""
    number, verdicts = 0, []
    for number, frame in enumerate(PcapReader(file), 1):
        ip = frame.getlayer(IP) or frame.getlayer(IPv6)
        if ip is None or UDP not in ip or ip[UDP].dport != ROCE_PORT:
            continue
        total = ip.len if ip.version == 4 else 40 + ip.plen
        packet = ip.original[:total]
        if len(packet) < total:
            verdicts.append((number, "frame is cut short"))
            continue
        found = struct.unpack("<I", packet[-4:])[0]
        computed = {"zlib": icrc_by_zlib(packet)}
        if ip.version == 4:
            computed["scapy"] = icrc_by_scapy(ip)
        wrong = [f"{who} computes {crc:08x}" for who, crc in computed.items() if crc != found]
        verdicts.append((number, f"ICRC is {found:08x}, " + ", ".join(wrong) if wrong else None))
    return number, verdicts


def judge(by_tshark, by_scapy):
    """Return (packets, Counter of opcodes, complaints)."""
    complaints, opcodes, frames = [], collections.Counter(), set()
    for number, opcode, complaint in by_tshark:
        frames.add(number)
        opcodes[opcode] += 1
        if complaint:
            complaints.append((number, f"tshark: {complaint}"))
    for number, complaint in by_scapy:
        if number not in frames:
            complaints.append((number, "scapy sees a RoCE packet, tshark does not"))
        frames.discard(number)
        if complaint:
            complaints.append((number, complaint))
    complaints += [(number, "tshark sees a RoCE packet, scapy does not") for number in frames]
    if not opcodes:
        complaints.append((0, "no RoCE packet"))
    return sum(opcodes.values()), opcodes, sorted(complaints)


def main(arguments):
    quiet = arguments[:1] == ["-q"]
    files = arguments[1:] if quiet else arguments
    if not files:
        print(__doc__, file=sys.stderr)
        return 1
    if not shutil.which("tshark"):
        print("referee: tshark is not installed", file=sys.stderr)
        return SKIPPED
    status = 0
    sizes, by_scapy = zip(*map(icrc_verdicts, files))
    for file, *verdicts in zip(files, tshark_verdicts(files, sizes), by_scapy):
        packets, opcodes, complaints = judge(*verdicts)
        for number, complaint in complaints:
            print(f"{file}: frame {number}: {complaint}")
            status = 1
        if not quiet:
            kinds = " ".join(f"0x{code:02x}:{n}" for code, n in sorted(
                (c, n) for c, n in opcodes.items() if c is not None))
            verdict = f"{len(complaints)} complaints" if complaints else "all well"
            print(f"{file}: {packets} packets, {verdict}; opcodes {kinds}")
    return status


sys.exit(main(sys.argv[1:]))
