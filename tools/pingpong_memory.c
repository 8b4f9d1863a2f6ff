/* SPDX-License-Identifier: BSD-2-Clause */
/* The slots that messages leave from and arrive in, and the bytes that --verify expects in them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/pingpong.h"

/*
 * The stock programs send 0x7b, and with -c 0 at the beginning of each page. ibv_srq_pingpong
 * begins with zeros, and all its queue pairs receive into the buffer that they send from.
 */
enum { STOCK_BYTE = 0x7b, STOCK_PAGE = 4096 };

static unsigned depth_for(uint32_t size)
{
	uint32_t fit = (UINT32_C(64) << 20) / size;

	return fit < 2 ? 2 : fit > PP_MAX_DEPTH ? PP_MAX_DEPTH : fit;
}

int pp_memory_make(struct pp *pp)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	pp->depth = depth_for(pp->plan.size);
	pp->stride = ((size_t)pp->plan.size + PP_GRH + 63) / 64 * 64;
	pp->buf_len = pp->stride * pp->depth * (1 + pp->qps);
	pp->buf =
		mmap(NULL, pp->buf_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pp->buf == MAP_FAILED) {
		pp->buf = NULL;
		return pp_fail(&pp->err, ROCELINK_SYSTEM, "%zu bytes of memory: %s", pp->buf_len,
			       strerror(errno));
	}
	pp->samples = calloc(pp->plan.iters, sizeof(*pp->samples));
	if (!pp->samples)
		return pp_fail(&pp->err, ROCELINK_SYSTEM, "out of memory");
	pp->mr = ibv_reg_mr(pp->ep[0]->pd, pp->buf, pp->buf_len, access);
	if (!pp->mr)
		return pp_fail(&pp->err, ROCELINK_VERBS, "ibv_reg_mr of %zu bytes: %s", pp->buf_len,
			       strerror(errno));
	return ROCELINK_OK;
}

uint8_t *pp_send_slot(const struct pp *pp, uint64_t seq)
{
	return pp->buf + seq % pp->depth * pp->stride;
}

uint8_t *pp_recv_slot(const struct pp *pp, unsigned qp, uint64_t seq)
{
	return pp->buf + ((1 + (size_t)qp) * pp->depth + seq % pp->depth) * pp->stride;
}

/* Another one than of the last message in this slot, and not the 0 of fresh memory. */
uint8_t pp_flag(const struct pp *pp, uint64_t seq)
{
	return (uint8_t)(seq / pp->depth % 255 + 1);
}

uint64_t pp_remote_slot(const struct pp *pp, uint64_t seq)
{
	return pp->remote.addr + (pp->depth + seq % pp->depth) * pp->stride;
}

/* splitmix64: each 8 bytes differ from their neighbours and from those of every other message. */
static uint64_t pattern(uint64_t seq, bool from_client, size_t word)
{
	uint64_t z = (seq << 1 | from_client) * UINT64_C(0xd1342543de82ef95) +
		     (word + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Always the same: not written again while an earlier message may still be read from there. */
static void fill_stock(uint8_t *at, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t byte = i % STOCK_PAGE ? STOCK_BYTE : 0;

		if (at[i] != byte)
			at[i] = byte;
	}
}

void pp_fill(const struct pp *pp, uint8_t *at, uint64_t seq, bool from_client)
{
	size_t len = pp->plan.size;

	if (pp->o->compat) {
		fill_stock(at, len);
		return;
	}
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern(seq, from_client, i / 8);

		memcpy(at + i, &word, len - i < 8 ? len - i : 8);
	}
}

static int wrong(struct pp *pp, uint64_t seq, size_t offset, uint8_t is, uint8_t expected)
{
	return pp_fail(&pp->err, ROCELINK_PROTOCOL,
		       "verify: message %llu is wrong at byte %zu of %u: 0x%02x instead of 0x%02x",
		       (unsigned long long)seq, offset, pp->plan.size, is, expected);
}

static int check_stock(struct pp *pp, const uint8_t *at, uint64_t seq)
{
	for (size_t i = 0; i < pp->plan.size; i++)
		if (at[i] != STOCK_BYTE &&
		    (at[i] || (i % STOCK_PAGE && pp->o->compat != PP_IBV_SRQ)))
			return wrong(pp, seq, i, at[i], STOCK_BYTE);
	pp->verified++;
	return ROCELINK_OK;
}

int pp_check(struct pp *pp, const uint8_t *at, uint64_t seq, bool from_client)
{
	size_t len = pp->plan.size;
	/* A polled WRITE ends with its flag, which was checked by waiting for it. */
	bool flagged = pp->plan.op == PP_WRITE && !pp->plan.immediate;

	if (!pp->plan.verify)
		return ROCELINK_OK;
	if (pp->o->compat)
		return check_stock(pp, at, seq);
	len -= flagged;
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern(seq, from_client, i / 8);
		uint8_t expected[8];

		memcpy(expected, &word, 8);
		for (size_t j = i; j < len && j < i + 8; j++)
			if (at[j] != expected[j - i])
				return wrong(pp, seq, j, at[j], expected[j - i]);
	}
	pp->verified++;
	return ROCELINK_OK;
}
