/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring of the same-host path: order and contents, full and empty, wake-ups, hostile ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/units.h"
#include "net/pring.h"
#include "wire/packet.h"

struct ends {
	struct pring_shared *shared;
	struct pring_producer out;
	struct pring_consumer in;
	uint32_t random;
	uint32_t sent, taken; /* packets */
};

static int setup(void **state)
{
	struct ends *e = calloc(1, sizeof(*e));

	e->shared = aligned_alloc(64, sizeof(*e->shared));
	memset(e->shared, 0, sizeof(*e->shared));
	pring_producer_init(&e->out, e->shared);
	pring_consumer_init(&e->in, e->shared);
	e->random = 1;
	*state = e;
	return 0;
}

static int teardown(void **state)
{
	struct ends *e = *state;

	free(e->shared);
	free(e);
	return 0;
}

static uint32_t random_u32(struct ends *e)
{
	e->random = e->random * 1664525u + 1013904223u;
	return e->random >> 8;
}

static struct path path_number(uint8_t n)
{
	return (struct path){ .sgid = { { [15] = n } },
			      .dgid = { { [15] = 7 } },
			      .ifindex = n,
			      .flow_label = 5,
			      .traffic_class = 3,
			      .hop_limit = 9 };
}

/* Packet number `sent`: its length and bytes are functions of the number. */
static uint32_t length_of(uint32_t number)
{
	return (16 + number * 2654435761u % RING_MTU) & ~3u;
}

static bool put(struct ends *e)
{
	uint32_t len = length_of(e->sent);
	struct path path = path_number((uint8_t)(e->sent / 3));
	struct outbox *box = pring_open(&e->out);
	uint8_t *at = box ? outbox_reserve(box, &path, len) : NULL;

	if (!at)
		return false;
	memset(at, (int)(e->sent & 0xff), len);
	outbox_commit(box, len);
	e->sent++;
	return true;
}

static void check_packet(struct ends *e, const struct burst *b, const uint8_t *data, size_t len)
{
	struct path want = path_number((uint8_t)(e->taken / 3));

	assert_int_equal(len, length_of(e->taken) + ICRC_LEN);
	assert_true(path_eq(&b->path, &want));
	assert_true(b->path.local);
	for (size_t i = 0; i < len - ICRC_LEN; i++)
		assert_int_equal(data[i], e->taken & 0xff);
	e->taken++;
}

static bool take(struct ends *e)
{
	struct burst b;

	if (!pring_peek(&e->in, &b))
		return false;
	for (size_t at = 0; at < b.len; at += b.seg_len)
		check_packet(e, &b, b.data + at, b.len - at < b.seg_len ? b.len - at : b.seg_len);
	pring_consume(&e->in);
	return true;
}

static void fill(struct ends *e)
{
	do {
		while (put(e))
			;
		pring_publish(&e->out);
	} while (!e->out.broken && pring_has_room(&e->out));
}

/* Random turns: everything arrives once, in order and whole, whatever wraps and fills up. */
static void everything_arrives_in_order(void **state)
{
	struct ends *e = *state;
	bool was_full = false;

	while (e->sent < 20000) {
		for (uint32_t n = random_u32(e) % 40; n; n--) {
			if (put(e))
				continue;
			pring_publish(&e->out);
			was_full = was_full || !pring_open(&e->out);
		}
		if (random_u32(e) % 2)
			pring_publish(&e->out);
		for (uint32_t n = random_u32(e) % 30; n && take(e); n--)
			;
	}
	pring_publish(&e->out);
	while (take(e))
		;
	assert_int_equal(e->taken, e->sent);
	assert_true(was_full);
	assert_false(e->out.broken || e->in.broken);
}

/* Many small packets of different paths: slots run out before bytes do. */
static void slots_run_out(void **state)
{
	struct ends *e = *state;
	unsigned groups = 0;

	for (; groups < 4 * RING_SLOTS; groups++) {
		struct outbox *box = pring_open(&e->out);
		struct path path = path_number((uint8_t)groups);
		uint8_t *at = box ? outbox_reserve(box, &path, 16) : NULL;

		if (!at && box) {
			pring_publish(&e->out);
			groups--;
			continue;
		}
		if (!box)
			break;
		memset(at, 0, 16);
		outbox_commit(box, 16);
	}
	assert_true(groups <= RING_SLOTS && groups > RING_SLOTS / 2);
	for (unsigned i = 0; i < groups; i++) {
		struct burst b;

		assert_true(pring_peek(&e->in, &b));
		pring_consume(&e->in);
	}
	assert_true(pring_empty(&e->in));
	assert_non_null(pring_open(&e->out));
}

static void a_sleeper_is_woken_once(void **state)
{
	struct ends *e = *state;

	assert_true(put(e));
	assert_false(pring_publish(&e->out));		   /* awake */
	assert_false(pring_consumer_sleeps(&e->in, true)); /* something is there */
	assert_true(take(e));
	assert_true(pring_consumer_sleeps(&e->in, true));
	assert_true(put(e));
	assert_true(pring_publish(&e->out));
	assert_true(put(e));
	assert_false(pring_publish(&e->out)); /* it was woken already */
}

static void a_waiting_producer_is_woken(void **state)
{
	struct ends *e = *state;

	fill(e);
	assert_false(pring_wakes_producer(&e->in)); /* it doesn't wait */
	assert_true(pring_producer_sleeps(&e->out));
	while (take(e))
		;
	assert_true(pring_wakes_producer(&e->in));
	assert_false(pring_wakes_producer(&e->in));
	assert_false(pring_producer_sleeps(&e->out)); /* there is room */
}

/* A consumer that claims to have consumed what was never sent. */
static void a_lying_consumer_breaks_the_ring(void **state)
{
	struct ends *e = *state;

	fill(e);
	e->shared->head = RING_SLOTS;
	assert_null(pring_open(&e->out));
	assert_true(e->out.broken);
	assert_true(pring_has_room(&e->out)); /* so that somebody looks */
}

static void a_consumer_that_goes_back_breaks_the_ring(void **state)
{
	struct ends *e = *state;

	fill(e);
	while (take(e))
		;
	assert_non_null(pring_open(&e->out));
	e->shared->head = 0;
	fill(e);
	assert_null(pring_open(&e->out));
	assert_true(e->out.broken);
}

static void put_tiny(struct ends *e, uint8_t path_n, uint32_t len, uint8_t fill)
{
	struct path path = path_number(path_n);
	struct outbox *box = pring_open(&e->out);
	uint8_t *at = outbox_reserve(box, &path, len);

	memset(at, fill, len);
	outbox_commit(box, len);
	pring_publish(&e->out);
}

/* The path is in the slot of a burst that changes it, and in that of one which needs the room. */
static void tiny_bursts_take_the_place_of_their_path(void **state)
{
	static const struct {
		uint8_t path;
		uint32_t len;
		bool in_desc;
	} bursts[] = {
		{ 1, 16, false }, { 1, 16, true },
		{ 1, 20, true },  { 1, RING_TINY - ICRC_LEN, true },
		{ 1, 48, false }, { 2, 16, false },
		{ 1, 16, false }, { 1, RING_SHORT, false },
		{ 1, 16, true },
	};
	struct ends *e = *state;

	for (uint8_t i = 0; i < ARRAY_LEN(bursts); i++)
		put_tiny(e, bursts[i].path, bursts[i].len, i);
	for (uint8_t i = 0; i < ARRAY_LEN(bursts); i++) {
		struct path want = path_number(bursts[i].path);
		struct burst b;

		assert_true(pring_peek(&e->in, &b));
		assert_int_equal(e->shared->slots[i].desc.offset == RING_IN_DESC,
				 bursts[i].in_desc);
		assert_true(path_eq(&b.path, &want));
		assert_true(b.path.local);
		assert_int_equal(b.len, bursts[i].len + ICRC_LEN);
		for (uint32_t at = 0; at < bursts[i].len; at++)
			assert_int_equal(b.data[at], i);
		pring_consume(&e->in);
	}
}

/* The consumer checks and gives out its own copy: a producer that writes on changes nothing. */
static void a_tiny_burst_does_not_change_any_more(void **state)
{
	struct ends *e = *state;
	struct burst b;

	put_tiny(e, 1, 16, 0x11);
	put_tiny(e, 1, 16, 0x22);
	assert_true(pring_peek(&e->in, &b));
	pring_consume(&e->in);
	assert_true(pring_peek(&e->in, &b));
	memset(e->shared->slots[1].desc.tiny, 0x33, RING_TINY);
	assert_int_equal(b.data[0], 0x22);
}

static void a_tiny_burst_too_long_breaks_the_ring(void **state)
{
	struct ends *e = *state;
	struct burst b;

	put_tiny(e, 1, 16, 0);
	put_tiny(e, 1, 16, 0);
	e->shared->slots[1].desc.len = RING_TINY + 4;
	assert_true(pring_peek(&e->in, &b));
	pring_consume(&e->in);
	assert_false(pring_peek(&e->in, &b));
	assert_true(e->in.broken);
}

/* Descriptors that name memory outside the data area, or nonsense. */
static void a_lying_producer_breaks_the_ring(void **state)
{
	static const struct {
		uint32_t offset, len, seg_len;
	} lies[] = {
		{ RING_DATA, 64, 64 },
		{ RING_DATA - 32, 64, 64 },
		{ 0xfffffff0u, 64, 64 },
		{ 0, RING_DATA + 4, 64 },
		{ 16, RING_DATA, 64 },
		{ 0, 0xffffffffu, 64 },
		{ 0, 0, 0 },
		{ 0, 64, 0 },
		{ 0, 64, 65 },
		{ 0, BTH_LEN, BTH_LEN },
		{ 0, 64, BTH_LEN + ICRC_LEN - 1 },
		{ RING_IN_SLOT, RING_SHORT + 1, 32 },
		{ RING_IN_SLOT, 0, 0 },
		{ RING_IN_DESC, 20, 20 }, /* no burst before it told a path */
		{ RING_IN_DESC - 1, 20, 20 },
	};

	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		struct ends *e = *state;
		struct burst b;

		pring_consumer_init(&e->in, e->shared);
		e->shared->head = 0;
		e->shared->slots[0].desc = (struct pring_desc){ .sequence = 1,
								.offset = lies[i].offset,
								.len = lies[i].len,
								.seg_len = lies[i].seg_len };
		assert_false(pring_peek(&e->in, &b));
		assert_true(e->in.broken);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(everything_arrives_in_order),
		T(slots_run_out),
		T(a_sleeper_is_woken_once),
		T(a_waiting_producer_is_woken),
		T(a_lying_consumer_breaks_the_ring),
		T(a_consumer_that_goes_back_breaks_the_ring),
		T(a_lying_producer_breaks_the_ring),
		T(tiny_bursts_take_the_place_of_their_path),
		T(a_tiny_burst_does_not_change_any_more),
		T(a_tiny_burst_too_long_breaks_the_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
