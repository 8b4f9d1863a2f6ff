/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Too little of everything: each allocation of a device's life fails once, then each descriptor is
 * one too many. Every call says so or does without; nothing crashes, and afterwards all works.
 */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define LIVES_MAX 2000
#define EXPORTED  __attribute__((visibility("default")))

/* glibc's own names: those below stand in front of them for the libraries too. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

/* Of this thread: which allocation fails when it reaches 0; negative: none. */
static _Thread_local long countdown __attribute__((tls_model("initial-exec"))) = -1;

static bool fails(void)
{
	if (countdown < 0 || countdown-- > 0)
		return false;
	errno = ENOMEM;
	return true;
}

EXPORTED void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

EXPORTED void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

EXPORTED void *realloc(void *p, size_t size)
{
	return fails() ? NULL : __libc_realloc(p, size);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : __libc_memalign(alignment, size);
}

struct life {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_qp *qp, *ud;
	struct ibv_ah *ah;
};

static char memory[4096];

static struct ibv_context *open_loopback(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rl_lo"))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static struct ibv_ah *make_ah(struct life *l)
{
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1 };

	if (ibv_query_gid(l->ctx, 1, 0, &attr.grh.dgid))
		return NULL;
	return ibv_create_ah(l->pd, &attr);
}

/* As far as it goes. True: to the end. */
static bool live(struct life *l)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 64 } };

	*l = (struct life){ .ctx = open_loopback() };
	if (!l->ctx)
		return false;
	if (!(l->pd = ibv_alloc_pd(l->ctx)) || !(l->channel = ibv_create_comp_channel(l->ctx)) ||
	    !(l->cq = ibv_create_cq(l->ctx, 64, NULL, l->channel, 0)) ||
	    !(l->srq = ibv_create_srq(l->pd, &srq)) ||
	    !(l->mr = ibv_reg_mr(l->pd, memory, sizeof(memory),
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) ||
	    !(l->ah = make_ah(l)))
		return false;
	init.send_cq = init.recv_cq = l->cq;
	if (!(l->qp = ibv_create_qp(l->pd, &init)))
		return false;
	init.qp_type = IBV_QPT_UD;
	init.srq = l->srq;
	if (!(l->ud = ibv_create_qp(l->pd, &init)))
		return false;
	return !rig_to_init(l->qp) && !rig_to_rtr(l->qp, l->qp->qp_num) && !rig_to_rts(l->qp) &&
	       !ibv_resize_cq(l->cq, 256);
}

/* What there is goes, and every destroyer succeeds. */
static void die(struct life *l)
{
	if (l->ud)
		assert_int_equal(ibv_destroy_qp(l->ud), 0);
	if (l->qp)
		assert_int_equal(ibv_destroy_qp(l->qp), 0);
	if (l->ah)
		assert_int_equal(ibv_destroy_ah(l->ah), 0);
	if (l->mr)
		assert_int_equal(ibv_dereg_mr(l->mr), 0);
	if (l->srq)
		assert_int_equal(ibv_destroy_srq(l->srq), 0);
	if (l->cq)
		assert_int_equal(ibv_destroy_cq(l->cq), 0);
	if (l->channel)
		assert_int_equal(ibv_destroy_comp_channel(l->channel), 0);
	if (l->pd)
		assert_int_equal(ibv_dealloc_pd(l->pd), 0);
	if (l->ctx)
		assert_int_equal(ibv_close_device(l->ctx), 0);
}

static void send_to_self(struct life *l)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, l->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)memory + 1024;
	wr.wr.rdma.rkey = l->mr->rkey;
	assert_int_equal(ibv_post_send(l->qp, &wr, &bad), 0);
	rig_await_n(l->cq, 1);
}

static void allocations(void **state)
{
	long n, failed = 0;

	(void)state;
	for (n = 0; n < LIVES_MAX; n++) {
		struct life l;
		bool whole, struck;

		countdown = n;
		errno = 0;
		whole = live(&l);
		struck = countdown < 0;
		countdown = -1;
		if (whole)
			send_to_self(&l);
		else
			failed++;
		if (!whole && errno != ENOMEM)
			fail_msg("allocation %ld: errno %d", n, errno);
		die(&l);
		if (!struck)
			break;
	}
	assert_in_range(n, 15, LIVES_MAX - 1);
	assert_in_range(failed, 15, n);
}

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", ".." and its own */
}

static void descriptors(void **state)
{
	struct rlimit before, limit;
	int used = open_descriptors(), extra;
	struct life l;
	bool whole = false;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	for (extra = 0; extra < 64 && !whole; extra++) {
		limit.rlim_cur = (rlim_t)(used + extra);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		whole = live(&l);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		if (whole)
			send_to_self(&l);
		die(&l);
		assert_int_equal(open_descriptors(), used);
	}
	assert_true(whole);
	assert_in_range(extra, 8, 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(allocations),
		cmocka_unit_test(descriptors),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
