/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An adversary on the wire who knows queue pair numbers and PSNs: answers that nobody gave, to requests
 * that are on their way; and packets of an earlier life of the same queue pair number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim.h"

#define MTU	 256
#define LIMIT_NS (600 * NS_PER_SEC)
#define BOTH	 (2 * SIM_MEMORY)

enum { READ_FIRST = 0x0d, READ_MIDDLE, READ_LAST, READ_ONLY, ACK, ATOMIC_ACK };

static struct sim sim; /* large */

static void post(enum ibv_wr_opcode opcode, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = sim_sge(&sim.node[0], 4096, len);
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = sim_va(&sim.node[1], 0);
		wr.wr.atomic.rkey = sim.node[1].mr.key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = sim_va(&sim.node[1], 4096);
		wr.wr.rdma.rkey = sim.node[1].mr.key;
	}
	assert_int_equal(qp_post_send(&sim.node[0].qp[0], &wr, NULL), 0);
}

static void post_recv(uint64_t id)
{
	struct ibv_sge sge = sim_sge(&sim.node[1], 65536, 4096);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	sim_post_recv(&sim.node[1], &wr);
}

static uint8_t *snapshot(void)
{
	uint8_t *copy = malloc(BOTH);

	memcpy(copy, sim.node[0].memory, SIM_MEMORY);
	memcpy(copy + SIM_MEMORY, sim.node[1].memory, SIM_MEMORY);
	return copy;
}

static void expect_unchanged(uint8_t *copy)
{
	assert_memory_equal(sim.node[0].memory, copy, SIM_MEMORY);
	assert_memory_equal(sim.node[1].memory, copy + SIM_MEMORY, SIM_MEMORY);
	free(copy);
}

/* Which kinds of answer belong to a request; all others to its PSN mean nothing. */
static void test_answers_of_another_kind(void **state)
{
	static const struct {
		enum ibv_wr_opcode request;
		uint8_t right[2]; /* a response of the right length may be any part of one */
	} rows[] = {
		{ IBV_WR_RDMA_WRITE, { ACK } },
		{ IBV_WR_SEND, { ACK } },
		{ IBV_WR_RDMA_READ, { READ_ONLY, READ_LAST } },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, { ATOMIC_ACK } },
	};
	static const uint8_t data[MTU] = { 1, 2, 3 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
		for (uint8_t opcode = READ_FIRST; opcode <= ATOMIC_ACK; opcode++) {
			struct sim_config cfg = sim_defaults;
			struct packet p = { .opcode = opcode,
					    .psn = psn_make(cfg.psn),
					    .syndrome = AETH_CREDIT_INVALID };
			uint8_t *before;

			if (opcode == rows[i].right[0] || opcode == rows[i].right[1])
				continue;
			if (opcode <= READ_ONLY) {
				p.payload = data;
				p.payload_len =
					opcode == READ_FIRST || opcode == READ_MIDDLE ? MTU : 8;
			}
			cfg.loss = 1000000;
			sim_start(&sim, &cfg);
			post(rows[i].request, 0, 8);
			assert_false(sim_run(&sim, NS_PER_MS));
			before = snapshot();
			for (unsigned n = 0; n < 3; n++)
				sim_inject(&sim, 0, &p);
			expect_unchanged(before);
			assert_int_equal(sim.node[0].n_send_wc, 0);
			assert_int_equal(atomic_load(&sim.node[0].qp[0].state), IBV_QPS_RTS);
			sim_end(&sim);
		}
	}
}

/* Somebody asks again and again for packets to be repeated: it costs packets, not the connection. */
static void test_nak_flood(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct packet nak = { .opcode = ACK, .syndrome = 0x60 }; /* PSN sequence error */
	uint64_t sent;

	(void)state;
	cfg.delay_ns = 10 * NS_PER_MS;
	sim_start(&sim, &cfg);
	for (unsigned i = 0; i < 4; i++)
		post(IBV_WR_RDMA_WRITE, i, 4 * MTU);
	assert_false(sim_run(&sim, NS_PER_MS));
	sent = sim.node[0].sent;
	for (unsigned i = 0; i < 1000; i++) {
		nak.psn = psn_make(cfg.psn + i % 4);
		sim_inject(&sim, 0, &nak);
	}
	/* At most a repetition for each retry that is left. */
	assert_in_range(sim.node[0].sent - sent, 0, 8 * 16);
	if (!sim_run(&sim, LIMIT_NS))
		fail_msg("doesn't come to rest");
	assert_int_equal(sim.node[0].n_send_wc, 4);
	sim_end(&sim);
}

/*
 * A NAK of a gap that was told of before may have been on its way when the packet was sent whose round
 * trip is being measured: taken for an answer to it, all NAKs that follow look like new ones.
 */
static void test_nak_of_an_earlier_gap(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct packet nak = { .opcode = ACK, .syndrome = 0x60, .psn = { 0x1000 } };

	(void)state;
	cfg.loss = 1000000;
	sim_start(&sim, &cfg);
	post(IBV_WR_RDMA_WRITE, 0, 4 * MTU);
	assert_false(sim_run(&sim, NS_PER_US));
	sim.now_ns += 50 * NS_PER_US;
	sim_inject(&sim, 0, &nak); /* the round trip is 50 us */
	sim.now_ns += NS_PER_MS;
	post(IBV_WR_RDMA_WRITE, 1, MTU);
	assert_false(sim_run(&sim, NS_PER_US));
	for (unsigned i = 0; i < 20; i++) {
		sim.now_ns += NS_PER_US;
		sim_inject(&sim, 0, &nak);
	}
	assert_int_equal(sim.node[0].n_send_wc, 0);
	assert_int_equal(atomic_load(&sim.node[0].qp[0].state), IBV_QPS_RTS);
	sim_end(&sim);
}

/* Each kind of request, so that the history has packets of all of them. */
static void live(void)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (unsigned i = 0; i < ARRAY_LEN(opcodes); i++) {
		sim.node[0].n_send_wc = sim.node[1].n_recv_wc = 0;
		if (opcodes[i] == IBV_WR_SEND)
			post_recv(i);
		post(opcodes[i], i, opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 3 * MTU);
		assert_true(sim_run(&sim, LIMIT_NS));
		assert_int_equal(sim.node[0].n_send_wc, 1);
		assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_SUCCESS);
		assert_int_equal(sim.node[1].n_recv_wc, opcodes[i] == IBV_WR_SEND);
	}
}

/*
 * A queue pair is destroyed and another gets its number, while packets of the first are still on
 * their way: far behind the new PSNs, and far ahead.
 */
static void test_number_used_again(void **state)
{
	static const uint32_t psns[] = { 0x5a5a5a, 0x900000, 0x1000 - 0x100, 0x1000 + 0x100 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(psns); i++) {
		struct sim_config cfg = sim_defaults;
		uint8_t *before;

		cfg.replay =
			1; /* keeps the history; one packet in a million comes again by itself */
		sim_start(&sim, &cfg);
		live();
		sim_reincarnate(&sim, psns[i]);
		sim.node[0].n_send_wc = sim.node[1].n_recv_wc = 0;
		post_recv(0);
		memset(sim.node[1].memory + 4096, 0x77, 8192); /* what a WRITE would change again */
		before = snapshot();
		assert_in_range(sim_replay_history(&sim), 12, SIM_HISTORY);
		expect_unchanged(before);
		assert_int_equal(sim.node[0].n_send_wc + sim.node[1].n_recv_wc, 0);
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(atomic_load(&sim.node[k].qp[0].state), IBV_QPS_RTS);
		live();
		sim_end(&sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers_of_another_kind),
		cmocka_unit_test(test_nak_flood),
		cmocka_unit_test(test_nak_of_an_earlier_gap),
		cmocka_unit_test(test_number_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
