/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each way to misbehave, in each phase, against each side, in plain text and inside TLS: garbage, a
 * gigabyte of length, an early end, half a message and then silence. Always a typed error, with the
 * queue pair in RESET unless it was in use already, and a deadline where an answer is owed.
 */
#include "check.h"

#include "link/conn.h"
#include "pair.h"

static struct pair p;
static const char secret[] = "a secret of this test, unguessable";

enum phase { NOTHING_SAID, GREETED, HALF_LINKED, OPEN, SAID_BYE, PHASES };
enum evil { GARBAGE, GIGABYTE, EARLY_END, HALF_A_MESSAGE, SILENCE, EVILS };

static const char *const phases[] = { "nothing said", "greeted", "half linked", "open",
				      "said BYE" };
static const char *const evils[] = { "garbage", "gigabyte", "early end", "half a message",
				     "silence" };

static void use_secret(struct rocelink_security sec[2])
{
	for (int i = 0; i < 2; i++) {
		sec[i] = (struct rocelink_security){ .size = sizeof(sec[i]),
						     .secret = secret,
						     .secret_len = strlen(secret) };
		p.side[i].options.security = &sec[i];
	}
}

/* The side `real` is in this phase and has taken all that the other has said. */
static void reach(enum phase phase, int real)
{
	struct side *s = &p.side[real];

	pair_open(&p);
	if (phase == NOTHING_SAID) {
		rocelink_conn_drive(s->conn, &s->err);
		return;
	}
	pair_run(&p);
	if (phase == GREETED)
		return;
	side_start(&p.side[0], IBV_QPT_RC, 1);
	pair_run(&p);
	if (phase == HALF_LINKED && real == 0)
		return; /* it waits for HELLO */
	side_start(&p.side[1], IBV_QPT_RC, 1);
	if (phase == HALF_LINKED)
		return; /* it waits for READY */
	pair_run(&p);
	assert_int_equal(rocelink_conn_state(s->conn), ROCELINK_STATE_ESTABLISHED);
	if (phase == SAID_BYE)
		assert_int_equal(rocelink_conn_bye(s->conn, &s->err), ROCELINK_OK);
}

/* From now on the other side is what this says; inside TLS it can only be damage to TLS. */
static void misbehave(enum evil evil, int real)
{
	static const uint8_t gigabyte[] = { 0, 1, 0, 0, 0x40, 0, 0, 0 };
	static const uint8_t half[] = { 0, 4, 0, 0, 0, 0, 0, 17, 0, 11 };
	static const uint8_t greeting[GREETING_LEN] = { 'R', 'L', 'N', 'K', 1, 1 };
	struct mem_end *other = &p.ends[1 - real];
	bool greeted = other->sent.len > 0;
	uint8_t noise[200];

	memset(noise, 0xa5, sizeof(noise));
	switch (evil) {
	case GARBAGE:
		buffer_put(&other->sent, noise, sizeof(noise));
		break;
	case GIGABYTE:
		if (!greeted)
			buffer_put(&other->sent, greeting, sizeof(greeting));
		buffer_put(&other->sent, gigabyte, sizeof(gigabyte));
		break;
	case HALF_A_MESSAGE:
		if (!greeted)
			buffer_put(&other->sent, greeting, sizeof(greeting));
		buffer_put(&other->sent, half, sizeof(half));
		break;
	case EARLY_END:
		other->shut = true;
		break;
	case SILENCE:
	default:
		break;
	}
}

static bool owes_an_answer(enum phase phase)
{
	return phase != OPEN;
}

static void one(enum phase phase, enum evil evil, int real, bool tls)
{
	uint64_t late = link_now() + 100ull * 1000000000;
	struct rocelink_security sec[2];
	struct side *s = &p.side[real];
	enum rocelink_state state;

	pair_init(&p);
	if (tls)
		use_secret(sec);
	reach(phase, real);
	misbehave(evil, real);
	rocelink_conn_drive(s->conn, &s->err);
	if (rocelink_conn_state(s->conn) == ROCELINK_STATE_FAILED && evil >= HALF_A_MESSAGE && !tls)
		fail_msg("%s while %s, side %d: failed too early: %s", evils[evil], phases[phase],
			 real, s->err.text);
	/* What has come is no answer: the deadline ends it. In the open phase nothing is owed. */
	if (rocelink_conn_state(s->conn) != ROCELINK_STATE_FAILED) {
		if (evil < EARLY_END && !tls)
			fail_msg("%s while %s, side %d, was taken", evils[evil], phases[phase],
				 real);
		conn_drive_at(s->conn, late, &s->err);
	}
	state = rocelink_conn_state(s->conn);
	if (!owes_an_answer(phase) && evil >= HALF_A_MESSAGE) {
		if (state == ROCELINK_STATE_ESTABLISHED)
			p.ends[1 - real].shut = true;
		rocelink_conn_drive(s->conn, &s->err);
		state = rocelink_conn_state(s->conn);
	}
	if (state != ROCELINK_STATE_FAILED)
		fail_msg("%s while %s, side %d%s: %s", evils[evil], phases[phase], real,
			 tls ? ", TLS" : "", rocelink_state_name(state));
	assert_true(rocelink_conn_error(s->conn)->text[0] != '\0');
	assert_int_not_equal(rocelink_conn_error(s->conn)->code, ROCELINK_OK);
	if (phase < OPEN) {
		assert_int_not_equal(s->qps[0].state, IBV_QPS_INIT);
		assert_int_not_equal(s->qps[0].state, IBV_QPS_RTS);
	}
	if (!tls && evil == SILENCE && owes_an_answer(phase))
		assert_int_equal(rocelink_conn_error(s->conn)->code, ROCELINK_TIMEOUT);
	if (!tls && evil == GIGABYTE && phase != NOTHING_SAID) {
		assert_int_equal(rocelink_conn_error(s->conn)->code, ROCELINK_PROTOCOL);
		assert_contains(rocelink_conn_error(s->conn)->text, "1073741824 bytes");
	}
	/* A gigabyte that was announced is no reason to allocate one. */
	assert_in_range(s->conn->line.session.in.cap, 0, 4 * FRAME_MAX_LEN);
	pair_free(&p);
}

static void everything(bool tls)
{
	for (int phase = 0; phase < PHASES; phase++)
		for (int evil = 0; evil < EVILS; evil++)
			for (int real = 0; real < 2; real++)
				one((enum phase)phase, (enum evil)evil, real, tls);
}

static void in_plain_text(void **state)
{
	(void)state;
	everything(false);
}

static void inside_tls(void **state)
{
	(void)state;
	everything(true);
}

/* A peer with another secret has seen nothing of the exchange, and neither has who listened. */
static void a_wrong_secret_learns_nothing(void **state)
{
	struct rocelink_security sec[2];
	uint8_t gid[16];

	(void)state;
	pair_init(&p);
	use_secret(sec);
	sec[1].secret = "another secret, as unguessable";
	sec[1].secret_len = strlen(sec[1].secret);
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	memcpy(gid, p.side[0].conn->gid.gid.raw, sizeof(gid));
	for (int i = 0; i < 2; i++) {
		struct rocelink_peer peer = { .size = sizeof(peer) };
		const struct buffer *sent = &p.ends[i].sent;

		assert_int_equal(rocelink_conn_state(p.side[i].conn), ROCELINK_STATE_FAILED);
		assert_int_equal(rocelink_conn_error(p.side[i].conn)->code, ROCELINK_SECURITY);
		assert_int_not_equal(rocelink_conn_peer(p.side[i].conn, &peer), ROCELINK_OK);
		assert_null(memmem(sent->data, sent->len, "RLNK", 4));
		assert_null(memmem(sent->data, sent->len, gid, sizeof(gid)));
	}
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_plain_text),
		cmocka_unit_test(inside_tls),
		cmocka_unit_test(a_wrong_secret_learns_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
