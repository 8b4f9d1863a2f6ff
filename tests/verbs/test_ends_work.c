/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests and completions between two ends: the whole ibv_wr_* family, in batches; every field of an
 * extended completion; atomics that must be executed once; XRC.
 */
#include "ends.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define ROUNDS 12

static uint64_t at(const void *p)
{
	return (uintptr_t)p;
}

/* The queue pair anew, one that is posted to by ibv_wr_*, with a completion queue that tells everything. */
struct extended {
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *qp;
};

#define ALL_FIELDS                                                              \
	(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | \
	 IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |      \
	 IBV_WC_EX_WITH_DLID_PATH_BITS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |  \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

static struct extended extend(struct ends *e, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64, .wc_flags = ALL_FIELDS };
	struct extended x = { .cq = ibv_create_cq_ex(e->r->ctx, &cq_attr) };
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(x.cq),
		.recv_cq = type == IBV_QPT_XRC_SEND ? NULL : ibv_cq_ex_to_cq(x.cq),
		.cap = { .max_send_wr = 32, .max_send_sge = 4, .max_inline_data = 64 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = e->r->pd,
		.send_ops_flags = ops,
	};

	assert_non_null(x.cq);
	if (attr.recv_cq) {
		attr.cap.max_recv_wr = 16;
		attr.cap.max_recv_sge = 4;
	}
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	e->qp = ibv_create_qp_ex(e->r->ctx, &attr);
	assert_non_null(e->qp);
	x.qp = ibv_qp_to_qp_ex(e->qp);
	assert_non_null(x.qp);
	return x;
}

static void close_extended(struct ends *e, struct extended *x)
{
	ends_meet(e);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(x->cq)), 0);
	e->qp = rig_qp(e->r, IBV_QPT_RC, e->cq, e->cq, NULL);
	ends_close(e);
}

static void start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int rc;

	while ((rc = ibv_start_poll(cq, &attr)) == ENOENT)
		;
	assert_int_equal(rc, 0);
}

/* What the next completion must say, whoever asks it. */
static void expect_next(struct ibv_cq_ex *cq, uint64_t id, enum ibv_wc_opcode opcode)
{
	start_poll(cq);
	if (cq->status != IBV_WC_SUCCESS)
		fail_msg("request %u: %s", (unsigned)id, ibv_wc_status_str(cq->status));
	assert_int_equal(cq->wr_id, id);
	assert_int_equal(ibv_wc_read_opcode(cq), opcode);
	ibv_end_poll(cq);
}

#define RC_OPS                                                                                  \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                              \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |              \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |     \
	 IBV_QP_EX_WITH_ATOMIC_WRITE)

/* In the order of post_family(). */
static const enum ibv_wc_opcode family[] = {
	IBV_WC_RDMA_WRITE,   IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD,
	IBV_WC_COMP_SWAP,    IBV_WC_SEND,	IBV_WC_SEND,	  IBV_WC_SEND,
	IBV_WC_ATOMIC_WRITE, IBV_WC_BIND_MW,	IBV_WC_LOCAL_INV, IBV_WC_RDMA_WRITE,
};
#define FAMILY (sizeof(family) / sizeof(family[0]))

struct family {
	struct ibv_mr *mr; /* of the near end, which binds a window, too */
	struct ibv_mw *mw;
	uint32_t key, far_window;
};

/* One batch of everything. The buffer: 0 a pattern, 4096 READ, 4200 and 4208 atomics, 4216 a value. */
static void post_family(struct ends *e, struct ibv_qp_ex *x, struct family *f)
{
	const uint64_t far = e->peer.addr + FAR_AT, word = far + 2048;
	const uint32_t rkey = e->peer.rkey, lkey = e->r->mr->lkey;
	uint8_t *b = e->r->buffer;
	struct ibv_mw_bind_info info = { f->mr, at(b), 64, IBV_ACCESS_REMOTE_WRITE };
	struct ibv_sge list[3] = { { at(b), 100, lkey },
				   { at(b) + 100, 0, lkey },
				   { at(b) + 100, 1200, lkey } };
	struct ibv_data_buf parts[2] = { { b, 20 }, { b + 20, 30 } };
	uint64_t id = 0;

	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED;
	x->wr_id = id++;
	ibv_wr_rdma_write(x, rkey, far);
	ibv_wr_set_sge_list(x, 3, list);
	x->wr_id = id++;
	ibv_wr_rdma_write_imm(x, rkey, far + 1300, htobe32(77));
	ibv_wr_set_inline_data_list(x, 2, parts);
	x->wr_id = id++;
	ibv_wr_rdma_read(x, rkey, far + 1300);
	ibv_wr_set_sge(x, lkey, at(b) + 4096, 50);
	x->wr_id = id++;
	ibv_wr_atomic_fetch_add(x, rkey, word, 3);
	ibv_wr_set_sge(x, lkey, at(b) + 4200, 8);
	x->wr_id = id++;
	ibv_wr_atomic_cmp_swp(x, rkey, word, 13, 1000);
	ibv_wr_set_sge(x, lkey, at(b) + 4208, 8);
	x->wr_id = id++;
	ibv_wr_send(x);
	ibv_wr_set_inline_data(x, b, 64);
	x->wr_id = id++;
	ibv_wr_send_imm(x, htobe32(78));
	ibv_wr_set_sge_list(x, 3, list);
	x->wr_id = id++;
	ibv_wr_send_inv(x, f->far_window);
	ibv_wr_set_sge(x, lkey, at(b), 10);
	x->wr_id = id++;
	ibv_wr_atomic_write(x, rkey, word + 8, b + 4216);
	x->wr_id = id++;
	ibv_wr_bind_mw(x, f->mw, f->key, &info);
	x->wr_id = id++;
	ibv_wr_local_inv(x, f->key);
	x->wr_id = id++;
	x->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	ibv_wr_rdma_write(x, rkey, word + 16);
	ibv_wr_set_sge(x, lkey, at(b) + 4208, 8); /* what the swap fetched */
	assert_int_equal(ibv_wr_complete(x), 0);
}

static void family_near(struct ends *e)
{
	struct family f;
	struct extended x;

	ends_open(e, IBV_QPT_RC);
	x = extend(e, IBV_QPT_RC, RC_OPS);
	ends_join(e, 0);
	f.mr = ibv_reg_mr(e->r->pd, e->r->buffer, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	f.mw = ibv_alloc_mw(e->r->pd, IBV_MW_TYPE_2);
	f.key = f.mw->rkey;
	for (unsigned i = 0; i < ROUNDS; i++) {
		ends_swap(e, (struct hello){ 0 });
		f.key = ibv_inc_rkey(f.key);
		f.far_window = e->peer.other_rkey;
		ends_fill(e, 0, 1300, i);
		ends_set_word(e, 4216, 5000 + i);
		post_family(e, x.qp, &f);
		for (unsigned k = 0; k < FAMILY; k++)
			expect_next(x.cq, k, family[k]);
		assert_memory_equal(e->r->buffer + 4096, e->r->buffer, 50);
		assert_int_equal(ends_word(e, 4200), 10);
		assert_int_equal(ends_word(e, 4208), 13);
		ends_meet(e);
	}
	assert_int_equal(ibv_dealloc_mw(f.mw), 0);
	assert_int_equal(ibv_dereg_mr(f.mr), 0);
	close_extended(e, &x);
}

/* The next receive, whichever fields it has. */
static void expect_received(struct ends *e, struct ibv_cq_ex *cq, uint64_t id,
			    enum ibv_wc_opcode opcode, uint32_t len, uint64_t *stamp)
{
	start_poll(cq);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(cq->wr_id, id);
	assert_int_equal(ibv_wc_read_opcode(cq), opcode);
	assert_int_equal(ibv_wc_read_byte_len(cq), len);
	assert_int_equal(ibv_wc_read_vendor_err(cq), 0);
	assert_int_equal(ibv_wc_read_qp_num(cq), e->qp->qp_num);
	assert_int_equal(ibv_wc_read_src_qp(cq), e->peer.qpn);
	assert_int_equal(ibv_wc_read_slid(cq), 0);
	assert_int_equal(ibv_wc_read_sl(cq), 0);
	assert_int_equal(ibv_wc_read_dlid_path_bits(cq), 0);
	assert_true(ibv_wc_read_completion_ts(cq) >= stamp[0]);
	assert_true(ibv_wc_read_completion_wallclock_ns(cq) >= stamp[1]);
	stamp[0] = ibv_wc_read_completion_ts(cq);
	stamp[1] = ibv_wc_read_completion_wallclock_ns(cq);
}

static void family_far(struct ends *e)
{
	uint64_t stamp[2] = { 0 };
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct extended x;
	uint32_t key;

	ends_open(e, IBV_QPT_RC);
	x = extend(e, IBV_QPT_RC, RC_OPS);
	ends_join(e, 0);
	mr = ibv_reg_mr(e->r->pd, e->r->buffer, RIG_BUFFER,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(e->r->pd, IBV_MW_TYPE_2);
	key = mw->rkey;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct ibv_mw_bind_info info = { mr, at(e->r->buffer), 64,
						 IBV_ACCESS_REMOTE_WRITE };
		const uint32_t qpn = e->peer.qpn;

		memset(e->r->buffer, 0xee, RIG_BUFFER);
		ends_set_word(e, FAR_AT + 2048, 10);
		for (uint64_t k = 0; k < 4; k++)
			assert_int_equal(rig_post_recv(e->r, e->qp, k, (uint32_t)k * 2048, 1400),
					 0);
		key = ibv_inc_rkey(key);
		ibv_wr_start(x.qp);
		x.qp->wr_id = 9;
		x.qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(x.qp, mw, key, &info);
		assert_int_equal(ibv_wr_complete(x.qp), 0);
		expect_next(x.cq, 9, IBV_WC_BIND_MW);
		ends_swap(e, (struct hello){ .rkey = e->r->mr->rkey,
					     .other_rkey = key,
					     .addr = at(e->r->buffer) });
		e->peer.qpn = qpn;
		expect_received(e, x.cq, 0, IBV_WC_RECV_RDMA_WITH_IMM, 50, stamp);
		assert_int_equal(ibv_wc_read_wc_flags(x.cq), IBV_WC_WITH_IMM);
		assert_int_equal(be32toh(ibv_wc_read_imm_data(x.cq)), 77);
		ibv_end_poll(x.cq);
		expect_received(e, x.cq, 1, IBV_WC_RECV, 64, stamp);
		assert_int_equal(ibv_wc_read_wc_flags(x.cq), 0);
		ibv_end_poll(x.cq);
		expect_received(e, x.cq, 2, IBV_WC_RECV, 1300, stamp);
		assert_int_equal(ibv_wc_read_wc_flags(x.cq), IBV_WC_WITH_IMM);
		assert_int_equal(be32toh(ibv_wc_read_imm_data(x.cq)), 78);
		ibv_end_poll(x.cq);
		expect_received(e, x.cq, 3, IBV_WC_RECV, 10, stamp);
		assert_int_equal(ibv_wc_read_wc_flags(x.cq), IBV_WC_WITH_INV);
		assert_int_equal(ibv_wc_read_invalidated_rkey(x.cq), key);
		ibv_end_poll(x.cq);
		ends_meet(e);
		ends_expect_filled(e, FAR_AT, 1300, i);
		ends_expect_filled(e, FAR_AT + 1300, 50, i);
		ends_expect_filled(e, 2048, 64, i);
		ends_expect_filled(e, 4096, 1300, i);
		ends_expect_filled(e, 6144, 10, i);
		assert_int_equal(ends_word(e, FAR_AT + 2048), 1000);
		assert_int_equal(ends_word(e, FAR_AT + 2056), 5000 + i);
		assert_int_equal(ends_word(e, FAR_AT + 2064), 13);
	}
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close_extended(e, &x);
}

static void whole_family(void **state)
{
	(void)state;
	ends_play(family_near, family_far);
}

/* Datagrams by ibv_wr_set_ud_addr; those that are lost are sent again until the far end has said that it heard. */
static void datagram_near(struct ends *e)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct extended x;
	struct ibv_ah *ah;

	ends_open(e, IBV_QPT_UD);
	x = extend(e, IBV_QPT_UD, IBV_QP_EX_WITH_SEND_WITH_IMM);
	ends_join(e, 0);
	assert_int_equal(ibv_query_gid(e->r->ctx, 1, 0, &attr.grh.dgid), 0);
	ah = ibv_create_ah(e->r->pd, &attr);
	ends_fill(e, 0, 50, 3);
	do {
		struct ibv_data_buf parts[2] = { { e->r->buffer, 20 }, { e->r->buffer + 20, 30 } };

		ibv_wr_start(x.qp);
		x.qp->wr_id = 4;
		x.qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send_imm(x.qp, htobe32(0x11223344));
		ibv_wr_set_ud_addr(x.qp, ah, e->peer.qpn, 0x1234);
		ibv_wr_set_inline_data_list(x.qp, 2, parts);
		assert_int_equal(ibv_wr_complete(x.qp), 0);
		expect_next(x.cq, 4, IBV_WC_SEND);
	} while (!rig_readable(e->sock, 20));
	ends_meet(e);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	close_extended(e, &x);
}

static void datagram_far(struct ends *e)
{
	struct extended x;

	ends_open(e, IBV_QPT_UD);
	x = extend(e, IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	assert_int_equal(rig_to_init(e->qp), 0);
	assert_int_equal(rig_post_recv(e->r, e->qp, 8, FAR_AT, 100), 0);
	ends_join(e, 0);
	start_poll(x.cq);
	assert_int_equal(x.cq->status, IBV_WC_SUCCESS);
	assert_int_equal(x.cq->wr_id, 8);
	assert_int_equal(ibv_wc_read_byte_len(x.cq), 90);
	assert_int_equal(ibv_wc_read_wc_flags(x.cq), IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(ibv_wc_read_imm_data(x.cq)), 0x11223344);
	assert_int_equal(ibv_wc_read_src_qp(x.cq), e->peer.qpn);
	assert_int_equal(ibv_wc_read_qp_num(x.cq), e->qp->qp_num);
	ibv_end_poll(x.cq);
	ends_expect_filled(e, FAR_AT + 40, 50, 3);
	ends_meet(e);
	close_extended(e, &x);
}

static void datagrams(void **state)
{
	(void)state;
	ends_play(datagram_near, datagram_far);
}

/* Deep queues of atomics on one word by both ends: each is executed once, and none sees what another saw. */
static void count_near(struct ends *e)
{
	uint64_t sum = 0;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, e->r->mr->rkey);
	for (unsigned i = 0; i < ROUNDS * 10; i++) {
		const enum ibv_wr_opcode opcode =
			i % 3 == 2 ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;

		assert_int_equal(ends_request(e, opcode, 8, e->peer.rkey, 0, 0), IBV_WC_SUCCESS);
		assert_int_equal(ends_word(e, 0), sum);
		if (i % 3 != 2)
			sum += 5;
		else if (sum == 5)
			sum = 77;
		if (i % 10 == 9) { /* and back to 0 */
			sum = 0;
			ends_set_word(e, 0, sum);
			assert_int_equal(
				ends_request(e, IBV_WR_ATOMIC_WRITE, 8, e->peer.rkey, 0, 0),
				IBV_WC_SUCCESS);
		}
	}
	ends_close(e);
}

static void count_far(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_set_word(e, FAR_AT, 0);
	ends_join(e, e->r->mr->rkey);
	ends_close(e);
}

static void atomics_once(void **state)
{
	(void)state;
	ends_play(count_near, count_far);
}

enum { POSTERS = 3, BATCHES = 60, BATCH = 3 };

struct poster {
	pthread_t thread;
	struct ends *e;
	struct ibv_qp_ex *qp;
	unsigned index;
	_Atomic int *room;
	_Atomic bool wrong;
};

static void wait_for_room(struct poster *p)
{
	while (atomic_fetch_sub(p->room, BATCH) < BATCH) {
		atomic_fetch_add(p->room, BATCH);
		sched_yield();
	}
}

static void build_batch(struct poster *p, uint64_t batch, uint64_t value)
{
	const uint64_t far = p->e->peer.addr + FAR_AT + p->index * 64;

	ibv_wr_start(p->qp);
	p->qp->wr_flags = IBV_SEND_SIGNALED;
	for (unsigned k = 0; k < BATCH; k++) {
		p->qp->wr_id = (p->index * BATCHES + batch) * BATCH + k;
		ibv_wr_rdma_write(p->qp, p->e->peer.rkey, far + k * 8);
		ibv_wr_set_inline_data(p->qp, &value, sizeof(value));
	}
}

/* WRITEs that belong together, of a number that counts up; every third batch is given up first. */
static void *post_batches(void *arg)
{
	struct poster *p = arg;

	for (uint64_t i = 0; i < BATCHES; i++) {
		wait_for_room(p);
		if (i % 3 == 0) {
			build_batch(p, i, 0);
			ibv_wr_abort(p->qp);
		}
		build_batch(p, i, i + 1);
		if (ibv_wr_complete(p->qp))
			p->wrong = true;
	}
	return NULL;
}

/* Each batch completes as a whole, in its place; those of one thread in order. */
static void take_batches(struct ibv_cq_ex *cq, _Atomic int *room)
{
	uint64_t next[POSTERS] = { 0 };

	for (unsigned i = 0; i < POSTERS * BATCHES; i++) {
		uint64_t first = 0;

		for (unsigned k = 0; k < BATCH; k++) {
			start_poll(cq);
			assert_int_equal(cq->status, IBV_WC_SUCCESS);
			if (k == 0)
				first = cq->wr_id;
			assert_int_equal(cq->wr_id, first + k);
			ibv_end_poll(cq);
		}
		assert_int_equal(first / BATCH % BATCHES, next[first / BATCH / BATCHES]++);
		atomic_fetch_add(room, BATCH);
	}
}

static void batches_near(struct ends *e)
{
	struct poster posters[POSTERS];
	_Atomic int room = 30;
	struct extended x;

	ends_open(e, IBV_QPT_RC);
	x = extend(e, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
	ends_join(e, 0);
	for (unsigned i = 0; i < POSTERS; i++) {
		posters[i] = (struct poster){ .e = e, .qp = x.qp, .index = i, .room = &room };
		assert_int_equal(
			pthread_create(&posters[i].thread, NULL, post_batches, &posters[i]), 0);
	}
	take_batches(x.cq, &room);
	for (unsigned i = 0; i < POSTERS; i++) {
		assert_int_equal(pthread_join(posters[i].thread, NULL), 0);
		assert_false(posters[i].wrong);
	}
	ends_meet(e);
	close_extended(e, &x);
}

static void batches_far(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, e->r->mr->rkey);
	ends_meet(e);
	for (uint32_t i = 0; i < POSTERS; i++)
		for (uint32_t k = 0; k < BATCH; k++)
			assert_int_equal(ends_word(e, FAR_AT + i * 64 + k * 8), BATCHES);
	ends_meet(e); /* its close_extended() */
	ends_close(e);
}

static void batches_of_threads(void **state)
{
	(void)state;
	ends_play(batches_near, batches_far);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(whole_family),
		TEST(datagrams),
		TEST(atomics_once),
		TEST(batches_of_threads),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
