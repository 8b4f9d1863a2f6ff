# SPDX-License-Identifier: BSD-2-Clause
"""
The SVG: a panel for each plot, both axes logarithmic, each line labelled at its right end. Labels that
would overlap are moved apart; a thin leader ties a label to its line.
"""
import math
from html import escape

import contests
from report import median

WIDTH, PANEL, MARGIN_LEFT, MARGIN_RIGHT, TOP, BOTTOM, GAP = 860, 400, 70, 190, 50, 45, 30
LABEL_HEIGHT = 17
COLOURS = { # by what a label begins with: the same in all panels
    "rocelink shm": "#c0392b", "rocelink udp": "#e67e22", "memcpy": "#777777", "UCX posix": "#1f6fb4",
    "UCX tcp": "#5dade2", "UDP GSO": "#8e44ad", "iperf3": "#1e8449", "libfabric": "#b7950b",
    "blocking TCP": "#333333",
}
FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif"'


def size_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return "%d %s" % (size // factor, unit)
    return "%d B" % size


def number_text(value):
    return "%g" % value


class Axis:
    """Logarithmic, from low to high, onto pixels."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = math.log(low), math.log(high), start, end

    def at(self, value):
        part = (math.log(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


def ticks(low, high):
    """1, 2, 5, 10 ... just inside."""
    values = [m * 10.0 ** e for e in range(-4, 7) for m in (1, 2, 5)]
    return [v for v in values if low <= v <= high]


def rounded(low, high):
    """The range of the axis: next round values outside the data."""
    values = [m * 10.0 ** e for e in range(-5, 8) for m in (1, 2, 5)]
    return max(v for v in values if v <= low), min(v for v in values if v >= high * 1.0001)


def apart(wanted, top, bottom):
    """Label positions as near to the wanted ones (sorted) as LABEL_HEIGHT apart allows."""
    placed = []
    for y in wanted:
        placed.append(max(y, placed[-1] + LABEL_HEIGHT if placed else top))
    limit = bottom
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - LABEL_HEIGHT
    return placed


def points_of(line, figures):
    return [(size, median(figures[key]["runs"])) for size, key in line.keys.items() if key in figures]


def colour_of(label):
    return next(colour for start, colour in COLOURS.items() if label.startswith(start))


def grid(x, y, sizes, scale, out):
    for value in scale:
        out.append('<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#dddddd"/>' % (
            x.start, x.end, y.at(value), y.at(value)))
        out.append('<text x="%.1f" y="%.1f" text-anchor="end" font-size="12">%s</text>' % (
            x.start - 8, y.at(value) + 4, number_text(value)))
    for size in sizes:
        out.append('<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#eeeeee"/>' % (
            x.at(size), x.at(size), y.start, y.end))
        out.append('<text x="%.1f" y="%.1f" text-anchor="middle" font-size="12">%s</text>' % (
            x.at(size), y.start + 18, size_text(size)))


def panel(title, unit, lines, figures, top, out):
    drawn = [(line.label, points_of(line, figures), colour_of(line.label)) for line in lines]
    drawn = [entry for entry in drawn if len(entry[1]) > 1]
    if not drawn:
        return False
    sizes = sorted({size for _, points, _ in drawn for size, _ in points})
    values = [value for _, points, _ in drawn for _, value in points]
    low, high = rounded(min(values), max(values))
    x = Axis(sizes[0], sizes[-1], MARGIN_LEFT, WIDTH - MARGIN_RIGHT)
    y = Axis(low, high, top + PANEL - BOTTOM, top + TOP)
    out.append('<text x="%d" y="%d" font-size="16" font-weight="bold">%s</text>' % (
        MARGIN_LEFT, top + 22, escape(title)))
    out.append('<text x="%d" y="%d" font-size="12" text-anchor="end">%s</text>' % (
        MARGIN_LEFT - 8, top + 36, escape(unit)))
    grid(x, y, sizes, ticks(low, high), out)
    drawn.sort(key=lambda entry: -entry[1][-1][1])
    labels = apart([y.at(points[-1][1]) for _, points, _ in drawn], y.end, y.start)
    for (label, points, colour), label_y in zip(drawn, labels):
        width = 3 if label.startswith("rocelink") else 1.5
        path = " ".join("%.1f,%.1f" % (x.at(size), y.at(value)) for size, value in points)
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"/>' % (
            path, colour, width))
        for size, value in points:
            out.append('<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s, %s: %.2f %s</title>'
                       '</circle>' % (x.at(size), y.at(value), colour, escape(label),
                                      size_text(size), value, unit))
        end = points[-1]
        out.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="0.7"/>' % (
            x.at(end[0]) + 4, y.at(end[1]), x.end + 16, label_y, colour))
        out.append('<text x="%.1f" y="%.1f" font-size="13" fill="%s">%s</text>' % (
            x.end + 20, label_y + 4, colour, escape(label)))
    return True


def write(figures, title, file):
    body, panels = [], 0
    for name, unit, lines in contests.PLOTS:
        panels += panel(name, unit, lines, figures, panels * (PANEL + GAP), body)
    height = panels * (PANEL + GAP) + 12
    with open(file, "w", encoding="utf-8") as f:
        f.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" %s>'
                '\n<rect width="100%%" height="100%%" fill="white"/>\n' % (WIDTH, height, WIDTH, height,
                                                                          FONT))
        f.write("\n".join(body))
        f.write('\n<text x="%d" y="%d" font-size="11" fill="#777777">%s</text>\n</svg>\n' % (
            MARGIN_LEFT, height - 8, escape(title)))
