/* SPDX-License-Identifier: BSD-2-Clause */
#include "check.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#include "link/base32.h"
#include "link/ticket.h"

static char why[200];

static void check_value_of_crc24(void **state)
{
	(void)state;
	/* The usual check input of CRC catalogues, CRC-24/OPENPGP. */
	assert_int_equal(crc24((const uint8_t *)"123456789", 9), 0x21cf02);
	assert_int_equal(crc24(NULL, 0), 0xb704ce);
}

static void base32_round_trip(void **state)
{
	struct rng r = { 3 };

	(void)state;
	for (size_t len = 1; len < 200; len++) {
		uint8_t data[200];
		char text[500];
		struct buffer back = { 0 };

		for (size_t i = 0; i < len; i++)
			data[i] = (uint8_t)rng_next(&r);
		assert_int_equal(base32_encode(text, sizeof(text), data, len), 0);
		assert_int_equal(base32_decode(&back, text), 0);
		assert_int_equal(back.len, len);
		assert_memory_equal(back.data, data, len);
		buffer_free(&back);
	}
}

static void base32_forgives_what_people_do(void **state)
{
	struct buffer a = { 0 }, b = { 0 };

	(void)state;
	assert_int_equal(base32_decode(&a, "0110-abcd-XYZ0-0000"), 0);
	assert_int_equal(base32_decode(&b, "oiLO abcd xyz00000\n"), 0);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.data, b.data, a.len);
	buffer_free(&a);
	buffer_free(&b);
	assert_int_equal(base32_decode(&a, "0U00"), -EINVAL);
	buffer_free(&a);
	assert_int_equal(base32_decode(&a, "000"), -EBADMSG);
	buffer_free(&a);
}

static void simple_hello(struct message *m)
{
	static const uint8_t gid[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7 };
	struct qp_values q = {
		.type = WIRE_RC,
		.mtu = IBV_MTU_1024,
		.initiator_depth = 16,
		.responder_depth = 16,
		.qpn = 0x123456,
		.psn = 0x789abc,
	};

	message_init(m, FRAME_HELLO);
	m->gid_count = 1;
	m->gids[0].kind = ROCELINK_GID_ROCE_V2;
	memcpy(m->gids[0].gid, gid, sizeof(gid));
	assert_true(message_add_qp(m, &q));
}

static void short_enough_to_be_called_across_a_room(void **state)
{
	struct message m, back;
	char text[ROCELINK_MAX_TICKET];

	(void)state;
	simple_hello(&m);
	assert_int_equal(ticket_encode(&m, text, sizeof(text)), 0);
	/* 29 characters in 8 groups, 7 dashes, the prefix: as the protocol's description promises.
	 */
	assert_int_equal(strlen(text), 4 + 29 + 7);
	assert_int_equal(ticket_decode(text, &back, why, sizeof(why)), 0);
	assert_memory_equal(&back.qps[0], &m.qps[0], sizeof(m.qps[0]));
	assert_memory_equal(back.gids[0].gid, m.gids[0].gid, 16);
	message_free(&m);
	message_free(&back);
}

/* A constant, so that the format does not change by accident. */
static void format_is_fixed(void **state)
{
	struct message m;
	char text[ROCELINK_MAX_TICKET];

	(void)state;
	simple_hello(&m);
	assert_int_equal(ticket_encode(&m, text, sizeof(text)), 0);
	assert_string_equal(text, "RL1-3Q00-00G7-04CH-4D2P-F2DB-R40G-V2X4-A");
	message_free(&m);
}

static void random_tickets_come_back(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct rng r = { seed };
		struct message m, back;
		char text[ROCELINK_MAX_TICKET];
		unsigned n = 1 + (unsigned)rng_below(&r, TICKET_MAX_QPS);

		message_init(&m, FRAME_HELLO);
		m.gid_count = 1;
		m.gids[0].kind = (uint8_t)(1 + rng_below(&r, 3));
		m.gids[0].lid = m.gids[0].kind == ROCELINK_GID_IB ? (uint16_t)rng_next(&r) : 0;
		for (unsigned i = 0; i < 16; i++)
			m.gids[0].gid[i] = (uint8_t)rng_next(&r);
		for (unsigned i = 0; i < n; i++) {
			struct qp_values q = { .type = (uint8_t)(1 + rng_below(&r, 5)),
					       .mtu = (uint8_t)(1 + rng_below(&r, 5)) };

			q.qpn = (uint32_t)rng_below(&r, 1 << 24);
			q.psn = (uint32_t)rng_below(&r, 1 << 24);
			if (q.type != WIRE_UC && q.type != WIRE_UD) {
				q.initiator_depth = (uint8_t)rng_next(&r);
				q.responder_depth = (uint8_t)rng_next(&r);
			}
			if (q.type == WIRE_UD)
				q.qkey = (uint32_t)rng_next(&r);
			if (q.type == WIRE_XRC_TGT)
				q.srqn = (uint32_t)rng_below(&r, 1 << 24);
			q.ops = rng_below(&r, 2) ? (uint8_t)rng_next(&r) : 0;
			if (rng_below(&r, 2)) {
				q.wishes = (uint8_t)(1 + rng_below(&r, 63));
				q.timeout = (uint8_t)rng_below(&r, 32);
				q.retry = (uint8_t)rng_below(&r, 8);
				q.hop_limit = (uint8_t)rng_next(&r);
			}
			assert_true(message_add_qp(&m, &q));
		}
		for (uint64_t i = rng_below(&r, TICKET_MAX_REGIONS + 1); i; i--) {
			struct region_value g = { .addr = rng_next(&r) >> 1,
						  .length = rng_next(&r) >> 1 };

			g.rkey = (uint32_t)rng_next(&r);
			g.access = (uint32_t)rng_below(&r, 16);
			snprintf(g.name, sizeof(g.name), "region %lu", (unsigned long)i);
			assert_true(message_add_region(&m, &g));
		}
		assert_int_equal(ticket_encode(&m, text, sizeof(text)), 0);
		assert_int_equal(ticket_decode(text, &back, why, sizeof(why)), 0);
		assert_int_equal(back.qp_count, m.qp_count);
		for (unsigned i = 0; i < m.qp_count; i++)
			assert_memory_equal(&back.qps[i], &m.qps[i], sizeof(m.qps[i]));
		assert_int_equal(back.region_count, m.region_count);
		for (unsigned i = 0; i < m.region_count; i++)
			assert_string_equal(back.regions[i].name, m.regions[i].name);
		assert_int_equal(back.gids[0].lid, m.gids[0].lid);
		assert_memory_equal(back.gids[0].gid, m.gids[0].gid, 16);
		message_free(&m);
		message_free(&back);
	}
}

/* A wrong, missing, additional or swapped character is always noticed. */
static void slips_are_noticed(void **state)
{
	static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
	struct message m, back;
	char good[ROCELINK_MAX_TICKET], bad[ROCELINK_MAX_TICKET + 2];

	(void)state;
	simple_hello(&m);
	assert_int_equal(ticket_encode(&m, good, sizeof(good)), 0);
	for (size_t i = 4; good[i]; i++) {
		if (good[i] == '-')
			continue;
		for (size_t d = 0; d < 32; d++) {
			if (digits[d] == good[i])
				continue;
			strcpy(bad, good);
			bad[i] = digits[d];
			assert_int_equal(ticket_decode(bad, &back, why, sizeof(why)), -EINVAL);
			message_free(&back);
		}
		strcpy(bad, good);
		memmove(bad + i, bad + i + 1, strlen(bad + i));
		assert_int_equal(ticket_decode(bad, &back, why, sizeof(why)), -EINVAL);
		message_free(&back);
		strcpy(bad, good);
		memmove(bad + i + 1, bad + i, strlen(bad + i) + 1);
		assert_int_equal(ticket_decode(bad, &back, why, sizeof(why)), -EINVAL);
		message_free(&back);
	}
	message_free(&m);
}

static void each_refusal_has_a_sentence(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ "", "RL1-" },
		{ "hello", "RL1-" },
		{ "RL2-0000", "RL1-" },
		{ "RL1-", "short" },
		{ "RL1-00U0", "character" },
		{ "RL1-0000-0000-0000", "check digits" },
	};
	struct message m;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(ticket_decode(cases[i].text, &m, why, sizeof(why)), -EINVAL);
		assert_contains(why, cases[i].why);
		message_free(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_value_of_crc24),
		cmocka_unit_test(base32_round_trip),
		cmocka_unit_test(base32_forgives_what_people_do),
		cmocka_unit_test(short_enough_to_be_called_across_a_room),
		cmocka_unit_test(format_is_fixed),
		cmocka_unit_test(random_tickets_come_back),
		cmocka_unit_test(slips_are_noticed),
		cmocka_unit_test(each_refusal_has_a_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
