/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "link/compat.h"
#include "link/fail.h"

/* A greeting and a DECLINE of the longest text; more isn't waited for. */
enum { PLAIN_REFUSAL_MAX = 512 };

static const uint8_t magic[4] = { 'R', 'L', 'N', 'K' };

static enum rocelink_phase session_phase(const struct session *s)
{
	if (s->said_bye || s->heard_bye)
		return ROCELINK_PHASE_CLOSE;
	if (s->heard_ready && s->said_ready)
		return ROCELINK_PHASE_OPEN;
	if (s->heard_hello && s->said_hello)
		return ROCELINK_PHASE_READY;
	return ROCELINK_PHASE_HELLO;
}

void session_init(struct session *s, enum rocelink_role role, const uint8_t nonce[NONCE_LEN],
		  bool meet, enum rocelink_compat compat)
{
	memset(s, 0, sizeof(*s));
	s->role = role;
	s->meet = meet;
	memcpy(s->nonce, nonce, NONCE_LEN);
	if (compat != ROCELINK_COMPAT_NONE) {
		compat_init(s, compat);
		return;
	}
	buffer_put(&s->out, magic, sizeof(magic));
	buffer_put_uint(&s->out, VERSION_MIN, 1);
	buffer_put_uint(&s->out, VERSION_MAX, 1);
	buffer_put_uint(&s->out, meet ? GREETING_MEET : 0, 2);
	buffer_put(&s->out, nonce, NONCE_LEN);
}

void session_free(struct session *s)
{
	buffer_free(&s->in);
	buffer_free(&s->out);
}

bool session_receive(struct session *s, const void *data, size_t len)
{
	buffer_put(&s->in, data, len);
	return !s->in.failed;
}

int session_end(struct session *s, struct rocelink_error *err)
{
	enum rocelink_phase phase = session_phase(s);

	s->heard_end = true;
	if (s->heard_bye || compat_may_end(s))
		return ROCELINK_OK;
	s->dead = true;
	if (!s->greeted)
		return link_fail(
			err, ROCELINK_NETWORK, phase, 0,
			"the peer closed the channel before its greeting: is it a rocelink "
			"program of this kind, and does it listen on this port?");
	return link_fail(err, ROCELINK_NETWORK, phase, 0,
			 "the peer closed the channel without a word%s: it crashed or was stopped",
			 phase == ROCELINK_PHASE_HELLO	 ? " before its HELLO"
			 : phase == ROCELINK_PHASE_READY ? " before its READY"
							 : " (no BYE)");
}

bool session_is_foreign(const uint8_t *first, size_t len)
{
	return memcmp(first, magic, len < sizeof(magic) ? len : sizeof(magic)) != 0;
}

/* The peer broke the protocol: tell it, and be dead. */
static int broken(struct session *s, const char *why, struct rocelink_error *err)
{
	enum rocelink_phase phase = session_phase(s);

	session_decline(s, ROCELINK_REASON_PROTOCOL, 0, why);
	return link_fail(err, ROCELINK_PROTOCOL, phase, 0, "the peer broke the protocol: %s", why);
}

/* Section 3. */
static int hear_greeting(struct session *s, struct rocelink_error *err)
{
	const uint8_t *g = s->in.data;
	unsigned min, max;

	if (s->in.len && session_is_foreign(g, s->in.len)) {
		bool tls = g[0] == 0x16;

		if (tls)
			session_decline(
				s, ROCELINK_REASON_AUTH, 0,
				"this side speaks plain text: set the same options.security");
		else
			buffer_free(&s->out);
		s->dead = true;
		return link_fail(err, ROCELINK_PROTOCOL, ROCELINK_PHASE_HELLO, 0,
				 tls ? "the peer speaks TLS and this side plain text: set the same "
				       "options.security on both sides"
				     : "the peer doesn't speak this protocol (first byte 0x%02x): "
				       "check host and port",
				 g[0]);
	}
	if (s->in.len < GREETING_LEN)
		return ROCELINK_AGAIN;
	min = g[4];
	max = g[5];
	s->peer_meet = g[7] & GREETING_MEET;
	memcpy(s->peer_nonce, g + 8, NONCE_LEN);
	buffer_consume(&s->in, GREETING_LEN);
	s->version = max < VERSION_MAX ? max : VERSION_MAX;
	if (s->version < VERSION_MIN || s->version < min) {
		char why[128];

		snprintf(why, sizeof(why), "it speaks versions %u to %u, the other side %u to %u",
			 min, max, VERSION_MIN, VERSION_MAX);
		session_decline(s, ROCELINK_REASON_VERSION, 0, why);
		return link_fail(
			err, ROCELINK_MISMATCH, ROCELINK_PHASE_HELLO, 0,
			"no common protocol version: the peer speaks %u to %u, this side %u "
			"to %u; update the older one",
			min, max, VERSION_MIN, VERSION_MAX);
	}
	s->greeted = true;
	return ROCELINK_OK;
}

/* One whole frame from `in`, decoded. */
static int take_frame(struct session *s, struct message *m, struct rocelink_error *err)
{
	struct reader r = { .p = s->in.data, .left = s->in.len };
	uint16_t type, flags;
	uint32_t len;
	char why[160];
	int rc;

	if (s->in.len < FRAME_HEADER_LEN)
		return ROCELINK_AGAIN;
	type = (uint16_t)reader_uint(&r, 2);
	flags = (uint16_t)reader_uint(&r, 2);
	len = (uint32_t)reader_uint(&r, 4);
	if (len > FRAME_MAX_LEN) {
		snprintf(why, sizeof(why), "a frame of %u bytes, the limit is %u", len,
			 FRAME_MAX_LEN);
		return broken(s, why, err);
	}
	if (r.left < len)
		return ROCELINK_AGAIN;
	rc = message_decode(m, type, flags, r.p, len, why, sizeof(why));
	buffer_consume(&s->in, FRAME_HEADER_LEN + len);
	if (rc < 0) {
		message_free(m);
		return rc == -ENOMEM ? link_no_memory(err) : broken(s, why, err);
	}
	if (rc > 0)
		m->type = 0;
	return ROCELINK_OK;
}

static int declined(struct session *s, const struct message *m, struct rocelink_error *err)
{
	enum rocelink_phase phase = session_phase(s);
	const char *name = rocelink_reason_name((enum rocelink_reason)m->reason);
	bool failed = m->reason == ROCELINK_REASON_LOCAL;

	s->dead = true;
	link_fail(err, failed ? ROCELINK_PEER_FAILED : ROCELINK_REFUSED, phase, 0,
		  "the peer %s (%s)%s%s", failed ? "failed" : "declined", name,
		  *m->text ? ": " : "", m->text);
	if (err) {
		err->reason = (enum rocelink_reason)m->reason;
		err->app_reason = m->app_reason;
	}
	return failed ? ROCELINK_PEER_FAILED : ROCELINK_REFUSED;
}

/* May this frame come now (section 4's last column)? Sets the flag of what was heard. */
static const char *hear(struct session *s, const struct message *m)
{
	switch ((enum frame_type)m->type) {
	case FRAME_HELLO:
		if (s->heard_hello)
			return "HELLO twice";
		if (message_has(m, FIELD_ECHO) && !s->said_hello)
			return "HELLO that answers none of ours";
		s->heard_hello = true;
		break;
	case FRAME_READY:
		if (!s->heard_hello || !s->said_hello)
			return "READY before HELLO";
		if (s->heard_ready)
			return "READY twice";
		s->heard_ready = m->reason == ROCELINK_REASON_NONE;
		break;
	case FRAME_DECLINE:
		break;
	case FRAME_SYNC:
		if (!s->heard_ready)
			return "SYNC before READY";
		break;
	case FRAME_REGION:
	case FRAME_WITHDRAW:
		if (!s->heard_hello)
			return "REGION or WITHDRAW before HELLO";
		break;
	case FRAME_BYE:
		if (!s->heard_ready)
			return "BYE before READY";
		s->heard_bye = true;
		break;
	case FRAME_TYPES:
	default:
		break;
	}
	if (message_has(m, FIELD_ECHO) && memcmp(m->echo, s->nonce, NONCE_LEN) != 0)
		return "an echo that isn't our nonce: this is a recording of another connection";
	return NULL;
}

int session_greet(struct session *s, struct rocelink_error *err)
{
	return s->greeted ? ROCELINK_OK : hear_greeting(s, err);
}

int session_next(struct session *s, struct message *m, struct rocelink_error *err)
{
	const char *why;
	int rc;

	if (s->dead)
		return link_again(err);
	if (s->compat.mode)
		return compat_next(s, m, err);
	if (!s->greeted) {
		rc = hear_greeting(s, err);
		if (rc)
			return rc == ROCELINK_AGAIN ? link_again(err) : rc;
	}
	do {
		rc = take_frame(s, m, err);
		if (rc)
			return rc == ROCELINK_AGAIN ? link_again(err) : rc;
		if (s->heard_bye)
			why = "a frame after BYE";
		else
			why = m->type ? hear(s, m) : NULL;
		if (why) {
			message_free(m);
			return broken(s, why, err);
		}
	} while (m->type == 0);
	if (m->type == FRAME_DECLINE || (m->type == FRAME_READY && m->reason)) {
		rc = declined(s, m, err);
		message_free(m);
		return rc;
	}
	return ROCELINK_OK;
}

int session_say(struct session *s, const struct message *m, struct rocelink_error *err)
{
	assert(!s->said_bye);
	if (s->dead)
		return link_fail(err, ROCELINK_CLOSED, session_phase(s), 0,
				 "the connection has ended");
	if (s->out.len > SESSION_MAX_OUT)
		return link_fail(err, ROCELINK_LIMIT, session_phase(s), 0,
				 "%zu bytes wait for a peer that doesn't read", s->out.len);
	if (s->compat.mode) {
		compat_say(s, m);
	} else {
		assert(m->type != FRAME_READY ||
		       (s->said_hello && s->heard_hello && !s->said_ready));
		assert(m->type != FRAME_HELLO || !s->said_hello);
		message_encode(&s->out, m);
	}
	if (s->out.failed)
		return link_no_memory(err);
	if (m->type == FRAME_HELLO)
		s->said_hello = true;
	if (m->type == FRAME_READY)
		s->said_ready = m->reason == ROCELINK_REASON_NONE;
	if (m->type == FRAME_BYE)
		s->said_bye = true;
	return ROCELINK_OK;
}

int session_plain_refusal(const void *data, size_t len, struct rocelink_error *err)
{
	static const uint8_t nonce[NONCE_LEN];
	struct rocelink_error why;
	struct session s = { 0 };
	struct message m = { 0 };
	int rc;

	session_init(&s, ROCELINK_ACTIVE, nonce, false, ROCELINK_COMPAT_NONE);
	rc = session_receive(&s, data, len) ? session_next(&s, &m, &why) : link_no_memory(&why);
	session_free(&s);
	if (rc == ROCELINK_AGAIN && len < PLAIN_REFUSAL_MAX)
		return link_again(err);
	if (rc == ROCELINK_OK)
		message_free(&m);
	/* Whatever else it says, and also its wish for security: it expects plain text. */
	if (rc == ROCELINK_OK || rc == ROCELINK_AGAIN ||
	    (rc == ROCELINK_REFUSED && why.reason == ROCELINK_REASON_AUTH))
		return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
				 "the peer speaks plain text and this side TLS: set the same "
				 "options.security on both sides");
	why.phase = ROCELINK_PHASE_SECURE;
	if (err)
		*err = why;
	return rc;
}

void session_decline(struct session *s, enum rocelink_reason reason, uint32_t app_reason,
		     const char *text)
{
	struct message m;

	if (s->dead || s->said_bye)
		return;
	s->dead = true;
	if (s->compat.mode)
		return;
	if (s->heard_hello && s->said_hello && !s->said_ready) {
		message_init(&m, FRAME_READY);
		message_set_echo(&m, s->peer_nonce);
	} else {
		message_init(&m, FRAME_DECLINE);
	}
	message_set_status(&m, reason, app_reason, NO_QP_INDEX, text);
	message_encode(&s->out, &m);
}

int session_compare_nonces(const struct session *s)
{
	return memcmp(s->nonce, s->peer_nonce, NONCE_LEN);
}
