#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
Make the seed corpora from the captures of the kernel's driver in tests/data: seeds.py
Run it once when the captures or the formats of the targets change; the files are kept in git.
"""
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
PACKETS_PER_CONVERSATION = 24


def frames(path):
    """(link type, bytes) of each record of a little-endian pcap file."""
    raw = path.read_bytes()
    link = struct.unpack_from("<I", raw, 20)[0]
    at = 24
    while at + 16 <= len(raw):
        n = struct.unpack_from("<I", raw, at + 8)[0]
        yield link, raw[at + 16:at + 16 + n]
        at += 16 + n


def roce(link, frame):
    """What stands behind a UDP header to port 4791, or None."""
    ip = frame[{1: 14, 101: 0, 113: 16, 276: 20}[link]:]
    if ip[0] >> 4 == 4:
        protocol, udp = ip[9], ip[(ip[0] & 15) * 4:]
    else:
        protocol, udp = ip[6], ip[40:]
    if protocol != 17 or udp[2:4] != struct.pack(">H", 4791):
        return None
    return udp[8:struct.unpack(">H", udp[4:6])[0]]


def is_response(opcode):
    return opcode & 0xe0 == 0 and 0x0d <= opcode <= 0x12


def conversation(kind, packets):
    """Input of the qp target: the packets as a stranger's, to the side that each is for."""
    out = bytearray([kind])
    for node in (0, 1):
        for i in range(4):
            out += struct.pack(">BBHHHH", 3, node, i * 4096, 4096, 0, 0)
    for packet in packets:
        to = 0 if is_response(packet[0]) else 1
        out += struct.pack(">BBHH", 11, to, 0x100, len(packet)) + packet
        if packet[0] not in (0, 1, 7, 8):
            out += struct.pack(">BBB", 5, 0, 4)
    return bytes(out)


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def captures():
    for path in sorted(DATA.glob("*.pcap")) + sorted(DATA.glob("damaged/*.pcap")):
        packets = [p for p in (roce(*f) for f in frames(path)) if p]
        seen = set()
        for p in packets:
            key = (p[0], p[1] & 0x30)
            if key not in seen and len(p) < 1200:
                seen.add(key)
                write("packet", "%s-%02x-%d" % (path.stem, p[0], p[1] >> 4 & 3), p)
        kind = {"uc": 4, "ud": 6}.get(path.stem, 8)
        write("qp", path.stem, conversation(kind, packets[:PACKETS_PER_CONVERSATION]))
        write("capture", path.name, path.read_bytes()[:8192])


def actions():
    """Inputs of the qp target that begin with verbs calls, one of each operation, without and with loss."""
    for kind in (0, 4, 7, 0x10, 0x60):
        for loss in (0, 3):
            out = bytearray([kind])
            for i in range(8):
                out += struct.pack(">BBHHHH", 3, 1, i * 4096, 4096, 0, 0)
            if loss:
                out += struct.pack(">BBH", 8, 0, 5) + struct.pack(">BBH", 8, 1, 2)
            for op in range(8):
                out += struct.pack(">BBBHHH", 0, 0, op | 8, op * 1024, op * 1024, 700)
            out += struct.pack(">BB", 7, 200)
            write("qp", "verbs-%02x-%d" % (kind, loss), bytes(out))


def settings():
    for i, text in enumerate((
            "ROCELINK_LOG=info\0ROCELINK_PATH=udp\0ROCELINK_PCAP=a.pcap",
            "ROCELINK_FAULT=loss=1%,reorder=0.5%,delay=2ms,dup=0.1%,corrupt=0.01%,seed=42",
            "ROCELINK_FAULT=in.loss=100%,out.delay=1.5us,rnr=5%,link-down=2s+500ms",
            "ROCELINK_FAULT=qp-error=7,cq-overrun=9\0HOME=/", "ROCELINK_NEW=1")):
        write("settings", "variables-%d" % i, text.encode())


if __name__ == "__main__":
    captures()
    actions()
    settings()
