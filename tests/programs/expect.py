# SPDX-License-Identifier: BSD-2-Clause
"""What the stock programs print when all went well, and a Failure when they did not print it."""
import re

from runner import Failure

ALL_SIZES = [1 << n for n in range(1, 24)]  # perftest -a: 2 bytes to 8 MiB


def option(args, letter, default):
    """Value of -X VALUE in an argument list."""
    return int(args[args.index(letter) + 1]) if letter in args else default


def pingpong(program, args, output):
    """Both ends print bytes and iterations; -c also complains about wrong data."""
    size = option(args, "-s", 1024 if program == "ibv_ud_pingpong" else 4096)
    iterations = option(args, "-n", 1000)
    for line in (r"^%d bytes in [\d.]+ seconds" % (2 * size * iterations),
                 r"^%d iters in [\d.]+ seconds" % iterations):
        if not re.search(line, output, re.M):
            raise Failure("no line /%s/" % line)
    if "invalid data" in output:
        raise Failure("invalid data")


def xsrq_pingpong(output):
    if not re.search(r"^success$", output, re.M):
        raise Failure("no line 'success'")


def perftest_rows(output):
    """The result table: [[bytes, iterations, number...]...]."""
    rows = []
    for line in output.splitlines():
        fields = line.split()
        if len(fields) >= 4 and all(re.fullmatch(r"-?\d+(\.\d+)?|-?inf|-?nan", f) for f in fields):
            rows.append([int(fields[0]), int(fields[1])] + [float(f) for f in fields[2:]])
    return rows


def perftest(program, args, output, sizes=None):
    """One row of the table for each size, with a figure that is more than nothing."""
    rows = perftest_rows(output)
    if sizes is None:
        default = 8 if "atomic" in program else 2 if program.endswith("_lat") else 65536
        sizes = ALL_SIZES if "-a" in args else [option(args, "-s", default)]
    if [row[0] for row in rows] != sizes:
        raise Failure("result rows for sizes %s, expected %s" % ([row[0] for row in rows], sizes))
    for row in rows:
        if not any(figure > 0 for figure in row[2:]):
            raise Failure("no figure in result row %s" % row)
    return rows


def check_pair(program, args, server_output, client_output):
    if program == "ibv_xsrq_pingpong":
        xsrq_pingpong(server_output)
        xsrq_pingpong(client_output)
    elif program.startswith("ibv_"):
        pingpong(program, args, server_output)
        pingpong(program, args, client_output)
    else:
        perftest(program, args, client_output)
    for output in (server_output, client_output):
        for bad in ("ERROR: ", "WARNING: ThreadSanitizer", "runtime error:", "Failed status"):
            if bad in output:
                raise Failure("'%s' in the output" % bad)
