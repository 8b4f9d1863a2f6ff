/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows of both types through the API: what they open, to whom, and how they close; SEND
 * with invalidate, local invalidate, ATOMIC WRITE. */
#include "rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#define WINDOW_AT  8192u /* in the buffer */
#define WINDOW_LEN 256u

/* a binds and is accessed, b accesses. */
struct state {
	struct rig *r;
	struct ibv_mr *mr; /* of the buffer; windows may be bound to it, no remote access itself */
	struct ibv_cq *a_cq, *b_cq;
	struct ibv_qp *a, *b;
};

static int setup(void **state)
{
	struct state *s = calloc(1, sizeof(*s));
	void *rig;

	assert_non_null(s);
	rig_setup(&rig);
	s->r = rig;
	s->mr = ibv_reg_mr(s->r->pd, s->r->buffer, RIG_BUFFER,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	assert_non_null(s->mr);
	s->a_cq = rig_cq(s->r, 32, NULL);
	s->b_cq = rig_cq(s->r, 32, NULL);
	s->a = rig_qp(s->r, IBV_QPT_RC, s->a_cq, s->a_cq, NULL);
	s->b = rig_qp(s->r, IBV_QPT_RC, s->b_cq, s->b_cq, NULL);
	rig_connect(s->a, s->b);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct state *s = *state;
	void *rig = s->r;

	assert_int_equal(ibv_destroy_qp(s->a), 0);
	assert_int_equal(ibv_destroy_qp(s->b), 0);
	assert_int_equal(ibv_destroy_cq(s->a_cq), 0);
	assert_int_equal(ibv_destroy_cq(s->b_cq), 0);
	assert_int_equal(ibv_dereg_mr(s->mr), 0);
	rig_teardown(&rig);
	free(s);
	return 0;
}

static uint64_t va(struct state *s, uint32_t offset)
{
	return (uintptr_t)s->r->buffer + offset;
}

/* Both ends in RTS again, after an error. */
static void recover(struct state *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;

	assert_int_equal(ibv_modify_qp(s->a, &attr, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(s->b, &attr, IBV_QP_STATE), 0);
	while (ibv_poll_cq(s->a_cq, 1, &wc) || ibv_poll_cq(s->b_cq, 1, &wc))
		;
	rig_connect(s->a, s->b);
}

static enum ibv_wc_status bind_1(struct state *s, struct ibv_mw *mw, struct ibv_mr *mr,
				 uint32_t offset, uint32_t len, unsigned access)
{
	struct ibv_mw_bind bind = {
		.wr_id = 11,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr,
			       .addr = len ? va(s, offset) : 0,
			       .length = len,
			       .mw_access_flags = access },
	};
	uint32_t before = mw->rkey;
	struct ibv_wc wc;

	assert_int_equal(ibv_bind_mw(s->a, mw, &bind), 0);
	assert_int_equal(mw->rkey, ibv_inc_rkey(before));
	wc = rig_await(s->a_cq);
	assert_int_equal(wc.wr_id, 11);
	if (wc.status == IBV_WC_SUCCESS)
		assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
	return wc.status;
}

static enum ibv_wc_status post(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags |= IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(qp, wr, &bad), 0);
	return rig_await(cq).status;
}

static enum ibv_wc_status bind_2(struct state *s, struct ibv_mw *mw, uint32_t rkey, uint32_t offset,
				 uint32_t len, unsigned access)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ s->mr, va(s, offset), len, access };
	return post(s->a, s->a_cq, &wr);
}

static enum ibv_wc_status access_as(struct state *s, struct ibv_qp *qp, struct ibv_cq *cq,
				    enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr,
				    uint32_t len)
{
	struct ibv_sge sge = { va(s, 0), len, s->r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode };

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	return post(qp, cq, &wr);
}

static enum ibv_wc_status access_of(struct state *s, enum ibv_wr_opcode opcode, uint32_t rkey,
				    uint64_t addr, uint32_t len)
{
	return access_as(s, s->b, s->b_cq, opcode, rkey, addr, len);
}

static struct ibv_mw *make(struct state *s, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(s->r->pd, type);

	assert_non_null(mw);
	assert_int_equal(mw->type, type);
	return mw;
}

static void type_1(void **state)
{
	struct state *s = *state;
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_1);
	/* Local write is a flag of regions: accepted, and nothing. */
	const unsigned rw =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	uint32_t old;

	memset(s->r->buffer, 'w', WINDOW_LEN);
	assert_int_equal(bind_1(s, mw, s->mr, WINDOW_AT, WINDOW_LEN, rw), IBV_WC_SUCCESS);
	assert_int_equal(access_of(s, IBV_WR_RDMA_WRITE, mw->rkey, va(s, WINDOW_AT), WINDOW_LEN),
			 IBV_WC_SUCCESS);
	assert_memory_equal(s->r->buffer + WINDOW_AT, s->r->buffer, WINDOW_LEN);
	assert_int_equal(access_of(s, IBV_WR_RDMA_READ, mw->rkey, va(s, WINDOW_AT), 1),
			 IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(s->mr), EBUSY);
	assert_int_equal(ibv_rereg_mr(s->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_LOCAL_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EBUSY);
	/* Bound anew, the old key is void. */
	old = mw->rkey;
	assert_int_equal(bind_1(s, mw, s->mr, WINDOW_AT, WINDOW_LEN, IBV_ACCESS_REMOTE_READ),
			 IBV_WC_SUCCESS);
	assert_int_equal(access_of(s, IBV_WR_RDMA_READ, old, va(s, WINDOW_AT), 1),
			 IBV_WC_REM_ACCESS_ERR);
	recover(s);
	assert_int_equal(access_of(s, IBV_WR_RDMA_READ, mw->rkey, va(s, WINDOW_AT), 1),
			 IBV_WC_SUCCESS);
	assert_int_equal(access_of(s, IBV_WR_RDMA_WRITE, mw->rkey, va(s, WINDOW_AT), 1),
			 IBV_WC_REM_ACCESS_ERR);
	recover(s);
	/* A bind of length 0 closes it. */
	assert_int_equal(bind_1(s, mw, NULL, 0, 0, 0), IBV_WC_SUCCESS);
	assert_int_equal(access_of(s, IBV_WR_RDMA_READ, mw->rkey, va(s, WINDOW_AT), 1),
			 IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

static void bounds(void **state)
{
	struct state *s = *state;
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_1);
	static const struct {
		int32_t offset;
		uint32_t len;
		enum ibv_wc_status status;
	} cases[] = {
		{ 0, WINDOW_LEN, IBV_WC_SUCCESS },
		{ WINDOW_LEN - 1, 1, IBV_WC_SUCCESS },
		{ -1, 1, IBV_WC_REM_ACCESS_ERR },
		{ -1, 2, IBV_WC_REM_ACCESS_ERR },
		{ 0, WINDOW_LEN + 1, IBV_WC_REM_ACCESS_ERR },
		{ WINDOW_LEN, 1, IBV_WC_REM_ACCESS_ERR },
		{ WINDOW_LEN - 1, 2, IBV_WC_REM_ACCESS_ERR },
	};

	assert_int_equal(bind_1(s, mw, s->mr, WINDOW_AT, WINDOW_LEN, IBV_ACCESS_REMOTE_WRITE),
			 IBV_WC_SUCCESS);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t at = va(s, WINDOW_AT) + (uint64_t)(int64_t)cases[i].offset;

		assert_int_equal(access_of(s, IBV_WR_RDMA_WRITE, mw->rkey, at, cases[i].len),
				 cases[i].status);
		if (cases[i].status)
			recover(s);
	}
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	/* Gone, its key is void. */
	assert_int_equal(ibv_dereg_mr(s->mr), 0);
	s->mr = ibv_reg_mr(s->r->pd, s->r->buffer, RIG_BUFFER,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
}

/* C10-72 to 75, and what a window isn't. */
static void refused_binds(void **state)
{
	struct state *s = *state;
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_1), *two = make(s, IBV_MW_TYPE_2);
	struct ibv_pd *pd = ibv_alloc_pd(s->r->ctx);
	struct ibv_mw *foreign = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mr *read_only =
		ibv_reg_mr(s->r->pd, s->r->buffer, RIG_BUFFER, IBV_ACCESS_MW_BIND);
	struct ibv_mw_bind bind = { .bind_info = { .length = 5 } };
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };

	assert_null(ibv_alloc_mw(s->r->pd, (enum ibv_mw_type)3));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_bind_mw(s->a, mw, &bind), EINVAL);
	/* The region has no MW_BIND. */
	assert_int_equal(bind_1(s, mw, s->r->mr, 0, 8, IBV_ACCESS_REMOTE_READ), IBV_WC_MW_BIND_ERR);
	recover(s);
	/* Nor may a window give more than its region has. */
	assert_int_equal(bind_1(s, mw, read_only, 0, 8, IBV_ACCESS_REMOTE_WRITE),
			 IBV_WC_MW_BIND_ERR);
	recover(s);
	assert_int_equal(bind_1(s, mw, s->mr, RIG_BUFFER - 4, 8, IBV_ACCESS_REMOTE_READ),
			 IBV_WC_MW_BIND_ERR);
	recover(s);
	assert_int_equal(bind_1(s, mw, s->mr, 0, 8, IBV_ACCESS_ZERO_BASED), IBV_WC_MW_BIND_ERR);
	recover(s);
	assert_int_equal(
		bind_2(s, foreign, ibv_inc_rkey(foreign->rkey), 0, 8, IBV_ACCESS_REMOTE_READ),
		IBV_WC_MW_BIND_ERR);
	recover(s);
	/* Of type 2 the program chooses the key, but only its tag. */
	assert_int_equal(bind_2(s, two, two->rkey + 0x100, 0, 8, IBV_ACCESS_REMOTE_READ),
			 IBV_WC_MW_BIND_ERR);
	recover(s);
	assert_int_equal(bind_2(s, two, ibv_inc_rkey(two->rkey), 0, 0, IBV_ACCESS_REMOTE_READ),
			 IBV_WC_MW_BIND_ERR);
	recover(s);
	/* An R_Key is no L_Key. */
	assert_int_equal(bind_1(s, mw, s->mr, 0, 8, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
	sge = (struct ibv_sge){ va(s, 0), 8, mw->rkey };
	assert_int_equal(post(s->b, s->b_cq, &wr), IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dealloc_mw(two), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dealloc_mw(foreign), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dereg_mr(read_only), 0);
}

static void type_2(void **state)
{
	struct state *s = *state;
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_2);
	struct ibv_mw_bind wrong_call = { .bind_info = { .mr = s->mr } };
	struct ibv_send_wr inv = { .opcode = IBV_WR_LOCAL_INV };
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_qp *other = rig_qp(s->r, IBV_QPT_RC, s->b_cq, s->b_cq, NULL);

	assert_int_equal(ibv_bind_mw(s->a, mw, &wrong_call), EINVAL);
	memset(s->r->buffer, 't', 64);
	assert_int_equal(bind_2(s, mw, key, WINDOW_AT, WINDOW_LEN,
				IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED),
			 IBV_WC_SUCCESS);
	/* Addressed from 0. */
	assert_int_equal(access_of(s, IBV_WR_RDMA_WRITE, key, 64, 64), IBV_WC_SUCCESS);
	assert_memory_equal(s->r->buffer + WINDOW_AT + 64, s->r->buffer, 64);
	/* Open to the peer of the queue pair that bound it alone, though the domain is the same. */
	rig_connect_self(other);
	assert_int_not_equal(access_as(s, other, s->b_cq, IBV_WR_RDMA_WRITE, key, 0, 8),
			     IBV_WC_SUCCESS);
	/* Not bound twice. */
	assert_int_equal(bind_2(s, mw, ibv_inc_rkey(key), WINDOW_AT, 8, IBV_ACCESS_REMOTE_WRITE),
			 IBV_WC_MW_BIND_ERR);
	recover(s);
	/* A reset of the queue pair has freed it. */
	key = ibv_inc_rkey(key);
	assert_int_equal(bind_2(s, mw, key, WINDOW_AT, 8, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
	assert_int_equal(access_of(s, IBV_WR_RDMA_WRITE, key, va(s, WINDOW_AT), 8), IBV_WC_SUCCESS);
	inv.invalidate_rkey = key;
	assert_int_equal(post(s->a, s->a_cq, &inv), IBV_WC_SUCCESS);
	assert_int_equal(access_of(s, IBV_WR_RDMA_WRITE, key, va(s, WINDOW_AT), 8),
			 IBV_WC_REM_ACCESS_ERR);
	recover(s);
	/* Keys that can't be invalidated: a region's, a stale one. */
	inv.invalidate_rkey = s->mr->rkey;
	assert_int_equal(post(s->a, s->a_cq, &inv), IBV_WC_LOC_QP_OP_ERR);
	recover(s);
	inv.invalidate_rkey = key - 1;
	assert_int_equal(post(s->a, s->a_cq, &inv), IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(ibv_destroy_qp(other), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

static void send_with_invalidate(void **state)
{
	struct state *s = *state;
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_sge sge = { va(s, 0), 2000, s->r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV };
	struct ibv_wc wc;

	assert_int_equal(bind_2(s, mw, key, WINDOW_AT, WINDOW_LEN, IBV_ACCESS_REMOTE_READ),
			 IBV_WC_SUCCESS);
	wr.invalidate_rkey = key;
	assert_int_equal(rig_post_recv(s->r, s->a, 3, 16384, 4096), 0);
	assert_int_equal(post(s->b, s->b_cq, &wr), IBV_WC_SUCCESS);
	wc = rig_await(s->a_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 2000);
	assert_int_equal(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM), IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, key);
	/* Free: it can be bound again. */
	key = ibv_inc_rkey(key);
	assert_int_equal(bind_2(s, mw, key, WINDOW_AT, WINDOW_LEN, IBV_ACCESS_REMOTE_READ),
			 IBV_WC_SUCCESS);
	/* A key that isn't one: both sides hear of it. */
	wr.invalidate_rkey = s->r->mr->rkey;
	assert_int_equal(rig_post_recv(s->r, s->a, 4, 16384, 4096), 0);
	assert_int_equal(post(s->b, s->b_cq, &wr), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(rig_await(s->a_cq).status, IBV_WC_MW_BIND_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

/* Windows know their queue pair by what it is, not by where: a new one at its place isn't let in. */
static void queue_pair_goes(void **state)
{
	struct state *s = *state;
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);

	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(bind_2(s, mw, key, 0, 8, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
		assert_int_equal(ibv_destroy_qp(s->a), 0);
		s->a = rig_qp(s->r, IBV_QPT_RC, s->a_cq, s->a_cq, NULL);
		recover(s);
		assert_int_equal(access_of(s, IBV_WR_RDMA_WRITE, key, va(s, 0), 8),
				 IBV_WC_REM_ACCESS_ERR);
		recover(s);
		key = ibv_inc_rkey(key);
	}
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

static void unreliable(void **state)
{
	struct state *s = *state;
	struct ibv_qp *qp = rig_qp(s->r, IBV_QPT_UC, s->a_cq, s->a_cq, NULL);
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW }, *bad;

	rig_connect_self(qp);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){ s->mr, va(s, WINDOW_AT), 8, IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(post(qp, s->a_cq, &wr), IBV_WC_SUCCESS);
	memset(s->r->buffer, 'u', 8);
	s->r->buffer[WINDOW_AT] = 0;
	assert_int_equal(
		access_as(s, qp, s->a_cq, IBV_WR_RDMA_WRITE, wr.bind_mw.rkey, va(s, WINDOW_AT), 8),
		IBV_WC_SUCCESS);
	while (*(volatile uint8_t *)(s->r->buffer + WINDOW_AT) != 'u')
		ibv_poll_cq(s->a_cq, 1, &(struct ibv_wc){ 0 });
	wr.opcode = IBV_WR_SEND_WITH_INV;
	assert_int_equal(ibv_post_send(qp, &wr, &bad), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

/* The ibv_wr_* way of it all, in one batch: local requests keep their place in the queue. */
static void wr_family(void **state)
{
	struct state *s = *state;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = s->a_cq,
		.recv_cq = s->a_cq,
		.cap = { 16, 16, 4, 4, 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->r->pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(s->r->ctx, &attr);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_mw *mw = make(s, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_mw_bind_info info = { s->mr, va(s, WINDOW_AT), WINDOW_LEN,
					 IBV_ACCESS_REMOTE_WRITE };
	static const enum ibv_wc_opcode order[] = { IBV_WC_BIND_MW,	 IBV_WC_RDMA_WRITE,
						    IBV_WC_ATOMIC_WRITE, IBV_WC_LOCAL_INV,
						    IBV_WC_BIND_MW,	 IBV_WC_SEND };
	uint64_t value = UINT64_C(0x0123456789abcdef), got;
	unsigned n_send = 0;

	assert_non_null(ex);
	rig_connect_self(qp);
	memset(s->r->buffer, 'f', 64);
	assert_int_equal(rig_post_recv(s->r, qp, 77, 20000, 4096), 0);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, key, &info);
	ibv_wr_rdma_write(ex, key, va(s, WINDOW_AT));
	ibv_wr_set_sge(ex, s->r->mr->lkey, va(s, 0), 64);
	ibv_wr_atomic_write(ex, key, va(s, WINDOW_AT + 128), &value);
	value = 0;
	ibv_wr_local_inv(ex, key);
	ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(key), &info);
	ibv_wr_send_inv(ex, ibv_inc_rkey(key));
	ibv_wr_set_inline_data(ex, "hello", 5);
	assert_int_equal(ibv_wr_complete(ex), 0);
	for (unsigned i = 0; i < 7; i++) {
		struct ibv_wc wc = rig_await(s->a_cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode & IBV_WC_RECV) {
			assert_int_equal(wc.invalidated_rkey, ibv_inc_rkey(key));
			continue;
		}
		assert_int_equal(wc.opcode, order[n_send++]);
	}
	assert_memory_equal(s->r->buffer + WINDOW_AT, s->r->buffer, 64);
	memcpy(&got, s->r->buffer + WINDOW_AT + 128, 8);
	assert_true(got == UINT64_C(0x0123456789abcdef));
	assert_memory_equal(s->r->buffer + 20000, "hello", 5);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

static void atomic_write(void **state)
{
	struct state *s = *state;
	struct ibv_device_attr_ex attr;
	uint64_t value = 42, got;
	struct ibv_sge sge = { (uintptr_t)&value, 8, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_WRITE,
				  .send_flags = IBV_SEND_INLINE },
			   *bad;

	assert_int_equal(ibv_query_device_ex(s->r->ctx, NULL, &attr), 0);
	/* As later headers name it: IBV_DEVICE_ATOMIC_WRITE. */
	assert_true(attr.device_cap_flags_ex >> 40 & 1);
	wr.wr.rdma.remote_addr = va(s, 64);
	wr.wr.rdma.rkey = s->r->mr->rkey;
	assert_int_equal(post(s->b, s->b_cq, &wr), IBV_WC_SUCCESS);
	memcpy(&got, s->r->buffer + 64, 8);
	assert_int_equal(got, 42);
	sge.length = 4;
	assert_int_equal(ibv_post_send(s->b, &wr, &bad), EINVAL);
	sge.length = 8;
	wr.wr.rdma.remote_addr++;
	assert_int_equal(ibv_post_send(s->b, &wr, &bad), EINVAL);
	/* The region needs what a WRITE needs. */
	wr.wr.rdma.remote_addr--;
	wr.wr.rdma.rkey = s->mr->rkey;
	assert_int_equal(post(s->b, s->b_cq, &wr), IBV_WC_REM_ACCESS_ERR);
}

struct race {
	struct state *s;
	struct ibv_mw *mw;
	_Atomic uint32_t key;
	_Atomic bool stop;
};

/* Opens and closes the window over and over. */
static void *rebind(void *arg)
{
	struct race *c = arg;

	for (unsigned i = 0; !c->stop; i++) {
		if (bind_1(c->s, c->mw, c->s->mr, WINDOW_AT, WINDOW_LEN, IBV_ACCESS_REMOTE_WRITE) !=
		    IBV_WC_SUCCESS)
			break;
		c->key = c->mw->rkey;
		for (unsigned spin = 0; spin < i % 7; spin++)
			rig_readable(0, 0);
	}
	return NULL;
}

/* Whatever the moment, a WRITE through a key that was current lands inside or fails. */
static void bound_while_used(void **state)
{
	struct state *s = *state;
	struct race c = { .s = s, .mw = make(s, IBV_MW_TYPE_1) };
	struct ibv_qp *qp = rig_qp(s->r, IBV_QPT_RC, s->b_cq, s->b_cq, NULL);
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	pthread_t thread;

	memset(s->r->buffer, 'r', WINDOW_LEN);
	memset(s->r->buffer + WINDOW_AT - 64, 0, WINDOW_LEN + 128);
	rig_connect_self(qp);
	assert_int_equal(pthread_create(&thread, NULL, rebind, &c), 0);
	while (!c.key)
		;
	for (unsigned i = 0; i < 300; i++) {
		if (access_as(s, qp, s->b_cq, IBV_WR_RDMA_WRITE, c.key, va(s, WINDOW_AT),
			      WINDOW_LEN) == IBV_WC_SUCCESS)
			continue;
		assert_int_equal(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
		rig_connect_self(qp);
	}
	c.stop = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(s->r->buffer[WINDOW_AT - 1 - i], 0);
		assert_int_equal(s->r->buffer[WINDOW_AT + WINDOW_LEN + i], 0);
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_dealloc_mw(c.mw), 0);
}

int main(void)
{
	rig_isolate();

	const struct CMUnitTest tests[] = {
		TEST(type_1),
		TEST(bounds),
		TEST(refused_binds),
		TEST(type_2),
		TEST(send_with_invalidate),
		TEST(queue_pair_goes),
		TEST(unreliable),
		TEST(wr_family),
		TEST(atomic_write),
		TEST(bound_while_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
