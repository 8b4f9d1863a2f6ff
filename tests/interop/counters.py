# SPDX-License-Identifier: BSD-2-Clause
"""What both sides counted while a group ran: retransmissions, NAKs, duplicates, drops."""
import re
import threading

KERNEL_COUNTERS = "for f in /sys/class/infiniband/rxe0/ports/1/hw_counters/*; do echo ${f##*/} $(cat $f); done"
SAMPLE_SECONDS = 0.5


def parse(text):
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}


class KernelCounters:
    """The driver's own, over all queue pairs, since it was loaded."""

    def __init__(self, guest):
        self.guest = guest
        self.before = self.read()

    def read(self):
        return parse(self.guest.run(KERNEL_COUNTERS)[1])

    def stop(self):
        after = self.read()
        return {name: after[name] - self.before.get(name, 0) for name in after}


class AdapterCounters:
    """Each process on the adapter answers while it runs: asked again and again, the last answers added.

    What a process did between the last answer and its end is missing, so these are lower bounds."""

    def __init__(self, host):
        self.host = host
        self.last = {}
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()

    def sample(self):
        while not self.done.wait(SAMPLE_SECONDS):
            process = None
            for line in self.host.run("rocelink counters")[1].splitlines():
                if found := re.match(r"process (\d+)", line):
                    process = self.last.setdefault(found[1], {})
                elif (found := re.match(r"\s+(dropped )?([\w-]+)\s+(\d+)", line)) and process is not None:
                    process[(found[1] or "") + found[2]] = int(found[3])

    def stop(self):
        self.done.set()
        self.thread.join()
        total = {}
        for process in self.last.values():
            for name, value in process.items():
                total[name] = total.get(name, 0) + value
        return total
