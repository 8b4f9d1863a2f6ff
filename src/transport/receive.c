/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/receive.h"

#include "transport/qp.h"
#include "transport/relay.h"

bool receive_take(struct qp *qp)
{
	struct responder *r = &qp->resp;

	if (!r->recv_taken && r->starved) {
		r->starved = false;
		return false;
	}
	if (!r->recv_taken)
		r->recv_taken = recv_queue_take(r->queue, r->recv);
	return r->recv_taken;
}

void receive_complete(struct qp *qp, const struct packet *pkt, enum ibv_wc_status status)
{
	struct responder *r = &qp->resp;
	struct ibv_wc wc = {
		.wr_id = r->recv->wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.qp_num = qp->qpn,
	};

	if (pkt) {
		wc.byte_len = r->offset;
		/* What a program needs beside the target's number is whose message it is: the SRQ. */
		wc.src_qp = qp->cfg.type == IBV_QPT_XRC_RECV ? pkt->xrc_srqn : qp->attr.dest_qp_num;
		if (pkt->op->kind == OP_WRITE)
			wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		if (pkt->op->headers & HDR_IMM) {
			wc.wc_flags |= IBV_WC_WITH_IMM;
			wc.imm_data = pkt->imm;
		}
		if (pkt->op->headers & HDR_IETH) {
			wc.wc_flags |= IBV_WC_WITH_INV;
			wc.invalidated_rkey = pkt->invalidate_rkey;
		}
	}
	r->recv_taken = false;
	qp->cfg.ops->complete(r->queue->cq ? r->queue->cq : qp->cfg.recv_cq, &wc,
			      status != IBV_WC_SUCCESS || pkt->solicited);
}

static struct recv_queue *named_srq(const struct qp *qp, const struct packet *pkt)
{
	return qp->cfg.find_srq(qp->cfg.xrcd, pkt->xrc_srqn);
}

enum fault receive_domain(const struct qp *qp, const struct packet *pkt, const void **pd)
{
	const struct recv_queue *srq;

	*pd = qp->cfg.pd;
	if (qp->cfg.type == IBV_QPT_XRC_RECV) {
		srq = named_srq(qp, pkt);
		if (!srq) {
			if (qp->cfg.relay && qp->cfg.relay->is_elsewhere(qp, pkt->xrc_srqn))
				qp->cfg.relay->refused(qp, pkt);
			return FAULT_XRC_SRQ;
		}
		*pd = srq->pd;
	}
	*pd = mem_domain(qp->cfg.mem, *pd, qp, pkt->rkey);
	return FAULT_NONE;
}

static bool begins(const struct packet *pkt)
{
	return pkt->op->position == POS_FIRST || pkt->op->position == POS_ONLY;
}

static bool ends(const struct packet *pkt)
{
	return pkt->op->position == POS_LAST || pkt->op->position == POS_ONLY;
}

/* IBA 9.7.4.1.1: only certain opcodes may follow one another. */
enum fault receive_check_sequence(const struct responder *r, const struct packet *pkt)
{
	enum message kind = pkt->op->kind == OP_SEND ? MESSAGE_SEND : MESSAGE_WRITE;

	if (begins(pkt))
		return r->message == MESSAGE_NONE ? FAULT_NONE : FAULT_OPCODE_SEQUENCE;
	return r->message == kind ? FAULT_NONE : FAULT_OPCODE_SEQUENCE;
}

/* XRC: every packet of a message names the same SRQ. */
static enum fault check_srq(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	struct recv_queue *srq;

	if (qp->cfg.type != IBV_QPT_XRC_RECV)
		return FAULT_NONE;
	srq = named_srq(qp, pkt);
	if (!srq)
		return FAULT_XRC_SRQ;
	if (!begins(pkt))
		return srq == r->queue ? FAULT_NONE : FAULT_OPCODE_SEQUENCE;
	r->queue = srq;
	return FAULT_NONE;
}

/* FIRST and MIDDLE carry exactly the path MTU, LAST at least a byte, none more than it. */
static enum fault check_length(const struct qp *qp, const struct packet *pkt)
{
	const uint32_t mtu = responder_mtu(qp, pkt);

	if (pkt->payload_len > mtu)
		return FAULT_LENGTH;
	if (!ends(pkt) && pkt->payload_len != mtu)
		return FAULT_LENGTH;
	if (pkt->op->position == POS_LAST && pkt->payload_len == 0)
		return FAULT_LENGTH;
	return FAULT_NONE;
}

static enum fault place_send(struct qp *qp, const struct packet *pkt, uint32_t offset)
{
	const struct recv_wqe *recv = qp->resp.recv;

	if (!receive_take(qp))
		return FAULT_NO_RECEIVE;
	if ((uint64_t)offset + pkt->payload_len > recv->len)
		return FAULT_RECEIVE_LENGTH;
	if (mem_scatter(qp->cfg.mem, qp->resp.queue->pd, recv->sge, recv->num_sge, offset,
			pkt->payload, pkt->payload_len))
		return FAULT_RECEIVE_KEY;
	/* The window is free before the program hears of the message. */
	if ((pkt->op->headers & HDR_IETH) &&
	    mem_invalidate(qp->cfg.mem, qp->resp.queue->pd, qp, pkt->invalidate_rkey))
		return FAULT_INVALIDATE;
	return FAULT_NONE;
}

static enum fault check_reth(const struct qp *qp, const struct packet *pkt)
{
	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return FAULT_OPCODE;
	if (pkt->dma_len > QP_MAX_MSG)
		return FAULT_LENGTH;
	/* C9-88: the R_Key of a zero-length WRITE isn't checked. */
	if (pkt->dma_len && mem_check(qp->cfg.mem, qp->resp.pd, pkt->rkey, pkt->va, pkt->dma_len,
				      IBV_ACCESS_REMOTE_WRITE))
		return FAULT_ACCESS;
	return FAULT_NONE;
}

static enum fault place_write(struct qp *qp, const struct packet *pkt, uint32_t offset)
{
	struct responder *r = &qp->resp;
	uint32_t after = offset + pkt->payload_len;
	enum fault fault;

	if (begins(pkt)) {
		fault = receive_domain(qp, pkt, &r->pd);
		if (!fault)
			fault = check_reth(qp, pkt);
		if (fault)
			return fault;
		r->va = pkt->va;
		r->rkey = pkt->rkey;
		r->dma_len = pkt->dma_len;
	}
	/* The data must be what the RETH announced, neither more nor, at the end, less. */
	if (after > r->dma_len || (ends(pkt) && after != r->dma_len))
		return FAULT_LENGTH;
	if ((pkt->op->flags & OPF_RECV_END) && !receive_take(qp))
		return FAULT_NO_RECEIVE;
	if (pkt->payload_len == 0)
		return FAULT_NONE;
	if (mem_write(qp->cfg.mem, r->pd, r->rkey, r->va + offset, pkt->payload_len,
		      IBV_ACCESS_REMOTE_WRITE, pkt->payload))
		return FAULT_ACCESS;
	return FAULT_NONE;
}

enum fault receive_message_packet(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	uint32_t offset = begins(pkt) ? 0 : r->offset;
	enum fault fault;

	fault = receive_check_sequence(r, pkt);
	if (!fault)
		fault = check_srq(qp, pkt);
	if (!fault)
		fault = check_length(qp, pkt);
	if (!fault)
		fault = pkt->op->kind == OP_SEND ? place_send(qp, pkt, offset)
						 : place_write(qp, pkt, offset);
	if (fault)
		return fault;
	r->offset = offset + pkt->payload_len;
	if (!ends(pkt)) {
		r->message = pkt->op->kind == OP_SEND ? MESSAGE_SEND : MESSAGE_WRITE;
		return FAULT_NONE;
	}
	r->message = MESSAGE_NONE;
	if (pkt->op->flags & OPF_RECV_END)
		receive_complete(qp, pkt, IBV_WC_SUCCESS);
	return FAULT_NONE;
}
