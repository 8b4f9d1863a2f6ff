/* SPDX-License-Identifier: BSD-2-Clause */
/* As many objects as are promised, what an idle queue pair costs, and the largest queues. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MANY	  4096 /* their shadow memory is larger than what they watch */
#define MEASURING false
#else
#define MANY	  65536
#define MEASURING true
#endif

static size_t resident(void)
{
	unsigned long total, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu %lu", &total, &pages), 2);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void regions(void **state)
{
	struct rig *r = *state;
	struct ibv_mr **mr = calloc(MANY, sizeof(struct ibv_mr *));

	for (int i = 0; i < MANY; i++) {
		mr[i] = ibv_reg_mr(r->pd, r->buffer + i % 1024, 64, IBV_ACCESS_LOCAL_WRITE);
		assert_non_null(mr[i]);
	}
	for (int i = 0; i < MANY; i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	free(mr);
}

static void completion_queues(void **state)
{
	struct rig *r = *state;
	struct ibv_cq **cq = calloc(MANY, sizeof(struct ibv_cq *));

	for (int i = 0; i < MANY; i++)
		cq[i] = rig_cq(r, 1, NULL);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	free(cq);
}

/* Connected and idle: 4 KiB besides the queues, which are of one entry here. */
static void queue_pairs(void **state)
{
	struct rig *r = *state;
	struct ibv_qp **qp = calloc(MANY, sizeof(struct ibv_qp *));
	struct ibv_cq *cq = rig_cq(r, 1, NULL);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 }
	};
	size_t before = resident();

	for (int i = 0; i < MANY; i++) {
		qp[i] = ibv_create_qp(r->pd, &attr);
		assert_non_null(qp[i]);
		rig_connect_self(qp[i]);
	}
	if (MEASURING)
		assert_true((resident() - before) / MANY <= 4096);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	free(qp);
}

static void largest_queues(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 2 * 16384, NULL);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { 16384, 16384, 1, 1, 1024 },
	};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &attr);

	assert_non_null(qp);
	rig_connect_self(qp);
	for (uint64_t i = 0; i < 16384; i++)
		assert_int_equal(rig_post_recv(r, qp, i, 4096, 1024), 0);
	assert_int_equal(rig_post_recv(r, qp, 0, 4096, 1024), ENOMEM);
	for (uint64_t i = 0; i < 16384; i++)
		assert_int_equal(
			rig_post_send(r, qp, i, 0, 1024, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2 * 16384);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(regions),
		TEST(completion_queues),
		TEST(queue_pairs),
		TEST(largest_queues),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
