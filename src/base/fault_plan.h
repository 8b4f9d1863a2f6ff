/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What faults to inject: the value of ROCELINK_FAULT and of `rocelink run --fault`, as text such as
 * "loss=1%,in.delay=2ms,seed=42" and as numbers. The injector (net/fault.h) carries it out.
 */
#ifndef ROCELINK_BASE_FAULT_PLAN_H
#define ROCELINK_BASE_FAULT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_direction { FAULT_OUT, FAULT_IN, FAULT_DIRECTIONS };

#define FAULT_ALWAYS (UINT64_C(1) << 32) /* a chance is a share of this */

struct fault_rates {
	uint64_t loss, reorder, dup, corrupt; /* a packet's chances */
	uint64_t delay_ns;		      /* of every packet */
};

struct fault_plan {
	bool active; /* there is something to do */
	uint64_t seed;
	struct fault_rates rates[FAULT_DIRECTIONS];
	uint64_t rnr;	       /* chance of an RC message to find no receive posted */
	uint64_t cq_overrun;   /* after this many completions of the process; 0: never */
	uint64_t qp_error;     /* after this many packets received by the process; 0: never */
	uint64_t device_fatal; /* the same, for all its queue pairs and devices */
	uint64_t link_down_at_ns, link_down_for_ns; /* since the adapter started; for 0: never */
};

/* 0, or -EINVAL with a sentence that names what is wrong and what would be right. */
int fault_plan_parse(struct fault_plan *plan, const char *text, char *error, size_t error_len);

#endif
