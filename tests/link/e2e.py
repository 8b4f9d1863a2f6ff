#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The link library on the adapter, process to process: e2e.py BUILD [CASE...]

Each case is two processes that link and then exchange checked data, in all the ways that the library has, and
with Debian's ibv_*_pingpong at the other end. No case sets an environment variable for the library's side.
"""
import os
import socket
import subprocess
import sys

BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build"
PEER = os.path.join(BUILD, "tests", "link_peer")
PRELOAD = os.path.join(BUILD, "librocelink-verbs.so")
PATIENCE = 60
INSIDE = "--inside"


def free_port(host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as s:
        s.bind((host, 0))
        return str(s.getsockname()[1])


def start(*args, preload=False, **kw):
    env = dict(os.environ)
    env.pop("LD_PRELOAD", None)
    if preload:
        # Sanitized libraries want their runtime first; those programs aren't built with it.
        env["LD_PRELOAD"] = PRELOAD
    return subprocess.Popen(args, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)


def finish(*processes):
    out = []
    for p in processes:
        try:
            out.append(p.communicate(timeout=PATIENCE)[0])
        except subprocess.TimeoutExpired:
            p.kill()
            out.append(p.communicate()[0] + "\n(no end within %d s)" % PATIENCE)
    bad = [p for p in processes if p.returncode != 0]
    return None if not bad else "\n".join(
        "%s -> %s\n%s" % (" ".join(p.args), p.returncode, o) for p, o in zip(processes, out))


def pair(kind, qps, *options, host="127.0.0.1"):
    port = free_port(host)
    server = start(PEER, "listen", host, port, kind, str(qps), *options)
    client = start(PEER, "connect", host, port, kind, str(qps), *options)
    return finish(server, client)


def meet(*options):
    port = free_port()
    a = start(PEER, "meet", "127.0.0.1", port, "rc", "1", "there=127.0.0.2", *options)
    b = start(PEER, "meet", "127.0.0.2", port, "rc", "1", "there=127.0.0.1", *options)
    return finish(a, b)


def ticket(kind):
    ends = [start(PEER, "ticket", "127.0.0.1", "-", kind, "2", stdin=subprocess.PIPE) for _ in range(2)]
    texts = [p.stdout.readline() for p in ends]
    for p, text in zip(ends, reversed(texts)):
        p.stdin.write(text)
        p.stdin.flush()
    for _ in range(2):
        if all(p.stdout.readline() == "here\n" for p in ends):
            for p in ends:
                p.stdin.write("go\n")
                p.stdin.flush()
    return finish(*ends)


def stock_option(kind):
    return ("srq" if kind == "srq" else "stock", "size=1000", "iters=1000")


def stock_client(kind):
    """Our server, their client, which doesn't wait for one: it starts when our port is open."""
    port = free_port()
    qps = 16 if kind == "srq" else 1
    ours = start(PEER, "listen", "127.0.0.1", port, "rc" if kind == "srq" else kind, str(qps), *stock_option(kind),
                 stdin=subprocess.PIPE)
    for _ in range(500):
        if any(line.split()[1].endswith(":%04X" % int(port)) and line.split()[3] == "0A"
               for line in open("/proc/net/tcp").readlines()[1:]):
            break
        subprocess.run(["sleep", "0.02"], check=False)
    theirs = start("ibv_%s_pingpong" % kind, "-d", "rl_lo", "-g", "0", "-s", "1000", "-p", port, "127.0.0.1",
                   preload=True)
    return finish(theirs, ours)


def stock_server(kind):
    port = free_port()
    qps = 16 if kind == "srq" else 1
    theirs = start("ibv_%s_pingpong" % kind, "-d", "rl_lo", "-g", "0", "-s", "1000", "-p", port, preload=True)
    ours = start(PEER, "connect", "127.0.0.1", port, "rc" if kind == "srq" else kind, str(qps), *stock_option(kind),
                 stdin=subprocess.PIPE)
    return finish(theirs, ours)


def killed_peer():
    """The client's server is gone in the middle: an error, soon, that says so."""
    port = free_port()
    server = start(PEER, "listen", "127.0.0.1", port, "rc", "1", "iters=100000000")
    client = start(PEER, "connect", "127.0.0.1", port, "rc", "1", "iters=100000000")
    subprocess.run(["sleep", "2"], check=False)
    server.kill()
    server.communicate()
    try:
        out = client.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        return "the client has not noticed"
    if client.returncode == 0 or not ("acknowledge" in out or "no completion" in out):
        return "client ended with %s: %s" % (client.returncode, out)
    return None


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def between_namespaces():
    """Two hosts: TCP over IPv4, RDMA over an IPv6 GID."""
    rocelink = os.path.join(BUILD, "rocelink")
    other = start("unshare", "-n", "sh", "-c", "ip link set lo up && echo up && exec sleep 600")
    try:
        other.stdout.readline()
        there = ["nsenter", "-t", str(other.pid), "-n"]
        ip("link", "add", "ra", "type", "veth", "peer", "name", "rb", "netns", str(other.pid))
        for prefix, name, number in ([], "ra", "1"), (there, "rb", "2"):
            for address in ["10.9.0.%s/24" % number], ["fd00:9::%s/64" % number, "nodad"]:
                subprocess.run([*prefix, "ip", "addr", "add", "dev", name, *address], check=True)
            subprocess.run([*prefix, "ip", "link", "set", name, "up"], check=True)
        server = start(*there, rocelink, "pingpong", "-l", "10.9.0.2", "--plain", "-p", "0")
        port = server.stdout.readline().split("port ")[1].split()[0]
        for _ in range(250):  # the link-local address comes when it is settled, in front of the others
            gids = subprocess.run([rocelink, "devices"], stdout=subprocess.PIPE, text=True, check=True).stdout
            if "fe80::" in gids:
                break
            subprocess.run(["sleep", "0.02"], check=False)
        index = next(line.split()[1] for line in gids.splitlines() if "fd00:9::1" in line)
        client = start(rocelink, "pingpong", "-d", "rl_ra", "-g", index, "-p", port, "--plain", "--verify", "--explain",
                       "10.9.0.2")
        said = client.communicate(timeout=PATIENCE)[0]
        server.communicate(timeout=PATIENCE)
        wanted = ("connected to 10.9.0.2", "dgid fd00:9::2", "every byte is right")
        missing = [w for w in wanted if w not in said]
        return None if not missing and server.returncode == 0 else "not said: %s\n%s" % (missing, said)
    finally:
        other.kill()
        other.communicate()


CASES = {
    "namespaces": between_namespaces,
    "rc": lambda: pair("rc", 1),
    "uc": lambda: pair("uc", 1),
    "ud": lambda: pair("ud", 1),
    "rc-8": lambda: pair("rc", 8),
    "ud-4": lambda: pair("ud", 4),
    "rc-ipv6": lambda: pair("rc", 1, host="::1"),
    "rc-name": lambda: pair("rc", 1, host="localhost"),
    "rc-secret": lambda: pair("rc", 2, "secret"),
    "rc-large": lambda: pair("rc", 1, "size=1000000", "iters=50"),
    "meet": meet,
    "meet-secret": lambda: meet("secret"),
    "ticket-rc": lambda: ticket("rc"),
    "ticket-ud": lambda: ticket("ud"),
    "killed-peer": killed_peer,
}
for k in ("rc", "uc", "ud", "srq"):
    CASES["stock-server-" + k] = lambda k=k: stock_server(k)
    CASES["stock-client-" + k] = lambda k=k: stock_client(k)


def has_ipv6():
    try:
        free_port("::1")
        return True
    except OSError:
        return False


def alone():
    """Go on in a network of our own where the system allows it: others on UDP 4791 may come and go, and a
    datagram that such a process held when it was killed is lost, which UD does not repair."""
    command = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if subprocess.run(command + ["true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.execvp("unshare", command + [sys.executable, __file__, BUILD, INSIDE] + sys.argv[2:])


def main():
    args = sys.argv[2:]
    inside = INSIDE in args
    if inside:
        args.remove(INSIDE)
    else:
        alone()
    failed = 0
    for name in args or CASES:
        if name == "namespaces" and not inside:
            print("%-20s skipped: this needs network namespaces" % name)
            continue
        if "ipv6" in name and not has_ipv6():
            print("%-20s skipped: no ::1 here" % name)
            continue
        wrong = CASES[name]()
        print("%-20s %s" % (name, "ok" if not wrong else "FAILED\n" + wrong), flush=True)
        failed += wrong is not None
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
