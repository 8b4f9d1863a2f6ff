/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that breaks off, lies, repeats itself or says nothing, in each phase: this side always
 * ends with an error that says so, within its deadline, with its queue pair back in RESET and
 * bounded memory.
 */
#include "check.h"

#include "link/conn.h"
#include "pair.h"

static struct pair p;

/* A good conversation up to ESTABLISHED, and what each side said in it. */
static void record(struct buffer said[2])
{
	memset(said, 0, 2 * sizeof(said[0]));
	pair_establish(&p);
	for (int i = 0; i < 2; i++)
		buffer_put(&said[i], p.ends[i].sent.data, p.ends[i].sent.len);
	pair_free(&p);
}

/* One side real, the other's bytes from a buffer. */
static void open_against(int real, const void *bytes, size_t len, bool then_end)
{
	struct rocelink_channel ch;
	struct side *s = &p.side[real];

	pair_init(&p);
	buffer_put(&p.ends[1 - real].sent, bytes, len);
	p.ends[1 - real].shut = then_end;
	ch = mem_channel(&p.ends[real]);
	s->conn = rocelink_dial_channel(&ch, s->role, &s->options, &s->err);
	if (!s->conn)
		fail_msg("%s", s->err.text);
	rocelink_conn_drive(s->conn, &s->err);
	if (rocelink_conn_state(s->conn) <= ROCELINK_STATE_REQUESTED)
		side_start(s, IBV_QPT_RC, 1);
	rocelink_conn_drive(s->conn, &s->err);
}

static void assert_ended(int real)
{
	struct side *s = &p.side[real];

	assert_int_equal(rocelink_conn_state(s->conn), ROCELINK_STATE_FAILED);
	assert_true(rocelink_conn_error(s->conn)->text[0] != '\0');
	assert_int_not_equal(s->qps[0].state, IBV_QPS_RTS);
	assert_int_not_equal(s->qps[0].state, IBV_QPS_INIT);
}

/* The peer dies after each possible number of bytes; and, without dying, falls silent there. */
static void stops_at_every_byte(void **state)
{
	struct buffer said[2];
	uint64_t late = link_now() + 100ull * 1000000000;

	(void)state;
	for (int real = 0; real < 2; real++) {
		struct buffer *peer;

		record(said);
		peer = &said[1 - real];
		for (size_t len = 0; len < peer->len; len++) {
			open_against(real, peer->data, len, true);
			assert_ended(real);
			pair_free(&p);

			open_against(real, peer->data, len, false);
			if (rocelink_conn_state(p.side[real].conn) != ROCELINK_STATE_FAILED) {
				assert_int_equal(
					conn_drive_at(p.side[real].conn, late, &p.side[real].err),
					ROCELINK_TIMEOUT);
				assert_in_range(p.side[real].err.phase, ROCELINK_PHASE_HELLO,
						ROCELINK_PHASE_READY);
			}
			assert_ended(real);
			pair_free(&p);
		}
		buffer_free(&said[0]);
		buffer_free(&said[1]);
	}
}

/* Where the first frame behind the greeting ends. */
static size_t end_of_hello(const struct buffer *said)
{
	struct reader r = { .p = said->data + GREETING_LEN + 4, .left = 4 };

	return GREETING_LEN + FRAME_HEADER_LEN + (size_t)reader_uint(&r, 4);
}

/* A recording of another connection, passed off as a peer. */
static void replayed_conversation(void **state)
{
	struct buffer said[2];
	size_t hello;

	(void)state;
	/* The passive side's: its HELLO answers a nonce that isn't ours. */
	record(said);
	open_against(0, said[1].data, GREETING_LEN, false);
	buffer_put(&p.ends[1].sent, said[1].data + GREETING_LEN, said[1].len - GREETING_LEN);
	rocelink_conn_drive(p.side[0].conn, &p.side[0].err);
	assert_ended(0);
	assert_contains(p.side[0].err.text, "recording");
	pair_free(&p);
	/* The active side's HELLO is good as ever; its READY isn't. */
	hello = end_of_hello(&said[0]);
	open_against(1, said[0].data, hello, false);
	assert_int_equal(rocelink_conn_state(p.side[1].conn), ROCELINK_STATE_EXCHANGING);
	buffer_put(&p.ends[0].sent, said[0].data + hello, said[0].len - hello);
	rocelink_conn_drive(p.side[1].conn, &p.side[1].err);
	assert_ended(1);
	assert_contains(p.side[1].err.text, "recording");
	pair_free(&p);
	buffer_free(&said[0]);
	buffer_free(&said[1]);
}

static void hello_twice(void **state)
{
	struct buffer said[2];
	size_t hello;

	(void)state;
	record(said);
	hello = end_of_hello(&said[0]) - GREETING_LEN;
	/* Greeting, HELLO, and the same HELLO again. */
	said[0].len = GREETING_LEN + hello;
	uint8_t copy[4096];

	assert_true(hello < sizeof(copy));
	memcpy(copy, said[0].data + GREETING_LEN, hello);
	buffer_put(&said[0], copy, hello);
	open_against(1, said[0].data, said[0].len, false);
	assert_ended(1);
	assert_contains(rocelink_conn_error(p.side[1].conn)->text, "HELLO twice");
	pair_free(&p);
	buffer_free(&said[0]);
	buffer_free(&said[1]);
}

static const uint8_t greeting[GREETING_LEN] = { 'R', 'L', 'N', 'K', 1, 1 };

static void against_frame(const void *frame, size_t len, const char *text)
{
	struct buffer b = { 0 };

	buffer_put(&b, greeting, sizeof(greeting));
	buffer_put(&b, frame, len);
	open_against(1, b.data, b.len, false);
	assert_ended(1);
	assert_int_equal(rocelink_conn_error(p.side[1].conn)->code, ROCELINK_PROTOCOL);
	assert_contains(rocelink_conn_error(p.side[1].conn)->text, text);
	/* It is told what was wrong: a DECLINE with the reason PROTOCOL ends our bytes. */
	assert_int_equal(p.ends[1].sent.data[GREETING_LEN + 1], FRAME_DECLINE);
	pair_free(&p);
	buffer_free(&b);
}

static void frames_that_must_not_be(void **state)
{
	static const uint8_t gigabyte[] = { 0, 1, 0, 0, 0x40, 0, 0, 0 };
	static const uint8_t just_too_long[] = { 0, 1, 0, 0, 0, 1, 0, 1 };
	static const uint8_t empty_hello[] = { 0, 1, 0, 0, 0, 0, 0, 0 };
	static const uint8_t bye[] = { 0, 7, 0, 0, 0, 0, 0, 0 };
	static const uint8_t sync[] = { 0, 4, 0, 0, 0, 0, 0,	17,   0, 11, 0, 1, 'x',
					0, 9, 0, 8, 0, 0, 0xff, 0xff, 0, 0,  0, 0 };
	static const uint8_t withdraw[] = { 0, 6, 0, 0, 0, 0, 0, 5, 0, 11, 0, 1, 'x' };
	static const uint8_t critical[] = { 0, 99, 0x80, 0, 0, 0, 0, 0 };

	(void)state;
	against_frame(gigabyte, sizeof(gigabyte), "1073741824 bytes");
	against_frame(just_too_long, sizeof(just_too_long), "65537 bytes");
	against_frame(empty_hello, sizeof(empty_hello), "HELLO without");
	against_frame(bye, sizeof(bye), "BYE before READY");
	against_frame(sync, sizeof(sync), "SYNC before READY");
	against_frame(withdraw, sizeof(withdraw), "before HELLO");
	against_frame(critical, sizeof(critical), "critical frame");
}

static void foreign_protocols(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *text;
	} cases[] = {
		{ "GET / HTTP/1.0\r\n\r\n", 18, "doesn't speak this protocol" },
		{ "SSH-2.0-x\r\n", 11, "doesn't speak this protocol" },
		{ "\x16\x03\x01\x02\x00\x01\x00", 7, "speaks TLS" },
		{ "RLNX", 4, "doesn't speak this protocol" },
		{ "R", 1, "" },
		{ "\0", 1, "doesn't speak this protocol" },
	};

	(void)state;
	for (int real = 0; real < 2; real++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			open_against(real, cases[i].bytes, cases[i].len, true);
			assert_ended(real);
			assert_contains(rocelink_conn_error(p.side[real].conn)->text,
					cases[i].text);
			pair_free(&p);
		}
}

static void versions(void **state)
{
	uint8_t g[GREETING_LEN] = { 'R', 'L', 'N', 'K', 2, 9 };

	(void)state;
	open_against(1, g, sizeof(g), false);
	assert_ended(1);
	assert_int_equal(rocelink_conn_error(p.side[1].conn)->code, ROCELINK_MISMATCH);
	assert_contains(rocelink_conn_error(p.side[1].conn)->text, "2 to 9");
	assert_int_equal(p.ends[1].sent.data[GREETING_LEN + 1], FRAME_DECLINE);
	pair_free(&p);
	g[4] = 0;
	g[5] = 0;
	open_against(1, g, sizeof(g), false);
	assert_ended(1);
	pair_free(&p);
	/* Newer, but it knows ours too. */
	g[4] = 1;
	g[5] = 200;
	open_against(1, g, sizeof(g), false);
	assert_int_equal(rocelink_conn_state(p.side[1].conn), ROCELINK_STATE_CONNECTING);
	pair_free(&p);
}

/* Random damage to a good peer's bytes: nothing but an error, or (where it doesn't matter) a
 * connection. */
static void random_damage(void **state)
{
	struct buffer said[2];

	(void)state;
	for (uint64_t seed = 1; seed <= 400; seed++)
		for (int real = 0; real < 2; real++) {
			struct rng r = { seed };
			struct buffer *peer;

			record(said);
			peer = &said[1 - real];
			for (uint64_t n = 1 + rng_below(&r, 3); n; n--)
				peer->data[rng_below(&r, peer->len)] = (uint8_t)rng_next(&r);
			open_against(real, peer->data, peer->len, true);
			assert_ended(real);
			pair_free(&p);
			buffer_free(&said[0]);
			buffer_free(&said[1]);
		}
}

/* Endless garbage in valid frames does not grow our memory. */
static void endless_unknown_frames(void **state)
{
	static const uint8_t unknown[] = { 0, 99, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4 };
	struct buffer b = { 0 };

	(void)state;
	buffer_put(&b, greeting, sizeof(greeting));
	for (int i = 0; i < 20000; i++)
		buffer_put(&b, unknown, sizeof(unknown));
	open_against(1, b.data, b.len, false);
	assert_int_equal(rocelink_conn_state(p.side[1].conn), ROCELINK_STATE_CONNECTING);
	assert_in_range(p.side[1].conn->line.session.in.cap, 0, 2 * FRAME_MAX_LEN);
	pair_free(&p);
	buffer_free(&b);
}

/* A peer that says syncs and regions without end, after READY. */
static void endless_syncs(void **state)
{
	static const uint8_t sync[] = { 0, 4, 0, 0, 0, 0, 0,	17,   0, 11, 0, 1, 'x',
					0, 9, 0, 8, 0, 0, 0xff, 0xff, 0, 0,  0, 0 };

	(void)state;
	pair_establish(&p);
	for (int i = 0; i < SYNCS_MAX + 1; i++)
		buffer_put(&p.ends[0].sent, sync, sizeof(sync));
	rocelink_conn_drive(p.side[1].conn, &p.side[1].err);
	assert_int_equal(rocelink_conn_state(p.side[1].conn), ROCELINK_STATE_FAILED);
	assert_int_equal(p.side[1].err.code, ROCELINK_PROTOCOL);
	pair_free(&p);
}

static void frame_after_bye(void **state)
{
	static const uint8_t bye[] = { 0, 7, 0, 0, 0, 0, 0, 0 };

	(void)state;
	pair_establish(&p);
	buffer_put(&p.ends[0].sent, bye, sizeof(bye));
	buffer_put(&p.ends[0].sent, bye, sizeof(bye));
	rocelink_conn_drive(p.side[1].conn, &p.side[1].err);
	assert_int_equal(p.side[1].err.code, ROCELINK_PROTOCOL);
	assert_contains(p.side[1].err.text, "after BYE");
	pair_free(&p);
}

/* A peer that chooses a GID that was never offered. */
static void impossible_gid_choice(void **state)
{
	struct side *s = &p.side[0];
	struct message m;
	struct buffer *out = &p.ends[1].sent;
	struct qp_values q = { .type = WIRE_RC, .mtu = IBV_MTU_1024, .qpn = 5 };

	(void)state;
	pair_init(&p);
	struct rocelink_channel ch = mem_channel(&p.ends[0]);

	s->conn = rocelink_dial_channel(&ch, s->role, &s->options, &s->err);
	buffer_put(out, greeting, sizeof(greeting));
	rocelink_conn_drive(s->conn, &s->err);
	side_start(s, IBV_QPT_RC, 1);
	message_init(&m, FRAME_HELLO);
	assert_true(message_add_qp(&m, &q));
	gid_to_value(&m.gids[0], &s->conn->gid);
	m.gid_count = 1;
	m.peer_gid = 7;
	m.has |= 1u << FIELD_GID | 1u << FIELD_PEER_GID;
	message_set_echo(&m, s->conn->nonce);
	message_encode(out, &m);
	message_free(&m);
	rocelink_conn_drive(s->conn, &s->err);
	assert_ended(0);
	assert_contains(s->err.text, "GID 7");
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stops_at_every_byte),	 cmocka_unit_test(replayed_conversation),
		cmocka_unit_test(hello_twice),		 cmocka_unit_test(frames_that_must_not_be),
		cmocka_unit_test(foreign_protocols),	 cmocka_unit_test(versions),
		cmocka_unit_test(random_damage),	 cmocka_unit_test(endless_unknown_frames),
		cmocka_unit_test(endless_syncs),	 cmocka_unit_test(frame_after_bye),
		cmocka_unit_test(impossible_gid_choice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
