/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The opcode table against a second statement of it, written down from IBA table 38 and the annexes
 * in the specification's own form: opcode, name, headers behind the BTH in words.
 */
#include "wire/opcode.h"

#include <string.h>

#include "base/units.h"
#include "test.h"

struct row {
	uint8_t opcode;
	const char *name, *packet;
};

/* clang-format off */
static const struct row rows[] = {
	/* 000 Reliable Connection */
	{ 0x00, "SEND First",                     "PayLd" },
	{ 0x01, "SEND Middle",                    "PayLd" },
	{ 0x02, "SEND Last",                      "PayLd" },
	{ 0x03, "SEND Last with Immediate",       "ImmDt PayLd" },
	{ 0x04, "SEND Only",                      "PayLd" },
	{ 0x05, "SEND Only with Immediate",       "ImmDt PayLd" },
	{ 0x06, "RDMA WRITE First",               "RETH PayLd" },
	{ 0x07, "RDMA WRITE Middle",              "PayLd" },
	{ 0x08, "RDMA WRITE Last",                "PayLd" },
	{ 0x09, "RDMA WRITE Last with Immediate", "ImmDt PayLd" },
	{ 0x0A, "RDMA WRITE Only",                "RETH PayLd" },
	{ 0x0B, "RDMA WRITE Only with Immediate", "RETH ImmDt PayLd" },
	{ 0x0C, "RDMA READ Request",              "RETH" },
	{ 0x0D, "RDMA READ response First",       "AETH PayLd" },
	{ 0x0E, "RDMA READ response Middle",      "PayLd" },
	{ 0x0F, "RDMA READ response Last",        "AETH PayLd" },
	{ 0x10, "RDMA READ response Only",        "AETH PayLd" },
	{ 0x11, "Acknowledge",                    "AETH" },
	{ 0x12, "ATOMIC Acknowledge",             "AETH AtomicAckETH" },
	{ 0x13, "CmpSwap",                        "AtomicETH" },
	{ 0x14, "FetchAdd",                       "AtomicETH" },
	{ 0x16, "SEND Last with Invalidate",      "IETH PayLd" },
	{ 0x17, "SEND Only with Invalidate",      "IETH PayLd" },
	{ 0x1C, "FLUSH",                          "FETH RETH" },
	{ 0x1D, "ATOMIC WRITE",                   "RETH PayLd" },
	/* 001 Unreliable Connection */
	{ 0x20, "SEND First",                     "PayLd" },
	{ 0x21, "SEND Middle",                    "PayLd" },
	{ 0x22, "SEND Last",                      "PayLd" },
	{ 0x23, "SEND Last with Immediate",       "ImmDt PayLd" },
	{ 0x24, "SEND Only",                      "PayLd" },
	{ 0x25, "SEND Only with Immediate",       "ImmDt PayLd" },
	{ 0x26, "RDMA WRITE First",               "RETH PayLd" },
	{ 0x27, "RDMA WRITE Middle",              "PayLd" },
	{ 0x28, "RDMA WRITE Last",                "PayLd" },
	{ 0x29, "RDMA WRITE Last with Immediate", "ImmDt PayLd" },
	{ 0x2A, "RDMA WRITE Only",                "RETH PayLd" },
	{ 0x2B, "RDMA WRITE Only with Immediate", "RETH ImmDt PayLd" },
	/* 011 Unreliable Datagram */
	{ 0x64, "SEND Only",                      "DETH PayLd" },
	{ 0x65, "SEND Only with Immediate",       "DETH ImmDt PayLd" },
	/* 100 Congestion notification */
	{ 0x81, "CNP",                            "PayLd" },
	/* 101 Extended Reliable Connection */
	{ 0xA0, "SEND First",                     "XRCETH PayLd" },
	{ 0xA1, "SEND Middle",                    "XRCETH PayLd" },
	{ 0xA2, "SEND Last",                      "XRCETH PayLd" },
	{ 0xA3, "SEND Last with Immediate",       "XRCETH ImmDt PayLd" },
	{ 0xA4, "SEND Only",                      "XRCETH PayLd" },
	{ 0xA5, "SEND Only with Immediate",       "XRCETH ImmDt PayLd" },
	{ 0xA6, "RDMA WRITE First",               "XRCETH RETH PayLd" },
	{ 0xA7, "RDMA WRITE Middle",              "XRCETH PayLd" },
	{ 0xA8, "RDMA WRITE Last",                "XRCETH PayLd" },
	{ 0xA9, "RDMA WRITE Last with Immediate", "XRCETH ImmDt PayLd" },
	{ 0xAA, "RDMA WRITE Only",                "XRCETH RETH PayLd" },
	{ 0xAB, "RDMA WRITE Only with Immediate", "XRCETH RETH ImmDt PayLd" },
	{ 0xAC, "RDMA READ Request",              "XRCETH RETH" },
	{ 0xAD, "RDMA READ response First",       "AETH PayLd" },
	{ 0xAE, "RDMA READ response Middle",      "PayLd" },
	{ 0xAF, "RDMA READ response Last",        "AETH PayLd" },
	{ 0xB0, "RDMA READ response Only",        "AETH PayLd" },
	{ 0xB1, "Acknowledge",                    "AETH" },
	{ 0xB2, "ATOMIC Acknowledge",             "AETH AtomicAckETH" },
	{ 0xB3, "CmpSwap",                        "XRCETH AtomicETH" },
	{ 0xB4, "FetchAdd",                       "XRCETH AtomicETH" },
	{ 0xB6, "SEND Last with Invalidate",      "XRCETH IETH PayLd" },
	{ 0xB7, "SEND Only with Invalidate",      "XRCETH IETH PayLd" },
	{ 0xBC, "FLUSH",                          "XRCETH FETH RETH" },
	{ 0xBD, "ATOMIC WRITE",                   "XRCETH RETH PayLd" },
};

static const struct {
	const char *word;
	unsigned header, len;
} words[] = {
	{ "XRCETH", HDR_XRCETH, 4 },         { "DETH", HDR_DETH, 8 },
	{ "FETH", HDR_FETH, 4 },             { "RETH", HDR_RETH, 16 },
	{ "AtomicETH", HDR_ATOMIC_ETH, 28 }, { "AETH", HDR_AETH, 4 },
	{ "AtomicAckETH", HDR_ATOMIC_ACK, 8 }, { "ImmDt", HDR_IMM, 4 },
	{ "IETH", HDR_IETH, 4 },             { "PayLd", 0, 0 },
};
/* clang-format on */

static bool contains(const char *text, const char *part)
{
	return strstr(text, part) != NULL;
}

static void check_headers(const struct row *row, const struct opcode_info *info)
{
	unsigned set = 0, len = 0, last = 0;
	char packet[64];

	strcpy(packet, row->packet);
	for (char *word = strtok(packet, " "); word; word = strtok(NULL, " ")) {
		size_t i = 0;

		while (strcmp(words[i].word, word) != 0)
			assert_true(++i < ARRAY_LEN(words));
		/* The order on the wire is the order of the bits: parse and build rely on it. */
		assert_true(words[i].header == 0 || words[i].header > last);
		last = words[i].header;
		set |= words[i].header;
		len += words[i].len;
	}
	assert_int_equal(info->headers, set);
	assert_int_equal(info->headers_len, len);
	assert_int_equal(opcode_headers_len(info->headers), len);
	assert_int_equal(!!(info->flags & OPF_PAYLOAD), contains(row->packet, "PayLd"));
}

static void check_flags(const struct row *row, const struct opcode_info *info)
{
	bool response = contains(row->name, "response") || contains(row->name, "cknowledge");
	bool cnp = info->kind == OP_CNP;
	bool send = contains(row->name, "SEND"), immediate = contains(row->name, "Immediate");
	bool ends = contains(row->name, "Last") || contains(row->name, "Only");

	assert_int_equal(!!(info->flags & OPF_RESPONSE), response);
	assert_int_equal(!!(info->flags & OPF_REQUEST), !response && !cnp);
	assert_int_equal(!!(info->flags & OPF_RECV_WR), send || immediate);
	assert_int_equal(!!(info->flags & OPF_RECV_END), (send && ends) || immediate);
}

static void check_position(const struct row *row, const struct opcode_info *info)
{
	enum op_position expected = contains(row->name, "First")    ? POS_FIRST
				    : contains(row->name, "Middle") ? POS_MIDDLE
				    : contains(row->name, "Last")   ? POS_LAST
								    : POS_ONLY;

	assert_int_equal(info->position, expected);
}

static void check_kind(const struct row *row, const struct opcode_info *info)
{
	static const struct {
		const char *part;
		enum op_kind kind;
	} kinds[] = {
		{ "SEND", OP_SEND },
		{ "RDMA WRITE", OP_WRITE },
		{ "READ Request", OP_READ_REQUEST },
		{ "READ response", OP_READ_RESPONSE },
		{ "ATOMIC Acknowledge", OP_ATOMIC_ACKNOWLEDGE },
		{ "Acknowledge", OP_ACKNOWLEDGE },
		{ "CmpSwap", OP_COMPARE_SWAP },
		{ "FetchAdd", OP_FETCH_ADD },
		{ "FLUSH", OP_FLUSH },
		{ "ATOMIC WRITE", OP_ATOMIC_WRITE },
		{ "CNP", OP_CNP },
	};
	size_t i = 0;

	while (!contains(row->name, kinds[i].part))
		assert_true(++i < ARRAY_LEN(kinds));
	assert_int_equal(info->kind, kinds[i].kind);
}

static void table_is_the_specification(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct opcode_info *info = opcode_info(rows[i].opcode);

		assert_non_null(info->name);
		assert_string_equal(info->name, rows[i].name);
		check_headers(&rows[i], info);
		check_flags(&rows[i], info);
		check_position(&rows[i], info);
		check_kind(&rows[i], info);
	}
}

static bool is_listed(unsigned opcode)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].opcode == opcode)
			return true;
	return false;
}

static void all_others_are_reserved(void **state)
{
	unsigned reserved = 0;

	(void)state;
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		const struct opcode_info *info = opcode_info((uint8_t)opcode);

		if (is_listed(opcode))
			continue;
		reserved++;
		assert_non_null(info);
		assert_int_equal(info->kind, OP_NONE);
		assert_null(info->name);
		assert_int_equal(info->headers, 0);
		assert_int_equal(info->flags, 0);
	}
	assert_int_equal(reserved, 256 - ARRAY_LEN(rows));
}

static void find_is_the_inverse(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct opcode_info *info = opcode_info(rows[i].opcode);
		enum wire_service service = opcode_service(rows[i].opcode);
		unsigned variant = info->headers & (HDR_IMM | HDR_IETH);

		assert_int_equal(service, rows[i].opcode / 32);
		assert_int_equal(opcode_find(service, info->kind, info->position, variant),
				 rows[i].opcode);
	}
}

/* Whatever is asked for, the answer has these properties or is -1, and no opcode is found twice. */
static void find_never_invents(void **state)
{
	static const unsigned variants[] = { 0, HDR_IMM, HDR_IETH, HDR_IMM | HDR_IETH };
	unsigned found = 0;

	(void)state;
	for (unsigned service = 0; service < 8; service++)
		for (unsigned kind = OP_NONE; kind <= OP_CNP; kind++)
			for (unsigned position = POS_ONLY; position <= POS_LAST; position++)
				for (size_t v = 0; v < ARRAY_LEN(variants); v++) {
					int opcode =
						opcode_find(service, kind, position, variants[v]);

					if (opcode < 0)
						continue;
					found++;
					assert_true(is_listed((unsigned)opcode));
					assert_int_equal(opcode >> 5, service);
				}
	assert_int_equal(found, ARRAY_LEN(rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table_is_the_specification),
		cmocka_unit_test(all_others_are_reserved),
		cmocka_unit_test(find_is_the_inverse),
		cmocka_unit_test(find_never_invents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
