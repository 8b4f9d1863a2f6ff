/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters run freely; their low bits are places. A burst never wraps: when the end of the data
 * area is too near, it is skipped, and its bytes count as part of the burst that follows.
 */
#include "net/pring.h"

#include <stdatomic.h>
#include <string.h>

#include "wire/packet.h"

#define ROOM_MIN     (RING_MTU + PACKET_HEADER_MAX + ICRC_LEN)
#define PACKET_LEAST (BTH_LEN + ICRC_LEN)

_Static_assert((RING_SLOTS & (RING_SLOTS - 1)) == 0 && (RING_DATA & (RING_DATA - 1)) == 0,
	       "free-running counters are taken modulo these");
_Static_assert(RING_SLOTS >= 2 * OUTBOX_GROUPS_MAX, "a full outbox is half of the descriptors");
_Static_assert(sizeof(struct pring_desc) == 64, "a cache line");

void pring_producer_init(struct pring_producer *p, struct pring_shared *shared)
{
	*p = (struct pring_producer){ .shared = shared, .box = { .no_icrc = true } };
}

void pring_consumer_init(struct pring_consumer *c, struct pring_shared *shared)
{
	*c = (struct pring_consumer){ .shared = shared };
}

/* What the consumer gave back since we looked last. Its word about that is in its cache: not looked
 * at before it is needed. */
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
	p->freed = p->ends[(head - 1) % RING_SLOTS];
	/* Empty: start over, where the memory is in both caches. */
	if (head == p->tail)
		p->written = p->freed = 0;
}

static bool plenty(const struct pring_producer *p)
{
	return p->tail - p->head < RING_SLOTS / 2 && p->written - p->freed < RING_DATA / 8;
}

static bool has_room(struct pring_producer *p)
{
	struct outbox *box = &p->box;
	uint32_t at = p->written % RING_DATA;
	uint32_t left = RING_DATA - (p->written - p->freed);
	uint32_t to_end = RING_DATA - at;

	if (RING_SLOTS - (p->tail - p->head) < OUTBOX_GROUPS_MAX)
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
	if (!plenty(p))
		reclaim(p);
	return !p->broken && has_room(p) ? &p->box : NULL;
}

bool pring_has_room(struct pring_producer *p)
{
	return pring_open(p) || p->broken;
}

static void write_slot(struct pring_producer *p, const struct outbox_group *g)
{
	struct pring_slot *slot = &p->shared->slots[p->tail % RING_SLOTS];
	struct pring_desc *d = &slot->desc;
	bool is_short = g->len <= RING_SHORT;

	d->offset = is_short ? RING_IN_SLOT : (uint32_t)(p->box.buf - p->shared->data) + g->offset;
	d->len = g->len;
	d->seg_len = g->seg_len;
	d->ifindex = g->path.ifindex;
	d->flow_label = g->path.flow_label;
	d->traffic_class = g->path.traffic_class;
	d->hop_limit = g->path.hop_limit;
	d->sgid = g->path.sgid;
	d->dgid = g->path.dgid;
	if (is_short)
		memcpy(slot->data, p->box.buf + g->offset, g->len);
	else
		p->in_use = g->offset + g->len;
	p->ends[p->tail % RING_SLOTS] = p->written + p->in_use;
	p->tail++;
	atomic_store_explicit(&d->sequence, p->tail, memory_order_release);
}

bool pring_publish(struct pring_producer *p)
{
	struct outbox *box = &p->box;

	if (outbox_empty(box))
		return false;
	p->in_use = 0;
	for (unsigned i = box->first_group; i < box->n_groups; i++)
		write_slot(p, &box->groups[i]);
	outbox_sent(box, box->n_groups - box->first_group);
	p->written += p->in_use;
	/* Orders the slots before the look at whether the consumer sleeps, as its side does. */
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
	uint32_t room = d->offset == RING_IN_SLOT ? RING_SHORT
			: d->offset < RING_DATA	  ? RING_DATA - d->offset
						  : 0;

	return d->len >= PACKET_LEAST && d->len <= room && d->seg_len >= PACKET_LEAST &&
	       d->seg_len <= d->len;
}

static struct pring_slot *next_slot(const struct pring_consumer *c)
{
	return &c->shared->slots[c->head % RING_SLOTS];
}

bool pring_empty(const struct pring_consumer *c)
{
	return c->broken || atomic_load_explicit(&next_slot(c)->desc.sequence,
						 memory_order_acquire) != c->head + 1;
}

bool pring_peek(struct pring_consumer *c, struct burst *burst)
{
	struct pring_slot *slot = next_slot(c);
	struct pring_desc d;

	if (pring_empty(c))
		return false;
	memcpy(&d, &slot->desc, sizeof(d));
	/* The copy is what was checked, and nothing is read again. */
	atomic_signal_fence(memory_order_seq_cst);
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
		.data = d.offset == RING_IN_SLOT ? slot->data : c->shared->data + d.offset,
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
