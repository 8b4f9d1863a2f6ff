/* SPDX-License-Identifier: BSD-2-Clause */
/* Kinds of memory between two ends: what the far end registers, and what the near end gets at. */
#include "ends.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE   4096u
#define LEN    5000u /* some packets */
#define ROUNDS 20

/* Of a region of LEN bytes that may be used in every way: the first bytes are a word. */
static const struct attempt all_of_it[] = {
	{ IBV_WR_RDMA_WRITE, 0, LEN, false },	    { IBV_WR_RDMA_READ, 0, LEN, false },
	{ IBV_WR_ATOMIC_WRITE, 0, 8, false },	    { IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, false },
	{ IBV_WR_RDMA_WRITE, LEN - 1, 1, false },   { IBV_WR_RDMA_WRITE, 1, LEN, true },
	{ IBV_WR_RDMA_READ, -1, 1, true },	    { IBV_WR_ATOMIC_WRITE, LEN / 8 * 8, 8, true },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, -8, 8, true }, { IBV_WR_RDMA_READ, 0, LEN, false },
};

static const struct attempt nothing[] = { { IBV_WR_RDMA_READ, 0, 1, true } };
static const struct attempt reads[] = { { IBV_WR_RDMA_READ, 0, LEN, false },
					{ IBV_WR_RDMA_WRITE, 0, 1, true } };

/* The near end tries what each of these regions of the far end's is open to, until there is none. */
static void tries_near(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	for (unsigned seed = 1;; seed++) {
		ends_swap(e, (struct hello){ 0 });
		if (!e->peer.rkey)
			break;
		ends_fill(e, 0, LEN, seed);
		switch (e->peer.srqn) {
		case 0:
			ends_try(e, TRIES(all_of_it), e->peer.addr, e->peer.rkey);
			break;
		case 1:
			ends_try(e, TRIES(reads), e->peer.addr, e->peer.rkey);
			break;
		default:
			ends_try(e, TRIES(nothing), e->peer.addr, e->peer.rkey);
		}
	}
	ends_close(e);
}

/* What the last attempts but the word at the start have left: it is where the READ put it, for the near end,
 * and here for the far one. */
static void expect_written(const uint8_t *at, unsigned seed)
{
	for (uint32_t i = 8; i < LEN - 1; i++)
		if (at[i] != (uint8_t)(seed + i * 7))
			fail_msg("byte %u of %u is wrong", i, LEN);
}

static void offer(struct ends *e, uint64_t addr, uint32_t rkey, uint32_t what)
{
	ends_swap(e, (struct hello){ .addr = addr, .rkey = rkey, .srqn = what });
	switch (what) {
	case 0:
		ends_await_tries(e, TRIES(all_of_it));
		break;
	case 1:
		ends_await_tries(e, TRIES(reads));
		break;
	default:
		ends_await_tries(e, TRIES(nothing));
	}
}

static void offer_all(struct ends *e, uint64_t addr, uint32_t rkey)
{
	offer(e, addr, rkey, 0);
}

static void offer_reads(struct ends *e, uint64_t addr, uint32_t rkey)
{
	offer(e, addr, rkey, 1);
}

static void offer_nothing(struct ends *e, uint64_t addr, uint32_t rkey)
{
	offer(e, addr, rkey, 2);
}

static void no_more(struct ends *e)
{
	ends_swap(e, (struct hello){ 0 });
	ends_close(e);
}

static uint64_t at(const void *p)
{
	return (uintptr_t)p;
}

/* Registered anew with other rights, at another place, in another domain and back. */
static void reregistered_far(struct ends *e)
{
	uint8_t *one, *two;
	struct ibv_pd *other;
	struct ibv_mr *mr;
	uint32_t old;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	one = e->r->buffer + FAR_AT;
	two = e->r->buffer + 3 * FAR_AT;
	other = ibv_alloc_pd(e->r->ctx);
	mr = ibv_reg_mr(e->r->pd, one, LEN, RIG_ALL_ACCESS);
	offer_all(e, at(one), mr->rkey);
	expect_written(one, 1);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ),
		0);
	offer_reads(e, at(one), mr->rkey);
	old = mr->rkey;
	assert_int_equal(ibv_rereg_mr(mr,
				      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
				      NULL, two, LEN, RIG_ALL_ACCESS),
			 0);
	offer_all(e, at(two), mr->rkey);
	expect_written(two, 3);
	expect_written(one, 1);
	offer_nothing(e, at(one), mr->rkey);
	if (mr->rkey != old)
		offer_nothing(e, at(two), old);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	offer_nothing(e, at(two), mr->rkey);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, e->r->pd, NULL, 0, 0), 0);
	offer_all(e, at(two), mr->rkey);
	old = mr->rkey;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	offer_nothing(e, at(two), old);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	no_more(e);
}

static void reregistered(void **state)
{
	(void)state;
	ends_play(tries_near, reregistered_far);
}

/* Addresses that the program chose, from 0 on, in a region of relaxed ordering. */
static void addressed_far(struct ends *e)
{
	const unsigned access = RIG_ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING;
	const uint64_t iova = UINT64_C(0x7000000000000000) + FAR_AT;
	struct ibv_mr *mr, *zero;
	uint8_t *here;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	here = e->r->buffer + FAR_AT;
	mr = ibv_reg_mr_iova2(e->r->pd, here, LEN, iova, access);
	zero = ibv_reg_mr(e->r->pd, here, LEN, access | IBV_ACCESS_ZERO_BASED);
	assert_non_null(mr);
	assert_non_null(zero);
	offer_all(e, iova, mr->rkey);
	expect_written(here, 1);
	offer_nothing(e, at(here), mr->rkey);
	offer_all(e, 0, zero->rkey);
	expect_written(here, 3);
	offer_nothing(e, at(here), zero->rkey);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(zero), 0);
	no_more(e);
}

static void addressed_otherwise(void **state)
{
	(void)state;
	ends_play(tries_near, addressed_far);
}

/* Two names for a domain and a region: the queue pair is of one, the region of the other. */
static void imported_far(struct ends *e)
{
	struct rig other = { 0 };
	struct ibv_alloc_dm_attr attr = { .length = 2 * PAGE };
	struct ibv_dm *dm, *same;
	struct ibv_mr *mr, *device;
	struct ibv_pd *own;
	uint8_t back[LEN];
	uint32_t key;

	ends_open(e, IBV_QPT_RC);
	own = e->r->pd;
	other.ctx = ibv_import_device(dup(e->r->ctx->cmd_fd));
	assert_non_null(other.ctx);
	other.pd = ibv_import_pd(other.ctx, e->r->pd->handle);
	mr = ibv_reg_mr(e->r->pd, e->r->buffer + FAR_AT, LEN, RIG_ALL_ACCESS);
	other.mr = ibv_import_mr(other.pd, mr->handle);
	assert_non_null(other.mr);
	dm = ibv_alloc_dm(e->r->ctx, &attr);
	same = ibv_import_dm(other.ctx, dm->handle);
	assert_non_null(same);
	device = ibv_reg_dm_mr(other.pd, same, 0, LEN, RIG_ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	assert_non_null(device);
	ends_join(e, 0);
	offer_all(e, at(e->r->buffer + FAR_AT), other.mr->rkey);
	expect_written(e->r->buffer + FAR_AT, 1);
	offer_all(e, 0, device->rkey);
	assert_int_equal(ibv_memcpy_from_dm(back, dm, 0, LEN), 0);
	expect_written(back, 2);
	/* Given up under one name it is there under the other; destroyed under one, it is nowhere. */
	ibv_unimport_mr(other.mr);
	offer_all(e, at(e->r->buffer + FAR_AT), mr->rkey);
	other.mr = ibv_import_mr(other.pd, mr->handle);
	key = mr->rkey;
	assert_int_equal(ibv_dereg_mr(other.mr), 0);
	offer_nothing(e, at(e->r->buffer + FAR_AT), key);
	ibv_unimport_mr(mr);
	assert_int_equal(ibv_dereg_mr(device), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	ibv_unimport_dm(same);
	ibv_unimport_pd(other.pd);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	assert_ptr_equal(e->r->pd, own);
	no_more(e);
}

static void imported(void **state)
{
	(void)state;
	ends_play(tries_near, imported_far);
}

/* Queue pair and region are of a parent domain with a thread domain. */
static void parent_far(struct ends *e)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_pd *own, *parent;
	struct ibv_mr *mr;

	ends_open(e, IBV_QPT_RC);
	own = attr.pd = e->r->pd;
	attr.td = ibv_alloc_td(e->r->ctx, &td_attr);
	assert_non_null(attr.td);
	parent = ibv_alloc_parent_domain(e->r->ctx, &attr);
	assert_non_null(parent);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	e->r->pd = parent;
	e->qp = rig_qp(e->r, IBV_QPT_RC, e->cq, e->cq, NULL);
	e->r->pd = own;
	mr = ibv_reg_mr(parent, e->r->buffer + FAR_AT, LEN, RIG_ALL_ACCESS);
	assert_non_null(mr);
	ends_join(e, 0);
	offer_all(e, at(e->r->buffer + FAR_AT), mr->rkey);
	expect_written(e->r->buffer + FAR_AT, 1);
	/* The same domain: what was registered in it is open, too. */
	offer_all(e, at(e->r->buffer + FAR_AT), mr->rkey);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	ends_swap(e, (struct hello){ 0 });
	ends_meet(e); /* its ends_close() */
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(attr.td), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	rig_teardown(&(void *){ e->r });
}

static void parent_domain(void **state)
{
	(void)state;
	ends_play(tries_near, parent_far);
}

/* Device memory, and a buffer of another kind that a descriptor stands for. */
static void device_far(struct ends *e)
{
	struct ibv_alloc_dm_attr attr = { .length = 2 * PAGE };
	int fd = memfd_create("buffer", MFD_CLOEXEC);
	struct ibv_mr *device, *shared;
	struct ibv_dm *dm;
	uint8_t back[LEN];

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	dm = ibv_alloc_dm(e->r->ctx, &attr);
	device = ibv_reg_dm_mr(e->r->pd, dm, 64, LEN, RIG_ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	assert_non_null(device);
	offer_all(e, 0, device->rkey);
	assert_int_equal(ibv_memcpy_from_dm(back, dm, 64, LEN), 0);
	expect_written(back, 1);
	assert_int_equal(ibv_dereg_mr(device), 0);
	device = ibv_reg_dm_mr(e->r->pd, dm, 64, LEN,
			       IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_READ);
	offer_reads(e, 0, device->rkey);
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	shared = ibv_reg_dmabuf_mr(e->r->pd, 64, LEN, 0x7000000040, fd, RIG_ALL_ACCESS);
	assert_non_null(shared);
	offer_all(e, 0x7000000040, shared->rkey);
	assert_int_equal(pread(fd, back, LEN, 64), LEN);
	expect_written(back, 3);
	/* It ends while it is registered. */
	assert_int_equal(ftruncate(fd, 0), 0);
	offer_nothing(e, 0x7000000040, shared->rkey);
	assert_int_equal(ibv_dereg_mr(shared), 0);
	assert_int_equal(ibv_dereg_mr(device), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	close(fd);
	no_more(e);
}

static void device_memory_and_descriptors(void **state)
{
	(void)state;
	ends_play(tries_near, device_far);
}

static void advise(struct ends *e, struct ibv_mr *mr, void *p)
{
	struct ibv_sge sge = { at(p), PAGE, mr->lkey };

	assert_int_equal(ibv_advise_mr(e->r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				       IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1),
			 0);
}

/* On demand: memory that came after the region, goes and comes back, by an explicit region and by one of all there is. */
static void demanded_far(struct ends *e)
{
	const unsigned access = RIG_ALL_ACCESS | IBV_ACCESS_ON_DEMAND;
	uint8_t *map = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr, *all;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	mr = ibv_reg_mr(e->r->pd, map, LEN, access);
	all = ibv_reg_mr(e->r->pd, NULL, SIZE_MAX, access);
	assert_non_null(mr);
	assert_non_null(all);
	offer_nothing(e, at(map), mr->rkey);
	offer_nothing(e, at(map), all->rkey);
	assert_int_equal(mprotect(map, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	advise(e, mr, map);
	offer_all(e, at(map), mr->rkey);
	expect_written(map, 3);
	assert_int_equal(munmap(map, 2 * PAGE), 0);
	offer_nothing(e, at(map), mr->rkey);
	assert_ptr_equal(mmap(map, 2 * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			 map);
	offer_all(e, at(map), mr->rkey);
	expect_written(map, 5);
	assert_int_equal(mprotect(map, 2 * PAGE, PROT_READ), 0);
	offer_reads(e, at(map), all->rkey);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(all), 0);
	munmap(map, 2 * PAGE);
	no_more(e);
}

static void on_demand(void **state)
{
	(void)state;
	ends_play(tries_near, demanded_far);
}

/* SENDs of which the receiver wants only the middle, of which the sender has only the ends. */
static void null_near(struct ends *e)
{
	struct ibv_sge sge[3];
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 3, .opcode = IBV_WR_SEND };
	struct ibv_mr *null;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	null = ibv_alloc_null_mr(e->r->pd);
	assert_non_null(null);
	sge[0] = (struct ibv_sge){ at(e->r->buffer), 1500, e->r->mr->lkey };
	sge[1] = (struct ibv_sge){ 0x1234, 1500, null->lkey };
	sge[2] = (struct ibv_sge){ at(e->r->buffer + 3000), 2000, e->r->mr->lkey };
	for (unsigned i = 0; i < ROUNDS; i++) {
		ends_fill(e, 0, LEN, i);
		ends_meet(e);
		assert_int_equal(ends_run(e, &wr).status, IBV_WC_SUCCESS);
		ends_meet(e);
	}
	/* It is no remote key's. */
	ends_try(e, TRIES(nothing), 0, null->rkey);
	assert_int_equal(ibv_dereg_mr(null), 0);
	ends_close(e);
}

static void null_far(struct ends *e)
{
	struct ibv_sge sge[3];
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 3 }, *bad;
	struct ibv_mr *null;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	null = ibv_alloc_null_mr(e->r->pd);
	assert_non_null(null);
	sge[0] = (struct ibv_sge){ 0, 1000, null->lkey };
	sge[1] = (struct ibv_sge){ at(e->r->buffer + 1000), 3000, e->r->mr->lkey };
	sge[2] = (struct ibv_sge){ 8, 1000, null->lkey };
	for (unsigned i = 0; i < ROUNDS; i++) {
		memset(e->r->buffer, 0xee, LEN);
		assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
		ends_meet(e);
		assert_int_equal(rig_await(e->cq).byte_len, LEN);
		for (uint32_t k = 0; k < LEN; k++) {
			uint8_t want = (uint8_t)(i + k * 7);

			if (k < 1000 || k >= 4000)
				want = 0xee;
			else if (k >= 1500 && k < 3000)
				want = 0;
			assert_int_equal(e->r->buffer[k], want);
		}
		ends_meet(e);
	}
	ends_await_tries(e, TRIES(nothing));
	assert_int_equal(ibv_dereg_mr(null), 0);
	ends_close(e);
}

static void null_region(void **state)
{
	(void)state;
	ends_play(null_near, null_far);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reregistered),  TEST(addressed_otherwise),		  TEST(imported),
		TEST(parent_domain), TEST(device_memory_and_descriptors), TEST(null_region),
		TEST(on_demand),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
