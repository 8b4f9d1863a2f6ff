/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many queue pairs between two nodes: RC, UC, UD and XRC that share memory, outbox, completion queues
 * and SRQ, busy in both directions at once, over a network that loses, doubles, damages and overtakes.
 * In every second conversation one of the pairs fails in the middle; the others don't notice. One
 * seed is one conversation; oracle.c knows what must come of it.
 *
 *	test_sim_many
 *	test_sim_many --soak [SEEDS]
 *	test_sim_many --run SEED [PCAP]
 */
#include <inttypes.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oracle.h"
#include "sim_pcap.h"

#define SEEDS	     150
#define SEEDS_SOAK   20000
#define STEPS_MAX    500
#define REQUESTS_MAX 150
#define PATIENCE_NS  (60 * NS_PER_SEC)

static struct sim sim; /* large, both */
static struct oracle oracle;
static uint64_t seeds = SEEDS, seed;
static const char *program, *pcap;
static struct totals {
	uint64_t requests, failed, messages, packets, rnr_naks, retransmitted, lost;
} totals;

static uint32_t one_of(const uint32_t *values, unsigned n)
{
	return values[sim_random(&sim) % n];
}

static struct sim_pair random_pair(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						  IBV_QPT_XRC_SEND };
	struct sim_pair pair = { .type = types[sim_random(&sim) % ARRAY_LEN(types)],
				 .reverse = sim_random(&sim) % 2 };

	if (pair.type != IBV_QPT_XRC_SEND)
		pair.srq = (uint8_t)(sim_random(&sim) % 4);
	return pair;
}

static struct sim_config random_config(void)
{
	static const uint32_t often[] = { 0, 0, 0, 1000, 10000, 50000 };
	static const uint32_t disorder[] = { 0, 0, 10000, 100000, 300000 };
	static const uint32_t psns[] = { 0x1000, 0xfffffe, 0xffff80 };
	static const uint32_t rates[] = { 0, 0, 1000, 10000 };
	struct sim_config cfg = sim_defaults;

	sim.random = cfg.seed = seed;
	cfg.n_pairs = 2 + (unsigned)(sim_random(&sim) % (SIM_PAIRS - 1));
	for (unsigned k = 0; k < cfg.n_pairs; k++)
		cfg.pair[k] = random_pair();
	cfg.mtu = IBV_MTU_256 + (unsigned)(sim_random(&sim) % 3);
	cfg.psn = one_of(psns, ARRAY_LEN(psns));
	cfg.rd_atomic = 1 + (uint32_t)(sim_random(&sim) % 8);
	cfg.min_rnr_timer = 12;
	cfg.loss = one_of(often, ARRAY_LEN(often));
	cfg.duplicate = one_of(often, ARRAY_LEN(often));
	cfg.corrupt = one_of(often, ARRAY_LEN(often));
	cfg.reorder = one_of(disorder, ARRAY_LEN(disorder));
	cfg.replay = one_of(often, ARRAY_LEN(often));
	cfg.mbps = one_of(rates, ARRAY_LEN(rates));
	cfg.queue_bytes = 64 << 10;
	cfg.memory = ORACLE_MEMORY;
	cfg.wrs = 24;
	cfg.sges = 3;
	return cfg;
}

static bool receives(unsigned node, unsigned pair)
{
	return sim.node[node].qp[pair].cfg.type != IBV_QPT_XRC_SEND;
}

static void run_for(uint64_t ns)
{
	const uint64_t end = sim.now_ns + ns;

	sim_run(&sim, ns);
	if (sim.now_ns < end)
		sim.now_ns = end;
}

/* One end of the victim fails: its program gives up, or asks for what it may not. */
static void strike(unsigned node)
{
	struct qp *qp = &sim.node[node].qp[oracle.victim];

	if (qp->cfg.type == IBV_QPT_RC && sim_random(&sim) % 2)
		oracle_post_bad(&oracle, node, oracle.victim);
	else
		sim_to_error(&sim, qp);
}

static void step(void)
{
	const unsigned node = (unsigned)(sim_random(&sim) % 2);
	const unsigned pair = (unsigned)(sim_random(&sim) % sim.cfg.n_pairs);
	const unsigned what = (unsigned)(sim_random(&sim) % 16);

	if (what < 7 && oracle.n_ops < REQUESTS_MAX)
		oracle_post(&oracle, node, pair);
	else if (what < 11 && receives(node, pair) && oracle.n_recvs < REQUESTS_MAX)
		oracle_recv(&oracle, node, pair);
	else if (what < 15)
		run_for(sim_random(&sim) % (100 * NS_PER_US));
	else
		run_for(sim_random(&sim) % (10 * NS_PER_MS));
}

/* One that failed only gives them back. */
static bool wants_receive(unsigned node, unsigned pair)
{
	const struct qp *qp = &sim.node[node].qp[pair];
	const struct recv_queue *rq =
		qp->cfg.srq || qp->cfg.type == IBV_QPT_XRC_RECV ? &sim.node[node].srq : &qp->rq;

	return receives(node, pair) && atomic_load(&qp->state) == IBV_QPS_RTS &&
	       !ring_count(&rq->ring);
}

/* Whoever waits for a receive gets one, until all is at rest. */
static void finish(void)
{
	const uint64_t end = sim.now_ns + PATIENCE_NS;

	while (!sim_idle(&sim)) {
		if (sim.now_ns > end)
			fail_msg("seed %" PRIu64 ": doesn't come to rest", seed);
		for (unsigned i = 0; i < 2 * sim.cfg.n_pairs; i++)
			if (wants_receive(i & 1, i / 2))
				oracle_recv(&oracle, i & 1, i / 2);
		run_for(10 * NS_PER_MS);
	}
}

static void add_up(void)
{
	totals.requests += oracle.n_ops;
	for (unsigned i = 0; i < oracle.n_ops; i++) {
		totals.failed += oracle.op[i].failed;
		totals.messages += oracle.op[i].arrived;
	}
	for (unsigned i = 0; i < 2; i++) {
		totals.packets += sim.node[i].sent;
		for (unsigned k = 0; k < sim.cfg.n_pairs; k++) {
			totals.rnr_naks += sim.node[i].qp[k].counters.rnr_naks_sent;
			totals.retransmitted += sim.node[i].qp[k].counters.retransmitted;
		}
	}
	totals.lost += sim.drops[DROP_NO_RECEIVE] + sim.drops[DROP_SEQUENCE];
}

static void converse(void)
{
	struct sim_config cfg = random_config();
	unsigned steps, when;

	sim_start(&sim, &cfg);
	sim.pcap = pcap ? sim_pcap_open(pcap) : NULL;
	oracle_start(&oracle, &sim, NO_VICTIM);
	sim.on_completion = oracle_completion;
	sim.on_completion_arg = &oracle;
	steps = 1 + (unsigned)(sim_random(&sim) % STEPS_MAX);
	when = (unsigned)(sim_random(&sim) % (2 * steps));
	if (when < steps)
		oracle.victim = (unsigned)(sim_random(&sim) % cfg.n_pairs);
	for (unsigned i = 0; i < steps; i++) {
		if (i == when)
			strike((unsigned)(sim_random(&sim) % 2));
		step();
	}
	finish();
	oracle_check(&oracle);
	add_up();
	if (sim.pcap)
		fclose(sim.pcap);
	sim_end(&sim);
}

static void test_conversations(void **state)
{
	(void)state;
	for (seed = 1; seed <= seeds; seed++)
		converse();
	print_message("%" PRIu64 " conversations: %" PRIu64 " requests, %" PRIu64
		      " failed, %" PRIu64 " messages, %" PRIu64 " packets, %" PRIu64
		      " RNR NAKs, %" PRIu64 " retransmitted\n",
		      seeds, totals.requests, totals.failed, totals.messages, totals.packets,
		      totals.rnr_naks, totals.retransmitted);
	/* All that can happen did. */
	assert_true(totals.requests > 30 * seeds && totals.messages > 10 * seeds);
	assert_true(totals.failed && totals.rnr_naks && totals.retransmitted && totals.lost);
}

/* The command that repeats just that conversation, and its packets. */
static int explain_failure(void **state)
{
	char command[512];

	(void)state;
	if (seed > seeds)
		return 0;
	snprintf(command, sizeof(command), "%s --run %" PRIu64 " sim-failure.pcap", program, seed);
	print_error("to repeat the conversation: %s\n", command);
	strcat(command, " >/dev/null 2>&1");
	if (system(command) != 0)
		print_error("its packets: sim-failure.pcap\n");
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_conversations, explain_failure),
	};

	program = argv[0];
	mallopt(M_MMAP_THRESHOLD, 1 << 28);
	mallopt(M_TRIM_THRESHOLD, 1 << 28);
	if (argc >= 3 && strcmp(argv[1], "--run") == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		seed = strtoull(argv[2], NULL, 0);
		pcap = argc > 3 ? argv[3] : NULL;
		converse();
		printf("seed %" PRIu64 ": good\n", seed);
		return 0;
	}
	if (argc >= 2 && strcmp(argv[1], "--soak") == 0)
		seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : SEEDS_SOAK;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
