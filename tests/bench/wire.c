// SPDX-License-Identifier: BSD-2-Clause
/*
 * A slow, lossy wire between two hosts, for `./dev bench`:
 *
 *	bench_wire DELAY_US LOSS_PPM MTU
 *
 * Run in a network namespace of its own (unshare -rn), it makes a second one and joins both by tun devices
 * named wire, 10.88.0.1 and 10.88.0.2. What goes in at one end comes out at the other DELAY_US later, in its
 * order, but for LOSS_PPM of a million packets. Prints the ids of two processes, each in one of the namespaces
 * (the first is its own), and carries packets until standard input ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAITING_MAX \
	1000 /* packets under way in one direction; more are dropped, as a router does */
#define PACKET_MAX 9000
#define READ_MAX   64 /* packets of one direction before the other has its turn */

struct packet {
	uint64_t due_ns;
	size_t len;
	unsigned char data[PACKET_MAX];
};

/* One direction. */
struct line {
	int from, to;
	unsigned first, n;
	struct packet waiting[WAITING_MAX];
};

static struct line lines[2];
static uint64_t delay_ns;
static unsigned loss_ppm;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "bench_wire: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The same packets are lost in every run, as far as the same packets are sent. */
static bool is_lost(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x % 1000000 < loss_ppm;
}

static void must_run(const char *command)
{
	if (system(command)) {
		fprintf(stderr, "bench_wire: failed: %s\n", command);
		exit(1);
	}
}

/* In the namespace this thread is in. */
static int open_end(const char *address, const char *mtu)
{
	struct ifreq ifr = { .ifr_name = "wire", .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	char command[160];

	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr))
		die("/dev/net/tun");
	snprintf(command, sizeof(command),
		 "ip link set lo up && ip link set wire mtu %s up && ip addr add %s/24 dev wire",
		 mtu, address);
	must_run(command);
	return fd;
}

/* A process that stays in a second network namespace, and ends with this one. */
static pid_t make_neighbour(void)
{
	int ready[2];
	pid_t pid;
	char c;

	if (pipe(ready) || (pid = fork()) < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET))
			die("unshare");
		close(ready[1]);
		close(ready[0]);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) < 0) /* end of file: it has unshared, or ended */
		die("read");
	close(ready[0]);
	return pid;
}

static int namespace_of(pid_t pid)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

static void enter(int namespace)
{
	if (setns(namespace, CLONE_NEWNET))
		die("setns");
}

static void take_in(struct line *l)
{
	unsigned char rest[PACKET_MAX];

	for (unsigned i = 0; i < READ_MAX; i++) {
		struct packet *p = &l->waiting[(l->first + l->n) % WAITING_MAX];
		bool full = l->n == WAITING_MAX;
		ssize_t len = read(l->from, full ? rest : p->data, PACKET_MAX);

		if (len <= 0)
			return;
		if (full || is_lost())
			continue;
		p->len = (size_t)len;
		p->due_ns = now_ns() + delay_ns;
		l->n++;
	}
}

/* Returns when the next one is due, UINT64_MAX: none is under way. */
static uint64_t let_out(struct line *l)
{
	uint64_t now = now_ns();

	while (l->n) {
		struct packet *p = &l->waiting[l->first];

		if (p->due_ns > now)
			return p->due_ns;
		if (write(l->to, p->data, p->len) < 0 && errno != EAGAIN && errno != ENOBUFS)
			die("write");
		l->first = (l->first + 1) % WAITING_MAX;
		l->n--;
	}
	return UINT64_MAX;
}

static void carry(void)
{
	struct pollfd fds[3] = { { .fd = lines[0].from, .events = POLLIN },
				 { .fd = lines[1].from, .events = POLLIN },
				 { .fd = STDIN_FILENO, .events = POLLIN } };

	for (;;) {
		uint64_t due = let_out(&lines[0]), other = let_out(&lines[1]), now = now_ns();
		struct timespec t = { 0 };

		if (other < due)
			due = other;
		if (due > now) {
			t.tv_sec = (time_t)((due - now) / 1000000000);
			t.tv_nsec = (long)((due - now) % 1000000000);
		}
		if (ppoll(fds, 3, due == UINT64_MAX ? NULL : &t, NULL) < 0)
			die("ppoll");
		if (fds[2].revents)
			return;
		take_in(&lines[0]);
		take_in(&lines[1]);
	}
}

int main(int argc, char **argv)
{
	pid_t neighbour;
	int home;

	if (argc != 4) {
		fprintf(stderr, "usage: bench_wire DELAY_US LOSS_PPM MTU\n");
		return 2;
	}
	delay_ns = strtoull(argv[1], NULL, 10) * 1000;
	loss_ppm = (unsigned)strtoul(argv[2], NULL, 10);
	prctl(PR_SET_TIMERSLACK, 1);
	home = namespace_of(getpid());
	neighbour = make_neighbour();
	lines[0].from = lines[1].to = open_end("10.88.0.1", argv[3]);
	enter(namespace_of(neighbour));
	lines[1].from = lines[0].to = open_end("10.88.0.2", argv[3]);
	enter(home);
	printf("%d %d\n", getpid(), neighbour);
	fflush(stdout);
	carry();
	kill(neighbour, SIGKILL);
	waitpid(neighbour, NULL, 0);
	return 0;
}
