/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC: which SRQ a request names, and what becomes of receives when that goes wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"

/* XRC: the SRQ that a request names must be one of the target's domain, for all it does. */
static void test_xrc_unknown_srq(void **state)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(opcodes); i++) {
		struct sim_config cfg = sim_defaults;
		struct ibv_sge sge;
		struct ibv_send_wr wr = { .opcode = opcodes[i], .sg_list = &sge, .num_sge = 1 };

		cfg.pair[0].type = IBV_QPT_XRC_SEND;
		sim_start(&sim, &cfg);
		sge = sim_sge(&sim.node[0], 0, 8);
		if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = sim_va(&sim.node[1], 0);
			wr.wr.atomic.rkey = sim.node[1].mr.key;
		} else {
			wr.wr.rdma.remote_addr = sim_va(&sim.node[1], 0);
			wr.wr.rdma.rkey = sim.node[1].mr.key;
		}
		wr.qp_type.xrc.remote_srqn = SIM_SRQN ^ 1;
		wr.send_flags = IBV_SEND_SIGNALED;
		post_recv(&sim, 1, 0, 0, 64);
		assert_int_equal(qp_post_send(&sim.node[0].qp[0], &wr, NULL), 0);
		assert_true(sim_run(&sim, LIMIT_NS));
		assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_REM_INV_REQ_ERR);
		assert_int_equal(sim.node[1].events[IBV_EVENT_QP_REQ_ERR], 1);
		assert_int_equal(sim.node[1].events[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
		/* What is posted to an SRQ isn't the target's to flush. */
		assert_int_equal(sim.node[1].n_recv_wc, 0);
		assert_int_equal(ring_count(&sim.node[1].srq.ring), 1);
		sim_end(&sim);
	}
}

static struct recv_queue second_srq;

static struct recv_queue *find_either(void *xrcd, uint32_t srqn)
{
	struct sim_node *n = xrcd;

	return srqn == SIM_SRQN ? &n->srq : &second_srq;
}

/* A message that goes on in another SRQ than it began in, though of the same domain. */
static void test_xrc_message_changes_srq(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct packet pkt = { .opcode = 0xa0, .psn = { 0x1000 }, .xrc_srqn = SIM_SRQN };
	static const uint8_t data[MTU];

	(void)state;
	cfg.pair[0].type = IBV_QPT_XRC_SEND;
	sim_start(&sim, &cfg);
	assert_int_equal(recv_queue_init(&second_srq, 4, 1, &sim.node[1]), 0);
	sim.node[1].qp[0].cfg.find_srq = find_either;
	post_recv(&sim, 1, 7, 0, 4096);
	pkt.payload = data;
	pkt.payload_len = MTU;
	assert_int_equal(sim_inject(&sim, 1, &pkt), DROP_NONE);
	pkt.opcode = 0xa2;
	pkt.psn.v++;
	pkt.xrc_srqn++;
	assert_int_equal(sim_inject(&sim, 1, &pkt), DROP_NONE);
	assert_int_equal(sim.node[1].events[IBV_EVENT_QP_REQ_ERR], 1);
	assert_int_equal(sim.node[1].n_recv_wc, 1);
	assert_int_equal(sim.node[1].recv_wc[0].status, IBV_WC_WR_FLUSH_ERR);
	recv_queue_destroy(&second_srq);
	sim_end(&sim);
}

/* The receive a message in progress has taken goes to the target's error, or with its SRQ. */
static void test_xrc_message_in_progress(void **state)
{
	(void)state;
	for (unsigned forget = 0; forget < 2; forget++) {
		struct sim_config cfg = sim_defaults;
		struct packet first = { .opcode = 0xa0, .psn = { 0x1000 }, .xrc_srqn = SIM_SRQN };
		struct packet other = { .opcode = 0xa1, .psn = { 0x1001 } };
		static const uint8_t data[MTU];

		cfg.pair[0].type = IBV_QPT_XRC_SEND;
		sim_start(&sim, &cfg);
		post_recv(&sim, 1, 7, 0, 4096);
		first.payload = other.payload = data;
		first.payload_len = other.payload_len = MTU;
		assert_int_equal(sim_inject(&sim, 1, &first), DROP_NONE);
		if (forget)
			responder_forget_srq(&sim.node[1].qp[0], &sim.node[1].srq);
		/* Names no SRQ, while the message does. */
		assert_int_equal(sim_inject(&sim, 1, &other), DROP_NONE);
		assert_int_equal(sim.node[1].events[IBV_EVENT_QP_REQ_ERR], 1);
		assert_int_equal(sim.node[1].n_recv_wc, !forget);
		if (!forget) {
			assert_int_equal(sim.node[1].recv_wc[0].status, IBV_WC_WR_FLUSH_ERR);
			assert_int_equal(sim.node[1].recv_wc[0].wr_id, 7);
		}
		sim_end(&sim);
	}
}

/* Each half hears only what is meant for it; and RC packets mean nothing to XRC. */
static void test_xrc_halves(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct packet request = { .opcode = 0xa4, .psn = { 0x1000 }, .xrc_srqn = SIM_SRQN };
	struct packet ack = { .opcode = 0xb1, .psn = { 0x1000 }, .syndrome = 0x1f };
	struct packet rc = { .opcode = 0x04, .psn = { 0x1000 } };

	(void)state;
	cfg.pair[0].type = IBV_QPT_XRC_SEND;
	sim_start(&sim, &cfg);
	post_recv(&sim, 1, 0, 0, 64);
	assert_int_equal(sim_inject(&sim, 0, &request), DROP_SERVICE);
	assert_int_equal(sim_inject(&sim, 1, &ack), DROP_SERVICE);
	assert_int_equal(sim_inject(&sim, 1, &rc), DROP_SERVICE);
	assert_int_equal(sim_inject(&sim, 0, &ack), DROP_STALE);
	assert_int_equal(sim_inject(&sim, 1, &request), DROP_NONE);
	assert_int_equal(sim.node[1].n_recv_wc, 1);
	assert_int_equal(sim.node[1].recv_wc[0].src_qp, SIM_SRQN);
	sim_end(&sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_xrc_unknown_srq),
		cmocka_unit_test(test_xrc_message_changes_srq),
		cmocka_unit_test(test_xrc_message_in_progress),
		cmocka_unit_test(test_xrc_halves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
