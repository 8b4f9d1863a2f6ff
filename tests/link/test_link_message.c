/* SPDX-License-Identifier: BSD-2-Clause */
#include "check.h"

#include <errno.h>
#include <stdio.h>

#include "link/message.h"

static char why[200];

static void random_name(struct rng *r, char *name)
{
	size_t len = 1 + rng_below(r, ROCELINK_MAX_NAME);

	for (size_t i = 0; i < len; i++)
		name[i] = (char)(0x20 + rng_below(r, 0x5f));
	name[len] = '\0';
}

static struct qp_values random_qp(struct rng *r)
{
	return (struct qp_values){
		.type = (uint8_t)(1 + rng_below(r, 5)),
		.mtu = (uint8_t)(1 + rng_below(r, 5)),
		.initiator_depth = (uint8_t)rng_next(r),
		.responder_depth = (uint8_t)rng_next(r),
		.qpn = (uint32_t)rng_below(r, 1 << 24),
		.psn = (uint32_t)rng_below(r, 1 << 24),
		.qkey = (uint32_t)rng_next(r),
		.srqn = (uint32_t)rng_below(r, 1 << 24),
		.ops = (uint8_t)rng_next(r),
		.wishes = (uint8_t)rng_next(r),
		.timeout = (uint8_t)rng_below(r, 32),
		.retry = (uint8_t)rng_below(r, 8),
		.rnr_retry = (uint8_t)rng_below(r, 8),
		.hop_limit = (uint8_t)rng_next(r),
		.traffic_class = (uint8_t)rng_next(r),
		.service_level = (uint8_t)rng_below(r, 16),
	};
}

static void random_hello(struct rng *r, struct message *m)
{
	unsigned qps = 1 + (unsigned)rng_below(r, rng_below(r, 10) ? 8 : ROCELINK_MAX_QPS);
	unsigned regions = (unsigned)rng_below(r, rng_below(r, 10) ? 8 : ROCELINK_MAX_REGIONS);
	uint8_t data[ROCELINK_MAX_PRIVATE_DATA];
	uint8_t nonce[NONCE_LEN];

	message_init(m, FRAME_HELLO);
	for (unsigned i = 0; i < qps; i++) {
		struct qp_values q = random_qp(r);

		assert_true(message_add_qp(m, &q));
	}
	m->gid_count = 1 + (unsigned)rng_below(r, MAX_GIDS);
	m->has |= 1u << FIELD_GID;
	for (unsigned i = 0; i < m->gid_count; i++) {
		m->gids[i].kind = (uint8_t)(1 + rng_below(r, 3));
		m->gids[i].lid = (uint16_t)rng_next(r);
		for (unsigned b = 0; b < 16; b++)
			m->gids[i].gid[b] = (uint8_t)rng_next(r);
	}
	for (unsigned i = 0; i < regions; i++) {
		struct region_value g = { .addr = rng_next(r) >> 1, .length = rng_next(r) >> 1 };

		g.rkey = (uint32_t)rng_next(r);
		g.access = (uint32_t)rng_next(r);
		random_name(r, g.name);
		assert_true(message_add_region(m, &g));
	}
	if (rng_below(r, 2)) {
		random_name(r, m->service_name);
		m->has |= 1u << FIELD_SERVICE_NAME;
	}
	if (rng_below(r, 2)) {
		for (unsigned b = 0; b < NONCE_LEN; b++)
			nonce[b] = (uint8_t)rng_next(r);
		message_set_echo(m, nonce);
		m->peer_gid = (uint8_t)rng_below(r, MAX_GIDS);
		m->has |= 1u << FIELD_PEER_GID;
	}
	if (rng_below(r, 2)) {
		size_t len = rng_below(r, sizeof(data) + 1);

		for (size_t i = 0; i < len; i++)
			data[i] = (uint8_t)rng_next(r);
		assert_true(message_set_private_data(m, data, len));
	}
}

static int decode_frame(struct message *m, const struct buffer *b)
{
	struct reader r = { .p = b->data, .left = b->len };
	uint16_t type = (uint16_t)reader_uint(&r, 2), flags = (uint16_t)reader_uint(&r, 2);
	size_t len = (size_t)reader_uint(&r, 4);

	assert_int_equal(len, r.left);
	return message_decode(m, type, flags, r.p, len, why, sizeof(why));
}

static void assert_same(const struct message *a, const struct message *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->has, b->has);
	assert_int_equal(a->qp_count, b->qp_count);
	for (unsigned i = 0; i < a->qp_count; i++)
		assert_memory_equal(&a->qps[i], &b->qps[i], sizeof(a->qps[i]));
	assert_int_equal(a->gid_count, b->gid_count);
	for (unsigned i = 0; i < a->gid_count; i++) {
		assert_int_equal(a->gids[i].kind, b->gids[i].kind);
		assert_int_equal(a->gids[i].lid, b->gids[i].lid);
		assert_memory_equal(a->gids[i].gid, b->gids[i].gid, 16);
	}
	assert_int_equal(a->region_count, b->region_count);
	for (unsigned i = 0; i < a->region_count; i++) {
		assert_int_equal(a->regions[i].addr, b->regions[i].addr);
		assert_int_equal(a->regions[i].length, b->regions[i].length);
		assert_int_equal(a->regions[i].rkey, b->regions[i].rkey);
		assert_int_equal(a->regions[i].access, b->regions[i].access);
		assert_string_equal(a->regions[i].name, b->regions[i].name);
	}
	assert_string_equal(a->service_name, b->service_name);
	assert_string_equal(a->name, b->name);
	assert_string_equal(a->text, b->text);
	assert_memory_equal(a->echo, b->echo, NONCE_LEN);
	assert_int_equal(a->reason, b->reason);
	assert_int_equal(a->qp_index, b->qp_index);
	assert_int_equal(a->app_reason, b->app_reason);
	assert_int_equal(a->private_data_len, b->private_data_len);
	if (a->private_data_len)
		assert_memory_equal(a->private_data, b->private_data, a->private_data_len);
}

static void hello_comes_back_as_it_went(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct rng r = { seed };
		struct buffer b = { 0 };
		struct message m, back;

		random_hello(&r, &m);
		message_encode(&b, &m);
		assert_false(b.failed);
		assert_int_equal(decode_frame(&back, &b), 0);
		assert_same(&m, &back);
		message_free(&m);
		message_free(&back);
		buffer_free(&b);
	}
}

/* The largest HELLO that the limits allow fits into a frame. */
static void largest_hello_fits(void **state)
{
	uint8_t data[ROCELINK_MAX_PRIVATE_DATA] = { 0 };
	struct qp_values q = { .type = WIRE_RC, .mtu = IBV_MTU_1024 };
	struct region_value g = { 0 };
	struct buffer b = { 0 };
	struct message m, back;

	(void)state;
	message_init(&m, FRAME_HELLO);
	memset(g.name, 'n', ROCELINK_MAX_NAME);
	memset(m.service_name, 's', ROCELINK_MAX_NAME);
	memset(m.agent, 'a', ROCELINK_MAX_NAME);
	m.gid_count = MAX_GIDS;
	for (unsigned i = 0; i < MAX_GIDS; i++)
		m.gids[i].kind = ROCELINK_GID_ROCE_V2;
	m.has |= 1u << FIELD_GID | 1u << FIELD_SERVICE_NAME | 1u << FIELD_AGENT;
	for (unsigned i = 0; i < ROCELINK_MAX_QPS; i++)
		assert_true(message_add_qp(&m, &q));
	assert_false(message_add_qp(&m, &q));
	for (unsigned i = 0; i < ROCELINK_MAX_REGIONS; i++)
		assert_true(message_add_region(&m, &g));
	assert_false(message_add_region(&m, &g));
	assert_true(message_set_private_data(&m, data, sizeof(data)));
	message_encode(&b, &m);
	assert_false(b.failed);
	assert_int_equal(decode_frame(&back, &b), 0);
	message_free(&m);
	message_free(&back);
	buffer_free(&b);
}

/* Any damage gives a message with values in range, or a refusal; never more. */
static void damaged_bytes_are_refused_or_harmless(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3000; seed++) {
		struct rng r = { seed };
		struct buffer b = { 0 };
		struct message m, back;
		int rc;

		random_hello(&r, &m);
		message_encode(&b, &m);
		for (uint64_t n = 1 + rng_below(&r, 4); n; n--)
			b.data[FRAME_HEADER_LEN + rng_below(&r, b.len - FRAME_HEADER_LEN)] =
				(uint8_t)rng_next(&r);
		rc = decode_frame(&back, &b);
		assert_true(rc == 0 || rc == -EPROTO);
		if (rc == 0) {
			assert_in_range(back.qp_count, 1, ROCELINK_MAX_QPS);
			assert_in_range(back.gid_count, 1, MAX_GIDS);
			for (unsigned i = 0; i < back.qp_count; i++) {
				assert_in_range(back.qps[i].type, WIRE_RC, WIRE_XRC_TGT);
				assert_in_range(back.qps[i].mtu, IBV_MTU_256, IBV_MTU_4096);
				assert_in_range(back.qps[i].qpn, 0, 0xffffff);
			}
		}
		message_free(&m);
		message_free(&back);
		buffer_free(&b);
	}
}

static void each_truncation_is_refused(void **state)
{
	struct rng r = { 7 };
	struct buffer b = { 0 };
	struct message m, back;

	(void)state;
	random_hello(&r, &m);
	message_encode(&b, &m);
	for (size_t len = 0; len + FRAME_HEADER_LEN < b.len; len++) {
		int rc = message_decode(&back, FRAME_HELLO, 0, b.data + FRAME_HEADER_LEN, len, why,
					sizeof(why));

		/* Cut between two fields it may still be a whole HELLO; then all that must be there
		 * is. */
		if (rc == 0)
			assert_true(back.qp_count && back.gid_count);
		else
			assert_int_equal(rc, -EPROTO);
		message_free(&back);
	}
	message_free(&m);
	buffer_free(&b);
}

static void put_sync(struct buffer *b, unsigned extra_type, const char *extra, size_t extra_len)
{
	buffer_put_uint(b, FIELD_NAME, 2);
	buffer_put_uint(b, 4, 2);
	buffer_put(b, "name", 4);
	buffer_put_uint(b, FIELD_STATUS, 2);
	buffer_put_uint(b, 8, 2);
	buffer_put(b, "\0\0\xff\xff\0\0\0", 8);
	if (extra) {
		buffer_put_uint(b, extra_type, 2);
		buffer_put_uint(b, extra_len, 2);
		buffer_put(b, extra, extra_len);
	}
}

static int decode_sync(unsigned extra_type, const char *extra, size_t extra_len, struct message *m)
{
	struct buffer b = { 0 };
	int rc;

	put_sync(&b, extra_type, extra, extra_len);
	rc = message_decode(m, FRAME_SYNC, 0, b.data, b.len, why, sizeof(why));
	message_free(m);
	buffer_free(&b);
	return rc;
}

static void unknown_fields_are_ignored_unless_critical(void **state)
{
	struct message m;

	(void)state;
	assert_int_equal(decode_sync(0, NULL, 0, &m), 0);
	assert_string_equal(m.name, "name");
	assert_int_equal(decode_sync(0x7abc, "new", 3, &m), 0);
	assert_int_equal(decode_sync(0x8000 | 0x7abc, "new", 3, &m), -EPROTO);
	assert_contains(why, "critical");
	/* A known field that has no business in this frame counts as unknown. */
	assert_int_equal(decode_sync(FIELD_PRIVATE_DATA, "p", 1, &m), 0);
	assert_false(message_has(&m, FIELD_PRIVATE_DATA));
	/* Known ones may be marked critical. */
	assert_int_equal(decode_sync(0x8000 | FIELD_TEXT, "text", 4, &m), 0);
	assert_string_equal(m.text, "text");
}

static void repeated_field_is_refused(void **state)
{
	struct message m;

	(void)state;
	assert_int_equal(decode_sync(FIELD_NAME, "again", 5, &m), -EPROTO);
	assert_contains(why, "twice");
}

static void fixed_field_may_grow_but_not_shrink(void **state)
{
	struct message m;
	struct buffer b = { 0 };

	(void)state;
	buffer_put_uint(&b, FIELD_STATUS, 2);
	buffer_put_uint(&b, 10, 2);
	buffer_put(&b, "\0\7\0\1\0\0\0\5zz", 10);
	assert_int_equal(message_decode(&m, FRAME_DECLINE, 0, b.data, b.len, why, sizeof(why)), 0);
	assert_int_equal(m.reason, ROCELINK_REASON_AUTH);
	assert_int_equal(m.qp_index, 1);
	assert_int_equal(m.app_reason, 5);
	b.data[3] = 7;
	assert_int_equal(message_decode(&m, FRAME_DECLINE, 0, b.data, 11, why, sizeof(why)),
			 -EPROTO);
	buffer_free(&b);
}

static void missing_field_is_named(void **state)
{
	struct message m;

	(void)state;
	assert_int_equal(message_decode(&m, FRAME_WITHDRAW, 0, NULL, 0, why, sizeof(why)), -EPROTO);
	assert_string_equal(why, "WITHDRAW without NAME");
	assert_int_equal(message_decode(&m, FRAME_BYE, 0, NULL, 0, why, sizeof(why)), 0);
}

static void unknown_frames_are_ignored_unless_critical(void **state)
{
	struct message m;

	(void)state;
	assert_int_equal(message_decode(&m, 99, 0, (const uint8_t *)"x", 1, why, sizeof(why)), 1);
	assert_int_equal(message_decode(&m, 99, 0x8000, NULL, 0, why, sizeof(why)), -EPROTO);
	assert_int_equal(message_decode(&m, 0, 0, NULL, 0, why, sizeof(why)), 1);
}

static void text_is_cleaned_and_nul_refused(void **state)
{
	struct message m;

	(void)state;
	assert_int_equal(decode_sync(FIELD_TEXT, "a\x1b[31m\nb", 8, &m), 0);
	assert_string_equal(m.text, "a?[31m?b");
	assert_int_equal(decode_sync(FIELD_TEXT, "a\0b", 3, &m), -EPROTO);
}

static void unknown_reason_counts_as_local(void **state)
{
	struct message m;

	(void)state;
	assert_int_equal(message_decode(&m, FRAME_DECLINE, 0,
					(const uint8_t *)"\0\11\0\10\1\0\0\0\0\0\0\0", 12, why,
					sizeof(why)),
			 0);
	assert_int_equal(m.reason, ROCELINK_REASON_LOCAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_comes_back_as_it_went),
		cmocka_unit_test(largest_hello_fits),
		cmocka_unit_test(damaged_bytes_are_refused_or_harmless),
		cmocka_unit_test(each_truncation_is_refused),
		cmocka_unit_test(unknown_fields_are_ignored_unless_critical),
		cmocka_unit_test(repeated_field_is_refused),
		cmocka_unit_test(fixed_field_may_grow_but_not_shrink),
		cmocka_unit_test(missing_field_is_named),
		cmocka_unit_test(unknown_frames_are_ignored_unless_critical),
		cmocka_unit_test(text_is_cleaned_and_nul_refused),
		cmocka_unit_test(unknown_reason_counts_as_local),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
