/* SPDX-License-Identifier: BSD-2-Clause */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport between two endpoints in virtual time: each scenario over all drop masks of the first
 * packets in each direction, from an ordinary PSN and from one about to wrap; under random loss,
 * reordering, duplication, corruption; and how long it takes.
 *
 *	test_sim
 *	test_sim --soak		all masks of 12 packets, a thousand seeds
 *	test_sim --run SPEC	one run, as a failure names it
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"

#define MASKS_SHORT 7 /* bits */
#define MASKS_ALL   12
#define SEEDS	    50
#define SEEDS_SOAK  1000

static bool soak;

/* Without loss nothing is sent twice (where receives are there in time) and nobody waits for a
 * timer. */
static void run_clean(const struct scenario *sc, const struct sim_config *cfg)
{
	run_one(sc, cfg);
	for (unsigned i = 0; i < 2; i++) {
		const struct qp_counters *c = &sim.node[i].qp[0].counters;

		assert_int_equal(c->timeouts, 0);
		if (!strstr(sc->name, "rnr") && qp_is_reliable(&sim.node[i].qp[0]))
			assert_int_equal(c->retransmitted + c->duplicates + c->naks_sent, 0);
		if (!qp_is_reliable(&sim.node[i].qp[0]))
			assert_int_equal(sim.node[1].n_recv_wc, sim.node[0].n_send_wc);
	}
}

static void test_clean(void **state)
{
	(void)state;
	for (unsigned i = 0; i < n_scenarios; i++) {
		struct sim_config cfg = sim_defaults;

		run_clean(&scenarios[i], &cfg);
		cfg.mtu = IBV_MTU_4096;
		run_clean(&scenarios[i], &cfg);
	}
}

static void test_masks(void **state)
{
	static const uint32_t psns[] = { 0x1000, 0xfffffe };

	const unsigned bits = soak ? MASKS_ALL : MASKS_SHORT;
	unsigned runs = 0;

	(void)state;
	for (unsigned i = 0; i < n_scenarios * 2; i++) {
		/* XRC differs in what is looked up, not in how it recovers. */
		if (!soak && scenarios[i / 2].type == IBV_QPT_XRC_SEND && !(i & 1))
			continue;
		for (unsigned m = 0; m < 2u << bits; m++) {
			struct sim_config cfg = sim_defaults;

			cfg.psn = psns[i & 1];
			cfg.drop_mask[m & 1] = m >> 1;
			run_one(&scenarios[i / 2], &cfg);
			runs++;
		}
	}
	print_message("%u scenarios, masks of %u packets: %u runs\n", n_scenarios, bits, runs);
}

static void test_random(void **state)
{
	static const struct sim_config kinds[] = {
		{ .loss = 1000 },
		{ .loss = 10000 },
		{ .loss = 100000 },
		{ .reorder = 200000 },
		{ .duplicate = 200000 },
		{ .corrupt = 50000 },
		{ .replay = 300000 },
		{ .replay = 200000, .loss = 50000, .reorder = 50000 },
		{ .loss = 20000, .reorder = 50000, .duplicate = 50000, .corrupt = 10000 },
	};

	(void)state;
	for (unsigned i = 0; i < n_scenarios * ARRAY_LEN(kinds); i++) {
		for (uint64_t seed = 1; seed <= (soak ? SEEDS_SOAK : SEEDS); seed++) {
			struct sim_config cfg = sim_defaults;
			const struct sim_config *kind = &kinds[i % ARRAY_LEN(kinds)];

			cfg.seed = seed;
			cfg.loss = kind->loss;
			cfg.reorder = kind->reorder;
			cfg.duplicate = kind->duplicate;
			cfg.corrupt = kind->corrupt;
			cfg.replay = kind->replay;
			run_one(&scenarios[i / ARRAY_LEN(kinds)], &cfg);
		}
	}
}

/* 25 messages of 4 KiB: what the budgets below are for. */
static void post_bulk(struct sim *s)
{
	for (unsigned i = 0; i < 25; i++)
		post_one(s, IBV_WR_RDMA_WRITE, i, i * 4096, 4096, 0);
}

static void check_bulk(struct sim *s)
{
	expect_sent(s, 25);
	expect_same(s, 0, 25 * 4096);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/*
 * 100 KiB over 10 Gb/s and 20 us each way, by packet loss in both directions: virtual time until
 * the last completion. The limits are what it took when they were set, and a fifth: recovery that
 * becomes slower fails here.
 */
static void test_budgets(void **state)
{
	static const struct scenario bulk = { "bulk", IBV_QPT_RC, post_bulk, check_bulk, false };
	static const struct {
		uint32_t loss;
		uint64_t median_us, p90_us;
	} budgets[] = {
		{ 0, 150, 150 },      { 1000, 150, 150 },	 { 10000, 200, 310 },
		{ 50000, 580, 5300 }, { 200000, 79000, 672000 },
	};
	uint64_t took[50];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(budgets); i++) {
		for (uint64_t seed = 0; seed < ARRAY_LEN(took); seed++) {
			struct sim_config cfg = sim_defaults;

			cfg.mtu = IBV_MTU_1024;
			cfg.loss = budgets[i].loss;
			cfg.seed = seed;
			cfg.mbps = 10000;
			cfg.queue_bytes = 512 << 10;
			run_one(&bulk, &cfg);
			took[seed] = (sim.now_ns - NS_PER_SEC) / NS_PER_US;
		}
		qsort(took, ARRAY_LEN(took), sizeof(took[0]), compare_u64);
		print_message("loss %u ppm: median %llu us, p90 %llu us\n", budgets[i].loss,
			      (unsigned long long)took[25], (unsigned long long)took[45]);
		assert_in_range(took[25], 0, budgets[i].median_us);
		assert_in_range(took[45], 0, budgets[i].p90_us);
	}
}

#define LONG_WAY_MESSAGES 30

static void post_long_way(struct sim *s)
{
	for (unsigned i = 0; i < LONG_WAY_MESSAGES; i++)
		post_one(s, IBV_WR_RDMA_WRITE, i, 0, 100 << 10, 0);
}

static void check_long_way(struct sim *s)
{
	expect_sent(s, LONG_WAY_MESSAGES);
	expect_same(s, 0, 100 << 10);
}

/* A window as large as the peer's buffer would need 24 round trips for that, 24 ms. */
static void test_long_way(void **state)
{
	struct sim_config cfg = sim_defaults;
	uint64_t began;

	(void)state;
	cfg.pair[0].type = IBV_QPT_RC;
	cfg.mtu = IBV_MTU_1024;
	cfg.mbps = 10000;
	cfg.queue_bytes = 4 << 20;
	sim_start(&sim, &cfg);
	/* What was learnt about a near peer says nothing of the next one. */
	post_bulk(&sim);
	assert_true(sim_run(&sim, NS_PER_SEC));
	check_bulk(&sim);
	sim.cfg.delay_ns = 500 * NS_PER_US;
	sim_reconnect(&sim);
	began = sim.now_ns;
	post_long_way(&sim);
	assert_true(sim_run(&sim, NS_PER_SEC));
	check_long_way(&sim);
	print_message("3 MB, round trip 1 ms: %llu us\n",
		      (unsigned long long)((sim.now_ns - began) / NS_PER_US));
	assert_in_range((sim.now_ns - began) / NS_PER_US, 0, 15000);
	sim_end(&sim);
}

/* One gap, many NAKs: going back for each of them used up all retries within 200 microseconds. */
static void test_nak_storm(void **state)
{
	(void)state;
	for (uint64_t seed = 200; seed < 300; seed++) {
		struct sim_config cfg = sim_defaults;

		cfg.reorder = 200000;
		cfg.seed = seed;
		run_one(scenario_find("send"), &cfg);
		/* 15 packets of their own. */
		assert_in_range(sim.node[0].sent, 15, 300);
	}
	/* The same before any round trip could be measured, and for a second gap. */
	for (uint64_t seed = 550; seed < 650; seed++) {
		struct sim_config cfg = sim_defaults;

		cfg.reorder = 200000;
		cfg.seed = seed;
		run_one(scenario_find("gather"), &cfg);
	}
}

/* A response that is lost again when it was asked for again: what a probe brings tells so, no timeout has to. */
static void test_response_lost_twice(void **state)
{
	static const char *const names[] = { "mixed", "atomics", "both", "long-read" };

	(void)state;
	for (uint64_t mask = 1; mask < 1 << 11; mask++) {
		if (__builtin_popcountll(mask) > 3)
			continue;
		for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
			struct sim_config cfg = sim_defaults;

			cfg.drop_mask[1] = mask;
			run_one(scenario_find(names[i]), &cfg);
			assert_int_equal(sim.node[0].qp[0].counters.timeouts, 0);
		}
	}
}

int main(int argc, char **argv)
{
	runner_start(argv[0]);
	if (argc >= 3 && strcmp(argv[1], "--run") == 0)
		return run_spec(argc, argv);
	soak = argc == 2 && strcmp(argv[1], "--soak") == 0;
	/* Hundreds of thousands of runs: don't give the memory back to the kernel in between. */
	mallopt(M_MMAP_THRESHOLD, 1 << 28);
	mallopt(M_TRIM_THRESHOLD, 1 << 28);

	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_clean, explain_failure),
		cmocka_unit_test_teardown(test_budgets, explain_failure),
		cmocka_unit_test_teardown(test_long_way, explain_failure),
		cmocka_unit_test_teardown(test_nak_storm, explain_failure),
		cmocka_unit_test_teardown(test_response_lost_twice, explain_failure),
		cmocka_unit_test_teardown(test_random, explain_failure),
		cmocka_unit_test_teardown(test_masks, explain_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
