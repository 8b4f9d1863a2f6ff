# SPDX-License-Identifier: BSD-2-Clause
"""
The program matrix: one row per program and options. The places (hosts.py) of the third column belong
to the short selection (./dev check), those of the fourth are added by the full one (.ci/run). A
place alone is as an unprivileged user; "root@PLACE" is as root.
"""
import dataclasses
import shlex
from dataclasses import dataclass
from typing import Callable

import expect
import floods
import others
import specials

EVERYWHERE = "lo4 lo6 host4 host6 hostll net4 net6 netll jumbo4 jumboll only4 only6"
ROOT = "root@lo4 root@host4 root@net4 root@net6 root@netll"
BASIC = EVERYWHERE + " " + ROOT
SOME = "lo4 host4 host6 net4 net6 netll jumbo4"
TWO = "host4 net4"
PERFTEST = "lo4 lo6 host4 hostll net4 net6 netll jumbo4 root@lo4 root@net4"

PAIRS = [
    # program            arguments                 short                        full
    ("ibv_rc_pingpong",  "",                       "lo4 net4 net6 netll only4 only6 root@host4", BASIC),
    ("ibv_rc_pingpong",  "-c",                     "host6",                     SOME),
    ("ibv_rc_pingpong",  "-e",                     "net4",                      SOME),
    ("ibv_rc_pingpong",  "-e -c -s 33",            "",                          SOME),
    ("ibv_rc_pingpong",  "-s 1",                   "net4",                      TWO),
    ("ibv_rc_pingpong",  "-s 33 -c",               "host4",                     SOME),
    ("ibv_rc_pingpong",  "-s 5001 -c",             "net6",                      SOME),
    ("ibv_rc_pingpong",  "-s 65536 -c",            "jumbo4",                    SOME),
    ("ibv_rc_pingpong",  "-s 1048577 -n 100 -c",   "",                          SOME),
    ("ibv_rc_pingpong",  "-m 256 -s 5001 -c",      "host4",                     TWO),
    ("ibv_rc_pingpong",  "-m 512 -s 5001 -c",      "",                          TWO),
    ("ibv_rc_pingpong",  "-m 1024 -s 5001 -c",     "",                          TWO),
    ("ibv_rc_pingpong",  "-m 2048 -s 5001 -c",     "",                          "lo4 jumbo4 jumboll"),
    ("ibv_rc_pingpong",  "-m 4096 -s 5001 -c",     "lo4",                       "jumbo4 jumboll"),
    ("ibv_rc_pingpong",  "-n 1",                   "net4",                      TWO),
    ("ibv_rc_pingpong",  "-n 2 -r 1",              "",                          TWO),
    ("ibv_rc_pingpong",  "-n 100000 -s 64",        "",                          "lo4 net4 netll"),
    ("ibv_rc_pingpong",  "-n 20000 -s 64 -e",      "",                          TWO),
    ("ibv_rc_pingpong",  "-r 1",                   "",                          TWO),
    ("ibv_rc_pingpong",  "-N -c",                  "host4",                     SOME),
    ("ibv_rc_pingpong",  "-N -e -s 33",            "",                          TWO),
    ("ibv_uc_pingpong",  "",                       "net4 lo6",                  BASIC),
    ("ibv_uc_pingpong",  "-c",                     "",                          SOME),
    ("ibv_uc_pingpong",  "-e",                     "host4",                     SOME),
    ("ibv_uc_pingpong",  "-s 1",                   "",                          TWO),
    ("ibv_uc_pingpong",  "-s 33 -c",               "netll",                     SOME),
    ("ibv_uc_pingpong",  "-s 5001 -c",             "net4",                      SOME),
    ("ibv_uc_pingpong",  "-m 256 -s 5001 -c",      "",                          TWO),
    ("ibv_uc_pingpong",  "-m 4096 -s 5001 -c",     "",                          "lo4 jumbo4"),
    ("ibv_uc_pingpong",  "-n 1",                   "",                          TWO),
    ("ibv_uc_pingpong",  "-n 100000 -s 64",        "",                          "lo4 net4"),
    ("ibv_ud_pingpong",  "-s 1024",                "net4 net6 host4",           BASIC),
    ("ibv_ud_pingpong",  "",                       "lo4",                       "jumbo4 jumboll lo6"),
    ("ibv_ud_pingpong",  "-s 1024 -c",             "",                          SOME),
    ("ibv_ud_pingpong",  "-s 1024 -e",             "netll",                     SOME),
    ("ibv_ud_pingpong",  "-s 1",                   "",                          TWO),
    ("ibv_ud_pingpong",  "-s 33 -c",               "host4",                     SOME),
    ("ibv_ud_pingpong",  "-s 4096 -c",             "",                          "lo4 jumbo4"),
    ("ibv_ud_pingpong",  "-s 1024 -n 1",           "",                          TWO),
    ("ibv_ud_pingpong",  "-s 64 -n 100000",        "",                          "lo4 net4"),
    ("ibv_srq_pingpong", "",                       "net4",                      BASIC),
    ("ibv_srq_pingpong", "-c",                     "",                          SOME),
    ("ibv_srq_pingpong", "-e",                     "host4",                     SOME),
    ("ibv_srq_pingpong", "-s 1",                   "",                          TWO),
    ("ibv_srq_pingpong", "-s 33 -c",               "",                          SOME),
    ("ibv_srq_pingpong", "-s 5001 -c",             "net6",                      SOME),
    ("ibv_srq_pingpong", "-m 256 -s 5001 -c",      "",                          TWO),
    ("ibv_srq_pingpong", "-m 4096 -s 5001 -c",     "",                          "lo4 jumbo4"),
    ("ibv_srq_pingpong", "-q 1",                   "",                          TWO),
    ("ibv_srq_pingpong", "-q 128",                 "",                          TWO),
    ("ibv_srq_pingpong", "-n 100000 -s 64",        "",                          "lo4 net4"),

    ("ibv_xsrq_pingpong", "-n 1000",               "net4 host4",                BASIC),
    ("ibv_xsrq_pingpong", "-n 1000 -e",            "",                          SOME),
    ("ibv_xsrq_pingpong", "-s 5001 -m 256",        "host6",                     SOME),

    ("ib_send_bw",       "",                       "net4",                      PERFTEST),
    ("ib_send_bw",       "-a -n 100",              "",                          "lo4 host4 net4 netll"),
    ("ib_send_bw",       "-b",                     "",                          TWO),
    ("ib_send_bw",       "-e",                     "host4",                     TWO),
    ("ib_send_bw",       "-q 8",                   "",                          TWO),
    ("ib_send_bw",       "-b -q 8 -e",             "",                          TWO),
    ("ib_send_bw",       "-I 64 -s 64",            "net4",                      TWO),
    ("ib_send_bw",       "-I 220 -s 200",          "",                          TWO),
    ("ib_send_bw",       "-m 256 -s 5001",         "",                          TWO),
    ("ib_send_bw",       "-l 16 -s 64 -n 1600",           "",                          TWO),
    ("ib_send_bw",       "-Q 1",                   "",                          TWO),
    ("ib_send_bw",       "-r 1 -s 1024",           "",                          TWO),
    ("ib_send_bw",       "--use-srq",              "",                          TWO),
    ("ib_send_bw",       "--use_old_post_send",    "host4",                     TWO),
    ("ib_send_bw",       "--reversed",             "",                          TWO),
    ("ib_send_bw",       "-D 2",                   "",                          TWO),
    ("ib_send_bw",       "-c UC -s 1024 -t 16",    "",                          PERFTEST),
    ("ib_send_bw",       "-c UD -s 1024 -t 16",    "net4",                      PERFTEST),
    ("ib_send_bw",       "-c UD -s 64 -e -t 16",   "",                          TWO),
    ("ib_send_bw",       "-c XRC",                 "host4",                     PERFTEST),
    ("ib_send_bw",       "-c XRC -b -q 4 -e",      "",                          TWO),
    ("ib_send_bw",       "-c XRC -a -n 100",       "",                          TWO),
    ("ib_send_lat",      "",                       "net4 root@lo4",             PERFTEST),
    ("ib_send_lat",      "-c XRC",                 "",                          PERFTEST),
    ("ib_write_bw",      "-c XRC",                 "net6",                      PERFTEST),
    ("ib_write_lat",     "-c XRC",                 "",                          PERFTEST),
    ("ib_read_bw",       "-c XRC",                 "net4",                      PERFTEST),
    ("ib_read_lat",      "-c XRC",                 "",                          TWO),
    ("ib_atomic_bw",     "-c XRC",                 "host4",                     PERFTEST),
    ("ib_atomic_lat",    "-c XRC",                 "",                          TWO),
    ("ib_send_lat",      "-a -n 100",              "",                          "lo4 host4 net4 netll"),
    ("ib_send_lat",      "-e",                     "host6",                     TWO),
    ("ib_send_lat",      "-I 64 -s 64",            "",                          TWO),
    ("ib_send_lat",      "-I 220 -s 220",          "net6",                      TWO),
    ("ib_send_lat",      "--use_old_post_send",    "",                          TWO),
    ("ib_send_lat",      "-c UC",                  "",                          PERFTEST),
    ("ib_send_lat",      "-c UD",                  "host4",                     PERFTEST),
    ("ib_send_lat",      "-c UD -e -s 1024",       "",                          TWO),
    ("ib_write_bw",      "",                       "net4 netll",                PERFTEST),
    ("ib_write_bw",      "-a -n 20",               "host4",                     ""),
    ("ib_write_bw",      "-a -n 100",              "",                          "lo4 host4 net4 netll"),
    ("ib_write_bw",      "-b",                     "net4",                      TWO),
    ("ib_write_bw",      "-q 8 -n 500",            "host4",                     ""),
    ("ib_write_bw",      "-q 8",                   "",                          TWO),
    ("ib_write_bw",      "-b -q 8",                "",                          TWO),
    ("ib_write_bw",      "-I 64 -s 64",            "",                          TWO),
    ("ib_write_bw",      "-I 220 -s 200",          "",                          TWO),
    ("ib_write_bw",      "-m 256 -s 5001",         "",                          TWO),
    ("ib_write_bw",      "-l 16 -s 64 -n 1600",           "",                          TWO),
    ("ib_write_bw",      "-s 8388608 -n 100",      "",                          TWO),
    ("ib_write_bw",      "--use_old_post_send",    "",                          TWO),
    ("ib_write_bw",      "--mr_per_qp -q 4",       "",                          TWO),
    ("ib_write_bw",      "--odp",                  "host4",                     TWO),
    ("ib_write_bw",      "--odp -s 1000000 -n 100", "",                         TWO),
    ("ib_send_bw",       "--odp -q 4",             "net4",                      TWO),
    ("ib_read_bw",       "--odp",                  "",                          TWO),
    ("ib_send_lat",      "--odp -e",               "",                          TWO),
    ("ib_write_bw",      "-D 2",                   "",                          TWO),
    ("ib_write_bw",      "-c UC",                  "host4",                     PERFTEST),
    ("ib_write_bw",      "-c UC -a -n 100",        "",                          TWO),
    ("ib_write_lat",     "",                       "host4",                     PERFTEST),
    ("ib_write_lat",     "-a -n 100",              "",                          "lo4 host4 net4"),
    ("ib_write_lat",     "-I 64 -s 64",            "",                          TWO),
    ("ib_write_lat",     "-I 220 -s 220",          "",                          TWO),
    ("ib_write_lat",     "-c UC",                  "",                          PERFTEST),
    ("ib_read_bw",       "",                       "net4",                      PERFTEST),
    ("ib_read_bw",       "-a -n 100",              "",                          "lo4 host4 net4"),
    ("ib_read_bw",       "-b",                     "",                          TWO),
    ("ib_read_bw",       "-e",                     "",                          TWO),
    ("ib_read_bw",       "-q 8",                   "host4",                     TWO),
    ("ib_read_bw",       "-o 1",                   "",                          TWO),
    ("ib_read_bw",       "-m 256 -s 5001",         "",                          TWO),
    ("ib_read_lat",      "",                       "host6",                     PERFTEST),
    ("ib_read_lat",      "-a -n 100",              "",                          "lo4 host4 net4"),
    ("ib_read_lat",      "-e",                     "",                          TWO),
    ("ib_atomic_bw",     "",                       "net4",                      PERFTEST),
    ("ib_atomic_bw",     "-A CMP_AND_SWAP",        "host4",                     TWO),
    ("ib_atomic_bw",     "-b",                     "",                          TWO),
    ("ib_atomic_bw",     "-e",                     "",                          TWO),
    ("ib_atomic_bw",     "-q 8",                   "",                          TWO),
    ("ib_atomic_bw",     "-o 1",                   "",                          TWO),
    ("ib_atomic_lat",    "",                       "host4",                     PERFTEST),
    ("ib_atomic_lat",    "-A CMP_AND_SWAP",        "",                          TWO),
    ("ib_atomic_lat",    "-e",                     "",                          TWO),
]

SPECIALS = [
    # function                      short            full
    (specials.devices,              "only4 root@lo4 net4", "only6"),
    (specials.devinfo,              "net4",          "only4 only6 root@net4"),
    (specials.exit_status,          "lo4",           ""),
    (specials.setting_refused,      "lo4",           ""),
    (specials.refusal_explained,    "host4",         ""),
    (specials.port_in_use,          "lo4",           "root@only4 only6"),
    (specials.capture,              "net4",          "net6 netll host4 lo4"),
    (specials.pyverbs_objects,      "host4",         "net4 lo6 root@lo4"),
    (specials.pyverbs_traffic,      "host4",         "host6 lo4 lo6 root@host4"),
    (specials.pyverbs_features,     "host4",         "lo6 root@lo4"),
    (specials.rdma_core_tests,      "host4",         "lo4 net6 root@host6"),
    (specials.perftest_refused,     "host4",         "root@lo4"),
    (specials.ucx,                  "host4",         "net4 host6 lo4 root@lo6"),
    (specials.two_programs,         "host4",         "net4 lo4 root@net6"),
    (specials.eight_pairs,          "host4",         "net4 netll lo4"),
    (specials.last_ack,             "lo4",           "net4 net6"),
    (specials.run_infinitely,       "net4",          "host4"),
    (specials.kill_one,             "host4",         "net4 lo6"),
    (specials.injected_faults,      "lo4",           "host6"),
    (specials.garbage,              "host4",         ""),
    (others.open_mpi,               "",              "host4 lo4 root@lo6 root@net4"),
    (others.mpich,                  "",              "host4 lo4 root@lo6 root@net4"),
    (others.dapl,                   "",              "lo4 root@lo4"),
    (others.address_sanitizer,      "host4",         "root@lo4"),
    (others.connection_manager,     "",              "host4"),
    (specials.garbage_minute,       "",              "host4 net6"),
    (floods.garbage_at_full_speed,  "",              "host4 net4"),
]


@dataclass
class Row:
    name: str
    run: Callable  # (runner)
    needs_root: bool
    place: str
    path: str = "auto"  # rocelink run --path


def pair_row(program, arguments, place, user):
    args = shlex.split(arguments)

    def run(runner):
        seconds = 180 if "100000" in arguments else 40
        server, client = runner.start_pair(program, args, runner.world.places[place], user)
        deadline = runner.deadline(seconds)
        client.wait(deadline)
        server.wait(deadline)
        expect.check_pair(program, args, server.output(), client.output())

    return Row(" ".join(filter(None, [program, arguments])), run, user == "root", place)


def special_row(function, place, user):
    name = function.__name__.replace("_", "-")
    return Row(name, lambda runner: function(runner, runner.world.places[place], user),
               user == "root", place)


def places_of(short, full, full_wanted):
    """(place, user) of a table's two columns, each once."""
    names = dict.fromkeys(short.split() + (full.split() if full_wanted else []))
    for name in names:
        yield (name[5:], "root") if name.startswith("root@") else (name, "user")


def all_rows(full):
    rows = []
    for program, arguments, short, more in PAIRS:
        rows += [pair_row(program, arguments, *where) for where in places_of(short, more, full)]
    for function, short, more in SPECIALS:
        rows += [special_row(function, *where) for where in places_of(short, more, full)]
    rows = both_paths(rows, full)
    for row in rows:
        row.name += " [%s%s%s]" % ("root@" if row.needs_root else "", row.place,
                                   " udp" if row.path == "udp" else "")
    return rows


def both_paths(rows, full):
    """
    On one host the adapter takes shared memory unless told otherwise. The full selection runs those rows
    over UDP as well, the short one every second of them.
    """
    chosen = []
    local = 0
    for row in rows:
        if not row.place.startswith(("lo", "host", "only")):
            chosen.append(row)
            continue
        local += 1
        if full or local % 2:
            chosen.append(row)
        if full or local % 2 == 0:
            chosen.append(dataclasses.replace(row, path="udp"))
    return chosen
