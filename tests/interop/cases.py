# SPDX-License-Identifier: BSD-2-Clause
"""The tables: what is run between two nodes, and what each end must then say.

A case is a program with options, run as server on one node and as client on the other; then the other
way round. Groups are run one after the other because each changes the link; cases of a group overlap.
"""
import re
from dataclasses import dataclass, field

# Kinds of pairs besides the first one (the adapter on the host, the kernel's driver in the guest).
GUEST = "guest"  # both in the guest
ROUTED = "routed"  # the adapter at both ends, in the guest behind a router
BOTH = (GUEST, ROUTED)

PINGPONG = "pingpong"
PERFTEST = "perftest"
PROBE = "probe"
ROCELINK = "rocelink"

# perftest compares two clocks before it reports, and where the processor is emulated they may disagree.
# By then all its transfers are done and right; the other end misses its farewell.
NO_REPORT = "Can't produce a report"


@dataclass
class Case:
    program: str
    options: str = ""
    gid: str = "v4"
    style: str = PINGPONG
    timeout: int = 60
    tries: int = 1
    excuse: str = ""  # the only fault that another try is granted for; default: any
    also: tuple = ()  # kinds of pairs that it is run for besides the first
    kernel_client: bool = True
    requester: dict = field(default_factory=dict)  # what the client must report (probe only)
    responder: dict = field(default_factory=dict)  # what the server must report

    @property
    def name(self):
        return " ".join(word for word in (self.program, self.options) if word)

    @property
    def passes_router(self):
        """Link-local addresses don't, nor do the ibv_ programs: they set the hop limit to 1."""
        return self.gid != "ll" and self.style != PINGPONG

    def command(self, device, gid_index, port, host):
        gid_letter = "F -x" if self.style == PERFTEST else "g"  # -F: a clock that varies is only a warning
        return f"{self.program} -d {device} -{gid_letter} {gid_index} -p {port} {self.options} {host}"


@dataclass
class Group:
    name: str
    cases: list
    mtu: int = 1500
    netem: str = ""
    width: int = 4  # cases at once
    also: tuple = BOTH  # as a case's


def pingpong(program, options="", **more):
    # Over UC and UD these programs wait for ever for a message that is lost, and an emulated machine may
    # lose one; the client of ibv_srq_pingpong may leave before its last messages are acknowledged.
    unsure = {} if program == "rc" else {"tries": 3, "timeout": 20}
    return Case(f"ibv_{program}_pingpong", options, **{**unsure, **more})


def perftest(program, options="", **more):
    # An emulated processor may answer later than perftest's usual 67 ms: -u 18 is 1.07 s.
    patient = "" if "-c U" in options else " -u 18"
    return Case(program, options + patient, style=PERFTEST, tries=4, excuse=NO_REPORT, **more)


def probe(scene, options="", requester=None, responder=None, **more):
    return Case(f"probe {scene}", options, style=PROBE, requester=requester or {},
                responder=responder or {}, **more)


SERVICES = ("rc", "uc", "ud", "srq")
SIZES = (1, 33, 1023, 1024, 1025, 5001, 65536)


def pingpong_cases():
    for service in SERVICES:
        for gid in ("v4", "v6", "ll"):
            yield pingpong(service, "-n 20", gid=gid, also=(GUEST,) if gid == "v4" else ())
        yield pingpong(service, "-n 20 -e")
        for size in SIZES:
            # A UD message is one packet: the greatest is the path MTU.
            if service != "ud" or size <= 1024:
                yield pingpong(service, f"-n 10 -s {size}")
        if service != "ud":
            yield pingpong(service, "-n 10 -m 256", gid="v6")
            yield pingpong(service, "-n 10 -m 512 -s 5001")
    yield pingpong("rc", "-n 20 -c -s 5001", gid="v6")
    yield pingpong("uc", "-n 20 -c -s 5001")
    yield pingpong("ud", "-n 20 -c -s 900")
    yield pingpong("srq", "-n 20 -c -s 5001")


def perftest_cases():
    yield perftest("ib_send_bw", "-n 100 -s 65536", also=BOTH)
    yield perftest("ib_send_lat", "-n 50 -s 8")
    yield perftest("ib_write_bw", "-n 100 -s 65536", also=BOTH)
    yield perftest("ib_write_lat", "-n 50 -s 8", gid="v6")
    yield perftest("ib_read_bw", "-n 100 -s 65536", also=BOTH)
    yield perftest("ib_read_lat", "-n 50 -s 8")
    yield perftest("ib_send_bw", "-n 100 -c UC -s 4096", gid="v6")
    yield perftest("ib_write_bw", "-n 100 -c UC -s 4096")
    yield perftest("ib_send_lat", "-n 50 -c UC -s 8")
    yield perftest("ib_send_lat", "-n 50 -c UD -s 64")
    # UD loses what finds no receive: as many messages as perftest posts receives.
    yield perftest("ib_send_bw", "-n 100 -c UD -s 1024 -r 512")
    yield perftest("ib_atomic_bw", "-n 100 -A CMP_AND_SWAP", also=BOTH)
    yield perftest("ib_atomic_bw", "-n 100 -A FETCH_AND_ADD", gid="v6")
    yield perftest("ib_atomic_lat", "-n 50 -A FETCH_AND_ADD")
    yield perftest("ib_write_bw", "-n 50 -q 8 -s 8192", also=BOTH)
    yield perftest("ib_send_bw", "-n 50 -q 8 -s 8192")
    yield perftest("ib_read_bw", "-n 50 -q 8 -s 8192")
    yield perftest("ib_write_bw", "-n 50 -b -s 65536")
    yield perftest("ib_send_bw", "-n 50 -b -s 65536", gid="v6")
    yield perftest("ib_read_bw", "-n 50 -b -s 65536")
    yield perftest("ib_send_bw", "-n 50 -e -s 4096")
    # All sizes up to 8 MiB are 84 MB: up to two minutes on a busy machine. Once is enough.
    yield perftest("ib_write_bw", "-a -n 5", timeout=240)
    yield perftest("ib_send_bw", "-s 1048576 -n 5")
    yield perftest("ib_read_bw", "-s 1048576 -n 5")


def rocelink(type_, op, options="", **more):
    return Case("rocelink pingpong", f"-t {type_} -o {op} --plain --verify {options}", style=ROCELINK,
                **{"also": (ROUTED,), **more})


def rocelink_cases():
    for op in ("send", "write", "read", "fetch-add", "cmp-swap"):
        yield rocelink("rc", op, "-n 20")
    yield rocelink("rc", "write", "-n 10 -s 65536", gid="v6", also=BOTH)
    yield rocelink("uc", "send", "-n 20", tries=3)
    yield rocelink("uc", "write", "-n 20", tries=3)
    yield rocelink("ud", "send", "-n 20", tries=3)


def data_cases(rounds=2, gid="v4", strict=True, also=BOTH):
    steps = rounds * 10
    datagrams = rounds * 8 * 2
    yield probe("rc", f"-n {rounds}", {"completed": str(5 * steps)}, {"received": str(2 * steps)},
                gid=gid, also=also, timeout=100)
    for service in ("uc", "ud"):
        yield probe(service, f"-n {2 * rounds}", {"sent": str(datagrams)},
                    {"received": str(datagrams)} if strict else {}, gid=gid, also=also, tries=2)


ACCESS_SCENES = ("wrong-rkey-write", "wrong-rkey-read", "beyond-write", "beyond-read", "below-write",
                 "no-access-write")


# The requester sees the error and a flushed queue; the responder's memory is as it was, and after an
# error of its class C its queue pair is in error too and the program hears of it (IBA 9.9.3, 11.6.3).
def refused(status, event):
    return ({"wc0": status, "wc1": "WR_FLUSH_ERR", "qp": "ERR"},
            {"event": event, "qp": "ERR", "memory": "intact"})


def error_cases():
    for scene in ACCESS_SCENES:
        yield probe(scene, "", *refused("REM_ACCESS_ERR", "QP_ACCESS_ERR"), also=(GUEST,))
    yield probe("qp-no-read", "", *refused("REM_INV_REQ_ERR", "QP_REQ_ERR"))
    # The kernel's requester refuses it itself (EINVAL), so the question doesn't reach the responder.
    yield probe("misaligned-atomic", "", *refused("REM_INV_REQ_ERR", "QP_REQ_ERR"), kernel_client=False)
    yield probe("zero-length", "", {"wc0": "SUCCESS", "wc1": "SUCCESS", "qp": "RTS"},
                {"event": "none", "qp": "RTS", "memory": "intact"})
    # Three tries, 40.96 ms apart at least.
    yield probe("rnr-used-up", "", {"wc0": "RNR_RETRY_EXC_ERR", "wc1": "WR_FLUSH_ERR", "qp": "ERR",
                                    "elapsed_ms": (81, 2000)},
                {"event": "none", "qp": "RTS", "memory": "intact"}, also=BOTH)
    yield probe("rnr-late", "", {"wc0": "SUCCESS", "qp": "RTS", "elapsed_ms": (250, 5000)},
                {"receive": "SUCCESS"})
    yield probe("receive-too-small", "", {"wc0": "REM_INV_REQ_ERR", "wc1": "WR_FLUSH_ERR", "qp": "ERR"},
                {"receive": "LOC_LEN_ERR", "qp": "ERR", "memory": "intact"})
    # Four tries with a timeout of 67.1 ms to four times that (IBA C9-141).
    yield probe("peer-killed", "", {"wc0": "RETRY_EXC_ERR", "wc1": "WR_FLUSH_ERR", "qp": "ERR",
                                    "elapsed_ms": (268, 1500)},
                {"receive": "SUCCESS", "exit": "137"}, also=BOTH)
    yield probe("wrong-qkey", "", {"wc0": "SUCCESS", "wc1": "SUCCESS", "qp": "RTS"},
                {"received": "1", "first": "R", "qp": "RTS"})
    yield probe("wrong-pkey", "", {}, {"received": "1", "first": "R", "qp": "RTS"}, gid="v6")
    yield probe("uc-wrong-rkey", "", {"wc0": "SUCCESS", "wc1": "SUCCESS", "qp": "RTS"},
                {"received": "1", "first": "R", "qp": "RTS"})


def impaired_cases():
    yield from data_cases(strict=False)
    # The last acknowledgement may be lost, and the program that would repeat it has ended.
    yield pingpong("rc", "-n 50 -c -s 5001", timeout=100, tries=4, excuse="retry counter exceeded")
    yield rocelink("rc", "send", "-n 20 -s 5001", also=BOTH, timeout=100)
    yield rocelink("rc", "read", "-n 20 -s 5001", also=(), timeout=100)
    # Fewer than in peace: the kernel's requester recovers from many losses by its timeout only.
    yield perftest("ib_write_bw", "-n 10 -s 65536", timeout=100)
    yield perftest("ib_read_bw", "-n 10 -s 65536", timeout=100)
    yield perftest("ib_atomic_bw", "-n 50", timeout=100)


GROUPS = [
    Group("errors", list(error_cases())),
    Group("data", [*data_cases(), *data_cases(gid="v6"), *data_cases(gid="ll", also=())]),
    Group("rocelink", list(rocelink_cases())),
    Group("pingpong", list(pingpong_cases())),
    Group("perftest", list(perftest_cases())),
    Group("jumbo", [*(pingpong(s, "-n 10 -m 4096 -s 65536" if s != "ud" else "-n 10 -s 4096")
                      for s in SERVICES),
                    perftest("ib_write_bw", "-n 50 -m 4096 -s 65536"),
                    perftest("ib_read_bw", "-n 50 -m 4096 -s 65536"), *data_cases()], mtu=9000),
    Group("loss 1%", list(impaired_cases()), netem="loss 1%", also=()),
    Group("loss 5%", list(impaired_cases()), netem="loss 5%"),
    Group("reordering", list(impaired_cases()), netem="delay 2ms reorder 2%", also=(GUEST,)),
    Group("duplication", list(impaired_cases()), netem="duplicate 5%", also=(ROUTED,)),
    Group("delay 50 ms", [*data_cases(rounds=1), pingpong("rc", "-n 10 -c -s 5001"),
                          perftest("ib_write_bw", "-n 20 -s 65536"),
                          rocelink("rc", "send", "-n 5", also=())], netem="delay 50ms", also=(ROUTED,)),
]

@dataclass
class Deviation:
    """Where the kernel's driver is not what the specification says. cause: the end whose conduct it is."""
    scenes: tuple
    role: str
    key: str
    value: object  # a string, or a range of numbers
    cause: str
    note: str


KERNEL_DEVIATIONS = [
    Deviation(ACCESS_SCENES, "server", "event", "none", "server",
              "a remote access error raises no IBV_EVENT_QP_ACCESS_ERR at the responder (IBA 11.6.3.3)"),
    Deviation(("qp-no-read", "misaligned-atomic"), "server", "event", "none", "server",
              "an invalid request raises no IBV_EVENT_QP_REQ_ERR at the responder (IBA 11.6.3.3)"),
    Deviation(("peer-killed",), "client", "elapsed_ms", (240, 267), "client",
              "the ACK timeout is rounded down to whole jiffies of 4 ms, so that the last retry may fail up to "
              "a twentieth early (IBA C9-141)"),
    Deviation(("receive-too-small",), "server", "receive", "LOC_QP_OP_ERR", "server",
              "a SEND longer than the receive completes with a local QP operation error at the responder, "
              "not a local length error (IBA 9.9.3)"),
    Deviation(("receive-too-small",), "client", "wc0", "REM_OP_ERR", "server",
              "a SEND longer than the receive is answered with NAK remote operational error, not NAK invalid request (IBA 9.7.5.2.4)"),
    Deviation(("zero-length",), "server", "qp", "ERR", "server",
              "a zero-length READ doesn't check the R_Key, but its duplicate does, and ends the connection "
              "(IBA C9-88)"),
]


def kernels_deviation(case, role, key, value, server, client):
    """The known deviation that explains this value, if the end that causes it is the kernel's."""
    scene = case.program.removeprefix("probe ")
    for known in KERNEL_DEVIATIONS:
        cause = client if known.cause == "client" else server
        if cause.kernel and scene in known.scenes and (known.role, known.key) == (role, key) \
                and matches(known.value, value):
            return known
    return None


def matches(want, got):
    if isinstance(want, tuple):
        return got.isdigit() and want[0] <= int(got) <= want[1]
    return got == want


def judge(case, role, status, text):
    """List of what is wrong with this end's exit status and output; empty when all is right."""
    expected = dict(case.requester if role == "client" else case.responder)
    wrong = []
    wanted_status = int(expected.pop("exit", 0))
    if status != wanted_status:
        wrong.append(("exit", str(status)))
    if case.style == PINGPONG and not re.search(r"\d+ iters in", text):
        wrong.append(("output", "no result line"))
    if case.style == PINGPONG and "invalid data" in text:
        wrong.append(("output", "invalid data"))
    if case.style != PROBE:
        return wrong
    seen = dict(re.findall(r"(\w+)=(\S+)", text))
    for key in ("corrupt", "broken"):
        if key in seen:
            wrong.append((key, seen[key]))
    for key, want in expected.items():
        got = seen.get(key, "nothing")
        if not matches(want, got):
            wrong.append((key, got))
    return wrong
