/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends, one of which does something else meanwhile: breaks off while another thread polls, lets pages go
 * and copies from and to the device's memory while the other end is at them, waits where no poll drives the adapter.
 */
#include "ends.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define LEN 3000u

static uint64_t at(const void *p)
{
	return (uintptr_t)p;
}

static void modify_to(struct ends *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
}

/* Another queue pair in its place, in this domain. */
static void renew(struct ends *e, struct ibv_pd *pd)
{
	struct ibv_pd *own = e->r->pd;

	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	e->r->pd = pd;
	e->qp = rig_qp(e->r, IBV_QPT_RC, e->cq, e->cq, NULL);
	e->r->pd = own;
}

/* The near end's own queue pair fails, is reset, or goes, while it posts and another thread polls: what was posted
 * before completes once, and none of a queue pair that was reset. */
struct own {
	struct ends *e;
	_Atomic uint64_t done;
	_Atomic bool stop, wrong;
};

static void *take_all(void *arg)
{
	struct own *o = arg;
	bool failed = false;

	for (;;) {
		const bool last = o->stop;
		struct ibv_wc wc[3];
		int n = ibv_poll_cq(o->e->cq, 3, wc);

		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id != o->done ||
			    (failed && wc[i].status != IBV_WC_WR_FLUSH_ERR))
				o->wrong = true;
			failed = failed || wc[i].status != IBV_WC_SUCCESS;
			o->done++;
		}
		if (n < 0)
			o->wrong = true;
		if (last && !n)
			return NULL;
	}
}

/* The queue pairs are of a parent domain. */
static void own_near(struct ends *e)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_pd *parent;

	ends_open(e, IBV_QPT_RC);
	attr.pd = e->r->pd;
	attr.td = ibv_alloc_td(e->r->ctx, &td_attr);
	parent = ibv_alloc_parent_domain(e->r->ctx, &attr);
	assert_non_null(parent);
	renew(e, parent);
	ends_join(e, 0);
	for (unsigned i = 0; i < 24; i++) {
		struct own o = { .e = e };
		uint64_t posted;
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, take_all, &o), 0);
		for (posted = 0; posted < 8 + i % 12; posted++) {
			while (posted >= o.done + 16)
				sched_yield();
			assert_int_equal(
				rig_post_send(e->r, e->qp, posted, 0, 500, IBV_SEND_SIGNALED), 0);
		}
		if (i % 3 == 0) {
			modify_to(e, IBV_QPS_ERR);
			while (o.done < posted && !o.wrong)
				sched_yield();
		} else if (i % 3 == 1) {
			modify_to(e, IBV_QPS_RESET);
		} else {
			renew(e, parent);
		}
		o.stop = true;
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_false(o.wrong);
		assert_true(o.done <= posted);
		assert_int_equal(ibv_poll_cq(e->cq, 1, &(struct ibv_wc){ 0 }), 0);
		ends_meet(e);
		ends_again(e);
	}
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	renew(e, e->r->pd);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(attr.td), 0);
	ends_close(e);
}

static void own_far(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	for (unsigned i = 0; i < 24; i++) {
		struct ibv_wc wc;

		/* Some find no receive. */
		for (unsigned k = 0; k < 12; k++)
			assert_int_equal(rig_post_recv(e->r, e->qp, k, FAR_AT, 500), 0);
		ends_meet(e);
		while (ibv_poll_cq(e->cq, 1, &wc) == 1)
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		ends_again(e);
	}
	ends_close(e);
}

static void ended_by_itself(void **state)
{
	(void)state;
	ends_play(own_near, own_far);
}

/* Writes and reads that all succeed, of memory on demand and of the device's. */
static void busy_near(struct ends *e)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_WRITE };

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	ends_swap(e, (struct hello){ 0 });
	for (unsigned i = 0; i < 150; i++) {
		const enum ibv_wr_opcode opcode = opcodes[i % 3];
		const uint32_t len = opcode == IBV_WR_ATOMIC_WRITE ? 8 : LEN;

		memset(e->r->buffer, 'w', LEN);
		if (i % 2)
			assert_int_equal(
				ends_request_at(e, opcode, len, e->peer.addr, e->peer.rkey),
				IBV_WC_SUCCESS);
		else
			assert_int_equal(ends_request_at(e, opcode, len, 0, e->peer.other_rkey),
					 IBV_WC_SUCCESS);
	}
	ends_meet(e);
	ends_close(e);
}

/* What the near end left: nothing, or what it wrote. */
static void expect_written(const uint8_t *memory)
{
	for (uint32_t i = 0; i < LEN; i++)
		assert_true(memory[i] == 0 || memory[i] == 'w');
}

/* Meanwhile pages go and are asked for again, and the program copies from and to the device's memory. */
static void busy_far(struct ends *e)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	uint8_t *pages =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *demand, *device;
	uint8_t copy[LEN];
	struct ibv_dm *dm;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	dm = ibv_alloc_dm(e->r->ctx, &attr);
	demand = ibv_reg_mr(e->r->pd, pages, 8192, RIG_ALL_ACCESS | IBV_ACCESS_ON_DEMAND);
	device = ibv_reg_dm_mr(e->r->pd, dm, 0, 4096, RIG_ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	assert_non_null(demand);
	assert_non_null(device);
	ends_swap(e, (struct hello){
			     .addr = at(pages), .rkey = demand->rkey, .other_rkey = device->rkey });
	while (!rig_readable(e->sock, 0)) {
		struct ibv_sge sge = { at(pages), 8192, demand->lkey };

		assert_int_equal(madvise(pages, 8192, MADV_DONTNEED), 0);
		assert_int_equal(ibv_advise_mr(e->r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
					       IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1),
				 0);
#ifndef __SANITIZE_THREAD__ /* it is right: who wants order here takes care of it himself */
		assert_int_equal(ibv_memcpy_from_dm(copy, dm, 0, LEN), 0);
		expect_written(copy);
		memset(copy, 0, 64);
		assert_int_equal(ibv_memcpy_to_dm(dm, 64, copy, 64), 0);
#endif
	}
	ends_meet(e);
	expect_written(pages);
	assert_int_equal(ibv_memcpy_from_dm(copy, dm, 0, LEN), 0);
	assert_int_equal(copy[LEN - 1], 'w');
	expect_written(copy);
	assert_int_equal(ibv_dereg_mr(demand), 0);
	assert_int_equal(ibv_dereg_mr(device), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	munmap(pages, 8192);
	ends_close(e);
}

static void used_beside_the_program(void **state)
{
	(void)state;
	ends_play(busy_near, busy_far);
}

/*
 * Small messages that a polling program posts in a row may wait for its next poll. The last ones leave
 * although there is none: the program waits elsewhere.
 */
enum { LOOP = 2000, LOSSY_LOOP = 100, IN_A_ROW = 6, TURNS = 8 };

static void in_a_row_near(struct ends *e)
{
	const uint64_t loop = ends_lossy() ? LOSSY_LOOP : LOOP;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	for (uint64_t turn = 1; turn <= TURNS; turn++) {
		struct ibv_sge sge = { (uintptr_t)e->r->buffer, 8, e->r->mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = IBV_SEND_SIGNALED,
					  .wr.rdma = { .rkey = e->peer.rkey } },
				   *bad;

		/* Such a loop that the adapter counts on its next poll. */
		for (uint64_t i = 0; i < loop + IN_A_ROW; i++) {
			memset(e->r->buffer, (int)turn, 8);
			wr.wr.rdma.remote_addr =
				e->peer.addr + FAR_AT + (i < loop ? 0 : 8 * (i - loop + 1));
			assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
			if (i < loop)
				rig_await_n(e->cq, 1);
		}
		ends_meet(e); /* by the socket: this thread doesn't poll */
		rig_await_n(e->cq, IN_A_ROW);
	}
	ends_close(e);
}

static void in_a_row_far(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, e->r->mr->rkey);
	for (uint64_t turn = 1; turn <= TURNS; turn++) {
		for (uint32_t i = 1; i <= IN_A_ROW; i++)
			assert_true(rig_becomes(e->r->buffer + FAR_AT + i * 8, (uint8_t)turn));
		ends_meet(e);
	}
	ends_close(e);
}

static void posted_in_a_row(void **state)
{
	(void)state;
	ends_play(in_a_row_near, in_a_row_far);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ended_by_itself),
		TEST(used_beside_the_program),
		TEST(posted_in_a_row),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
