# SPDX-License-Identifier: BSD-2-Clause
"""
Rows of the program matrix for what stands on verbs without being a verbs test program: MPI, DAPL, and
programs that somebody builds himself. Each is skipped where its Debian packages aren't installed;
`./dev matrix` installs them.
"""
import os
import re
import shutil
import subprocess

from runner import Skip
from specials import client_end, finish, require


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip("no %s here" % program)


def compile_here(r, compiler, source, name, *flags):
    """A program of this folder, where every user can start it."""
    binary = os.path.join(r.tests, name)
    if not os.path.exists(binary):
        built = subprocess.run([compiler, "-O1", "-o", binary, os.path.join(r.tests, source), *flags],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        require(built.returncode == 0, "%s: %s" % (compiler, built.stdout))
        os.chmod(binary, 0o755)
    return binary


def remote_shell(r, place):
    """For MPI's launcher: enters the host of the address that it is given in place of a name."""
    path = os.path.join(r.tests, "remote-shell-" + place.name)
    hosts = ((place.server, place.tcp), (place.client, place.client_gid))
    with open(path, "w") as f:
        f.write("#!/bin/sh\n[ \"$1\" != -x ] || shift\nhost=$1; shift\ncase $host in\n")
        for host, address in hosts:
            f.write("%s) exec %s sh -c \"$*\" ;;\n" % (address, " ".join(host.enter)))
        f.write("esac\nexit 1\n")
    os.chmod(path, 0o755)
    return path


def mpi_environment(r, place, transport):
    """UCX with nothing but the adapter; both hosts call the device by one name. Open MPI's folder below TMPDIR belongs
    to whoever was first."""
    _, device, gid = client_end(place)
    return {"UCX_TLS": transport + ",self", "UCX_NET_DEVICES": device + ":1", "UCX_IB_GID_INDEX": str(gid),
            "TMPDIR": r.open_dir, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpi(r, place, user, flavour, launcher, across, arguments=()):
    """RC queue pairs and UD queue pairs, 2 ranks and 4."""
    need("mpirun." + flavour, "mpicc." + flavour)
    binary = compile_here(r, "mpicc." + flavour, "mpi_all.c", "mpi_all-" + flavour)
    if place.server is not place.client:
        launcher = launcher + across
    for transport in ("rc_v", "ud_v"):
        for ranks in (2, 4):
            argv = ["mpirun." + flavour, "-n", str(ranks)] + launcher + [binary] + list(arguments)
            text = r.run(place.client, user, argv, env=mpi_environment(r, place, transport), timeout=60)
            require("%d ranks: all right" % ranks in text, "%s, %d ranks: not all right" % (transport, ranks))


def open_mpi(r, place, user):
    # Between hosts it has one-sided access through UCX only, and closes that without waiting for the peers'
    # acknowledgements: late, or with an error.
    one_host = place.server is place.client
    passed_on = [w for name in ("UCX_TLS", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX", "LD_PRELOAD") for w in ("-x", name)]
    mpi(r, place, user, "openmpi", ["--oversubscribe", "--mca", "pml", "ucx"] + passed_on,
        ["--mca", "plm_rsh_agent", remote_shell(r, place), "--map-by", "node",
         "-H", "%s:2,%s:2" % (place.client_gid, place.tcp)],
        [] if one_host else ["two-sided"])


def mpich(r, place, user):
    mpi(r, place, user, "mpich", [],
        ["-launcher", "ssh", "-launcher-exec", remote_shell(r, place),
         "-hosts", "%s,%s" % (place.client_gid, place.tcp)])


def dapl(r, place, user):
    """
    DAPL's own test over its provider that connects by TCP, with messages, WRITEs and READs both ways. Not
    where a device's first GID has less than 16 characters, such as fe80::1: there the provider crashes.
    """
    need("dtest")
    config = os.path.join(r.tests, "dat.conf")
    with open(config, "w") as f:
        f.write('rocelink u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "%s 1" ""\n' % client_end(place)[1])
    os.chmod(config, 0o644)
    ends = []
    for is_server in (True, False):
        host = place.end(is_server)[0]
        argv = ["dtest", "-P", "rocelink", "-b", "20000"] + ([] if is_server else ["-h", place.tcp])
        ends.append(r.start(host, user, argv, env={"DAT_OVERRIDE": config}))
        if is_server:
            ends[0].wait_for("waiting for client connection", r.deadline(10))
    finish(ends, r.deadline(60))
    for process in ends:
        require("DAPL Test Complete. PASSED" in process.output(), "not passed")


def address_sanitizer(r, place, user):
    """A user's program, built with gcc's -fsanitize=address, starts, and its fault is found."""
    if r.sanitizer:
        raise Skip("the adapter has a sanitizer of its own")
    binary = compile_here(r, "gcc", "overflow.c", "overflow", "-g", "-fsanitize=address", "-libverbs")
    host, device, _ = client_end(place)
    require("registered" in r.run(host, user, [binary, device]), "it doesn't run")
    process = r.start(host, user, [binary, device, "overflow"])
    process.popen.wait(20)
    require(re.search("heap-buffer-overflow.*\n(.*\n){1,4}.*overflow.c", process.output()), "the fault isn't found")


def connection_manager(r, place, user):
    """A program that connects with librdmacm says why it can't; one that only may, doesn't."""
    need("rping", "qperf")
    if os.path.exists("/dev/infiniband/rdma_cm"):
        raise Skip("the kernel has a connection manager")
    host = client_end(place)[0]
    process = r.start(host, user, ["rping", "-s"])
    process.popen.wait(20)
    require(process.output().count("needs the kernel's connection manager") == 1, "no word about why")
    require("librdmacm" not in r.run(host, user, ["qperf", "--help"]), "a word too much")
