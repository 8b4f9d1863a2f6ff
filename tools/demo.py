#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""
demo.py BUILD: ibv_rc_pingpong, as Debian ships it, server and client as two unprivileged processes on the
adapter's UDP path; and what they said: over TCP, then in RoCE v2 packets.

The client reaches the server's TCP port through a relay in this script, which is how the exchange can be
shown without root. The packets are the adapter's own capture.
"""
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

NOBODY = 65534
PACKETS_SHOWN = 16
OPCODES = {0x00: "SEND First", 0x01: "SEND Middle", 0x02: "SEND Last", 0x04: "SEND Only",
           0x11: "ACK"}


class Style:
    """Marks on a terminal, and brackets elsewhere."""
    tty = sys.stdout.isatty()

    @classmethod
    def title(cls, text):
        print("\n\033[1m%s\033[0m" % text if cls.tty else "\n=== " + text, flush=True)

    @classmethod
    def server(cls, text):
        return "\033[1;32m%s\033[0m" % text if cls.tty else "<%s>" % text

    @classmethod
    def client(cls, text):
        return "\033[1;36m%s\033[0m" % text if cls.tty else "[%s]" % text


class Stage:
    """What an unprivileged user needs to see: the build folder itself, or for root a readable copy."""

    def __init__(self, build):
        self.results = os.path.join(build, "demo")
        shutil.rmtree(self.results, ignore_errors=True)
        os.makedirs(self.results)
        self.prefix = []
        self.bin = self.out = None
        if os.geteuid() != 0:
            self.bin, self.out = build, self.results
            return
        self.out = tempfile.mkdtemp(prefix="rocelink-demo-")
        self.bin = os.path.join(self.out, "bin")
        shutil.copytree(build, self.bin, symlinks=True, ignore=self._only_the_command)
        os.chmod(self.out, 0o755)
        os.chown(self.out, NOBODY, NOBODY)
        self.prefix = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]

    @staticmethod
    def _only_the_command(directory, names):
        return [n for n in names if n != "rocelink" and not n.startswith("librocelink")]

    def rocelink(self):
        return os.path.join(self.bin, "rocelink")

    def run_prefix(self, pcap=None):
        options = ["--pcap", os.path.join(self.out, pcap)] if pcap else []
        return self.prefix + [self.rocelink(), "run", "--path", "udp"] + options + ["--"]

    def collect(self):
        """The captures into the build folder; the copy is removed."""
        if self.out == self.results:
            return
        for name in os.listdir(self.out):
            if name.endswith(".pcap"):
                shutil.copy(os.path.join(self.out, name), self.results)
        shutil.rmtree(self.out, ignore_errors=True)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Relay(threading.Thread):
    """Passes one TCP connection on and remembers what was said: [(from client?, bytes)...]."""

    def __init__(self):
        super().__init__(daemon=True)
        self.said = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.server_port = free_port()

    def run(self):
        client = self.listener.accept()[0]
        server = socket.create_connection(("127.0.0.1", self.server_port))
        back = threading.Thread(target=self._pass, args=(server, client, False), daemon=True)
        back.start()
        self._pass(client, server, True)
        back.join()

    def _pass(self, source, sink, from_client):
        while data := source.recv(4096):
            self.said.append((from_client, data))
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


class Values:
    """One end's line of the exchange: LID:QPN:PSN:GID."""

    def __init__(self, data):
        lid, qpn, psn, gid = data.rstrip(b"\0").decode().split(":")
        self.lid, self.qpn, self.psn = int(lid, 16), int(qpn, 16), int(psn, 16)
        self.gid = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(gid))


def fail(text, *outputs):
    print("demo: " + text, *outputs, sep="\n", file=sys.stderr)
    sys.exit(1)


def show_devices(stage):
    """The device list; the device and GID index of 127.0.0.1."""
    Style.title("The RDMA devices of this machine, without RDMA hardware: ibv_devinfo -v, shortened")
    done = subprocess.run(stage.run_prefix() + ["ibv_devinfo", "-v"], capture_output=True, text=True)
    if done.returncode:
        fail("ibv_devinfo failed", done.stdout, done.stderr)
    device = found = None
    for line in done.stdout.splitlines():
        if re.search(r"hca_id:|\bstate:|active_mtu:|GID\[", line):
            print("  " + line.strip())
        if m := re.match(r"hca_id:\s*(\S+)", line):
            device = m[1]
        if m := re.search(r"GID\[\s*(\d+)\]:\s*::ffff:127\.0\.0\.1,", line):
            found = device, m[1]
    if not found:
        fail("no device has the GID ::ffff:127.0.0.1")
    return found


def wait_listening(server, port):
    for _ in range(500):
        with open("/proc/net/tcp") as f, open("/proc/net/tcp6") as f6:
            if re.search(r":%04X [0-9A-F]+:0000 0A" % port, f.read() + f6.read()):
                return
        if server.poll() is not None:
            break
        time.sleep(0.01)
    fail("the server does not listen on TCP port %d" % port, server.communicate(timeout=1)[0])


def run_pingpong(stage, device, gid):
    """Both programs' outputs."""
    args = ["ibv_rc_pingpong", "-d", device, "-g", gid, "-n", "100", "-c"]
    Style.title("Two unprivileged processes: %s" % " ".join(args))
    relay = Relay()
    relay.start()
    ends = []
    try:
        for name, more in (("server", ["-p", str(relay.server_port)]),
                           ("client", ["-p", str(relay.port), "127.0.0.1"])):
            ends.append(subprocess.Popen(stage.run_prefix(name + ".pcap") + args + more, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            if name == "server":
                wait_listening(ends[0], relay.server_port)
        outputs = [end.communicate(timeout=20)[0] for end in ends]
    except subprocess.TimeoutExpired:
        fail("the programs did not end within 20 s")
    finally:
        for end in ends:
            if end.poll() is None:
                end.send_signal(signal.SIGKILL)
    for name, output, end in zip(("server", "client"), outputs, ends):
        print("  %s (exit status %d):" % (name, end.returncode))
        print("".join("    %s\n" % line.strip() for line in output.splitlines()), end="")
    if any(end.returncode for end in ends):
        fail("a program failed")
    relay.join(2)
    return relay.said


def show_exchange(said):
    """The lines on TCP; the two ends' values."""
    Style.title("What they told each other over TCP (LID:QPN:PSN:GID)")
    values = {}
    for from_client, data in said:
        who, mark = ("client", Style.client) if from_client else ("server", Style.server)
        print("  %s -> %s" % (who, data.rstrip(b"\0").decode(errors="replace")))
        if data.count(b":") == 3:
            v = values[who] = Values(data)
            print("            LID %d, QPN %s, PSN %s, GID %s" % (
                v.lid, mark("0x%06x" % v.qpn), mark("0x%06x" % v.psn), v.gid))
    if len(values) != 2:
        fail("the exchange was not understood")
    return values["server"], values["client"]


def roce_packets(path):
    """(seconds, BTH...) of each packet of a pcap file."""
    with open(path, "rb") as f:
        magic, = struct.unpack("<I", f.read(4))
        link = struct.unpack("<HHiIII", f.read(20))[5]
        unit = 1e9 if magic == 0xA1B23C4D else 1e6
        offset = {1: 14, 12: 0, 101: 0}[link]
        while len(head := f.read(16)) == 16:
            sec, frac, kept, _ = struct.unpack("<IIII", head)
            data = f.read(kept)[offset:]
            ip_len = 40 if data[0] >> 4 == 6 else (data[0] & 15) * 4
            yield sec + frac / unit, data[ip_len + 8:]


def show_packets(path, server, client):
    Style.title("The first RoCE v2 packets, from the client's own capture")
    print("  values of the exchange are marked: %s is the server's, %s the client's" % (
        Style.server("this"), Style.client("this")))
    start = None
    next_psn = {"server": server.psn, "client": client.psn}
    for n, (when, bth) in enumerate(roce_packets(path)):
        start = when if start is None else start
        if n == PACKETS_SHOWN:
            break
        opcode, qpn = bth[0], int.from_bytes(bth[5:8], "big")
        psn = int.from_bytes(bth[9:12], "big")
        to_server = qpn == server.qpn
        # An ACK repeats the PSN of the request, so it belongs to the end that receives it.
        owner = "server" if (opcode == 0x11) == to_server else "client"
        mark = Style.server if owner == "server" else Style.client
        distance = (psn - next_psn[owner]) & 0xFFFFFF
        note = mark("0x%06x" % psn) if distance == 0 else "0x%06x = %s + %d" % (
            psn, mark("0x%06x" % next_psn[owner]), distance)
        print("  %8.1f us  %s  %-11s to QPN %s  PSN %s" % (
            1e6 * (when - start), "client -> server" if to_server else "server -> client",
            OPCODES.get(opcode, "0x%02x" % opcode),
            (Style.server if to_server else Style.client)("0x%06x" % qpn), note))


def main(build):
    stage = Stage(os.path.abspath(build))
    try:
        device, gid = show_devices(stage)
        said = run_pingpong(stage, device, gid)
    finally:
        stage.collect()
    server, client = show_exchange(said)
    capture = os.path.join(stage.results, "client.pcap")
    show_packets(capture, server, client)
    Style.title("The captures")
    for name in ("client.pcap", "server.pcap"):
        print("  " + os.path.relpath(os.path.join(stage.results, name)))
    print("  Wireshark opens them; or: %s decode %s" % (
        os.path.relpath(os.path.join(build, "rocelink")), os.path.relpath(capture)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build")
