/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues under traffic: the limit event at any moment, another size without a receive
 * lost, and what queue pairs that leave it take with them. */
#include "rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

static struct ibv_srq *make(struct rig *r, uint32_t max_wr)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = max_wr, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &attr);

	assert_non_null(srq);
	return srq;
}

static int post(struct rig *r, struct ibv_srq *srq, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + 4096, 64, r->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static int set(struct ibv_srq *srq, int mask, uint32_t max_wr, uint32_t limit)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr, .srq_limit = limit };

	return ibv_modify_srq(srq, &attr, mask);
}

static uint32_t limit_of(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr;

	assert_int_equal(ibv_query_srq(srq, &attr), 0);
	return attr.srq_limit;
}

static void await_limit(struct rig *r, struct ibv_srq *srq)
{
	struct ibv_async_event event = rig_await_event(r->ctx, IBV_EVENT_SRQ_LIMIT_REACHED);

	assert_ptr_equal(event.element.srq, srq);
	ibv_ack_async_event(&event);
	assert_int_equal(limit_of(srq), 0);
}

/* One event for each time it is set, also when the queue is below it already: a program that has been
 * drained before it set the limit would wait for ever. */
static void limit(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_srq *srq = make(r, 16);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, srq);

	rig_connect_self(qp);
	assert_int_equal(set(srq, IBV_SRQ_LIMIT, 0, 17), EINVAL);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(post(r, srq, i), 0);
	assert_int_equal(set(srq, IBV_SRQ_LIMIT, 0, 3), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2);
	/* 3 remain: not fewer than 3. */
	assert_int_equal(limit_of(srq), 3);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2);
	await_limit(r, srq);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2);
	assert_false(rig_readable(r->ctx->async_fd, 0));
	assert_int_equal(set(srq, IBV_SRQ_LIMIT, 0, 2), 0);
	await_limit(r, srq);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

struct resizer {
	struct ibv_srq *srq;
	_Atomic bool stop;
	_Atomic unsigned done;
};

static void *resize(void *arg)
{
	static const uint32_t sizes[] = { 8, 64, 9, 1000, 16 };
	struct resizer *z = arg;

	for (unsigned i = 0; !z->stop; i++) {
		int rc = set(z->srq, IBV_SRQ_MAX_WR, sizes[i % 5], 0);

		/* EINVAL: more is posted than would fit. */
		if (rc && rc != EINVAL)
			return NULL;
		z->done += !rc;
	}
	return z;
}

/* Receives complete in the order in which they were posted, each once, whatever size the queue has
 * meanwhile. */
static void resized_amid_traffic(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *send_cq = rig_cq(r, 32, NULL), *cq = rig_cq(r, 32, NULL);
	struct ibv_srq *srq = make(r, 8);
	struct ibv_qp *a = rig_qp(r, IBV_QPT_RC, send_cq, send_cq, NULL),
		      *b = rig_qp(r, IBV_QPT_RC, send_cq, cq, srq);
	struct resizer z = { .srq = srq };
	uint64_t posted = 0;
	pthread_t thread;
	void *fine;

	rig_connect(a, b);
	assert_int_equal(pthread_create(&thread, NULL, resize, &z), 0);
	for (uint64_t i = 0; i < 3000 || z.done < 5; i++) {
		while (posted < i + 6 && post(r, srq, posted) == 0)
			posted++;
		assert_int_equal(rig_post_send(r, a, i, 0, 8, IBV_SEND_SIGNALED), 0);
		assert_int_equal(rig_await(send_cq).status, IBV_WC_SUCCESS);
		assert_int_equal(rig_await(cq).wr_id, i);
	}
	z.stop = true;
	assert_int_equal(pthread_join(thread, &fine), 0);
	assert_non_null(fine);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_cq(send_cq), 0);
}

/* Of two queue pairs one fails: it says that it takes no more, and leaves the rest to the other. */
static void last_wqe(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_srq *srq = make(r, 8);
	struct ibv_qp *a = rig_qp(r, IBV_QPT_RC, cq, cq, srq),
		      *b = rig_qp(r, IBV_QPT_RC, cq, cq, srq);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;

	rig_connect_self(a);
	rig_connect_self(b);
	assert_int_equal(post(r, srq, 1), 0);
	assert_int_equal(ibv_modify_qp(a, &error, IBV_QP_STATE), 0);
	event = rig_await_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, a);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_modify_qp(a, &error, IBV_QP_STATE), 0);
	assert_false(rig_readable(r->ctx->async_fd, 0));
	assert_int_equal(rig_post_send(r, b, 2, 0, 8, 0), 0);
	assert_int_equal(rig_await(cq).wr_id, 1);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	rig_isolate();

	const struct CMUnitTest tests[] = {
		TEST(limit),
		TEST(resized_amid_traffic),
		TEST(last_wqe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
