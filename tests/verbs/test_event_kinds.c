/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What brings each asynchronous event of a queue pair, CQ or SRQ, with what completes beside it; that
 * events come in the order in which they happened, to the context whose object it is; and that an
 * object's destroyer waits until each event that was read is acknowledged. (Those of the port are in
 * test_event.c, the device's in test_fault.c.)
 */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* The next event, whatever it is; this one is expected, of this object. */
static struct ibv_async_event next_event(struct ibv_context *ctx, enum ibv_event_type type,
					 const void *element)
{
	struct ibv_async_event event;

	assert_true(rig_readable(ctx->async_fd, 30000));
	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	if (event.event_type != type)
		fail_msg("%s came, not %s", ibv_event_type_str(event.event_type),
			 ibv_event_type_str(type));
	assert_ptr_equal(event.element.qp, element);
	return event;
}

static void expect_event(struct ibv_context *ctx, enum ibv_event_type type, const void *element)
{
	struct ibv_async_event event = next_event(ctx, type, element);

	ibv_ack_async_event(&event);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

static int to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* A receive that names memory which isn't registered: the receiver's own fault. */
static void fatal(void **state)
{
	struct rig *r = *state;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	struct ibv_sge sge = { (uintptr_t)r->buffer, 64, r->mr->lkey ^ 0x100 };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(p.b, &recv, &bad), 0);
	assert_int_equal(rig_run(&p, IBV_WR_SEND, (uintptr_t)r->buffer, 8, r->mr->lkey, 0, 0),
			 IBV_WC_REM_OP_ERR);
	assert_int_equal(rig_await(p.cq_b).status, IBV_WC_LOC_PROT_ERR);
	expect_event(r->ctx, IBV_EVENT_QP_FATAL, p.b);
	assert_int_equal(state_of(p.b), IBV_QPS_ERR);
	assert_int_equal(state_of(p.a), IBV_QPS_ERR);
	rig_pair_free(&p);
}

/* Requests that break the rules of the responder. */
static void request_error(void **state)
{
	struct rig *r = *state;
	uint64_t here = (uintptr_t)r->buffer;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);

	/* A message longer than the receive. */
	assert_int_equal(rig_post_recv(r, p.b, 1, 4096, 4), 0);
	assert_int_equal(rig_run(&p, IBV_WR_SEND, here, 8, r->mr->lkey, 0, 0),
			 IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(rig_await(p.cq_b).status, IBV_WC_LOC_LEN_ERR);
	expect_event(r->ctx, IBV_EVENT_QP_REQ_ERR, p.b);
	assert_int_equal(state_of(p.b), IBV_QPS_ERR);
	rig_pair_free(&p);
	/* An atomic that isn't at a multiple of 8. */
	p = rig_pair_make(r, IBV_QPT_RC);
	assert_int_equal(rig_run(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, here, 8, r->mr->lkey, here + 4097,
				 r->mr->rkey),
			 IBV_WC_REM_INV_REQ_ERR);
	expect_event(r->ctx, IBV_EVENT_QP_REQ_ERR, p.b);
	rig_pair_free(&p);
}

static void access_error(void **state)
{
	struct rig *r = *state;
	uint64_t here = (uintptr_t)r->buffer;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	struct ibv_mr *mr = ibv_reg_mr(r->pd, r->buffer, 64, IBV_ACCESS_REMOTE_READ);

	assert_int_equal(rig_run(&p, IBV_WR_RDMA_WRITE, here, 8, r->mr->lkey, here, mr->rkey),
			 IBV_WC_REM_ACCESS_ERR);
	expect_event(r->ctx, IBV_EVENT_QP_ACCESS_ERR, p.b);
	rig_pair_free(&p);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* The life of one queue pair, told in its order. */
static void in_order(void **state)
{
	struct rig *r = *state;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *a = rig_qp(r, IBV_QPT_RC, cq, cq, NULL),
		      *b = rig_qp(r, IBV_QPT_RC, cq, cq, srq);
	struct ibv_qp_attr drain = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_sge sge = { (uintptr_t)r->buffer + 4096, 64, r->mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(rig_to_init(a), 0);
	assert_int_equal(rig_to_init(b), 0);
	assert_int_equal(rig_to_rtr(a, b->qp_num), 0);
	assert_int_equal(rig_to_rtr(b, a->qp_num), 0);
	assert_int_equal(rig_to_rts(a), 0);
	assert_int_equal(ibv_post_srq_recv(srq, &recv, &bad), 0);
	assert_int_equal(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	assert_int_equal(rig_post_send(r, a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2);
	assert_int_equal(rig_to_rts(b), 0);
	assert_int_equal(ibv_modify_qp(b, &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	while (!rig_readable(r->ctx->async_fd, 0))
		assert_int_equal(ibv_poll_cq(cq, 1, &(struct ibv_wc){ 0 }), 0);
	expect_event(r->ctx, IBV_EVENT_COMM_EST, b);
	expect_event(r->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	expect_event(r->ctx, IBV_EVENT_SQ_DRAINED, b);
	assert_int_equal(to_error(b), 0);
	expect_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, b);
	assert_false(rig_readable(r->ctx->async_fd, 0));
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* A queue pair's event is its context's; what happens at the peer stays there. */
static void to_its_context(void **state)
{
	struct rig *r = *state, *there;
	struct ibv_cq *cq_a = rig_cq(r, 8, NULL), *cq_b;
	struct ibv_qp *a = rig_qp(r, IBV_QPT_RC, cq_a, cq_a, NULL), *b;
	void *second;

	assert_int_equal(rig_setup(&second), 0);
	there = second;
	cq_b = rig_cq(there, 8, NULL);
	b = rig_qp(there, IBV_QPT_RC, cq_b, cq_b, NULL);
	rig_connect(a, b);
	assert_int_equal(rig_post_recv(there, b, 1, 0, 4), 0);
	assert_int_equal(rig_post_send(r, a, 1, 0, 8, 0), 0);
	assert_int_equal(rig_await(cq_a).status, IBV_WC_REM_INV_REQ_ERR);
	expect_event(there->ctx, IBV_EVENT_QP_REQ_ERR, b);
	assert_false(rig_readable(r->ctx->async_fd, 0));
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_cq(cq_a), 0);
	assert_int_equal(ibv_destroy_cq(cq_b), 0);
	rig_teardown(&second);
}

/* More sends than the CQ holds. */
static void overrun(struct rig *r, struct ibv_cq *cq, struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)r->buffer + 4096;
	wr.wr.rdma.rkey = r->mr->rkey;
	for (int i = 0; i <= cq->cqe; i++)
		assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
}

/* The CQ first, then those that use it. */
static void cq_error(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 8, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);

	rig_connect_self(qp);
	overrun(r, cq, qp);
	expect_event(r->ctx, IBV_EVENT_CQ_ERR, cq);
	expect_event(r->ctx, IBV_EVENT_QP_FATAL, qp);
	assert_int_equal(state_of(qp), IBV_QPS_ERR);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* XRC: two targets, one SRQ, whose CQ overruns. */
struct xrc {
	struct ibv_xrcd *xrcd;
	struct ibv_cq *send_cq, *cq;
	struct ibv_srq *srq;
	uint32_t srqn;
	struct ibv_qp *target[2], *initiator[2];
};

static struct ibv_qp *xrc_qp(struct rig *r, struct xrc *x, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.send_cq = type == IBV_QPT_XRC_SEND ? x->send_cq : NULL,
		.cap = { .max_send_wr = 16, .max_send_sge = 1 },
		.comp_mask = type == IBV_QPT_XRC_SEND ? IBV_QP_INIT_ATTR_PD : IBV_QP_INIT_ATTR_XRCD,
		.pd = r->pd,
		.xrcd = x->xrcd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &attr);

	assert_non_null(qp);
	return qp;
}

static struct xrc xrc_make(struct rig *r)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct xrc x = { .xrcd = ibv_open_xrcd(r->ctx, &xrcd),
			 .send_cq = rig_cq(r, 64, NULL),
			 .cq = rig_cq(r, 8, NULL) };
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = 16, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = r->pd,
		.xrcd = x.xrcd,
		.cq = x.cq,
	};

	assert_non_null(x.xrcd);
	x.srq = ibv_create_srq_ex(r->ctx, &srq);
	assert_non_null(x.srq);
	assert_int_equal(ibv_get_srq_num(x.srq, &x.srqn), 0);
	for (int i = 0; i < 2; i++) {
		x.target[i] = xrc_qp(r, &x, IBV_QPT_XRC_RECV);
		x.initiator[i] = xrc_qp(r, &x, IBV_QPT_XRC_SEND);
		rig_connect(x.initiator[i], x.target[i]);
	}
	return x;
}

static void xrc_free(struct xrc *x)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(x->initiator[i]), 0);
		assert_int_equal(ibv_destroy_qp(x->target[i]), 0);
	}
	assert_int_equal(ibv_destroy_srq(x->srq), 0);
	assert_int_equal(ibv_destroy_cq(x->cq), 0);
	assert_int_equal(ibv_destroy_cq(x->send_cq), 0);
	assert_int_equal(ibv_close_xrcd(x->xrcd), 0);
}

static enum ibv_wc_status xrc_send(struct rig *r, struct xrc *x, int i, uint32_t srqn)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	wr.qp_type.xrc.remote_srqn = srqn;
	assert_int_equal(ibv_post_send(x->initiator[i], &wr, &bad), 0);
	return rig_await(x->send_cq).status;
}

static void xrc_receive(struct rig *r, struct xrc *x, int n)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + 4096, 64, r->mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int i = 0; i < n; i++)
		assert_int_equal(ibv_post_srq_recv(x->srq, &recv, &bad), 0);
}

/* The target that was at the SRQ fails with it; the other one isn't touched until it is told to use it. */
static void srq_error(void **state)
{
	struct rig *r = *state;
	struct xrc x = xrc_make(r);

	xrc_receive(r, &x, x.cq->cqe + 1);
	for (int i = 0; i < x.cq->cqe; i++)
		assert_int_equal(xrc_send(r, &x, 0, x.srqn), IBV_WC_SUCCESS);
	xrc_send(r, &x, 0, x.srqn);
	expect_event(r->ctx, IBV_EVENT_CQ_ERR, x.cq);
	expect_event(r->ctx, IBV_EVENT_SRQ_ERR, x.srq);
	expect_event(r->ctx, IBV_EVENT_QP_FATAL, x.target[0]);
	expect_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, x.target[0]);
	assert_int_equal(state_of(x.target[0]), IBV_QPS_ERR);
	assert_int_equal(state_of(x.target[1]), IBV_QPS_RTS);
	assert_false(rig_readable(r->ctx->async_fd, 0));
	assert_int_equal(xrc_send(r, &x, 1, x.srqn), IBV_WC_REM_INV_REQ_ERR);
	expect_event(r->ctx, IBV_EVENT_QP_REQ_ERR, x.target[1]);
	expect_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, x.target[1]);
	xrc_free(&x);
}

/* A number that no SRQ has. */
static void xrc_request_error(void **state)
{
	struct rig *r = *state;
	struct xrc x = xrc_make(r);

	assert_int_equal(xrc_send(r, &x, 0, x.srqn ^ 0x800000), IBV_WC_REM_INV_REQ_ERR);
	expect_event(r->ctx, IBV_EVENT_QP_REQ_ERR, x.target[0]);
	expect_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, x.target[0]);
	xrc_free(&x);
}

struct destroyer {
	int (*destroy)(void *object);
	void *object;
	_Atomic bool done;
};

static int destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static int destroy_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static int destroy_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static void *run(void *arg)
{
	struct destroyer *d = arg;

	if (d->destroy(d->object) == 0)
		atomic_store(&d->done, true);
	return NULL;
}

/* The destroyer takes the object out of use, which `is_out` sees, and then waits for all of the events. */
static void must_wait(struct destroyer *d, struct ibv_async_event *events, int n,
		      bool (*is_out)(void *arg), void *arg)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, run, d), 0);
	while (!is_out(arg))
		sched_yield();
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < 100; k++)
			sched_yield();
		assert_false(atomic_load(&d->done));
		ibv_ack_async_event(&events[i]);
	}
	pthread_join(thread, NULL);
	assert_true(atomic_load(&d->done));
}

static bool pd_is_free(void *pd)
{
	return ibv_dealloc_pd(pd) == 0;
}

static bool xrcd_is_free(void *xrcd)
{
	return ibv_close_xrcd(xrcd) == 0;
}

/* Two events of one queue pair, both read: the second acknowledgement lets it go. */
static void qp_waits(void **state)
{
	struct rig *r = *state, own = { .ctx = r->ctx, .pd = ibv_alloc_pd(r->ctx) };
	struct ibv_cq *cq = rig_cq(r, 8, NULL);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_qp *qp = rig_qp(&own, IBV_QPT_RC, cq, cq, srq);
	struct ibv_qp_attr drain = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct destroyer d = { destroy_qp, qp, false };
	struct ibv_async_event events[2];

	rig_connect_self(qp);
	assert_int_equal(ibv_modify_qp(qp, &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	events[0] = next_event(r->ctx, IBV_EVENT_SQ_DRAINED, qp);
	assert_int_equal(to_error(qp), 0);
	events[1] = next_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	must_wait(&d, events, 2, pd_is_free, own.pd);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void srq_waits(void **state)
{
	struct rig *r = *state;
	struct ibv_pd *pd = ibv_alloc_pd(r->ctx);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct destroyer d = { destroy_srq, srq, false };
	struct ibv_async_event event;

	/* Nothing is posted: the limit is reached at once. */
	assert_int_equal(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	event = next_event(r->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	must_wait(&d, &event, 1, pd_is_free, pd);
}

static void cq_waits(void **state)
{
	struct rig *r = *state;
	struct ibv_parent_domain_init_attr domain = { .pd = r->pd };
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 8,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = ibv_alloc_parent_domain(r->ctx, &domain),
	};
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(r->ctx, &attr));
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct destroyer d = { destroy_cq, cq, false };
	struct ibv_async_event event;

	rig_connect_self(qp);
	overrun(r, cq, qp);
	event = next_event(r->ctx, IBV_EVENT_CQ_ERR, cq);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	must_wait(&d, &event, 1, pd_is_free, attr.parent_domain);
}

/* A handle on an XRC target. */
static void target_waits(void **state)
{
	struct rig *r = *state;
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct xrc x = { .xrcd = ibv_open_xrcd(r->ctx, &attr) };
	struct ibv_qp *target = xrc_qp(r, &x, IBV_QPT_XRC_RECV);
	struct destroyer d = { destroy_qp, target, false };
	struct ibv_async_event event;

	assert_int_equal(rig_to_init(target), 0);
	assert_int_equal(to_error(target), 0);
	event = next_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, target);
	must_wait(&d, &event, 1, xrcd_is_free, x.xrcd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(fatal),	 TEST(request_error),	  TEST(access_error),
		TEST(in_order),	 TEST(to_its_context),	  TEST(cq_error),
		TEST(srq_error), TEST(xrc_request_error), TEST(qp_waits),
		TEST(srq_waits), TEST(cq_waits),	  TEST(target_waits),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
