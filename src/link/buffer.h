/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A growing byte buffer with a sticky failure, so that an encoder checks once at its end. Grows
 * with what is really put in, never with a length that a peer announced.
 */
#ifndef ROCELINK_LINK_BUFFER_H
#define ROCELINK_LINK_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
	uint8_t *data;
	size_t len, cap;
	bool failed; /* out of memory: data is a prefix of what was put in */
};

/* Room for n more bytes, or NULL; len grows by n. */
static inline uint8_t *buffer_grow(struct buffer *b, size_t n)
{
	if (b->failed)
		return NULL;
	if (b->cap - b->len < n) {
		size_t cap = b->cap ? b->cap : 256;
		uint8_t *data;

		while (cap - b->len < n)
			cap *= 2;
		data = realloc(b->data, cap);
		if (!data) {
			b->failed = true;
			return NULL;
		}
		b->data = data;
		b->cap = cap;
	}
	b->len += n;
	return b->data + b->len - n;
}

static inline void buffer_put(struct buffer *b, const void *data, size_t n)
{
	uint8_t *to = n ? buffer_grow(b, n) : NULL;

	if (to)
		memcpy(to, data, n);
}

static inline void buffer_put_uint(struct buffer *b, uint64_t value, unsigned bytes)
{
	uint8_t *to = buffer_grow(b, bytes);

	for (unsigned i = bytes; to && i-- > 0; value >>= 8)
		to[i] = (uint8_t)value;
}

/* Drop the first n bytes. */
static inline void buffer_consume(struct buffer *b, size_t n)
{
	b->len -= n;
	if (b->len)
		memmove(b->data, b->data + n, b->len);
}

static inline void buffer_free(struct buffer *b)
{
	free(b->data); // NOLINT(clang-analyzer-unix.Malloc): it takes realloc()'s old block for ours
	memset(b, 0, sizeof(*b));
}

/* A bounded reader: reads beyond the end give 0 and set `failed`. */
struct reader {
	const uint8_t *p;
	size_t left;
	bool failed;
};

static inline uint64_t reader_uint(struct reader *r, unsigned bytes)
{
	uint64_t value = 0;

	if (r->left < bytes) {
		r->failed = true;
		r->left = 0;
		return 0;
	}
	for (unsigned i = 0; i < bytes; i++)
		value = value << 8 | r->p[i];
	r->p += bytes;
	r->left -= bytes;
	return value;
}

/* The next n bytes, or NULL. */
static inline const uint8_t *reader_bytes(struct reader *r, size_t n)
{
	const uint8_t *p = r->p;

	if (r->left < n) {
		r->failed = true;
		r->left = 0;
		return NULL;
	}
	r->p += n;
	r->left -= n;
	return p;
}

#endif
