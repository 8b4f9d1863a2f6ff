/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport between two endpoints in virtual time. Each scenario posts work to node 0 (and
 * receives to node 1) and knows what must be true afterwards; it is run over all drop masks of the
 * first packets in each direction, from an ordinary PSN and from one about to wrap, and under
 * random loss, reordering, duplication, corruption.
 */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim.h"
#include "sim_pcap.h"

#define MASK_BITS 7
#define SEEDS	  50
#define LIMIT_NS  (600 * NS_PER_SEC)
#define MTU	  256

struct scenario {
	const char *name;
	enum ibv_qp_type type;
	void (*post)(struct sim *s);
	void (*check)(struct sim *s);
	bool srq;
};

static struct sim sim; /* large */
static unsigned mask_bits = MASK_BITS, seeds = SEEDS;
static const char *context = "";
static const char *pcap; /* the runs are written to this file */
static const char *program;
static bool under_way; /* a run of run_one() that has not ended well */

/* All that a run depends on: the fields of a specification, in their order. */
static const struct spec_field {
	size_t offset, size;
} spec_fields[] = {
#define FIELD(name)                                                                       \
	{                                                                                 \
		offsetof(struct sim_config, name), sizeof(((struct sim_config *)0)->name) \
	}
	FIELD(mtu),    FIELD(psn),	 FIELD(drop_mask[0]), FIELD(drop_mask[1]),
	FIELD(loss),   FIELD(duplicate), FIELD(reorder),      FIELD(corrupt),
	FIELD(replay), FIELD(delay_ns),	 FIELD(mbps),	      FIELD(queue_bytes),
	FIELD(seed),
#undef FIELD
};

/* "SCENARIO MTU PSN ...": what reproduces the run. */
static const char *describe(void)
{
	static char text[400];
	int n = snprintf(text, sizeof(text), "%s", context);

	for (size_t i = 0; i < ARRAY_LEN(spec_fields); i++) {
		uint64_t v = 0;

		memcpy(&v, (char *)&sim.cfg + spec_fields[i].offset, spec_fields[i].size);
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %#llx", (unsigned long long)v);
	}
	return text;
}

static void post(struct sim *s, unsigned node, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->qp_type.xrc.remote_srqn = SIM_SRQN;
	assert_int_equal(qp_post_send(&s->node[node].qp, wr, NULL), 0);
}

static void post_one(struct sim *s, enum ibv_wr_opcode opcode, uint64_t id, uint32_t offset,
		     uint32_t len, unsigned flags)
{
	struct ibv_sge sge = sim_sge(&s->node[0], offset, len);
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags
	};

	wr.imm_data = htobe32(0x1234);
	wr.wr.rdma.remote_addr = sim_va(&s->node[1], offset);
	wr.wr.rdma.rkey = s->node[1].mr.key;
	post(s, 0, &wr);
}

static void post_atomic(struct sim *s, uint64_t id, uint32_t local, uint64_t add)
{
	struct ibv_sge sge = sim_sge(&s->node[0], local, 8);
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD
	};

	wr.wr.atomic.remote_addr = sim_va(&s->node[1], 0);
	wr.wr.atomic.rkey = s->node[1].mr.key;
	wr.wr.atomic.compare_add = add;
	post(s, 0, &wr);
}

static void post_recv(struct sim *s, unsigned node, uint64_t id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = sim_sge(&s->node[node], offset, len);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	sim_post_recv(&s->node[node], &wr);
}

static void expect_same(struct sim *s, uint32_t offset, uint32_t len)
{
	assert_memory_equal(s->node[0].memory + offset, s->node[1].memory + offset, len);
}

/* n successful completions with wr_id 0 ... n-1, in order, and no other. */
static void expect_wcs(const struct ibv_wc *wc, unsigned got, unsigned n)
{
	assert_int_equal(got, n);
	for (unsigned i = 0; i < n; i++) {
		if (wc[i].status)
			fail_msg("%s: work request %u: %s", describe(), i,
				 ibv_wc_status_str(wc[i].status));
		assert_int_equal(wc[i].wr_id, i);
	}
}

static void expect_sent(struct sim *s, unsigned n)
{
	expect_wcs(s->node[0].send_wc, s->node[0].n_send_wc, n);
}

static const uint32_t edge_sizes[] = { 0, 1, 33, MTU - 1, MTU, MTU + 1, 2 * MTU, 5 * MTU + 3 };

static void post_sends(struct sim *s)
{
	for (unsigned i = 0; i < ARRAY_LEN(edge_sizes); i++) {
		post_recv(s, 1, i, i * 4096, 4096);
		post_one(s, IBV_WR_SEND, i, i * 4096, edge_sizes[i], 0);
	}
}

static void check_sends(struct sim *s)
{
	expect_sent(s, ARRAY_LEN(edge_sizes));
	expect_wcs(s->node[1].recv_wc, s->node[1].n_recv_wc, ARRAY_LEN(edge_sizes));
	for (unsigned i = 0; i < ARRAY_LEN(edge_sizes); i++) {
		assert_int_equal(s->node[1].recv_wc[i].byte_len, edge_sizes[i]);
		expect_same(s, i * 4096, edge_sizes[i]);
	}
}

static void post_writes(struct sim *s)
{
	for (unsigned i = 0; i < ARRAY_LEN(edge_sizes); i++)
		post_one(s, IBV_WR_RDMA_WRITE, i, i * 4096, edge_sizes[i], 0);
}

static void check_writes(struct sim *s)
{
	expect_sent(s, ARRAY_LEN(edge_sizes));
	assert_int_equal(s->node[1].n_recv_wc, 0);
	for (unsigned i = 0; i < ARRAY_LEN(edge_sizes); i++)
		expect_same(s, i * 4096, edge_sizes[i]);
}

static void post_write_imm(struct sim *s)
{
	for (unsigned i = 0; i < 3; i++) {
		post_recv(s, 1, i, 0, 0);
		post_one(s, IBV_WR_RDMA_WRITE_WITH_IMM, i, i * 4096, i * 300, 0);
	}
}

static void check_write_imm(struct sim *s)
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

static void post_reads(struct sim *s)
{
	for (unsigned i = 0; i < ARRAY_LEN(edge_sizes); i++)
		post_one(s, IBV_WR_RDMA_READ, i, i * 4096, edge_sizes[i], 0);
}

static void post_long_read(struct sim *s)
{
	post_one(s, IBV_WR_RDMA_READ, 0, 0, 300 * MTU, 0);
	post_one(s, IBV_WR_SEND, 1, 96 << 10, 10, 0);
	post_recv(s, 1, 0, 96 << 10, 4096);
}

static void check_long_read(struct sim *s)
{
	expect_sent(s, 2);
	expect_same(s, 0, 300 * MTU);
	expect_same(s, 96 << 10, 10);
}

static void post_atomics(struct sim *s)
{
	memset(s->node[1].memory, 0, 8);
	for (unsigned i = 0; i < 6; i++)
		post_atomic(s, i, 64 + i * 8, 1u << i);
}

static void check_atomics(struct sim *s)
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

/* READ, WRITE, SEND, atomic, in one queue. */
static void post_mixed(struct sim *s)
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

static void check_mixed(struct sim *s)
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
static void post_fence(struct sim *s)
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
	post(s, 0, &wr);
}

static void check_fence(struct sim *s)
{
	expect_sent(s, 2);
	assert_memory_equal(s->node[1].memory + 8192, s->node[1].memory, 600);
}

static void post_gather(struct sim *s)
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
	post(s, 0, &wr);
}

static void check_gather(struct sim *s)
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

static void post_inline(struct sim *s)
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
	post(s, 0, &wr);
	/* Inline data belongs to the program again as soon as post returns. */
	memset(text, 0, sizeof(text));
}

static void check_inline(struct sim *s)
{
	expect_sent(s, 1);
	expect_same(s, 4096, 100);
}

/* No receive posted at first: RNR, until node 1 posts one at its first event. */
static void post_rnr(struct sim *s)
{
	post_one(s, IBV_WR_SEND, 0, 4096, 700, 0);
	post_one(s, IBV_WR_SEND, 1, 8192, 10, 0);
	assert_false(sim_run(s, 5 * NS_PER_MS) && s->node[0].n_send_wc);
	post_recv(s, 1, 0, 4096, 4096);
	post_recv(s, 1, 1, 8192, 4096);
}

static void check_rnr(struct sim *s)
{
	expect_sent(s, 2);
	expect_wcs(s->node[1].recv_wc, s->node[1].n_recv_wc, 2);
	expect_same(s, 4096, 700);
	expect_same(s, 8192, 10);
}

/* ATOMIC WRITEs with FETCH ADDs between them: one that was executed twice would show. */
static void post_atomic_writes(struct sim *s)
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
		post(s, 0, &wr);
		post_atomic(s, 2 * i + 1, 64 + i * 8, 1);
	}
}

static void check_atomic_writes(struct sim *s)
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

static uint32_t make_window(struct sim_node *n, unsigned i)
{
	n->windows[i] = (struct mr){ .pd = n, .home = n, .window = IBV_MW_TYPE_2 };
	assert_int_equal(mem_add(&n->mem, &n->windows[i]), 0);
	return n->windows[i].key;
}

static uint32_t bind_window(struct sim_node *n, unsigned i, uint32_t tag)
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

	assert_int_equal(mem_bind(&n->mem, n, &n->qp, &bind), MEM_OK);
	return bind.new_key;
}

/* WRITE through a window of node 1's, then a SEND that closes it. */
static void post_invalidating_sends(struct sim *s)
{
	for (unsigned i = 0; i < SIM_WINDOWS; i++) {
		uint32_t key = bind_window(&s->node[1], i, i + 1);
		struct ibv_sge sge = sim_sge(&s->node[0], i * 4096, 600);
		struct ibv_send_wr wr = {
			.wr_id = 2 * i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE
		};

		wr.wr.rdma.remote_addr = sim_va(&s->node[1], i * 4096);
		wr.wr.rdma.rkey = key;
		post(s, 0, &wr);
		wr.wr_id++;
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = key;
		sge.length = i * 300;
		post_recv(s, 1, i, 65536, 4096);
		post(s, 0, &wr);
	}
}

static void check_invalidating_sends(struct sim *s)
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
static void post_locals(struct sim *s)
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
	post(s, 0, &inv);
	post_one(s, IBV_WR_RDMA_WRITE, 2, 8192, 700, 0);
	post(s, 0, &bind);
	inv.wr_id = 4;
	inv.invalidate_rkey = bind.bind_mw.rkey;
	post(s, 0, &inv);
	post_one(s, IBV_WR_RDMA_WRITE, 5, 12288, 1, 0);
}

static void check_locals(struct sim *s)
{
	expect_sent(s, 6);
	assert_int_equal(s->node[0].send_wc[1].opcode, IBV_WC_LOCAL_INV);
	assert_int_equal(s->node[0].send_wc[3].opcode, IBV_WC_BIND_MW);
	assert_null(s->node[0].windows[0].region);
	expect_same(s, 4096, 700);
	expect_same(s, 8192, 700);
	expect_same(s, 12288, 1);
}

static void post_both(struct sim *s)
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
		post(s, 1, &wr);
	}
}

static void check_both(struct sim *s)
{
	check_writes(s);
	expect_wcs(s->node[1].send_wc, s->node[1].n_send_wc, 4);
	for (unsigned i = 0; i < 4; i++)
		expect_same(s, 65536 + i * 4096, 700);
}

/* Compare and swap, each on what the one before has left: one that ran twice would fail the next. */
static void post_swaps(struct sim *s)
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
		post(s, 0, &wr);
	}
}

static void check_swaps(struct sim *s)
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

/* UC: every message that is told of is one that was sent, whole; what was lost is lost. A network
 * that changes the order changes that of the messages. */
static void check_uc(struct sim *s)
{
	const struct sim_node *n = &s->node[1];

	expect_sent(s, ARRAY_LEN(edge_sizes));
	for (unsigned i = 0; i < n->n_recv_wc; i++) {
		unsigned m = 0;

		assert_int_equal(n->recv_wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(n->recv_wc[i].wr_id, i);
		while (m < ARRAY_LEN(edge_sizes) &&
		       (edge_sizes[m] != n->recv_wc[i].byte_len ||
			memcmp(n->memory + i * 4096, s->node[0].memory + m * 4096, edge_sizes[m]) !=
				0))
			m++;
		if (m == ARRAY_LEN(edge_sizes))
			fail_msg("%s: receive %u is no message that was sent", describe(), i);
	}
}

static void post_uc_writes(struct sim *s)
{
	for (unsigned i = 0; i < ARRAY_LEN(edge_sizes); i++) {
		post_recv(s, 1, i, 0, 0);
		post_one(s, IBV_WR_RDMA_WRITE_WITH_IMM, i, i * 4096, edge_sizes[i], 0);
	}
}

static void check_uc_writes(struct sim *s)
{
	const struct sim_node *n = &s->node[1];

	expect_sent(s, ARRAY_LEN(edge_sizes));
	for (unsigned i = 0; i < n->n_recv_wc; i++) {
		unsigned m = 0;

		assert_int_equal(n->recv_wc[i].wr_id, i);
		while (m < ARRAY_LEN(edge_sizes) && edge_sizes[m] != n->recv_wc[i].byte_len)
			m++;
		assert_true(m < ARRAY_LEN(edge_sizes));
		expect_same(s, m * 4096, edge_sizes[m]);
	}
}

/* UD: a message is one packet, and lies behind the 40 bytes of a GRH. */
static const uint32_t ud_sizes[] = { 0, 1, 33, MTU - 1, MTU, MTU + 1, 4095, 4096 };

static void post_uds(struct sim *s)
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
		wr.wr.ud.remote_qpn = s->node[1].qp.qpn;
		wr.wr.ud.remote_qkey = 0x11111111;
		post_recv(s, 1, i, i * 8192, 8192);
		assert_int_equal(qp_post_send(&s->node[0].qp, &wr, &path), 0);
	}
}

/* Whatever is told of is whole and what its immediate value says. */
static void check_uds(struct sim *s)
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

static const struct scenario scenarios[] = {
	{ "send", IBV_QPT_RC, post_sends, check_sends, false },
	{ "write", IBV_QPT_RC, post_writes, check_writes, false },
	{ "write-imm", IBV_QPT_RC, post_write_imm, check_write_imm, false },
	{ "read", IBV_QPT_RC, post_reads, check_writes, false },
	{ "long-read", IBV_QPT_RC, post_long_read, check_long_read, false },
	{ "atomics", IBV_QPT_RC, post_atomics, check_atomics, false },
	{ "mixed", IBV_QPT_RC, post_mixed, check_mixed, false },
	{ "fence", IBV_QPT_RC, post_fence, check_fence, false },
	{ "gather", IBV_QPT_RC, post_gather, check_gather, false },
	{ "inline", IBV_QPT_RC, post_inline, check_inline, false },
	{ "rnr", IBV_QPT_RC, post_rnr, check_rnr, false },
	{ "both", IBV_QPT_RC, post_both, check_both, false },
	{ "atomic-write", IBV_QPT_RC, post_atomic_writes, check_atomic_writes, false },
	{ "send-invalidate", IBV_QPT_RC, post_invalidating_sends, check_invalidating_sends, false },
	{ "locals", IBV_QPT_RC, post_locals, check_locals, false },
	{ "swaps", IBV_QPT_RC, post_swaps, check_swaps, false },
	{ "uc-send", IBV_QPT_UC, post_sends, check_uc, false },
	{ "uc-write-imm", IBV_QPT_UC, post_uc_writes, check_uc_writes, false },
	{ "ud", IBV_QPT_UD, post_uds, check_uds, false },
	{ "srq-send", IBV_QPT_RC, post_sends, check_sends, true },
	{ "srq-write-imm", IBV_QPT_RC, post_write_imm, check_write_imm, true },
	{ "srq-rnr", IBV_QPT_RC, post_rnr, check_rnr, true },
	{ "srq-uc-send", IBV_QPT_UC, post_sends, check_uc, true },
	/* The same over XRC, where node 1 only answers. */
	{ "xrc-send", IBV_QPT_XRC_SEND, post_sends, check_sends, false },
	{ "xrc-write", IBV_QPT_XRC_SEND, post_writes, check_writes, false },
	{ "xrc-write-imm", IBV_QPT_XRC_SEND, post_write_imm, check_write_imm, false },
	{ "xrc-read", IBV_QPT_XRC_SEND, post_reads, check_writes, false },
	{ "xrc-long-read", IBV_QPT_XRC_SEND, post_long_read, check_long_read, false },
	{ "xrc-atomics", IBV_QPT_XRC_SEND, post_atomics, check_atomics, false },
	{ "xrc-mixed", IBV_QPT_XRC_SEND, post_mixed, check_mixed, false },
	{ "xrc-rnr", IBV_QPT_XRC_SEND, post_rnr, check_rnr, false },
};

static void run_one(const struct scenario *sc, const struct sim_config *cfg)
{
	struct sim_config own = *cfg;

	own.type = sc->type;
	own.srq = sc->srq;
	sim_start(&sim, &own);
	if (pcap)
		sim.pcap = sim_pcap_open(pcap);
	context = sc->name;
	under_way = true;
	sc->post(&sim);
	if (!sim_run(&sim, LIMIT_NS))
		fail_msg("%s: doesn't come to rest", describe());
	sc->check(&sim);
	if (sim.pcap)
		fclose(sim.pcap);
	sim_end(&sim);
	under_way = false;
}

/* After a test that failed within a run: the command that repeats just that one, and its packets,
 * which the command itself writes. */
static int explain_failure(void **state)
{
	char command[800];

	(void)state;
	if (!under_way || pcap)
		return 0;
	under_way = false;
	snprintf(command, sizeof(command), "%s --run %s sim-failure.pcap", program, describe());
	print_error("to repeat the run: %s\n", command);
	strcat(command, " >/dev/null 2>&1");
	if (system(command) != 0)
		print_error("its packets: sim-failure.pcap\n");
	return 0;
}

/* Without loss nothing is sent twice (where receives are there in time) and nobody waits for a
 * timer. */
static void run_clean(const struct scenario *sc, const struct sim_config *cfg)
{
	run_one(sc, cfg);
	for (unsigned i = 0; i < 2; i++) {
		const struct qp_counters *c = &sim.node[i].qp.counters;

		assert_int_equal(c->timeouts, 0);
		if (sc->post != post_rnr && qp_is_reliable(&sim.node[i].qp))
			assert_int_equal(c->retransmitted + c->duplicates + c->naks_sent, 0);
		if (!qp_is_reliable(&sim.node[i].qp))
			assert_int_equal(sim.node[1].n_recv_wc, sim.node[0].n_send_wc);
	}
}

static void test_clean(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(scenarios); i++) {
		struct sim_config cfg = sim_defaults;

		run_clean(&scenarios[i], &cfg);
		cfg.mtu = IBV_MTU_4096;
		run_clean(&scenarios[i], &cfg);
	}
}

static void test_masks(void **state)
{
	static const uint32_t psns[] = { 0x1000, 0xfffffe };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(scenarios) * 2; i++) {
		/* XRC differs in what is looked up, not in how it recovers. */
		if (scenarios[i / 2].type == IBV_QPT_XRC_SEND && !(i & 1))
			continue;
		for (unsigned m = 0; m < 2u << mask_bits; m++) {
			struct sim_config cfg = sim_defaults;

			cfg.psn = psns[i & 1];
			cfg.drop_mask[m & 1] = m >> 1;
			run_one(&scenarios[i / 2], &cfg);
		}
	}
}

static void test_random(void **state)
{
	static const struct sim_config kinds[] = {
		{ .loss = 1000 },
		{ .loss = 10000 },
		{ .loss = 100000 },
		{ .reorder = 200000 },
		{ .duplicate = 200000 },
		{ .corrupt = 50000 },
		{ .replay = 300000 },
		{ .replay = 200000, .loss = 50000, .reorder = 50000 },
		{ .loss = 20000, .reorder = 50000, .duplicate = 50000, .corrupt = 10000 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(scenarios) * ARRAY_LEN(kinds); i++) {
		for (uint64_t seed = 1; seed <= seeds; seed++) {
			struct sim_config cfg = sim_defaults;
			const struct sim_config *kind = &kinds[i % ARRAY_LEN(kinds)];

			cfg.seed = seed;
			cfg.loss = kind->loss;
			cfg.reorder = kind->reorder;
			cfg.duplicate = kind->duplicate;
			cfg.corrupt = kind->corrupt;
			cfg.replay = kind->replay;
			run_one(&scenarios[i / ARRAY_LEN(kinds)], &cfg);
		}
	}
}

/*
 * Half of all packets are lost, and retries run out sometimes: then the requests before the one that
 * says so have succeeded, and those behind it are flushed.
 */
static void test_heavy_loss(void **state)
{
	unsigned good = 0, exhausted = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 4 * seeds; seed++) {
		struct sim_config cfg = sim_defaults;
		unsigned i = 0;

		cfg.loss = 500000;
		cfg.seed = seed;
		cfg.retry_cnt = seed % 8;
		sim_start(&sim, &cfg);
		post_writes(&sim);
		assert_true(sim_run(&sim, LIMIT_NS));
		assert_int_equal(sim.node[0].n_send_wc, ARRAY_LEN(edge_sizes));
		for (; i < ARRAY_LEN(edge_sizes) && !sim.node[0].send_wc[i].status; i++)
			expect_same(&sim, i * 4096, edge_sizes[i]);
		good += i == ARRAY_LEN(edge_sizes);
		if (i < ARRAY_LEN(edge_sizes)) {
			exhausted++;
			assert_int_equal(sim.node[0].send_wc[i++].status, IBV_WC_RETRY_EXC_ERR);
		}
		for (; i < ARRAY_LEN(edge_sizes); i++)
			assert_int_equal(sim.node[0].send_wc[i].status, IBV_WC_WR_FLUSH_ERR);
		sim_end(&sim);
	}
	assert_in_range(good, 1, 4 * seeds);
	assert_in_range(exhausted, 1, 4 * seeds);
}

/* 25 messages of 4 KiB: what the budgets below are for. */
static void post_bulk(struct sim *s)
{
	for (unsigned i = 0; i < 25; i++)
		post_one(s, IBV_WR_RDMA_WRITE, i, i * 4096, 4096, 0);
}

static void check_bulk(struct sim *s)
{
	expect_sent(s, 25);
	expect_same(s, 0, 25 * 4096);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/*
 * 100 KiB over 10 Gb/s and 20 us each way, by packet loss in both directions: virtual time until
 * the last completion. The limits are what it took when they were set, and a fifth: recovery that
 * becomes slower fails here.
 */
static void test_budgets(void **state)
{
	static const struct scenario bulk = { "bulk", IBV_QPT_RC, post_bulk, check_bulk, false };
	static const struct {
		uint32_t loss;
		uint64_t median_us, p90_us;
	} budgets[] = {
		{ 0, 150, 150 },       { 1000, 150, 150 },	   { 10000, 200, 310 },
		{ 50000, 750, 12600 }, { 200000, 116000, 530000 },
	};
	uint64_t took[50];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(budgets); i++) {
		for (uint64_t seed = 0; seed < ARRAY_LEN(took); seed++) {
			struct sim_config cfg = sim_defaults;

			cfg.mtu = IBV_MTU_1024;
			cfg.loss = budgets[i].loss;
			cfg.seed = seed;
			cfg.mbps = 10000;
			cfg.queue_bytes = 512 << 10;
			run_one(&bulk, &cfg);
			took[seed] = (sim.now_ns - NS_PER_SEC) / NS_PER_US;
		}
		qsort(took, ARRAY_LEN(took), sizeof(took[0]), compare_u64);
		print_message("loss %u ppm: median %llu us, p90 %llu us\n", budgets[i].loss,
			      (unsigned long long)took[25], (unsigned long long)took[45]);
		assert_in_range(took[25], 0, budgets[i].median_us);
		assert_in_range(took[45], 0, budgets[i].p90_us);
	}
}

/* One gap, many NAKs: going back for each of them used up all retries within 200 microseconds. */
static void test_nak_storm(void **state)
{
	(void)state;
	for (uint64_t seed = 200; seed < 300; seed++) {
		struct sim_config cfg = sim_defaults;

		cfg.reorder = 200000;
		cfg.seed = seed;
		run_one(&scenarios[0], &cfg);
		/* 15 packets of their own. */
		assert_in_range(sim.node[0].sent, 15, 300);
	}
	/* The same before any round trip could be measured, and for a second gap. */
	for (uint64_t seed = 550; seed < 650; seed++) {
		struct sim_config cfg = sim_defaults;

		cfg.reorder = 200000;
		cfg.seed = seed;
		run_one(&scenarios[8], &cfg);
		assert_string_equal(context, "gather");
	}
}

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
	assert_int_equal(sim.node[0].n_send_wc, ARRAY_LEN(edge_sizes));
	assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 1; i < ARRAY_LEN(edge_sizes); i++)
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
	assert_int_equal(sim.node[1].qp.counters.rnr_naks_sent, 4);
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
	assert_int_equal(sim.node[0].qp.counters.timeouts, 0);
	assert_in_range(sim.node[1].qp.counters.rnr_naks_sent, 9, 10);
	assert_in_range(sim.node[0].sent, 9, 10);
	post_recv(&sim, 1, 0, 0, 64);
	assert_true(sim_run(&sim, LIMIT_NS));
	expect_sent(&sim, 1);
	sim_end(&sim);
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
		post(&sim, 0, &wr);
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
	post(&sim, 0, &wr);
	assert_true(sim_run(&sim, LIMIT_NS));
	assert_int_equal(sim.node[0].n_send_wc, 2);
	assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(sim.node[0].send_wc[1].status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(atomic_load(&sim.node[0].qp.state), IBV_QPS_ERR);
	sim_end(&sim);
}

/* UC: a message with a gap is dropped whole, those before and after arrive. */
static void test_uc_drops_message(void **state)
{
	struct sim_config cfg = sim_defaults;

	(void)state;
	cfg.type = IBV_QPT_UC;
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
	cfg.type = IBV_QPT_UD;
	sim_start(&sim, &cfg);
	path.sgid.raw[10] = path.sgid.raw[11] = path.dgid.raw[10] = path.dgid.raw[11] = 0xff;
	path.sgid.raw[12] = path.dgid.raw[12] = 10;
	path.sgid.raw[15] = 1;
	path.dgid.raw[15] = 2;
	sge = sim_sge(&sim.node[0], 100, 77);
	wr.wr.ud.remote_qpn = sim.node[1].qp.qpn;
	wr.send_flags = IBV_SEND_SIGNALED;
	for (unsigned i = 0; i < 3; i++) {
		post_recv(&sim, 1, i, i * 4096, 40 + 77);
		/* Right, wrong, and the high bit: the sender's own Q_Key. */
		wr.wr.ud.remote_qkey = i == 0 ? 0x11111111 : i == 1 ? 0x22222222 : 0x80000000;
		assert_int_equal(qp_post_send(&sim.node[0].qp, &wr, &path), 0);
	}
	/* Two more: the second finds a receive that doesn't hold the 40 bytes of the GRH as well. */
	post_recv(&sim, 1, 3, 20480, 40 + 77 - 1);
	wr.wr.ud.remote_qkey = 0x11111111;
	assert_int_equal(qp_post_send(&sim.node[0].qp, &wr, &path), 0);
	assert_int_equal(qp_post_send(&sim.node[0].qp, &wr, &path), 0);
	assert_true(sim_run(&sim, LIMIT_NS));
	assert_int_equal(sim.drops[DROP_TOO_LONG], 1);
	assert_int_equal(sim.node[0].n_send_wc, 5);
	assert_int_equal(sim.drops[DROP_QKEY], 1);
	assert_int_equal(sim.node[1].n_recv_wc, 3);
	for (unsigned i = 0; i < 2; i++) {
		const struct ibv_wc *wc = &sim.node[1].recv_wc[i];
		const uint8_t *at = sim.node[1].memory + i * 4096;

		assert_int_equal(wc->byte_len, 117);
		assert_int_equal(wc->src_qp, sim.node[0].qp.qpn);
		assert_true(wc->wc_flags & IBV_WC_GRH);
		assert_int_equal(at[20], 0x45);
		assert_memory_equal(at + 32, path.sgid.raw + 12, 4);
		assert_memory_equal(at + 36, path.dgid.raw + 12, 4);
		assert_memory_equal(at + 40, sim.node[0].memory + 100, 77);
	}
	sim_end(&sim);
}

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
	assert_int_equal(sim.node[1].qp.counters.duplicates, 3);
	sim_end(&sim);
}

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

		cfg.type = IBV_QPT_XRC_SEND;
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
		assert_int_equal(qp_post_send(&sim.node[0].qp, &wr, NULL), 0);
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
	cfg.type = IBV_QPT_XRC_SEND;
	sim_start(&sim, &cfg);
	assert_int_equal(recv_queue_init(&second_srq, 4, 1, &sim.node[1]), 0);
	sim.node[1].qp.cfg.find_srq = find_either;
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

		cfg.type = IBV_QPT_XRC_SEND;
		sim_start(&sim, &cfg);
		post_recv(&sim, 1, 7, 0, 4096);
		first.payload = other.payload = data;
		first.payload_len = other.payload_len = MTU;
		assert_int_equal(sim_inject(&sim, 1, &first), DROP_NONE);
		if (forget)
			responder_forget_srq(&sim.node[1].qp, &sim.node[1].srq);
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
	cfg.type = IBV_QPT_XRC_SEND;
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
	assert_int_equal(atomic_load(&sim.node[0].qp.state), IBV_QPS_RTS);
	sim_end(&sim);
}

static int run_spec(int argc, char **argv)
{
	struct sim_config cfg = sim_defaults;

	for (size_t i = 0; i < ARRAY_LEN(spec_fields) && 3 + (int)i < argc; i++) {
		uint64_t v = strtoull(argv[3 + i], NULL, 0);

		memcpy((char *)&cfg + spec_fields[i].offset, &v, spec_fields[i].size);
	}
	if (argc > 3 + (int)ARRAY_LEN(spec_fields))
		pcap = argv[argc - 1];
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	for (size_t i = 0; i < ARRAY_LEN(scenarios); i++) {
		if (strcmp(scenarios[i].name, argv[2]) != 0)
			continue;
		run_one(&scenarios[i], &cfg);
		printf("%s: good\n", describe());
		return 0;
	}
	fprintf(stderr, "test_sim: no scenario %s\n", argv[2]);
	return 2;
}

/* test_sim; test_sim --soak: all masks of 12 packets, thousands of seeds; test_sim --run SPEC. */
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
		assert_int_equal(sim.node[1].qp.counters.naks_sent, 1);
		sim_end(&sim);
	}
}

/* More READs at once than max_dest_rd_atomic are refused. */
static void test_read_depth(void **state)
{
	struct packet p = { .opcode = 0x0c, .dma_len = 8, .mig_req = true, .pkey = 0xffff };
	struct sim_config cfg = sim_defaults;
	struct qp *qp = &sim.node[1].qp;
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
		assert_int_equal(qp_post_send(&sim.node[0].qp, &send, NULL), 0);
		assert_int_equal(qp_post_recv(&sim.node[0].qp, &recv), 0);
	}
	assert_int_equal(qp_post_send(&sim.node[0].qp, &send, NULL), ENOMEM);
	assert_int_equal(qp_post_recv(&sim.node[0].qp, &recv), ENOMEM);
	sim_end(&sim);
}

int main(int argc, char **argv)
{
	program = argv[0];
	if (argc >= 3 && strcmp(argv[1], "--run") == 0)
		return run_spec(argc, argv);
	if (argc == 2 && strcmp(argv[1], "--soak") == 0) {
		mask_bits = 12;
		seeds = 1000;
	}
	/* Hundreds of thousands of runs: don't give the memory back to the kernel in between. */
	mallopt(M_MMAP_THRESHOLD, 1 << 28);
	mallopt(M_TRIM_THRESHOLD, 1 << 28);

	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_clean, explain_failure),
		cmocka_unit_test_teardown(test_budgets, explain_failure),
		cmocka_unit_test_teardown(test_nak_storm, explain_failure),
		cmocka_unit_test(test_black_hole),
		cmocka_unit_test(test_rnr_exhausted),
		cmocka_unit_test(test_rnr_pause_is_no_timeout),
		cmocka_unit_test(test_remote_errors),
		cmocka_unit_test(test_receive_too_short),
		cmocka_unit_test(test_local_key),
		cmocka_unit_test(test_uc_drops_message),
		cmocka_unit_test(test_ud),
		cmocka_unit_test(test_duplicate_atomic),
		cmocka_unit_test(test_forged_acks),
		cmocka_unit_test(test_wrong_response_length),
		cmocka_unit_test(test_short_first_packet),
		cmocka_unit_test(test_read_depth),
		cmocka_unit_test(test_full_queues),
		cmocka_unit_test(test_xrc_unknown_srq),
		cmocka_unit_test(test_xrc_message_in_progress),
		cmocka_unit_test(test_xrc_message_changes_srq),
		cmocka_unit_test(test_xrc_halves),
		cmocka_unit_test(test_heavy_loss),
		cmocka_unit_test_teardown(test_random, explain_failure),
		cmocka_unit_test_teardown(test_masks, explain_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
