# SPDX-License-Identifier: BSD-2-Clause
"""
Starts programs on the adapter, on a host and as a user of hosts.py, and judges what they did. Every wait
has a deadline, every process started here ends here, all output is kept until the row has passed.
"""
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

from hosts import die_with_parent, parse_devinfo

# What stands in front of `rocelink run`.
SANITIZERS = {
    None: [],
    # The stock programs leak on purpose at exit: only the adapter's own memory errors count here.
    "asan": ["env", "ASAN_OPTIONS=detect_leaks=0", "UBSAN_OPTIONS=print_stacktrace=1"],
    "tsan": ["env", "TSAN_OPTIONS=exitcode=66 suppressions={tests}/tsan.supp"],
}
SLOWER = {None: 1, "asan": 4, "tsan": 10}


class Failure(Exception):
    """The row failed; the text says what was expected."""


class Skip(Exception):
    """The row can't run here; the text says why."""


class Process:
    def __init__(self, argv, log_path, env):
        self.argv = argv
        self.log_path = log_path
        with open(log_path, "w") as log:
            self.popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
                                          start_new_session=True, preexec_fn=die_with_parent)
        self.pid = self.popen.pid

    def output(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        os.killpg(self.pid, number)

    def kill(self):
        if self.running():
            self.signal(signal.SIGKILL)
        self.popen.wait()

    def wait(self, deadline, status=0):
        """Wait until it ends; Failure when it doesn't, or with another status."""
        try:
            got = self.popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure("did not end in time: " + shlex.join(self.argv)) from None
        if got != status:
            raise Failure("exit status %d, expected %d: %s" % (got, status, shlex.join(self.argv)))

    def wait_for(self, regex, deadline):
        """Wait until its output matches."""
        while not (m := re.search(regex, self.output(), re.M)):
            if not self.running() or time.monotonic() > deadline:
                raise Failure("no /%s/ in the output of: %s" % (regex, shlex.join(self.argv)))
            time.sleep(0.01)
        return m


class Runner:
    def __init__(self, build, world, sanitizer=None):
        self.world = world
        self.sanitizer = sanitizer
        self.slower = SLOWER[sanitizer]
        self.build = build
        self.scratch = tempfile.mkdtemp(prefix="rocelink-matrix-")
        os.chmod(self.scratch, 0o755)
        self.prefix = os.path.join(self.scratch, "installed")
        self.tests = os.path.join(self.scratch, "tests")
        self.open_dir = os.path.join(self.scratch, "open")  # any user may write here
        os.mkdir(self.open_dir)
        os.chmod(self.open_dir, 0o1777)
        self.port = 20000
        self.path = "auto"
        self.processes = []
        self.verbose_log = None
        try:
            self._install()
            self.find_devices()
        except BaseException:
            self.close()
            raise

    def _install(self):
        """Rows run what an administrator would install, readable for every user."""
        subprocess.run(["cmake", "--install", self.build, "--prefix", self.prefix], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copytree(os.path.dirname(os.path.abspath(__file__)), self.tests)
        subprocess.run(["chmod", "-R", "a+rX", self.prefix, self.tests], check=True)

    def rocelink(self):
        return os.path.join(self.prefix, "bin", "rocelink")

    def sanitized(self):
        return [word.format(tests=self.tests) for word in SANITIZERS[self.sanitizer]]

    def environment(self, extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith("ROCELINK_")}
        env.update(LC_ALL="C", HOME="/nonexistent", PATH="/usr/sbin:/usr/bin:/sbin:/bin", **(extra or {}))
        return env

    def start_plain(self, host, user, argv, env=None):
        """Start a program without the adapter."""
        full = host.enter + self.world.as_user(user) + argv
        log = os.path.join(self.scratch, "%02d-%s-%s" % (len(self.processes), host.name,
                                                         os.path.basename(argv[0])))
        process = Process(full, log, self.environment(env))
        self.processes.append(process)
        return process

    def start(self, host, user, argv, options=(), env=None):
        """Start a program on the adapter."""
        options = ([] if "--path" in options or self.path == "auto" else ["--path", self.path]) + list(options)
        launcher = self.sanitized() + [self.rocelink(), "run"] + options + ["--"]
        return self.start_plain(host, user, launcher + argv, env)

    def run(self, host, user, argv, options=(), env=None, timeout=20, status=0):
        process = self.start(host, user, argv, options, env)
        process.wait(self.deadline(timeout), status)
        return process.output()

    def deadline(self, seconds):
        return time.monotonic() + seconds * self.slower

    def next_port(self):
        self.port += 1
        return self.port

    def find_devices(self):
        for host in self.world.hosts:
            host.devices = parse_devinfo(self.run(host, "root", ["ibv_devinfo", "-v"]))
            if not host.devices:
                raise Failure("host %s: ibv_devinfo shows no device" % host.name)

    def wait_listening(self, process, port, deadline):
        """Until the process's host has a TCP listener on the port."""
        needle = re.compile(r":%04X [0-9A-F]+:0000 0A" % port)
        while True:
            for family in ("tcp", "tcp6"):
                try:
                    with open("/proc/%d/net/%s" % (process.pid, family)) as f:
                        if needle.search(f.read()):
                            return
                except OSError:
                    pass
            if not process.running():
                raise Failure("server ended before it listened: " + shlex.join(process.argv))
            if time.monotonic() > deadline:
                raise Failure("server does not listen: " + shlex.join(process.argv))
            time.sleep(0.005)

    def start_pair(self, program, args, place, user, options=(), client_options=None,
                   wrap=()):
        """
        Server, then client, of one program; they run when this returns. The client's options may
        differ; wrap is a command that starts the program.
        """
        gid_flag = "-x" if program.startswith("ib_") else "-g"
        port = self.next_port()
        ends = []
        for is_server in (True, False):
            host, device, gid = place.end(is_server)
            argv = [program, "-d", device, gid_flag, str(gid), "-p", str(port)] + args
            if not is_server:
                argv.append(place.tcp)
                options = options if client_options is None else client_options
            process = self.start(host, user, list(wrap) + argv, options)
            if is_server:
                self.wait_listening(process, port, self.deadline(10))
            ends.append(process)
        return ends

    def forget(self):
        """The row passed: nothing may still run, outputs are not needed."""
        self.kill_all()
        for process in self.processes:
            os.unlink(process.log_path)
        self.processes = []

    def kill_all(self):
        for process in self.processes:
            process.kill()

    def keep(self, directory):
        """The row failed: keep the outputs. Returns a text for the terminal."""
        self.kill_all()
        os.makedirs(directory, exist_ok=True)
        text = ""
        for process in self.processes:
            output = process.output()
            with open(os.path.join(directory, os.path.basename(process.log_path)), "w") as f:
                f.write("$ %s\n%s\nstatus %d\n" % (shlex.join(process.argv), output,
                                                  process.popen.returncode))
            tail = "".join("      " + line + "\n" for line in output.splitlines()[-12:])
            text += "    $ %s  (status %d)\n%s" % (shlex.join(process.argv),
                                                  process.popen.returncode, tail)
            os.unlink(process.log_path)
        self.processes = []
        return text

    def close(self):
        self.kill_all()
        shutil.rmtree(self.scratch, ignore_errors=True)
