/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bursts for other processes. A unix datagram socket queues few datagrams (net.unix.max_dgram_qlen,
 * 10), so bursts for one owner are gathered into one datagram until it is full, another owner's
 * turn comes, or the receive call ends.
 *
 * When the owner's queue is full the datagram waits, and meanwhile the main sockets are not read:
 * their buffers hold far more. It waits for a number of attempts, not for ever: an owner that has
 * been stopped costs the others one such wait, and after that its packets are dropped at once until
 * it takes some again. A second owner's turn also ends the wait.
 *
 *   datagram = struct block_message, then records; record = struct record, data, pad to 8 bytes
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/port_internal.h"

#define FORWARD_BUFFER_MAX (4 << 20)
#define ATTEMPTS_MAX	   5000 /* of a few microseconds each */

struct record {
	struct path path;
	uint32_t len;
	uint32_t seg_len;
};

static size_t padded(size_t len)
{
	return (len + 7) & ~(size_t)7;
}

_Static_assert(sizeof(struct block_message) + sizeof(struct record) + RX_BUFFER + 8 <=
		       BLOCK_MESSAGE_MAX,
	       "the longest burst fits");

int forward_init(struct port *port)
{
	port->forward.buf = malloc(BLOCK_MESSAGE_MAX);
	port->block_buffer = malloc(BLOCK_MESSAGE_MAX);
	if (!port->forward.buf || !port->block_buffer)
		return -ENOMEM;
	port->forward_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (port->forward_fd < 0)
		return -errno;
	socket_raise_buffer(port->forward_fd, SO_SNDBUF, FORWARD_BUFFER_MAX);
	return 0;
}

static void discard(struct port *port)
{
	struct forward *f = &port->forward;

	port->callbacks.dropped(port->arg, DROP_FORWARD, f->packets);
	f->len = 0;
	f->packets = 0;
	f->attempts = 0;
}

static bool may_wait(struct forward *f)
{
	if (f->block == f->stuck_block)
		return false;
	if (++f->attempts < ATTEMPTS_MAX)
		return true;
	f->stuck_block = f->block;
	return false;
}

void forward_flush(struct port *port)
{
	struct forward *f = &port->forward;
	struct sockaddr_un un;
	socklen_t un_len;

	if (!f->len)
		return;
	un_len = block_address(&un, f->block);
	if (sendto(port->forward_fd, f->buf, f->len, 0, (struct sockaddr *)&un, un_len) < 0) {
		if (errno != EAGAIN || !may_wait(f))
			discard(port);
		return;
	}
	port->stats.forwarded += f->packets;
	if (f->stuck_block == f->block)
		f->stuck_block = 0;
	f->len = 0;
	f->packets = 0;
	f->attempts = 0;
}

void forward_add(struct port *port, unsigned block, const struct burst *burst)
{
	struct forward *f = &port->forward;
	struct record r;

	if (f->len &&
	    (f->block != block || f->len + sizeof(r) + padded(burst->len) > BLOCK_MESSAGE_MAX)) {
		forward_flush(port);
		if (f->len)
			discard(port);
	}
	if (!f->len) {
		struct block_message head = block_message_make(BLOCK_FORWARD);

		memcpy(f->buf, &head, sizeof(head));
		f->len = sizeof(head);
		f->block = block;
	}
	memset(&r, 0, sizeof(r));
	r.path = burst->path;
	r.len = (uint32_t)burst->len;
	r.seg_len = (uint32_t)burst->seg_len;
	memcpy(f->buf + f->len, &r, sizeof(r));
	memcpy(f->buf + f->len + sizeof(r), burst->data, burst->len);
	memset(f->buf + f->len + sizeof(r) + burst->len, 0, padded(burst->len) - burst->len);
	f->len += sizeof(r) + padded(burst->len);
	f->packets += burst_packets(burst);
}

/* The records of a datagram whose head was checked. A process of the same user is trusted to be no
 * attacker, not to be right. */
void forward_receive(struct port *port, const uint8_t *data, size_t len)
{
	size_t at = sizeof(struct block_message);

	while (at < len) {
		struct record r;
		struct burst burst;

		if (len - at < sizeof(r))
			goto malformed;
		memcpy(&r, data + at, sizeof(r));
		at += sizeof(r);
		if (r.len == 0 || r.seg_len == 0 || r.len > RX_BUFFER || padded(r.len) > len - at)
			goto malformed;
		burst = (struct burst){
			.path = r.path, .data = data + at, .len = r.len, .seg_len = r.seg_len
		};
		at += padded(r.len);
		burst.path.local = false;
		port->stats.received_forwarded += burst_packets(&burst);
		flows_learn(port, &burst.path);
		port_route_burst(port, &burst, true);
	}
	return;
malformed:
	port->stats.forward_refused++;
}
