/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/responder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/qp.h"
#include "transport/receive.h"
#include "transport/relay.h"

/*
 * What each fault brings on RC (IBA 9.9.3): NAK code, event, and what becomes of the receive work
 * request in progress (IBV_WC_SUCCESS: flushed with the rest).
 */
/* clang-format off */
static const struct {
	const char *name;
	enum nak_code nak;
	enum ibv_event_type event;
	enum ibv_wc_status recv_status;
} faults[FAULT_COUNT] = {
	[FAULT_OPCODE_SEQUENCE] = { "opcode sequence",  NAK_INVALID_REQUEST,    IBV_EVENT_QP_REQ_ERR,    IBV_WC_SUCCESS },
	[FAULT_OPCODE]          = { "operation",        NAK_INVALID_REQUEST,    IBV_EVENT_QP_REQ_ERR,    IBV_WC_SUCCESS },
	[FAULT_LENGTH]          = { "length",           NAK_INVALID_REQUEST,    IBV_EVENT_QP_REQ_ERR,    IBV_WC_SUCCESS },
	[FAULT_RECEIVE_LENGTH]  = { "receive length",   NAK_INVALID_REQUEST,    IBV_EVENT_QP_REQ_ERR,    IBV_WC_LOC_LEN_ERR },
	[FAULT_RECEIVE_KEY]     = { "receive L_Key",    NAK_REMOTE_OPERATIONAL, IBV_EVENT_QP_FATAL,      IBV_WC_LOC_PROT_ERR },
	[FAULT_ACCESS]          = { "R_Key or access",  NAK_REMOTE_ACCESS,      IBV_EVENT_QP_ACCESS_ERR, IBV_WC_SUCCESS },
	[FAULT_UNALIGNED]       = { "atomic alignment", NAK_INVALID_REQUEST,    IBV_EVENT_QP_REQ_ERR,    IBV_WC_SUCCESS },
	[FAULT_READ_DEPTH]      = { "READ depth",       NAK_INVALID_REQUEST,    IBV_EVENT_QP_REQ_ERR,    IBV_WC_SUCCESS },
	[FAULT_INVALIDATE]      = { "invalidate R_Key", NAK_REMOTE_ACCESS,      IBV_EVENT_QP_ACCESS_ERR, IBV_WC_MW_BIND_ERR },
	[FAULT_XRC_SRQ]         = { "XRC SRQ number",   NAK_INVALID_REQUEST,    IBV_EVENT_QP_REQ_ERR,    IBV_WC_SUCCESS },
	[FAULT_GONE]            = { "memory gone",      NAK_REMOTE_ACCESS,      IBV_EVENT_QP_ACCESS_ERR, IBV_WC_SUCCESS },
};
/* clang-format on */

const char *fault_name(enum fault fault)
{
	return faults[fault].name ? faults[fault].name : "none";
}

uint32_t responder_mtu(const struct qp *qp, const struct packet *pkt)
{
	return pkt->mtu ? pkt->mtu : qp->mtu;
}

/* Any SRQ's receive fits an XRC target. */
static uint32_t receive_sges(const struct qp *qp)
{
	if (qp->cfg.type == IBV_QPT_XRC_RECV)
		return QP_MAX_SGE;
	return qp->cfg.srq ? qp->cfg.srq->max_sge : qp->rq.max_sge;
}

int responder_init(struct qp *qp)
{
	struct recv_wqe *recv =
		calloc(1, sizeof(*recv) + receive_sges(qp) * sizeof(struct ibv_sge));

	memset(&qp->resp, 0, sizeof(qp->resp));
	qp->resp.recv = recv;
	responder_reset(qp);
	return recv ? 0 : -ENOMEM;
}

void responder_reset(struct qp *qp)
{
	struct responder *r = &qp->resp;
	struct recv_wqe *recv = r->recv;

	relay_clear(qp);
	free(r->replies);
	free(r->atomics);
	*r = (struct responder){ .recv = recv };
	if (qp->cfg.type == IBV_QPT_XRC_RECV)
		return;
	r->queue = qp->cfg.srq ? qp->cfg.srq : &qp->rq;
}

void responder_destroy(struct qp *qp)
{
	responder_reset(qp);
	free(qp->resp.recv);
	qp->resp.recv = NULL;
}

int responder_start(struct qp *qp, struct psn rq_psn, uint32_t max_dest_rd_atomic)
{
	struct responder *r = &qp->resp;
	uint32_t depth = max_dest_rd_atomic ? max_dest_rd_atomic : 1;
	/* Twice: duplicates may be owed beside fresh ones. */
	struct reply *replies = calloc(2 * (size_t)depth, sizeof(*replies));
	struct atomic_result *atomics = calloc(depth, sizeof(*atomics));

	if (!replies || !atomics) {
		free(replies);
		free(atomics);
		return -ENOMEM;
	}
	responder_reset(qp);
	r->replies = replies;
	r->atomics = atomics;
	r->depth = max_dest_rd_atomic;
	r->reply_slots = 2 * depth;
	r->atomic_slots = depth;
	r->epsn = rq_psn;
	return 0;
}

int responder_set_depth(struct qp *qp, uint32_t max_dest_rd_atomic)
{
	struct responder *r = &qp->resp;
	uint32_t depth = max_dest_rd_atomic ? max_dest_rd_atomic : 1;
	struct reply *replies;
	struct atomic_result *atomics;

	r->depth = max_dest_rd_atomic;
	/* Room is only added: what the peer has open already may be more than it may open now. */
	if (depth <= r->atomic_slots)
		return 0;
	replies = calloc(2 * (size_t)depth, sizeof(*replies));
	atomics = calloc(depth, sizeof(*atomics));
	if (!replies || !atomics) {
		free(replies);
		free(atomics);
		return -ENOMEM;
	}
	for (uint32_t i = r->reply_head; i != r->reply_tail; i++)
		replies[i % (2 * depth)] = r->replies[i % r->reply_slots];
	for (uint32_t i = 0; i < r->atomic_slots; i++)
		atomics[i] = r->atomics[(r->atomic_next + i) % r->atomic_slots];
	free(r->replies);
	free(r->atomics);
	r->replies = replies;
	r->atomics = atomics;
	r->atomic_next = r->atomic_slots;
	r->reply_slots = 2 * depth;
	r->atomic_slots = depth;
	return 0;
}

bool responder_idle(const struct qp *qp)
{
	const struct responder *r = &qp->resp;

	return !r->ack_due && !r->relay.run && r->reply_head == r->reply_tail;
}

static void owe_ack(struct responder *r)
{
	r->ack_due = true;
	r->syndrome = AETH_ACK | AETH_CREDIT_INVALID;
	r->ack_psn = psn_sub(r->epsn, 1);
}

static void owe_nak(struct qp *qp, uint8_t syndrome)
{
	struct responder *r = &qp->resp;

	r->ack_due = true;
	r->syndrome = syndrome;
	r->ack_psn = r->epsn;
	r->nak_armed = true;
	r->last_out_of_order = r->epsn;
	if ((syndrome & AETH_KIND_MASK) == AETH_RNR_NAK)
		qp->counters.rnr_naks_sent++;
	else
		qp->counters.naks_sent++;
}

void responder_fail_receive(struct qp *qp, enum fault fault)
{
	if (faults[fault].recv_status && qp->resp.recv_taken)
		receive_complete(qp, NULL, faults[fault].recv_status);
}

void responder_fail(struct qp *qp, enum fault fault)
{
	if (fault == FAULT_NO_RECEIVE) {
		owe_nak(qp, (uint8_t)(AETH_RNR_NAK | qp->attr.min_rnr_timer));
		return;
	}
	responder_fail_receive(qp, fault);
	owe_nak(qp, (uint8_t)(AETH_NAK | faults[fault].nak));
	qp_fatal(qp, faults[fault].event);
}

/* READ and atomics. */

static struct reply *reply_at(const struct responder *r, uint32_t index)
{
	return &r->replies[index % r->reply_slots];
}

static uint32_t fresh_replies(const struct responder *r)
{
	uint32_t n = 0;

	for (uint32_t i = r->reply_head; i != r->reply_tail; i++)
		n += !reply_at(r, i)->duplicate;
	return n;
}

static bool owe_reply(struct responder *r, const struct reply *reply)
{
	if (r->reply_tail - r->reply_head == r->reply_slots)
		return false;
	*reply_at(r, r->reply_tail++) = *reply;
	/* It acknowledges all before it. */
	if ((r->syndrome & AETH_KIND_MASK) == AETH_ACK)
		r->ack_due = false;
	return true;
}

static enum fault read_fault(const struct qp *qp, const struct packet *pkt, const void **pd)
{
	enum fault fault = receive_domain(qp, pkt, pd);

	if (fault)
		return fault;
	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ))
		return FAULT_OPCODE;
	if (pkt->dma_len > QP_MAX_MSG)
		return FAULT_LENGTH;
	/* C9-88: the R_Key of a zero-length READ isn't checked. */
	if (pkt->dma_len &&
	    mem_check(qp->cfg.mem, *pd, pkt->rkey, pkt->va, pkt->dma_len, IBV_ACCESS_REMOTE_READ))
		return FAULT_ACCESS;
	return FAULT_NONE;
}

static struct reply read_reply(const struct qp *qp, const struct packet *pkt, const void *pd,
			       bool duplicate)
{
	return (struct reply){
		.psn = pkt->psn,
		.msn = qp->resp.msn,
		.duplicate = duplicate,
		.va = pkt->va,
		.rkey = pkt->rkey,
		.pd = pd,
		.left = pkt->dma_len,
		.mtu = responder_mtu(qp, pkt),
	};
}

static enum fault execute_read(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	const void *pd;
	enum fault fault = read_fault(qp, pkt, &pd);
	struct reply reply;

	if (fault)
		return fault;
	if (fresh_replies(r) >= r->depth)
		return FAULT_READ_DEPTH;
	r->msn = (r->msn + 1) & PSN_MASK;
	reply = read_reply(qp, pkt, pd, false);
	if (!owe_reply(r, &reply))
		return FAULT_READ_DEPTH;
	r->epsn = psn_add(r->epsn, requester_packets(pkt->dma_len, responder_mtu(qp, pkt)));
	return FAULT_NONE;
}

struct atomic_op {
	const struct packet *pkt;
	uint64_t old; /* ATOMIC WRITE: what it writes */
	bool unaligned;
};

static void atomic_execute(void *host, void *arg)
{
	struct atomic_op *op = arg;
	const struct packet *pkt = op->pkt;
	uint64_t *target = host;

	op->unaligned = (uintptr_t)host & 7;
	if (op->unaligned)
		return;
	if (pkt->op->kind == OP_ATOMIC_WRITE) {
		memcpy(&op->old, pkt->payload, sizeof(op->old));
		__atomic_store_n(target, op->old, __ATOMIC_SEQ_CST);
		return;
	}
	if (pkt->op->kind == OP_FETCH_ADD) {
		op->old = __atomic_fetch_add(target, pkt->swap_add, __ATOMIC_SEQ_CST);
		return;
	}
	op->old = pkt->compare;
	__atomic_compare_exchange_n(target, &op->old, pkt->swap_add, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

/* ATOMIC WRITE (annex A19) needs what a WRITE needs and is answered as a READ of nothing. */
static enum fault execute_atomic(struct qp *qp, const struct packet *pkt)
{
	const bool write = pkt->op->kind == OP_ATOMIC_WRITE;
	const unsigned access = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
	struct responder *r = &qp->resp;
	struct reply reply = { .psn = pkt->psn, .atomic = !write };
	struct atomic_op op = { .pkt = pkt };
	const void *pd;
	enum fault fault = receive_domain(qp, pkt, &pd);

	if (fault)
		return fault;
	if (!(qp->attr.qp_access_flags & access))
		return FAULT_OPCODE;
	if (write && pkt->dma_len != sizeof(uint64_t))
		return FAULT_LENGTH;
	if (pkt->va & 7)
		return FAULT_UNALIGNED;
	if (mem_check(qp->cfg.mem, pd, pkt->rkey, pkt->va, 8, access))
		return FAULT_ACCESS;
	if (fresh_replies(r) >= r->depth || r->reply_tail - r->reply_head == r->reply_slots)
		return FAULT_READ_DEPTH;
	if (mem_use(qp->cfg.mem, pd, pkt->rkey, pkt->va, 8, access, atomic_execute, &op))
		return FAULT_ACCESS;
	if (op.unaligned)
		return FAULT_UNALIGNED;
	r->msn = (r->msn + 1) & PSN_MASK;
	reply.msn = r->msn;
	reply.result = op.old;
	r->atomics[r->atomic_next++ % r->atomic_slots] = (struct atomic_result){
		.psn = pkt->psn, .valid = true, .write = write, .result = reply.result
	};
	owe_reply(r, &reply);
	r->epsn = psn_add(r->epsn, 1);
	return FAULT_NONE;
}

/* Repeated requests (IBA 9.7.5.1.3-4): READ is executed again, an atomic answered from the store,
 * all else acknowledged anew. */

static bool reply_pending(const struct responder *r, struct psn psn)
{
	for (uint32_t i = r->reply_head; i != r->reply_tail; i++)
		if (psn_eq(reply_at(r, i)->psn, psn))
			return true;
	return false;
}

static enum drop duplicate_read(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	struct psn end = psn_add(pkt->psn, requester_packets(pkt->dma_len, responder_mtu(qp, pkt)));
	struct reply reply;
	const void *pd;

	if (reply_pending(r, pkt->psn) || psn_diff(end, r->epsn) > 0 || read_fault(qp, pkt, &pd) ||
	    r->reply_tail - r->reply_head >= r->reply_slots / 2)
		return DROP_DUPLICATE;
	reply = read_reply(qp, pkt, pd, true);
	owe_reply(r, &reply);
	return DROP_NONE;
}

static enum drop duplicate_atomic(struct responder *r, const struct packet *pkt)
{
	struct reply reply = { .psn = pkt->psn, .msn = r->msn, .atomic = true, .duplicate = true };

	if (reply_pending(r, pkt->psn) || r->reply_tail - r->reply_head >= r->reply_slots / 2)
		return DROP_DUPLICATE;
	for (uint32_t i = 0; i < r->atomic_slots; i++) {
		if (!r->atomics[i].valid || !psn_eq(r->atomics[i].psn, pkt->psn))
			continue;
		reply.result = r->atomics[i].result;
		reply.atomic = !r->atomics[i].write;
		owe_reply(r, &reply);
		return DROP_NONE;
	}
	return DROP_DUPLICATE;
}

static enum drop duplicate(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;

	qp->counters.duplicates++;
	switch (pkt->op->kind) {
	case OP_READ_REQUEST:
		return duplicate_read(qp, pkt);
	case OP_COMPARE_SWAP:
	case OP_FETCH_ADD:
	case OP_ATOMIC_WRITE:
		return duplicate_atomic(r, pkt);
	default:
		/* A NAK that waits to be sent says more. */
		if (!r->ack_due)
			owe_ack(r);
		return DROP_NONE;
	}
}

static enum drop out_of_order(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;

	/* One NAK per gap, but a new one when the peer started over and we still miss epsn. */
	if (r->nak_armed && psn_diff(pkt->psn, r->last_out_of_order) <= 0)
		r->nak_armed = false;
	if (!r->nak_armed)
		owe_nak(qp, AETH_NAK | NAK_PSN_SEQUENCE);
	r->last_out_of_order = pkt->psn;
	return DROP_SEQUENCE;
}

void responder_advance(struct responder *r, const struct packet *pkt)
{
	r->nak_armed = false;
	r->epsn = psn_add(r->epsn, 1);
	if (pkt->op->position == POS_LAST || pkt->op->position == POS_ONLY)
		r->msn = (r->msn + 1) & PSN_MASK;
	/* The gap that an unsent NAK would have told of is closed. */
	if (pkt->ack_req || (r->ack_due && (r->syndrome & AETH_KIND_MASK) != AETH_ACK))
		owe_ack(r);
}

static enum fault execute(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	enum fault fault;

	switch (pkt->op->kind) {
	case OP_SEND:
	case OP_WRITE:
		fault = receive_message_packet(qp, pkt);
		if (fault)
			return fault;
		responder_advance(r, pkt);
		return FAULT_NONE;
	case OP_READ_REQUEST:
		return r->message ? FAULT_OPCODE_SEQUENCE : execute_read(qp, pkt);
	case OP_COMPARE_SWAP:
	case OP_FETCH_ADD:
	case OP_ATOMIC_WRITE:
		return r->message ? FAULT_OPCODE_SEQUENCE : execute_atomic(qp, pkt);
	default:
		return FAULT_OPCODE;
	}
}

enum drop responder_execute(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	int32_t distance = psn_diff(pkt->psn, r->epsn);
	enum fault fault;

	if (distance < 0)
		return duplicate(qp, pkt);
	if (distance > 0)
		return out_of_order(qp, pkt);
	r->nak_armed = false;
	fault = execute(qp, pkt);
	if (!fault) {
		/* The gap that an unsent NAK would have told of is closed. */
		if (r->ack_due && (r->syndrome & AETH_KIND_MASK) != AETH_ACK)
			owe_ack(r);
		return DROP_NONE;
	}
	responder_fail(qp, fault);
	return DROP_NONE;
}

enum drop responder_rx(struct qp *qp, const struct packet *pkt, uint64_t now_ns)
{
	(void)now_ns;
	return relay_wants(qp, pkt) ? relay_rx(qp, pkt) : responder_execute(qp, pkt);
}

void responder_forget_srq(struct qp *qp, const struct recv_queue *srq)
{
	struct responder *r = &qp->resp;

	if (r->queue != srq)
		return;
	r->queue = NULL;
	r->recv_taken = false;
}

void responder_flush(struct qp *qp)
{
	struct responder *r = &qp->resp;

	/* Only a NAK that says why may still leave. */
	r->reply_head = r->reply_tail;
	if (r->ack_due && (r->syndrome & AETH_KIND_MASK) == AETH_ACK)
		r->ack_due = false;
	r->message = MESSAGE_NONE;
	relay_clear(qp);
	if (r->recv_taken)
		receive_complete(qp, NULL, IBV_WC_WR_FLUSH_ERR);
	while (!qp->cfg.srq && recv_queue_take(&qp->rq, r->recv)) {
		r->recv_taken = true;
		receive_complete(qp, NULL, IBV_WC_WR_FLUSH_ERR);
	}
}
