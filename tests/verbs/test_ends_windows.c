/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows between two ends: what the far end opens, moves and closes, and what the near end gets at. */
#include "ends.h"

#include <string.h>

#define LEN    256u
#define ROUNDS 24 /* windows opened, used and taken back by their user */

#define ALL (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static const struct attempt all_of_it[] = {
	{ IBV_WR_RDMA_WRITE, 0, LEN, false },
	{ IBV_WR_RDMA_READ, 0, LEN, false },
	{ IBV_WR_RDMA_WRITE, LEN - 1, 1, false },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, LEN - 8, 8, false },
	{ IBV_WR_ATOMIC_WRITE, LEN - 8, 8, false },
	{ IBV_WR_RDMA_WRITE, 0, LEN + 1, true },
	{ IBV_WR_RDMA_WRITE, -1, 1, true },
	{ IBV_WR_RDMA_READ, LEN, 1, true },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, LEN, 8, true },
	/* Beside it nothing happened, and it is still open. */
	{ IBV_WR_RDMA_READ, 0, LEN, false },
};

static const struct attempt reads[] = {
	{ IBV_WR_RDMA_READ, 0, LEN, false },
	{ IBV_WR_RDMA_WRITE, 0, 1, true },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, true },
	{ IBV_WR_ATOMIC_WRITE, 0, 8, true },
};
#define READS (sizeof(reads) / sizeof(reads[0]))

static const struct attempt nothing[] = {
	{ IBV_WR_RDMA_READ, 0, 1, true },
	{ IBV_WR_RDMA_WRITE, 0, 1, true },
};

/* What windows are bound to. */
static struct ibv_mr *bindable(struct ends *e)
{
	struct ibv_mr *mr =
		ibv_reg_mr(e->r->pd, e->r->buffer, RIG_BUFFER,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);

	assert_non_null(mr);
	return mr;
}

static void bind_1(struct ends *e, struct ibv_mw *mw, struct ibv_mr *mr, uint32_t len,
		   unsigned access)
{
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };

	if (len)
		bind.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)e->r->buffer + FAR_AT,
							    len, access };
	assert_int_equal(ibv_bind_mw(e->qp, mw, &bind), 0);
	assert_int_equal(rig_await(e->cq).status, IBV_WC_SUCCESS);
}

static void tell_key(struct ends *e, uint32_t rkey)
{
	ends_swap(e, (struct hello){ .rkey = rkey, .addr = (uintptr_t)e->r->buffer });
}

static void type_1_near(struct ends *e)
{
	uint32_t old;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	ends_fill(e, 0, LEN, 8);
	tell_key(e, 0);
	ends_try(e, TRIES(all_of_it), e->peer.addr + FAR_AT, e->peer.rkey);
	old = e->peer.rkey;
	tell_key(e, 0);
	ends_try(e, TRIES(nothing), e->peer.addr + FAR_AT, old);
	ends_try(e, TRIES(reads), e->peer.addr + FAR_AT, e->peer.rkey);
	tell_key(e, 0);
	ends_try(e, TRIES(nothing), e->peer.addr + FAR_AT, e->peer.rkey);
	ends_close(e);
}

/* Bound, bound anew with other rights, closed. The key that it had before opens nothing. */
static void type_1_far(struct ends *e)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	mr = bindable(e);
	mw = ibv_alloc_mw(e->r->pd, IBV_MW_TYPE_1);
	memset(e->r->buffer + FAR_AT - 8, 0xee, LEN + 16);
	bind_1(e, mw, mr, LEN, ALL);
	tell_key(e, mw->rkey);
	ends_await_tries(e, TRIES(all_of_it));
	ends_expect_filled(e, FAR_AT, LEN - 8, 8);
	assert_int_equal(ends_word(e, FAR_AT - 8), UINT64_C(0xeeeeeeeeeeeeeeee));
	assert_int_equal(ends_word(e, FAR_AT + LEN), UINT64_C(0xeeeeeeeeeeeeeeee));
	bind_1(e, mw, mr, LEN, IBV_ACCESS_REMOTE_READ);
	tell_key(e, mw->rkey);
	ends_await_tries(e, TRIES(nothing));
	ends_await_tries(e, TRIES(reads));
	bind_1(e, mw, mr, 0, 0);
	tell_key(e, mw->rkey);
	ends_await_tries(e, TRIES(nothing));
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	ends_close(e);
}

static void type_1(void **state)
{
	(void)state;
	ends_play(type_1_near, type_1_far);
}

static struct ibv_wc bind_2(struct ends *e, struct ibv_mw *mw, struct ibv_mr *mr, uint32_t rkey,
			    unsigned access)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){ mr, (uintptr_t)e->r->buffer + FAR_AT, LEN, access };
	return ends_run(e, &wr);
}

static const struct attempt zero_based[] = {
	{ IBV_WR_RDMA_WRITE, 0, LEN, false },
	{ IBV_WR_RDMA_READ, 1, LEN - 1, false },
	{ IBV_WR_RDMA_READ, 1, LEN, true },
};

static void type_2_near(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	ends_fill(e, 0, LEN, 9);
	tell_key(e, 0);
	ends_try(e, TRIES(zero_based), 0, e->peer.rkey);
	/* It went with the queue pair that bound it. */
	ends_try(e, TRIES(nothing), 0, e->peer.rkey);
	tell_key(e, 0);
	for (unsigned i = 0; i < READS; i++) {
		ends_try(e, &reads[i], 1, e->peer.addr + FAR_AT, e->peer.rkey);
		ends_meet(e);
	}
	tell_key(e, 0);
	ends_try(e, TRIES(nothing), e->peer.addr + FAR_AT, e->peer.rkey);
	ends_close(e);
}

static void type_2_far(struct ends *e)
{
	struct ibv_send_wr inv = { .opcode = IBV_WR_LOCAL_INV };
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint32_t key;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	mr = bindable(e);
	mw = ibv_alloc_mw(e->r->pd, IBV_MW_TYPE_2);
	key = ibv_inc_rkey(mw->rkey);
	assert_int_equal(bind_2(e, mw, mr, key, ALL | IBV_ACCESS_ZERO_BASED).status,
			 IBV_WC_SUCCESS);
	tell_key(e, key);
	ends_await_tries(e, TRIES(zero_based));
	ends_expect_filled(e, FAR_AT, LEN, 9);
	ends_await_tries(e, TRIES(nothing));
	key = ibv_inc_rkey(key);
	assert_int_equal(bind_2(e, mw, mr, key, IBV_ACCESS_REMOTE_READ).status, IBV_WC_SUCCESS);
	tell_key(e, key);
	/* A refusal takes the connection, and that the window: bound anew each time. */
	for (unsigned i = 0; i < READS; i++) {
		ends_await_tries(e, &reads[i], 1);
		if (reads[i].refused)
			assert_int_equal(bind_2(e, mw, mr, key, IBV_ACCESS_REMOTE_READ).status,
					 IBV_WC_SUCCESS);
		ends_meet(e);
	}
	inv.invalidate_rkey = key;
	assert_int_equal(ends_run(e, &inv).status, IBV_WC_SUCCESS);
	tell_key(e, key);
	ends_await_tries(e, TRIES(nothing));
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	ends_close(e);
}

static void type_2(void **state)
{
	(void)state;
	ends_play(type_2_near, type_2_far);
}

/* WRITE through the window and a SEND that takes it back, posted together. */
static void use_and_return(struct ends *e, unsigned round)
{
	struct ibv_sge sge = { (uintptr_t)e->r->buffer, LEN, e->r->mr->lkey };
	struct ibv_send_wr send = { .wr_id = 2,
				    .sg_list = &sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND_WITH_INV,
				    .send_flags = IBV_SEND_SIGNALED,
				    .invalidate_rkey = e->peer.rkey };
	struct ibv_send_wr write = { .wr_id = 1,
				     .next = &send,
				     .sg_list = &sge,
				     .num_sge = 1,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	ends_fill(e, 0, LEN, round);
	write.wr.rdma.remote_addr = e->peer.addr + FAR_AT;
	write.wr.rdma.rkey = e->peer.rkey;
	assert_int_equal(ibv_post_send(e->qp, &write, &bad), 0);
	for (uint64_t id = 1; id <= 2; id++) {
		struct ibv_wc wc = rig_await(e->cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, id);
	}
}

static void returned_near(struct ends *e)
{
	uint32_t gone = 0;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		tell_key(e, 0);
		gone = e->peer.rkey;
		use_and_return(e, i);
	}
	ends_try(e, nothing, 1, e->peer.addr + FAR_AT, gone);
	/* A key that can't be taken back: a region's. */
	tell_key(e, 0);
	ends_hasten(e);
	ends_expect_refused(ends_request(e, IBV_WR_SEND_WITH_INV, 8, 0, e->peer.rkey, 0),
			    IBV_WC_REM_ACCESS_ERR);
	ends_close(e);
}

static void returned_far(struct ends *e)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint32_t key;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	mr = bindable(e);
	mw = ibv_alloc_mw(e->r->pd, IBV_MW_TYPE_2);
	key = mw->rkey;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;

		key = ibv_inc_rkey(key);
		assert_int_equal(rig_post_recv(e->r, e->qp, i, 0, LEN), 0);
		assert_int_equal(bind_2(e, mw, mr, key, IBV_ACCESS_REMOTE_WRITE).status,
				 IBV_WC_SUCCESS);
		tell_key(e, key);
		wc = rig_await(e->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM),
				 IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, key);
		ends_expect_filled(e, FAR_AT, LEN, i);
		ends_expect_filled(e, 0, LEN, i);
	}
	ends_await_tries(e, nothing, 1);
	assert_int_equal(rig_post_recv(e->r, e->qp, 1, 0, LEN), 0);
	tell_key(e, e->r->mr->rkey);
	assert_int_equal(rig_await(e->cq).status, IBV_WC_MW_BIND_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	ends_close(e);
}

static void returned_by_its_user(void **state)
{
	(void)state;
	ends_play(returned_near, returned_far);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(type_1),
		TEST(type_2),
		TEST(returned_by_its_user),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
