/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting work requests: the checks that ibv_post_send(3) and ibv_post_recv(3) promise, then a copy
 * into the ring. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "transport/qp.h"
#include "transport/qp_attr.h"
#include "transport/segment.h"

static bool opcode_allowed(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	if (type == IBV_QPT_XRC_RECV)
		return false;
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return type != IBV_QPT_UD;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_WRITE:
	/* UC has no opcode for it (IBA table 38). */
	case IBV_WR_SEND_WITH_INV:
		return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return type != IBV_QPT_UD;
	case IBV_WR_TSO:
	case IBV_WR_DRIVER1:
		break;
	}
	return false;
}

static bool is_local(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int refuse(const struct qp *qp, const char *why, unsigned given, unsigned right)
{
	log_info("post_send on queue pair 0x%06x (%s): %s (given %u, limit %u)", qp->qpn,
		 qp_type_name(qp->cfg.type), why, given, right);
	return EINVAL;
}

static int check_bind(const struct qp *qp, const struct ibv_send_wr *wr)
{
	if (!wr->bind_mw.mw)
		return refuse(qp, "bind_mw.mw is missing", 0, 0);
	if (!wr->bind_mw.bind_info.mr && wr->bind_mw.bind_info.length)
		return refuse(qp, "bind_mw.bind_info.mr is missing", 0, 0);
	return 0;
}

/* A message's own rules. */
static int check_message(const struct qp *qp, const struct ibv_send_wr *wr, uint64_t len)
{
	bool inlined = wr->send_flags & IBV_SEND_INLINE;

	if (inlined && (wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr->opcode)))
		return refuse(qp, "READ and atomics can't be inline: opcode", wr->opcode, 0);
	if (len > QP_MAX_MSG)
		return refuse(qp, "message longer than 2^31 bytes", UINT32_MAX, QP_MAX_MSG);
	if (is_atomic(wr->opcode) && len < 8)
		return refuse(qp, "an atomic's local buffer holds 8 bytes", (unsigned)len, 8);
	if (wr->opcode == IBV_WR_ATOMIC_WRITE && (len != 8 || wr->wr.rdma.remote_addr & 7))
		return refuse(qp, "ATOMIC WRITE writes 8 bytes to a multiple of 8: bytes",
			      (unsigned)len, 8);
	return 0;
}

/* The rules that hold whatever the ring's state. *len: bytes of the message. */
static int check_wr(const struct qp *qp, const struct ibv_send_wr *wr, const struct path *path,
		    uint64_t *len)
{
	int state = atomic_load_explicit(&qp->state, memory_order_acquire);
	bool inlined = wr->send_flags & IBV_SEND_INLINE;

	if (state < IBV_QPS_RTS)
		return refuse(qp, "the queue pair is not in RTS yet: state", (unsigned)state,
			      IBV_QPS_RTS);
	if (!opcode_allowed(qp->cfg.type, wr->opcode))
		return refuse(qp, "this service doesn't have the operation: opcode", wr->opcode, 0);
	if (is_local(wr->opcode)) {
		*len = 0;
		return wr->opcode == IBV_WR_BIND_MW ? check_bind(qp, wr) : 0;
	}
	if (wr->num_sge < 0 || (!inlined && (uint32_t)wr->num_sge > qp->cfg.cap.max_send_sge))
		return refuse(qp, "too many scatter/gather entries", (unsigned)wr->num_sge,
			      qp->cfg.cap.max_send_sge);
	*len = mem_sge_len(wr->sg_list, (unsigned)wr->num_sge);
	if (inlined && *len > qp->cfg.cap.max_inline_data)
		return refuse(qp, "too much inline data", (unsigned)*len,
			      qp->cfg.cap.max_inline_data);
	if (check_message(qp, wr, *len))
		return EINVAL;
	if (qp_is_reliable(qp) && qp->req.max_reads == 0 && state == IBV_QPS_RTS &&
	    (wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_ATOMIC_WRITE ||
	     is_atomic(wr->opcode)))
		return refuse(qp, "READ and atomics need max_rd_atomic of at least 1", 0, 1);
	if (qp->cfg.type == IBV_QPT_UD) {
		if (!path)
			return refuse(qp, "wr.ud.ah is missing", 0, 0);
		if (*len > qp->mtu)
			return refuse(qp, "a datagram must fit the port's MTU: bytes",
				      (unsigned)*len, qp->mtu);
	}
	return 0;
}

static void copy_bind(struct send_wqe *w, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;

	w->bind = (struct mem_bind){
		.window_key = wr->bind_mw.mw->rkey,
		.new_key = wr->bind_mw.rkey,
		.region_key = info->mr ? info->mr->lkey : 0,
		.access = info->mw_access_flags,
		.addr = info->addr,
		.length = info->length,
	};
}

static void copy_data(struct send_wqe *w, const struct ibv_send_wr *wr)
{
	uint8_t *out = (uint8_t *)w->sge;

	w->num_sge = (uint8_t)wr->num_sge;
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		for (int i = 0; i < wr->num_sge; i++)
			w->sge[i] = wr->sg_list[i];
		return;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(out, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		out += wr->sg_list[i].length;
	}
	w->num_sge = 0;
}

static void copy_target(const struct qp *qp, struct send_wqe *w, const struct ibv_send_wr *wr,
			const struct path *path)
{
	if (qp->cfg.type == IBV_QPT_UD) {
		w->path = *path;
		w->dest_qpn = wr->wr.ud.remote_qpn & PSN_MASK;
		w->path.sport = qp_sport(qp, w->dest_qpn);
		/* The high bit means: use the queue pair's own (IBA 10.2.5). */
		w->qkey =
			wr->wr.ud.remote_qkey & 0x80000000u ? qp->attr.qkey : wr->wr.ud.remote_qkey;
	} else if (send_wqe_is_atomic(w)) {
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
		w->len = 8;
	} else {
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
}

int qp_post_send(struct qp *qp, const struct ibv_send_wr *wr, const struct path *path)
{
	struct send_wqe *w;
	uint64_t len;
	int ret = check_wr(qp, wr, path, &len);

	if (ret)
		return ret;
	w = ring_claim(&qp->sq);
	if (!w) {
		refuse(qp, "the send queue is full: work requests", qp->sq.max, qp->sq.max);
		return ENOMEM;
	}
	w->wr_id = wr->wr_id;
	w->opcode = (uint8_t)wr->opcode;
	w->send_flags = (uint8_t)wr->send_flags;
	w->imm = wr->imm_data;
	w->dest_srqn = wr->qp_type.xrc.remote_srqn & PSN_MASK;
	w->len = (uint32_t)len;
	if (is_local(wr->opcode)) {
		w->num_sge = 0;
		if (wr->opcode == IBV_WR_BIND_MW)
			copy_bind(w, wr);
	} else {
		copy_data(w, wr);
		copy_target(qp, w, wr, path);
	}
	ring_publish(&qp->sq);
	return 0;
}

int qp_post_recv(struct qp *qp, const struct ibv_recv_wr *wr)
{
	int ret;

	if (atomic_load_explicit(&qp->state, memory_order_acquire) == IBV_QPS_RESET ||
	    qp->cfg.srq) {
		log_info("post_recv on queue pair 0x%06x: %s", qp->qpn,
			 qp->cfg.srq ? "it draws from an SRQ; post there"
				     : "it is in RESET; move it to INIT first");
		return EINVAL;
	}
	ret = recv_queue_post(&qp->rq, wr);
	if (ret)
		log_info("post_recv on queue pair 0x%06x: %d SGEs (at most %u), %u receives posted "
			 "(at most %u): %s",
			 qp->qpn, wr->num_sge, qp->rq.max_sge, ring_count(&qp->rq.ring),
			 qp->rq.ring.max, strerror(ret));
	return ret;
}
