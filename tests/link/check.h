/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of this directory share. */
#ifndef TESTS_LINK_CHECK_H
#define TESTS_LINK_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rocelink/rocelink.h"

/* A call that must succeed, and whose error is shown if it doesn't. */
#define assert_ok(call, err)                                                                       \
	do {                                                                                       \
		int rc_ = (call);                                                                  \
		if (rc_)                                                                           \
			fail_msg("%s: %s: %s", #call, rocelink_code_name((enum rocelink_code)rc_), \
				 (err).text);                                                      \
	} while (0)

#define assert_contains(text, part)                                          \
	do {                                                                 \
		if (!strstr((text), (part)))                                 \
			fail_msg("\"%s\" is not in \"%s\"", (part), (text)); \
	} while (0)

/* A small generator, so that a seed reproduces a case. */
struct rng {
	uint64_t s;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}

#endif
