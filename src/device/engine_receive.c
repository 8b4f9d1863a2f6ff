/* SPDX-License-Identifier: BSD-2-Clause */
/* What the port gives the engine: bursts to the queue pairs, packet by packet, and questions. */
#include <string.h>

#include "device/engine_internal.h"
#include "device/xrc.h"

static enum drop deliver_multicast(struct engine *e, const struct packet *pkt,
				   const struct path *path)
{
	const struct mcast_group *g = engine_mcast_find(e, &path->dgid, path->ifindex);
	enum drop drop = DROP_MULTICAST;

	for (struct mcast_member *m = g ? g->members : NULL; m; m = m->next)
		drop = qp_rx(&m->eqp->qp, pkt, path, e->now_ns);
	return drop;
}

/* From the network. */
static enum drop parse_checked(struct packet *pkt, const uint8_t *data, size_t len,
			       const struct path *path, uint16_t *ipv4_id)
{
	enum drop drop = packet_parse(pkt, data, len);

	if (!drop && !icrc_check(path, ipv4_id, data, len))
		drop = DROP_ICRC;
	return drop;
}

/* From a ring: shared with a process that may still write to it. */
static enum drop parse_local(struct packet *pkt, const uint8_t *data, size_t len)
{
	uint8_t head[PACKET_HEADER_MAX];

	memcpy(head, data, len < sizeof(head) ? len : sizeof(head));
	return packet_parse_local(pkt, head, data, len, RING_MTU);
}

static enum drop deliver(struct engine *e, const uint8_t *data, size_t len, const struct path *path,
			 uint16_t *ipv4_id)
{
	struct engine_qp *eqp;
	struct packet pkt;
	enum drop drop = path->local ? parse_local(&pkt, data, len)
				     : parse_checked(&pkt, data, len, path, ipv4_id);

	if (drop)
		return drop;
	if (pkt.op->kind == OP_CNP)
		return DROP_CNP;
	if (pkt.dest_qpn == QPN_MULTICAST)
		return deliver_multicast(e, &pkt, path);
	eqp = qp_table_find(&e->qps, pkt.dest_qpn);
	if (!eqp)
		return DROP_QPN;
	if (e->fault)
		engine_fault_packet(e, eqp, &pkt);
	drop = qp_rx(&eqp->qp, &pkt, path, e->now_ns);
	engine_make_ready(e, eqp);
	return drop;
}

void engine_deliver_burst(void *arg, const struct burst *burst)
{
	struct engine *e = arg;
	uint16_t ipv4_id = 0;

	for (size_t at = 0; at < burst->len; at += burst->seg_len) {
		size_t left = burst->len - at;

		e->drops[deliver(e, burst->data + at, left < burst->seg_len ? left : burst->seg_len,
				 &burst->path, &ipv4_id)]++;
		/* Segments of one send are numbered 0, 1, 2 ...; other senders count up too. */
		ipv4_id++;
	}
}

static bool is_local_qpn(void *arg, uint32_t qpn)
{
	const struct engine *e = arg;

	return qpn <= 1 || qpn == QPN_MULTICAST || qp_table_owns(&e->qps, qpn);
}

static void receive_burst(void *arg, const struct burst *burst)
{
	struct engine *e = arg;

	if (e->fault)
		fault_receive(e->fault, burst, e->now_ns, engine_deliver_burst, e);
	else
		engine_deliver_burst(e, burst);
}

static void relayed(void *arg, const uint8_t *data, size_t len)
{
	xrc_relay_receive(arg, data, len);
}

static void port_dropped(void *arg, enum drop reason, unsigned packets)
{
	struct engine *e = arg;

	e->drops[reason] += packets;
}

static size_t report(void *arg, char *text, size_t cap)
{
	return engine_report(arg, text, cap);
}

const struct port_callbacks engine_port_callbacks = {
	.receive = receive_burst,
	.is_local_qpn = is_local_qpn,
	.relayed = relayed,
	.report = report,
	.dropped = port_dropped,
};
