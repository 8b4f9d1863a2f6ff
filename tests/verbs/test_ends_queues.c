/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queues between two ends, with traffic: a completion queue that changes its size, a send queue that is
 * drained, shared receive queues with their limit and their last work request, XRC.
 */
#include "ends.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 600
#define DEPTH	 12
#define LEAVING	 15
#define LEN	 64u

/* The near end sends MESSAGES, up to DEPTH at once; every completion comes once and in order. */
static void stream(struct ends *e, struct ibv_send_wr *wr)
{
	uint64_t posted = 0, done = 0;
	struct ibv_send_wr *bad;

	wr->send_flags |= IBV_SEND_SIGNALED;
	while (done < MESSAGES) {
		struct ibv_wc wc;
		int n;

		while (posted < MESSAGES && posted < done + DEPTH) {
			wr->wr_id = posted;
			assert_int_equal(ibv_post_send(e->qp, wr, &bad), 0);
			posted++;
		}
		n = ibv_poll_cq(e->cq, 1, &wc);
		assert_true(n >= 0);
		if (!n)
			continue;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, done++);
	}
}

static void stream_near(struct ends *e)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	sge = (struct ibv_sge){ (uintptr_t)e->r->buffer, LEN, e->r->mr->lkey };
	stream(e, &wr);
	ends_close(e);
}

/* Resized up and down, to as little as what may be waiting. */
static void resized_far(struct ends *e)
{
	static const int sizes[] = { DEPTH, 200, DEPTH + 1, 4096, 2 * DEPTH };
	struct ibv_wc wc[5];
	struct ibv_cq *cq;
	uint64_t next = 0, posted = 0;

	ends_open(e, IBV_QPT_RC);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	cq = rig_cq(e->r, 16, NULL);
	e->qp = rig_qp(e->r, IBV_QPT_RC, e->cq, cq, NULL);
	assert_int_equal(rig_to_init(e->qp), 0);
	for (; posted < DEPTH; posted++)
		assert_int_equal(rig_post_recv(e->r, e->qp, posted, 0, LEN), 0);
	ends_join(e, 0);
	for (unsigned i = 0; next < MESSAGES; i++) {
		int rc = ibv_resize_cq(cq, sizes[i % 5]), n;

		assert_int_equal(rc, 0);
		n = ibv_poll_cq(cq, 5, wc);
		assert_true(n >= 0);
		for (int k = 0; k < n; k++) {
			assert_int_equal(wc[k].status, IBV_WC_SUCCESS);
			assert_int_equal(wc[k].wr_id, next++);
			assert_int_equal(rig_post_recv(e->r, e->qp, posted++, 0, LEN), 0);
		}
	}
	ends_meet(e); /* its ends_close() */
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	rig_teardown(&(void *){ e->r });
}

static void completion_queue_resized(void **state)
{
	(void)state;
	ends_play(stream_near, resized_far);
}

static void take(struct ends *e, uint64_t *next, uint64_t until)
{
	while (*next < until) {
		struct ibv_wc wc = rig_await(e->cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, *next);
		++*next;
	}
}

/* WRITEs of their own number, drained in the middle: what was posted before the event is done, what was posted
 * after it waits, as the far end sees, and goes on afterwards with the attributes that were set meanwhile. */
static void drained_near(struct ends *e)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE };
	struct ibv_send_wr *bad;
	uint64_t next = 0, value = 0;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	wr.wr.rdma.remote_addr = e->peer.addr + FAR_AT;
	wr.wr.rdma.rkey = e->peer.rkey;
	sge = (struct ibv_sge){ (uintptr_t)&value, sizeof(value), 0 };
	for (unsigned i = 0; i < 20; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
		struct ibv_qp_init_attr init;

		for (unsigned k = 0; k < 8; k++) {
			wr.wr_id = value++;
			assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
		}
		assert_int_equal(
			ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
		for (unsigned k = 0; k < 4; k++) {
			wr.wr_id = value++;
			assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
		}
		ends_expect_event(e, IBV_EVENT_SQ_DRAINED, e->qp);
		assert_int_equal(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
		assert_int_equal(attr.qp_state, IBV_QPS_SQD);
		assert_int_equal(attr.sq_draining, 0);
		/* Those that had begun are complete; of the rest none is. */
		ends_meet(e);
		ends_swap(e, (struct hello){ 0 });
		while (next < e->peer.addr)
			take(e, &next, next + 1);
		assert_int_equal(ibv_poll_cq(e->cq, 1, &(struct ibv_wc){ 0 }), 0);
		attr.min_rnr_timer = 5;
		assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
		ends_meet(e);
		attr.qp_state = IBV_QPS_RTS;
		assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
		take(e, &next, value);
		ends_meet(e);
		ends_meet(e);
	}
	ends_close(e);
}

static uint64_t volatile_word(struct ends *e)
{
	return *(volatile uint64_t *)(e->r->buffer + FAR_AT);
}

static void drained_far(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, e->r->mr->rkey);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t seen;

		ends_meet(e);
		ends_swap(e, (struct hello){ .addr = volatile_word(e) });
		seen = volatile_word(e);
		for (unsigned k = 0; k < 1000; k++)
			assert_int_equal(ibv_poll_cq(e->cq, 1, &(struct ibv_wc){ 0 }), 0);
		assert_int_equal(volatile_word(e), seen);
		ends_meet(e);
		ends_meet(e);
		assert_int_equal(volatile_word(e), (i + 1) * 12);
		ends_meet(e);
	}
	ends_close(e);
}

static void send_queue_drained(void **state)
{
	(void)state;
	ends_play(drained_near, drained_far);
}

static void post_srq(struct ends *e, struct ibv_srq *srq, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)e->r->buffer + FAR_AT, LEN, e->r->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

static void shared_near(struct ends *e)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	sge = (struct ibv_sge){ (uintptr_t)e->r->buffer, LEN, e->r->mr->lkey };
	stream(e, &wr);
	ends_meet(e);
	/* One more, of what isn't there any more. */
	ends_meet(e);
	ends_hurry(e);
	assert_int_equal(ends_run(e, &wr).status, IBV_WC_RETRY_EXC_ERR);
	ends_close(e);
}

/* Refilled by its limit event alone, and of another size each time; then the queue pair fails and leaves the rest. */
static void shared_far(struct ends *e)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 32, .max_sge = 1 } };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_srq_attr attr;
	struct ibv_srq *srq;
	uint64_t posted = 0, next = 0;

	ends_open(e, IBV_QPT_RC);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	srq = ibv_create_srq(e->r->pd, &init);
	assert_non_null(srq);
	e->qp = rig_qp(e->r, IBV_QPT_RC, e->cq, e->cq, srq);
	for (; posted < 32; posted++)
		post_srq(e, srq, posted);
	attr = (struct ibv_srq_attr){ .srq_limit = 16 };
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	ends_join(e, 0);
	while (posted < MESSAGES + 8) {
		ends_expect_event(e, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
		assert_int_equal(ibv_query_srq(srq, &attr), 0);
		assert_int_equal(attr.srq_limit, 0);
		attr.max_wr = 32 + (uint32_t)posted % 100;
		assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
		for (unsigned i = 0; i < 12 && posted < MESSAGES + 8; i++)
			post_srq(e, srq, posted++);
		attr.srq_limit = 16;
		assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
		for (struct ibv_wc wc; ibv_poll_cq(e->cq, 1, &wc) == 1;)
			assert_int_equal(wc.wr_id, next++);
	}
	take(e, &next, MESSAGES);
	ends_meet(e); /* the near end has heard so */
	assert_int_equal(ibv_modify_qp(e->qp, &error, IBV_QP_STATE), 0);
	ends_expect_event(e, IBV_EVENT_QP_LAST_WQE_REACHED, e->qp);
	ends_meet(e);
	ends_meet(e); /* its ends_close() */
	assert_int_equal(ibv_poll_cq(e->cq, 1, &(struct ibv_wc){ 0 }), 0);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	rig_teardown(&(void *){ e->r });
}

static void shared_receives(void **state)
{
	(void)state;
	ends_play(shared_near, shared_far);
}

static void left_near(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	for (unsigned i = 0; i < LEAVING; i++) {
		ends_hasten(e);
		ends_meet(e);
		for (uint64_t k = 0; k < DEPTH; k++)
			assert_int_equal(rig_post_send(e->r, e->qp, k, 0, LEN, IBV_SEND_SIGNALED),
					 0);
		for (uint64_t k = 0; k < DEPTH; k++) {
			struct ibv_wc wc = rig_await(e->cq);

			assert_int_equal(wc.wr_id, k);
			/* What is lost isn't said again. */
			if (!ends_lossy())
				assert_int_equal(wc.status, IBV_WC_SUCCESS);
		}
		ends_again(e);
	}
	ends_close(e);
}

/* Who sent them hears that they arrived, though the receiver is gone as soon as it knew. */
static void left_far(struct ends *e)
{
	struct ibv_qp_attr attr = { 0 };

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	for (unsigned i = 0; i < LEAVING; i++) {
		for (uint64_t k = 0; k < DEPTH; k++)
			assert_int_equal(rig_post_recv(e->r, e->qp, k, FAR_AT, LEN), 0);
		ends_meet(e);
		rig_await_n(e->cq, DEPTH);
		attr.qp_state = i % 3 == 0 ? IBV_QPS_ERR : IBV_QPS_RESET;
		if (i % 3 < 2)
			assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
		ends_again(e); /* begins with ibv_destroy_qp() */
	}
	ends_close(e);
}

static void left_at_once(void **state)
{
	(void)state;
	ends_play(left_near, left_far);
}

static struct ibv_qp *xrc_qp(struct ends *e, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = xrcd ? IBV_QPT_XRC_RECV : IBV_QPT_XRC_SEND,
		.send_cq = xrcd ? NULL : e->cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 16 },
		.comp_mask = xrcd ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
		.pd = e->r->pd,
		.xrcd = xrcd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(e->r->ctx, &attr);

	assert_non_null(qp);
	return qp;
}

/* Each request names an SRQ, whose domain the memory is of. */
static void xrc_word(struct ends *e, enum ibv_wr_opcode opcode, uint32_t srqn)
{
	struct ibv_sge sge = { (uintptr_t)e->r->buffer, 8, e->r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode };

	wr.qp_type.xrc.remote_srqn = srqn;
	if (opcode == IBV_WR_RDMA_READ) {
		wr.wr.rdma.remote_addr = e->peer.addr + FAR_AT;
		wr.wr.rdma.rkey = e->peer.rkey;
	} else {
		wr.wr.atomic.remote_addr = e->peer.addr + FAR_AT;
		wr.wr.atomic.rkey = e->peer.rkey;
		wr.wr.atomic.compare_add = 5;
	}
	assert_int_equal(ends_run(e, &wr).status, IBV_WC_SUCCESS);
}

/* Messages to two SRQs in turn, and between them all that needs none. */
static void xrc_near(struct ends *e)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_qp *own;

	ends_open(e, IBV_QPT_RC);
	own = e->qp;
	e->qp = xrc_qp(e, NULL);
	ends_join(e, 0);
	ends_swap(e, (struct hello){ .qpn = e->qp->qp_num });
	for (unsigned i = 0; i < 30; i++) {
		const uint32_t len = i * 100;

		ends_fill(e, 0, len, i);
		sge = (struct ibv_sge){ (uintptr_t)e->r->buffer, len, e->r->mr->lkey };
		wr.opcode = i % 4 < 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.wr.rdma.remote_addr = e->peer.addr + 2 * FAR_AT;
		wr.wr.rdma.rkey = e->peer.rkey;
		wr.imm_data = htobe32(i);
		wr.qp_type.xrc.remote_srqn = i % 2 ? e->peer.other_rkey : e->peer.srqn;
		assert_int_equal(ends_run(e, &wr).status, IBV_WC_SUCCESS);
		xrc_word(e, IBV_WR_ATOMIC_FETCH_AND_ADD, wr.qp_type.xrc.remote_srqn);
		assert_int_equal(ends_word(e, 0), 5 * i);
		xrc_word(e, IBV_WR_RDMA_READ, wr.qp_type.xrc.remote_srqn);
		assert_int_equal(ends_word(e, 0), 5 * (i + 1));
		ends_meet(e);
		ends_meet(e);
	}
	/* A number that is no SRQ's. */
	wr.qp_type.xrc.remote_srqn = e->peer.srqn ^ 0x800;
	ends_hasten(e);
	ends_expect_refused(ends_run(e, &wr).status, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	e->qp = own;
	ends_close(e);
}

static struct ibv_srq *xrc_srq(struct ends *e, struct ibv_xrcd *xrcd, uint32_t *number)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = e->r->pd,
		.xrcd = xrcd,
		.cq = e->cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(e->r->ctx, &attr);

	assert_non_null(srq);
	assert_int_equal(ibv_get_srq_num(srq, number), 0);
	return srq;
}

static void xrc_far(struct ends *e)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq *srq[2];
	struct ibv_xrcd *xrcd;
	struct ibv_qp *own;
	uint32_t number[2];

	ends_open(e, IBV_QPT_RC);
	own = e->qp;
	xrcd = ibv_open_xrcd(e->r->ctx, &attr);
	assert_non_null(xrcd);
	e->qp = xrc_qp(e, xrcd);
	for (unsigned i = 0; i < 2; i++)
		srq[i] = xrc_srq(e, xrcd, &number[i]);
	ends_set_word(e, FAR_AT, 0);
	assert_int_equal(rig_to_init(e->qp), 0);
	ends_join(e, 0);
	for (unsigned i = 0; i < 30; i++) {
		struct ibv_sge sge = { (uintptr_t)e->r->buffer + 4 * FAR_AT, 4096, e->r->mr->lkey };
		struct ibv_recv_wr recv = { .wr_id = 100 + i, .sg_list = &sge, .num_sge = 1 }, *bad;
		struct ibv_wc wc;

		assert_int_equal(ibv_post_srq_recv(srq[i % 2], &recv, &bad), 0);
		if (i == 0)
			ends_swap(e, (struct hello){ .srqn = number[0],
						     .other_rkey = number[1],
						     .rkey = e->r->mr->rkey,
						     .addr = (uintptr_t)e->r->buffer });
		wc = rig_await(e->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, 100 + i);
		assert_int_equal(wc.byte_len, i * 100);
		assert_int_equal(wc.src_qp, number[i % 2]);
		ends_meet(e);
		ends_expect_filled(e, (i % 4 < 2 ? 4 : 2) * FAR_AT, i * 100, i);
		ends_meet(e);
	}
	ends_expect_event(e, IBV_EVENT_QP_REQ_ERR, e->qp);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_srq(srq[i]), 0);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	e->qp = own;
	ends_close(e);
}

static void xrc(void **state)
{
	(void)state;
	ends_play(xrc_near, xrc_far);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(completion_queue_resized),
		TEST(send_queue_drained),
		TEST(shared_receives),
		TEST(left_at_once),
		TEST(xrc),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
