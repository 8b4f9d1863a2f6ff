/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues: order, overrun, resize, notification without a lost wake-up, the start_poll
 * family. */
#include "rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A queue pair that is its own peer, sending to itself: one object, both directions. */
static struct ibv_qp *loop(struct rig *r, struct ibv_cq *send, struct ibv_cq *recv)
{
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, send, recv, NULL);

	rig_connect_self(qp);
	return qp;
}

static void in_order_with_everything_filled(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *qp = loop(r, cq, cq);
	uint64_t sends = 0, recvs = 100;

	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(rig_post_recv(r, qp, 100 + i, 4096, 64), 0);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(rig_post_send(r, qp, i, 0, (uint32_t)i, IBV_SEND_SIGNALED), 0);
	for (int i = 0; i < 16; i++) {
		struct ibv_wc wc = rig_await(cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.qp_num, qp->qp_num);
		if (wc.opcode & IBV_WC_RECV) {
			assert_int_equal(wc.byte_len, recvs - 100);
			assert_int_equal(wc.wr_id, recvs++);
		} else {
			assert_int_equal(wc.wr_id, sends++);
		}
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* More completions than room: an event, the queue pair in error, and what fitted is all that is
 * read. */
static void overrun(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *small = rig_cq(r, 8, NULL), *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = loop(r, small, cq);
	struct ibv_qp_init_attr init;
	struct ibv_async_event event;
	struct ibv_qp_attr attr;
	struct ibv_wc wc[32];
	int got;

	assert_int_equal(small->cqe, 8);
	for (uint64_t i = 0; i < 12; i++)
		assert_int_equal(rig_post_recv(r, qp, i, 4096, 64), 0);
	for (uint64_t i = 0; i < 12; i++)
		assert_int_equal(rig_post_send(r, qp, i, 0, 8, IBV_SEND_SIGNALED), 0);
	event = rig_await_event(r->ctx, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, small);
	ibv_ack_async_event(&event);
	event = rig_await_event(r->ctx, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	got = ibv_poll_cq(small, 32, wc);
	assert_int_equal(got, 8);
	for (int i = 0; i < got; i++)
		assert_int_equal(wc[i].wr_id, i);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(small), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void resize_keeps_what_waits(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *send = rig_cq(r, 64, NULL), *recv = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = loop(r, send, recv);
	uint64_t next = 0;

	/* So that the ring has wrapped before it is moved. */
	for (int round = 0; round < 10; round++) {
		for (uint64_t i = 0; i < 10; i++)
			assert_int_equal(rig_post_recv(r, qp, next + i, 4096, 64), 0);
		for (int i = 0; i < 10; i++)
			assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
		rig_await_n(send, 10);
		assert_int_equal(ibv_resize_cq(recv, 8), EINVAL);
		assert_int_equal(ibv_resize_cq(recv, round & 1 ? 16 : 256), 0);
		assert_int_equal(recv->cqe, round & 1 ? 16 : 256);
		for (int i = 0; i < 10; i++)
			assert_int_equal(rig_await(recv).wr_id, next++);
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(send), 0);
	assert_int_equal(ibv_destroy_cq(recv), 0);
}

static void completions_of_a_reset_queue_pair_go(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *a = loop(r, cq, cq), *b = loop(r, cq, cq);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;

	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(rig_post_recv(r, a, i, 4096, 64), 0);
		assert_int_equal(rig_post_recv(r, b, 100 + i, 4096, 64), 0);
	}
	assert_int_equal(ibv_modify_qp(a, &attr, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(b, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(a, &attr, IBV_QP_STATE), 0);
	for (uint64_t i = 0; i < 4; i++) {
		wc = rig_await(cq);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.wr_id, 100 + i);
	}
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void one_event(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct ibv_cq *got;
	void *context;

	assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
	assert_ptr_equal(got, cq);
	assert_ptr_equal(context, cq->cq_context);
	ibv_ack_cq_events(cq, 1);
}

static void no_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *got;
	void *context;

	assert_false(rig_readable(channel->fd, 0));
	assert_int_equal(ibv_get_cq_event(channel, &got, &context), -1);
	assert_int_equal(errno, EAGAIN);
}

/* One event for one request, none without, and the descriptor follows. */
static void notification(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_cq *send = rig_cq(r, 16, NULL), *recv = rig_cq(r, 16, channel);
	struct ibv_qp *qp = loop(r, send, recv);

	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_req_notify_cq(send, 0), EINVAL);
	for (int i = 0; i < 6; i++)
		assert_int_equal(rig_post_recv(r, qp, 0, 4096, 64), 0);
	/* Not requested. */
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(recv, 1);
	no_event(channel);
	/* Requested, twice: still one. */
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(recv, 1);
	assert_true(rig_readable(channel->fd, 0));
	one_event(channel, recv);
	no_event(channel);
	/* Solicited only. */
	assert_int_equal(ibv_req_notify_cq(recv, 1), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(recv, 1);
	no_event(channel);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
	rig_await_n(recv, 1);
	one_event(channel, recv);
	no_event(channel);
	/* A request for any isn't weakened by one for solicited ones. */
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	assert_int_equal(ibv_req_notify_cq(recv, 1), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(recv, 1);
	one_event(channel, recv);
	rig_await_n(send, 5);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(recv), 0);
	assert_int_equal(ibv_destroy_cq(send), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* An event that nobody read goes with its CQ; the channel lives on. */
static void unread_event_goes_with_its_cq(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_cq *cq = rig_cq(r, 16, channel);
	struct ibv_qp *qp = loop(r, cq, cq);

	assert_int_equal(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	assert_int_equal(rig_post_recv(r, qp, 0, 4096, 64), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, 0), 0);
	rig_await_n(cq, 1);
	assert_true(rig_readable(channel->fd, 0));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	no_event(channel);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

struct destroyer {
	struct ibv_cq *cq;
	_Atomic int tid;
	_Atomic bool done;
};

static void *destroy(void *arg)
{
	struct destroyer *d = arg;

	atomic_store(&d->tid, (int)gettid());
	assert_int_equal(ibv_destroy_cq(d->cq), 0);
	atomic_store(&d->done, true);
	return NULL;
}

static bool is_asleep(int tid)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = tid ? fopen(path, "r") : NULL;
	if (!f)
		return false;
	if (fscanf(f, "%*d %*s %c", &state) != 1)
		state = '?';
	fclose(f);
	return state == 'S';
}

/* ibv_destroy_cq(3): it waits until the event that was read is acknowledged. */
static void destroy_waits_for_acknowledgement(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct destroyer d = { .cq = rig_cq(r, 16, channel) };
	struct ibv_qp *qp = loop(r, d.cq, d.cq);
	struct ibv_cq *got;
	pthread_t thread;
	void *context;

	assert_int_equal(ibv_req_notify_cq(d.cq, 0), 0);
	assert_int_equal(rig_post_recv(r, qp, 0, 4096, 64), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, 0), 0);
	assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(pthread_create(&thread, NULL, destroy, &d), 0);
	while (!is_asleep(atomic_load(&d.tid)))
		sched_yield();
	assert_false(atomic_load(&d.done));
	assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
	ibv_ack_cq_events(d.cq, 1);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&d.done));
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

#define RACE_ROUNDS 3000

struct race {
	struct rig *r;
	struct ibv_qp *qp;
	struct ibv_cq *send;
};

static void *race_sender(void *arg)
{
	struct race *race = arg;

	for (int i = 0; i < RACE_ROUNDS; i++) {
		assert_int_equal(rig_post_send(race->r, race->qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
		rig_await_n(race->send, 1);
		assert_int_equal(rig_post_recv(race->r, race->qp, 0, 4096, 64), 0);
	}
	return NULL;
}

/* The idiom of every event-driven program: arm, poll, only then sleep. One lost wake-up and this
 * hangs. */
static void no_lost_wakeup(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	/* The sender doesn't wait for the receiver. */
	struct ibv_cq *send = rig_cq(r, 16, NULL), *recv = rig_cq(r, RACE_ROUNDS, channel);
	struct race race = { r, loop(r, send, recv), send };
	int received = 0;
	pthread_t thread;

	for (int i = 0; i < 8; i++)
		assert_int_equal(rig_post_recv(r, race.qp, 0, 4096, 64), 0);
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, race_sender, &race), 0);
	while (received < RACE_ROUNDS) {
		struct ibv_wc wc[8];
		int n;

		if (!rig_readable(channel->fd, 30000))
			fail_msg("a wake-up was lost after %d", received);
		one_event(channel, recv);
		assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
		while ((n = ibv_poll_cq(recv, 8, wc)) > 0)
			received += n;
	}
	pthread_join(thread, NULL);
	assert_int_equal(received, RACE_ROUNDS);
	assert_int_equal(ibv_destroy_qp(race.qp), 0);
	assert_int_equal(ibv_destroy_cq(recv), 0);
	assert_int_equal(ibv_destroy_cq(send), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

static void start_poll_family(void **state)
{
	struct rig *r = *state;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r->ctx, &attr);
	struct ibv_qp *qp;
	uint64_t stamp;

	assert_non_null(cq);
	qp = loop(r, ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq));
	assert_int_equal(ibv_start_poll(cq, &poll_attr), ENOENT);
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(rig_post_recv(r, qp, 10 + i, 4096, 64), 0);
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(rig_post_send(r, qp, 0, 0, 5, 0), 0);
	while (ibv_start_poll(cq, &poll_attr) == ENOENT)
		;
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(cq->wr_id, 10);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_byte_len(cq), 5);
	assert_int_equal(ibv_wc_read_qp_num(cq), qp->qp_num);
	stamp = ibv_wc_read_completion_ts(cq);
	assert_int_not_equal(stamp, 0);
	while (ibv_next_poll(cq) == ENOENT) {
		/* The other one isn't there yet: drive the device. */
		ibv_end_poll(cq);
		while (ibv_start_poll(cq, &poll_attr) == ENOENT)
			;
		break;
	}
	assert_int_equal(cq->wr_id, 11);
	assert_true(ibv_wc_read_completion_ts(cq) >= stamp);
	/* The lock is held: destroying and cleaning from here must not deadlock. */
	assert_int_equal(ibv_destroy_qp(qp), 0);
	ibv_end_poll(cq);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
	assert_null(ibv_create_cq_ex(r->ctx, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(in_order_with_everything_filled),
		TEST(overrun),
		TEST(resize_keeps_what_waits),
		TEST(completions_of_a_reset_queue_pair_go),
		TEST(notification),
		TEST(unread_event_goes_with_its_cq),
		TEST(destroy_waits_for_acknowledgement),
		TEST(no_lost_wakeup),
		TEST(start_poll_family),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
