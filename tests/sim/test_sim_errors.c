/* SPDX-License-Identifier: BSD-2-Clause */
/* How a reliable connection ends: retries used up, and what the peer refuses. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"

#define RUNS 200

/* The peer never answers: error 12 once (retry_cnt + 1) timeouts are over, the rest is flushed. */
static void test_black_hole(void **state)
{
	struct sim_config cfg = sim_defaults;
	uint64_t start, took;

	(void)state;
	cfg.loss = 1000000;
	sim_start(&sim, &cfg);
	start = sim.now_ns;
	post_writes(&sim);
	assert_true(sim_run(&sim, LIMIT_NS));
	took = sim.now_ns - start;
	assert_int_equal(sim.node[0].n_send_wc, EDGE_SIZES);
	assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 1; i < EDGE_SIZES; i++)
		assert_int_equal(sim.node[0].send_wc[i].status, IBV_WC_WR_FLUSH_ERR);
	/* timeout 14 is 67.1 ms, eight of them, each between 1 and 4 times that. */
	assert_in_range(took, 8 * 67 * NS_PER_MS, 8 * 4 * 68 * NS_PER_MS);
	sim_end(&sim);
}

static void test_rnr_exhausted(void **state)
{
	struct sim_config cfg = sim_defaults;

	(void)state;
	cfg.rnr_retry = 3;
	sim_start(&sim, &cfg);
	post_one(&sim, IBV_WR_SEND, 0, 0, 8, 0);
	assert_true(sim_run(&sim, LIMIT_NS));
	assert_int_equal(sim.node[0].n_send_wc, 1);
	assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(sim.node[1].qp[0].counters.rnr_naks_sent, 4);
	sim_end(&sim);
}

/* A pause that is longer than the ACK timeout: the timer rests meanwhile, no retry is used up. */
static void test_rnr_pause_is_no_timeout(void **state)
{
	struct sim_config cfg = sim_defaults;

	(void)state;
	cfg.min_rnr_timer = 0; /* 655 ms; the timeout is 67 ms, four times that at most */
	cfg.retry_cnt = 1;
	sim_start(&sim, &cfg);
	post_one(&sim, IBV_WR_SEND, 0, 0, 8, 0);
	assert_false(sim_run(&sim, 6 * NS_PER_SEC));
	assert_int_equal(sim.node[0].n_send_wc, 0);
	assert_int_equal(sim.node[0].qp[0].counters.timeouts, 0);
	assert_in_range(sim.node[1].qp[0].counters.rnr_naks_sent, 9, 10);
	assert_in_range(sim.node[0].sent, 9, 10);
	post_recv(&sim, 1, 0, 0, 64);
	assert_true(sim_run(&sim, LIMIT_NS));
	expect_sent(&sim, 1);
	sim_end(&sim);
}

/*
 * Half of all packets are lost, and retries run out sometimes: then the requests before the one that
 * says so have succeeded, and those behind it are flushed.
 */
static void test_heavy_loss(void **state)
{
	unsigned good = 0, exhausted = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= RUNS; seed++) {
		struct sim_config cfg = sim_defaults;
		unsigned i = 0;

		cfg.loss = 500000;
		cfg.seed = seed;
		cfg.retry_cnt = seed % 8;
		sim_start(&sim, &cfg);
		post_writes(&sim);
		assert_true(sim_run(&sim, LIMIT_NS));
		assert_int_equal(sim.node[0].n_send_wc, EDGE_SIZES);
		for (; i < EDGE_SIZES && !sim.node[0].send_wc[i].status; i++)
			expect_same(&sim, i * 4096, edge_sizes[i]);
		good += i == EDGE_SIZES;
		if (i < EDGE_SIZES) {
			exhausted++;
			assert_int_equal(sim.node[0].send_wc[i++].status, IBV_WC_RETRY_EXC_ERR);
		}
		for (; i < EDGE_SIZES; i++)
			assert_int_equal(sim.node[0].send_wc[i].status, IBV_WC_WR_FLUSH_ERR);
		sim_end(&sim);
	}
	assert_in_range(good, 1, RUNS);
	assert_in_range(exhausted, 1, RUNS);
}

struct provoked {
	enum ibv_wr_opcode opcode;
	uint32_t remote_offset, len;
	uint32_t rkey_flip;
	enum ibv_wc_status status;
	enum ibv_event_type event;
};

static void test_remote_errors(void **state)
{
	static const struct provoked cases[] = {
		{ IBV_WR_RDMA_WRITE, 0, 64, 1, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
		{ IBV_WR_RDMA_READ, 0, 64, 1, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
		{ IBV_WR_RDMA_WRITE, SIM_MEMORY - 63, 64, 0, IBV_WC_REM_ACCESS_ERR,
		  IBV_EVENT_QP_ACCESS_ERR },
		{ IBV_WR_RDMA_READ, SIM_MEMORY - 63, 64, 0, IBV_WC_REM_ACCESS_ERR,
		  IBV_EVENT_QP_ACCESS_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, SIM_MEMORY - 4, 8, 0, IBV_WC_REM_INV_REQ_ERR,
		  IBV_EVENT_QP_REQ_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, SIM_MEMORY, 8, 0, IBV_WC_REM_ACCESS_ERR,
		  IBV_EVENT_QP_ACCESS_ERR },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
		const struct provoked *c = &cases[i];
		struct sim_config cfg = sim_defaults;
		struct ibv_sge sge;
		struct ibv_send_wr wr = { .opcode = c->opcode, .sg_list = &sge, .num_sge = 1 };

		sim_start(&sim, &cfg);
		sge = sim_sge(&sim.node[0], 0, c->len);
		if (c->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = sim_va(&sim.node[1], c->remote_offset);
			wr.wr.atomic.rkey = sim.node[1].mr.key ^ c->rkey_flip;
		} else {
			wr.wr.rdma.remote_addr = sim_va(&sim.node[1], c->remote_offset);
			wr.wr.rdma.rkey = sim.node[1].mr.key ^ c->rkey_flip;
		}
		post_wr(&sim, 0, &wr);
		post_one(&sim, IBV_WR_RDMA_WRITE, 1, 0, 8, 0);
		post_recv(&sim, 1, 7, 0, 8);
		assert_true(sim_run(&sim, LIMIT_NS));
		assert_int_equal(sim.node[0].n_send_wc, 2);
		assert_int_equal(sim.node[0].send_wc[0].status, c->status);
		assert_int_equal(sim.node[0].send_wc[1].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(sim.node[1].events[c->event], 1);
		assert_int_equal(sim.node[1].n_recv_wc, 1);
		assert_int_equal(sim.node[1].recv_wc[0].status, IBV_WC_WR_FLUSH_ERR);
		sim_end(&sim);
	}
}

static void test_receive_too_short(void **state)
{
	struct sim_config cfg = sim_defaults;

	(void)state;
	sim_start(&sim, &cfg);
	post_recv(&sim, 1, 0, 0, 500);
	post_one(&sim, IBV_WR_SEND, 0, 0, 501, 0);
	assert_true(sim_run(&sim, LIMIT_NS));
	assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(sim.node[1].recv_wc[0].status, IBV_WC_LOC_LEN_ERR);
	sim_end(&sim);
}

/* A local key that is wrong fails that work request, after all before it succeeded. */
static void test_local_key(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1
	};

	(void)state;
	sim_start(&sim, &cfg);
	post_recv(&sim, 1, 0, 0, 4096);
	post_one(&sim, IBV_WR_SEND, 0, 0, 1000, 0);
	sge = sim_sge(&sim.node[0], 0, 100);
	sge.lkey ^= 0x100;
	post_wr(&sim, 0, &wr);
	assert_true(sim_run(&sim, LIMIT_NS));
	assert_int_equal(sim.node[0].n_send_wc, 2);
	assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(sim.node[0].send_wc[1].status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(atomic_load(&sim.node[0].qp[0].state), IBV_QPS_ERR);
	sim_end(&sim);
}

/* Queues take what was asked for, and then say ENOMEM. */
static void test_full_queues(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 };
	struct sim_config cfg = sim_defaults;

	(void)state;
	sim_start(&sim, &cfg);
	sge = sim_sge(&sim.node[0], 0, 8);
	for (unsigned i = 0; i < 256; i++) {
		assert_int_equal(qp_post_send(&sim.node[0].qp[0], &send, NULL), 0);
		assert_int_equal(qp_post_recv(&sim.node[0].qp[0], &recv), 0);
	}
	assert_int_equal(qp_post_send(&sim.node[0].qp[0], &send, NULL), ENOMEM);
	assert_int_equal(qp_post_recv(&sim.node[0].qp[0], &recv), ENOMEM);
	sim_end(&sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_black_hole),
		cmocka_unit_test(test_rnr_exhausted),
		cmocka_unit_test(test_rnr_pause_is_no_timeout),
		cmocka_unit_test(test_heavy_loss),
		cmocka_unit_test(test_remote_errors),
		cmocka_unit_test(test_receive_too_short),
		cmocka_unit_test(test_local_key),
		cmocka_unit_test(test_full_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
