// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the machine itself does, for `./dev bench`; each prints one figure:
 *
 *	bench_raw ceiling SIZE N	Gb/s of UDP with GSO, GRO and every ICRC
 *	bench_raw memcpy SIZE N		Gb/s of memcpy, always between the same two buffers
 *	bench_raw tcp SIZE N		us per half round trip of a blocking TCP ping-pong
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"

uint64_t raw_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

_Noreturn void raw_die(const char *what)
{
	fprintf(stderr, "bench_raw: %s: %s\n", what, strerror(errno));
	exit(1);
}

void raw_join(int pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		raw_die("the other process failed");
}

void *raw_shared_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		raw_die("mmap");
	return p;
}

static double run_memcpy(size_t size, uint64_t n)
{
	char *from = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	char *to = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	uint64_t began;

	if (!from || !to)
		raw_die("aligned_alloc");
	memset(from, 1, size);
	memset(to, 2, size);
	began = raw_now_ns();
	for (uint64_t i = 0; i < n; i++) {
		memcpy(to, from, size);
		/* The compiler must believe that somebody looks at each copy. */
		__asm__ volatile("" ::"r"(from), "r"(to) : "memory");
	}
	began = raw_now_ns() - began;
	free(from);
	free(to);
	return (double)size * (double)n * 8 / (double)began;
}

static void transfer(int fd, char *buf, size_t size, ssize_t (*op)(int, void *, size_t))
{
	for (size_t done = 0; done < size;) {
		ssize_t n = op(fd, buf + done, size - done);

		if (n <= 0)
			raw_die("TCP");
		done += (size_t)n;
	}
}

static ssize_t do_write(int fd, void *buf, size_t size)
{
	return write(fd, buf, size);
}

static void tcp_peer(const struct sockaddr_in *to, char *buf, size_t size, uint64_t n)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (const void *)to, sizeof(*to)))
		raw_die("connect");
	for (uint64_t i = 0; i < n; i++) {
		transfer(fd, buf, size, read);
		transfer(fd, buf, size, do_write);
	}
	_exit(0);
}

static double run_tcp(size_t size, uint64_t n)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1, fd, listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(sin);
	char *buf = calloc(1, size);
	uint64_t began;
	int child;

	if (!buf || bind(listener, (void *)&sin, len) || listen(listener, 1) ||
	    getsockname(listener, (void *)&sin, &len))
		raw_die("listen");
	child = fork();
	if (child < 0)
		raw_die("fork");
	if (child == 0)
		tcp_peer(&sin, buf, size, n);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		raw_die("accept");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	began = raw_now_ns();
	for (uint64_t i = 0; i < n; i++) {
		transfer(fd, buf, size, do_write);
		transfer(fd, buf, size, read);
	}
	began = raw_now_ns() - began;
	raw_join(child);
	free(buf);
	return (double)began / (double)n / 2000;
}

int main(int argc, char **argv)
{
	size_t size = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	uint64_t n = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
	double figure;

	if (!size || !n) {
		fprintf(stderr, "usage: bench_raw ceiling|memcpy|tcp SIZE N\n");
		return 2;
	}
	if (!strcmp(argv[1], "ceiling"))
		figure = raw_ceiling(size, n);
	else if (!strcmp(argv[1], "memcpy"))
		figure = run_memcpy(size, n);
	else if (!strcmp(argv[1], "tcp"))
		figure = run_tcp(size, n);
	else
		return 2;
	printf("%.6f\n", figure);
	return 0;
}
