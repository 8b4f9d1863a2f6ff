# SPDX-License-Identifier: BSD-2-Clause
"""
One figure: how to measure it with n messages. The first run of each is short and only tells how many
messages fill the time of the later ones.
"""
from dataclasses import dataclass
from typing import Callable

GBPS, US, MPS = "Gb/s", "us", "M/s"


@dataclass
class Figure:
    unit: str
    run: Callable  # (bench, n) -> figure
    size: int
    first: int     # messages of the first run
    step: int = 1  # n is a multiple of it
    most: int = 20_000_000 # 0: it finds its own number

    def messages(self, value, seconds):
        """How many of them take about so long, at the rate that `value` says."""
        if self.unit == GBPS:
            rate = value * 1e9 / 8 / self.size
        elif self.unit == US:
            rate = 1e6 / (2 * value)
        else:
            rate = value * 1e6
        n = max(self.first, min(self.most, int(rate * seconds)))
        return max(self.step, n // self.step * self.step)


def bandwidth(run, size):
    return Figure(GBPS, run, size, first=max(20, min(20_000, (64 << 20) // size)))


def latency(run, size):
    return Figure(US, run, size, first=1000)


def rate(run, size, first=51_200, step=1):
    return Figure(MPS, run, size, first=first, step=step)
