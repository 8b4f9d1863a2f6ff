/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A day in the life of a connection: 24 hours of virtual time, requests at random moments, a network that
 * loses, reorders and duplicates. An oracle knows what each must do; nothing may pile up.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim.h"

#define DAY_NS	 (24 * 3600 * NS_PER_SEC)
#define PAUSE_NS (20 * NS_PER_SEC) /* between requests, at most */
#define LONGEST	 6000u

static struct sim sim; /* large */

struct oracle {
	uint64_t counter; /* what node 1's first 8 bytes hold */
	uint64_t requests, sends;
};

static void refill(uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)sim_random(&sim);
}

/* One request, to its end; its effect is what it must be, and it alone. */
static void one_request(struct oracle *o)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	const enum ibv_wr_opcode opcode = opcodes[sim_random(&sim) % ARRAY_LEN(opcodes)];
	const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	const uint32_t len = atomic ? 8 : (uint32_t)(sim_random(&sim) % LONGEST);
	const uint32_t at = 4096;
	struct ibv_sge sge = sim_sge(&sim.node[0], at, len);
	struct ibv_send_wr wr = { .wr_id = o->requests++,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_sge to = sim_sge(&sim.node[1], at, LONGEST);
	struct ibv_recv_wr recv = { .wr_id = wr.wr_id, .sg_list = &to, .num_sge = 1 };
	const bool is_send = opcode == IBV_WR_SEND;

	sim.node[0].n_send_wc = sim.node[1].n_recv_wc = 0;
	refill(sim.node[0].memory + at, len);
	refill(sim.node[1].memory + at, len);
	if (atomic) {
		wr.wr.atomic.remote_addr = sim_va(&sim.node[1], 0);
		wr.wr.atomic.rkey = sim.node[1].mr.key;
		wr.wr.atomic.compare_add = 3;
	} else {
		wr.wr.rdma.remote_addr = sim_va(&sim.node[1], at);
		wr.wr.rdma.rkey = sim.node[1].mr.key;
	}
	if (is_send)
		sim_post_recv(&sim.node[1], &recv);
	assert_int_equal(qp_post_send(&sim.node[0].qp[0], &wr, NULL), 0);
	assert_true(sim_run(&sim, 3600 * NS_PER_SEC)); /* at rest: no timer is armed */
	assert_int_equal(sim.node[0].n_send_wc, 1);
	assert_int_equal(sim.node[0].send_wc[0].status, IBV_WC_SUCCESS);
	assert_int_equal(sim.node[0].send_wc[0].wr_id, wr.wr_id);
	assert_int_equal(sim.node[1].n_recv_wc, is_send);
	if (atomic) {
		assert_memory_equal(sim.node[0].memory + at, &o->counter, 8);
		o->counter += 3;
	} else {
		assert_memory_equal(sim.node[0].memory + at, sim.node[1].memory + at, len);
	}
	assert_memory_equal(sim.node[1].memory, &o->counter, 8);
}

static void test_day(void **state)
{
	struct sim_config cfg = sim_defaults;
	struct oracle o = { 0 };
	uint64_t end;
	size_t in_use = 0;

	(void)state;
	cfg.psn = 0xffff00; /* it wraps within the first minutes */
	cfg.loss = 10000;
	cfg.reorder = 10000;
	cfg.duplicate = 10000;
	sim_start(&sim, &cfg);
	memset(sim.node[1].memory, 0, 8);
	end = sim.now_ns + DAY_NS;
	while (sim.now_ns < end) {
		one_request(&o);
		sim.now_ns += sim_random(&sim) % PAUSE_NS;
		/* All packets are gone: what is allocated now is what a connection holds. */
		if (!in_use)
			in_use = mallinfo2().uordblks;
		assert_int_equal(mallinfo2().uordblks, in_use);
	}
	print_message("24 hours, %llu requests, %llu packets\n", (unsigned long long)o.requests,
		      (unsigned long long)(sim.node[0].sent + sim.node[1].sent));
	assert_in_range(o.requests, 5000, 20000);
	sim_end(&sim);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_day) };

	/* What a thread's cache of freed memory holds counts as in use: none, please. */
	if (argc == 1 && !getenv("GLIBC_TUNABLES")) {
		setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
		execv("/proc/self/exe", argv);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
