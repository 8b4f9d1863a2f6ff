/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/units.h"
#include "mem/mem.h"
#include "prng.h"

#define SIZE 4096
#define IOVA UINT64_C(0x7f0000001000)

static struct prng prng = { 42 };

static uint64_t key_random(void *arg)
{
	return prng_u64(arg);
}

static uint8_t memory[SIZE];
static int pd, other_pd;

static struct mr region(unsigned access)
{
	return (struct mr){
		.pd = &pd, .iova = IOVA, .length = SIZE, .host = memory, .access = access
	};
}

static void test_check(void **state)
{
	static const struct {
		uint64_t offset, len;
		enum mem_fault fault;
	} cases[] = {
		{ 0, SIZE, MEM_OK },
		{ 0, SIZE + 1, MEM_BOUNDS },
		{ SIZE - 1, 1, MEM_OK },
		{ SIZE - 1, 2, MEM_BOUNDS },
		{ SIZE, 0, MEM_OK },
		{ SIZE, 1, MEM_BOUNDS },
		{ (uint64_t)-1, 1, MEM_BOUNDS },
		/* va + len wraps to within the region. */
		{ 16, UINT64_MAX - 8, MEM_BOUNDS },
		{ UINT64_MAX - IOVA, IOVA + 32, MEM_BOUNDS },
	};
	struct mr mr = region(IBV_ACCESS_REMOTE_READ);
	struct mem_table t;

	(void)state;
	assert_int_equal(mem_init(&t, key_random, &prng), 0);
	assert_int_equal(mem_add(&t, &mr), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(mem_check(&t, &pd, mr.key, IOVA + cases[i].offset, cases[i].len,
					   IBV_ACCESS_REMOTE_READ),
				 cases[i].fault);
	}
	assert_int_equal(mem_check(&t, &other_pd, mr.key, IOVA, 1, 0), MEM_PD);
	assert_int_equal(mem_check(&t, &pd, mr.key, IOVA, 1, IBV_ACCESS_REMOTE_WRITE), MEM_ACCESS);
	assert_int_equal(mem_check(&t, &pd, mr.key ^ 1, IOVA, 1, 0), MEM_KEY);
	assert_int_equal(mem_check(&t, &pd, mr.key ^ 0x100, IOVA, 1, 0), MEM_KEY);
	mem_remove(&t, &mr);
	assert_int_equal(mem_check(&t, &pd, mr.key, IOVA, 1, 0), MEM_KEY);
	mem_destroy(&t);
}

/* Many regions come and go; every live key finds its region, every dead one nothing. */
static void test_table(void **state)
{
	enum { N = 3000 };
	static struct mr mrs[N];
	static bool live[N];
	struct mem_table t;

	(void)state;
	assert_int_equal(mem_init(&t, key_random, &prng), 0);
	memset(live, 0, sizeof(live));
	for (unsigned step = 0; step < 30000; step++) {
		unsigned i = (unsigned)(prng_below(&prng, N));

		if (live[i]) {
			assert_ptr_equal(mem_find(&t, mrs[i].key), &mrs[i]);
			mem_remove(&t, &mrs[i]);
			assert_null(mem_find(&t, mrs[i].key));
		} else {
			mrs[i] = region(0);
			assert_int_equal(mem_add(&t, &mrs[i]), 0);
		}
		live[i] = !live[i];
	}
	for (unsigned i = 0; i < N; i++)
		if (live[i])
			assert_ptr_equal(mem_find(&t, mrs[i].key), &mrs[i]);
	mem_destroy(&t);
}

/* Against memcpy: random lists, random windows of the message. */
static void test_gather_scatter(void **state)
{
	struct mr mr = region(IBV_ACCESS_LOCAL_WRITE);
	struct mem_table t;

	(void)state;
	assert_int_equal(mem_init(&t, key_random, &prng), 0);
	assert_int_equal(mem_add(&t, &mr), 0);
	for (unsigned round = 0; round < 20000; round++) {
		struct ibv_sge sge[30];
		unsigned n = (unsigned)(prng_below(&prng, 31));
		uint8_t message[SIZE], out[SIZE];
		uint32_t total = 0, offset, len;

		prng_fill(&prng, memory, sizeof(memory));
		for (unsigned i = 0; i < n; i++) {
			uint32_t part = (uint32_t)(prng_below(&prng, 100));

			/* Disjoint pieces, so that scatter has one right answer. */
			sge[i] = (struct ibv_sge){ .addr = IOVA + i * 128,
						   .length = part,
						   .lkey = mr.key };
			memcpy(message + total, memory + i * 128, part);
			total += part;
		}
		offset = total ? (uint32_t)(prng_below(&prng, total + 1)) : 0;
		len = (uint32_t)prng_below(&prng, total - offset + 1);
		assert_int_equal(mem_gather(&t, &pd, sge, n, offset, out, len), MEM_OK);
		assert_memory_equal(out, message + offset, len);
		assert_int_equal(mem_gather(&t, &pd, sge, n, offset, out, total - offset + 1),
				 MEM_BOUNDS);
		for (uint32_t i = 0; i < len; i++)
			message[offset + i] = (uint8_t)~message[offset + i];
		assert_int_equal(mem_scatter(&t, &pd, sge, n, offset, message + offset, len),
				 MEM_OK);
		assert_int_equal(mem_gather(&t, &pd, sge, n, 0, out, total), MEM_OK);
		assert_memory_equal(out, message, total);
	}
	mem_destroy(&t);
}

static void test_scatter_needs_local_write(void **state)
{
	struct mr mr = region(IBV_ACCESS_REMOTE_READ);
	struct ibv_sge sge = { .addr = IOVA, .length = 8 };
	struct mem_table t;
	uint8_t data[8] = { 0 };

	(void)state;
	assert_int_equal(mem_init(&t, key_random, &prng), 0);
	assert_int_equal(mem_add(&t, &mr), 0);
	sge.lkey = mr.key;
	assert_int_equal(mem_scatter(&t, &pd, &sge, 1, 0, data, 8), MEM_ACCESS);
	assert_int_equal(mem_gather(&t, &pd, &sge, 1, 0, data, 8), MEM_OK);
	mem_destroy(&t);
}

/* A window, the region below it and the queue pair that binds are all of one protection domain. */
static void test_window_across_domains(void **state)
{
	struct mr mr = region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct mr own = { .pd = &pd, .home = &pd, .window = IBV_MW_TYPE_2 };
	struct mr foreign = { .pd = &other_pd, .home = &other_pd, .window = IBV_MW_TYPE_2 };
	struct mem_bind bind = { .access = IBV_ACCESS_REMOTE_READ, .addr = IOVA, .length = 8 };
	struct mem_table t;
	int qp;

	(void)state;
	assert_int_equal(mem_init(&t, key_random, &prng), 0);
	assert_int_equal(mem_add(&t, &mr), 0);
	assert_int_equal(mem_add(&t, &own), 0);
	assert_int_equal(mem_add(&t, &foreign), 0);
	bind.region_key = mr.key;
	bind.window_key = bind.new_key = foreign.key;
	assert_int_equal(mem_bind(&t, &pd, &qp, &bind), MEM_PD);
	assert_int_equal(mem_bind(&t, &other_pd, &qp, &bind), MEM_PD);
	bind.window_key = bind.new_key = own.key;
	assert_int_equal(mem_bind(&t, &other_pd, &qp, &bind), MEM_PD);
	assert_int_equal(mem_bind(&t, &pd, &qp, &bind), MEM_OK);
	assert_int_equal(mem_invalidate(&t, &pd, &qp, own.key), MEM_OK);
	mem_destroy(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_gather_scatter),
		cmocka_unit_test(test_scatter_needs_local_write),
		cmocka_unit_test(test_window_across_domains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
