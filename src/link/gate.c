/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/gate.h"

#include "base/units.h"

void gate_init(struct gate *g, unsigned max_pending, unsigned max_per_host, unsigned max_rate,
	       uint64_t now)
{
	*g = (struct gate){
		.max_pending = max_pending,
		.max_per_host = max_per_host,
		.max_rate = max_rate,
		.tokens = max_rate,
		.at_ns = now,
	};
}

bool gate_admit(struct gate *g, unsigned pending, unsigned from_host, bool loopback, uint64_t now)
{
	g->tokens += (double)(now - g->at_ns) / (double)NS_PER_SEC * g->max_rate;
	g->at_ns = now;
	if (g->tokens > g->max_rate)
		g->tokens = g->max_rate;
	if (pending >= g->max_pending)
		return false;
	if (loopback)
		return true;
	if (from_host >= g->max_per_host || g->tokens < 1)
		return false;
	g->tokens -= 1;
	return true;
}
