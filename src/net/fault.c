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

/* What a random number decides; each has a sequence of its own, so that one rate doesn't move the
 * others' choices. */
enum draw { DRAW_LOSS, DRAW_REORDER, DRAW_LATER, DRAW_DUP, DRAW_CORRUPT, DRAW_BIT, DRAW_RNR };

struct held {
	struct held *next, *prev;
	uint64_t due_ns;
	struct path path;
	uint64_t corrupt; /* as in struct verdict */
	uint32_t len;
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
	uint64_t start_ns;
	struct way ways[FAULT_DIRECTIONS];
	struct outbox out;
	uint64_t messages, packets, completions; /* for rnr, qp-error, cq-overrun */
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

static void forget_first(struct way *w)
{
	struct held *h = w->first;

	w->first = h->next;
	if (w->first)
		w->first->prev = NULL;
	else
		w->last = NULL;
	w->held_bytes -= h->len;
	free(h);
}

void fault_destroy(struct fault_injector *f)
{
	if (!f)
		return;
	for (int d = 0; d < FAULT_DIRECTIONS; d++)
		while (f->ways[d].first)
			forget_first(&f->ways[d]);
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

bool fault_link_down(const struct fault_injector *f, uint64_t now_ns)
{
	uint64_t age = now_ns - f->start_ns;

	return f->plan.link_down_for_ns && age >= f->plan.link_down_at_ns &&
	       age - f->plan.link_down_at_ns < f->plan.link_down_for_ns;
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

static void hold(struct way *w, uint64_t due_ns, const struct path *path, uint64_t corrupt,
		 const uint8_t *data, uint32_t len)
{
	struct held *h, *before = w->last;

	h = w->held_bytes + len <= HELD_MAX ? malloc(sizeof(*h) + len) : NULL;
	if (!h) {
		w->stats.overflow++;
		return;
	}
	while (before && before->due_ns > due_ns)
		before = before->prev;
	*h = (struct held){ .prev = before,
			    .next = before ? before->next : w->first,
			    .due_ns = due_ns,
			    .path = *path,
			    .corrupt = corrupt,
			    .len = len };
	memcpy(h->data, data, len);
	if (before)
		before->next = h;
	else
		w->first = h;
	if (h->next)
		h->next->prev = h;
	else
		w->last = h;
	w->held_bytes += len;
}

/* Into the outbox. False: it is full. */
static bool put(struct fault_injector *f, const struct path *path, uint64_t corrupt,
		const uint8_t *data, uint32_t len)
{
	uint8_t *packet;

	if (corrupt)
		outbox_close_group(&f->out);
	packet = outbox_reserve(&f->out, path, len - ICRC_LEN);
	if (!packet)
		return false;
	memcpy(packet, data, len - ICRC_LEN);
	outbox_commit(&f->out, len - ICRC_LEN);
	if (corrupt)
		flip(path, outbox_damage(&f->out), len, corrupt);
	return true;
}

static void send_due(struct fault_injector *f, uint64_t now_ns)
{
	struct way *w = &f->ways[FAULT_OUT];

	while (w->first && w->first->due_ns <= now_ns) {
		struct held *h = w->first;

		if (!put(f, &h->path, h->corrupt, h->data, h->len))
			return;
		forget_first(w);
	}
}

static void send_packet(struct fault_injector *f, const struct path *path, uint64_t corrupt,
			const uint8_t *data, uint32_t len, uint64_t due_ns, uint64_t now_ns)
{
	struct way *w = &f->ways[FAULT_OUT];
	/* The outbox is full, or was: nobody overtakes those who wait for it. */
	bool queue = w->first && w->first->due_ns <= now_ns;

	if (due_ns > now_ns || queue || !put(f, path, corrupt, data, len))
		hold(w, due_ns, path, corrupt, data, len);
}

void fault_send(struct fault_injector *f, struct outbox *box, uint64_t now_ns)
{
	send_due(f, now_ns);
	for (unsigned i = box->first_group; i < box->n_groups; i++) {
		const struct outbox_group *g = &box->groups[i];

		for (uint32_t at = 0; at < g->len; at += g->seg_len) {
			uint32_t len = g->len - at < g->seg_len ? g->len - at : g->seg_len;
			const uint8_t *data = box->buf + g->offset + at;
			struct verdict v = judge(f, FAULT_OUT, now_ns);

			if (v.lose)
				continue;
			send_packet(f, &g->path, v.corrupt, data, len, now_ns + v.delay_ns, now_ns);
			if (v.dup)
				send_packet(f, &g->path, 0, data, len, now_ns + v.delay_ns, now_ns);
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

static void deliver_one(const struct path *path, const uint8_t *data, uint32_t len,
			void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	struct burst one = { .path = *path, .data = data, .len = len, .seg_len = len };

	deliver(arg, &one);
}

static void deliver_due(struct fault_injector *f, uint64_t now_ns,
			void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	struct way *w = &f->ways[FAULT_IN];

	while (w->first && w->first->due_ns <= now_ns) {
		struct held *h = w->first;

		deliver_one(&h->path, h->data, h->len, deliver, arg);
		forget_first(w);
	}
}

static void receive_packet(struct fault_injector *f, const struct path *path, const uint8_t *data,
			   uint32_t len, uint64_t now_ns,
			   void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	struct verdict v = judge(f, FAULT_IN, now_ns);
	const uint8_t *first = data;

	if (v.lose)
		return;
	if (v.corrupt) {
		memcpy(f->scratch, data, len);
		flip(path, f->scratch, len, v.corrupt);
		first = f->scratch;
	}
	for (int copy = 0; copy <= (int)v.dup; copy++) {
		if (v.delay_ns)
			hold(&f->ways[FAULT_IN], now_ns + v.delay_ns, path, 0, copy ? data : first,
			     len);
		else
			deliver_one(path, copy ? data : first, len, deliver, arg);
	}
}

void fault_receive(struct fault_injector *f, const struct burst *burst, uint64_t now_ns,
		   void (*deliver)(void *arg, const struct burst *burst), void *arg)
{
	deliver_due(f, now_ns, deliver, arg);
	for (size_t at = 0; burst && at < burst->len; at += burst->seg_len) {
		size_t left = burst->len - at;

		receive_packet(f, &burst->path, burst->data + at,
			       (uint32_t)(left < burst->seg_len ? left : burst->seg_len), now_ns,
			       deliver, arg);
	}
}

/* A change of the link that is still to come, or TIME_NEVER. */
static uint64_t link_due_ns(const struct fault_injector *f, uint64_t now_ns)
{
	uint64_t down = f->start_ns + f->plan.link_down_at_ns;

	if (!f->plan.link_down_for_ns || now_ns >= down + f->plan.link_down_for_ns)
		return TIME_NEVER;
	return now_ns < down ? down : down + f->plan.link_down_for_ns;
}

uint64_t fault_next_due_ns(const struct fault_injector *f, uint64_t now_ns)
{
	uint64_t due = link_due_ns(f, now_ns);

	for (int d = 0; d < FAULT_DIRECTIONS; d++)
		if (f->ways[d].first && f->ways[d].first->due_ns < due)
			due = f->ways[d].first->due_ns;
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

bool fault_cq_overrun(struct fault_injector *f)
{
	return ++f->completions == f->plan.cq_overrun;
}

const struct fault_stats *fault_stats(const struct fault_injector *f,
				      enum fault_direction direction)
{
	return &f->ways[direction].stats;
}
