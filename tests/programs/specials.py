# SPDX-License-Identifier: BSD-2-Clause
"""
Rows of the program matrix that are more than one pair of programs. Each is a function of the runner,
the place and the user, and raises Failure. The name of the function is the row's.
"""
import glob
import gzip
import os
import re
import shutil
import signal
import time

import expect
from runner import Failure, Skip


def require(condition, text):
    if not condition:
        raise Failure(text)


def client_end(place):
    return place.end(is_server=False)


def finish(ends, deadline):
    """Client first: it tells why, where the server only waits."""
    for process in reversed(ends):
        process.wait(deadline)


def devices(r, place, user):
    """ibv_devices lists every device once, each with a GUID of its own that isn't zero."""
    host, device, _ = client_end(place)
    rows = re.findall(r"^\s+(\S+)\s+([0-9a-f]{16})$", r.run(host, user, ["ibv_devices"]), re.M)
    require(device in [name for name, _ in rows], "device %s is not listed" % device)
    guids = [guid for _, guid in rows]
    require(len(set(guids)) == len(guids), "two devices have one GUID")
    require("0" * 16 not in guids, "a GUID is zero")


def devinfo(r, place, user):
    """ibv_devinfo -v: one active Ethernet port, LID 0, RoCE v2 GIDs only."""
    host, device, _ = client_end(place)
    text = r.run(host, user, ["ibv_devinfo", "-v", "-d", device])
    for line in (r"^hca_id:\s+" + device, r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet",
                 r"port_lid:\s+0$", r"transport:\s+InfiniBand"):
        require(re.search(line, text, re.M), "no line /%s/" % line)
    gids = re.findall(r"GID\[\s*\d+\]:\s+(.*)", text)
    require(gids and all(g.endswith("RoCE v2") for g in gids), "GIDs %s" % gids)


def exit_status(r, place, user):
    """rocelink run exits as the program does, and as a shell does when there is none."""
    host = client_end(place)[0]
    r.run(host, user, ["sh", "-c", "exit 7"], status=7)
    r.run(host, user, ["no-such-program"], status=127)
    r.run(host, user, ["/etc/passwd"], status=126)
    r.run(host, user, ["true"], options=["--path", "carrier-pigeon"], status=125)
    text = r.run(host, user, ["ibv_devinfo"], options=["--path", "shm", "--pcap", "/dev/null"], status=1)
    require("has no packets to capture" in text, "shm with pcap is refused without a word")
    process = r.start(host, user, ["sleep", "60"])
    time.sleep(0.2)
    process.signal(signal.SIGTERM)
    process.wait(r.deadline(5), status=-signal.SIGTERM)


def setting_refused(r, place, user):
    """An unknown or malformed setting is named, by the command and by the library alone."""
    host = client_end(place)[0]
    for name, value in (("ROCELINK_PAHT", "udp"), ("ROCELINK_LOG", "loud")):
        text = r.run(host, user, ["true"], env={name: value}, status=125)
        require(name in text, "%s is not named" % name)
        clean = r.start(host, user, ["env", "%s=%s" % (name, value), "ibv_devices"])
        clean.popen.wait(20)
        require(name in clean.output(), "the library does not name %s" % name)


def refusal_explained(r, place, user):
    """A pair without a GID index has no GRH: refused, and the log says which attribute."""
    port = str(r.next_port())
    host, device, _ = client_end(place)
    argv = ["ibv_rc_pingpong", "-d", device, "-p", port]
    server = r.start(host, user, argv, ["--log", "info"])
    r.wait_listening(server, int(port), r.deadline(10))
    r.run(host, user, argv + [place.tcp], ["--log", "info"], status=1)
    server.wait(r.deadline(10), status=1)
    for line in server.output().splitlines():
        if line.startswith("rocelink: ") and re.search("GRH|is_global", line):
            return
    raise Failure("no line of the log names the GRH")


def port_in_use(r, place, user):
    """Somebody else has port 4791: the message says so, who it may be and what to do."""
    host, device, _ = client_end(place)
    family = "AF_INET6" if ":" in place.client_gid else "AF_INET"
    script = ("import socket,time; s=socket.socket(socket.%s,socket.SOCK_DGRAM);"
              "s.bind(('',4791)); print('bound',flush=True); time.sleep(60)" % family)
    holder = r.start_plain(host, "root", ["/usr/bin/python3", "-c", script])
    holder.wait_for("^bound", r.deadline(5))
    process = r.start(host, user, ["ibv_devinfo", "-d", device])
    process.popen.wait(20)
    text = process.output()
    require("4791" in text, "port 4791 is not named")
    holder.kill()
    r.run(host, user, ["ibv_devinfo", "-d", device])


def capture(r, place, user):
    """--pcap of both ends: tshark finds no malformed packet, its ICRCs and scapy's agree."""
    files = [os.path.join(r.open_dir, "%s-%d.pcap" % (end, r.next_port())) for end in ("s", "c")]
    args = ["-s", "5001", "-n", "20", "-c"]
    ends = r.start_pair("ibv_rc_pingpong", args, place, user, ["--pcap", files[0]],
                        ["--pcap", files[1]])
    finish(ends, r.deadline(20))
    for path in files:
        fields = r.start_plain(r.world.a, user, [
            "tshark", "-r", path, "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed"])
        fields.wait(r.deadline(30))
        lines = [ln for ln in fields.output().splitlines() if re.match(r"^\d+\t", ln)]
        require(len(lines) >= 40, "tshark sees only %d RoCE packets" % len(lines))
        require(all(re.fullmatch(r"\d+\t", ln) for ln in lines), "malformed packets")
        r.start_plain(r.world.a, user, ["/usr/bin/python3", os.path.join(r.tests, "icrc_referee.py"),
                                        path, str(len(lines))]).wait(r.deadline(30))
        os.unlink(path)


def pyverbs_objects(r, place, user):
    host, device, gid = client_end(place)
    text = r.run(host, user, ["/usr/bin/python3", os.path.join(r.tests, "py_objects.py"), device,
                              str(gid)])
    require("all objects" in text, "the script did not reach its end")


def pyverbs_traffic(r, place, user):
    host, device, gid = client_end(place)
    text = r.run(host, user, ["/usr/bin/python3", os.path.join(r.tests, "py_traffic.py"), device,
                              str(gid)])
    require("all traffic" in text, "the script did not reach its end")


def pyverbs_features(r, place, user):
    host, device, gid = client_end(place)
    text = r.run(host, user, ["/usr/bin/python3", os.path.join(r.tests, "py_features.py"), device,
                              str(gid)])
    require("all features" in text, "the script did not reach its end")


RDMA_CORE_TESTS = "/usr/share/doc/rdma-core/tests"


def rdma_core_tests(r, place, user):
    """rdma-core's own test suite: what isn't of one vendor's device or of what is refused passes."""
    if not os.path.exists(os.path.join(RDMA_CORE_TESTS, "run_tests.py")):
        raise Skip("no tests in " + RDMA_CORE_TESTS)
    tests = os.path.join(r.tests, "rdma-core")
    if not os.path.exists(tests):
        shutil.copytree(RDMA_CORE_TESTS, tests)
        for packed in glob.glob(os.path.join(tests, "*.gz")):
            with gzip.open(packed) as src, open(packed[:-3], "wb") as dst:
                shutil.copyfileobj(src, dst)
    host, device, gid = client_end(place)
    text = r.run(host, user, ["/usr/bin/python3", os.path.join(tests, "run_tests.py"), "--dev", device, "--port", "1",
                              "--gid", str(gid), "-v"], timeout=100)
    ran, skipped = (re.search(p, text) for p in (r"Ran (\d+) tests", r"OK \(skipped=(\d+)\)"))
    require(ran and skipped, "no summary")
    require(int(ran[1]) - int(skipped[1]) >= 132, "of %s tests %s were skipped" % (ran[1], skipped[1]))
    for name in ("test_import_dm", "test_imported_rc_ex_rdma_write"):
        require(re.search(name + r"\b[^.]*\.[^\n]*(\n[^\n]*)? ok$", text, re.M), name + " didn't pass")


def perftest_refused(r, place, user):
    """What the device doesn't have is refused at both ends, without a crash and without waiting."""
    for args in (["-c", "DC"], ["-c", "SRD"]):
        ends = r.start_pair("ib_send_bw", args, place, user)
        for process in reversed(ends):
            process.wait(r.deadline(20), status=1)
            require("reate QP" in process.output(), "no word about the queue pair")
    host, device, gid = client_end(place)
    argv = ["ib_write_bw", "-d", device, "-x", str(gid), "--rate_limit", "1", "--rate_limit_type", "HW", place.tcp]
    r.run(host, user, argv, status=1)


def ucx(r, place, user):
    """UCX finds the device by its files, and its own test passes on RC and on UD queue pairs."""
    for transport in ("rc_v", "ud_v"):
        port = r.next_port()
        ends = []
        for is_server in (True, False):
            host, device, gid = place.end(is_server)
            env = {"UCX_TLS": transport + ",self", "UCX_NET_DEVICES": device + ":1", "UCX_IB_GID_INDEX": str(gid)}
            argv = ["ucx_perftest", "-p", str(port)]
            if not is_server:
                argv += [place.tcp, "-t", "tag_bw", "-s", "20000", "-n", "2000", "-w", "10"]
            ends.append(r.start(host, user, argv, env=env))
            if is_server:
                r.wait_listening(ends[0], port, r.deadline(10))
        finish(ends, r.deadline(40))
        require(re.search(r"^Final: +2000 ", ends[1].output(), re.M), "no result over " + transport)


def two_programs(r, place, user):
    """Two different programs at once."""
    deadline = r.deadline(40)
    pairs = [("ib_write_bw", ["-n", "5000"]), ("ibv_ud_pingpong", ["-s", "1024", "-n", "5000"])]
    started = [r.start_pair(program, args, place, user) for program, args in pairs]
    for (program, args), ends in zip(pairs, started):
        finish(ends, deadline)
        expect.check_pair(program, args, ends[0].output(), ends[1].output())


def eight_pairs(r, place, user):
    """Eight pairs at once on one host."""
    deadline = r.deadline(60)
    args = ["-c", "-n", "500"]
    started = [r.start_pair("ibv_rc_pingpong", args, place, user) for _ in range(8)]
    for ends in started:
        finish(ends, deadline)
        expect.check_pair("ibv_rc_pingpong", args, ends[0].output(), ends[1].output())


def last_ack(r, place, user):
    """
    Many very short runs: whichever end is done first destroys its queue pair at once, and must not
    take with it the acknowledgement that the other end waits for.
    """
    for _ in range(12):
        args = ["-n", "3", "-s", "64"]
        ends = r.start_pair("ibv_rc_pingpong", args, place, user)
        finish(ends, r.deadline(15))
        expect.check_pair("ibv_rc_pingpong", args, ends[0].output(), ends[1].output())


def run_infinitely(r, place, user):
    """A test without end, stopped by a signal; the next pair is none the worse for it."""
    deadline = r.deadline(30)
    ends = r.start_pair("ib_write_bw", ["--run_infinitely", "-D", "1"], place, user)
    ends[1].wait_for(r"^ *65536 +\d+ +.*\n.*^ *65536 +\d+ ", deadline)
    ends[1].signal(signal.SIGINT)
    ends[1].wait(r.deadline(5), status=-signal.SIGINT)
    ends[0].wait(r.deadline(10), status=1)  # it noticed that the client's TCP connection is gone
    args = ["-n", "100"]
    ends = r.start_pair("ib_write_bw", args, place, user)
    finish(ends, r.deadline(20))
    expect.check_pair("ib_write_bw", args, ends[0].output(), ends[1].output())


def kill_one(r, place, user):
    """kill -9 of one of several pairs disturbs none of the others."""
    deadline = r.deadline(60)
    args = ["-c", "-e", "-n", "20000", "-s", "1000"]
    # First, and without spinning: the others are young when it is killed, however long it takes to start them.
    victim = r.start_pair("ibv_rc_pingpong", ["-e", "-n", "100000000"], place, user)
    others = [r.start_pair("ibv_rc_pingpong", args, place, user) for _ in range(3)]
    time.sleep(0.05)
    require(all(p.running() for p in victim), "the victim ended before it was killed")
    require(any(all(p.running() for p in ends) for ends in others), "all pairs ended before the kill")
    victim[1].signal(signal.SIGKILL)
    for ends in others:
        finish(ends, deadline)
        expect.check_pair("ibv_rc_pingpong", args, ends[0].output(), ends[1].output())
    victim[0].kill()


def finish_under_loss(ends, deadline):
    """The end that sent last may never hear that it arrived, where the other one has exited: docs/faults.md."""
    unheard = 0
    for process in reversed(ends):
        try:
            process.wait(deadline)
        except Failure:
            if "transport retry counter exceeded" not in process.output():
                raise
            unheard += 1
    require(unheard <= 1, "both ends ran out of retries")


FAULTS = "loss=1%,reorder=1%,dup=1%,corrupt=0.1%,delay=100us,rnr=1%,seed=42"


def injected_faults(r, place, user):
    """Data is right under faults on both paths, and the counters tell what was done to the packets."""
    for path in ("udp", "shm"):
        args = ["-c", "-n", "300", "-s", "20000"]
        options = ["--path", path, "--fault", FAULTS]
        finish_under_loss(r.start_pair("ibv_rc_pingpong", args, place, user, options), r.deadline(40))
        ends = r.start_pair("ibv_rc_pingpong", ["-c", "-n", "100000000"], place, user, options)
        deadline = r.deadline(30)
        missing = ["counter"]
        while missing and time.monotonic() < deadline:
            time.sleep(0.5)
            told = r.start_plain(place.end(is_server=True)[0], user, [r.rocelink(), "counters"])
            told.wait(deadline)
            missing = [name for name in ("out_lost", "in_reordered", "out_duplicated", "in_delayed")
                       if not re.search(r"fault_%s +[1-9]" % name, told.output())]
        require(not missing, "path %s: no fault_%s" % (path, ", fault_".join(missing)))
        local = re.search(r"local_received +(\d+)", told.output())
        require((path == "shm") == (local is not None and int(local[1]) > 0), "not on path " + path)
        for end in ends:
            require("invalid data" not in end.output(), "wrong data on path " + path)
            end.kill()


# What garbage.c sends must appear under these reasons.
REASONS = ("short", "opcode", "version", "length", "icrc", "qpn", "service", "address", "stale")


def dropped(r, host, user):
    """{reason: packets} of `rocelink counters`, summed over all processes."""
    process = r.start_plain(host, user, [r.rocelink(), "counters"])
    process.wait(r.deadline(10))
    counts = dict.fromkeys(REASONS, 0)
    for reason in REASONS:
        for n in re.findall(r"dropped %s +(\d+)" % reason, process.output()):
            counts[reason] += int(n)
    return counts


def resident(process):
    """KiB of memory."""
    with open("/proc/%d/status" % process.pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1])


def garbage_source(r, place, user, qpn, seconds, *how):
    """Garbage from the client's host to the server's."""
    copy = os.path.join(r.tests, "garbage")
    if not os.path.exists(copy):
        shutil.copy(os.path.join(r.build, "tests", "garbage"), copy)
        os.chmod(copy, 0o755)
    stranger = "fd78::1" if ":" in place.client_gid else "10.78.0.1"
    return r.start_plain(place.client, user, [copy, place.server_gid, place.client_gid, stranger, qpn, str(seconds), *how])


def flood(r, place, user, seconds):
    """
    Two transfers: one verified, one whose server is a pure responder and the target of forged
    packets; garbage beside them. Both complete, and every reason is counted.
    """
    host = place.end(is_server=True)[0]
    verified = r.start_pair("ibv_rc_pingpong", ["-c", "-s", "20000", "-n", "100000000"], place, user)
    # Longer by what a busy machine takes to start the garbage: most of its reasons are counted by the target.
    target = r.start_pair("ib_write_bw", ["-D", str(seconds + 12), "-s", "8192"], place, user,
                          wrap=["stdbuf", "-oL"])
    qpn = target[0].wait_for(r"^ local address:.* QPN (0x[0-9a-f]+)", r.deadline(10))[1]
    time.sleep(1)  # it has its buffers now
    before = resident(target[0])
    source = garbage_source(r, place, user, qpn, seconds)
    source.wait(r.deadline(seconds + 10))
    counts = dropped(r, host, user)
    require(target[0].running(), "the target ended before its counters were read")
    require(r.sanitizer or resident(target[0]) <= before + 1024, "the flood made the memory of its target grow by %d KiB" %
            (resident(target[0]) - before))
    require(all(p.running() for p in verified), "the verified transfer broke off")
    missing = [reason for reason in REASONS if not counts[reason]]
    require(not missing, "not counted: %s of %s" % (missing, counts))
    finish(target, r.deadline(30))
    expect.perftest("ib_write_bw", [], target[1].output(), sizes=[8192])
    for process in verified:
        require("invalid data" not in process.output(), "wrong data")
        process.kill()
    args = ["-c", "-n", "100"]
    ends = r.start_pair("ibv_rc_pingpong", args, place, user)
    finish(ends, r.deadline(10))
    expect.check_pair("ibv_rc_pingpong", args, ends[0].output(), ends[1].output())


def garbage(r, place, user):
    flood(r, place, user, 5)


def garbage_minute(r, place, user):
    flood(r, place, user, 60)
