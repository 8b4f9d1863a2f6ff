/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/timers.h"

#include <errno.h>
#include <stdlib.h>

int timers_reserve(struct timers *t, uint32_t qps)
{
	uint32_t capacity = t->capacity ? t->capacity : 16;
	struct engine_qp **heap;

	if (qps <= t->capacity)
		return 0;
	while (capacity < qps)
		capacity *= 2;
	heap = realloc(t->heap, capacity * sizeof(struct engine_qp *));
	if (!heap)
		return -ENOMEM;
	t->heap = heap;
	t->capacity = capacity;
	return 0;
}

void timers_destroy(struct timers *t)
{
	free(t->heap);
	t->heap = NULL;
}

static void place(struct timers *t, uint32_t i, struct engine_qp *eqp)
{
	t->heap[i] = eqp;
	eqp->timer_slot = i + 1;
}

static void sift_up(struct timers *t, uint32_t i, struct engine_qp *eqp)
{
	while (i > 0) {
		uint32_t parent = (i - 1) / 2;

		if (t->heap[parent]->timer_ns <= eqp->timer_ns)
			break;
		place(t, i, t->heap[parent]);
		i = parent;
	}
	place(t, i, eqp);
}

static void sift_down(struct timers *t, uint32_t i, struct engine_qp *eqp)
{
	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= t->n)
			break;
		if (child + 1 < t->n && t->heap[child + 1]->timer_ns < t->heap[child]->timer_ns)
			child++;
		if (eqp->timer_ns <= t->heap[child]->timer_ns)
			break;
		place(t, i, t->heap[child]);
		i = child;
	}
	place(t, i, eqp);
}

void timers_remove(struct timers *t, struct engine_qp *eqp)
{
	struct engine_qp *last;
	uint32_t i;

	if (!eqp->timer_slot)
		return;
	i = eqp->timer_slot - 1;
	eqp->timer_slot = 0;
	last = t->heap[--t->n];
	if (last == eqp)
		return;
	if (i > 0 && t->heap[(i - 1) / 2]->timer_ns > last->timer_ns)
		sift_up(t, i, last);
	else
		sift_down(t, i, last);
}

void timers_set(struct timers *t, struct engine_qp *eqp, uint64_t deadline_ns)
{
	if (eqp->timer_slot) {
		if (deadline_ns >= eqp->timer_ns)
			return;
		eqp->timer_ns = deadline_ns;
		sift_up(t, eqp->timer_slot - 1, eqp);
	} else if (deadline_ns != TIME_NEVER) {
		eqp->timer_ns = deadline_ns;
		sift_up(t, t->n++, eqp);
	}
}

struct engine_qp *timers_pop(struct timers *t, uint64_t now_ns)
{
	while (t->n && t->heap[0]->timer_ns <= now_ns) {
		struct engine_qp *eqp = t->heap[0];
		uint64_t due = qp_next_deadline(&eqp->qp);

		timers_remove(t, eqp);
		if (due <= now_ns)
			return eqp;
		timers_set(t, eqp, due);
	}
	return NULL;
}

uint64_t timers_next(const struct timers *t)
{
	return t->n ? t->heap[0]->timer_ns : TIME_NEVER;
}
