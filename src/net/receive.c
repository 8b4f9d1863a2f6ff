/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bursts in. The socket that gave the last burst is hot and is read first: a program that polls
 * pays one system call whether something is there or not. The others are looked at through epoll
 * every few empty polls, and every few full ones so that a busy flow doesn't starve them. In such a
 * round block sockets come first, then the main sockets, then flows: what arrived before a flow had
 * a socket of its own lies in the former two.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>

#include "net/port_internal.h"

#define EMPTY_POLLS 16 /* of the hot socket between two rounds */
#define FULL_POLLS  16
#define EVENTS	    32

#define NOBODY_PORT   9	   /* discard: sends nothing */
#define HAND_OVER_MAX 4096 /* bursts; a full receive buffer of small packets */

static uint32_t dest_block(const uint8_t *packet)
{
	return ((uint32_t)packet[5] << 16 | (uint32_t)packet[6] << 8 | packet[7]) >> QPN_BLOCK_BITS;
}

static bool is_local(struct port *port, const uint8_t *packet)
{
	uint32_t block = dest_block(packet);
	uint32_t qpn = block << QPN_BLOCK_BITS | ((packet[6] & 0xfu) << 8 | packet[7]);

	if (port->closing)
		return false;
	if (block == port->local_block)
		return true;
	if (!port->callbacks.is_local_qpn(port->arg, qpn))
		return false;
	/* QPNs 0, 1 and multicast are local one by one, not as a block. */
	if (block != 0 && block != QPN_BLOCKS - 1)
		port->local_block = block;
	return true;
}

static void deliver(struct port *port, const struct burst *burst)
{
	port->stats.received += burst_packets(burst);
	if (port->tap)
		tap_received(port->tap, &burst->path, burst->data, burst->len, burst->seg_len);
	port->callbacks.receive(port->arg, burst);
}

static void dropped(struct port *port, enum drop reason, unsigned packets)
{
	port->callbacks.dropped(port->arg, reason, packets);
}

/* Packets of one owner. */
static void route_run(struct port *port, const struct burst *run, bool local, bool forwarded)
{
	if (local && port->closing)
		return; /* multicast: the other members have it as well */
	if (local)
		deliver(port, run);
	else if (forwarded) /* its block was given back meanwhile; never forward twice */
		dropped(port, DROP_FORWARD, burst_packets(run));
	else
		forward_add(port, dest_block(run->data), run);
}

/* Multicast packets reach every member by themselves. */
static bool packet_is_local(struct port *port, const struct burst *burst, size_t at, bool multicast)
{
	return multicast || is_local(port, burst->data + at);
}

void port_route_burst(struct port *port, const struct burst *burst, bool forwarded)
{
	const bool multicast = gid_is_multicast(&burst->path.dgid);
	struct burst run = *burst;
	size_t tail, start = 0;
	bool local;

	if (burst->len < PACKET_MIN || burst->seg_len < PACKET_MIN) {
		dropped(port, DROP_SHORT, burst_packets(burst));
		return;
	}
	tail = burst->len % burst->seg_len;
	if (tail && tail < PACKET_MIN) {
		dropped(port, DROP_SHORT, 1);
		run.len -= tail;
	}
	const size_t end = run.len;

	local = packet_is_local(port, burst, 0, multicast);
	for (size_t at = burst->seg_len;; at += burst->seg_len) {
		bool next = at < end && packet_is_local(port, burst, at, multicast);
		bool same =
			at < end && next == local &&
			(local || dest_block(burst->data + at) == dest_block(burst->data + start));

		if (same)
			continue;
		run.data = burst->data + start;
		run.len = (at < end ? at : end) - start;
		route_run(port, &run, local, forwarded);
		if (at >= end)
			return;
		start = at;
		local = next;
	}
}

static void prepare_slot(struct port *port, unsigned i)
{
	struct rx_slot *slot = &port->rx_slots[i];

	slot->iov = (struct iovec){ .iov_base = port->rx_buffers + (size_t)i * RX_BUFFER,
				    .iov_len = RX_BUFFER };
	port->rx_messages[i].msg_hdr = (struct msghdr){
		.msg_name = &slot->from,
		.msg_namelen = sizeof(slot->from),
		.msg_iov = &slot->iov,
		.msg_iovlen = 1,
		.msg_control = slot->control,
		.msg_controllen = sizeof(slot->control),
	};
}

void receive_init(struct port *port)
{
	for (unsigned i = 0; i < RX_BATCH; i++)
		prepare_slot(port, i);
}

static void take_message(struct port *port, bool ipv4, unsigned i)
{
	struct mmsghdr *m = &port->rx_messages[i];
	struct burst burst = { .data = port->rx_slots[i].iov.iov_base, .len = m->msg_len };

	message_path(&m->msg_hdr, ipv4, &burst.path, &burst.seg_len);
	if (!burst.seg_len)
		burst.seg_len = burst.len;
	if (m->msg_hdr.msg_flags & MSG_TRUNC)
		dropped(port, DROP_LENGTH, 1);
	else
		port_route_burst(port, &burst, false);
	m->msg_hdr.msg_namelen = sizeof(port->rx_slots[i].from);
	m->msg_hdr.msg_controllen = sizeof(port->rx_slots[i].control);
}

/* Read a socket until it is empty or the budget is used up. Returns the number of bursts. */
static int drain_udp(struct port *port, const struct rx *rx, int budget)
{
	int bursts = 0;

	while (rx->fd >= 0 && bursts < budget) {
		unsigned want = budget - bursts < RX_BATCH ? (unsigned)(budget - bursts) : RX_BATCH;
		int n = recvmmsg(rx->fd, port->rx_messages, want, 0, NULL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		for (int i = 0; i < n; i++)
			take_message(port, rx->ipv4, (unsigned)i);
		bursts += n;
		if ((unsigned)n < want)
			break;
	}
	return bursts;
}

static int drain_block(struct port *port, struct rx *rx, int budget)
{
	int bursts = 0;

	while (rx->fd >= 0 && bursts < budget && block_receive(port, rx))
		bursts++;
	return bursts;
}

static int drain(struct port *port, struct rx *rx, int budget)
{
	int bursts;

	if (rx->kind == RX_LINK) {
		shm_socket_event(port, rx);
		return 0;
	}
	if (rx->kind == RX_BLOCK)
		return drain_block(port, rx, budget);
	if (rx->kind == RX_MAIN && port->forward.attempts)
		return 0;
	bursts = drain_udp(port, rx, budget);
	if (bursts && rx->fd >= 0)
		port->hot = rx;
	if (bursts && rx->kind == RX_FLOW)
		((struct flow *)(void *)rx)->received = true;
	return bursts;
}

/* Everything that epoll names, in order of kind. */
static int scan(struct port *port, int budget)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(port->epoll_fd, events, EVENTS, 0);
	int bursts = 0;

	port->idle_polls = 0;
	port->hot_polls = 0;
	for (unsigned kind = 0; kind < RX_KINDS; kind++) {
		for (int i = 0; i < n; i++) {
			struct rx *rx = events[i].data.ptr;

			/* NULL: a sending socket that has room again. */
			if (rx && rx->kind == kind)
				bursts += drain(port, rx, budget);
		}
	}
	return bursts;
}

int port_receive(struct port *port, int budget)
{
	bool look_around = true;
	int bursts = 0;

	if (port->forward.attempts)
		forward_flush(port);
	/* When it is time to look around after empty polls, epoll tells of the hot socket as well.
	 */
	if (port->hot && port->idle_polls < EMPTY_POLLS) {
		bursts = drain(port, port->hot, budget);
		port->idle_polls = bursts ? 0 : port->idle_polls + 1;
		look_around = bursts && ++port->hot_polls >= FULL_POLLS;
	}
	if (look_around)
		bursts += scan(port, budget);
	forward_flush(port);
	return bursts + (port->forward.attempts > 0);
}

/*
 * The kernel spreads packets over the main sockets of all processes, so some that wait in ours are
 * for another; closing would lose them, and a UD or UC peer never repeats. Connected to a peer that
 * doesn't exist, the socket is chosen for no further packet, and can be emptied.
 */
static void hand_over(struct port *port, const struct rx *rx)
{
	const struct gid loopback4 = { { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
	const struct gid loopback6 = { { [15] = 1 } };
	union address nobody;
	socklen_t len =
		address_set(&nobody, rx->ipv4, rx->ipv4 ? &loopback4 : &loopback6, NOBODY_PORT, 0);

	if (rx->fd < 0 || connect(rx->fd, &nobody.sa, len) < 0)
		return;
	drain_udp(port, rx, HAND_OVER_MAX);
	while (port->forward.len)
		forward_flush(port);
}

void receive_hand_over(struct port *port)
{
	port->closing = true;
	hand_over(port, &port->main4);
	hand_over(port, &port->main6);
}
