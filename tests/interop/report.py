# SPDX-License-Identifier: BSD-2-Clause
"""docs/interop.md from the results of a run."""
import bench
import cases

HEAD = """\
# Interoperability

Written by `./dev interop`, which runs Debian's own verbs programs, `rocelink pingpong` and a probe of its
own between the adapter and the Linux kernel's RoCE v2 driver in a QEMU guest (`tests/interop/run` begins
with a drawing). Please don't edit: run it.

Peer: {peer}. {passed} cases passed, {failed} failed, {not_run} not run.

"ok" means: both programs ended well and said what they must; every byte was checked where the program can
(`-c`, `--verify`, the probe). Iterations are few because the guest is usually emulated.
"""

PROGRAM_NAMES = {"v4": "IPv4", "v6": "IPv6", "ll": "IPv6 link-local"}
COUNTERS = {
    "adapter": ("retransmitted", "timeouts", "naks_sent", "naks_received", "duplicates"),
    "kernel": ("completer_retry_err", "out_of_seq_request", "rcvd_seq_err", "duplicate_request"),
}


def verdict(result):
    if result is None:
        return "-"
    if result.faults:
        return "**" + "; ".join(f"{role}: {key}={value}" for role, key, value in result.faults) + "**"
    return "ok (kernel deviates)" if result.deviations else "ok"


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"


def pair_tables(results, pair):
    chosen = [result for result in results if result.pair == pair]
    a, b = pair.split("+")
    for group in dict.fromkeys(result.group for result in chosen):
        rows = {}
        for result in chosen:
            if result.group == group:
                key = (result.case.name, PROGRAM_NAMES[result.case.gid])
                rows.setdefault(key, {})[result.server] = result
        yield f"\n### {a} and {b}: {group}\n"
        yield from table(["program", "GID", f"server: {a}", f"server: {b}"],
                         [(f"`{name}`", gid, verdict(by.get(a)), verdict(by.get(b)))
                          for (name, gid), by in rows.items()])


def deviation_lines(results):
    seen = {known.note for result in results for known in result.deviations}
    for known in cases.KERNEL_DEVIATIONS:
        mark = "seen in this run" if known.note in seen else "not seen in this run"
        yield f"* {known.note[0].upper()}{known.note[1:]}; {mark} ({', '.join(known.scenes)})."
    yield ("* An RNR NAK is followed by a sequence NAK for the next packet of the requester, who is waiting already; "
           "harmless (the capture `tests/data/rnr-used-up.pcap`).")


def counter_lines(counted):
    rows = []
    for group, sides in counted.items():
        for side, names in COUNTERS.items():
            text = ", ".join(f"{name} {sides[side].get(name, 0)}" for name in names)
            rows.append((group, side, text))
    yield from table(["impairment", "side", "counted"], rows)


def speed_lines(speeds):
    yield from table(["", "unit", "kernel", "adapter, UDP", "better by", "adapter, same host", "better by"],
                     [(name, unit, *map(bench.show, figures)) for name, unit, *figures in speeds])


def write(path, peer, matrix, speeds):
    results = matrix.results
    failed = sum(1 for result in results if result.faults)
    lines = [HEAD.format(peer=peer, passed=len(results) - failed, failed=failed, not_run=matrix.not_run)]
    lines += ["## Where the kernel's driver deviates\n",
              "Where the two differ, the specification decides; these are the kernel's.\n",
              *deviation_lines(results)]
    if matrix.counted:
        lines += ["\n## What both sides counted under impairment\n",
                  "The adapter's figures are lower bounds: a process's last moments are not asked for.\n",
                  *counter_lines(matrix.counted)]
    if speeds:
        lines += ["\n## Side by side in the guest\n",
                  "Both ends of each program in one guest with a processor each, the same programs, in turn; "
                  "perftest's averages. Where the processors are emulated, and shared with others, only large "
                  "ratios mean anything: a system call, which the adapter needs for a packet and the kernel "
                  "doesn't, costs most there. `./dev bench --guest` measures the same alone.\n",
                  *speed_lines(speeds)]
    lines.append("\n## The matrix")
    for pair in dict.fromkeys(result.pair for result in results):
        lines += pair_tables(results, pair)
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
