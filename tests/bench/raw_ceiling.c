// SPDX-License-Identifier: BSD-2-Clause
/*
 * The ceiling for RoCE v2 over UDP sockets: packets of 4 KiB payload with a BTH's worth of header
 * and an ICRC, 15 to a system call (GSO), received coalesced (GRO), each ICRC checked. Payload isn't
 * copied but by the kernel. The sender never has more on the way than half of what the
 * receiver's buffer takes (both see the count of what arrived), so nothing is lost; the program
 * ends with an error when something is.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raw.h"
#include "wire/icrc.h"
#include "wire/path.h"

#define PAYLOAD	    4096
#define HEADER	    28 /* BTH and RETH */
#define PACKET	    (HEADER + PAYLOAD + 4)
#define SEGMENTS    15 /* fit into a datagram of 64 KiB */
#define WINDOW	    (256 << 10)
#define BUFFER	    (1 << 20)
#define ID_OF(k)    ((uint16_t)(k)) /* segment k of a send leaves with IPv4 ID k */
#define PATIENCE_MS 2000

struct progress {
	_Atomic uint64_t arrived; /* packets */
	_Atomic bool wrong;
};

static struct path make_path(void)
{
	static const uint8_t loopback[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };
	struct path path = { .sport = 50000, .hop_limit = 64, .local = true };

	memcpy(path.sgid.raw, loopback, sizeof(loopback));
	memcpy(path.dgid.raw, loopback, sizeof(loopback));
	return path;
}

static void receive(int fd, struct progress *progress, uint64_t packets)
{
	static uint8_t buf[65536];
	const struct path path = make_path();
	uint64_t got = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (got < packets) {
		ssize_t len = recv(fd, buf, sizeof(buf), 0); /* SO_RCVTIMEO ends it */

		if (len <= 0 || len % PACKET) {
			atomic_store(&progress->wrong, true);
			raw_die("receive (packets lost?)");
		}
		for (ssize_t at = 0; at < len; at += PACKET) {
			uint16_t id = ID_OF(at / PACKET);

			if (!icrc_check(&path, &id, buf + at, PACKET)) {
				atomic_store(&progress->wrong, true);
				raw_die("ICRC");
			}
			got++;
		}
		atomic_store_explicit(&progress->arrived, got, memory_order_release);
	}
	_exit(0);
}

static void wait_for_room(struct progress *progress, uint64_t sent)
{
	uint64_t before = raw_now_ns();

	while ((sent - atomic_load_explicit(&progress->arrived, memory_order_acquire)) * PACKET >
	       WINDOW) {
		if (atomic_load(&progress->wrong) ||
		    raw_now_ns() - before > PATIENCE_MS * UINT64_C(1000000))
			raw_die("the receiver stopped");
		sched_yield();
	}
}

static void transmit(int fd, struct progress *progress, uint64_t packets)
{
	static uint8_t buf[SEGMENTS * PACKET];
	const struct path path = make_path();

	for (uint64_t sent = 0; sent < packets;) {
		uint64_t n = packets - sent < SEGMENTS ? packets - sent : SEGMENTS;

		for (uint64_t k = 0; k < n; k++) {
			uint8_t *p = buf + k * PACKET;
			uint32_t icrc;

			memcpy(p + 8, &sent, sizeof(sent));
			icrc = htole32(icrc_compute(&path, ID_OF(k), p, PACKET - 4));
			memcpy(p + PACKET - 4, &icrc, sizeof(icrc));
		}
		wait_for_room(progress, sent);
		if (send(fd, buf, n * PACKET, 0) != (ssize_t)(n * PACKET))
			raw_die("send");
		sent += n;
	}
	while (atomic_load_explicit(&progress->arrived, memory_order_acquire) < packets)
		wait_for_room(progress, packets);
}

/* A UDP socket on a port of its own, at *sin. */
static int open_socket(struct sockaddr_in *sin)
{
	int size = BUFFER, fd = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(*sin);

	*sin = (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (void *)sin, len) || getsockname(fd, (void *)sin, &len))
		raw_die("socket");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	return fd;
}

double raw_ceiling(size_t size, uint64_t messages)
{
	uint64_t packets = messages * ((size + PAYLOAD - 1) / PAYLOAD), took;
	struct progress *progress = raw_shared_memory(sizeof(*progress));
	struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct sockaddr_in a, b;
	int tx = open_socket(&a), rx = open_socket(&b), segment = PACKET, one = 1, child;

	if (connect(tx, (void *)&b, sizeof(b)) || connect(rx, (void *)&a, sizeof(a)) ||
	    setsockopt(tx, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)) ||
	    setsockopt(rx, IPPROTO_UDP, UDP_GRO, &one, sizeof(one)) ||
	    setsockopt(rx, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		raw_die("socket options");
	child = fork();
	if (child < 0)
		raw_die("fork");
	if (child == 0)
		receive(rx, progress, packets);
	took = raw_now_ns();
	transmit(tx, progress, packets);
	took = raw_now_ns() - took;
	raw_join(child);
	return (double)packets * PAYLOAD * 8 / (double)took;
}
