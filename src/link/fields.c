/* SPDX-License-Identifier: BSD-2-Clause */
/* One row per field type: its length, and how it is read into a message and written from it. */
#include "link/fields.h"

#include <string.h>

#include "link/fail.h"

enum {
	QP_LEN = 28,
	GID_LEN = 20,
	REGION_FIXED_LEN = 24,
	STATUS_LEN = 8,
	UINT24_MAX = 0xffffff,
};

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
const struct field fields[FIELD_TYPES] = {
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
/* clang-format on */
