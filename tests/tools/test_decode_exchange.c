/* SPDX-License-Identifier: BSD-2-Clause */
/* TCP streams cut, reordered and lost, and the exchanges in them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "decode_feed.h"

enum { FIN = TCP_FIN | TCP_ACK };

static const char record[] = "0000:000011:a2199e:00000000000000000000ffff0a4d0003";

static int setup(void **state)
{
	*state = feed_start();
	return 0;
}

static int teardown(void **state)
{
	feed_end(*state);
	return 0;
}

static struct message *last(struct feed *f)
{
	assert_true(f->n_messages > 0);
	return &f->messages[f->n_messages - 1];
}

static void assert_is_record(const struct message *m)
{
	assert_int_equal(m->protocol, EXCHANGE_IBV);
	assert_string_equal(m->name, "record");
	assert_int_equal(m->n_told, 1);
	assert_int_equal(m->told[0].qpn, 0x11);
	assert_int_equal(m->told[0].psn, 0xa2199e);
	assert_true(gid_is_ipv4(&m->told[0].gid));
	assert_int_equal(m->told[0].gid.raw[15], 3);
}

static void test_record_byte_by_byte(void **state)
{
	struct feed *f = *state;

	for (size_t i = 0; i < sizeof(record); i++) {
		assert_int_equal(f->n_messages, 0);
		feed_tcp(f, 0, record + i, 1);
	}
	assert_int_equal(f->n_messages, 1);
	assert_is_record(last(f));
}

static void test_segments_repeated_and_reordered(void **state)
{
	struct feed *f = *state;
	const uint32_t start = 0xfffffff0; /* the sequence numbers wrap within the record */

	feed_tcp_at(f, 0, start - 1, TCP_SYN, NULL, 0);
	feed_tcp_at(f, 0, start + 40, TCP_ACK, record + 40, sizeof(record) - 40);
	feed_tcp_at(f, 0, start, TCP_ACK, record, 10);
	feed_tcp_at(f, 0, start, TCP_ACK, record, 10);
	feed_tcp_at(f, 0, start + 20, TCP_ACK, record + 20, 20);
	assert_int_equal(f->n_messages, 0);
	feed_tcp_at(f, 0, start + 5, TCP_ACK, record + 5, 25);
	assert_int_equal(f->n_messages, 1);
	assert_is_record(last(f));
}

static void test_256_records_at_once(void **state)
{
	static char all[256 * sizeof(record)];
	struct feed *f = *state;

	for (unsigned i = 0; i < 256; i++) {
		memcpy(all + i * sizeof(record), record, sizeof(record));
		if (i >= 16)
			memset(all + i * sizeof(record), '0', 4);
	}
	feed_tcp(f, 0, all, 1448);
	feed_tcp(f, 0, all + 1448, sizeof(all) - 1448);
	assert_int_equal(f->n_messages, 256);
	assert_is_record(last(f));
	assert_true(last(f)->repeated);
}

static void test_zero_gid_is_explained(void **state)
{
	struct feed *f = *state;

	feed_tcp(f, 0, "0001:000011:a2199e:00000000000000000000000000000000", 52);
	assert_non_null(strstr(last(f)->text, "-g"));
}

static void test_perftest(void **state)
{
	static const char version[16] = "6.06";
	static const char rec[] = "0000:0001:000018:50ffd4:0000081d:0000562f06505710:"
				  "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:03:00000000:";
	struct feed *f = *state;

	feed_tcp(f, 0, version, sizeof(version));
	assert_int_equal(last(f)->protocol, EXCHANGE_PERFTEST);
	assert_string_equal(last(f)->name, "version");
	feed_tcp(f, 0, "\0\0\x10", 4);
	assert_non_null(strstr(last(f)->text, "4096"));
	feed_tcp(f, 0, "\0\0\0@", 4);
	assert_non_null(strstr(last(f)->text, "64"));
	feed_tcp(f, 0, "3", 2);
	assert_non_null(strstr(last(f)->text, "1024"));
	feed_tcp(f, 0, rec, 30);
	assert_int_equal(f->n_messages, 4);
	feed_tcp(f, 0, rec + 30, sizeof(rec) - 30);
	assert_int_equal(f->n_messages, 5);
	assert_int_equal(last(f)->told[0].qpn, 0x18);
	assert_int_equal(last(f)->told[0].psn, 0x50ffd4);
	assert_int_equal(last(f)->told[0].rkey, 0x81d);
	assert_true(last(f)->told[0].va == 0x562f06505710);
	assert_int_equal(last(f)->told[0].gid.raw[12], 10);
	feed_tcp(f, 0, rec, sizeof(rec));
	assert_true(last(f)->repeated);
	feed_tcp(f, 0, "\x3f\x8f\x8e\xcd\x72\xe7\xd3\xab", 8);
	assert_string_equal(last(f)->name, "bytes");
	assert_int_equal(last(f)->n_bytes, 8);
}

static void test_other_protocols_are_bytes(void **state)
{
	struct feed *f = *state;

	feed_tcp(f, 0, "SSH-2.0-x\r\n", 11);
	assert_int_equal(last(f)->protocol, EXCHANGE_BYTES);
	assert_int_equal(last(f)->n_bytes, 11);
	assert_memory_equal(last(f)->bytes, "SSH-2.0-x\r\n", 11);
}

static void test_tls_is_named(void **state)
{
	struct feed *f = *state;

	feed_tcp(f, 0, "\x16\x03\x01\x02\x00", 5);
	assert_int_equal(last(f)->protocol, EXCHANGE_TLS);
	assert_non_null(strstr(last(f)->text, "encrypted"));
}

static void test_unfilled_hole_ends_the_recognition(void **state)
{
	static char much[60000];
	struct feed *f = *state;

	feed_tcp(f, 0, record, sizeof(record));
	for (uint32_t i = 0; i < 5; i++)
		feed_tcp_at(f, 0, 1000 + i * (uint32_t)sizeof(much), TCP_ACK, much, sizeof(much));
	assert_int_equal(last(f)->protocol, EXCHANGE_BYTES);
}

static size_t put(uint8_t *at, uint64_t v, unsigned len)
{
	for (unsigned i = 0; i < len; i++)
		at[i] = (uint8_t)(v >> 8 * (len - 1 - i));
	return len;
}

static size_t put_field(uint8_t *at, unsigned type, const void *value, unsigned len)
{
	size_t n = put(at, type, 2);

	n += put(at + n, len, 2);
	memcpy(at + n, value, len);
	return n + len;
}

static size_t greeting(uint8_t *at)
{
	memset(at, 0xab, 24);
	memcpy(at, "RLNK\x01\x01\0\0", 8);
	return 24;
}

/* A HELLO with two queue pairs, a GID, a region, and fields that version 1 doesn't know. */
static size_t hello(uint8_t *at)
{
	uint8_t qp[28] = { 1, 3, 16, 16, 0, 0, 0x12, 0x34, 0, 0xff, 0xff, 0xfe };
	uint8_t gid[20] = { 3, 0, 0, 0, [14] = 0xff, 0xff, 192, 0, 2, 1 };
	uint8_t region[27];
	size_t n = 8;

	n += put_field(at + n, 6, qp, sizeof(qp));
	qp[7]++;
	n += put_field(at + n, 6, qp, sizeof(qp));
	n += put_field(at + n, 4, gid, sizeof(gid));
	n += put_field(at + n, 0x8002, "test 1\x1b", 7);
	n += put_field(at + n, 99, "?", 1);
	put(region, 0x7f0000001000, 8);
	put(region + 8, 4096, 8);
	put(region + 16, 0xdeadbeef, 4);
	put(region + 20, 6, 4);
	memcpy(region + 24, "box", 3);
	n += put_field(at + n, 7, region, sizeof(region));
	put(at, 1, 2);
	put(at + 2, 0, 2);
	put(at + 4, n - 8, 4);
	return n;
}

static void test_rocelink_hello(void **state)
{
	struct packet write = { .opcode = 0x0a,
				.dest_qpn = 0x1235,
				.va = 0x7f0000001010,
				.rkey = 0xdeadbeef,
				.psn = psn_make(5) };
	struct feed *f = *state;
	uint8_t bytes[512];
	size_t n = greeting(bytes);
	const struct message *m;

	n += hello(bytes + n);
	feed_tcp(f, 0, bytes, n - 1);
	assert_int_equal(f->n_messages, 1);
	assert_string_equal(last(f)->name, "greeting");
	feed_tcp(f, 0, bytes + n - 1, 1);
	m = last(f);
	assert_int_equal(m->protocol, EXCHANGE_ROCELINK);
	assert_string_equal(m->name, "HELLO");
	assert_int_equal(m->n_told, 4);
	assert_int_equal(m->told[0].qpn, 0x1234);
	assert_int_equal(m->told[1].qpn, 0x1235);
	assert_int_equal(m->told[1].psn, 0xfffffe);
	assert_int_equal(m->told[1].mtu, 1024);
	assert_string_equal(m->told[3].name, "box");
	assert_non_null(strstr(m->text, "unknown field 99"));
	f->from = 1;
	feed_packet(f, &write);
	assert_int_equal(f->roce.qpn_told, 2);
	assert_int_equal(f->roce.gid_told, 2);
	assert_non_null(f->roce.region);
	assert_int_equal(f->roce.va_offset, 16);
}

static void test_rocelink_refusal(void **state)
{
	struct feed *f = *state;
	uint8_t bytes[128];
	size_t n = greeting(bytes), start = n;

	n += put(bytes + n, 2, 2);
	n += put(bytes + n, 0, 2);
	n += 4;
	n += put_field(bytes + n, 9, "\0\x05\xff\xff\0\0\0\0", 8);
	n += put_field(bytes + n, 10, "no", 2);
	put(bytes + start + 4, n - start - 8, 4);
	feed_tcp(f, 0, bytes, n);
	assert_string_equal(last(f)->name, "DECLINE");
	assert_string_equal(last(f)->text, "MTU, text \"no\"");
}

static void test_rocelink_malformed(void **state)
{
	static const uint8_t overlong[] = { 0, 1, 0, 0, 0x40, 0, 0, 0 };
	static const uint8_t spills[] = { 0, 1, 0, 0, 0, 0, 0, 5, 0, 1, 0xff, 0xff, 'x' };
	struct feed *f = *state;
	uint8_t bytes[64];

	feed_tcp(f, 0, bytes, greeting(bytes));
	feed_tcp(f, 0, spills, sizeof(spills));
	assert_non_null(strstr(last(f)->text, "malformed"));
	feed_tcp(f, 0, overlong, sizeof(overlong));
	assert_string_equal(last(f)->name, "bytes");
	assert_non_null(strstr(last(f)->text, "over the limit"));
	feed_tcp(f, 0, "more", 4);
	assert_int_equal(last(f)->n_bytes, 4);
}

static void test_connection_after_connection(void **state)
{
	struct feed *f = *state;

	for (int i = 0; i < 2; i++) {
		feed_tcp_at(f, 0, 100, TCP_SYN, NULL, 0);
		feed_tcp_at(f, 0, 101, TCP_ACK, record, sizeof(record));
		assert_int_equal(f->n_messages, i + 1);
		assert_is_record(last(f));
		feed_tcp_at(f, 0, 101 + sizeof(record), FIN, NULL, 0);
	}
}

/* A datagram of the connection manager; the offsets are those of IBA tables 99 to 106. */
static void feed_mad(struct feed *f, unsigned from, unsigned attribute, const uint8_t *fields,
		     size_t len)
{
	static const uint8_t head[] = { 1, 7, 2, 3 };
	uint8_t *mad = f->bytes + 20 + 8 + 12 + 8;

	f->from = from;
	feed_build(f, &(struct packet){ .opcode = 0x64,
					.dest_qpn = 1,
					.src_qpn = 1,
					.qkey = 0x80010000,
					.payload_len = 256 });
	memset(mad, 0, 256);
	memcpy(mad, head, sizeof(head));
	put(mad + 16, attribute, 2);
	memcpy(mad + 24, fields, len);
	feed_repair(f);
	feed_bytes(f);
	assert_int_equal(f->kind, EVENT_ROCE);
	assert_int_equal(f->roce.icrc, ICRC_OK);
	f->from = 0;
}

static void test_connection_manager(void **state)
{
	static const uint8_t req[140] = {
		[0] = 1,     2,		  3,	4,    [8] = 0,	   0, 0,
		0,	     1,		  6,	0x1b, 0x58, /* TCP port space, port 7000 */
		[34] = 0x11, [44] = 0xff, 0xff, 0xfe, [50] = 0x30,
	};
	static const uint8_t rep[36] = { 9, 9, 9, 9, 1, 2, 3, 4, [14] = 0x22, [20] = 0, 1, 0 };
	static const uint8_t rtu[8] = { 1, 2, 3, 4, 9, 9, 9, 9 };
	static const uint8_t rej[12] = { 9, 9, 9, 9, 1, 2, 3, 4, [11] = 28 };
	struct feed *f = *state;

	feed_mad(f, 0, 0x10, req, sizeof(req));
	assert_int_equal(last(f)->protocol, EXCHANGE_CM);
	assert_string_equal(last(f)->name, "REQ");
	assert_string_equal(last(f)->told[0].type, "RC");
	assert_int_equal(last(f)->told[0].qpn, 0x11);
	assert_int_equal(last(f)->told[0].mtu, 1024);
	assert_non_null(strstr(last(f)->text, "port 7000"));
	feed_mad(f, 1, 0x13, rep, sizeof(rep));
	assert_string_equal(f->from_name, "B");
	feed_mad(f, 0, 0x14, rtu, sizeof(rtu));
	assert_string_equal(last(f)->name, "RTU");
	feed_op(f, 0x04, 0x22, 0, 8);
	assert_int_equal(f->roce.qpn_told, 2);
	assert_int_equal(f->roce.psn_told, 1);
	assert_int_equal(f->roce.psn_offset, 2);
	feed_mad(f, 1, 0x12, rej, sizeof(rej));
	assert_non_null(strstr(last(f)->text, "the program refuses"));
}

static void test_connection_manager_datagrams(void **state)
{
	static const uint8_t req[16] = { 1, 2, 3, 4, [8] = 1 };
	static const uint8_t refused[24] = { 1, 2, 3, 4, 2 };
	static const uint8_t rep[24] = { 1, 2, 3, 4, [10] = 0x77, [22] = 0x12, 0x34 };
	struct feed *f = *state;

	feed_mad(f, 0, 0x17, req, sizeof(req));
	feed_mad(f, 1, 0x18, refused, sizeof(refused));
	assert_int_equal(last(f)->n_told, 0);
	feed_mad(f, 1, 0x18, rep, sizeof(rep));
	assert_int_equal(last(f)->told[0].qkey, 0x1234);
	feed_packet(f, &(struct packet){ .opcode = 0x64,
					 .dest_qpn = 0x77,
					 .src_qpn = 5,
					 .qkey = 0x1234,
					 .payload_len = 4 });
	assert_int_equal(f->roce.qpn_told, 3);
	/* An attribute that the connection manager doesn't have: a packet like any other. */
	feed_mad(f, 0, 0x99, req, sizeof(req));
	assert_string_equal(last(f)->name, "SIDR_REP");
}

static void test_icmp_about_roce(void **state)
{
	struct feed *f = *state;
	uint8_t packet[128], *icmp = f->bytes + 20;
	size_t len;

	feed_build(f, &(struct packet){ .opcode = 0x04, .payload_len = 4 });
	len = f->len;
	memcpy(packet, f->bytes, len);
	f->bytes[9] = 1;
	f->len = 28 + len;
	f->bytes[3] = (uint8_t)f->len;
	memset(icmp, 0, 8);
	icmp[0] = 3;
	icmp[1] = 3;
	memcpy(icmp + 8, packet, len);
	feed_bytes(f);
	assert_int_equal(f->kind, EVENT_ICMP);
	assert_non_null(strstr(f->text, "nobody listens"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_record_byte_by_byte, setup, teardown),
		cmocka_unit_test_setup_teardown(test_segments_repeated_and_reordered, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_256_records_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_zero_gid_is_explained, setup, teardown),
		cmocka_unit_test_setup_teardown(test_perftest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_protocols_are_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tls_is_named, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unfilled_hole_ends_the_recognition, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_rocelink_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rocelink_refusal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rocelink_malformed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_connection_after_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(test_connection_manager, setup, teardown),
		cmocka_unit_test_setup_teardown(test_connection_manager_datagrams, setup, teardown),
		cmocka_unit_test_setup_teardown(test_icmp_about_roce, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
