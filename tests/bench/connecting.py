# SPDX-License-Identifier: BSD-2-Clause
"""The contests of connect.py as figures and marks."""
import subprocess

import connect
from figure import Figure
from processes import Failure


def key_of(number, who):
    return "connect.%d.%s" % (number, who)


def measured(how):
    def run(bench, n):
        del n # each repeats as often as it needs
        try:
            return how(bench)
        except (RuntimeError, subprocess.SubprocessError, OSError) as e:
            raise Failure(str(e)) from None
    return run


def figures():
    return {key_of(i, who): Figure(unit, measured(how), 0, first=1, most=0)
            for i, (_, unit, runners, _, _) in enumerate(connect.contests())
            for who, how in runners.items()}


def contests():
    """Of each: title, key of the first one, reference's key, sense and number of the mark."""
    return [(title, key_of(i, next(iter(runners))), key_of(i, reference), *mark)
            for i, (title, _, runners, reference, mark) in enumerate(connect.contests())]


def also():
    """What has no mark: (title, [key])."""
    return [("%s: %s" % (title, who), [key_of(i, who)])
            for i, (title, _, runners, reference, _) in enumerate(connect.contests())
            for who in list(runners)[1:] if who != reference]
