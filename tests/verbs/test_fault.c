/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program sees of injected faults. The setting is read once in a process, so each test is a
 * run of this program with a name.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

#define MESSAGES 200

static struct ibv_qp *self_connected(struct rig *r, struct ibv_cq *cq)
{
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);

	rig_connect_self(qp);
	return qp;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* All messages arrive once, in order, with their data, whatever happens to the packets. */
static void traffic(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = self_connected(r, cq);

	for (unsigned i = 0; i < MESSAGES; i++) {
		unsigned seen = 0;

		memset(r->buffer, (int)i, 4000);
		memset(r->buffer + 8192, 0, 4000);
		assert_int_equal(rig_post_recv(r, qp, i, 8192, 4096), 0);
		assert_int_equal(rig_post_send(r, qp, i, 0, 4000, IBV_SEND_SIGNALED), 0);
		for (int n = 0; n < 2; n++) {
			struct ibv_wc wc = rig_await(cq);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, i);
			seen |= wc.opcode == IBV_WC_RECV ? 1 : 2;
		}
		assert_int_equal(seen, 3);
		assert_memory_equal(r->buffer, r->buffer + 8192, 4000);
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* Connected to itself, with other limits than the rig's. */
static struct ibv_qp *patient(struct rig *r, struct ibv_cq *cq, uint8_t timeout, uint8_t rnr_retry)
{
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = 7,
				    .timeout = timeout,
				    .retry_cnt = 7,
				    .rnr_retry = rnr_retry,
				    .max_rd_atomic = 1 };

	assert_int_equal(rig_to_init(qp), 0);
	assert_int_equal(rig_to_rtr(qp, qp->qp_num), 0);
	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
	return qp;
}

static void rnr_retries_run_out(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = patient(r, cq, 14, 2);

	assert_int_equal(rig_post_recv(r, qp, 1, 0, 64), 0);
	assert_int_equal(rig_post_send(r, qp, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	/* The receive is there all the time, and is flushed in the end. */
	for (int n = 0; n < 2; n++) {
		struct ibv_wc wc = rig_await(cq);

		assert_int_equal(wc.status,
				 wc.wr_id == 2 ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void cq_overrun(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 1024, NULL);
	struct ibv_qp *qp = self_connected(r, cq);
	struct ibv_async_event event;
	struct ibv_wc wc;
	int completions = 0;

	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(rig_post_recv(r, qp, i, 4096, 64), 0);
		assert_int_equal(rig_post_send(r, qp, i, 0, 64, IBV_SEND_SIGNALED), 0);
	}
	event = rig_await_event(r->ctx, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, cq);
	ibv_ack_async_event(&event);
	event = rig_await_event(r->ctx, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
	while (ibv_poll_cq(cq, 1, &wc) == 1)
		completions++;
	assert_int_equal(completions, 19); /* one didn't fit */
	assert_int_equal(state_of(qp), IBV_QPS_ERR);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void qp_error(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = self_connected(r, cq), *other;
	struct ibv_async_event event;
	struct ibv_wc wc;

	assert_int_equal(rig_post_recv(r, qp, 1, 4096, 64), 0);
	assert_int_equal(rig_post_send(r, qp, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	event = rig_await_event(r->ctx, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
	for (int n = 0; n < 2; n++)
		assert_int_equal(rig_await(cq).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	/* Once: the next queue pair works. */
	other = self_connected(r, cq);
	assert_int_equal(rig_post_recv(r, other, 1, 4096, 64), 0);
	assert_int_equal(rig_post_send(r, other, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2);
	assert_int_equal(ibv_destroy_qp(other), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* The device says so first, then its queue pairs; nothing new is to be had until it was opened anew. */
static void device_fatal(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = self_connected(r, cq), *idle = self_connected(r, cq);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	struct ibv_context *second = rig_open("lo");
	struct ibv_async_event event;
	struct ibv_wc wc;
	void *again;

	assert_int_equal(rig_post_recv(r, qp, 1, 4096, 64), 0);
	assert_int_equal(rig_post_recv(r, idle, 1, 4096, 64), 0);
	assert_int_equal(rig_post_send(r, qp, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	assert_true(rig_readable(r->ctx->async_fd, 30000));
	assert_int_equal(ibv_get_async_event(r->ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	event = rig_await_event(second, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	for (int i = 0; i < 2; i++) {
		event = rig_await_event(r->ctx, IBV_EVENT_QP_FATAL);
		assert_true(event.element.qp == qp || event.element.qp == idle);
		ibv_ack_async_event(&event);
	}
	assert_int_equal(state_of(qp), IBV_QPS_ERR);
	assert_int_equal(state_of(idle), IBV_QPS_ERR);
	/* Whatever was not done before is flushed, and so is what is posted now. */
	assert_int_equal(rig_post_recv(r, idle, 3, 4096, 64), 0);
	for (int flushed = 0; flushed < 2;) {
		wc = rig_await(cq);
		flushed += wc.qp_num == idle->qp_num;
		assert_true(wc.qp_num == qp->qp_num || wc.status == IBV_WC_WR_FLUSH_ERR);
	}
	assert_null(ibv_create_qp(r->pd, &init));
	assert_int_equal(errno, EIO);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EIO);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_qp(idle), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_close_device(second), 0);
	/* After the last is closed it works again. */
	rig_teardown(state);
	assert_int_equal(rig_setup(&again), 0);
	*state = r = again;
	cq = rig_cq(r, 64, NULL);
	qp = self_connected(r, cq);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void expect_port(struct rig *r, enum ibv_port_state state)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(r->ctx, 1, &attr), 0);
	assert_int_equal(attr.state, state);
}

/* Down for a second: the port says so, and a message that is posted meanwhile arrives afterwards. */
static void link_down(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = patient(r, cq, 18, 7); /* 7 seconds */
	struct ibv_async_event event;
	struct ibv_wc wc;

	event = rig_await_event(r->ctx, IBV_EVENT_PORT_ERR);
	ibv_ack_async_event(&event);
	expect_port(r, IBV_PORT_DOWN);
	assert_int_equal(rig_post_recv(r, qp, 1, 4096, 64), 0);
	assert_int_equal(rig_post_send(r, qp, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	event = rig_await_event(r->ctx, IBV_EVENT_PORT_ACTIVE);
	ibv_ack_async_event(&event);
	expect_port(r, IBV_PORT_ACTIVE);
	rig_await_n(cq, 2);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name, *fault;
		void (*test)(void **state);
	} rows[] = {
		{ "traffic", "loss=3%,reorder=3%,dup=3%,corrupt=3%,delay=100us,seed=42", traffic },
		{ "rnr", "rnr=30%,seed=42", traffic },
		{ "rnr_for_ever", "rnr=100%", rnr_retries_run_out },
		{ "cq_overrun", "cq-overrun=10", cq_overrun },
		{ "qp_error", "qp-error=1", qp_error },
		{ "device_fatal", "device-fatal=1", device_fatal },
		{ "link_down", "link-down=200ms+1s", link_down },
	};

	for (size_t i = 0; argc == 2 && i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct CMUnitTest tests[] = {
			{ rows[i].name, rows[i].test, rig_setup, rig_teardown, NULL },
		};

		if (strcmp(argv[1], rows[i].name) != 0)
			continue;
		setenv("ROCELINK_FAULT", rows[i].fault, 1);
		rig_isolate();
		return cmocka_run_group_tests(tests, NULL, NULL);
	}
	fprintf(stderr, "usage: test_verbs_fault NAME, one of the rows in test_fault.c\n");
	return 2;
}
