/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets that no peer of this project would send: repeated, unearned, of wrong lengths, too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"

/* A duplicate of an atomic is answered from the store, not executed again. */
static void test_duplicate_atomic(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct packet dup = { .opcode = 0x14, .swap_add = 5, .psn = { 0x1000 } };
	uint64_t v;

	(void)state;
	sim_start(&sim, &cfg);
	memset(sim.node[1].memory, 0, 8);
	post_atomic(&sim, 0, 64, 5);
	assert_true(sim_run(&sim, LIMIT_NS));
	dup.va = sim_va(&sim.node[1], 0);
	dup.rkey = sim.node[1].mr.key;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(sim_inject(&sim, 1, &dup), DROP_NONE);
	memcpy(&v, sim.node[1].memory, 8);
	assert_int_equal(v, 5);
	assert_int_equal(sim.node[1].qp[0].counters.duplicates, 3);
	sim_end(&sim);
}

/* ACKs that nobody earned: beyond what was sent, stale, reserved syndromes. */
static void test_forged_acks(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct packet ack = { .opcode = 0x11 };

	(void)state;
	cfg.loss = 1000000;
	sim_start(&sim, &cfg);
	post_one(&sim, IBV_WR_RDMA_WRITE, 0, 0, 3 * MTU, 0);
	assert_false(sim_run(&sim, NS_PER_MS));
	for (unsigned syndrome = 0; syndrome < 256; syndrome++) {
		static const int32_t distances[] = { -1, -100, 3, 4, 1 << 22, -(1 << 22) };

		for (unsigned i = 0; i < ARRAY_LEN(distances); i++) {
			ack.syndrome = (uint8_t)syndrome;
			ack.psn = psn_make(cfg.psn + (uint32_t)distances[i]);
			assert_int_equal(sim_inject(&sim, 0, &ack), DROP_STALE);
		}
	}
	assert_int_equal(sim.node[0].n_send_wc, 0);
	assert_int_equal(atomic_load(&sim.node[0].qp[0].state), IBV_QPS_RTS);
	sim_end(&sim);
}

/* A READ response of another length than was asked for is dropped, whole requests stay open. */
static void test_wrong_response_length(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t distance, len;
	} wrong[] = {
		{ 0x0d, 0, MTU - 4 }, { 0x0d, 0, MTU + 4 }, { 0x0d, 0, 0 },   { 0x10, 0, 100 },
		{ 0x0e, 1, MTU - 4 }, { 0x0f, 2, MTU },	    { 0x0f, 2, 104 }, { 0x0f, 2, 0 },
	};
	static const uint8_t data[2 * MTU];
	struct sim_config cfg = sim_defaults;

	(void)state;
	cfg.loss = 1000000;
	for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
		struct packet p = { .opcode = wrong[i].opcode,
				    .psn = psn_make(cfg.psn + wrong[i].distance),
				    .syndrome = AETH_CREDIT_INVALID,
				    .payload = data,
				    .payload_len = wrong[i].len };

		sim_start(&sim, &cfg);
		post_one(&sim, IBV_WR_RDMA_READ, 0, 0, 2 * MTU + 100, 0);
		assert_false(sim_run(&sim, NS_PER_MS));
		for (uint32_t k = 0; k < wrong[i].distance; k++) {
			struct packet good = { .opcode = k ? 0x0e : 0x0d,
					       .psn = psn_make(cfg.psn + k),
					       .syndrome = AETH_CREDIT_INVALID,
					       .payload = data,
					       .payload_len = MTU };

			assert_int_equal(sim_inject(&sim, 0, &good), DROP_NONE);
		}
		assert_int_equal(sim_inject(&sim, 0, &p), DROP_STALE);
		assert_int_equal(sim.node[0].n_send_wc, 0);
		sim_end(&sim);
	}
}

/* A packet that isn't a message's last carries exactly the path MTU. */
static void test_short_first_packet(void **state)
{
	static const uint8_t opcodes[] = { 0x00, 0x06 }; /* SEND First, WRITE First */
	static const uint8_t data[MTU];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(opcodes); i++) {
		struct packet p = { .opcode = opcodes[i],
				    .psn = { 0x1000 },
				    .dma_len = 2 * MTU,
				    .payload = data,
				    .payload_len = MTU - 4 };
		struct sim_config cfg = sim_defaults;

		sim_start(&sim, &cfg);
		post_recv(&sim, 1, 0, 0, 4096);
		p.va = sim_va(&sim.node[1], 0);
		p.rkey = sim.node[1].mr.key;
		assert_int_equal(sim_inject(&sim, 1, &p), DROP_NONE);
		assert_int_equal(sim.node[1].events[IBV_EVENT_QP_REQ_ERR], 1);
		assert_int_equal(sim.node[1].qp[0].counters.naks_sent, 1);
		sim_end(&sim);
	}
}

/* More READs at once than max_dest_rd_atomic are refused. */
static void test_read_depth(void **state)
{
	struct packet p = { .opcode = 0x0c, .dma_len = 8, .mig_req = true, .pkey = 0xffff };
	struct sim_config cfg = sim_defaults;
	struct qp *qp = &sim.node[1].qp[0];
	struct path path;

	(void)state;
	sim_start(&sim, &cfg);
	path = qp->path;
	path.sgid = qp->path.dgid;
	path.dgid = qp->path.sgid;
	p.op = opcode_info(p.opcode);
	p.dest_qpn = qp->qpn;
	p.va = sim_va(&sim.node[1], 0);
	p.rkey = sim.node[1].mr.key;
	for (uint32_t i = 0; i <= cfg.rd_atomic; i++) {
		assert_int_equal(sim.node[1].events[IBV_EVENT_QP_REQ_ERR], 0);
		p.psn = psn_make(cfg.psn + i);
		assert_int_equal(qp_rx(qp, &p, &path, sim.now_ns), DROP_NONE);
	}
	assert_int_equal(sim.node[1].events[IBV_EVENT_QP_REQ_ERR], 1);
	sim_end(&sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_duplicate_atomic),
		cmocka_unit_test(test_forged_acks),
		cmocka_unit_test(test_wrong_response_length),
		cmocka_unit_test(test_short_first_packet),
		cmocka_unit_test(test_read_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
