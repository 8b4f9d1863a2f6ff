# SPDX-License-Identifier: BSD-2-Clause
"""The laboratory: places where commands run (this namespace, a QEMU guest) and the links between them.

run.sh draws the topology. All of it lives in the namespaces run.sh made for this process, so nothing
survives it; close() only ends things early.
"""
import functools
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass

import cases

AGENT_PORT = 9000


class LabError(Exception):
    """The laboratory itself does not work; no verdict on the programs under test."""


class Job:
    """A command on its way in some place. wait() gives (exit status, output)."""

    def __init__(self):
        self.chunks = []
        self.status = None
        self.ended = threading.Event()

    def output(self):
        return b"".join(self.chunks).decode("utf-8", "replace")

    def wait(self, timeout):
        """The exit status is 'timeout' when the command had to be killed."""
        if not self.ended.wait(timeout):
            self.kill()
            self.ended.wait(5)
            self.status = "timeout"
        return self.status, self.output()

    def start_reader(self):
        threading.Thread(target=self.read_all, daemon=True).start()

    def read_all(self):
        raise NotImplementedError

    def kill(self):
        raise NotImplementedError

    def stop(self):
        """Asks politely, so that files get written."""
        self.kill()
        self.ended.wait(5)


class LocalJob(Job):
    def __init__(self, script):
        super().__init__()
        self.process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        self.start_reader()

    def read_all(self):
        while chunk := self.process.stdout.read1(65536):
            self.chunks.append(chunk)
        code = self.process.wait()
        self.status = code if code >= 0 else 128 - code
        self.ended.set()

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def stop(self):
        self.process.terminate()
        self.ended.wait(5)


class GuestJob(Job):
    def __init__(self, address, script):
        super().__init__()
        self.sock = socket.create_connection((address, AGENT_PORT), timeout=10)
        self.sock.settimeout(None)
        self.sock.sendall(script.encode() + b"\0")
        self.start_reader()

    def read_all(self):
        try:
            while chunk := self.sock.recv(65536):
                self.chunks.append(chunk)
        except OSError:
            pass
        text, nul, code = b"".join(self.chunks).rpartition(b"\0")
        if nul and code.isdigit():
            self.chunks, self.status = [text], int(code)
        else:
            self.status = "lost"
        self.sock.close()
        self.ended.set()

    def kill(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Local:
    """This namespace: the host's end of every link."""
    name = "host"

    def start(self, script):
        return LocalJob(script)

    def run(self, script, timeout=30):
        return self.start(script).wait(timeout)


@functools.cache
def accelerator(cache):
    """KVM where it boots our kernel, which ends at once without a root (in seconds, or not at all where KVM is nested
    badly); or else emulation."""
    if os.access("/dev/kvm", os.W_OK):
        boot = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-M", "pc",
                "-accel", "kvm", "-cpu", "host", "-m", "256M", "-kernel", f"{cache}/vmlinuz", "-append", "panic=-1"]
        try:
            if subprocess.run(boot, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False).returncode == 0:
                return ["-accel", "kvm", "-cpu", "host"]
        except subprocess.TimeoutExpired:
            pass
        print("interop: KVM does not boot the guest here: emulating it", flush=True)
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


class Guest:
    """Debian's kernel in QEMU; its data link is the interface tap<n>, its management link mgmt<n>."""

    def __init__(self, number, cache, build, cpus=1, memory="768M", bridge=None):
        self.number = number
        self.name = f"guest{number}"
        self.agent = f"10.78.{number}.2"
        self.console = os.path.join(cache, f"console{number}.log")
        tap(f"tap{number}", bridge=bridge)
        tap(f"mgmt{number}", f"10.78.{number}.1/24")
        if not bridge:
            sh(f"ip address add 10.77.0.1/24 dev tap{number}")
            sh(f"ip address add fd77::1/64 dev tap{number} nodad")
            sh(f"ip route add 10.79.{number}.0/24 via 10.77.0.{number + 1}")
            sh(f"ip route add fd79:{number}::/64 via fd77::{number + 1}")
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-M", "pc", *accelerator(cache), "-smp", str(cpus), "-m", memory,
            "-kernel", f"{cache}/vmlinuz", "-initrd", f"{cache}/initrd",
            "-append", f"console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 guest={number} build={build}",
            "-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console",
            "-netdev", f"tap,id=data,ifname=tap{number},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=data,mac=52:54:00:77:00:0{number},romfile=",
            "-netdev", f"tap,id=mgmt,ifname=mgmt{number},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=mgmt,mac=52:54:00:78:00:0{number},romfile=",
            "-virtfs", f"local,path={build},mount_tag=build,security_model=none,readonly=on,id=build",
            "-virtfs", f"local,path={cache}/share,mount_tag=share,security_model=none,id=share",
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.closing = False
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        """A guest that ends by itself ends the run: every job in it would wait for ever."""
        said = self.process.stdout.read().decode("utf-8", "replace").strip()
        self.process.wait()
        if not self.closing:
            print(f"interop: {self.name} ended: {said or tail(self.console)}", flush=True)
            os._exit(3)

    def wait_ready(self, timeout=300):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                if self.run("true", 5)[0] == 0:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise LabError(f"{self.name} did not boot in {timeout} s: {tail(self.console)}")

    def start(self, script):
        return GuestJob(self.agent, script)

    def run(self, script, timeout=30):
        return self.start(script).wait(timeout)

    def close(self):
        self.closing = True
        self.process.kill()
        self.process.wait()


class Node:
    """One end of a test: a place, the way to start a verbs program there, its device and addresses."""

    def __init__(self, name, place, v4, tcp=None, netns="", adapter="", path="udp"):
        self.name = name
        self.place = place
        self.v4 = v4
        self.tcp = tcp or v4  # where the other end's program reaches this one for its exchange
        self.prefix = f"ip netns exec {netns} " if netns else ""
        self.wrap = f"{adapter} run --path {path} -- " if adapter else ""
        self.kernel = not adapter
        self.device = None
        self.gids = {}

    def start(self, command):
        return self.place.start(f"exec {self.prefix}{self.wrap}{command}")

    def run(self, command, timeout=30):
        return self.start(command).wait(timeout)

    def wait_listening(self, port, server, timeout=20):
        waiter = self.place.start(f"exec {self.prefix}agent listening {port} {timeout}")
        while not waiter.ended.wait(0.2):
            if server.ended.is_set():
                waiter.kill()
        if waiter.wait(5)[0] != 0:
            raise LabError(f"{self.name}: the server did not listen within {timeout} s")

    def find_device(self):
        """Finds the device whose GID table holds our IPv4 address, and the index of each address kind."""
        self.gids = {}
        status, text = self.run("probe gids")
        if status != 0:
            raise LabError(f"{self.name}: no devices: {text.strip()}")
        rows = [line.split() for line in text.splitlines() if line.startswith("gid ")]
        mapped = "::ffff:" + self.v4
        self.device = next((row[1] for row in rows if row[3] == mapped), None)
        if not self.device:
            raise LabError(f"{self.name}: no device has the GID {mapped}: {text.strip()}")
        for _, device, index, gid in rows:
            if device == self.device:
                kind = "v4" if gid == mapped else "ll" if gid.startswith("fe80:") else "v6"
                self.gids.setdefault(kind, int(index))


@dataclass
class Link:
    """An interface between the nodes of a pair: its MTU, and whether impairment acts on it."""
    place: object
    device: str
    netns: str = ""
    impaired: bool = False

    def set(self, mtu, netem):
        inside = f"ip netns exec {self.netns} " if self.netns else ""
        lines = ["set -e", f"{inside}ip link set {self.device} mtu {mtu}"]
        if self.impaired:
            ifb = "ifb-" + self.device
            lines += [f"tc qdisc del dev {self.device} root 2>/dev/null || true",
                      f"tc qdisc del dev {self.device} ingress 2>/dev/null || true",
                      f"ip link del {ifb} 2>/dev/null || true"]
        if self.impaired and netem:
            # netem shapes what leaves; what arrives leaves an ifb device first.
            lines += ["modprobe -a sch_netem sch_ingress ifb act_mirred cls_matchall",
                      f"ip link add {ifb} type ifb && ip link set {ifb} mtu {mtu} up",
                      f"tc qdisc add dev {ifb} root netem limit 100000 {netem}",
                      f"tc qdisc add dev {self.device} ingress",
                      f"tc filter add dev {self.device} ingress matchall action mirred egress redirect dev {ifb}",
                      f"tc qdisc add dev {self.device} root netem limit 100000 {netem}"]
        status, text = self.place.run("\n".join(lines))
        if status != 0:
            raise LabError(f"{self.place.name}: link {self.device}: {text.strip()}")


@dataclass
class Pair:
    a: Node
    b: Node
    links: list
    kind: str = ""  # of cases.py; "": the first pair, for which all is run
    counted: bool = False  # a is the adapter on this host, b the kernel's driver

    @property
    def name(self):
        return f"{self.a.name}+{self.b.name}"

    def set_link(self, mtu=1500, netem=""):
        for link in self.links:
            link.set(mtu, netem)
        for node in (self.a, self.b):
            node.find_device()


def enter_namespace(build):
    """Once per process, which run put into namespaces of its own."""
    os.environ["PATH"] += f":{build}/interop:{build}"
    sh("ip link set lo up")
    sh("mount -t sysfs sysfs /sys")


class Lab:
    """The host, its guests and the pairs of nodes that meet."""

    def __init__(self, build, oracle, cpus):
        self.cache = os.path.join(build, "interop")
        self.host = Local()
        self.guests = []
        self.oracle = oracle
        bridge = None
        if oracle:
            bridge = "lab"
            sh("ip link add lab type bridge mcast_snooping 0")
            sh("ip link set lab mtu 9000 up")
        for number in (1, 2) if oracle else (1,):
            self.guests.append(Guest(number, self.cache, build, cpus=cpus, bridge=bridge))
        self.adapter = os.path.join(build, "rocelink")
        self.jobs = []

    def __enter__(self):
        for guest in self.guests:
            guest.wait_ready()
        return self

    def __exit__(self, *_):
        for job in self.jobs:
            job.stop()
        for guest in self.guests:
            guest.close()
            for name in ("tap", "mgmt"):
                sh(f"ip link del {name}{guest.number}")

    def describe(self):
        _, release = self.guests[0].run("uname -r")
        package = sh("dpkg-query -W -f ${Version} libibverbs1")
        return f"Linux {release.strip()} rdma_rxe, rdma-core {package.strip()}"

    def capture(self, path):
        """Everything on guest 1's data link, until the laboratory closes."""
        job = self.host.start(f"exec tcpdump -i tap1 -U -w {shlex.quote(path)} udp port 4791 2>&1")
        self.jobs.append(job)
        deadline = time.monotonic() + 10
        while "listening on" not in job.output() and time.monotonic() < deadline:
            time.sleep(0.05)

    def pairs(self):
        one = self.guests[0]
        if self.oracle:
            two = self.guests[1]
            pairs = [Pair(Node("kernel 1", one, "10.77.0.2"), Node("kernel 2", two, "10.77.0.3"),
                          [Link(one, "data", impaired=True), Link(two, "data"), Link(self.host, "tap1"),
                           Link(self.host, "tap2")])]
        else:
            host = Node("adapter", self.host, "10.77.0.1", tcp="10.78.1.1", adapter=self.adapter)
            kernel = Node("kernel", one, "10.77.0.2", tcp="10.78.1.2")
            outer = Node("kernel (guest)", one, "10.79.1.1")
            inner = Node("adapter (guest)", one, "10.79.1.2", netns="inner", adapter=self.adapter)
            far = Node("adapter (host)", self.host, "10.77.0.1", adapter=self.adapter)
            data = [Link(self.host, "tap1"), Link(one, "data", impaired=True)]
            veth = [Link(one, "outer", impaired=True), Link(one, "data", netns="inner")]
            pairs = [Pair(host, kernel, data, counted=True), Pair(outer, inner, veth, kind=cases.GUEST),
                     Pair(far, inner, [*data, Link(one, "outer"), veth[1]], kind=cases.ROUTED)]
        return pairs

    def rivals(self):
        """The kernel's driver and the adapter's paths in one guest, each to meet itself."""
        one = self.guests[0]
        nodes = (Node("kernel", one, "10.77.0.2"),
                 *(Node("adapter", one, "10.79.1.2", netns="inner", adapter=self.adapter, path=path)
                   for path in ("udp", "shm")))
        for node in nodes:
            node.find_device()
        return nodes


def sh(command):
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise LabError(f"{command}: {done.stdout.decode().strip()}")
    return done.stdout.decode()


def tap(name, address=None, bridge=None):
    sh(f"ip tuntap add {name} mode tap")
    # An emulated guest is slow, and links that carry RoCE don't drop: room for an 8 MiB message.
    sh(f"ip link set {name} txqueuelen 20000")
    if address:
        sh(f"ip address add {address} dev {name}")
    if bridge:
        sh(f"ip link set {name} master {bridge}")
    sh(f"ip link set {name} up")


def tail(path, lines=15):
    try:
        with open(path, errors="replace") as file:
            return "".join(file.readlines()[-lines:])
    except OSError as error:
        return str(error)
