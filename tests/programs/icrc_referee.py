# SPDX-License-Identifier: BSD-2-Clause
"""
icrc_referee.py FILE PACKETS: checks the ICRC of every RoCE packet of a capture, by means that know
nothing of us: scapy computes it over IPv4; over IPv6, which scapy lacks, zlib does. Exits 1 when one
differs, or when the file holds another number of RoCE packets.
"""
import sys
import zlib

from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.utils import PcapReader


def icrc_ipv4(packet):
    again = packet.copy()
    again[BTH].icrc = None  # computed when built
    return bytes(again[UDP].payload)[-4:]


def icrc_ipv6(packet):
    """All ones for traffic class, flow label, hop limit, UDP checksum and BTH byte 4."""
    data = bytearray(bytes(packet[IPv6]))
    data[0] |= 0x0F
    for i in (1, 2, 3, 7, 40 + 6, 40 + 7, 48 + 4):
        data[i] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(data[:-4])).to_bytes(4, "little")


def main(path, expected):
    seen = wrong = 0
    with PcapReader(path) as packets:
        for packet in packets:
            if BTH not in packet:
                continue
            seen += 1
            ours = bytes(packet[UDP].payload)[-4:]
            right = icrc_ipv6(packet) if IPv6 in packet else icrc_ipv4(packet)
            if ours != right:
                wrong += 1
                print("packet %d: ICRC %s, should be %s" % (seen, ours.hex(), right.hex()))
    print("%d packets, %d with a wrong ICRC" % (seen, wrong))
    return 1 if wrong or seen != expected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
