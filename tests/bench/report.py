# SPDX-License-Identifier: BSD-2-Clause
"""The terminal's tables: marks, further figures, costs, and what changed since a baseline."""
import statistics

import contests
import costs


PLACES = {"udp": "UDP path", "shm": "same-host path", "connect": "Connecting"}


def median(runs):
    return statistics.median(runs)


def judge(mark, figures):
    """(value, reference's value or None, ratio, reached) of a mark, None where a figure is missing."""
    if mark.key not in figures or (mark.reference and mark.reference not in figures):
        return None
    value = median(figures[mark.key]["runs"])
    reference = median(figures[mark.reference]["runs"]) if mark.reference else None
    ratio = value / reference if reference else value
    reached = ratio >= mark.number if mark.sense == ">=" else ratio <= mark.number
    return value, reference, ratio, reached


def spread(runs):
    """Half of the range between the extremes, in percent of the median."""
    return 50 * (max(runs) - min(runs)) / median(runs)


def figure_text(figure):
    runs = figure["runs"]
    return "%8.2f %-4s %s" % (median(runs), figure["unit"],
                              "±%2.0f%%" % spread(runs) if len(runs) > 1 else "once")


def against(mark):
    """Who the reference is, in a word."""
    if not mark.reference:
        return ""
    who, what, rest = mark.reference.split(".", maxsplit=2)
    return rest if who == "connect" else what if mark.key.startswith(who + ".") else who


def print_marks(figures, failed, out):
    path = None
    missed = 0
    for mark in contests.all_marks():
        verdict = judge(mark, figures)
        lacking = mark.key in failed or mark.reference in failed
        if not verdict and not lacking:
            continue
        who = mark.key.split(".", maxsplit=1)[0]
        if who != path:
            path = who
            out("\n%-29s %-19s %-10s %8s %6s  %s" % (
                PLACES[path], "median, spread", "against", "",
                "ratio", "mark"))
        if lacking:
            missed += 1
            out("%-29s no result, see below: MISSED" % mark.title)
            continue
        _, reference, ratio, reached = verdict
        missed += not reached
        out("%-29s %s %-10s %8s %6s  %s %-5g %s" % (
            mark.title, figure_text(figures[mark.key]), against(mark),
            "%.2f" % reference if reference else "", "%.2f" % ratio if reference else "",
            mark.sense, mark.number, "reached" if reached else "MISSED"))
    return missed


def print_further(figures, out):
    rows = [(title, key) for title, keys in contests.all_also() for key in keys if key in figures]
    if rows:
        out("\nWithout a mark")
    for title, key in rows:
        out("%-50s %-7s %s" % (title, key.split(".", maxsplit=1)[0], figure_text(figures[key])))


def print_costs(counted, out):
    if counted:
        out("\n%-50s %8s %11s  %s" % ("Costs", "udp", "shm", "at most"))
    missed = 0
    for key, title, _, _, unit, most in costs.COUNTED:
        values = [counted.get("%s.%s" % (path, key)) for path in contests.PATHS]
        if values == [None, None]:
            continue
        good = all(value is None or value <= most for value in values)
        missed += not good
        cells = ["%11s" % ("-" if value is None else "%.3f" % value) for value in values]
        out("%-48s %s  %g %s %s" % (title, " ".join(cells), most, unit,
                                   "reached" if good else "MISSED"))
    return missed


def print_failures(failed, out):
    for key, why in failed.items():
        out("\nFAILED %s: %s" % (key, why.strip()[-600:]))


def changed(before, now):
    """Percent, and whether the ranges of the runs are apart, which two lone runs always are."""
    percent = 100 * (median(now["runs"]) / median(before["runs"]) - 1)
    apart = min(now["runs"]) > max(before["runs"]) or max(now["runs"]) < min(before["runs"])
    return percent, apart and min(len(before["runs"]), len(now["runs"])) >= 3


def print_comparison(baseline, figures, out):
    """Each figure beside the baseline's. A competitor that moved says that the machine did."""
    out("\n%-26s %13s %13s  change" % ("Compared with the baseline", "then", "now"))
    for key in sorted(set(baseline) & set(figures)):
        before, now = baseline[key], figures[key]
        if before["unit"] != now["unit"]:
            raise ValueError("%s: the baseline is in %s" % (key, before["unit"]))
        percent, apart = changed(before, now)
        better = (percent > 0) != (now["unit"] == "us")
        word = ("better" if better else "WORSE") if apart else "within the spread"
        out("%-26s %8.2f %-4s %8.2f %-4s %+6.1f %%  %s" % (
            key, median(before["runs"]), before["unit"], median(now["runs"]), now["unit"], percent,
            word))
