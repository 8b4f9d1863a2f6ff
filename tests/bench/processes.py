# SPDX-License-Identifier: BSD-2-Clause
"""Starting what is measured. Whatever ends badly or is late raises Failure: no figure comes of it."""
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time

HOST = "127.0.0.1"


class Failure(Exception):
    pass


class Bench:
    """What all runners need: the build, the device of the loopback interface, fresh TCP ports."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.rocelink = os.path.join(self.build, "rocelink")
        self.port = 21000 + os.getpid() % 500 * 20
        self.device, self.gid = self._loopback_device()

    def adapter(self, path, argv, *options):
        return [self.rocelink, "run", "--path", path, *options, "--"] + argv

    def program(self, name):
        return os.path.join(self.build, "tests", name)

    def next_port(self):
        self.port += 1
        return str(self.port)

    def _loopback_device(self):
        device = None
        for line in run(self.adapter("udp", ["ibv_devinfo", "-v"])).splitlines():
            if m := re.match(r"hca_id:\s*(\S+)", line):
                device = m[1]
            if m := re.search(r"GID\[\s*(\d+)\]:\s*::ffff:127\.0\.0\.1,", line):
                return device, m[1]
        raise Failure("no device has the GID ::ffff:127.0.0.1")


def run(argv, timeout=60, env=None):
    """Standard output of a program that must succeed."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout,
                              env=env)
    except subprocess.TimeoutExpired:
        raise Failure("no end after %d s: %s" % (timeout, " ".join(argv))) from None
    if done.returncode:
        raise Failure("status %d: %s\n%s%s" % (done.returncode, " ".join(argv), done.stdout,
                                               done.stderr))
    return done.stdout


def pair(server, client, port, timeout=60, env=None):
    """What the client and the server printed. Both must end well, the server soon after the client."""
    # The server's output goes to a file: a pipe that nobody reads would stop it.
    with tempfile.TemporaryFile("w+") as said, \
            subprocess.Popen(server, start_new_session=True, stdout=said, stderr=said,
                             env=env) as process:
        try:
            wait_listening(process, int(port))
            output = run(client, timeout, env)
            process.wait(10)
        except subprocess.TimeoutExpired:
            raise Failure("the server did not end: %s" % " ".join(server)) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        text = said.read()
        if process.returncode:
            raise Failure("status %d: %s\n%s" % (process.returncode, " ".join(server), text))
        return output, text


def wait_listening(process, port):
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for family in ("tcp", "tcp6"):
            try:
                with open("/proc/%d/net/%s" % (process.pid, family), encoding="ascii") as f:
                    if re.search(r":%04X [0-9A-F]+:0000 0A" % port, f.read()):
                        return
            except OSError:
                pass # it has ended
        if process.poll() is not None:
            raise Failure("the server ended at once, status %d" % process.returncode)
        time.sleep(0.003)
    raise Failure("nothing listens on TCP port %d" % port)


@contextlib.contextmanager
def slow_wire(bench, delay_us, loss_ppm, mtu):
    """Two hosts on a wire that delays and loses: the prefixes of commands that run on either, and their addresses."""
    argv = ["unshare", "-rn", bench.program("bench_wire"), str(delay_us), str(loss_ppm), str(mtu)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as wire:
        try:
            pids = wire.stdout.readline().split()
            if len(pids) != 2:
                raise Failure("no wire: " + " ".join(argv))
            enter = [["nsenter", "--preserve-credentials", "-U", "-n", "-t", pid] for pid in pids]
            yield enter, ("10.88.0.1", "10.88.0.2")
        finally:
            wire.stdin.close()


def number(text, what):
    """A figure that can't be right ends the run."""
    value = float(text)
    if not 0 < value < 1e9:
        raise Failure("%s: impossible figure %s" % (what, text))
    return value
