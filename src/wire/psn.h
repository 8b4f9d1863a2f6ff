/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packet sequence numbers: 24 bits, compared on the circle (IBA 9.7.1). A PSN is wrapped in a
 * struct so that a bare '<' doesn't compile.
 */
#ifndef ROCELINK_WIRE_PSN_H
#define ROCELINK_WIRE_PSN_H

#include <stdbool.h>
#include <stdint.h>

#define PSN_MASK 0xffffffu

struct psn {
	uint32_t v; /* 0 ... 0xffffff */
};

static inline struct psn psn_make(uint32_t v)
{
	return (struct psn){ v & PSN_MASK };
}

static inline struct psn psn_add(struct psn p, uint32_t n)
{
	return psn_make(p.v + n);
}

static inline struct psn psn_sub(struct psn p, uint32_t n)
{
	return psn_make(p.v - n);
}

/* a - b as a signed distance in -2^23 ... 2^23-1: negative when a comes before b. */
static inline int32_t psn_diff(struct psn a, struct psn b)
{
	return (int32_t)((a.v - b.v) << 8) >> 8;
}

static inline bool psn_eq(struct psn a, struct psn b)
{
	return a.v == b.v;
}

#endif
