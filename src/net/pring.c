/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters run freely; their low bits are places. A burst never wraps: when the end of the data
 * area is too near, it is skipped, and its bytes count as part of the burst that follows.
 */
#include "net/pring.h"

#include <stdatomic.h>

#include "wire/packet.h"

#define ROOM_MIN     (RING_MTU + PACKET_HEADER_MAX + ICRC_LEN)
#define PACKET_LEAST (BTH_LEN + ICRC_LEN)

_Static_assert((RING_DESCS & (RING_DESCS - 1)) == 0 && (RING_DATA & (RING_DATA - 1)) == 0,
	       "free-running counters are taken modulo these");
_Static_assert(RING_DESCS >= 2 * OUTBOX_GROUPS_MAX, "a full outbox is half of the descriptors");
_Static_assert(sizeof(struct pring_desc) == 64, "a cache line");

void pring_producer_init(struct pring_producer *p, struct pring_shared *shared)
{
	*p = (struct pring_producer){ .shared = shared, .box = { .no_icrc = true } };
}

void pring_consumer_init(struct pring_consumer *c, struct pring_shared *shared)
{
	*c = (struct pring_consumer){ .shared = shared };
}

/* What the consumer gave back since we looked last. */
static void reclaim(struct pring_producer *p)
{
	uint32_t head = atomic_load_explicit(&p->shared->head, memory_order_acquire);

	if (head == p->head)
		return;
	if (p->tail - head > p->tail - p->head) {
		p->broken = true;
		return;
	}
	p->head = head;
	p->freed = p->ends[(head - 1) % RING_DESCS];
	/* Empty: start over, where the memory is in both caches. */
	if (head == p->tail)
		p->written = p->freed = 0;
}

static bool has_room(struct pring_producer *p)
{
	struct outbox *box = &p->box;
	uint32_t at = p->written % RING_DATA;
	uint32_t left = RING_DATA - (p->written - p->freed);
	uint32_t to_end = RING_DATA - at;

	if (RING_DESCS - (p->tail - p->head) < OUTBOX_GROUPS_MAX)
		return false;
	if (to_end < ROOM_MIN && left >= to_end) {
		left -= to_end;
		p->written += to_end;
		at = 0;
		to_end = RING_DATA;
	}
	if (left < ROOM_MIN || to_end < ROOM_MIN)
		return false;
	box->buf = p->shared->data + at;
	box->capacity = left < to_end ? left : to_end;
	return true;
}

struct outbox *pring_open(struct pring_producer *p)
{
	if (p->broken)
		return NULL;
	if (!outbox_empty(&p->box))
		return &p->box;
	reclaim(p);
	return !p->broken && has_room(p) ? &p->box : NULL;
}

bool pring_has_room(struct pring_producer *p)
{
	return pring_open(p) || p->broken;
}

static void write_desc(struct pring_producer *p, const struct outbox_group *g)
{
	struct pring_desc *d = &p->shared->descs[p->tail % RING_DESCS];

	*d = (struct pring_desc){
		.offset = (uint32_t)(p->box.buf - p->shared->data) + g->offset,
		.len = g->len,
		.seg_len = g->seg_len,
		.ifindex = g->path.ifindex,
		.flow_label = g->path.flow_label,
		.traffic_class = g->path.traffic_class,
		.hop_limit = g->path.hop_limit,
		.sgid = g->path.sgid,
		.dgid = g->path.dgid,
	};
	p->ends[p->tail % RING_DESCS] = p->written + g->offset + g->len;
	p->tail++;
}

bool pring_publish(struct pring_producer *p)
{
	struct outbox *box = &p->box;
	uint32_t used = box->used;

	if (outbox_empty(box))
		return false;
	for (unsigned i = box->first_group; i < box->n_groups; i++)
		write_desc(p, &box->groups[i]);
	outbox_sent(box, box->n_groups - box->first_group);
	p->written += used;
	atomic_store_explicit(&p->shared->tail, p->tail, memory_order_release);
	/* Orders the tail before the look at whether the consumer sleeps, as its side does. */
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&p->shared->consumer_sleeps, memory_order_relaxed) &&
	       atomic_exchange(&p->shared->consumer_sleeps, 0);
}

bool pring_producer_sleeps(struct pring_producer *p)
{
	atomic_store(&p->shared->producer_waits, 1);
	atomic_thread_fence(memory_order_seq_cst);
	reclaim(p);
	return !p->broken && !has_room(p);
}

static bool desc_ok(const struct pring_desc *d)
{
	return d->offset < RING_DATA && d->len >= PACKET_LEAST && d->len <= RING_DATA - d->offset &&
	       d->seg_len >= PACKET_LEAST && d->seg_len <= d->len;
}

bool pring_empty(struct pring_consumer *c)
{
	if (c->broken)
		return true;
	if (c->tail == c->head) {
		c->tail = atomic_load_explicit(&c->shared->tail, memory_order_acquire);
		c->broken = c->tail - c->head > RING_DESCS;
	}
	return c->broken || c->tail == c->head;
}

bool pring_peek(struct pring_consumer *c, struct burst *burst)
{
	struct pring_desc d;

	if (pring_empty(c))
		return false;
	d = *(volatile struct pring_desc *)&c->shared->descs[c->head % RING_DESCS];
	c->broken = !desc_ok(&d);
	if (c->broken)
		return false;
	*burst = (struct burst){
		.path = { .sgid = d.sgid,
			  .dgid = d.dgid,
			  .ifindex = d.ifindex,
			  .flow_label = d.flow_label,
			  .traffic_class = d.traffic_class,
			  .hop_limit = d.hop_limit,
			  .local = true },
		.data = c->shared->data + d.offset,
		.len = d.len,
		.seg_len = d.seg_len,
	};
	return true;
}

void pring_consume(struct pring_consumer *c)
{
	c->head++;
	atomic_store_explicit(&c->shared->head, c->head, memory_order_release);
}

bool pring_wakes_producer(struct pring_consumer *c)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&c->shared->producer_waits, memory_order_relaxed) &&
	       atomic_exchange(&c->shared->producer_waits, 0);
}

bool pring_consumer_sleeps(struct pring_consumer *c, bool sleeps)
{
	atomic_store(&c->shared->consumer_sleeps, sleeps);
	if (!sleeps)
		return true;
	atomic_thread_fence(memory_order_seq_cst);
	return pring_empty(c);
}
