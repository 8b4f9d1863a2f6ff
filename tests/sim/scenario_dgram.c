/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of UC and UD, where what is lost is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"
#include "scenario_parts.h"

/* UC: every message that is told of is one that was sent, whole; what was lost is lost. A network
 * that changes the order changes that of the messages. */
void check_uc(struct sim *s)
{
	const struct sim_node *n = &s->node[1];

	expect_sent(s, EDGE_SIZES);
	for (unsigned i = 0; i < n->n_recv_wc; i++) {
		unsigned m = 0;

		assert_int_equal(n->recv_wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(n->recv_wc[i].wr_id, i);
		while (m < EDGE_SIZES && (edge_sizes[m] != n->recv_wc[i].byte_len ||
					  memcmp(n->memory + i * 4096, s->node[0].memory + m * 4096,
						 edge_sizes[m]) != 0))
			m++;
		if (m == EDGE_SIZES)
			fail_msg("%s: receive %u is no message that was sent", describe(), i);
	}
}

void post_uc_writes(struct sim *s)
{
	for (unsigned i = 0; i < EDGE_SIZES; i++) {
		post_recv(s, 1, i, 0, 0);
		post_one(s, IBV_WR_RDMA_WRITE_WITH_IMM, i, i * 4096, edge_sizes[i], 0);
	}
}

void check_uc_writes(struct sim *s)
{
	const struct sim_node *n = &s->node[1];

	expect_sent(s, EDGE_SIZES);
	for (unsigned i = 0; i < n->n_recv_wc; i++) {
		unsigned m = 0;

		assert_int_equal(n->recv_wc[i].wr_id, i);
		while (m < EDGE_SIZES && edge_sizes[m] != n->recv_wc[i].byte_len)
			m++;
		assert_true(m < EDGE_SIZES);
		expect_same(s, m * 4096, edge_sizes[m]);
	}
}

/* UD: a message is one packet, and lies behind the 40 bytes of a GRH. */
static const uint32_t ud_sizes[] = { 0, 1, 33, MTU - 1, MTU, MTU + 1, 4095, 4096 };

void post_uds(struct sim *s)
{
	struct path path = sim_path(1);

	for (unsigned i = 0; i < ARRAY_LEN(ud_sizes); i++) {
		struct ibv_sge sge = sim_sge(&s->node[0], i * 8192, ud_sizes[i]);
		struct ibv_send_wr wr = { .wr_id = i,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND_WITH_IMM,
					  .send_flags = IBV_SEND_SIGNALED };

		wr.imm_data = htobe32(i);
		wr.wr.ud.remote_qpn = s->node[1].qp[0].qpn;
		wr.wr.ud.remote_qkey = 0x11111111;
		post_recv(s, 1, i, i * 8192, 8192);
		assert_int_equal(qp_post_send(&s->node[0].qp[0], &wr, &path), 0);
	}
}

/* Whatever is told of is whole and what its immediate value says. */
void check_uds(struct sim *s)
{
	const struct sim_node *n = &s->node[1];

	expect_sent(s, ARRAY_LEN(ud_sizes));
	for (unsigned i = 0; i < n->n_recv_wc; i++) {
		const struct ibv_wc *wc = &n->recv_wc[i];
		uint32_t m = be32toh(wc->imm_data);

		assert_int_equal(wc->status, IBV_WC_SUCCESS);
		assert_int_equal(wc->wr_id, i);
		assert_in_range(m, 0, ARRAY_LEN(ud_sizes) - 1);
		assert_int_equal(wc->byte_len, 40 + ud_sizes[m]);
		assert_memory_equal(n->memory + i * 8192 + 40, s->node[0].memory + m * 8192,
				    ud_sizes[m]);
	}
}
