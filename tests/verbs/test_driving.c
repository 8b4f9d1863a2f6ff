/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who makes progress when: programs that wait in ibv_get_cq_event(), that post without polling, that
 * watch memory. What was left to a later call must also leave without one.
 */
#include "rig.h"

#include <unistd.h>

#define GRH	 40
#define LOOPS	 200
#define IN_A_ROW 50
#define LAST	 7 /* fewer than are sent together */
#define PATIENCE 5000
#define DATAGRAM 64
#define MARK	 0xa5

static void take_event(struct ibv_comp_channel *channel, struct ibv_cq *expected)
{
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_get_cq_event(channel, &cq, &context), 0);
	assert_ptr_equal(cq, expected);
	ibv_ack_cq_events(cq, 1);
}

/* Both messages are there when it begins to wait: it takes one event, the descriptor tells of the
 * other. */
static void what_the_waiter_leaves_is_told(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_cq *cq[2] = { rig_cq(r, 16, channel), rig_cq(r, 16, channel) };
	struct ibv_cq *sent = rig_cq(r, 16, NULL);
	struct ibv_qp *qp[2];

	for (int i = 0; i < 2; i++) {
		qp[i] = rig_qp(r, IBV_QPT_RC, sent, cq[i], NULL);
		rig_connect_self(qp[i]);
	}
	for (int round = 0; round < 100; round++) {
		struct ibv_cq *first;
		void *context;

		for (int i = 0; i < 2; i++) {
			assert_int_equal(ibv_req_notify_cq(cq[i], 0), 0);
			assert_int_equal(rig_post_recv(r, qp[i], 0, 0, 64), 0);
		}
		for (int i = 0; i < 2; i++)
			assert_int_equal(rig_post_send(r, qp[i], 0, 1024, 64, IBV_SEND_SIGNALED),
					 0);
		assert_int_equal(ibv_get_cq_event(channel, &first, &context), 0);
		ibv_ack_cq_events(first, 1);
		assert_true(rig_readable(channel->fd, PATIENCE));
		take_event(channel, first == cq[0] ? cq[1] : cq[0]);
		assert_false(rig_readable(channel->fd, 0));
		rig_await_n(sent, 2);
		for (int i = 0; i < 2; i++)
			rig_await_n(cq[i], 1);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	}
	assert_int_equal(ibv_destroy_cq(sent), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

static void post_datagram(struct rig *r, struct ibv_qp *from, struct ibv_ah *ah, uint32_t qpn,
			  uint32_t offset, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + offset, DATAGRAM, r->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = flags,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = 0x1234 },
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	while (ibv_post_send(from, &wr, &bad))
		assert_true(ibv_poll_cq(from->send_cq, 1, &wc) >= 0);
}

/* Datagrams posted in a row leave together; the last of them although no call follows. */
static void posts_leave_without_a_poll(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *send = rig_cq(r, 4096, NULL), *recv = rig_cq(r, 4096, NULL);
	struct ibv_qp *a = rig_qp(r, IBV_QPT_UD, send, send, NULL),
		      *b = rig_qp(r, IBV_QPT_UD, recv, recv, NULL),
		      *last = rig_qp(r, IBV_QPT_UD, recv, recv, NULL);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	const uint32_t here = 4096, marked = 8192;
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &to.grh.dgid), 0);
	ah = ibv_create_ah(r->pd, &to);
	assert_non_null(ah);
	assert_int_equal(rig_to_init(a) | rig_to_rtr(a, 0) | rig_to_rts(a), 0);
	assert_int_equal(rig_to_init(b) | rig_to_rtr(b, 0), 0);
	assert_int_equal(rig_to_init(last) | rig_to_rtr(last, 0), 0);
	for (int i = 0; i < LAST; i++)
		assert_int_equal(rig_post_recv(r, last, 0, here, GRH + DATAGRAM), 0);
	r->buffer[marked] = MARK;
	/* Such a loop that the adapter takes the program for one that comes back. Nothing is posted for these. */
	for (int i = 0; i < LOOPS; i++) {
		struct ibv_wc wc[16];

		for (int j = 0; j < IN_A_ROW; j++)
			post_datagram(r, a, ah, b->qp_num, 0, j % 8 ? 0 : IBV_SEND_SIGNALED);
		while (ibv_poll_cq(send, 16, wc) > 0)
			;
	}
	for (int i = 0; i < LAST; i++)
		post_datagram(r, a, ah, last->qp_num, i == LAST - 1 ? marked : 0,
			      IBV_SEND_SIGNALED);
	assert_true(rig_becomes(r->buffer + here + GRH, MARK));
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_qp(last), 0);
	assert_int_equal(ibv_destroy_cq(send), 0);
	assert_int_equal(ibv_destroy_cq(recv), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_the_waiter_leaves_is_told, rig_setup,
						rig_teardown),
		cmocka_unit_test_setup_teardown(posts_leave_without_a_poll, rig_setup,
						rig_teardown),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
