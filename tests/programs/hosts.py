# SPDX-License-Identifier: BSD-2-Clause
"""
The hosts that the programs run on: network namespaces that live as long as the test, and nothing on
the machine itself. The test's own process lies in namespace A; a sleeping child holds each other.

      A                                    B
      lo   127.0.0.1  ::1                  lo  127.0.0.1  ::1
      rl0  10.77.0.1  fd77::1  fe80::1 --- rl0  10.77.0.2  fd77::2  fe80::2     MTU 1500
      rl1  10.78.0.1  fd78::1  fe80::1 --- rl1  10.78.0.2  fd78::2  fe80::2     MTU 9000

      only4: lo 127.0.0.1, IPv6 off        only6: lo ::1, no IPv4 address

Root makes plain namespaces and runs "user" programs as nobody. Anybody else gets them in a user
namespace of their own, where "root" is the caller mapped to 0, and "user" nested and unprivileged.
"""
import ctypes
import os
import re
import signal
import subprocess
import sys
import time

NOBODY = 65534
INSIDE = "ROCELINK_MATRIX_INSIDE"  # taken out of the environment again: the adapter refuses it


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def enter_namespace():
    """Start this script again inside a new network namespace, once. False: not possible here."""
    if os.environ.pop(INSIDE, None):
        return True
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "-Ur", "--net"]
    if subprocess.run(unshare + ["true"], stderr=subprocess.DEVNULL).returncode != 0:
        return False
    user = "root" if os.geteuid() == 0 else "mapped"
    os.execvpe("unshare", unshare + [sys.executable] + sys.argv, dict(os.environ, **{INSIDE: user}))


def ip(*args):
    subprocess.run(["ip"] + list(args), check=True)


class Device:
    """One RDMA device as ibv_devinfo -v shows it: its name and GIDs {index: text}."""

    def __init__(self, name):
        self.name = name
        self.gids = {}

    def gid_index(self, address):
        for index, gid in self.gids.items():
            if gid == address or gid == "::ffff:" + address:
                return index
        raise LookupError("%s has no GID %s: %s" % (self.name, address, self.gids))


def parse_devinfo(text):
    devices = []
    for line in text.splitlines():
        if m := re.match(r"hca_id:\s*(\S+)", line):
            devices.append(Device(m[1]))
        elif m := re.match(r"\s*GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)", line):
            devices[-1].gids[int(m[1])] = m[2]
    return devices


class Host:
    """A namespace and how to start programs in it. pid None: the test's own."""

    def __init__(self, name, pid=None):
        self.name = name
        self.enter = ["nsenter", "-t", str(pid), "-n"] if pid else []
        self.devices = None

    def ip(self, *args):
        subprocess.run(self.enter + ["ip"] + list(args), check=True)


class Place:
    """Where the two ends of a pair stand and which addresses they have."""

    def __init__(self, name, server, client, server_gid, client_gid, tcp, dev=None):
        self.name = name
        self.server, self.client = server, client
        self.server_gid, self.client_gid = server_gid, client_gid
        self.tcp = tcp  # what the client connects to
        self.ifname = dev  # tells link-local addresses of two interfaces apart

    def end(self, is_server):
        """(host, device name, GID index) of one end."""
        host = self.server if is_server else self.client
        gid = self.server_gid if is_server else self.client_gid
        for device in host.devices:
            if self.ifname and self.ifname not in device.name:
                continue
            try:
                return host, device.name, device.gid_index(gid)
            except LookupError:
                pass
        raise LookupError("no device of host %s has the GID %s" % (host.name, gid))


class World:
    """All hosts and places. With namespaces=False there is only the machine's own loopback."""

    def __init__(self, namespaces):
        self.holders = []
        self.really_root = os.geteuid() == 0 and self._uid_map_is_whole()
        self.a = Host("a")
        if not namespaces:
            self._places_alone()
            return
        self.b, self.only4, self.only6 = (self._new_host(n) for n in ("b", "only4", "only6"))
        self._configure()
        self._places()

    @staticmethod
    def _uid_map_is_whole():
        with open("/proc/self/uid_map") as f:
            return int(f.read().split()[2]) > NOBODY

    def _new_host(self, name):
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"],
                                  preexec_fn=die_with_parent)
        self.holders.append(holder)
        mine = os.readlink("/proc/self/ns/net")
        while os.readlink("/proc/%d/ns/net" % holder.pid) == mine:
            time.sleep(0.005)
        return Host(name, holder.pid)

    def _configure(self):
        for host in (self.a, self.b, self.only4, self.only6):
            host.ip("link", "set", "lo", "up")
        for n, mtu in ((0, 1500), (1, 9000)):
            name = "rl%d" % n
            ip("link", "add", name, "mtu", str(mtu), "type", "veth", "peer", "name", name,
               "mtu", str(mtu), "netns", str(self.holders[0].pid))
            for host, k in ((self.a, 1), (self.b, 2)):
                host.ip("link", "set", name, "addrgenmode", "none")
                host.ip("link", "set", name, "up")
                host.ip("addr", "add", "10.%d.0.%d/24" % (77 + n, k), "dev", name)
                host.ip("addr", "add", "fd%d::%d/64" % (77 + n, k), "dev", name, "nodad")
                host.ip("addr", "add", "fe80::%d/64" % k, "dev", name, "nodad")
        self.only4.ip("-6", "addr", "flush", "dev", "lo")
        self.only6.ip("-4", "addr", "flush", "dev", "lo")

    def _places_alone(self):
        a = self.a
        self.hosts = [a]
        self.places = {p.name: p for p in [
            Place("lo4", a, a, "127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ]}

    def _places(self):
        a, b = self.a, self.b
        self.hosts = [a, b, self.only4, self.only6]
        self.places = {p.name: p for p in [
            Place("lo4", a, a, "127.0.0.1", "127.0.0.1", "127.0.0.1"),
            Place("lo6", a, a, "::1", "::1", "127.0.0.1"),
            Place("host4", a, a, "10.77.0.1", "10.77.0.1", "10.77.0.1"),
            Place("host6", a, a, "fd77::1", "fd77::1", "10.77.0.1"),
            Place("hostll", a, a, "fe80::1", "fe80::1", "10.77.0.1", "rl0"),
            Place("net4", b, a, "10.77.0.2", "10.77.0.1", "10.77.0.2"),
            Place("net6", b, a, "fd77::2", "fd77::1", "10.77.0.2"),
            Place("netll", b, a, "fe80::2", "fe80::1", "10.77.0.2", "rl0"),
            Place("jumbo4", b, a, "10.78.0.2", "10.78.0.1", "10.78.0.2"),
            Place("jumboll", b, a, "fe80::2", "fe80::1", "10.78.0.2", "rl1"),
            Place("only4", self.only4, self.only4, "127.0.0.1", "127.0.0.1", "127.0.0.1"),
            Place("only6", self.only6, self.only6, "::1", "::1", "::1"),
        ]}

    def as_user(self, user):
        """Command prefix that gives up root."""
        if user == "root" or os.geteuid() != 0:
            return []
        if self.really_root:
            return ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]
        return ["unshare", "--map-user=1000", "--map-group=1000"]

    def users(self):
        return ("root", "user") if os.geteuid() == 0 else ("user",)

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
