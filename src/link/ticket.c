/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/ticket.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

#include "link/base32.h"
#include "link/fail.h"

enum {
	TICKET_VERSION = 1,
	FLAG_IPV4 = 1 << 0,
	FLAG_REGIONS = 1 << 1,
	KIND_SHIFT = 2,
	VERSION_SHIFT = 4,
	QP_WISHES = 1 << 6,
	QP_OPS = 1 << 7,
	CRC_LEN = 3,
	MAPPED_LEN = 12,
};

static const char prefix[] = "RL1-";
static const uint8_t mapped[MAPPED_LEN] = { [10] = 0xff, [11] = 0xff };

static bool has_depths(unsigned type)
{
	return type == WIRE_RC || type == WIRE_XRC_INI || type == WIRE_XRC_TGT;
}

static void put_qp(struct buffer *b, const struct qp_values *q)
{
	buffer_put_uint(b,
			q->type | (unsigned)q->mtu << 3 | (q->wishes ? QP_WISHES : 0) |
				(q->ops ? QP_OPS : 0),
			1);
	buffer_put_uint(b, q->qpn, 3);
	buffer_put_uint(b, q->psn, 3);
	if (has_depths(q->type)) {
		buffer_put_uint(b, q->initiator_depth, 1);
		buffer_put_uint(b, q->responder_depth, 1);
	}
	if (q->type == WIRE_UD)
		buffer_put_uint(b, q->qkey, 4);
	if (q->type == WIRE_XRC_TGT)
		buffer_put_uint(b, q->srqn, 3);
	if (q->ops)
		buffer_put_uint(b, q->ops, 1);
	if (q->wishes) {
		buffer_put_uint(b, q->wishes, 1);
		buffer_put_uint(b, q->timeout, 1);
		buffer_put_uint(b, q->retry, 1);
		buffer_put_uint(b, q->rnr_retry, 1);
		buffer_put_uint(b, q->hop_limit, 1);
		buffer_put_uint(b, q->traffic_class, 1);
		buffer_put_uint(b, q->service_level, 1);
	}
}

static void put_region(struct buffer *b, const struct region_value *g)
{
	buffer_put_uint(b, g->addr, 8);
	buffer_put_uint(b, g->length, 8);
	buffer_put_uint(b, g->rkey, 4);
	buffer_put_uint(b, g->access, 1);
	buffer_put_uint(b, strlen(g->name), 1);
	buffer_put(b, g->name, strlen(g->name));
}

int ticket_encode(const struct message *hello, char *text, size_t len)
{
	const struct gid_value *gid = &hello->gids[0];
	bool ipv4 = memcmp(gid->gid, mapped, sizeof(mapped)) == 0;
	struct buffer b = { 0 };
	int rc = -ENOSPC;

	if (hello->qp_count > TICKET_MAX_QPS || hello->region_count > TICKET_MAX_REGIONS)
		return -E2BIG;
	buffer_put_uint(&b,
			TICKET_VERSION << VERSION_SHIFT | (unsigned)gid->kind << KIND_SHIFT |
				(hello->region_count ? FLAG_REGIONS : 0) | (ipv4 ? FLAG_IPV4 : 0),
			1);
	buffer_put(&b, gid->gid + (ipv4 ? MAPPED_LEN : 0), ipv4 ? 4 : 16);
	if (gid->kind == ROCELINK_GID_IB)
		buffer_put_uint(&b, gid->lid, 2);
	buffer_put_uint(&b, hello->qp_count, 1);
	for (unsigned i = 0; i < hello->qp_count; i++)
		put_qp(&b, &hello->qps[i]);
	if (hello->region_count)
		buffer_put_uint(&b, hello->region_count, 1);
	for (unsigned i = 0; i < hello->region_count; i++)
		put_region(&b, &hello->regions[i]);
	buffer_put_uint(&b, crc24(b.data, b.len), CRC_LEN);
	if (b.failed)
		rc = -ENOMEM;
	else if (len > sizeof(prefix)) {
		memcpy(text, prefix, sizeof(prefix));
		rc = base32_encode(text + sizeof(prefix) - 1, len - sizeof(prefix) + 1, b.data,
				   b.len);
	}
	buffer_free(&b);
	return rc;
}

static const char *take_qp(struct message *m, struct reader *r)
{
	struct qp_values q = { 0 };
	unsigned head = (unsigned)reader_uint(r, 1);

	q.type = head & 7;
	q.mtu = head >> 3 & 7;
	q.qpn = (uint32_t)reader_uint(r, 3);
	q.psn = (uint32_t)reader_uint(r, 3);
	if (has_depths(q.type)) {
		q.initiator_depth = (uint8_t)reader_uint(r, 1);
		q.responder_depth = (uint8_t)reader_uint(r, 1);
	}
	if (q.type == WIRE_UD)
		q.qkey = (uint32_t)reader_uint(r, 4);
	if (q.type == WIRE_XRC_TGT)
		q.srqn = (uint32_t)reader_uint(r, 3);
	if (head & QP_OPS)
		q.ops = (uint8_t)reader_uint(r, 1);
	if (head & QP_WISHES) {
		q.wishes = (uint8_t)reader_uint(r, 1);
		q.timeout = (uint8_t)reader_uint(r, 1);
		q.retry = (uint8_t)reader_uint(r, 1);
		q.rnr_retry = (uint8_t)reader_uint(r, 1);
		q.hop_limit = (uint8_t)reader_uint(r, 1);
		q.traffic_class = (uint8_t)reader_uint(r, 1);
		q.service_level = (uint8_t)reader_uint(r, 1);
	}
	if (q.type < WIRE_RC || q.type > WIRE_XRC_TGT || q.mtu < IBV_MTU_256 ||
	    q.mtu > IBV_MTU_4096 || q.timeout > 31 || q.retry > 7 || q.rnr_retry > 7 ||
	    q.service_level > 15)
		return "a queue pair's values are out of range";
	return message_add_qp(m, &q) ? NULL : "";
}

static const char *take_region(struct message *m, struct reader *r)
{
	struct region_value g = { 0 };
	size_t len;
	const uint8_t *name;

	g.addr = reader_uint(r, 8);
	g.length = reader_uint(r, 8);
	g.rkey = (uint32_t)reader_uint(r, 4);
	g.access = (uint32_t)reader_uint(r, 1);
	len = (size_t)reader_uint(r, 1);
	name = reader_bytes(r, len);
	if (!name || len == 0 || len > ROCELINK_MAX_NAME || memchr(name, '\0', len) ||
	    g.length > UINT64_MAX - g.addr)
		return "a region is out of range";
	link_clean_text(g.name, sizeof(g.name), name, len);
	return message_add_region(m, &g) ? NULL : "";
}

static const char *take_all(struct message *m, struct reader *r)
{
	unsigned head = (unsigned)reader_uint(r, 1), qps, regions = 0;
	bool ipv4 = head & FLAG_IPV4;
	struct gid_value *gid = &m->gids[0];
	const uint8_t *bytes;
	const char *wrong = NULL;

	if (head >> VERSION_SHIFT != TICKET_VERSION)
		return "it is of another version";
	gid->kind = head >> KIND_SHIFT & 3;
	bytes = reader_bytes(r, ipv4 ? 4 : 16);
	if (!bytes || gid->kind < ROCELINK_GID_IB)
		return "its GID is incomplete";
	if (ipv4)
		memcpy(gid->gid, mapped, sizeof(mapped));
	memcpy(gid->gid + (ipv4 ? MAPPED_LEN : 0), bytes, ipv4 ? 4 : 16);
	if (gid->kind == ROCELINK_GID_IB)
		gid->lid = (uint16_t)reader_uint(r, 2);
	m->gid_count = 1;
	m->has |= 1u << FIELD_GID;
	qps = (unsigned)reader_uint(r, 1);
	if (qps == 0 || qps > TICKET_MAX_QPS)
		return "it has no queue pair or too many";
	for (unsigned i = 0; i < qps && !wrong; i++)
		wrong = take_qp(m, r);
	if (!wrong && head & FLAG_REGIONS)
		regions = (unsigned)reader_uint(r, 1);
	if (regions > TICKET_MAX_REGIONS)
		return "it has too many regions";
	for (unsigned i = 0; i < regions && !wrong; i++)
		wrong = take_region(m, r);
	if (!wrong && (r->failed || r->left))
		wrong = "its length is wrong";
	return wrong;
}

static int refuse(char *why, size_t len, const char *reason)
{
	snprintf(why, len, "%s", reason);
	return -EINVAL;
}

int ticket_decode(const char *text, struct message *hello, char *why, size_t why_len)
{
	struct buffer b = { 0 };
	struct reader r;
	const char *wrong;
	int rc;

	message_init(hello, FRAME_HELLO);
	while (*text == ' ' || *text == '\t' || *text == '\n')
		text++;
	/* L and I are read as 1 in the prefix too, since people will write it down so. */
	if (strncasecmp(text, prefix, 2) != 0 ||
	    (text[2] != '1' && text[2] != 'l' && text[2] != 'I'))
		return refuse(why, why_len, "it doesn't begin with RL1-");
	if (strlen(text) > ROCELINK_MAX_TICKET)
		return refuse(why, why_len, "it is too long");
	rc = base32_decode(&b, text + 3);
	if (rc == -EINVAL)
		refuse(why, why_len,
		       "it has a character that no ticket has (only digits and letters but U)");
	else if (rc == -EBADMSG)
		rc = refuse(why, why_len, "a character is missing or too many");
	else if (rc == 0 && b.len <= CRC_LEN)
		rc = refuse(why, why_len, "it is too short");
	if (!rc) {
		r = (struct reader){ .p = b.data + b.len - CRC_LEN, .left = CRC_LEN };
		if (reader_uint(&r, CRC_LEN) != crc24(b.data, b.len - CRC_LEN))
			rc = refuse(
				why, why_len,
				"its check digits don't fit: a character is wrong, missing or too "
				"many");
	}
	if (!rc) {
		r = (struct reader){ .p = b.data, .left = b.len - CRC_LEN };
		wrong = take_all(hello, &r);
		if (wrong)
			rc = *wrong ? refuse(why, why_len, wrong) : -ENOMEM;
	}
	buffer_free(&b);
	return rc;
}
