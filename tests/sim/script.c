/* SPDX-License-Identifier: BSD-2-Clause */
/* The words that scenarios and tests are written in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"

struct sim sim;

const uint32_t edge_sizes[EDGE_SIZES] = { 0, 1, 33, MTU - 1, MTU, MTU + 1, 2 * MTU, 5 * MTU + 3 };

void post_wr(struct sim *s, unsigned node, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->qp_type.xrc.remote_srqn = SIM_SRQN;
	assert_int_equal(qp_post_send(&s->node[node].qp[0], wr, NULL), 0);
}

void post_one(struct sim *s, enum ibv_wr_opcode opcode, uint64_t id, uint32_t offset, uint32_t len,
	      unsigned flags)
{
	struct ibv_sge sge = sim_sge(&s->node[0], offset, len);
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags
	};

	wr.imm_data = htobe32(0x1234);
	wr.wr.rdma.remote_addr = sim_va(&s->node[1], offset);
	wr.wr.rdma.rkey = s->node[1].mr.key;
	post_wr(s, 0, &wr);
}

void post_atomic(struct sim *s, uint64_t id, uint32_t local, uint64_t add)
{
	struct ibv_sge sge = sim_sge(&s->node[0], local, 8);
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD
	};

	wr.wr.atomic.remote_addr = sim_va(&s->node[1], 0);
	wr.wr.atomic.rkey = s->node[1].mr.key;
	wr.wr.atomic.compare_add = add;
	post_wr(s, 0, &wr);
}

void post_recv(struct sim *s, unsigned node, uint64_t id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = sim_sge(&s->node[node], offset, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	sim_post_recv(&s->node[node], &wr);
}

void expect_same(struct sim *s, uint32_t offset, uint32_t len)
{
	assert_memory_equal(s->node[0].memory + offset, s->node[1].memory + offset, len);
}

void expect_wcs(const struct ibv_wc *wc, unsigned got, unsigned n)
{
	assert_int_equal(got, n);
	for (unsigned i = 0; i < n; i++) {
		if (wc[i].status)
			fail_msg("%s: work request %u: %s", describe(), i,
				 ibv_wc_status_str(wc[i].status));
		assert_int_equal(wc[i].wr_id, i);
	}
}

void expect_sent(struct sim *s, unsigned n)
{
	expect_wcs(s->node[0].send_wc, s->node[0].n_send_wc, n);
}

static uint32_t make_window(struct sim_node *n, unsigned i)
{
	n->windows[i] = (struct mr){ .pd = n, .home = n, .window = IBV_MW_TYPE_2 };
	assert_int_equal(mem_add(&n->mem, &n->windows[i]), 0);
	return n->windows[i].key;
}

uint32_t bind_window(struct sim_node *n, unsigned i, uint32_t tag)
{
	const uint32_t key = make_window(n, i);
	const struct mem_bind bind = {
		.window_key = key,
		.new_key = (key & ~0xffu) | tag,
		.region_key = n->mr.key,
		.access = IBV_ACCESS_REMOTE_WRITE,
		.addr = sim_va(n, i * 4096),
		.length = 4096,
	};

	assert_int_equal(mem_bind(&n->mem, n, &n->qp[0], &bind), MEM_OK);
	return bind.new_key;
}
