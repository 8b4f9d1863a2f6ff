/* SPDX-License-Identifier: BSD-2-Clause */
/* Alarms: the few deadlines that aren't a queue pair's. A list: seldom is one set. */
#include "device/engine_internal.h"

void engine_alarm_set(struct engine *e, struct engine_alarm *a, uint64_t due_ns)
{
	if (!a->due_ns) {
		a->next = e->alarms;
		e->alarms = a;
	}
	a->due_ns = due_ns;
}

void engine_alarm_cancel(struct engine *e, struct engine_alarm *a)
{
	struct engine_alarm **link = &e->alarms;

	if (!a->due_ns)
		return;
	while (*link != a)
		link = &(*link)->next;
	*link = a->next;
	a->due_ns = 0;
}

uint64_t engine_alarms_next(const struct engine *e)
{
	uint64_t next = TIME_NEVER;

	for (const struct engine_alarm *a = e->alarms; a; a = a->next)
		if (a->due_ns < next)
			next = a->due_ns;
	return next;
}

static struct engine_alarm *find_due(struct engine *e)
{
	struct engine_alarm *a = e->alarms;

	while (a && a->due_ns > e->now_ns)
		a = a->next;
	return a;
}

void engine_alarms_ring(struct engine *e)
{
	struct engine_alarm *a;

	while ((a = find_due(e))) {
		engine_alarm_cancel(e, a);
		a->ring(a);
	}
}
