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

static struct pring_path shared_path(const struct path *path)
{
	return (struct pring_path){
		.ifindex = path->ifindex,
		.flow_label = path->flow_label,
		.traffic_class = path->traffic_class,
		.hop_limit = path->hop_limit,
		.sgid = path->sgid,
		.dgid = path->dgid,
	};
}

static struct pring_slot *slot_at(const struct pring_producer *p, uint32_t number)
{
	return &p->shared->slots[number % RING_SLOTS];
}

static void write_slot(struct pring_producer *p, const struct outbox_group *g)
{
	struct pring_slot *slot = slot_at(p, p->tail);
	struct pring_desc *d = &slot->desc;
	const uint8_t *data = p->box.buf + g->offset;

	d->len = g->len;
	d->seg_len = g->seg_len;
	if (g->len <= RING_TINY && p->tail && path_eq(&g->path, &p->path)) {
		d->offset = RING_IN_DESC;
		memcpy(d->tiny, data, g->len);
	} else {
		d->path = shared_path(&g->path);
		p->path = g->path;
		if (g->len <= RING_SHORT) {
			d->offset = RING_IN_SLOT;
			memcpy(slot->data, data, g->len);
		} else {
			d->offset = (uint32_t)(data - p->shared->data);
			p->in_use = g->offset + g->len;
		}
	}
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
	/* The consumer has both lines: they come while the first is written. */
	if (box->n_groups - box->first_group > 1)
		__builtin_prefetch(slot_at(p, p->tail + 1), 1);
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

static uint32_t room_at(const struct pring_consumer *c, uint32_t offset)
{
	if (offset == RING_IN_DESC)
		return c->has_path ? RING_TINY : 0;
	if (offset == RING_IN_SLOT)
		return RING_SHORT;
	return offset < RING_DATA ? RING_DATA - offset : 0;
}

static bool desc_ok(const struct pring_consumer *c)
{
	const struct pring_desc *d = &c->desc;

	return d->len >= PACKET_LEAST && d->len <= room_at(c, d->offset) &&
	       d->seg_len >= PACKET_LEAST && d->seg_len <= d->len;
}

static void take_path(struct pring_consumer *c)
{
	const struct pring_path *path = &c->desc.path;

	c->has_path = true;
	c->path = (struct path){
		.sgid = path->sgid,
		.dgid = path->dgid,
		.ifindex = path->ifindex,
		.flow_label = path->flow_label,
		.traffic_class = path->traffic_class,
		.hop_limit = path->hop_limit,
		.local = true,
	};
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
	struct pring_desc *d = &c->desc;

	if (pring_empty(c))
		return false;
	memcpy(d, &slot->desc, sizeof(*d));
	/* The copy is what was checked, and nothing is read again. */
	atomic_signal_fence(memory_order_seq_cst);
	c->broken = !desc_ok(c);
	if (c->broken)
		return false;
	*burst = (struct burst){ .len = d->len, .seg_len = d->seg_len };
	if (d->offset == RING_IN_DESC) {
		burst->data = d->tiny;
	} else {
		take_path(c);
		burst->data = d->offset == RING_IN_SLOT ? slot->data : c->shared->data + d->offset;
	}
	burst->path = c->path;
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
