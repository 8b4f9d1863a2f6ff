# SPDX-License-Identifier: BSD-2-Clause
"""
icrc_referee.py FILE PACKETS: scapy, which knows nothing of us, computes the ICRC of every RoCE packet of a
capture. Exits 1 when one differs, or when it finds another number of packets.
"""
import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.utils import PcapReader


def main(path, expected):
    seen = wrong = 0
    with PcapReader(path) as packets:
        for packet in packets:
            if BTH not in packet:
                continue
            seen += 1
            original = bytes(packet[UDP].payload)
            again = packet.copy()
            again[BTH].icrc = None  # computed when built
            if bytes(again[UDP].payload)[-4:] != original[-4:]:
                wrong += 1
                print("packet %d: ICRC %s, scapy says %s" % (
                    seen, original[-4:].hex(), bytes(again[UDP].payload)[-4:].hex()))
    print("%d packets, %d with a wrong ICRC" % (seen, wrong))
    return 1 if wrong or seen != expected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
