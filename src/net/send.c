/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Groups out. Consecutive groups of one source port go in one sendmmsg(). The kernel's error
 * concerns the first group that it didn't take:
 *
 * - EAGAIN: stop; the group and those behind it stay.
 * - A segmented send that the path can't do: its packets go one by one. Each then has IPv4 ID 0, so
 *   the ICRCs, which the outbox made for IDs 0, 1, 2 ..., are written anew first. `port->single`
 *   marks such a group until its last packet is out, since its ICRCs no longer fit a segmented send.
 * - Anything else: the group is lost, as on a network: counted, logged once per cause.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>

#include "base/log.h"
#include "net/port_internal.h"
#include "wire/icrc.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef IPV6_FLOWINFO_MASK
#define IPV6_FLOWINFO_MASK 0x0fffffff
#endif

#define SEND_BATCH 16

struct message {
	union address to;
	struct iovec iov;
	_Alignas(struct cmsghdr) uint8_t control[160];
};

static void add_source_ipv4(struct msghdr *msg, const struct path *path, unsigned ifindex)
{
	struct in_pktinfo info = { .ipi_ifindex = (int)ifindex };

	memcpy(&info.ipi_spec_dst, path->sgid.raw + 12, 4);
	message_add_control(msg, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
}

static void add_source_ipv6(struct msghdr *msg, const struct path *path, unsigned ifindex)
{
	struct in6_pktinfo info = { .ipi6_ifindex = ifindex };

	memcpy(&info.ipi6_addr, path->sgid.raw, 16);
	message_add_control(msg, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof(info));
}

/* What differs from the socket's own values. The unicast value doesn't hold for multicast. */
static void add_differences(struct msghdr *msg, const struct tx_socket *tx, const struct path *path)
{
	int hop_limit = path->hop_limit ? path->hop_limit : HOP_LIMIT_DEFAULT;
	int traffic_class = path->traffic_class;

	if (hop_limit != tx->hop_limit || gid_is_multicast(&path->dgid))
		message_add_control(msg, tx->ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
				    tx->ipv4 ? IP_TTL : IPV6_HOPLIMIT, &hop_limit, sizeof(int));
	if (traffic_class != tx->traffic_class)
		message_add_control(msg, tx->ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
				    tx->ipv4 ? IP_TOS : IPV6_TCLASS, &traffic_class, sizeof(int));
}

static bool labelled(const struct port *port, const struct tx_socket *tx, const struct path *path)
{
	return path->flow_label && tx->flow_labels && !port->no_flow_labels;
}

/* A message of data[0..len) on this path; seg_len 0: one packet. */
static void fill(struct port *port, const struct tx_socket *tx, const struct path *path,
		 struct message *m, struct msghdr *msg, uint8_t *data, size_t len, uint16_t seg_len)
{
	const unsigned ifindex = path_scope(path);

	*msg = (struct msghdr){
		.msg_name = &m->to,
		.msg_namelen = address_set(&m->to, tx->ipv4, &path->dgid, port->udp_port, ifindex),
		.msg_iov = &m->iov,
		.msg_iovlen = 1,
		.msg_control = m->control,
	};
	m->iov = (struct iovec){ .iov_base = data, .iov_len = len };
	if (tx->ipv4)
		add_source_ipv4(msg, path, ifindex);
	else
		add_source_ipv6(msg, path, ifindex);
	if (labelled(port, tx, path))
		m->to.in6.sin6_flowinfo =
			htonl((uint32_t)path->traffic_class << 20 | path->flow_label);
	add_differences(msg, tx, path);
	if (seg_len)
		message_add_control(msg, IPPROTO_UDP, UDP_SEGMENT, &seg_len, sizeof(seg_len));
}

/* Write the ICRCs of a group anew, for the source port that its packets will carry. */
static void rewrite_icrcs(struct port *port, struct outbox *box, const struct outbox_group *g,
			  uint16_t sport, bool numbered)
{
	struct path path = g->path;
	uint16_t id = 0;

	if (g->damaged)
		return;
	path.sport = sport;
	for (uint32_t at = 0; at < g->len; at += g->seg_len) {
		uint32_t left = g->len - at;
		uint32_t len = (left < g->seg_len ? left : g->seg_len) - ICRC_LEN;
		uint8_t *packet = box->buf + g->offset + at;
		uint32_t icrc = htole32(icrc_compute(&path, id, packet, len));

		memcpy(packet + len, &icrc, sizeof(icrc));
		id = (uint16_t)(id + numbered);
		port->stats.icrc_rewritten++;
	}
}

static void tap_group(struct port *port, const struct outbox *box, const struct outbox_group *g,
		      const struct tx_socket *tx, size_t len, bool numbered)
{
	struct path path = g->path;

	if (!port->tap)
		return;
	path.sport = tx->sport;
	tap_sent(port->tap, &path, box->buf + g->offset, len, g->seg_len, numbered);
}

static void log_once(struct port *port, const struct outbox_group *g, int error)
{
	char to[GID_STRLEN];
	uint64_t bit = UINT64_C(1) << (error % 64);

	if (error / 64 >= 3 || port->send_errors_logged[error / 64] & bit)
		return;
	port->send_errors_logged[error / 64] |= bit;
	if (error == EMSGSIZE)
		log_warn("packets of %u bytes to %s are too long for the path: use a smaller path "
			 "MTU",
			 g->seg_len, gid_format(&g->path.dgid, to));
	else
		log_warn("sending to %s failed: %s (more of this is only counted)",
			 gid_format(&g->path.dgid, to), strerror(error));
}

static void give_up(struct port *port, const struct outbox_group *g, int error)
{
	log_once(port, g, error);
	port->stats.send_failed += g->segments;
}

static int stop(struct port *port, struct tx_socket *tx)
{
	port->blocked = tx;
	if (port->want_write)
		port_want_write(port, true);
	return -EAGAIN;
}

/* The first group, packet by packet. 1: done with it, or -EAGAIN. */
static int send_singly(struct port *port, struct outbox *box, struct tx_socket *tx)
{
	struct outbox_group *g = &box->groups[box->first_group];
	struct message m;
	struct msghdr msg;

	while (g->segments) {
		uint32_t len = g->segments > 1 ? g->seg_len : g->len;

		fill(port, tx, &g->path, &m, &msg, box->buf + g->offset, len, 0);
		if (sendmsg(tx->fd, &msg, 0) < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				return stop(port, tx);
			give_up(port, g, errno);
			break;
		}
		tap_group(port, box, g, tx, len, false);
		port->stats.sent++;
		port->stats.sent_singly++;
		g->offset += len;
		g->len -= len;
		g->segments--;
	}
	port->single = NULL;
	return 1;
}

/* The kernel refused the first group. Returns as send_run(). */
static int refused(struct port *port, struct outbox *box, struct tx_socket *tx, int error)
{
	const struct outbox_group *g = &box->groups[box->first_group];

	switch (error) {
	case EINTR:
		return 0;
	case EAGAIN:
		return stop(port, tx);
	case EMSGSIZE:
		break;
	case EINVAL:
	case EIO:
	case EOPNOTSUPP:
	case ENOPROTOOPT:
		if (error == EINVAL && labelled(port, tx, &g->path)) {
			log_info("the system wants flow labels to be leased: sending none");
			port->no_flow_labels = true;
			return 0;
		}
		if (g->segments == 1)
			break;
		log_debug("a segmented send was refused (%s): packet by packet", strerror(error));
		rewrite_icrcs(port, box, g, tx->sport, false);
		port->single = g;
		return send_singly(port, box, tx);
	default:
		break;
	}
	give_up(port, g, error);
	return 1;
}

/* Waiting groups that may go in one call, filled into messages. Returns how many. */
static unsigned collect(struct port *port, struct outbox *box, const struct tx_socket *tx,
			struct message *m, struct mmsghdr *msgs)
{
	const uint16_t sport = box->groups[box->first_group].path.sport;
	unsigned n = 0;

	for (unsigned i = box->first_group; i < box->n_groups && n < SEND_BATCH; i++, n++) {
		const struct outbox_group *g = &box->groups[i];

		if (g->path.sport != sport || gid_is_ipv4(&g->path.sgid) != tx->ipv4)
			break;
		if (tx->sport != sport)
			rewrite_icrcs(port, box, g, tx->sport, true);
		fill(port, tx, &g->path, &m[n], &msgs[n].msg_hdr, box->buf + g->offset, g->len,
		     g->segments > 1 ? g->seg_len : 0);
	}
	return n;
}

/* Send some groups. Returns how many are done with, or -EAGAIN. */
static int send_run(struct port *port, struct outbox *box)
{
	const struct outbox_group *g = &box->groups[box->first_group];
	struct tx_socket *tx = tx_socket_get(port, &g->path);
	struct message messages[SEND_BATCH];
	struct mmsghdr msgs[SEND_BATCH];
	unsigned n;
	int sent;

	if (!tx) {
		give_up(port, g, errno);
		return 1;
	}
	if (port->single == g)
		return send_singly(port, box, tx);
	n = collect(port, box, tx, messages, msgs);
	if (n == 1)
		sent = sendmsg(tx->fd, &msgs[0].msg_hdr, 0) < 0 ? -1 : 1;
	else
		sent = sendmmsg(tx->fd, msgs, n, 0);
	if (sent < 0)
		return refused(port, box, tx, errno);
	for (int i = 0; i < sent; i++) {
		port->stats.sent += g[i].segments;
		tap_group(port, box, &g[i], tx, g[i].len, true);
	}
	return sent;
}

int port_send(struct port *port, struct outbox *box)
{
	while (!outbox_empty(box)) {
		int sent = send_run(port, box);

		if (sent < 0)
			return sent;
		outbox_sent(box, (unsigned)sent);
	}
	return 0;
}

uint16_t port_sport(uint32_t src_qpn, uint32_t dest_qpn)
{
	uint32_t src = qpn_block(src_qpn), dest = qpn_block(dest_qpn);
	uint32_t mixed = (src << QPN_BLOCK_BITS | dest) * 0x9e3779b1u;

	return (uint16_t)(SPORT_MIN | mixed >> 18);
}
