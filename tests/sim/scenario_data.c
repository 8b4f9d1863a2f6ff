/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of messages, READs and WRITEs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"
#include "scenario_parts.h"

void post_sends(struct sim *s)
{
	for (unsigned i = 0; i < EDGE_SIZES; i++) {
		post_recv(s, 1, i, i * 4096, 4096);
		post_one(s, IBV_WR_SEND, i, i * 4096, edge_sizes[i], 0);
	}
}

void check_sends(struct sim *s)
{
	expect_sent(s, EDGE_SIZES);
	expect_wcs(s->node[1].recv_wc, s->node[1].n_recv_wc, EDGE_SIZES);
	for (unsigned i = 0; i < EDGE_SIZES; i++) {
		assert_int_equal(s->node[1].recv_wc[i].byte_len, edge_sizes[i]);
		expect_same(s, i * 4096, edge_sizes[i]);
	}
}

void post_writes(struct sim *s)
{
	for (unsigned i = 0; i < EDGE_SIZES; i++)
		post_one(s, IBV_WR_RDMA_WRITE, i, i * 4096, edge_sizes[i], 0);
}

void check_writes(struct sim *s)
{
	expect_sent(s, EDGE_SIZES);
	assert_int_equal(s->node[1].n_recv_wc, 0);
	for (unsigned i = 0; i < EDGE_SIZES; i++)
		expect_same(s, i * 4096, edge_sizes[i]);
}

void post_write_imm(struct sim *s)
{
	for (unsigned i = 0; i < 3; i++) {
		post_recv(s, 1, i, 0, 0);
		post_one(s, IBV_WR_RDMA_WRITE_WITH_IMM, i, i * 4096, i * 300, 0);
	}
}

void check_write_imm(struct sim *s)
{
	expect_sent(s, 3);
	expect_wcs(s->node[1].recv_wc, s->node[1].n_recv_wc, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(s->node[1].recv_wc[i].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		assert_int_equal(s->node[1].recv_wc[i].imm_data, htobe32(0x1234));
		assert_int_equal(s->node[1].recv_wc[i].byte_len, i * 300);
		expect_same(s, i * 4096, i * 300);
	}
}

void post_reads(struct sim *s)
{
	for (unsigned i = 0; i < EDGE_SIZES; i++)
		post_one(s, IBV_WR_RDMA_READ, i, i * 4096, edge_sizes[i], 0);
}

void post_long_read(struct sim *s)
{
	post_one(s, IBV_WR_RDMA_READ, 0, 0, 300 * MTU, 0);
	post_one(s, IBV_WR_SEND, 1, 96 << 10, 10, 0);
	post_recv(s, 1, 0, 96 << 10, 4096);
}

void check_long_read(struct sim *s)
{
	expect_sent(s, 2);
	expect_same(s, 0, 300 * MTU);
	expect_same(s, 96 << 10, 10);
}

/* READ, WRITE, SEND, atomic, in one queue. */
void post_mixed(struct sim *s)
{
	memset(s->node[1].memory, 0, 8);
	post_recv(s, 1, 0, 32768, 4096);
	post_one(s, IBV_WR_RDMA_WRITE, 0, 4096, 600, 0);
	post_one(s, IBV_WR_RDMA_READ, 1, 8192, 700, 0);
	post_one(s, IBV_WR_SEND_WITH_IMM, 2, 32768, 513, 0);
	post_atomic(s, 3, 64, 5);
	post_one(s, IBV_WR_RDMA_READ, 4, 16384, 1, 0);
	post_one(s, IBV_WR_RDMA_WRITE, 5, 20480, 1, IBV_SEND_FENCE);
}

void check_mixed(struct sim *s)
{
	uint64_t v;

	expect_sent(s, 6);
	expect_wcs(s->node[1].recv_wc, s->node[1].n_recv_wc, 1);
	expect_same(s, 4096, 600);
	expect_same(s, 8192, 700);
	expect_same(s, 32768, 513);
	expect_same(s, 16384, 1);
	expect_same(s, 20480, 1);
	memcpy(&v, s->node[1].memory, 8);
	assert_int_equal(v, 5);
}

/* The WRITE sends on what the READ before it fetches: only the fence makes that right. */
void post_fence(struct sim *s)
{
	struct ibv_sge sge = sim_sge(&s->node[0], 0, 600);
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_FENCE };

	post_one(s, IBV_WR_RDMA_READ, 0, 0, 600, 0);
	wr.wr.rdma.remote_addr = sim_va(&s->node[1], 8192);
	wr.wr.rdma.rkey = s->node[1].mr.key;
	post_wr(s, 0, &wr);
}

void check_fence(struct sim *s)
{
	expect_sent(s, 2);
	assert_memory_equal(s->node[1].memory + 8192, s->node[1].memory, 600);
}

void post_gather(struct sim *s)
{
	struct ibv_sge from[30], to[30];
	struct ibv_send_wr wr = { .sg_list = from, .num_sge = 30, .opcode = IBV_WR_SEND };
	struct ibv_recv_wr recv = { .sg_list = to, .num_sge = 30 };

	/* 30 pieces of 7, 14, ... bytes: gathered odd, scattered otherwise. */
	for (unsigned i = 0; i < 30; i++) {
		from[i] = sim_sge(&s->node[0], i * 1024, 7 * (i + 1));
		to[i] = sim_sge(&s->node[1], i * 1024, 7 * (30 - i));
	}
	sim_post_recv(&s->node[1], &recv);
	post_wr(s, 0, &wr);
}

void check_gather(struct sim *s)
{
	uint8_t sent[4096], got[4096];
	uint32_t n = 0, m = 0;

	for (unsigned i = 0; i < 30; i++) {
		memcpy(sent + n, s->node[0].memory + i * 1024, 7 * (i + 1));
		memcpy(got + m, s->node[1].memory + i * 1024, 7 * (30 - i));
		n += 7 * (i + 1);
		m += 7 * (30 - i);
	}
	expect_sent(s, 1);
	expect_wcs(s->node[1].recv_wc, s->node[1].n_recv_wc, 1);
	assert_memory_equal(sent, got, n);
}

void post_inline(struct sim *s)
{
	uint8_t text[100];
	struct ibv_sge sge = { .addr = (uintptr_t)text, .length = sizeof(text) };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_INLINE };

	memcpy(text, s->node[0].memory + 4096, sizeof(text));
	wr.wr.rdma.remote_addr = sim_va(&s->node[1], 4096);
	wr.wr.rdma.rkey = s->node[1].mr.key;
	post_wr(s, 0, &wr);
	/* Inline data belongs to the program again as soon as post returns. */
	memset(text, 0, sizeof(text));
}

void check_inline(struct sim *s)
{
	expect_sent(s, 1);
	expect_same(s, 4096, 100);
}

/* No receive posted at first: RNR, until node 1 posts one at its first event. */
void post_rnr(struct sim *s)
{
	post_one(s, IBV_WR_SEND, 0, 4096, 700, 0);
	post_one(s, IBV_WR_SEND, 1, 8192, 10, 0);
	assert_false(sim_run(s, 5 * NS_PER_MS) && s->node[0].n_send_wc);
	post_recv(s, 1, 0, 4096, 4096);
	post_recv(s, 1, 1, 8192, 4096);
}

void check_rnr(struct sim *s)
{
	expect_sent(s, 2);
	expect_wcs(s->node[1].recv_wc, s->node[1].n_recv_wc, 2);
	expect_same(s, 4096, 700);
	expect_same(s, 8192, 10);
}

void post_both(struct sim *s)
{
	post_writes(s);
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_sge sge = sim_sge(&s->node[1], 65536 + i * 4096, 700);
		struct ibv_send_wr wr = {
			.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ
		};

		if (i & 1)
			wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = sim_va(&s->node[0], 65536 + i * 4096);
		wr.wr.rdma.rkey = s->node[0].mr.key;
		post_wr(s, 1, &wr);
	}
}

void check_both(struct sim *s)
{
	check_writes(s);
	expect_wcs(s->node[1].send_wc, s->node[1].n_send_wc, 4);
	for (unsigned i = 0; i < 4; i++)
		expect_same(s, 65536 + i * 4096, 700);
}
