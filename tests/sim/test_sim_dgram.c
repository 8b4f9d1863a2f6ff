/* SPDX-License-Identifier: BSD-2-Clause */
/* UC and UD: what is lost, and what must not be received. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"

/* UC: a message with a gap is dropped whole, those before and after arrive. */
static void test_uc_drops_message(void **state)
{
	struct sim_config cfg = sim_defaults;

	(void)state;
	cfg.pair[0].type = IBV_QPT_UC;
	cfg.drop_mask[0] = 1u << 4; /* second packet of the second message */
	sim_start(&sim, &cfg);
	for (unsigned i = 0; i < 3; i++) {
		post_recv(&sim, 1, i, i * 4096, 4096);
		post_one(&sim, IBV_WR_SEND, i, i * 4096, 3 * MTU, 0);
	}
	assert_true(sim_run(&sim, LIMIT_NS));
	expect_sent(&sim, 3);
	assert_int_equal(sim.node[1].n_recv_wc, 2);
	expect_same(&sim, 0, 3 * MTU);
	assert_memory_equal(sim.node[1].memory + 4096, sim.node[0].memory + 8192, 3 * MTU);
	sim_end(&sim);
}

static void test_ud(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1 };
	struct path path = { .sport = 0xc000, .hop_limit = 64 };

	(void)state;
	cfg.pair[0].type = IBV_QPT_UD;
	sim_start(&sim, &cfg);
	path.sgid.raw[10] = path.sgid.raw[11] = path.dgid.raw[10] = path.dgid.raw[11] = 0xff;
	path.sgid.raw[12] = path.dgid.raw[12] = 10;
	path.sgid.raw[15] = 1;
	path.dgid.raw[15] = 2;
	sge = sim_sge(&sim.node[0], 100, 77);
	wr.wr.ud.remote_qpn = sim.node[1].qp[0].qpn;
	wr.send_flags = IBV_SEND_SIGNALED;
	for (unsigned i = 0; i < 3; i++) {
		post_recv(&sim, 1, i, i * 4096, 40 + 77);
		/* Right, wrong, and the high bit: the sender's own Q_Key. */
		wr.wr.ud.remote_qkey = i == 0 ? 0x11111111 : i == 1 ? 0x22222222 : 0x80000000;
		assert_int_equal(qp_post_send(&sim.node[0].qp[0], &wr, &path), 0);
	}
	/* Two more: the second finds a receive that doesn't hold the 40 bytes of the GRH as well. */
	post_recv(&sim, 1, 3, 20480, 40 + 77 - 1);
	wr.wr.ud.remote_qkey = 0x11111111;
	assert_int_equal(qp_post_send(&sim.node[0].qp[0], &wr, &path), 0);
	assert_int_equal(qp_post_send(&sim.node[0].qp[0], &wr, &path), 0);
	assert_true(sim_run(&sim, LIMIT_NS));
	assert_int_equal(sim.drops[DROP_TOO_LONG], 1);
	assert_int_equal(sim.node[0].n_send_wc, 5);
	assert_int_equal(sim.drops[DROP_QKEY], 1);
	assert_int_equal(sim.node[1].n_recv_wc, 3);
	for (unsigned i = 0; i < 2; i++) {
		const struct ibv_wc *wc = &sim.node[1].recv_wc[i];
		const uint8_t *at = sim.node[1].memory + i * 4096;

		assert_int_equal(wc->byte_len, 117);
		assert_int_equal(wc->src_qp, sim.node[0].qp[0].qpn);
		assert_true(wc->wc_flags & IBV_WC_GRH);
		assert_int_equal(at[20], 0x45);
		assert_memory_equal(at + 32, path.sgid.raw + 12, 4);
		assert_memory_equal(at + 36, path.dgid.raw + 12, 4);
		assert_memory_equal(at + 40, sim.node[0].memory + 100, 77);
	}
	sim_end(&sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uc_drops_message),
		cmocka_unit_test(test_ud),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
