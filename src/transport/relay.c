/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/relay.h"

#include <stdlib.h>
#include <string.h>

#include "transport/qp.h"
#include "transport/receive.h"

static bool is_message(const struct packet *pkt)
{
	return pkt->op->kind == OP_SEND || pkt->op->kind == OP_WRITE;
}

/* The next packet expected, and its SRQ isn't here. */
static bool is_next_elsewhere(const struct qp *qp, const struct packet *pkt)
{
	return psn_eq(pkt->psn, qp->resp.epsn) && is_message(pkt) &&
	       !qp->cfg.find_srq(qp->cfg.xrcd, pkt->xrc_srqn) &&
	       qp->cfg.relay->is_elsewhere(qp, pkt->xrc_srqn);
}

bool relay_wants(const struct qp *qp, const struct packet *pkt)
{
	return qp->cfg.relay && (qp->resp.relay.run || is_next_elsewhere(qp, pkt));
}

static bool hold(struct relay *relay, const struct packet *pkt)
{
	const size_t size = sizeof(struct relay_packet) + pkt->payload_len;
	struct relay_packet *held;

	if (relay->bytes + size > RELAY_HELD_MAX)
		return false;
	held = malloc(size);
	if (!held)
		return false;
	held->next = NULL;
	held->pkt = *pkt;
	held->pkt.payload = held->payload;
	if (pkt->payload_len)
		memcpy(held->payload, pkt->payload, pkt->payload_len);
	if (relay->first)
		relay->last->next = held;
	else
		relay->first = held;
	relay->last = held;
	relay->bytes += size;
	return true;
}

static struct relay_packet *take_first(struct relay *relay)
{
	struct relay_packet *held = relay->first;

	relay->first = held->next;
	relay->bytes -= sizeof(*held) + held->pkt.payload_len;
	return held;
}

/* How many of the held packets make a run. */
static unsigned measure_run(const struct qp *qp)
{
	const struct relay_packet *first = qp->resp.relay.first, *held = first;
	struct psn psn = first->pkt.psn;
	size_t bytes = 0;
	unsigned n = 0;

	for (; held && psn_eq(held->pkt.psn, psn) && is_message(&held->pkt) &&
	       held->pkt.xrc_srqn == first->pkt.xrc_srqn;
	     held = held->next) {
		bytes += relay_room(&held->pkt);
		if (n && bytes > RELAY_RUN_BYTES)
			break;
		psn = psn_add(psn, 1);
		n++;
	}
	return n;
}

/* What the other process can't know: which message the connection is within. */
static enum fault check_message(const struct responder *r, const struct packet *pkt)
{
	enum fault fault = receive_check_sequence(r, pkt);

	if (!fault && r->message && r->relay.srqn != pkt->xrc_srqn)
		return FAULT_OPCODE_SEQUENCE;
	return fault;
}

static void start_run(struct qp *qp)
{
	struct relay *relay = &qp->resp.relay;
	enum fault fault = check_message(&qp->resp, &relay->first->pkt);

	relay->run = measure_run(qp);
	if (!fault)
		fault = qp->cfg.relay->start(qp);
	if (fault)
		relay_answered(qp, 0, fault);
}

/* Up to the next run. */
static void go_on(struct qp *qp)
{
	struct relay *relay = &qp->resp.relay;

	while (relay->first && !relay->run) {
		struct relay_packet *held;

		if (is_next_elsewhere(qp, &relay->first->pkt)) {
			start_run(qp);
			continue;
		}
		held = take_first(relay);
		responder_execute(qp, &held->pkt);
		free(held);
	}
}

enum drop relay_rx(struct qp *qp, const struct packet *pkt)
{
	if (!hold(&qp->resp.relay, pkt))
		return DROP_FORWARD;
	go_on(qp);
	return DROP_NONE;
}

static void count_executed(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	const bool ends = pkt->op->position == POS_LAST || pkt->op->position == POS_ONLY;

	r->queue = NULL;
	r->message = MESSAGE_NONE;
	if (!ends)
		r->message = pkt->op->kind == OP_SEND ? MESSAGE_SEND : MESSAGE_WRITE;
	r->relay.srqn = ends ? 0 : pkt->xrc_srqn;
	responder_advance(r, pkt);
}

void relay_answered(struct qp *qp, unsigned done, enum fault fault)
{
	struct relay *relay = &qp->resp.relay;
	const unsigned run = relay->run;

	for (unsigned i = 0; i < run; i++) {
		struct relay_packet *held = take_first(relay);

		if (i < done)
			count_executed(qp, &held->pkt);
		free(held);
	}
	relay->run = 0;
	if (fault)
		responder_fail(qp, fault);
	go_on(qp);
}

void relay_clear(struct qp *qp)
{
	struct relay *relay = &qp->resp.relay;
	const uint32_t srqn = relay->run ? relay->first->pkt.xrc_srqn : relay->srqn;

	while (relay->first)
		free(take_first(relay));
	relay->run = 0;
	relay->srqn = 0;
	if (srqn)
		qp->cfg.relay->end(qp, srqn);
}

bool relay_in_progress(const struct qp *proxy)
{
	return proxy->resp.message != MESSAGE_NONE || proxy->resp.recv_taken;
}

void relay_flush(struct qp *proxy)
{
	proxy->resp.message = MESSAGE_NONE;
	if (proxy->resp.recv_taken)
		receive_complete(proxy, NULL, IBV_WC_WR_FLUSH_ERR);
}

enum fault relay_execute(struct qp *proxy, const struct packet *pkt)
{
	enum fault fault = receive_message_packet(proxy, pkt);

	if (!fault || fault == FAULT_NO_RECEIVE)
		return fault;
	responder_fail_receive(proxy, fault);
	relay_flush(proxy);
	return fault;
}
