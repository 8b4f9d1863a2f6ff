/* SPDX-License-Identifier: BSD-2-Clause */
/* What the decoder says about order: new, repeated (and why), missing, answered; with and without
 * exchange. */
#include <endian.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "decode_feed.h"
#include "wire/icrc.h"

/* Opcodes of RC, as the specification numbers them. */
enum {
	SEND_FIRST = 0x00,
	SEND_MIDDLE = 0x01,
	SEND_LAST = 0x02,
	SEND_ONLY = 0x04,
	WRITE_ONLY = 0x0a,
	READ_REQUEST = 0x0c,
	READ_FIRST = 0x0d,
	READ_MIDDLE = 0x0e,
	READ_LAST = 0x0f,
	READ_ONLY = 0x10,
	ATOMIC_ACK = 0x12,
	FETCH_ADD = 0x14,
	UC_SEND_ONLY = 0x24,
	UD_SEND_ONLY = 0x64,
	CNP = 0x81,
};

enum { QPN0 = 0x11, QPN1 = 0x22, PSN0 = 0xfffffe, PSN1 = 500 };

static int setup(void **state)
{
	struct feed *f = feed_start();

	feed_exchange(f, QPN0, PSN0, QPN1, PSN1); /* frames 1, 2 and 3 */
	assert_int_equal(f->n_messages, 3);
	*state = f;
	return 0;
}

static int setup_bare(void **state)
{
	*state = feed_start();
	return 0;
}

static int teardown(void **state)
{
	feed_end(*state);
	return 0;
}

static void test_fields_are_traced_over_psn_wrap(void **state)
{
	struct feed *f = *state;

	for (unsigned i = 0; i < 4; i++) {
		feed_op(f, SEND_ONLY, QPN1, PSN0 + i, 8);
		assert_int_equal(f->roce.qpn_told, 2);
		assert_int_equal(f->roce.gid_told, 2);
		assert_int_equal(f->roce.src_qpn, QPN0);
		assert_int_equal(f->roce.src_qpn_told, 1);
		assert_int_equal(f->roce.psn_told, 1);
		assert_int_equal(f->roce.psn_offset, i);
		assert_false(f->roce.psn_of_receiver);
		assert_false(f->roce.retransmission);
		assert_int_equal(f->roce.missing, 0);
		assert_string_equal(f->from_name, "A");
		assert_string_equal(f->to_name, "B");
	}
	feed_ack(f, 0x1f, QPN0, PSN0 + 3); /* frame 8 */
	assert_int_equal(f->roce.qpn_told, 1);
	assert_int_equal(f->roce.psn_told, 1);
	assert_int_equal(f->roce.psn_offset, 3);
	assert_true(f->roce.psn_of_receiver);
	assert_int_equal(f->roce.answers_first, 4);
	assert_int_equal(f->roce.answers_last, 7);
	assert_string_equal(f->from_name, "B");
}

static void test_timeout_is_told_from_nak(void **state)
{
	struct feed *f = *state;

	feed_op(f, SEND_ONLY, QPN1, PSN0, 8);
	f->now_ns += 67000000;
	feed_op(f, SEND_ONLY, QPN1, PSN0, 8);
	assert_true(f->roce.retransmission);
	assert_int_equal(f->roce.original, 4);
	assert_int_equal(f->roce.because, 0);
	assert_int_equal(f->roce.waited_ns, 67001000);
	assert_non_null(strstr(f->roce.note, "67 ms"));
	assert_int_equal(f->d.flows.retransmissions, 1);
}

static void test_hole_nak_and_go_back(void **state)
{
	struct feed *f = *state;

	feed_op(f, SEND_FIRST, QPN1, PSN0, 1024);
	/* PSN0 + 1 and PSN0 + 2 are lost before the capture. */
	feed_op(f, SEND_LAST, QPN1, PSN0 + 3, 1024);
	assert_int_equal(f->roce.missing, 2);
	assert_false(f->roce.retransmission);
	feed_ack(f, 0x60, QPN0, PSN0 + 1); /* frame 6 */
	assert_non_null(strstr(f->roce.note, "expects PSN"));
	assert_non_null(strstr(f->roce.note, "0xffffff"));
	feed_op(f, SEND_MIDDLE, QPN1, PSN0 + 1, 1024);
	assert_true(f->roce.retransmission);
	assert_int_equal(f->roce.because, 6);
	assert_int_equal(f->roce.original, 0);
	feed_op(f, SEND_MIDDLE, QPN1, PSN0 + 2, 1024);
	feed_op(f, SEND_LAST, QPN1, PSN0 + 3, 1024);
	assert_true(f->roce.retransmission);
	assert_int_equal(f->roce.original, 5);
	assert_int_equal(f->roce.because, 6);
	feed_ack(f, 0x1f, QPN0, PSN0 + 3);
	assert_int_equal(f->roce.answers_first, 4);
	assert_int_equal(f->roce.answers_last, 5);
	assert_int_equal(f->d.flows.naks, 1);
	assert_int_equal(f->d.flows.missing, 2);
}

static void test_first_packet_missing(void **state)
{
	struct feed *f = *state;

	feed_op(f, SEND_ONLY, QPN1, PSN0 + 1, 8);
	assert_int_equal(f->roce.missing, 1);
}

static void test_rnr_nak(void **state)
{
	struct feed *f = *state;

	feed_op(f, SEND_ONLY, QPN1, PSN0, 8);
	feed_ack(f, 0x20 | 12, QPN0, PSN0); /* frame 5; code 12 is 0.64 ms */
	assert_int_equal(f->roce.answers_last, 4);
	assert_non_null(strstr(f->roce.note, "no receive is posted"));
	assert_non_null(strstr(f->roce.note, "640 us"));
	feed_op(f, SEND_ONLY, QPN1, PSN0, 8);
	assert_int_equal(f->roce.because, 5);
	assert_int_equal(f->d.flows.rnr_naks, 1);
}

static void test_every_nak_is_explained(void **state)
{
	static const char *const words[] = { "packet was lost",	   "can't do this",	 "R_Key",
					     "trouble of its own", "reliable datagrams", "not in" };
	struct feed *f = *state;

	feed_op(f, WRITE_ONLY, QPN1, PSN0, 8);
	for (unsigned code = 0; code < 6; code++) {
		feed_ack(f, (uint8_t)(0x60 | code), QPN0, PSN0);
		assert_non_null(strstr(f->roce.note, words[code]));
	}
	feed_ack(f, 0x40, QPN0, PSN0);
	assert_non_null(strstr(f->roce.note, "reserved"));
}

static void test_duplicate_ack(void **state)
{
	struct feed *f = *state;

	feed_op(f, SEND_ONLY, QPN1, PSN0, 8);
	feed_ack(f, 0x1f, QPN0, PSN0);
	feed_ack(f, 0x1f, QPN0, PSN0);
	assert_non_null(strstr(f->roce.note, "nothing new"));
	feed_ack(f, 0x1f, QPN0, PSN0 + 5);
	assert_non_null(strstr(f->roce.note, "isn't in the capture"));
}

static struct packet read_of(uint32_t psn, uint32_t len)
{
	return (struct packet){ .opcode = READ_REQUEST,
				.dest_qpn = QPN1,
				.psn = psn_make(psn),
				.dma_len = len,
				.va = 0x1000,
				.rkey = 7 };
}

/* Frames 4 and 5 ask, 6 to 9 answer; the path MTU is known only from the distance of the PSNs. */
static void test_pipelined_reads(void **state)
{
	struct feed *f = *state;
	struct packet first = read_of(PSN0, 3000), second = read_of(PSN0 + 3, 1000);

	feed_packet(f, &first);
	feed_packet(f, &second);
	assert_int_equal(f->roce.missing, 0);
	f->from = 1;
	feed_op(f, READ_FIRST, QPN0, PSN0, 1024);
	assert_int_equal(f->roce.answers_last, 4);
	assert_non_null(strstr(f->roce.note, "part 1 of 3"));
	feed_op(f, READ_MIDDLE, QPN0, PSN0 + 1, 1024);
	feed_op(f, READ_LAST, QPN0, PSN0 + 2, 952);
	assert_non_null(strstr(f->roce.note, "part 3 of 3"));
	feed_op(f, READ_ONLY, QPN0, PSN0 + 3, 1000);
	assert_int_equal(f->roce.answers_last, 5);
	feed_op(f, READ_ONLY, QPN0, PSN0 + 3, 1000);
	assert_true(f->roce.retransmission);
	assert_int_equal(f->roce.original, 9);
	f->from = 0;
	feed_op(f, SEND_ONLY, QPN1, PSN0 + 4, 1);
	assert_int_equal(f->roce.missing, 0);
}

static void test_read_is_continued_in_the_middle(void **state)
{
	struct feed *f = *state;
	struct packet whole = read_of(PSN0, 3000), rest = read_of(PSN0 + 1, 1976);

	feed_packet(f, &whole);
	f->from = 1;
	feed_op(f, READ_FIRST, QPN0, PSN0, 1024);
	f->from = 0;
	feed_packet(f, &rest);
	assert_true(f->roce.retransmission);
	assert_int_equal(f->roce.original, 4);
	assert_non_null(strstr(f->roce.note, "rest of the READ"));
}

static void test_atomics(void **state)
{
	struct feed *f = *state;
	struct packet add = { .opcode = FETCH_ADD, .dest_qpn = QPN1, .psn = psn_make(PSN0) };
	struct packet result = {
		.opcode = ATOMIC_ACK, .dest_qpn = QPN0, .psn = psn_make(PSN0), .syndrome = 0x1f
	};

	feed_packet(f, &add);
	f->from = 1;
	feed_packet(f, &result);
	assert_int_equal(f->roce.answers_last, 4);
	feed_packet(f, &result);
	assert_true(f->roce.retransmission);
	assert_int_equal(f->roce.original, 5);
}

/* A receiver drops what has a wrong ICRC; so the packet counts as not there. */
static void test_damaged_packet_is_missing(void **state)
{
	struct feed *f = *state;
	struct packet p = {
		.opcode = SEND_ONLY, .dest_qpn = QPN1, .psn = psn_make(PSN0), .payload_len = 4
	};

	feed_build(f, &p);
	f->bytes[f->len - 5] ^= 1;
	feed_bytes(f);
	assert_int_equal(f->roce.icrc, ICRC_BAD);
	assert_int_equal(f->roce.icrc_right == f->roce.icrc_stored, 0);
	assert_int_equal(f->d.flows.bad_icrcs, 1);
	feed_op(f, SEND_ONLY, QPN1, PSN0 + 1, 4);
	assert_int_equal(f->roce.missing, 1);
}

/* Every bit that the ICRC covers, and no other, spoils it. */
static void test_which_bits_the_icrc_covers(void **state)
{
	/* Type of service, time to live, header checksum; UDP checksum; FECN, BECN. */
	static const unsigned free_bytes[] = { 1, 8, 10, 11, 26, 27, 32 };
	struct packet p = {
		.opcode = SEND_ONLY, .dest_qpn = QPN1, .psn = psn_make(PSN0), .payload_len = 4
	};
	struct feed *f = *state;
	bool is_free;

	feed_build(f, &p);
	for (unsigned byte = 1; byte < f->len; byte++) {
		if (byte == 2 || byte == 3 || byte == 9 || byte == 24 || byte == 25)
			continue; /* lengths, protocol: another packet altogether */
		if (byte == 6 || byte == 7 || byte == 22 || byte == 23)
			continue; /* fragments, port */
		if (byte == 28 || byte == 29)
			continue; /* opcode, pad and version: refused before */
		is_free = false;
		for (unsigned i = 0; i < sizeof(free_bytes) / sizeof(free_bytes[0]); i++)
			is_free |= free_bytes[i] == byte;
		f->bytes[byte] ^= 0x40;
		feed_bytes(f);
		f->bytes[byte] ^= 0x40;
		assert_int_equal(f->kind, EVENT_ROCE);
		assert_int_equal(f->roce.icrc, is_free ? ICRC_OK : ICRC_BAD);
	}
}

static void test_pairing_without_exchange(void **state)
{
	struct feed *f = *state;

	feed_op(f, SEND_FIRST, QPN1, 100, 1024); /* frame 1 */
	feed_op(f, SEND_LAST, QPN1, 101, 10);
	assert_int_equal(f->roce.qpn_told, 0);
	assert_int_equal(f->roce.psn_told, 0);
	feed_ack(f, 0x1f, QPN0, 101);
	assert_int_equal(f->roce.answers_first, 1);
	assert_int_equal(f->roce.answers_last, 2);
	feed_op(f, SEND_ONLY, QPN1, 102, 10);
	feed_op(f, SEND_ONLY, QPN1, 104, 10);
	assert_int_equal(f->roce.missing, 1);
}

static void test_queue_pair_number_used_again(void **state)
{
	struct feed *f = *state;

	feed_op(f, SEND_ONLY, QPN1, PSN0, 8);
	feed_exchange(f, QPN0, 0x10000, QPN1, 0x20000); /* frames 5, 6, 7 */
	feed_op(f, SEND_ONLY, QPN1, 0x10000, 8);
	assert_int_equal(f->roce.psn_told, 5);
	assert_int_equal(f->roce.qpn_told, 6);
	assert_int_equal(f->roce.missing, 0);
	assert_false(f->roce.retransmission);
}

static void test_unreliable_and_datagrams(void **state)
{
	struct feed *f = *state;
	struct packet ud = { .opcode = UD_SEND_ONLY,
			     .dest_qpn = QPN1,
			     .psn = psn_make(PSN0 + 5),
			     .payload_len = 4,
			     .src_qpn = QPN0,
			     .qkey = 0x11111111 };

	feed_packet(f, &ud);
	assert_int_equal(f->roce.src_qpn_told, 1);
	assert_int_equal(f->roce.psn_offset, 5);
	assert_int_equal(f->roce.missing, 0); /* the other ones went elsewhere */
	feed_op(f, UC_SEND_ONLY, QPN1, PSN0, 4);
	feed_op(f, UC_SEND_ONLY, QPN1, PSN0 + 2, 4);
	assert_int_equal(f->roce.missing, 1);
	feed_op(f, CNP, QPN1, 0, 16);
	assert_non_null(strstr(f->roce.note, "congestion"));
}

static void test_two_programs_on_one_host(void **state)
{
	struct feed *f = *state;

	f->loopback = true;
	feed_exchange(f, QPN0, PSN0, QPN1, PSN1);
	feed_op(f, SEND_ONLY, QPN1, PSN0, 8);
	assert_string_equal(f->from_name, "A");
	assert_string_equal(f->to_name, "B");
	feed_ack(f, 0x1f, QPN0, PSN0);
	assert_string_equal(f->from_name, "B");
	assert_string_equal(f->to_name, "A");
	assert_int_equal(f->roce.answers_last, 4);
}

/* Four packets in one datagram, as captured before segmentation offload: identifications 0 to 3. */
static void test_segmentation_offload(void **state)
{
	enum { SEGMENTS = 4, HEADERS = 28 };
	struct feed *f = *state;
	static uint8_t all[SEGMENTS * 1100];
	struct path path = { 0 };
	size_t used = 0, len;
	uint32_t icrc;

	for (unsigned i = 0; i < SEGMENTS; i++) {
		uint8_t *at = all + used;

		feed_build(f, &(struct packet){ .opcode = i == 0   ? SEND_FIRST
							  : i == 3 ? SEND_LAST
								   : SEND_MIDDLE,
						.dest_qpn = QPN1,
						.psn = psn_make(PSN0 + i),
						.payload_len = i == 3 ? 100 : 1024 });
		len = f->len - HEADERS - ICRC_LEN;
		memcpy(at, f->bytes + HEADERS, len);
		memcpy(path.sgid.raw, (uint8_t[]){ [10] = 255, [11] = 255 }, 12);
		path.dgid = path.sgid;
		memcpy(path.sgid.raw + 12, f->bytes + 12, 4);
		memcpy(path.dgid.raw + 12, f->bytes + 16, 4);
		path.sport = 50000;
		icrc = htole32(icrc_compute(&path, (uint16_t)i, at, len));
		memcpy(at + len, &icrc, sizeof(icrc));
		used += len + sizeof(icrc);
	}
	memcpy(f->bytes + HEADERS, all, used);
	f->len = HEADERS + used;
	f->bytes[2] = (uint8_t)(f->len >> 8);
	f->bytes[3] = (uint8_t)f->len;
	f->bytes[24] = (uint8_t)((used + 8) >> 8);
	f->bytes[25] = (uint8_t)(used + 8);
	f->events = 0;
	feed_bytes(f);
	assert_int_equal(f->events, SEGMENTS);
	assert_int_equal(f->roce.segment, SEGMENTS - 1);
	assert_int_equal(f->roce.segments, SEGMENTS);
	assert_int_equal(f->roce.p.payload_len, 100);
	assert_int_equal(f->d.flows.bad_icrcs, 0);
	assert_int_equal(f->d.flows.malformed, 0);
	assert_int_equal(f->d.flows.missing, 0);
}

static void test_credits(void **state)
{
	/* IBA table 46, restated. */
	static const int credits[] = { 0,    1,	   2,	 3,	4,     6,     8,     12,
				       16,   24,   32,	 48,	64,    96,    128,   192,
				       256,  384,  512,	 768,	1024,  1536,  2048,  3072,
				       4096, 6144, 8192, 12288, 16384, 24576, 32768, -1 };

	(void)state;
	for (uint8_t code = 0; code < 32; code++)
		assert_int_equal(aeth_credits(code), credits[code]);
}

int main(void)
{
	const struct CMUnitTest told[] = {
		cmocka_unit_test_setup_teardown(test_fields_are_traced_over_psn_wrap, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_timeout_is_told_from_nak, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hole_nak_and_go_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_first_packet_missing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rnr_nak, setup, teardown),
		cmocka_unit_test_setup_teardown(test_every_nak_is_explained, setup, teardown),
		cmocka_unit_test_setup_teardown(test_duplicate_ack, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pipelined_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_read_is_continued_in_the_middle, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_atomics, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged_packet_is_missing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_which_bits_the_icrc_covers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_queue_pair_number_used_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unreliable_and_datagrams, setup, teardown),
		cmocka_unit_test_setup_teardown(test_segmentation_offload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pairing_without_exchange, setup_bare,
						teardown),
		cmocka_unit_test_setup_teardown(test_two_programs_on_one_host, setup_bare,
						teardown),
		cmocka_unit_test(test_credits),
	};

	return cmocka_run_group_tests(told, NULL, NULL);
}
