/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of atomics, memory windows and local requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"
#include "scenario_parts.h"

void post_atomics(struct sim *s)
{
	memset(s->node[1].memory, 0, 8);
	for (unsigned i = 0; i < 6; i++)
		post_atomic(s, i, 64 + i * 8, 1u << i);
}

void check_atomics(struct sim *s)
{
	uint64_t v;

	expect_sent(s, 6);
	for (unsigned i = 0; i < 6; i++) {
		memcpy(&v, s->node[0].memory + 64 + i * 8, 8);
		assert_int_equal(v, (1u << i) - 1);
	}
	memcpy(&v, s->node[1].memory, 8);
	assert_int_equal(v, 63);
}

/* Compare and swap, each on what the one before has left: one that ran twice would fail the next. */
void post_swaps(struct sim *s)
{
	memset(s->node[1].memory, 0, 8);
	for (unsigned i = 0; i < 6; i++) {
		struct ibv_sge sge = sim_sge(&s->node[0], 64 + i * 8, 8);
		struct ibv_send_wr wr = { .wr_id = i,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_ATOMIC_CMP_AND_SWP };

		wr.wr.atomic.remote_addr = sim_va(&s->node[1], 0);
		wr.wr.atomic.rkey = s->node[1].mr.key;
		wr.wr.atomic.compare_add = i;
		wr.wr.atomic.swap = i + 1;
		post_wr(s, 0, &wr);
	}
}

void check_swaps(struct sim *s)
{
	uint64_t v;

	expect_sent(s, 6);
	for (unsigned i = 0; i < 6; i++) {
		memcpy(&v, s->node[0].memory + 64 + i * 8, 8);
		assert_int_equal(v, i);
	}
	memcpy(&v, s->node[1].memory, 8);
	assert_int_equal(v, 6);
}

/* ATOMIC WRITEs with FETCH ADDs between them: one that was executed twice would show. */
void post_atomic_writes(struct sim *s)
{
	for (unsigned i = 0; i < 4; i++) {
		uint64_t value = 100 * (i + 1);
		struct ibv_sge sge = { .addr = (uintptr_t)&value, .length = 8 };
		struct ibv_send_wr wr = { .wr_id = 2 * i,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_ATOMIC_WRITE,
					  .send_flags = IBV_SEND_INLINE };

		wr.wr.rdma.remote_addr = sim_va(&s->node[1], 0);
		wr.wr.rdma.rkey = s->node[1].mr.key;
		post_wr(s, 0, &wr);
		post_atomic(s, 2 * i + 1, 64 + i * 8, 1);
	}
}

void check_atomic_writes(struct sim *s)
{
	uint64_t v;

	expect_sent(s, 8);
	for (unsigned i = 0; i < 4; i++) {
		memcpy(&v, s->node[0].memory + 64 + i * 8, 8);
		assert_int_equal(v, 100 * (i + 1));
	}
	memcpy(&v, s->node[1].memory, 8);
	assert_int_equal(v, 401);
}

/* WRITE through a window of node 1's, then a SEND that closes it. */
void post_invalidating_sends(struct sim *s)
{
	for (unsigned i = 0; i < SIM_WINDOWS; i++) {
		uint32_t key = bind_window(&s->node[1], i, i + 1);
		struct ibv_sge sge = sim_sge(&s->node[0], i * 4096, 600);
		struct ibv_send_wr wr = {
			.wr_id = 2 * i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE
		};

		wr.wr.rdma.remote_addr = sim_va(&s->node[1], i * 4096);
		wr.wr.rdma.rkey = key;
		post_wr(s, 0, &wr);
		wr.wr_id++;
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = key;
		sge.length = i * 300;
		post_recv(s, 1, i, 65536, 4096);
		post_wr(s, 0, &wr);
	}
}

void check_invalidating_sends(struct sim *s)
{
	const struct sim_node *n = &s->node[1];

	expect_sent(s, 2 * SIM_WINDOWS);
	expect_wcs(n->recv_wc, n->n_recv_wc, SIM_WINDOWS);
	for (unsigned i = 0; i < SIM_WINDOWS; i++) {
		expect_same(s, i * 4096, 600);
		assert_int_equal(n->recv_wc[i].wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(n->recv_wc[i].invalidated_rkey, n->windows[i].key);
		assert_int_equal(n->recv_wc[i].byte_len, i * 300);
		assert_null(n->windows[i].region);
	}
	assert_int_equal(n->mr.windows, 0);
}

/* Local requests between others: they wait for those before them, and those behind for them. */
void post_locals(struct sim *s)
{
	struct sim_node *n = &s->node[0];
	struct ibv_mw mw = { .type = IBV_MW_TYPE_2 };
	struct ibv_mr mr = { .lkey = n->mr.key };
	struct ibv_send_wr inv = { .wr_id = 1, .opcode = IBV_WR_LOCAL_INV };
	struct ibv_send_wr bind = { .wr_id = 3, .opcode = IBV_WR_BIND_MW };

	inv.invalidate_rkey = bind_window(n, 0, 1);
	mw.rkey = n->windows[0].key;
	bind.bind_mw.mw = &mw;
	bind.bind_mw.rkey = (mw.rkey & ~0xffu) | 2;
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){ &mr, sim_va(n, 0), 64, IBV_ACCESS_REMOTE_READ };
	post_one(s, IBV_WR_RDMA_READ, 0, 4096, 700, 0);
	post_wr(s, 0, &inv);
	post_one(s, IBV_WR_RDMA_WRITE, 2, 8192, 700, 0);
	post_wr(s, 0, &bind);
	inv.wr_id = 4;
	inv.invalidate_rkey = bind.bind_mw.rkey;
	post_wr(s, 0, &inv);
	post_one(s, IBV_WR_RDMA_WRITE, 5, 12288, 1, 0);
}

void check_locals(struct sim *s)
{
	expect_sent(s, 6);
	assert_int_equal(s->node[0].send_wc[1].opcode, IBV_WC_LOCAL_INV);
	assert_int_equal(s->node[0].send_wc[3].opcode, IBV_WC_BIND_MW);
	assert_null(s->node[0].windows[0].region);
	expect_same(s, 4096, 700);
	expect_same(s, 8192, 700);
	expect_same(s, 12288, 1);
}
