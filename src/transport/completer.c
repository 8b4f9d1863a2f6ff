/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/completer.h"

#include "transport/qp.h"

void completer_start(struct qp *qp, struct psn sq_psn)
{
	qp->comp = (struct completer){ .una = sq_psn };
}

static struct send_wqe *oldest(const struct qp *qp)
{
	return ring_slot(&qp->sq, ring_head(&qp->sq));
}

static enum ibv_wc_opcode wc_opcode(const struct send_wqe *w)
{
	switch ((enum ibv_wr_opcode)w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_TSO:
		return IBV_WC_TSO;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_DRIVER1:
		return IBV_WC_SEND;
	case IBV_WR_ATOMIC_WRITE:
		return IBV_WC_ATOMIC_WRITE;
	}
	return IBV_WC_SEND;
}

/* Take the oldest work request off the queue, with a completion where one is due. */
static void retire_oldest(struct qp *qp, enum ibv_wc_status status)
{
	const struct send_wqe *w = oldest(qp);
	struct ibv_wc wc = {
		.wr_id = w->wr_id,
		.status = status,
		.opcode = wc_opcode(w),
		.byte_len = w->len,
		.qp_num = qp->qpn,
	};
	bool wanted = status != IBV_WC_SUCCESS || qp->cfg.sq_sig_all ||
		      (w->send_flags & IBV_SEND_SIGNALED);

	/* Retired first: whoever sees the completion may post to the slot. */
	ring_retire(&qp->sq);
	if (wanted)
		qp->cfg.ops->complete(qp->cfg.send_cq, &wc, status != IBV_WC_SUCCESS);
}

void completer_flush_send(struct qp *qp)
{
	while (ring_count(&qp->sq))
		retire_oldest(qp, IBV_WC_WR_FLUSH_ERR);
	qp->req.cur = qp->req.assigned = ring_head(&qp->sq);
	qp->req.pkt = 0;
	qp->req.fault = IBV_WC_SUCCESS;
}

void completer_finish(struct qp *qp, enum ibv_wc_status status)
{
	retire_oldest(qp, status);
	if (status != IBV_WC_SUCCESS)
		qp_send_error(qp);
}

/* Move una towards `to`; without through_responses it stops at a READ or atomic. True: una moved.
 */
static bool move_una(struct qp *qp, struct psn to, bool through_responses)
{
	struct completer *c = &qp->comp;
	bool moved = false;

	while (psn_diff(to, c->una) > 0) {
		const struct send_wqe *w = oldest(qp);
		struct psn end = psn_add(w->first_psn, w->packets);

		if (send_wqe_wants_response(w) && !through_responses)
			break;
		moved = true;
		if (psn_diff(to, end) < 0) {
			c->una = to;
			break;
		}
		c->una = end;
		completer_finish(qp, IBV_WC_SUCCESS);
	}
	return moved;
}

static void progressed(struct qp *qp, uint64_t now_ns)
{
	qp->comp.went_back = false;
	requester_acked(qp);
	retry_progress(qp, now_ns);
}

/* The responses from una on were lost, as something behind them shows: ask again, once. */
static void lost_response(struct qp *qp)
{
	struct completer *c = &qp->comp;

	if (c->went_back && psn_eq(c->gone_back, c->una))
		return;
	c->went_back = true;
	c->gone_back = c->una;
	qp->counters.retransmitted++;
	requester_seek(qp, c->una);
}

/* All before `to` is acknowledged. False: a response before it is missing. */
static bool acknowledge_before(struct qp *qp, struct psn to, uint64_t now_ns)
{
	if (move_una(qp, to, false))
		progressed(qp, now_ns);
	if (psn_diff(to, qp->comp.una) <= 0)
		return true;
	lost_response(qp);
	return false;
}

static enum ibv_wc_status nak_status(unsigned code)
{
	switch (code) {
	case NAK_REMOTE_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case NAK_REMOTE_OPERATIONAL:
		return IBV_WC_REM_OP_ERR;
	case NAK_INVALID_REQUEST:
		return IBV_WC_REM_INV_REQ_ERR;
	default:
		return IBV_WC_REM_INV_RD_REQ_ERR;
	}
}

static enum drop nak(struct qp *qp, const struct packet *pkt, uint64_t now_ns)
{
	unsigned code = pkt->syndrome & AETH_VALUE_MASK;

	if (code > NAK_INVALID_RD_REQUEST)
		return DROP_STALE;
	qp->counters.naks_received++;
	if (!acknowledge_before(qp, pkt->psn, now_ns))
		return DROP_NONE;
	if (code == NAK_PSN_SEQUENCE)
		retry_sequence_nak(qp, now_ns);
	else
		completer_finish(qp, nak_status(code));
	return DROP_NONE;
}

static enum drop acknowledge(struct qp *qp, const struct packet *pkt, uint64_t now_ns)
{
	switch (pkt->syndrome & AETH_KIND_MASK) {
	case AETH_ACK:
		acknowledge_before(qp, psn_add(pkt->psn, 1), now_ns);
		return DROP_NONE;
	case AETH_RNR_NAK:
		qp->counters.rnr_naks_received++;
		if (!acknowledge_before(qp, pkt->psn, now_ns))
			return DROP_NONE;
		requester_seek(qp, qp->comp.una);
		retry_rnr_nak(qp, pkt->syndrome & AETH_VALUE_MASK, now_ns);
		return DROP_NONE;
	case AETH_NAK:
		return nak(qp, pkt, now_ns);
	default:
		return DROP_STALE;
	}
}

static enum drop response_data(struct qp *qp, const struct send_wqe *w, const struct packet *pkt)
{
	uint32_t offset = (uint32_t)psn_diff(pkt->psn, w->first_psn) * qp->req.mtu;
	uint32_t left = w->len - offset;
	uint64_t result = pkt->atomic_result;
	const uint8_t *data = pkt->payload;
	uint32_t len = pkt->payload_len;

	if (w->opcode == IBV_WR_ATOMIC_WRITE) {
		/* Answered as a READ of nothing. */
		if (pkt->op->kind != OP_READ_RESPONSE || len)
			return DROP_STALE;
		move_una(qp, psn_add(pkt->psn, 1), true);
		return DROP_NONE;
	}
	if (send_wqe_is_atomic(w)) {
		if (pkt->op->kind != OP_ATOMIC_ACKNOWLEDGE)
			return DROP_STALE;
		data = (const uint8_t *)&result;
		len = sizeof(result);
	} else if (w->opcode != IBV_WR_RDMA_READ || pkt->op->kind != OP_READ_RESPONSE ||
		   len != (left < qp->req.mtu ? left : qp->req.mtu)) {
		return DROP_STALE;
	}
	if (mem_scatter(qp->cfg.mem, qp->cfg.pd, w->sge, w->num_sge, offset, data, len)) {
		completer_finish(qp, IBV_WC_LOC_PROT_ERR);
		return DROP_NONE;
	}
	move_una(qp, psn_add(pkt->psn, 1), true);
	return DROP_NONE;
}

static enum drop response(struct qp *qp, const struct packet *pkt, uint64_t now_ns)
{
	enum drop drop;

	/* A response acknowledges all before it. */
	if (!acknowledge_before(qp, pkt->psn, now_ns))
		return DROP_SEQUENCE;
	drop = response_data(qp, oldest(qp), pkt);
	if (!drop && atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_ERR)
		progressed(qp, now_ns);
	return drop;
}

enum drop completer_rx(struct qp *qp, const struct packet *pkt, uint64_t now_ns)
{
	/* Only what answers something sent and not yet acknowledged counts. */
	if (psn_diff(pkt->psn, qp->comp.una) < 0 || psn_diff(pkt->psn, qp->req.max) >= 0)
		return DROP_STALE;
	if (pkt->op->kind == OP_ACKNOWLEDGE)
		return acknowledge(qp, pkt, now_ns);
	return response(qp, pkt, now_ns);
}
