/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of ibv_*_pingpong (52 or 59 bytes of text with a NUL, then "done") and of perftest (a
 * version, some numbers, then records of hexadecimal fields separated by colons). Neither has a
 * frame: a message that can't become a known one is given out as far as it has arrived.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_exchange.h"
#include "tools/decode_frame.h"

/* One character of a pattern stands for one byte: 'h' a hexadecimal digit, '0' a NUL, else itself.
 */
static const char ibv_record[] = "hhhh:hhhhhh:hhhhhh:hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh0";
static const char ibv_xrc_record[] = "hhhh:hhhhhh:hhhhhh:hhhhhh:hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh0";
static const char perftest_record[] = "hhhh:hhhh:hhhhhh:hhhhhh:hhhhhhhh:hhhhhhhhhhhhhhhh:"
				      "hh:hh:hh:hh:hh:hh:hh:hh:hh:hh:hh:hh:hh:hh:hh:hh:hhhhhhhh:0";
static const char perftest_ib_record[] =
	"hhhh:hhhh:hhhhhh:hhhhhh:hhhhhhhh:hhhhhhhhhhhhhhhh:hhhhhhhh0";
static const char done_word[] = "done0";

enum { PERFTEST_VERSION_LEN = 16, BYTES_MAX = 65536 };

enum match { MATCH_NO, MATCH_PART, MATCH_YES };

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static bool char_matches(char pattern, uint8_t c)
{
	switch (pattern) {
	case 'h':
		return hex_digit(c) >= 0;
	case '0':
		return c == 0;
	default:
		return c == (uint8_t)pattern;
	}
}

static enum match match(const char *pattern, const uint8_t *data, size_t len)
{
	size_t n = strlen(pattern);

	for (size_t i = 0; i < n && i < len; i++)
		if (!char_matches(pattern[i], data[i]))
			return MATCH_NO;
	return len < n ? MATCH_PART : MATCH_YES;
}

/* The number in the next `digits` digits; colons before and among them are stepped over. */
static uint64_t take_hex(const uint8_t **p, unsigned digits)
{
	uint64_t v = 0;

	while (digits > 0) {
		if (**p != ':') {
			v = v << 4 | (uint64_t)hex_digit(**p);
			digits--;
		}
		(*p)++;
	}
	return v;
}

static struct gid take_gid(const uint8_t **p)
{
	struct gid g;

	for (unsigned i = 0; i < sizeof(g.raw); i++)
		g.raw[i] = (uint8_t)take_hex(p, 2);
	return g;
}

void message_destroy(struct message *m)
{
	free(m->told);
	free(m->bytes);
	memset(m, 0, sizeof(*m));
}

struct told *message_add_told(struct message *m)
{
	m->told = decode_realloc(m->told, (m->n_told + 1) * sizeof(*m->told));
	memset(&m->told[m->n_told], 0, sizeof(*m->told));
	return &m->told[m->n_told++];
}

static void keep_bytes(struct message *m, const char *name, const uint8_t *data, size_t len)
{
	m->name = name;
	m->bytes = decode_alloc(len);
	memcpy(m->bytes, data, len);
	m->n_bytes = len;
}

static size_t ibv_take(struct message *m, const uint8_t *data, bool xrc)
{
	const uint8_t *p = data;
	struct told *t = message_add_told(m);

	m->name = "record";
	t->has = TOLD_LID | TOLD_QPN | TOLD_PSN | TOLD_GID;
	t->lid = (uint32_t)take_hex(&p, 4);
	t->qpn = (uint32_t)take_hex(&p, 6);
	t->psn = (uint32_t)take_hex(&p, 6);
	if (xrc) {
		t->has |= TOLD_SRQN;
		t->srqn = (uint32_t)take_hex(&p, 6);
	}
	t->gid = take_gid(&p);
	if (t->qpn == 0)
		snprintf(m->text, sizeof(m->text), "an unused record");
	else if (gid_is_zero(&t->gid))
		snprintf(m->text, sizeof(m->text),
			 "no GID: the program was started without -g, RoCE can't reach it");
	return strlen(xrc ? ibv_xrc_record : ibv_record);
}

static size_t perftest_take(struct message *m, const uint8_t *data, bool has_gid)
{
	const uint8_t *p = data;
	struct told *t = message_add_told(m);
	uint64_t reads;

	m->name = "record";
	t->has = TOLD_LID | TOLD_QPN | TOLD_PSN | TOLD_RKEY | TOLD_SRQN;
	t->lid = (uint32_t)take_hex(&p, 4);
	reads = take_hex(&p, 4);
	t->qpn = (uint32_t)take_hex(&p, 6);
	t->psn = (uint32_t)take_hex(&p, 6);
	t->rkey = (uint32_t)take_hex(&p, 8);
	t->va = take_hex(&p, 16);
	if (has_gid) {
		t->has |= TOLD_GID;
		t->gid = take_gid(&p);
	}
	t->srqn = (uint32_t)take_hex(&p, 8);
	snprintf(m->text, sizeof(m->text), "outstanding READs and atomics: %" PRIu64, reads);
	return strlen(has_gid ? perftest_record : perftest_ib_record);
}

static size_t done_take(struct message *m, const char *meaning)
{
	m->name = "done";
	snprintf(m->text, sizeof(m->text), "%s", meaning);
	return strlen(done_word);
}

static size_t ibv_next(const uint8_t *data, size_t len, struct message *m)
{
	enum match record = match(ibv_record, data, len);
	enum match xrc = match(ibv_xrc_record, data, len);
	enum match done = match(done_word, data, len);

	if (record == MATCH_YES || xrc == MATCH_YES)
		return ibv_take(m, data, xrc == MATCH_YES);
	if (done == MATCH_YES)
		return done_take(m, "the client's queue pair is ready");
	if (record == MATCH_PART || xrc == MATCH_PART || done == MATCH_PART)
		return 0;
	keep_bytes(m, "bytes", data, len);
	return len;
}

/* Numbers that perftest compares before the records; their place and size tell what they are. */
static bool perftest_number(unsigned message, const uint8_t *data, size_t len, struct message *m)
{
	if (len == 4 && message == 1)
		snprintf(m->text, sizeof(m->text), "cycle buffer of %u bytes", frame_be32(data));
	else if (len == 4 && message == 2)
		snprintf(m->text, sizeof(m->text), "cache line of %u bytes", frame_be32(data));
	else if (len == 2 && message == 3 && data[0] >= '1' && data[0] <= '5' && data[1] == 0)
		snprintf(m->text, sizeof(m->text), "path MTU code %c: %u bytes", data[0],
			 128u << (data[0] - '0'));
	else
		return false;
	keep_bytes(m, "number", data, len);
	return true;
}

static size_t perftest_next(unsigned message, const uint8_t *data, size_t len, struct message *m)
{
	enum match record = match(perftest_record, data, len);
	enum match ib = match(perftest_ib_record, data, len);
	enum match done = match(done_word, data, len);

	if (message == 0) {
		if (len < PERFTEST_VERSION_LEN)
			return 0;
		m->name = "version";
		snprintf(m->text, sizeof(m->text), "perftest %.15s", (const char *)data);
		return PERFTEST_VERSION_LEN;
	}
	if (message <= 3 && perftest_number(message, data, len, m))
		return len;
	if (record == MATCH_YES || ib == MATCH_YES)
		return perftest_take(m, data, record == MATCH_YES);
	if (done == MATCH_YES)
		return done_take(m, "this side has finished");
	/* A single digit may be the beginning of a record, or a number like those above. */
	if ((record == MATCH_PART || ib == MATCH_PART || done == MATCH_PART) && len > 8)
		return 0;
	keep_bytes(m, "bytes", data, len);
	return len;
}

/* "6.06" and NULs up to 16 bytes. */
static enum match match_perftest_version(const uint8_t *data, size_t len)
{
	enum match m = match("h.hh0", data, len);

	if (m == MATCH_NO)
		m = match("h.h0", data, len);
	if (m != MATCH_YES)
		return m;
	if (len < PERFTEST_VERSION_LEN)
		return MATCH_PART;
	return data[PERFTEST_VERSION_LEN - 1] == 0 ? MATCH_YES : MATCH_NO;
}

static enum match match_bytes(const char *bytes, size_t n, const uint8_t *data, size_t len)
{
	if (memcmp(bytes, data, len < n ? len : n) != 0)
		return MATCH_NO;
	return len < n ? MATCH_PART : MATCH_YES;
}

/* Which protocol begins like this? EXCHANGE_UNKNOWN: too early to say. */
static enum exchange_protocol recognise(const uint8_t *data, size_t len)
{
	const struct {
		enum exchange_protocol protocol;
		enum match match;
	} rows[] = {
		{ EXCHANGE_IBV, match(ibv_record, data, len) },
		{ EXCHANGE_IBV, match(ibv_xrc_record, data, len) },
		{ EXCHANGE_PERFTEST, match_perftest_version(data, len) },
		{ EXCHANGE_ROCELINK, match_bytes("RLNK", 4, data, len) },
		{ EXCHANGE_TLS, match_bytes("\x16\x03", 2, data, len) },
	};
	bool part = false;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].match == MATCH_YES)
			return rows[i].protocol;
		part |= rows[i].match == MATCH_PART;
	}
	return part ? EXCHANGE_UNKNOWN : EXCHANGE_BYTES;
}

const char *exchange_name(enum exchange_protocol protocol)
{
	switch (protocol) {
	case EXCHANGE_IBV:
		return "ibv_pingpong";
	case EXCHANGE_PERFTEST:
		return "perftest";
	case EXCHANGE_ROCELINK:
		return "rocelink";
	case EXCHANGE_TLS:
		return "tls";
	case EXCHANGE_CM:
		return "cm";
	case EXCHANGE_UNKNOWN:
	case EXCHANGE_BYTES:
	default:
		return "unknown";
	}
}

static size_t tls_next(unsigned message, const uint8_t *data, size_t len, struct message *m)
{
	keep_bytes(m, "bytes", data, len);
	if (message == 0)
		snprintf(m->text, sizeof(m->text),
			 "TLS: the exchange is encrypted and can't be read here");
	return len;
}

size_t exchange_next(struct exchange_half *half, const struct exchange_half *other,
		     const uint8_t *data, size_t len, struct message *m)
{
	size_t used = 0;

	memset(m, 0, sizeof(*m));
	/* The client of the pingpong programs says "done" only after its record, and each side of
	 * the others begins as the other does. */
	if (half->protocol == EXCHANGE_UNKNOWN)
		half->protocol = recognise(data, len);
	if (half->protocol == EXCHANGE_BYTES && other->protocol == EXCHANGE_TLS)
		half->protocol = EXCHANGE_TLS;
	switch (half->protocol) {
	case EXCHANGE_UNKNOWN:
		return 0;
	case EXCHANGE_IBV:
		used = ibv_next(data, len, m);
		break;
	case EXCHANGE_PERFTEST:
		used = perftest_next(half->messages, data, len, m);
		break;
	case EXCHANGE_ROCELINK:
		used = rlnk_next(half, data, len, m);
		break;
	case EXCHANGE_TLS:
		used = tls_next(half->messages, data, len, m);
		break;
	case EXCHANGE_CM:
	case EXCHANGE_BYTES:
	default:
		break;
	}
	if (half->protocol == EXCHANGE_BYTES) {
		used = len < BYTES_MAX ? len : BYTES_MAX;
		keep_bytes(m, "bytes", data, used);
	}
	m->protocol = half->protocol;
	if (used)
		half->messages++;
	else
		message_destroy(m);
	return used;
}

void exchange_lost(struct exchange_half *half)
{
	half->protocol = EXCHANGE_BYTES;
}
