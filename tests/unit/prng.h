/* SPDX-License-Identifier: BSD-2-Clause */
/* Deterministic pseudo-random numbers for tests (splitmix64): one seed, one sequence, no global
 * state. */
#ifndef ROCELINK_TESTS_PRNG_H
#define ROCELINK_TESTS_PRNG_H

#include <stddef.h>
#include <stdint.h>

struct prng {
	uint64_t state; /* the seed, any value */
};

static inline uint64_t prng_u64(struct prng *r)
{
	uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0 ... n-1; n > 0 and small against 2^64. */
static inline uint64_t prng_below(struct prng *r, uint64_t n)
{
	return prng_u64(r) % n;
}

static inline void prng_fill(struct prng *r, void *out, size_t len)
{
	uint8_t *b = out;

	for (size_t i = 0; i < len; i++)
		b[i] = (uint8_t)prng_u64(r);
}

#endif
