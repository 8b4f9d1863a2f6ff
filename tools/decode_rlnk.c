/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rocelink protocol (docs/protocol.md) as an onlooker reads it: every frame is told, also those
 * that a program would refuse, and nothing is remembered from one to the next. A frame whose
 * length is over the limit ends the reading of its direction.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "tools/decode_exchange.h"
#include "tools/decode_frame.h"

enum {
	GREETING_LEN = 24,
	FRAME_HEADER = 8,
	FRAME_MAX = 65536,
	FIELD_HEADER = 4,
	FIELD_TYPE = 0x7fff,
};

enum field {
	FIELD_SERVICE_NAME = 1,
	FIELD_AGENT,
	FIELD_PRIVATE_DATA,
	FIELD_GID,
	FIELD_PEER_GID,
	FIELD_QP,
	FIELD_REGION,
	FIELD_ECHO,
	FIELD_STATUS,
	FIELD_TEXT,
	FIELD_NAME,
};

static const char *const frame_names[] = { NULL,   "HELLO",  "DECLINE",	 "READY",
					   "SYNC", "REGION", "WITHDRAW", "BYE" };
static const char *const reasons[] = {
	"success", "VERSION", "SERVICE",     "QP_TYPE",	 "QP_COUNT",	 "MTU",	    "GID",
	"AUTH",	   "BUSY",    "APPLICATION", "PROTOCOL", "SIMULTANEOUS", "TIMEOUT", "LOCAL",
};
static const char *const qp_types[] = { NULL, "RC", "UC", "UD", "XRC initiator", "XRC target" };

/* Add a part to the message's text. */
__attribute__((format(printf, 2, 3))) static void say(struct message *m, const char *format, ...)
{
	size_t used = strlen(m->text);
	va_list args;

	if (used && used + 2 < sizeof(m->text)) {
		memcpy(m->text + used, ", ", 3);
		used += 2;
	}
	va_start(args, format);
	vsnprintf(m->text + used, sizeof(m->text) - used, format, args);
	va_end(args);
}

static void read_qp(struct message *m, const uint8_t *v)
{
	struct told *t = message_add_told(m);

	t->has = TOLD_QPN | TOLD_PSN | TOLD_MTU;
	if (v[0] < ARRAY_LEN(qp_types) && qp_types[v[0]]) {
		t->has |= TOLD_TYPE;
		t->type = qp_types[v[0]];
	}
	t->mtu = v[1] >= 1 && v[1] <= 5 ? 128u << v[1] : 0;
	t->qpn = frame_be32(v + 4) & 0xffffff;
	t->psn = frame_be32(v + 8) & 0xffffff;
	if (v[0] == 3) {
		t->has |= TOLD_QKEY;
		t->qkey = frame_be32(v + 12);
	}
	if (v[0] == 5) {
		t->has |= TOLD_SRQN;
		t->srqn = frame_be32(v + 16) & 0xffffff;
	}
}

static void read_gid(struct message *m, const uint8_t *v)
{
	struct told *t = message_add_told(m);

	t->has = TOLD_GID | TOLD_LID;
	t->lid = frame_be16(v + 2);
	memcpy(t->gid.raw, v + 4, sizeof(t->gid.raw));
}

static void read_region(struct message *m, const uint8_t *v, size_t len)
{
	struct told *t = message_add_told(m);
	size_t name = len - 24;

	t->has = TOLD_RKEY | TOLD_LENGTH | TOLD_NAME;
	t->va = frame_be64(v);
	t->length = frame_be64(v + 8);
	t->rkey = frame_be32(v + 16);
	if (name >= sizeof(t->name))
		name = sizeof(t->name) - 1;
	memcpy(t->name, v + 24, name);
}

static void read_status(struct message *m, const uint8_t *v)
{
	unsigned reason = frame_be16(v);
	unsigned index = frame_be16(v + 2);
	uint32_t number = frame_be32(v + 4);

	if (reason < ARRAY_LEN(reasons))
		say(m, "%s", reasons[reason]);
	else
		say(m, "reason %u", reason);
	if (index != 65535)
		say(m, "queue pair %u", index);
	if (number)
		say(m, "number %" PRIu32, number);
}

static void read_text(struct message *m, const char *what, const uint8_t *v, size_t len)
{
	say(m, "%s \"%.*s\"", what, (int)len, (const char *)v);
}

static void read_field(struct message *m, unsigned type, const uint8_t *v, size_t len)
{
	switch (type) {
	case FIELD_SERVICE_NAME:
		read_text(m, "service", v, len);
		return;
	case FIELD_AGENT:
		read_text(m, "agent", v, len);
		return;
	case FIELD_NAME:
		read_text(m, "name", v, len);
		return;
	case FIELD_TEXT:
		read_text(m, "text", v, len);
		return;
	case FIELD_PRIVATE_DATA:
		say(m, "%zu bytes of private data", len);
		return;
	case FIELD_PEER_GID:
		if (len >= 1)
			say(m, "uses the peer's GID number %u", v[0]);
		return;
	case FIELD_ECHO:
		return; /* the nonce of the other's greeting */
	case FIELD_GID:
		if (len >= 20)
			read_gid(m, v);
		return;
	case FIELD_QP:
		if (len >= 28)
			read_qp(m, v);
		return;
	case FIELD_REGION:
		if (len > 24)
			read_region(m, v, len);
		return;
	case FIELD_STATUS:
		if (len >= 8)
			read_status(m, v);
		return;
	default:
		say(m, "unknown field %u of %zu bytes", type, len);
	}
}

static size_t read_greeting(struct message *m, const uint8_t *data, size_t len)
{
	if (len < GREETING_LEN)
		return 0;
	m->name = "greeting";
	say(m, "versions %u to %u", data[4], data[5]);
	if (data[7] & 1)
		say(m, "MEET");
	return GREETING_LEN;
}

size_t rlnk_next(struct exchange_half *half, const uint8_t *data, size_t len, struct message *m)
{
	unsigned type, field_len;
	size_t total, at;

	if (half->messages == 0)
		return read_greeting(m, data, len);
	if (len < FRAME_HEADER)
		return 0;
	type = frame_be16(data);
	total = frame_be32(data + 4);
	if (total > FRAME_MAX) {
		say(m, "a frame of %zu bytes, over the limit", total);
		exchange_lost(half);
		return 0;
	}
	total += FRAME_HEADER;
	if (len < total)
		return 0;
	m->name = type < ARRAY_LEN(frame_names) && frame_names[type] ? frame_names[type]
								     : "unknown frame";
	for (at = FRAME_HEADER; at + FIELD_HEADER <= total; at += field_len) {
		type = frame_be16(data + at) & FIELD_TYPE;
		field_len = frame_be16(data + at + 2);
		at += FIELD_HEADER;
		if (field_len > total - at)
			break;
		read_field(m, type, data + at, field_len);
	}
	if (at != total)
		say(m, "malformed: its fields don't fill it");
	return total;
}
