/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many strangers a listener puts up with: in all, from one host, and new ones per second (a
 * token bucket that holds one second's worth). Pure.
 */
#ifndef ROCELINK_LINK_GATE_H
#define ROCELINK_LINK_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct gate {
	unsigned max_pending, max_per_host, max_rate;
	double tokens;
	uint64_t at_ns;
};

void gate_init(struct gate *g, unsigned max_pending, unsigned max_per_host, unsigned max_rate,
	       uint64_t now);

/* May one more come in? `pending` in all and `from_host` of its address are there already. Programs of
 * this host are limited in all only. */
bool gate_admit(struct gate *g, unsigned pending, unsigned from_host, bool loopback, uint64_t now);

#endif
