/* SPDX-License-Identifier: BSD-2-Clause */
#include "net/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "wire/icrc.h"

#define OUTBOX_BYTES	(1u << 20)
#define HELD_MAX	(64u << 20) /* bytes, of one direction */
#define REORDER_MIN_NS	(50 * NS_PER_US)
#define REORDER_SPAN_NS (950 * NS_PER_US)
#define FLIPS_MAX	64
#define RING_RETRY_NS	(100 * NS_PER_US)

/* What a random number decides; each has a sequence of its own, so that one rate doesn't move the
 * others' choices. */
enum draw { DRAW_LOSS, DRAW_REORDER, DRAW_LATER, DRAW_DUP, DRAW_CORRUPT, DRAW_BIT, DRAW_RNR };

struct item {
	struct path path;
	uint64_t corrupt; /* as in struct verdict */
	bool local;	  /* of the same-host path */
	uint32_t len;
	const uint8_t *data;
};

struct held {
	struct held *next, *prev;
	uint64_t due_ns;
	struct item item;
	uint8_t data[];
};

struct way {
	struct held *first, *last; /* by due_ns */
	size_t held_bytes;
	uint64_t n; /* packets so far */
	struct fault_stats stats;
};

struct fault_injector {
	struct fault_plan plan;
	uint64_t start_ns, down_ns; /* down_ns: the link goes down; 0: not yet */
	struct way ways[FAULT_DIRECTIONS];
	struct outbox out;
	fault_ring_put *ring_put;
	void *ring_arg;
	bool stuck[2];	       /* packets that are due wait: [0] for the outbox, [1] for a ring */
	uint64_t ring_full_ns; /* a ring was full: tried again then */
	/* for rnr, qp-error, device-fatal, cq-overrun */
	uint64_t messages, packets, fatal_packets, completions;
	uint8_t scratch[UINT16_MAX];
};

struct verdict {
	bool lose, dup;
	uint64_t corrupt; /* 0: no; else a number that chooses the bit */
	uint64_t delay_ns;
};

int fault_create(struct fault_injector **out, const struct fault_plan *plan, uint64_t now_ns)
{
	struct fault_injector *f = calloc(1, sizeof(*f));

	if (!f || outbox_init(&f->out, OUTBOX_BYTES)) {
		free(f);
		return -ENOMEM;
	}
	f->plan = *plan;
	f->start_ns = now_ns;
	*out = f;
	return 0;
}

void fault_set_ring(struct fault_injector *f, fault_ring_put *put, void *arg)
{
	f->ring_put = put;
	f->ring_arg = arg;
}

static void forget(struct way *w, struct held *h)
{
	if (w->first == h)
		w->first = h->next;
	else
		h->prev->next = h->next;
	if (w->last == h)
		w->last = h->prev;
	else
		h->next->prev = h->prev;
	w->held_bytes -= h->item.len;
	free(h);
}

void fault_destroy(struct fault_injector *f)
{
	if (!f)
		return;
	for (int d = 0; d < FAULT_DIRECTIONS; d++)
		while (f->ways[d].first)
			forget(&f->ways[d], f->ways[d].first);
	outbox_destroy(&f->out);
	free(f);
}

/* splitmix64's finaliser, over what the number is for. */
static uint64_t draw(const struct fault_injector *f, enum fault_direction dir, enum draw what,
		     uint64_t n)
{
	uint64_t z = f->plan.seed * UINT64_C(0xd1342543de82ef95) +
		     (n * 16 + (uint64_t)dir * 8 + what + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static bool happens(const struct fault_injector *f, enum fault_direction dir, enum draw what,
		    uint64_t n, uint64_t chance)
{
	return draw(f, dir, what, n) >> 32 < chance;
}

/* The outage begins when it is noticed: a process that didn't run meanwhile has it still to come. */
bool fault_link_down(struct fault_injector *f, uint64_t now_ns)
{
	if (!f->plan.link_down_for_ns)
		return false;
	if (!f->down_ns && now_ns >= f->start_ns + f->plan.link_down_at_ns)
		f->down_ns = now_ns;
	return f->down_ns && now_ns < f->down_ns + f->plan.link_down_for_ns;
}

static struct verdict judge(struct fault_injector *f, enum fault_direction dir, uint64_t now_ns)
{
	const struct fault_rates *rates = &f->plan.rates[dir];
	struct way *w = &f->ways[dir];
	const uint64_t n = w->n++;
	struct verdict v = { .delay_ns = rates->delay_ns };

	w->stats.seen++;
	if (fault_link_down(f, now_ns)) {
		w->stats.link_down++;
		v.lose = true;
		return v;
	}
	v.lose = happens(f, dir, DRAW_LOSS, n, rates->loss);
	w->stats.lost += v.lose;
	if (v.lose)
		return v;
	if (happens(f, dir, DRAW_REORDER, n, rates->reorder)) {
		v.delay_ns += REORDER_MIN_NS + draw(f, dir, DRAW_LATER, n) % REORDER_SPAN_NS;
		w->stats.reordered++;
	}
	v.dup = happens(f, dir, DRAW_DUP, n, rates->dup);
	if (happens(f, dir, DRAW_CORRUPT, n, rates->corrupt))
		v.corrupt = draw(f, dir, DRAW_BIT, n) | 1;
	w->stats.duplicated += v.dup;
	w->stats.corrupted += v.corrupt > 0;
	w->stats.delayed += v.delay_ns > 0;
	return v;
}

/* Flip a bit that the receiver's check notices: over IPv4 it is blind to one in 2^15. */
static void flip(const struct path *path, uint8_t *data, uint32_t len, uint64_t random)
{
	for (int i = 0; i < FLIPS_MAX; i++) {
		uint64_t bit = (random / 2 + (uint64_t)i) % (len * UINT64_C(8));
		uint16_t id = 0;

		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (!icrc_check(path, &id, data, len))
			return;
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void hold(struct way *w, uint64_t due_ns, const struct item *item)
{
	struct held *h, *before = w->last;

	h = w->held_bytes + item->len <= HELD_MAX ? malloc(sizeof(*h) + item->len) : NULL;
	if (!h) {
		w->stats.overflow++;
		return;
	}
	while (before && before->due_ns > due_ns)
		before = before->prev;
	*h = (struct held){ .prev = before,
			    .next = before ? before->next : w->first,
			    .due_ns = due_ns,
			    .item = *item };
	h->item.data = h->data;
	memcpy(h->data, item->data, item->len);
	if (before)
		before->next = h;
	else
		w->first = h;
	if (h->next)
		h->next->prev = h;
	else
		w->last = h;
	w->held_bytes += item->len;
}

/* False: a ring is full. */
static bool put_ring(struct fault_injector *f, const struct item *it, uint64_t now_ns)
{
	if (it->corrupt)
		return true;
	if (now_ns < f->ring_full_ns)
		return false;
	if (f->ring_put(f->ring_arg, &it->path, it->data, it->len - ICRC_LEN))
		return true;
	f->ring_full_ns = now_ns + RING_RETRY_NS;
	return false;
}

/* On its way. False: there is no room. */
static bool put(struct fault_injector *f, const struct item *it, uint64_t now_ns)
{
	uint8_t *packet;

	if (it->local)
		return put_ring(f, it, now_ns);
	if (it->corrupt)
		outbox_close_group(&f->out);
	packet = outbox_reserve(&f->out, &it->path, it->len - ICRC_LEN);
	if (!packet)
		return false;
	memcpy(packet, it->data, it->len - ICRC_LEN);
	outbox_commit(&f->out, it->len - ICRC_LEN);
	if (it->corrupt)
		flip(&it->path, outbox_damage(&f->out), it->len, it->corrupt);
	return true;
}

static void send_due(struct fault_injector *f, uint64_t now_ns)
{
	struct way *w = &f->ways[FAULT_OUT];
	struct held *h, *next;

	f->stuck[0] = f->stuck[1] = false;
	for (h = w->first; h && h->due_ns <= now_ns; h = next) {
		bool *stuck = &f->stuck[h->item.local];

		next = h->next;
		*stuck = *stuck || !put(f, &h->item, now_ns);
		if (!*stuck)
			forget(w, h);
	}
}

/* Nobody overtakes those who wait for room. */
static void send_packet(struct fault_injector *f, const struct item *it, uint64_t due_ns,
			uint64_t now_ns)
{
	bool *stuck = &f->stuck[it->local];

	if (due_ns <= now_ns) {
		*stuck = *stuck || !put(f, it, now_ns);
		if (!*stuck)
			return;
	}
	hold(&f->ways[FAULT_OUT], due_ns, it);
}

void fault_send(struct fault_injector *f, struct outbox *box, uint64_t now_ns)
{
	send_due(f, now_ns);
	for (unsigned i = box->first_group; i < box->n_groups; i++) {
		const struct outbox_group *g = &box->groups[i];

		for (uint32_t at = 0; at < g->len; at += g->seg_len) {
			struct verdict v = judge(f, FAULT_OUT, now_ns);
			struct item it = {
				.path = g->path,
				.corrupt = v.corrupt,
				.local = box->no_icrc,
				.len = g->len - at < g->seg_len ? g->len - at : g->seg_len,
				.data = box->buf + g->offset + at,
			};

			if (v.lose)
				continue;
			send_packet(f, &it, now_ns + v.delay_ns, now_ns);
			it.corrupt = 0;
			if (v.dup)
				send_packet(f, &it, now_ns + v.delay_ns, now_ns);
		}
	}
	outbox_sent(box, box->n_groups - box->first_group);
}

void fault_send_held(struct fault_injector *f)
{
	send_due(f, TIME_NEVER);
}

struct outbox *fault_outbox(struct fault_injector *f)
{
	return &f->out;
}

static void deliver_one(const struct item *it,
			void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	struct burst one = {
		.path = it->path, .data = it->data, .len = it->len, .seg_len = it->len
	};

	deliver(arg, &one);
}

static void deliver_due(struct fault_injector *f, uint64_t now_ns,
			void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	struct way *w = &f->ways[FAULT_IN];

	while (w->first && w->first->due_ns <= now_ns) {
		struct held *h = w->first;

		deliver_one(&h->item, deliver, arg);
		forget(w, h);
	}
}

/* One of two copies is damaged at most. */
static void receive_packet(struct fault_injector *f, struct item *it, uint64_t now_ns,
			   void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	struct verdict v = judge(f, FAULT_IN, now_ns);
	const uint8_t *const data = it->data;

	if (v.lose)
		return;
	if (v.corrupt && !it->local) {
		memcpy(f->scratch, data, it->len);
		flip(&it->path, f->scratch, it->len, v.corrupt);
		it->data = f->scratch;
	}
	for (int copy = v.corrupt && it->local; copy <= (int)v.dup; copy++) {
		if (copy)
			it->data = data;
		if (v.delay_ns)
			hold(&f->ways[FAULT_IN], now_ns + v.delay_ns, it);
		else
			deliver_one(it, deliver, arg);
	}
}

void fault_receive(struct fault_injector *f, const struct burst *burst, uint64_t now_ns,
		   void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	deliver_due(f, now_ns, deliver, arg);
	if (!burst)
		return;
	for (size_t at = 0; at < burst->len; at += burst->seg_len) {
		size_t left = burst->len - at;
		struct item it = {
			.path = burst->path,
			.local = burst->path.local,
			.len = (uint32_t)(left < burst->seg_len ? left : burst->seg_len),
			.data = burst->data + at,
		};

		receive_packet(f, &it, now_ns, deliver, arg);
	}
}

/* A change of the link that is still to come, or TIME_NEVER. */
static uint64_t link_due_ns(const struct fault_injector *f, uint64_t now_ns)
{
	uint64_t up = f->down_ns + f->plan.link_down_for_ns;

	if (!f->plan.link_down_for_ns)
		return TIME_NEVER;
	if (!f->down_ns)
		return f->start_ns + f->plan.link_down_at_ns;
	return now_ns < up ? up : TIME_NEVER;
}

uint64_t fault_next_due_ns(const struct fault_injector *f, uint64_t now_ns)
{
	uint64_t due = link_due_ns(f, now_ns);

	for (int d = 0; d < FAULT_DIRECTIONS; d++) {
		const struct held *h = f->ways[d].first;
		uint64_t at = h ? h->due_ns : TIME_NEVER;

		if (h && d == FAULT_OUT && h->item.local && f->stuck[1] && at < f->ring_full_ns)
			at = f->ring_full_ns;
		if (at < due)
			due = at;
	}
	return due;
}

bool fault_rnr(struct fault_injector *f)
{
	return happens(f, FAULT_IN, DRAW_RNR, f->messages++, f->plan.rnr);
}

bool fault_qp_error(struct fault_injector *f)
{
	return ++f->packets == f->plan.qp_error;
}

bool fault_device_fatal(struct fault_injector *f)
{
	return ++f->fatal_packets == f->plan.device_fatal;
}

bool fault_cq_overrun(struct fault_injector *f)
{
	return ++f->completions == f->plan.cq_overrun;
}

const struct fault_stats *fault_stats(const struct fault_injector *f,
				      enum fault_direction direction)
{
	return &f->ways[direction].stats;
}
