/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages to other processes' engines. A process takes them from a socket that queues few; what finds it
 * full waits here and is tried again, in order, until the process takes it, is gone, or too much
 * time has passed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/list.h"
#include "device/engine_internal.h"

#define PAUSE_MIN_NS (200 * NS_PER_US)
#define PAUSE_MAX_NS (10 * NS_PER_MS)
#define CLOSE_TRIES  1000 /* of 100 us and more */

struct relay_message {
	struct relay_message *next;
	unsigned block;
	uint64_t until_ns;
	size_t len;
	uint8_t data[];
};

static struct engine *engine_of(struct engine_alarm *a)
{
	return container_of(a, struct engine, relay_alarm);
}

/* Those in front of `end` (NULL: all) to this block. */
static bool waits(const struct engine *e, unsigned block, const struct relay_message *end)
{
	for (const struct relay_message *m = e->relay_messages; m != end; m = m->next)
		if (m->block == block)
			return true;
	return false;
}

static bool try_again(struct engine *e, const struct relay_message *m)
{
	return m->until_ns > e->now_ns &&
	       (waits(e, m->block, m) || port_relay(e->port, m->block, m->data, m->len) == -EAGAIN);
}

static void send_waiting(struct engine_alarm *a)
{
	struct engine *e = engine_of(a);
	struct relay_message **link = &e->relay_messages, *m;
	bool progress = false;

	while ((m = *link)) {
		if (try_again(e, m)) {
			link = &m->next;
			continue;
		}
		*link = m->next;
		free(m);
		progress = true;
	}
	e->relay_pause_ns = progress ? PAUSE_MIN_NS : 2 * e->relay_pause_ns;
	if (e->relay_pause_ns > PAUSE_MAX_NS)
		e->relay_pause_ns = PAUSE_MAX_NS;
	if (e->relay_messages)
		engine_alarm_set(e, a, e->now_ns + e->relay_pause_ns);
}

static int wait_for_room(struct engine *e, unsigned block, const void *data, size_t len)
{
	struct relay_message *m = malloc(sizeof(*m) + len), **link = &e->relay_messages;
	const uint64_t now_ns = engine_now_ns();

	if (!m)
		return -ENOMEM;
	m->next = NULL;
	m->block = block;
	m->until_ns = now_ns + ENGINE_RELAY_WAIT_NS;
	m->len = len;
	memcpy(m->data, data, len);
	while (*link)
		link = &(*link)->next;
	*link = m;
	if (e->relay_alarm.due_ns)
		return 0;
	e->relay_alarm.ring = send_waiting;
	e->relay_pause_ns = PAUSE_MIN_NS;
	engine_alarm_set(e, &e->relay_alarm, now_ns + PAUSE_MIN_NS);
	return 0;
}

int engine_relay(struct engine *e, unsigned block, const void *data, size_t len)
{
	int rc = waits(e, block, NULL) ? -EAGAIN : port_relay(e->port, block, data, len);

	return rc == -EAGAIN ? wait_for_room(e, block, data, len) : rc;
}

bool engine_relay_waits(const struct engine *e, unsigned block)
{
	return waits(e, block, NULL);
}

/* The end: answers that others wait for leave if they can. */
void engine_relay_close(struct engine *e)
{
	const struct timespec pause = { .tv_nsec = 100000 };

	for (unsigned i = 0; e->relay_messages && i < CLOSE_TRIES; i++) {
		e->now_ns = engine_now_ns();
		send_waiting(&e->relay_alarm);
		nanosleep(&pause, NULL);
	}
	while (e->relay_messages) {
		struct relay_message *m = e->relay_messages;

		e->relay_messages = m->next;
		free(m);
	}
}
