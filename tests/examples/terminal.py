# SPDX-License-Identifier: BSD-2-Clause
"""A command on a terminal of its own, so that programs print line by line as they do for a person."""
import os
import pty
import signal
import socket
import subprocess
import termios
import threading

PATIENCE = 60


def open_terminal():
    """(master, slave) of a terminal that passes bytes as they are."""
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    return master, slave


class Command:
    """A running command. Its errors go to the terminal too, unless apart: then `errors` has them after finish()."""

    def __init__(self, args, apart=False, **options):
        master, slave = open_terminal()
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=slave,
                                        stderr=subprocess.PIPE if apart else slave, start_new_session=True, **options)
        os.close(slave)
        self.output, self.errors, self.spoken = b"", "", threading.Event()
        self.reader = threading.Thread(target=self._read, args=(master,), daemon=True)
        self.reader.start()

    def _read(self, master):
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # EIO: nobody has the terminal open any more
                data = b""
            if not data:
                break
            self.output += data
            self.spoken.set()
        self.spoken.set()
        os.close(master)

    def first_words(self, timeout):
        """What was printed once anything was, or the command has ended."""
        self.spoken.wait(timeout)
        return self.output.decode("utf-8", "replace")

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def finish(self, timeout):
        """Whether it ended by itself; otherwise it is killed."""
        self.reader.join(timeout)
        late = self.reader.is_alive()
        if late:
            self.signal(signal.SIGKILL)
            self.reader.join()
        if self.process.stderr:
            self.errors = self.process.stderr.read().decode("utf-8", "replace")
            self.process.stderr.close()
        self.process.wait()
        return not late


class Program(Command):
    def __init__(self, command, **options):
        super().__init__(command, apart=True, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.end(0)

    def end(self, patience=PATIENCE):
        """(status, output, errors)"""
        ended = self.finish(patience)
        return self.process.returncode if ended else "too late", self.output.decode(), self.errors


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])
