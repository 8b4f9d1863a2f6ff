/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One row per field type: its length, and how it is read and written. One row per frame type: which
 * fields may and must be there. Everything else follows from the two tables.
 */
#include "link/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "link/fail.h"

enum {
	FLAG_CRITICAL = 0x8000,
	FIELD_HEADER_LEN = 4,
	QP_LEN = 28,
	GID_LEN = 20,
	REGION_FIXED_LEN = 24,
	STATUS_LEN = 8,
	UINT24_MAX = 0xffffff,
};

typedef const char *(*field_reader)(struct message *m, struct reader *r);
typedef void (*field_writer)(const struct message *m, struct buffer *out);

static bool is_name(const char *name)
{
	return name[0] != '\0';
}

/* A text field: cleaned, NULs refused since they would cut what was checked. */
static const char *read_text(char *to, size_t size, struct reader *r)
{
	size_t len = r->left;
	const uint8_t *p = reader_bytes(r, len);

	if (len && memchr(p, '\0', len))
		return "a text with a NUL in it";
	link_clean_text(to, size, p, len);
	return NULL;
}

static const char *read_service_name(struct message *m, struct reader *r)
{
	return read_text(m->service_name, sizeof(m->service_name), r);
}

static const char *read_agent(struct message *m, struct reader *r)
{
	return read_text(m->agent, sizeof(m->agent), r);
}

static const char *read_name(struct message *m, struct reader *r)
{
	return read_text(m->name, sizeof(m->name), r);
}

static const char *read_reason_text(struct message *m, struct reader *r)
{
	return read_text(m->text, sizeof(m->text), r);
}

static const char *read_private_data(struct message *m, struct reader *r)
{
	size_t len = r->left;

	return message_set_private_data(m, reader_bytes(r, len), len) ? NULL : "";
}

static const char *read_gid(struct message *m, struct reader *r)
{
	struct gid_value *g = &m->gids[m->gid_count];

	if (m->gid_count == MAX_GIDS)
		return "more than 8 GIDs";
	g->kind = (uint8_t)reader_uint(r, 1);
	reader_uint(r, 1);
	g->lid = (uint16_t)reader_uint(r, 2);
	memcpy(g->gid, reader_bytes(r, sizeof(g->gid)), sizeof(g->gid));
	if (g->kind < ROCELINK_GID_IB || g->kind > ROCELINK_GID_ROCE_V2)
		return "a GID of an unknown kind";
	m->gid_count++;
	return NULL;
}

static const char *read_peer_gid(struct message *m, struct reader *r)
{
	m->peer_gid = (uint8_t)reader_uint(r, 1);
	return m->peer_gid < MAX_GIDS ? NULL : "a GID index above 7";
}

static const char *read_qp(struct message *m, struct reader *r)
{
	struct qp_values q = { 0 };

	q.type = (uint8_t)reader_uint(r, 1);
	q.mtu = (uint8_t)reader_uint(r, 1);
	q.initiator_depth = (uint8_t)reader_uint(r, 1);
	q.responder_depth = (uint8_t)reader_uint(r, 1);
	q.qpn = (uint32_t)reader_uint(r, 4);
	q.psn = (uint32_t)reader_uint(r, 4);
	q.qkey = (uint32_t)reader_uint(r, 4);
	q.srqn = (uint32_t)reader_uint(r, 4);
	q.ops = (uint8_t)reader_uint(r, 1);
	q.wishes = (uint8_t)reader_uint(r, 1);
	q.timeout = (uint8_t)reader_uint(r, 1);
	q.retry = (uint8_t)reader_uint(r, 1);
	q.rnr_retry = (uint8_t)reader_uint(r, 1);
	q.hop_limit = (uint8_t)reader_uint(r, 1);
	q.traffic_class = (uint8_t)reader_uint(r, 1);
	q.service_level = (uint8_t)reader_uint(r, 1);

	if (q.type < WIRE_RC || q.type > WIRE_XRC_TGT)
		return "a queue pair of an unknown type";
	if (q.mtu < IBV_MTU_256 || q.mtu > IBV_MTU_4096)
		return "a path MTU code outside 1 to 5";
	if (q.qpn > UINT24_MAX || q.psn > UINT24_MAX || q.srqn > UINT24_MAX)
		return "a QPN, PSN or SRQ number of more than 24 bits";
	if (q.timeout > 31 || q.retry > 7 || q.rnr_retry > 7 || q.service_level > 15)
		return "a timeout, retry count or service level beyond its bits";
	if (m->qp_count == ROCELINK_MAX_QPS)
		return "more than 256 queue pairs";
	return message_add_qp(m, &q) ? NULL : "";
}

static const char *read_region(struct message *m, struct reader *r)
{
	struct region_value g = { 0 };
	const char *why;

	g.addr = reader_uint(r, 8);
	g.length = reader_uint(r, 8);
	g.rkey = (uint32_t)reader_uint(r, 4);
	g.access = (uint32_t)reader_uint(r, 4);
	why = read_text(g.name, sizeof(g.name), r);
	if (why)
		return why;
	if (g.length > UINT64_MAX - g.addr)
		return "a region that ends beyond 2^64";
	if (m->region_count == ROCELINK_MAX_REGIONS)
		return "more than 256 regions";
	return message_add_region(m, &g) ? NULL : "";
}

static const char *read_echo(struct message *m, struct reader *r)
{
	memcpy(m->echo, reader_bytes(r, NONCE_LEN), NONCE_LEN);
	return NULL;
}

static const char *read_status(struct message *m, struct reader *r)
{
	m->reason = (uint16_t)reader_uint(r, 2);
	m->qp_index = (uint16_t)reader_uint(r, 2);
	m->app_reason = (uint32_t)reader_uint(r, 4);
	if (m->reason > ROCELINK_REASON_LOCAL)
		m->reason = ROCELINK_REASON_LOCAL;
	return NULL;
}

static void put_field(struct buffer *out, enum field_type type, size_t len)
{
	buffer_put_uint(out, type, 2);
	buffer_put_uint(out, len, 2);
}

static void write_text(struct buffer *out, enum field_type type, const char *text)
{
	put_field(out, type, strlen(text));
	buffer_put(out, text, strlen(text));
}

static void write_service_name(const struct message *m, struct buffer *out)
{
	write_text(out, FIELD_SERVICE_NAME, m->service_name);
}

static void write_agent(const struct message *m, struct buffer *out)
{
	write_text(out, FIELD_AGENT, m->agent);
}

static void write_name(const struct message *m, struct buffer *out)
{
	write_text(out, FIELD_NAME, m->name);
}

static void write_reason_text(const struct message *m, struct buffer *out)
{
	write_text(out, FIELD_TEXT, m->text);
}

static void write_private_data(const struct message *m, struct buffer *out)
{
	put_field(out, FIELD_PRIVATE_DATA, m->private_data_len);
	buffer_put(out, m->private_data, m->private_data_len);
}

static void write_gids(const struct message *m, struct buffer *out)
{
	for (unsigned i = 0; i < m->gid_count; i++) {
		put_field(out, FIELD_GID, GID_LEN);
		buffer_put_uint(out, m->gids[i].kind, 1);
		buffer_put_uint(out, 0, 1);
		buffer_put_uint(out, m->gids[i].lid, 2);
		buffer_put(out, m->gids[i].gid, sizeof(m->gids[i].gid));
	}
}

static void write_peer_gid(const struct message *m, struct buffer *out)
{
	put_field(out, FIELD_PEER_GID, 1);
	buffer_put_uint(out, m->peer_gid, 1);
}

static void write_qps(const struct message *m, struct buffer *out)
{
	for (const struct qp_values *q = m->qps; q && q < m->qps + m->qp_count; q++) {
		put_field(out, FIELD_QP, QP_LEN);
		buffer_put_uint(out, q->type, 1);
		buffer_put_uint(out, q->mtu, 1);
		buffer_put_uint(out, q->initiator_depth, 1);
		buffer_put_uint(out, q->responder_depth, 1);
		buffer_put_uint(out, q->qpn, 4);
		buffer_put_uint(out, q->psn, 4);
		buffer_put_uint(out, q->qkey, 4);
		buffer_put_uint(out, q->srqn, 4);
		buffer_put_uint(out, q->ops, 1);
		buffer_put_uint(out, q->wishes, 1);
		buffer_put_uint(out, q->timeout, 1);
		buffer_put_uint(out, q->retry, 1);
		buffer_put_uint(out, q->rnr_retry, 1);
		buffer_put_uint(out, q->hop_limit, 1);
		buffer_put_uint(out, q->traffic_class, 1);
		buffer_put_uint(out, q->service_level, 1);
	}
}

static void write_regions(const struct message *m, struct buffer *out)
{
	for (const struct region_value *g = m->regions; g && g < m->regions + m->region_count;
	     g++) {
		put_field(out, FIELD_REGION, REGION_FIXED_LEN + strlen(g->name));
		buffer_put_uint(out, g->addr, 8);
		buffer_put_uint(out, g->length, 8);
		buffer_put_uint(out, g->rkey, 4);
		buffer_put_uint(out, g->access, 4);
		buffer_put(out, g->name, strlen(g->name));
	}
}

static void write_echo(const struct message *m, struct buffer *out)
{
	put_field(out, FIELD_ECHO, NONCE_LEN);
	buffer_put(out, m->echo, NONCE_LEN);
}

static void write_status(const struct message *m, struct buffer *out)
{
	put_field(out, FIELD_STATUS, STATUS_LEN);
	buffer_put_uint(out, m->reason, 2);
	buffer_put_uint(out, m->qp_index, 2);
	buffer_put_uint(out, m->app_reason, 4);
}

/* clang-format off */
static const struct field {
	const char *name;
	size_t min, max;  /* of the value; fixed fields: min, and longer is allowed */
	bool fixed, repeatable;
	field_reader read;
	field_writer write;
} fields[FIELD_TYPES] = {
	[FIELD_SERVICE_NAME] = { "SERVICE_NAME", 1, ROCELINK_MAX_NAME, false, false, read_service_name, write_service_name },
	[FIELD_AGENT]        = { "AGENT", 1, ROCELINK_MAX_NAME, false, false, read_agent, write_agent },
	[FIELD_PRIVATE_DATA] = { "PRIVATE_DATA", 0, ROCELINK_MAX_PRIVATE_DATA, false, false, read_private_data, write_private_data },
	[FIELD_GID]          = { "GID", GID_LEN, 0, true, true, read_gid, write_gids },
	[FIELD_PEER_GID]     = { "PEER_GID", 1, 0, true, false, read_peer_gid, write_peer_gid },
	[FIELD_QP]           = { "QP", QP_LEN, 0, true, true, read_qp, write_qps },
	[FIELD_REGION]       = { "REGION", REGION_FIXED_LEN + 1, REGION_FIXED_LEN + ROCELINK_MAX_NAME, false, true, read_region, write_regions },
	[FIELD_ECHO]         = { "ECHO", NONCE_LEN, 0, true, false, read_echo, write_echo },
	[FIELD_STATUS]       = { "STATUS", STATUS_LEN, 0, true, false, read_status, write_status },
	[FIELD_TEXT]         = { "TEXT", 0, ROCELINK_MAX_REASON, false, false, read_reason_text, write_reason_text },
	[FIELD_NAME]         = { "NAME", 1, ROCELINK_MAX_NAME, false, false, read_name, write_name },
};

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
	if (message_has(m, FIELD_NAME) && !is_name(m->name)) {
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
