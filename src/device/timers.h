/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Deadlines of queue pairs: a binary heap. Lazy: a deadline that moves later (each ACK does that)
 * stays where it is; when its old time comes it is found to be early and put back.
 */
#ifndef ROCELINK_DEVICE_TIMERS_H
#define ROCELINK_DEVICE_TIMERS_H

#include <stdint.h>

#include "device/engine.h"

struct timers {
	struct engine_qp **heap;
	uint32_t n, capacity;
};

/* Room for one more queue pair, so that timers_set() can't fail. 0 or -ENOMEM. */
int timers_reserve(struct timers *t, uint32_t qps);
void timers_destroy(struct timers *t);
/* The QP's deadline is now this; TIME_NEVER: none. */
void timers_set(struct timers *t, struct engine_qp *eqp, uint64_t deadline_ns);
void timers_remove(struct timers *t, struct engine_qp *eqp);
/* Take a QP whose deadline has passed, or NULL. */
struct engine_qp *timers_pop(struct timers *t, uint64_t now_ns);
/* Not later than the next deadline. */
uint64_t timers_next(const struct timers *t);

#endif
