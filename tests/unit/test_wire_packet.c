/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets: values and bytes are one and the same, every reason to refuse is provoked, tables are
 * right. */
#include "wire/packet.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "prng.h"
#include "test.h"

#define PACKET_MAX (PACKET_HEADER_MAX + MTU_MAX + 3 + ICRC_LEN)

static bool is_payload_fixed(const struct opcode_info *op, uint32_t *len)
{
	*len = op->kind == OP_CNP ? 16 : op->kind == OP_ATOMIC_WRITE ? 8 : 0;
	return *len != 0 || !(op->flags & OPF_PAYLOAD);
}

static struct packet random_packet(struct prng *r, uint8_t opcode)
{
	const struct opcode_info *op = opcode_info(opcode);
	struct packet p;

	prng_fill(r, &p, sizeof(p));
	p.opcode = opcode;
	p.solicited = prng_u64(r) & 1;
	p.mig_req = prng_u64(r) & 1;
	p.ack_req = prng_u64(r) & 1;
	p.fecn = prng_u64(r) & 1;
	p.becn = prng_u64(r) & 1;
	p.dest_qpn &= 0xffffff;
	p.psn = psn_make(p.psn.v);
	p.xrc_srqn &= 0xffffff;
	p.src_qpn &= 0xffffff;
	p.msn &= 0xffffff;
	p.flush_type &= 0xf;
	p.flush_level &= 3;
	if (!is_payload_fixed(op, &p.payload_len))
		p.payload_len = (uint32_t)prng_below(r, MTU_MAX + 1);
	if (op->position == POS_FIRST || op->position == POS_MIDDLE)
		p.payload_len &= ~3u;
	return p;
}

static void assert_same_extended(const struct packet *a, const struct packet *b, unsigned headers)
{
	if (headers & HDR_XRCETH)
		assert_int_equal(a->xrc_srqn, b->xrc_srqn);
	if (headers & HDR_DETH)
		assert_true(a->qkey == b->qkey && a->src_qpn == b->src_qpn);
	if (headers & HDR_FETH)
		assert_true(a->flush_type == b->flush_type && a->flush_level == b->flush_level);
	if (headers & (HDR_RETH | HDR_ATOMIC_ETH))
		assert_true(a->va == b->va && a->rkey == b->rkey);
	if (headers & HDR_RETH)
		assert_int_equal(a->dma_len, b->dma_len);
	if (headers & HDR_ATOMIC_ETH)
		assert_true(a->swap_add == b->swap_add && a->compare == b->compare);
	if (headers & HDR_AETH)
		assert_true(a->syndrome == b->syndrome && a->msn == b->msn);
	if (headers & HDR_ATOMIC_ACK)
		assert_true(a->atomic_result == b->atomic_result);
	if (headers & HDR_IMM)
		assert_int_equal(a->imm, b->imm);
	if (headers & HDR_IETH)
		assert_int_equal(a->invalidate_rkey, b->invalidate_rkey);
}

static void assert_same(const struct packet *a, const struct packet *b)
{
	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->solicited, b->solicited);
	assert_int_equal(a->mig_req, b->mig_req);
	assert_int_equal(a->ack_req, b->ack_req);
	assert_int_equal(a->fecn, b->fecn);
	assert_int_equal(a->becn, b->becn);
	assert_int_equal(a->pkey, b->pkey);
	assert_int_equal(a->dest_qpn, b->dest_qpn);
	assert_int_equal(a->psn.v, b->psn.v);
	assert_int_equal(a->payload_len, b->payload_len);
	assert_same_extended(a, b, opcode_info(a->opcode)->headers);
}

static void what_is_built_is_parsed(void **state)
{
	struct prng r = { .state = 4 };
	uint8_t bytes[PACKET_MAX];

	(void)state;
	for (unsigned i = 0; i < 256 * 400; i++) {
		const struct opcode_info *op = opcode_info((uint8_t)i);
		struct packet in, out;
		unsigned headers;

		if (op->kind == OP_NONE)
			continue;
		in = random_packet(&r, (uint8_t)i);
		memset(bytes, 0xee, sizeof(bytes));
		headers = packet_build_headers(&in, bytes);
		assert_int_equal(headers, packet_headers_len((uint8_t)i));
		assert_int_equal(bytes[headers], 0xee);
		assert_int_equal(packet_parse(&out, bytes,
					      headers + in.payload_len +
						      packet_pad(in.payload_len) + ICRC_LEN),
				 DROP_NONE);
		assert_same(&in, &out);
		assert_ptr_equal(out.op, op);
		assert_ptr_equal(out.payload, bytes + headers);
		assert_int_equal(out.pad, packet_pad(in.payload_len));
	}
}

/* Where each field stands, in bytes counted by hand (IBA 9.2 and 9.3). */
static void fields_stand_where_the_specification_says(void **state)
{
	static const uint8_t write_imm[] = { 0xab, 0xd0, 0x12, 0x34, 0x80, 0xaa, 0xbb, 0xcc, 0x80,
					     0x01, 0x02, 0x03, 0x00, 0x44, 0x55, 0x66, 0x10, 0x11,
					     0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x20, 0x21, 0x22,
					     0x23, 0x00, 0x00, 0x00, 0x03, 0xde, 0xad, 0xbe, 0xef };
	const struct packet write = { .opcode = 0xab,
				      .solicited = true,
				      .mig_req = true,
				      .pkey = 0x1234,
				      .fecn = true,
				      .dest_qpn = 0xaabbcc,
				      .ack_req = true,
				      .psn = { 0x010203 },
				      .xrc_srqn = 0x445566,
				      .va = 0x1011121314151617,
				      .rkey = 0x20212223,
				      .dma_len = 3,
				      .imm = htobe32(0xdeadbeef),
				      .payload_len = 3 };
	static const uint8_t ack[] = { 0x12, 0x00, 0xff, 0xff, 0x40, 0x00, 0x00, 0x07,
				       0x00, 0xff, 0xff, 0xfe, 0x1f, 0x00, 0x00, 0x09,
				       0x9f, 0xae, 0x6d, 0xbb, 0x72, 0x51, 0xd1, 0x00 };
	const struct packet atomic_ack = { .opcode = 0x12,
					   .pkey = 0xffff,
					   .becn = true,
					   .dest_qpn = 7,
					   .psn = { 0xfffffe },
					   .syndrome = 0x1f,
					   .msn = 9,
					   .atomic_result = 0x9fae6dbb7251d100 };
	uint8_t out[PACKET_HEADER_MAX];

	(void)state;
	assert_int_equal(packet_build_headers(&write, out), sizeof(write_imm));
	assert_memory_equal(out, write_imm, sizeof(write_imm));
	assert_int_equal(packet_build_headers(&atomic_ack, out), sizeof(ack));
	assert_memory_equal(out, ack, sizeof(ack));
}

static void fields_of_atomics_datagrams_and_flushes(void **state)
{
	static const uint8_t swap[] = { 1, 2, 3, 4, 5, 6, 7, 8, 0xa, 0xb, 0xc, 0xd, 9, 9,
					9, 9, 9, 9, 9, 9, 8, 8, 8,   8,	  8,   8,   8, 8 };
	static const uint8_t deth[] = { 0x11, 0x22, 0x33, 0x44, 0, 0x55, 0x66, 0x77 };
	static const uint8_t feth[] = { 0, 0, 0, 0x12 };
	static const uint8_t ieth[] = { 0xca, 0xfe, 0xf0, 0x0d };
	struct packet p = { .va = 0x0102030405060708,
			    .rkey = 0x0a0b0c0d,
			    .swap_add = 0x0909090909090909,
			    .compare = 0x0808080808080808,
			    .qkey = 0x11223344,
			    .src_qpn = 0x556677,
			    .flush_type = 2,
			    .flush_level = 1,
			    .invalidate_rkey = 0xcafef00d };
	uint8_t out[PACKET_HEADER_MAX];

	(void)state;
	p.opcode = 0x13;
	assert_int_equal(packet_build_headers(&p, out), BTH_LEN + sizeof(swap));
	assert_memory_equal(out + BTH_LEN, swap, sizeof(swap));
	p.opcode = 0x64;
	assert_int_equal(packet_build_headers(&p, out), BTH_LEN + sizeof(deth));
	assert_memory_equal(out + BTH_LEN, deth, sizeof(deth));
	p.opcode = 0x1c;
	assert_int_equal(packet_build_headers(&p, out), BTH_LEN + sizeof(feth) + 16);
	assert_memory_equal(out + BTH_LEN, feth, sizeof(feth));
	p.opcode = 0x17;
	assert_int_equal(packet_build_headers(&p, out), BTH_LEN + sizeof(ieth));
	assert_memory_equal(out + BTH_LEN, ieth, sizeof(ieth));
}

/* Verdict on a packet of zeros with this opcode, flags byte and number of bytes behind its headers.
 */
static enum drop verdict(uint8_t opcode, uint8_t flags, size_t behind)
{
	size_t len = packet_headers_len(opcode) + behind + ICRC_LEN;
	uint8_t *bytes = calloc(1, len);
	struct packet p;
	enum drop drop;

	assert_non_null(bytes);
	bytes[0] = opcode;
	bytes[1] = flags;
	drop = packet_parse(&p, bytes, len);
	free(bytes);
	return drop;
}

#define PAD(n) ((uint8_t)((n) << 4))

static void short_packets_are_dropped(void **state)
{
	(void)state;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		size_t needed = packet_headers_len((uint8_t)opcode) + ICRC_LEN;

		if (opcode_info((uint8_t)opcode)->kind == OP_NONE)
			continue;
		for (size_t len = 0; len < needed; len++) {
			uint8_t *bytes = calloc(1, len + 1);
			struct packet p;

			assert_non_null(bytes);
			bytes[0] = (uint8_t)opcode;
			assert_int_equal(packet_parse(&p, bytes, len), DROP_SHORT);
			free(bytes);
		}
	}
}

static void reserved_opcodes_are_dropped(void **state)
{
	unsigned reserved = 0;

	(void)state;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		if (opcode_info((uint8_t)opcode)->kind != OP_NONE)
			continue;
		assert_int_equal(verdict((uint8_t)opcode, 0, 64), DROP_OPCODE);
		reserved++;
	}
	assert_int_equal(reserved, 256 - 65);
}

static void other_versions_are_dropped(void **state)
{
	(void)state;
	for (uint8_t version = 1; version < 16; version++)
		assert_int_equal(verdict(0x04, version, 64), DROP_VERSION);
	assert_int_equal(verdict(0x04, 0xc0, 64), DROP_NONE);
}

static void impossible_lengths_are_dropped(void **state)
{
	(void)state;
	/* Not a multiple of 4. */
	for (size_t odd = 1; odd < 4; odd++)
		assert_int_equal(verdict(0x04, 0, 64 + odd), DROP_LENGTH);
	/* Pad without payload to pad. */
	for (unsigned pad = 1; pad < 4; pad++) {
		assert_int_equal(verdict(0x04, PAD(pad), 0), DROP_LENGTH);
		assert_int_equal(verdict(0x11, PAD(pad), 0), DROP_LENGTH);
		assert_int_equal(verdict(0x04, PAD(pad), 4), DROP_NONE);
	}
	/* More than the largest MTU. */
	assert_int_equal(verdict(0x04, 0, 4096), DROP_NONE);
	assert_int_equal(verdict(0x04, 0, 4100), DROP_LENGTH);
	assert_int_equal(verdict(0x04, PAD(3), 4100), DROP_LENGTH);
	assert_int_equal(verdict(0x64, 0, 4100), DROP_LENGTH);
	/* CNP and ATOMIC WRITE have a fixed size. */
	assert_int_equal(verdict(0x81, 0, 16), DROP_NONE);
	assert_int_equal(verdict(0x81, 0, 12), DROP_LENGTH);
	assert_int_equal(verdict(0x81, 0, 20), DROP_LENGTH);
	assert_int_equal(verdict(0x81, PAD(1), 16), DROP_LENGTH);
	assert_int_equal(verdict(0x1d, 0, 8), DROP_NONE);
	assert_int_equal(verdict(0x1d, 0, 4), DROP_LENGTH);
	assert_int_equal(verdict(0x1d, 0, 12), DROP_LENGTH);
	assert_int_equal(verdict(0x1d, PAD(2), 8), DROP_LENGTH);
}

static void payload_and_pad_only_where_allowed(void **state)
{
	(void)state;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		const struct opcode_info *op = opcode_info((uint8_t)opcode);
		bool goes_on = op->position == POS_FIRST || op->position == POS_MIDDLE;
		uint32_t fixed;

		if (op->kind == OP_NONE)
			continue;
		if (is_payload_fixed(op, &fixed)) {
			assert_int_equal(verdict((uint8_t)opcode, 0, fixed), DROP_NONE);
			assert_int_equal(verdict((uint8_t)opcode, 0, fixed + 4), DROP_LENGTH);
			continue;
		}
		assert_int_equal(verdict((uint8_t)opcode, 0, 256), DROP_NONE);
		for (unsigned pad = 1; pad < 4; pad++)
			assert_int_equal(verdict((uint8_t)opcode, PAD(pad), 256),
					 goes_on ? DROP_LENGTH : DROP_NONE);
	}
}

/* Any bytes whatever: either refused or with the payload inside the packet. */
static void garbage_is_never_trusted(void **state)
{
	struct prng r = { .state = 5 };
	unsigned accepted = 0;

	(void)state;
	for (int i = 0; i < 100000; i++) {
		size_t len = prng_below(&r, 100);
		uint8_t *bytes =
			malloc(len + 1); /* its own block, so that a sanitizer sees every overrun */
		struct packet p;

		assert_non_null(bytes);
		prng_fill(&r, bytes, len);
		if (len > 1)
			bytes[1] &= 0xf0;
		if (packet_parse(&p, bytes, len) == DROP_NONE) {
			accepted++;
			assert_true(p.payload >= bytes + BTH_LEN);
			assert_ptr_equal(p.payload + p.payload_len + p.pad + ICRC_LEN, bytes + len);
		}
		free(bytes);
	}
	assert_true(accepted > 1000);
}

/* IBA table 46, in milliseconds. */
static void rnr_timers_are_table_46(void **state)
{
	static const double ms[] = {
		655.36, 0.01,  0.02,  0.03,  0.04,  0.06,   0.08,   0.12,   0.16,   0.24,   0.32,
		0.48,	0.64,  0.96,  1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24,  15.36,
		20.48,	30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
	};

	(void)state;
	assert_int_equal(ARRAY_LEN(ms), 32);
	for (unsigned code = 0; code < 32; code++)
		assert_int_equal(rnr_timer_ns(code), llround(ms[code] * 1e6));
}

/* Table 44: an AETH syndrome is 0 and a credit count, 001 and an RNR timer, or 011 and a NAK code.
 */
static void syndromes(void **state)
{
	static const struct {
		uint8_t syndrome;
		enum aeth_kind kind;
		unsigned value;
	} rows[] = {
		{ 0x00, AETH_ACK, 0 },
		{ 0x1f, AETH_ACK, AETH_CREDIT_INVALID },
		{ 0x2c, AETH_RNR_NAK, 12 },
		{ 0x3f, AETH_RNR_NAK, 31 },
		{ 0x60, AETH_NAK, NAK_PSN_SEQUENCE },
		{ 0x61, AETH_NAK, NAK_INVALID_REQUEST },
		{ 0x62, AETH_NAK, NAK_REMOTE_ACCESS },
		{ 0x63, AETH_NAK, NAK_REMOTE_OPERATIONAL },
		{ 0x64, AETH_NAK, NAK_INVALID_RD_REQUEST },
	};
	uint8_t bytes[BTH_LEN + 4 + ICRC_LEN] = { 0x11 };
	struct packet p;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		bytes[BTH_LEN] = rows[i].syndrome;
		assert_int_equal(packet_parse(&p, bytes, sizeof(bytes)), DROP_NONE);
		assert_int_equal(p.syndrome & AETH_KIND_MASK, rows[i].kind);
		assert_int_equal(p.syndrome & AETH_VALUE_MASK, rows[i].value);
		assert_int_equal(rows[i].kind | rows[i].value, rows[i].syndrome);
	}
}

static void pad_fills_to_four(void **state)
{
	(void)state;
	for (uint32_t len = 0; len <= MTU_MAX; len++) {
		assert_int_equal((len + packet_pad(len)) % 4, 0);
		assert_true(packet_pad(len) < 4);
	}
}

/* Names are words for counters and tables, each its own; explanations are sentences. */
static void every_drop_has_its_words(void **state)
{
	(void)state;
	for (unsigned a = 0; a < DROP_COUNT; a++) {
		const char *name = drop_name(a), *text = drop_explanation(a);

		assert_non_null(name);
		assert_non_null(text);
		assert_true(strlen(name) > 1 && strlen(name) < 16);
		for (const char *c = name; *c; c++)
			assert_true(islower((unsigned char)*c) || *c == '_');
		assert_true(isupper((unsigned char)text[0]));
		assert_int_equal(text[strlen(text) - 1], '.');
		for (unsigned b = 0; b < a; b++) {
			assert_string_not_equal(name, drop_name(b));
			assert_string_not_equal(text, drop_explanation(b));
		}
	}
	assert_string_equal(drop_name(DROP_ICRC), "icrc");
	assert_string_equal(drop_name(DROP_CNP), "cnp");
	assert_string_equal(drop_name(DROP_COUNT), "unknown");
	assert_non_null(drop_explanation(DROP_COUNT));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_built_is_parsed),
		cmocka_unit_test(fields_stand_where_the_specification_says),
		cmocka_unit_test(fields_of_atomics_datagrams_and_flushes),
		cmocka_unit_test(short_packets_are_dropped),
		cmocka_unit_test(reserved_opcodes_are_dropped),
		cmocka_unit_test(other_versions_are_dropped),
		cmocka_unit_test(impossible_lengths_are_dropped),
		cmocka_unit_test(payload_and_pad_only_where_allowed),
		cmocka_unit_test(garbage_is_never_trusted),
		cmocka_unit_test(rnr_timers_are_table_46),
		cmocka_unit_test(syndromes),
		cmocka_unit_test(pad_fills_to_four),
		cmocka_unit_test(every_drop_has_its_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
