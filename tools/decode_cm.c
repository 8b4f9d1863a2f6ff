/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/decode_cm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "tools/decode_alloc.h"

enum {
	MAD_HEADER = 24,
	MAD_BASE_VERSION = 1,
	MAD_CLASS_CM = 0x07,
	CM_CLASS_VERSION = 2,
	SEARCH_MAX = 4096,
};

/* Attribute IDs. */
enum {
	CM_REQ = 0x10,
	CM_MRA,
	CM_REJ,
	CM_REP,
	CM_RTU,
	CM_DREQ,
	CM_DREP,
	CM_SIDR_REQ,
	CM_SIDR_REP,
};

static const char *const names[] = { "REQ",  "MRA",  "REJ",	 "REP",	    "RTU",
				     "DREQ", "DREP", "SIDR_REQ", "SIDR_REP" };

/* The ports of librdmacm: service ID 0x01, protocol, 16 bits of port. */
#define SERVICE_IP_PREFIX 0x0000000001000000u
#define SERVICE_IP_MASK	  0xffffffffff000000u

void cm_table_destroy(struct cm_table *t)
{
	for (struct cm_conn *c = t->newest, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	t->newest = NULL;
}

static uint32_t be24_at(const uint8_t *p)
{
	return frame_be32(p) >> 8;
}

/* The connection of an answer, or of what its requester sends later; id: the sender's and the
 * other's. */
static struct cm_conn *find(struct cm_table *t, const struct frame *f, uint32_t own, uint32_t other,
			    unsigned *side)
{
	struct cm_conn *c = t->newest;

	for (int i = 0; c && i < SEARCH_MAX; i++, c = c->next)
		for (*side = 0; *side < 2; (*side)++) {
			if (!gid_eq(&c->address[*side], &f->src) ||
			    !gid_eq(&c->address[!*side], &f->dst))
				continue;
			if (*side == 0 && c->id[0] == own && (!c->id[1] || c->id[1] == other))
				return c;
			if (*side == 1 && c->id[0] == other)
				return c;
		}
	return NULL;
}

static struct cm_conn *request(struct cm_table *t, struct registry *r, const struct frame *f,
			       uint32_t id, struct party *from, struct party *to)
{
	unsigned side;
	struct cm_conn *c = find(t, f, id, 0, &side);

	if (c && side == 0 && !c->id[1])
		return c; /* repeated */
	c = decode_alloc(sizeof(*c));
	c->address[0] = f->src;
	c->address[1] = f->dst;
	c->id[0] = id;
	c->exchange = exchange_add(r, from, to);
	c->next = t->newest;
	t->newest = c;
	return c;
}

static void say_service(struct message *m, uint64_t id)
{
	if ((id & SERVICE_IP_MASK) == SERVICE_IP_PREFIX)
		snprintf(m->text, sizeof(m->text), "asks for port %u (service 0x%" PRIx64 ")",
			 (unsigned)(id & 0xffff), id);
	else
		snprintf(m->text, sizeof(m->text), "asks for service 0x%" PRIx64, id);
}

static void read_req(struct message *m, const struct frame *f, const uint8_t *v)
{
	static const char *const types[] = { "RC", "UC", "RD", NULL };
	struct told *t = message_add_told(m);
	unsigned mtu = v[50] >> 4;

	t->has = TOLD_QPN | TOLD_PSN | TOLD_GID;
	t->qpn = be24_at(v + 32);
	t->psn = be24_at(v + 44);
	t->gid = f->src;
	t->type = types[v[43] >> 1 & 3];
	if (t->type)
		t->has |= TOLD_TYPE;
	if (mtu >= 1 && mtu <= 5) {
		t->has |= TOLD_MTU;
		t->mtu = 128u << mtu;
	}
	say_service(m, frame_be64(v + 8));
}

static void read_rep(struct message *m, const struct frame *f, const uint8_t *v)
{
	struct told *t = message_add_told(m);

	t->has = TOLD_QPN | TOLD_PSN | TOLD_GID;
	t->qpn = be24_at(v + 12);
	t->psn = be24_at(v + 20);
	t->gid = f->src;
}

static void read_rej(struct message *m, const uint8_t *v)
{
	static const struct {
		unsigned reason;
		const char *text;
	} rows[] = {
		{ 1, "no queue pair available" },
		{ 3, "no resources available" },
		{ 4, "timeout" },
		{ 8, "nobody listens to this service" },
		{ 10, "stale connection" },
		{ 12, "GID not accepted" },
		{ 28, "the program refuses" },
	};
	unsigned reason = frame_be16(v + 10);
	const char *text = "see the specification, table 107";

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].reason == reason)
			text = rows[i].text;
	snprintf(m->text, sizeof(m->text), "refused, reason %u: %s", reason, text);
}

static void read_sidr_rep(struct message *m, const struct frame *f, const uint8_t *v)
{
	struct told *t;

	if (v[4] != 0) {
		snprintf(m->text, sizeof(m->text), "refused, status %u", v[4]);
		return;
	}
	t = message_add_told(m);
	t->has = TOLD_TYPE | TOLD_QPN | TOLD_QKEY | TOLD_GID;
	t->type = "UD";
	t->qpn = be24_at(v + 8);
	t->qkey = frame_be32(v + 20);
	t->gid = f->src;
}

static void read_fields(struct message *m, const struct frame *f, unsigned attribute,
			const uint8_t *v)
{
	switch (attribute) {
	case CM_REQ:
		read_req(m, f, v);
		break;
	case CM_REP:
		read_rep(m, f, v);
		break;
	case CM_REJ:
		read_rej(m, v);
		break;
	case CM_RTU:
		snprintf(m->text, sizeof(m->text), "the active side's queue pair is ready");
		break;
	case CM_DREQ:
		snprintf(m->text, sizeof(m->text), "ends the connection of QPN 0x%06x",
			 be24_at(v + 8));
		break;
	case CM_SIDR_REQ:
		say_service(m, frame_be64(v + 8));
		break;
	case CM_SIDR_REP:
		read_sidr_rep(m, f, v);
		break;
	default:
		break;
	}
}

bool cm_read(struct cm_table *t, struct registry *r, const struct frame *f, const uint8_t *mad,
	     struct party *from, struct party *to, struct message *m, struct cm_conn **conn,
	     unsigned *side)
{
	const uint8_t *v = mad + MAD_HEADER;
	unsigned attribute = frame_be16(mad + 16);
	uint32_t own = frame_be32(v), other = frame_be32(v + 4);

	if (mad[0] != MAD_BASE_VERSION || mad[1] != MAD_CLASS_CM || mad[2] != CM_CLASS_VERSION ||
	    attribute < CM_REQ || attribute > CM_SIDR_REP)
		return false;
	memset(m, 0, sizeof(*m));
	m->protocol = EXCHANGE_CM;
	m->name = names[attribute - CM_REQ];
	read_fields(m, f, attribute, v);
	*side = 0;
	if (attribute == CM_REQ || attribute == CM_SIDR_REQ)
		*conn = request(t, r, f, own, from, to);
	else if (attribute == CM_SIDR_REP) /* has the requester's ID only */
		*conn = find(t, f, 0, own, side);
	else
		*conn = find(t, f, own, other, side);
	if (*conn && *side == 1 && attribute != CM_SIDR_REP)
		(*conn)->id[1] = own;
	return true;
}
