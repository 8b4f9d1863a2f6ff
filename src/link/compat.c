/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/compat.h"

#include <stdio.h>
#include <string.h>

#include "link/fail.h"

static const char done[] = "done";

void compat_init(struct session *s, enum rocelink_compat mode)
{
	s->compat.mode = mode;
	s->compat.records_total = mode == ROCELINK_COMPAT_SRQ_PINGPONG ? COMPAT_SRQ_RECORDS : 1;
	s->compat.type = WIRE_RC;
	s->version = 0;
	s->greeted = true;
}

static void set_type(struct qp_values *q, uint8_t type)
{
	q->type = type;
	q->qkey = type == WIRE_UD ? COMPAT_QKEY : 0;
}

void compat_set_type(struct session *s, uint8_t wire_qp_type, struct message *heard)
{
	s->compat.type = wire_qp_type;
	for (unsigned i = 0; heard && i < heard->qp_count; i++)
		set_type(&heard->qps[i], wire_qp_type);
}

/* Hexadecimal digits of fixed width, followed by `end`. */
static bool take_hex(const uint8_t **p, unsigned digits, char end, uint32_t *value)
{
	*value = 0;
	for (unsigned i = 0; i < digits; i++) {
		uint8_t c = (*p)[i];
		unsigned d;

		if (c >= '0' && c <= '9')
			d = c - '0';
		else if (c >= 'a' && c <= 'f')
			d = c - 'a' + 10u;
		else if (c >= 'A' && c <= 'F')
			d = c - 'A' + 10u;
		else
			return false;
		*value = *value << 4 | d;
	}
	if ((*p)[digits] != (uint8_t)end)
		return false;
	*p += digits + 1;
	return true;
}

static bool parse_record(const uint8_t *p, struct qp_values *q, struct gid_value *gid)
{
	uint32_t lid, word;

	if (!take_hex(&p, 4, ':', &lid) || !take_hex(&p, 6, ':', &q->qpn) ||
	    !take_hex(&p, 6, ':', &q->psn))
		return false;
	gid->lid = (uint16_t)lid;
	/* 32 digits without separators: the last word ends with the NUL. */
	for (unsigned i = 0; i < 4; i++) {
		uint8_t digits[9];
		const uint8_t *d = digits;

		memcpy(digits, p + 8 * i, 8);
		digits[8] = i == 3 ? p[32] : 0;
		if (!take_hex(&d, 8, '\0', &word))
			return false;
		for (unsigned b = 0; b < 4; b++)
			gid->gid[4 * i + b] = (uint8_t)(word >> (24 - 8 * b));
	}
	return true;
}

static int garbage(struct session *s, struct rocelink_error *err)
{
	s->dead = true;
	return link_fail(err, ROCELINK_PROTOCOL, ROCELINK_PHASE_HELLO, 0,
			 "the peer's record isn't LID:QPN:PSN:GID of an ibv_*_pingpong program");
}

static int hear_records(struct session *s, struct message *m, struct rocelink_error *err)
{
	static const uint8_t zero[16];

	if (s->in.len < (size_t)COMPAT_RECORD_LEN * s->compat.records_total)
		return link_again(err);
	message_init(m, FRAME_HELLO);
	for (unsigned i = 0; i < s->compat.records_total; i++) {
		struct qp_values q = {
			.mtu = IBV_MTU_4096,
			.initiator_depth = 1,
			.responder_depth = 1,
		};
		struct gid_value gid = { .kind = ROCELINK_GID_ROCE_V2 };

		set_type(&q, s->compat.type);
		if (!parse_record(s->in.data + (size_t)COMPAT_RECORD_LEN * i, &q, &gid)) {
			message_free(m);
			return garbage(s, err);
		}
		if (i == 0)
			m->gids[m->gid_count++] = gid;
		/* ibv_srq_pingpong fills up its 256 with zeros. */
		if (i > 0 && q.qpn == 0)
			continue;
		if (!message_add_qp(m, &q)) {
			message_free(m);
			return link_no_memory(err);
		}
	}
	buffer_consume(&s->in, (size_t)COMPAT_RECORD_LEN * s->compat.records_total);
	if (memcmp(m->gids[0].gid, zero, sizeof(zero)) == 0 && m->gids[0].lid == 0) {
		message_free(m);
		s->dead = true;
		return link_fail(
			err, ROCELINK_MISMATCH, ROCELINK_PHASE_HELLO, 0,
			"the peer sent no GID (and LID 0), so a RoCE device can't reach it: "
			"start the ibv_*_pingpong program with -g INDEX");
	}
	m->has |= 1u << FIELD_GID;
	s->heard_hello = true;
	return ROCELINK_OK;
}

/* READY: the client takes the server's answer for it, the server waits for `done`. */
static int hear_done(struct session *s, struct message *m, struct rocelink_error *err)
{
	if (s->role != ROCELINK_ACTIVE) {
		if (s->in.len < sizeof(done))
			return link_again(err);
		if (memcmp(s->in.data, done, sizeof(done)) != 0)
			return garbage(s, err);
		buffer_consume(&s->in, sizeof(done));
	}
	s->heard_ready = true;
	message_init(m, FRAME_READY);
	message_set_status(m, ROCELINK_REASON_NONE, 0, NO_QP_INDEX, NULL);
	return ROCELINK_OK;
}

int compat_next(struct session *s, struct message *m, struct rocelink_error *err)
{
	if (!s->heard_hello)
		return hear_records(s, m, err);
	if (!s->heard_ready && s->said_hello)
		return hear_done(s, m, err);
	return link_again(err);
}

static void say_record(struct session *s, const struct qp_values *q, const struct gid_value *gid)
{
	char record[COMPAT_RECORD_LEN];
	int n = snprintf(record, sizeof(record), "%04x:%06x:%06x:", gid->lid, q->qpn & 0xffffff,
			 q->psn & 0xffffff);

	for (unsigned i = 0; i < 16; i++)
		n += snprintf(record + n, sizeof(record) - (size_t)n, "%02x", gid->gid[i]);
	buffer_put(&s->out, record, sizeof(record));
}

void compat_say(struct session *s, const struct message *m)
{
	static const struct qp_values no_qp;
	static const struct gid_value no_gid;

	if (m->type == FRAME_HELLO) {
		for (unsigned i = 0; i < s->compat.records_total; i++)
			say_record(s, i < m->qp_count ? &m->qps[i] : &no_qp,
				   i < m->qp_count ? &m->gids[0] : &no_gid);
	} else if (m->type == FRAME_READY && m->reason == ROCELINK_REASON_NONE &&
		   s->role == ROCELINK_ACTIVE) {
		buffer_put(&s->out, done, sizeof(done));
	}
}

bool compat_may_end(const struct session *s)
{
	/* The stock programs close after `done`, and there is no BYE. */
	return s->compat.mode && s->heard_ready;
}
