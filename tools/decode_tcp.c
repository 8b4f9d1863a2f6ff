/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_tcp.h"

enum { EARLY_MAX = 256 * 1024 };

struct tcp_segment {
	uint32_t seq;
	size_t len;
	struct tcp_segment *next;
	uint8_t data[];
};

static int32_t seq_diff(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

static void half_destroy(struct tcp_half *h)
{
	for (struct tcp_segment *s = h->early, *next; s; s = next) {
		next = s->next;
		free(s);
	}
	free(h->buf);
}

void tcp_table_destroy(struct tcp_table *t)
{
	for (struct tcp_conn *c = t->all, *next; c; c = next) {
		next = c->next;
		half_destroy(&c->half[0]);
		half_destroy(&c->half[1]);
		free(c);
	}
	memset(t, 0, sizeof(*t));
}

static bool half_is(const struct tcp_half *h, const struct gid *address, uint16_t port)
{
	return h->port == port && gid_eq(&h->address, address);
}

/* The same for both directions. */
static struct tcp_conn **bucket_of(struct tcp_table *t, const struct frame *f)
{
	uint32_t hash = f->sport ^ (uint32_t)f->dport;

	for (unsigned i = 0; i < sizeof(f->src.raw); i++)
		hash = hash * 31 + (f->src.raw[i] ^ f->dst.raw[i]);
	return &t->buckets[hash % TCP_BUCKETS];
}

static struct tcp_conn *find(struct tcp_conn *bucket, const struct frame *f, unsigned *side)
{
	for (struct tcp_conn *c = bucket; c; c = c->next_hash)
		for (*side = 0; *side < 2; (*side)++)
			if (half_is(&c->half[*side], &f->src, f->sport) &&
			    half_is(&c->half[!*side], &f->dst, f->dport))
				return c;
	return NULL;
}

/* A capture may begin in the middle of a connection: then the lower port is taken for the server's.
 */
static unsigned guess_side(const struct frame *f)
{
	if (f->tcp_flags & TCP_SYN)
		return f->tcp_flags & TCP_ACK ? 1 : 0;
	return f->sport < f->dport ? 1 : 0;
}

static struct tcp_conn *add(struct tcp_table *t, struct tcp_conn **bucket, const struct frame *f,
			    unsigned side)
{
	struct tcp_conn *c = decode_alloc(sizeof(*c));

	c->half[side].address = f->src;
	c->half[side].port = f->sport;
	c->half[!side].address = f->dst;
	c->half[!side].port = f->dport;
	c->next_hash = *bucket;
	*bucket = c;
	c->next = t->all;
	t->all = c;
	return c;
}

static void append(struct tcp_half *h, const uint8_t *data, size_t len)
{
	if (h->cap - h->len < len) {
		h->cap = 2 * (h->len + len);
		h->buf = decode_realloc(h->buf, h->cap);
	}
	memcpy(h->buf + h->len, data, len);
	h->len += len;
	h->next += (uint32_t)len;
}

/* Take what is new of the bytes at seq; false when they begin beyond a hole. */
static bool take(struct tcp_half *h, uint32_t seq, const uint8_t *data, size_t len)
{
	int32_t old = seq_diff(h->next, seq);

	if (old < 0)
		return false;
	if ((size_t)old < len)
		append(h, data + old, len - (size_t)old);
	return true;
}

static void take_early(struct tcp_half *h)
{
	struct tcp_segment *s;

	while ((s = h->early) && take(h, s->seq, s->data, s->len)) {
		h->early = s->next;
		h->early_len -= s->len;
		free(s);
	}
}

static void keep_early(struct tcp_half *h, uint32_t seq, const uint8_t *data, size_t len)
{
	struct tcp_segment **at = &h->early, *s = decode_alloc(sizeof(*s) + len);

	s->seq = seq;
	s->len = len;
	memcpy(s->data, data, len);
	while (*at && seq_diff((*at)->seq, seq) <= 0)
		at = &(*at)->next;
	s->next = *at;
	*at = s;
	h->early_len += len;
}

/* Give up on the hole before seq. */
static void skip_to(struct tcp_half *h, uint32_t seq)
{
	h->next = seq;
	exchange_lost(&h->exchange);
}

static void half_input(struct tcp_half *h, const struct frame *f)
{
	uint32_t seq = f->seq;

	if (f->tcp_flags & TCP_SYN)
		seq++;
	if (!h->synced) {
		h->synced = true;
		h->next = seq;
	}
	if (f->payload_len && !take(h, seq, f->payload, f->payload_len))
		keep_early(h, seq, f->payload, f->payload_len);
	/* Bytes that the capture cut off never come. */
	if (f->payload_len < f->claimed_len && h->next == seq + (uint32_t)f->payload_len)
		skip_to(h, seq + (uint32_t)f->claimed_len);
	take_early(h);
	if (h->early_len > EARLY_MAX) {
		skip_to(h, h->early->seq);
		take_early(h);
	}
}

struct tcp_conn *tcp_input(struct tcp_table *t, const struct frame *f, unsigned *side, bool *new)
{
	struct tcp_conn **bucket = bucket_of(t, f);
	struct tcp_conn *c = find(*bucket, f, side);
	bool syn = (f->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;

	*new = !c || (syn && (c->half[0].closed || c->half[1].closed));
	if (*new) {
		*side = guess_side(f);
		c = add(t, bucket, f, *side);
	}
	half_input(&c->half[*side], f);
	return c;
}

bool tcp_next_message(struct tcp_conn *c, unsigned side, struct message *m)
{
	struct tcp_half *h = &c->half[side];
	size_t used;

	if (h->len == 0)
		return false;
	used = exchange_next(&h->exchange, &c->half[!side].exchange, h->buf, h->len, m);
	memmove(h->buf, h->buf + used, h->len - used);
	h->len -= used;
	return used > 0;
}
