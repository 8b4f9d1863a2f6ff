/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages for SRQs of other processes (transport/relay.h), between the process of the target and that of
 * the SRQ. An SRQ's number is from a block that its process owns, so a number leads to its process
 * as a queue pair's does; that the SRQ is of the same domain is checked there.
 *
 *   target                          SRQ
 *      RUN packets, in order  ->          executed by a proxy of the target, up to a fault
 *      <-  DONE how many, fault
 *      ASK (no answer yet)  ->            answered as a RUN that wasn't executed: only who never saw the
 *                                         RUN still owes an answer, since answers keep their order
 *      END                    ->          the connection ended within a message
 *      HELLO                  ->          nothing: it arrives while the process lives
 *
 * A proxy lives while a message is in progress. Of the other process nothing is believed that isn't
 * checked; that it is of our user, the port has seen to (blocks.c).
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/xrc_remote.h"
#include "net/port.h"
#include "net/pring.h"
#include "transport/relay.h"

#define ASK_NS	       (100 * NS_PER_MS)
#define GIVE_UP_NS     (30 * NS_PER_SEC)
#define LAST_ANSWER_NS (10 * NS_PER_MS)
#define SWEEP_MIN      16
#define RECORD_ALIGN   8

struct head {
	uint32_t kind;
	uint32_t qpn; /* the target */
	uint32_t srqn;
	uint32_t count;	 /* RUN: packets; DONE: of these, executed */
	uint32_t fault;	 /* DONE: of the next one */
	uint32_t access; /* RUN: what the target allows */
	uint64_t stream; /* tells the target from an earlier one of its number */
	uint64_t run;
	struct xrc_name domain;
};

/* In front of each packet, which is whole from its BTH to the place of the ICRC. */
struct record {
	uint32_t len;
	uint32_t mtu;
};

_Static_assert(sizeof(struct record) + RECORD_ALIGN <= 2 * sizeof(uint64_t), "relay_room()");
_Static_assert(sizeof(struct head) + RELAY_RUN_BYTES <= PORT_RELAY_MAX, "a run fits a message");

/* Under the engine lock. */
static struct list proxies = { &proxies, &proxies };
static unsigned n_proxies, sweep_at = SWEEP_MIN;

struct proxy {
	struct list link;
	struct qp qp;
	uint64_t stream;
};

static size_t padded(size_t len)
{
	return (len + RECORD_ALIGN - 1) & ~(size_t)(RECORD_ALIGN - 1);
}

/* The target's side. */

static struct xrc_target *target_of(const struct qp *qp)
{
	return container_of(container_of(qp, struct engine_qp, qp), struct xrc_target, eqp);
}

static struct head make_head(const struct xrc_target *t, enum xrc_message kind, uint32_t srqn)
{
	return (struct head){
		.kind = kind,
		.qpn = t->eqp.qp.qpn,
		.srqn = srqn,
		.access = t->eqp.qp.attr.qp_access_flags,
		.stream = t->stream,
		.run = t->run,
		.domain = t->domain->name,
	};
}

static bool is_elsewhere(const struct qp *qp, uint32_t srqn)
{
	const struct xrc_target *t = target_of(qp);

	return t->domain->claim >= 0 && qpn_block(srqn) && !engine_owns_qpn(t->engine, srqn);
}

static uint8_t *put_packet(uint8_t *at, const struct qp *qp, const struct packet *pkt)
{
	const unsigned headers = packet_headers_len(pkt->opcode);
	const size_t rest = packet_pad(pkt->payload_len) + ICRC_LEN;
	const struct record record = {
		.len = (uint32_t)(headers + pkt->payload_len + rest),
		.mtu = responder_mtu(qp, pkt),
	};

	memcpy(at, &record, sizeof(record));
	at += sizeof(record);
	packet_build_headers(pkt, at);
	if (pkt->payload_len)
		memcpy(at + headers, pkt->payload, pkt->payload_len);
	memset(at + headers + pkt->payload_len, 0, padded(record.len) - headers - pkt->payload_len);
	return at + padded(record.len);
}

static void gone(const struct xrc_target *t, uint32_t srqn, const char *why)
{
	log_info("XRC target 0x%06x: SRQ 0x%06x is another process's, which %s", t->eqp.qp.qpn,
		 srqn, why);
}

static void await_answer(struct engine_alarm *a);

static enum fault start(struct qp *qp)
{
	static uint8_t message[PORT_RELAY_MAX];
	struct xrc_target *t = target_of(qp);
	const struct relay_packet *held = qp->resp.relay.first;
	const uint32_t srqn = held->pkt.xrc_srqn;
	struct head head;
	uint8_t *at = message + sizeof(head);
	int rc;

	t->run++;
	head = make_head(t, XRC_RUN, srqn);
	head.count = qp->resp.relay.run;
	memcpy(message, &head, sizeof(head));
	for (unsigned i = 0; i < head.count; i++, held = held->next)
		at = put_packet(at, qp, &held->pkt);
	rc = engine_relay(t->engine, qpn_block(srqn), message, (size_t)(at - message));
	if (rc) {
		gone(t, srqn, rc == -ECONNREFUSED ? "isn't there" : strerror(-rc));
		return FAULT_XRC_SRQ;
	}
	t->run_since_ns = engine_now_ns();
	t->doomed = false;
	t->alarm.ring = await_answer;
	engine_alarm_set(t->engine, &t->alarm, t->run_since_ns + ASK_NS);
	return FAULT_NONE;
}

static void answered(struct xrc_target *t, unsigned done, enum fault fault)
{
	engine_alarm_cancel(t->engine, &t->alarm);
	relay_answered(&t->eqp.qp, done, fault);
	engine_make_ready(t->engine, &t->eqp);
}

/* Is it still there, and does it know the run? */
static void await_answer(struct engine_alarm *a)
{
	struct xrc_target *t = container_of(a, struct xrc_target, alarm);
	const struct relay *relay = &t->eqp.qp.resp.relay;
	const uint64_t now_ns = engine_now_ns();
	const char *why = NULL;
	struct head head;
	uint32_t srqn;

	if (!relay->run)
		return;
	srqn = relay->first->pkt.xrc_srqn;
	head = make_head(t, XRC_ASK, srqn);
	if (now_ns - t->run_since_ns > GIVE_UP_NS)
		why = "hasn't answered for 30 s";
	else if (!engine_relay_waits(t->engine, qpn_block(srqn)) &&
		 engine_relay(t->engine, qpn_block(srqn), &head, sizeof(head)))
		why = "is gone";
	if (why && !t->doomed) {
		/* Its last answer may wait in our socket. */
		t->doomed = true;
		engine_alarm_set(t->engine, a, now_ns + LAST_ANSWER_NS);
		return;
	}
	if (why) {
		gone(t, srqn, why);
		answered(t, 0, FAULT_XRC_SRQ);
		return;
	}
	engine_alarm_set(t->engine, a, now_ns + ASK_NS);
}

static void end(struct qp *qp, uint32_t srqn)
{
	struct xrc_target *t = target_of(qp);
	struct head head = make_head(t, XRC_END, srqn);

	engine_alarm_cancel(t->engine, &t->alarm);
	engine_relay(t->engine, qpn_block(srqn), &head, sizeof(head));
}

static void refused(const struct qp *qp, const struct packet *pkt)
{
	log_info("XRC target 0x%06x: %s to the memory of SRQ 0x%06x, which is another process's: "
		 "only "
		 "SEND and RDMA WRITE reach that",
		 qp->qpn, pkt->op->name, pkt->xrc_srqn);
}

const struct relay_ops xrc_relay_ops = {
	.is_elsewhere = is_elsewhere,
	.start = start,
	.end = end,
	.refused = refused,
};

static void take_answer(struct engine *e, const struct head *head)
{
	struct engine_qp *eqp = engine_find_qp(e, head->qpn);
	struct xrc_target *t;
	enum fault fault;

	if (!eqp || eqp->qp.cfg.type != IBV_QPT_XRC_RECV)
		return;
	t = container_of(eqp, struct xrc_target, eqp);
	if (head->stream != t->stream || head->run != t->run || !eqp->qp.resp.relay.run)
		return;
	fault = head->fault < FAULT_COUNT ? (enum fault)head->fault : FAULT_XRC_SRQ;
	if (head->count > eqp->qp.resp.relay.run ||
	    (!fault && head->count != eqp->qp.resp.relay.run))
		answered(t, 0, FAULT_XRC_SRQ);
	else
		answered(t, head->count, fault);
}

/* The SRQ's side. */

static const struct qp_ops proxy_ops = { .complete = dev_cq_complete };

static struct proxy *find_proxy(const struct head *head)
{
	struct list *pos;

	list_for_each(pos, &proxies)
	{
		struct proxy *p = container_of(pos, struct proxy, link);

		if (p->qp.qpn == head->qpn && p->stream == head->stream)
			return p;
	}
	return NULL;
}

static void drop_proxy(struct proxy *p)
{
	list_remove(&p->link);
	n_proxies--;
	qp_destroy(&p->qp);
	free(p);
}

/* Those whose target's process died within a message. */
static void sweep(struct engine *e)
{
	const struct head hello = { .kind = XRC_HELLO };
	struct list *pos, *next;

	for (pos = proxies.next; pos != &proxies; pos = next) {
		struct proxy *p = container_of(pos, struct proxy, link);

		next = pos->next;
		if (engine_relay(e, qpn_block(p->qp.qpn), &hello, sizeof(hello)) == -ECONNREFUSED)
			drop_proxy(p);
	}
	sweep_at = 2 * n_proxies + SWEEP_MIN;
}

static struct proxy *new_proxy(struct engine *e, const struct head *head)
{
	struct qp_config config = {
		.ops = &proxy_ops,
		.mem = engine_mem(e),
		.type = IBV_QPT_XRC_RECV,
		.find_srq = xrc_find_srq,
	};
	struct proxy *p;

	if (n_proxies >= sweep_at)
		sweep(e);
	p = dev_zalloc(sizeof(*p));
	if (!p)
		return NULL;
	if (qp_init(&p->qp, &config)) {
		free(p);
		return NULL;
	}
	p->qp.qpn = head->qpn;
	p->stream = head->stream;
	list_append(&proxies, &p->link);
	n_proxies++;
	return p;
}

static enum fault execute_record(struct proxy *p, const struct head *head,
				 const struct record *record, const uint8_t *data)
{
	struct packet pkt;

	if (record->mtu > RING_MTU ||
	    packet_parse_local(&pkt, data, data, record->len, record->mtu) ||
	    (pkt.op->kind != OP_SEND && pkt.op->kind != OP_WRITE) ||
	    !(pkt.op->headers & HDR_XRCETH) || pkt.xrc_srqn != head->srqn)
		return FAULT_OPCODE;
	return relay_execute(&p->qp, &pkt);
}

/* How many packets were executed, and what the next one met. */
static void execute(struct proxy *p, const uint8_t *data, size_t len, struct head *head)
{
	const uint32_t count = head->count;

	head->fault = FAULT_NONE;
	for (head->count = 0; head->count < count; head->count++) {
		struct record record;

		head->fault = FAULT_OPCODE;
		if (len < sizeof(record))
			return;
		memcpy(&record, data, sizeof(record));
		data += sizeof(record);
		len -= sizeof(record);
		if (record.len > len || padded(record.len) > len)
			return;
		head->fault = execute_record(p, head, &record, data);
		if (head->fault)
			return;
		data += padded(record.len);
		len -= padded(record.len);
	}
}

static void answer(struct engine *e, struct head *head)
{
	head->kind = XRC_DONE;
	if (engine_relay(e, qpn_block(head->qpn), head, sizeof(*head)))
		log_debug("XRC target 0x%06x: its process is gone", head->qpn);
}

/* Nothing of the run was executed: no such SRQ, or no such run. */
static void deny(struct engine *e, struct head *head)
{
	head->count = 0;
	head->fault = FAULT_XRC_SRQ;
	answer(e, head);
}

static void execute_run(struct engine *e, struct head *head, const uint8_t *data, size_t len)
{
	struct xrc_domain *domain = xrc_domain_of(head->srqn, &head->domain);
	struct proxy *p = domain ? find_proxy(head) : NULL;

	if (domain && !p)
		p = new_proxy(e, head);
	if (!p) {
		deny(e, head);
		return;
	}
	p->qp.cfg.xrcd = domain;
	p->qp.attr.qp_access_flags = head->access;
	execute(p, data, len, head);
	if (!relay_in_progress(&p->qp))
		drop_proxy(p);
	answer(e, head);
}

static void flush_proxy(const struct head *head)
{
	struct proxy *p = find_proxy(head);

	if (!p)
		return;
	relay_flush(&p->qp);
	drop_proxy(p);
}

void xrc_relay_forget_srq(const struct recv_queue *rq)
{
	struct list *pos, *next;

	for (pos = proxies.next; pos != &proxies; pos = next) {
		struct proxy *p = container_of(pos, struct proxy, link);

		next = pos->next;
		if (p->qp.resp.queue == rq)
			drop_proxy(p);
	}
}

void xrc_relay_abandon(void)
{
	list_init(&proxies);
	n_proxies = 0;
}

void xrc_relay_receive(struct engine *e, const uint8_t *data, size_t len)
{
	struct head head;
	uint32_t kind;

	if (len < sizeof(kind))
		return;
	memcpy(&kind, data, sizeof(kind));
	if (kind >= XRC_CALL)
		xrc_remote_receive(e, data, len);
	if (kind >= XRC_CALL || len < sizeof(head))
		return;
	memcpy(&head, data, sizeof(head));
	if (qpn_block(head.qpn) >= QPN_BLOCKS || qpn_block(head.srqn) >= QPN_BLOCKS)
		return;
	switch (head.kind) {
	case XRC_RUN:
		execute_run(e, &head, data + sizeof(head), len - sizeof(head));
		break;
	case XRC_DONE:
		take_answer(e, &head);
		break;
	case XRC_ASK:
		deny(e, &head);
		break;
	case XRC_END:
		flush_proxy(&head);
		break;
	default: /* XRC_HELLO */
		break;
	}
}
