/* SPDX-License-Identifier: BSD-2-Clause */
#include "sim_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim_pcap.h"
#include "wire/icrc.h"

#define DELAY_NS (20 * NS_PER_US)

struct sim_packet *sim_packet_new(unsigned to, const struct path *path, const uint8_t *data,
				  uint32_t len)
{
	struct sim_packet *p = malloc(sizeof(*p) + len);

	assert_non_null(p);
	*p = (struct sim_packet){ .to = to, .path = *path, .len = len };
	memcpy(p->data, data, len);
	return p;
}

static struct sim_packet *copy(const struct sim_packet *p)
{
	struct sim_packet *c = sim_packet_new(p->to, &p->path, p->data, p->len);

	c->ipv4_id = p->ipv4_id;
	return c;
}

static void insert(struct sim *s, struct sim_packet *p)
{
	struct sim_packet **link = &s->wire;

	/* Nearly all go to the end. */
	if (s->wire && s->wire_end->at_ns <= p->at_ns)
		link = &s->wire_end->next;
	while (*link && (*link)->at_ns <= p->at_ns)
		link = &(*link)->next;
	p->next = *link;
	*link = p;
	if (!p->next)
		s->wire_end = p;
}

/* Change a byte so that the check notices: over IPv4 it is blind to one change in 2^15. */
static void corrupt(struct sim *s, struct sim_packet *p)
{
	uint16_t id;

	do {
		p->data[sim_random(s) % p->len] ^= (uint8_t)(1 + sim_random(s) % 255);
		id = 0;
	} while (icrc_check(&p->path, &id, p->data, p->len));
}

/* When the link has sent this packet; 0: its queue is full. */
static uint64_t through_the_link(struct sim *s, unsigned from, uint32_t len)
{
	uint64_t *busy = &s->busy_ns[from];
	uint64_t backlog = *busy > s->now_ns ? *busy - s->now_ns : 0;

	if (!s->cfg.mbps)
		return s->now_ns;
	if (backlog * s->cfg.mbps / 8000 + len > s->cfg.queue_bytes) {
		s->overflowed++;
		return 0;
	}
	*busy = s->now_ns + backlog + (uint64_t)len * 8000 / s->cfg.mbps;
	return *busy;
}

/* A packet sent earlier, to whom it was for, perhaps cut short. */
static void replay(struct sim *s, const struct sim_packet *p)
{
	struct sim_packet **slot = &s->history[s->n_history++ % SIM_HISTORY];
	struct sim_packet *old;
	unsigned n;

	free(*slot);
	*slot = copy(p);
	if (!sim_chance(s, s->cfg.replay))
		return;
	n = s->n_history < SIM_HISTORY ? s->n_history : SIM_HISTORY;
	old = copy(s->history[sim_random(s) % n]);
	old->at_ns = s->now_ns + sim_random(s) % (NS_PER_MS * 100);
	if (sim_random(s) % 8 == 0)
		old->len = 1 + (uint32_t)(sim_random(s) % old->len);
	insert(s, old);
}

/* When it arrives; 0: it is lost. */
static uint64_t arrival(struct sim *s, const struct sim_packet *p, uint64_t number)
{
	const uint64_t delay_ns = s->cfg.delay_ns ? s->cfg.delay_ns : DELAY_NS;
	uint64_t at_ns;

	if (number < 64 && s->cfg.drop_mask[!p->to] >> number & 1)
		return 0;
	if (sim_chance(s, s->cfg.loss))
		return 0;
	at_ns = through_the_link(s, !p->to, p->len);
	if (!at_ns)
		return 0;
	at_ns += delay_ns;
	if (sim_chance(s, s->cfg.reorder))
		at_ns += sim_random(s) % (4 * delay_ns);
	return at_ns;
}

void sim_link_put(struct sim *s, struct sim_packet *p)
{
	const uint64_t delay_ns = s->cfg.delay_ns ? s->cfg.delay_ns : DELAY_NS;
	struct sim_packet *second = NULL;

	if (s->pcap)
		sim_pcap_write(s->pcap, s->now_ns, &p->path, p->ipv4_id, p->data, p->len);
	if (s->cfg.replay)
		replay(s, p);
	p->at_ns = arrival(s, p, s->node[!p->to].sent++);
	if (!p->at_ns) {
		free(p);
		return;
	}
	if (sim_chance(s, s->cfg.corrupt))
		corrupt(s, p);
	if (sim_chance(s, s->cfg.duplicate)) {
		second = copy(p);
		second->at_ns = p->at_ns + sim_random(s) % (2 * delay_ns);
	}
	insert(s, p);
	if (second)
		insert(s, second);
}

uint64_t sim_first_arrival(const struct sim *s)
{
	return s->wire ? s->wire->at_ns : TIME_NEVER;
}

struct sim_packet *sim_link_take(struct sim *s)
{
	struct sim_packet *p = s->wire;

	if (!p || p->at_ns > s->now_ns)
		return NULL;
	s->wire = p->next;
	return p;
}

void sim_link_clear(struct sim *s)
{
	while (s->wire) {
		struct sim_packet *p = s->wire;

		s->wire = p->next;
		free(p);
	}
	for (unsigned i = 0; i < SIM_HISTORY; i++) {
		free(s->history[i]);
		s->history[i] = NULL;
	}
}
