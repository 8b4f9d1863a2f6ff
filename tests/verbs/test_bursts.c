/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams come in bursts, to a program that posts few receives between two polls: after it has lost
 * some, a poll takes no more from the socket at once than there are receives for. Over UDP, where a
 * datagram that was sent lies in the socket until somebody polls.
 */
#include "rig.h"

enum { BURST = 16, FEW = 2, LEARNING = 12, ROUNDS = 40, EMPTY_POLLS = 300, ROOM = 512 };

struct ends {
	struct rig *r;
	struct ibv_cq *sent, *received;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
};

static struct ends ends_make(struct rig *r)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ends e = { .r = r,
			  .sent = rig_cq(r, BURST, NULL),
			  .received = rig_cq(r, BURST, NULL) };

	e.qp = rig_qp(r, IBV_QPT_UD, e.sent, e.received, NULL);
	rig_connect_self(e.qp);
	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid), 0);
	e.ah = ibv_create_ah(r->pd, &attr);
	assert_non_null(e.ah);
	return e;
}

static void ends_free(struct ends *e)
{
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_ah(e->ah), 0);
	assert_int_equal(ibv_destroy_cq(e->sent), 0);
	assert_int_equal(ibv_destroy_cq(e->received), 0);
}

/* Each longer than the one before: the kernel hands them over one by one. */
static void send_burst(struct ends *e)
{
	for (uint32_t i = 0; i < BURST; i++) {
		struct ibv_sge sge = { (uintptr_t)e->r->buffer, 100 + 8 * i, e->r->mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = e->qp->qp_num;
		wr.wr.ud.remote_qkey = 0x1234;
		assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	}
}

static void post_receive(struct ends *e, uint64_t slot)
{
	assert_int_equal(rig_post_recv(e->r, e->qp, slot, (uint32_t)(slot + 1) * 1024, ROOM), 0);
}

/* How many of a burst arrive, when each receive that is used is posted again before the next poll. */
static int take_burst(struct ends *e)
{
	struct ibv_wc wc[FEW], sent[BURST];
	int n, sends = 0, got = 0;

	for (int empty = 0; empty < EMPTY_POLLS || sends < BURST; empty = n ? 0 : empty + 1) {
		sends += ibv_poll_cq(e->sent, BURST, sent);
		n = ibv_poll_cq(e->received, FEW, wc);
		for (int i = 0; i < n; i++) {
			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			post_receive(e, wc[i].wr_id);
		}
		got += n;
	}
	return got;
}

static void few_receives(void **state)
{
	struct ends e = ends_make(*state);
	int got = 0;

	for (uint64_t slot = 0; slot < FEW; slot++)
		post_receive(&e, slot);
	for (int round = 0; round < ROUNDS; round++) {
		int arrived;

		send_burst(&e);
		arrived = take_burst(&e);
		if (round >= LEARNING)
			got += arrived;
	}
	/* Now and then one more is tried, and may be lost. Taken all at once, 2 of 16 would arrive. */
	print_message("%d of %d arrived\n", got, (ROUNDS - LEARNING) * BURST);
	assert_true(got >= (ROUNDS - LEARNING) * BURST * 3 / 4);
	ends_free(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(few_receives, rig_setup, rig_teardown),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
