// SPDX-License-Identifier: BSD-2-Clause
/*
 * Verified data: every byte that arrives is compared with what its sequence number says it must be,
 * so that loss, reordering and duplicates can't hide. Layout of the region, at both ends:
 *
 *   0 ..  64 Ki   what is sent (requester); receive slots of SLOT bytes (responder)
 *   64 Ki ..      where WRITEs land (responder) and READs bring it back to (requester)
 *   last 16       the counter of the atomics (responder), their results (requester)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

enum {
	SLOT = 8192,
	SLOTS = (REGION / 2) / SLOT,
	LANDING = REGION / 2,
	COUNTER = REGION - 16,
	FETCHED = REGION - 8,
	PER_SIZE = 5, /* work requests of one step */
	BATCH = SLOTS,
	GRH = 40,
};

static const uint32_t sizes[] = { 0, 1, 33, 1023, 1024, 1025, 4096, 5001, 8192, 60000 };
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static uint8_t pattern(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8) * 13 + 1);
}

static void fill(uint8_t *at, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		at[i] = pattern(seed, i);
}

static void check(const uint8_t *at, uint32_t len, uint32_t seed, const char *what)
{
	for (uint32_t i = 0; i < len; i++) {
		if (at[i] != pattern(seed, i)) {
			printf("corrupt=%s seed=%u len=%u at=%u\n", what, seed, len, i);
			exit(1);
		}
	}
}

static void expect(bool right, const char *what, unsigned long long got)
{
	if (!right) {
		printf("corrupt=%s got=%llu\n", what, got);
		exit(1);
	}
}

static uint32_t send_size(uint32_t seed)
{
	uint32_t size = sizes[(seed - 1) % N_SIZES];

	return size < SLOT ? size : SLOT;
}

void data_prepare_rc(struct end *e)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		post_receive(e, i, i * SLOT, SLOT);
}

/* Two SENDs arrive for each step: the second one with immediate data, its step's number. */
void data_serve_rc(struct end *e)
{
	uint32_t steps = e->rounds * N_SIZES;
	struct ibv_wc wc;

	for (uint32_t n = 0; n < 2 * steps; n++) {
		uint32_t seed = n / 2 + 1;

		expect(next_wc(e, &wc, POLL_MS), "receive_missing", n);
		expect(wc.status == IBV_WC_SUCCESS, "receive_status", wc.status);
		expect(wc.byte_len == send_size(seed), "receive_length", wc.byte_len);
		expect(wc.wr_id == n % SLOTS, "receive_order", wc.wr_id);
		expect(!!(wc.wc_flags & IBV_WC_WITH_IMM) == n % 2, "immediate_flag", wc.wc_flags);
		expect(n % 2 == 0 || wc.imm_data == seed, "immediate", wc.imm_data);
		check(e->buf + wc.wr_id * SLOT, wc.byte_len, seed, "SEND");
		post_receive(e, wc.wr_id, wc.wr_id * SLOT, SLOT);
	}
	printf("received=%u\n", 2 * steps);
}

static void post_fetch_add(struct end *e, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + FETCHED, 8, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.atomic.remote_addr = e->peer.va + COUNTER;
	wr.wr.atomic.rkey = e->peer.rkey;
	wr.wr.atomic.compare_add = 3;
	post_wr(e, &wr);
}

static void step_rc(struct end *e, uint32_t seed)
{
	uint32_t len = sizes[(seed - 1) % N_SIZES];
	struct ibv_wc wc;
	uint64_t fetched;

	fill(e->buf, len, seed);
	memset(e->buf + LANDING, 0, 60000);
	post(e, 0, IBV_WR_SEND, 0, send_size(seed), 0);
	post(e, 1, IBV_WR_RDMA_WRITE, 0, len, LANDING);
	post(e, 2, IBV_WR_RDMA_READ, LANDING, len, LANDING);
	post_fetch_add(e, 3);
	/* The step's number is the immediate value, and wr_id of the last request. */
	post(e, seed, IBV_WR_SEND_WITH_IMM, 0, send_size(seed), 0);
	for (uint32_t i = 0; i < PER_SIZE; i++) {
		expect(next_wc(e, &wc, POLL_MS), "completion_missing", i);
		expect(wc.status == IBV_WC_SUCCESS, "completion_status", wc.status);
		expect(wc.wr_id == (i + 1 < PER_SIZE ? i : seed), "completion_order", wc.wr_id);
	}
	check(e->buf + LANDING, len, seed, "READ");
	memcpy(&fetched, e->buf + FETCHED, sizeof(fetched));
	expect(fetched == 3ull * (seed - 1), "fetch_add", fetched);
}

void data_act_rc(struct end *e)
{
	uint32_t steps = e->rounds * N_SIZES;

	for (uint32_t seed = 1; seed <= steps; seed++)
		step_rc(e, seed);
	printf("completed=%u\n", steps * PER_SIZE);
}

/* Datagrams carry their seed in front: those that arrive must be whole, in whatever number. */
static uint32_t datagram_size(struct end *e, uint32_t seed)
{
	static const uint32_t lengths[] = { 4, 33, 256, 1000, 1900, 5001 };

	return lengths[seed % (e->ah ? 4 : 6)];
}

static uint32_t headroom(const struct end *e)
{
	return e->ah ? GRH : 0;
}

void data_prepare_datagram(struct end *e)
{
	data_prepare_rc(e);
}

static uint32_t take_batch(struct end *e)
{
	struct ibv_wc wc;
	uint32_t n = 0, seed;

	while (n < BATCH && next_wc(e, &wc, n ? QUIET_MS : 5 * QUIET_MS)) {
		const uint8_t *at = e->buf + wc.wr_id * SLOT + headroom(e);

		expect(wc.status == IBV_WC_SUCCESS, "receive_status", wc.status);
		memcpy(&seed, at, sizeof(seed));
		expect(wc.byte_len - headroom(e) == datagram_size(e, seed), "length", wc.byte_len);
		check(at + 4, datagram_size(e, seed) - 4, seed, "datagram");
		post_receive(e, wc.wr_id, wc.wr_id * SLOT, SLOT);
		n++;
	}
	return n;
}

void data_serve_datagram(struct end *e)
{
	uint32_t received = 0;

	for (uint32_t i = 0; i < e->rounds; i++) {
		received += take_batch(e);
		end_barrier(e);
	}
	printf("received=%u\n", received);
}

void data_act_datagram(struct end *e)
{
	struct ibv_wc wc;

	for (uint32_t i = 0; i < e->rounds; i++) {
		for (uint32_t seed = i * BATCH; seed < (i + 1) * BATCH; seed++) {
			memcpy(e->buf, &seed, sizeof(seed));
			fill(e->buf + 4, datagram_size(e, seed) - 4, seed);
			post(e, seed, IBV_WR_SEND, 0, datagram_size(e, seed), 0);
			expect(next_wc(e, &wc, POLL_MS), "completion_missing", seed);
			expect(wc.status == IBV_WC_SUCCESS, "completion_status", wc.status);
		}
		end_barrier(e);
	}
	printf("sent=%u\n", e->rounds * BATCH);
}
