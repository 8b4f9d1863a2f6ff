/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One row per frame type: which fields may and must be there. Everything else follows from this table and
 * that of fields.c.
 */
#include "link/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "link/fail.h"
#include "link/fields.h"

enum { FLAG_CRITICAL = 0x8000 };

/* clang-format off */
#define F(x) (1u << FIELD_##x)
static const struct frame {
	const char *name;
	uint32_t must, may;
} frames[FRAME_TYPES] = {
	[FRAME_HELLO]    = { "HELLO", F(QP) | F(GID), F(ECHO) | F(PEER_GID) | F(SERVICE_NAME) | F(AGENT) | F(PRIVATE_DATA) | F(REGION) },
	[FRAME_DECLINE]  = { "DECLINE", F(STATUS), F(TEXT) },
	[FRAME_READY]    = { "READY", F(STATUS) | F(ECHO), F(TEXT) },
	[FRAME_SYNC]     = { "SYNC", F(NAME) | F(STATUS), F(TEXT) },
	[FRAME_REGION]   = { "REGION", F(REGION), 0 },
	[FRAME_WITHDRAW] = { "WITHDRAW", F(NAME), 0 },
	[FRAME_BYE]      = { "BYE", 0, 0 },
};
#undef F
/* clang-format on */

const char *frame_name(unsigned type)
{
	return type > 0 && type < FRAME_TYPES ? frames[type].name : "unknown";
}

void message_encode(struct buffer *out, const struct message *m)
{
	struct buffer body = { 0 };
	uint32_t allowed = frames[m->type].must | frames[m->type].may;

	for (unsigned i = 1; i < FIELD_TYPES; i++)
		if (m->has & allowed & 1u << i)
			fields[i].write(m, &body);
	if (body.failed || body.len > FRAME_MAX_LEN)
		out->failed = true;
	buffer_put_uint(out, m->type, 2);
	buffer_put_uint(out, 0, 2);
	buffer_put_uint(out, body.len, 4);
	buffer_put(out, body.data, body.len);
	buffer_free(&body);
}

static int decode_field(struct message *m, const struct frame *frame, struct reader *r, char *why,
			size_t why_len)
{
	unsigned head = (unsigned)reader_uint(r, 2), type = head & 0x7fff;
	size_t len = (size_t)reader_uint(r, 2);
	const uint8_t *value = reader_bytes(r, len);
	struct reader body = { .p = value, .left = len };
	const struct field *field;
	const char *wrong;

	if (r->failed) {
		snprintf(why, why_len, "fields of %s don't fill it exactly", frame->name);
		return -EPROTO;
	}
	if (type == 0 || type >= FIELD_TYPES || !((frame->must | frame->may) & 1u << type)) {
		if (!(head & FLAG_CRITICAL))
			return 0;
		snprintf(why, why_len, "%s has a critical field of type %u, which is unknown here",
			 frame->name, type);
		return -EPROTO;
	}
	field = &fields[type];
	if (len < field->min || (!field->fixed && len > field->max)) {
		snprintf(why, why_len, "%s of %zu bytes in %s", field->name, len, frame->name);
		return -EPROTO;
	}
	if (!field->repeatable && message_has(m, (enum field_type)type)) {
		snprintf(why, why_len, "%s twice in %s", field->name, frame->name);
		return -EPROTO;
	}
	wrong = field->read(m, &body);
	if (wrong && !*wrong)
		return -ENOMEM;
	if (wrong) {
		snprintf(why, why_len, "%s in %s: %s", field->name, frame->name, wrong);
		return -EPROTO;
	}
	m->has |= 1u << type;
	return 0;
}

int message_decode(struct message *m, uint16_t type, uint16_t flags, const uint8_t *payload,
		   size_t len, char *why, size_t why_len)
{
	struct reader r = { .p = payload, .left = len };
	const struct frame *frame;
	uint32_t missing;

	message_init(m, (enum frame_type)type);
	if (type == 0 || type >= FRAME_TYPES) {
		if (!(flags & FLAG_CRITICAL))
			return 1;
		snprintf(why, why_len, "a critical frame of type %u, which is unknown here", type);
		return -EPROTO;
	}
	frame = &frames[type];
	while (r.left) {
		int rc = decode_field(m, frame, &r, why, why_len);

		if (rc)
			return rc;
	}
	missing = frame->must & ~m->has;
	for (unsigned i = 1; i < FIELD_TYPES; i++)
		if (missing & 1u << i) {
			snprintf(why, why_len, "%s without %s", frame->name, fields[i].name);
			return -EPROTO;
		}
	if (message_has(m, FIELD_NAME) && !*m->name) {
		snprintf(why, why_len, "%s with an empty name", frame->name);
		return -EPROTO;
	}
	return 0;
}

void message_init(struct message *m, enum frame_type type)
{
	memset(m, 0, sizeof(*m));
	m->type = (uint16_t)type;
	m->qp_index = NO_QP_INDEX;
	m->peer_gid = NO_PEER_GID;
}

void message_free(struct message *m)
{
	free(m->qps);
	free(m->regions);
	free(m->private_data);
	m->qps = NULL;
	m->regions = NULL;
	m->private_data = NULL;
	m->qp_count = m->region_count = 0;
	m->private_data_len = 0;
}

/* One more element at the end; capacities are powers of two, known from the count. */
static void *grow_array(void *array, unsigned count, size_t size)
{
	if (count & (count - 1))
		return array;
	return realloc(array, (count ? 2 * (size_t)count : 1) * size);
}

bool message_add_qp(struct message *m, const struct qp_values *qp)
{
	struct qp_values *qps;

	if (m->qp_count >= ROCELINK_MAX_QPS)
		return false;
	qps = grow_array(m->qps, m->qp_count, sizeof(*qps));
	if (!qps)
		return false;
	m->qps = qps;
	qps[m->qp_count++] = *qp;
	m->has |= 1u << FIELD_QP;
	return true;
}

bool message_add_region(struct message *m, const struct region_value *region)
{
	struct region_value *regions;

	if (m->region_count >= ROCELINK_MAX_REGIONS)
		return false;
	regions = grow_array(m->regions, m->region_count, sizeof(*regions));
	if (!regions)
		return false;
	m->regions = regions;
	regions[m->region_count++] = *region;
	m->has |= 1u << FIELD_REGION;
	return true;
}

bool message_set_private_data(struct message *m, const void *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	if (!copy)
		return false;
	if (len)
		memcpy(copy, data, len);
	free(m->private_data);
	m->private_data = copy;
	m->private_data_len = len;
	m->has |= 1u << FIELD_PRIVATE_DATA;
	return true;
}

void message_set_name(struct message *m, const char *name)
{
	link_clean_text(m->name, sizeof(m->name), name, strlen(name));
	m->has |= 1u << FIELD_NAME;
}

void message_set_status(struct message *m, enum rocelink_reason reason, uint32_t app_reason,
			unsigned qp_index, const char *text)
{
	m->reason = (uint16_t)reason;
	m->app_reason = app_reason;
	m->qp_index = (uint16_t)qp_index;
	m->has |= 1u << FIELD_STATUS;
	if (text && *text) {
		link_clean_text(m->text, sizeof(m->text), text, strlen(text));
		m->has |= 1u << FIELD_TEXT;
	}
}

void message_set_echo(struct message *m, const uint8_t nonce[NONCE_LEN])
{
	memcpy(m->echo, nonce, NONCE_LEN);
	m->has |= 1u << FIELD_ECHO;
}
