/* SPDX-License-Identifier: BSD-2-Clause */
/* Work requests and completions. wr_id: the kind in bit 63, the queue pair in bits 32 to 62. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "tools/pingpong.h"

#define WR_RECV (UINT64_C(1) << 63)

uint64_t pp_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

bool pp_wc_is_recv(const struct ibv_wc *wc)
{
	return wc->wr_id & WR_RECV;
}

unsigned pp_wc_qp(const struct ibv_wc *wc)
{
	return (unsigned)(wc->wr_id >> 32 & 0x7fffffff);
}

int pp_post_recv(struct pp *pp, unsigned qp, uint64_t seq)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)pp_recv_slot(pp, qp, seq),
		.length = pp->plan.size + (pp->plan.type == PP_UD ? PP_GRH : 0),
		.lkey = pp->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = WR_RECV | (uint64_t)qp << 32,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad;
	int ret = pp->srq ? ibv_post_srq_recv(pp->srq, &wr, &bad)
			  : ibv_post_recv(pp->ep[qp]->qp, &wr, &bad);

	return ret ? pp_fail(&pp->err, ROCELINK_VERBS, "ibv_post_recv: %s", strerror(ret))
		   : ROCELINK_OK;
}

static int post(struct pp *pp, unsigned qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int ret;

	wr->wr_id = (uint64_t)qp << 32;
	wr->num_sge = wr->sg_list ? 1 : 0;
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->qp_type.xrc.remote_srqn = pp->info[qp].remote_srqn;
	ret = ibv_post_send(pp->ep[qp]->qp, wr, &bad);
	if (ret)
		return pp_fail(&pp->err, ROCELINK_VERBS, "ibv_post_send: %s", strerror(ret));
	if (!pp->first_posted) {
		pp->first_posted = true;
		pp_explain(pp, "first work request: ibv_post_send %s, %u bytes, on QPN 0x%06x",
			   pp_op_name(pp->plan.op), wr->sg_list ? wr->sg_list->length : 0,
			   pp->ep[qp]->qp->qp_num);
	}
	return ROCELINK_OK;
}

static void address_datagram(const struct pp *pp, unsigned qp, struct ibv_send_wr *wr)
{
	if (pp->plan.type != PP_UD)
		return;
	wr->wr.ud.ah = pp->info[qp].ah;
	wr->wr.ud.remote_qpn = pp->info[qp].remote_qpn;
	wr->wr.ud.remote_qkey = pp->info[qp].remote_qkey;
}

static int post_message(struct pp *pp, unsigned qp, uint64_t seq, const uint32_t *number)
{
	uint8_t *slot = pp_send_slot(pp, seq);
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot,
		.length = pp->plan.size,
		.lkey = pp->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.opcode = number ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.imm_data = number ? htonl(*number) : 0,
	};
	bool immediate = pp->plan.immediate || number;

	if (pp->plan.verify)
		pp_fill(pp, slot, seq, pp->client);
	if (pp->plan.op == PP_WRITE) {
		wr.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = pp_remote_slot(pp, seq);
		wr.wr.rdma.rkey = pp->remote.rkey;
		if (!immediate)
			slot[pp->plan.size - 1] = pp_flag(pp, seq);
	}
	address_datagram(pp, qp, &wr);
	return post(pp, qp, &wr);
}

/* SEND or WRITE, of message number seq. */
int pp_post_send(struct pp *pp, unsigned qp, uint64_t seq)
{
	return post_message(pp, qp, seq, NULL);
}

int pp_post_numbered(struct pp *pp, uint64_t seq, uint32_t number)
{
	return post_message(pp, 0, seq, &number);
}

int pp_post_count(struct pp *pp, uint32_t count)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(count) };

	address_datagram(pp, 0, &wr);
	return post(pp, 0, &wr);
}

/* READ, fetch-and-add or compare-and-swap number seq; the answer goes into its slot. */
int pp_post_read(struct pp *pp, uint64_t seq)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)pp_send_slot(pp, seq),
		.length = pp->plan.size,
		.lkey = pp->mr->lkey,
	};
	struct ibv_send_wr wr = { .sg_list = &sge, .opcode = IBV_WR_RDMA_READ };

	if (pp->plan.op == PP_READ) {
		wr.wr.rdma.remote_addr = pp_remote_slot(pp, seq);
		wr.wr.rdma.rkey = pp->remote.rkey;
		return post(pp, 0, &wr);
	}
	wr.opcode = pp->plan.op == PP_FETCH_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD
						: IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.remote_addr = pp_remote_slot(pp, 0);
	wr.wr.atomic.rkey = pp->remote.rkey;
	wr.wr.atomic.compare_add = pp->plan.op == PP_FETCH_ADD ? 1 : seq;
	wr.wr.atomic.swap = seq + 1;
	return post(pp, 0, &wr);
}

int pp_wait_for(struct pp *pp, uint64_t timeout_us, struct ibv_wc *wc)
{
	int rc = rocelink_wait_completion(pp->ep[0]->cq, pp->ep[0]->channel, timeout_us, wc,
					  &pp->err);

	if (rc == ROCELINK_OK && !pp->first_completed) {
		pp->first_completed = true;
		pp_explain(pp, "first completion: %s, status %d (%s), %u bytes",
			   pp_wc_is_recv(wc) ? "a receive" : pp_op_name(pp->plan.op), wc->status,
			   ibv_wc_status_str(wc->status),
			   pp_wc_is_recv(wc) ? wc->byte_len : pp->plan.size);
	}
	return rc;
}

int pp_wait(struct pp *pp, struct ibv_wc *wc)
{
	int rc = pp_wait_for(pp, PP_STALL_US, wc);

	if (rc == ROCELINK_TIMEOUT && !pp_reliable(pp)) {
		/* The sentence above is about the queue; the cause is the service. */
		return pp_fail(&pp->err, ROCELINK_TIMEOUT,
			       "nothing came for %d s: a message was lost, and %s repeats nothing "
			       "(or the peer has ended); try again, or use --type rc",
			       PP_STALL_US / 1000000, pp->plan.type == PP_UC ? "UC" : "UD");
	}
	return rc;
}
