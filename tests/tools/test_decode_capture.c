/* SPDX-License-Identifier: BSD-2-Clause */
/* Capture files made in memory: link layers, lengths that lie, every place where a file may end. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "decode_feed.h"
#include "tools/decode_capture.h"

struct file {
	uint8_t bytes[4096];
	size_t len;
};

static void add(struct file *file, const void *bytes, size_t len)
{
	assert_true(file->len + len <= sizeof(file->bytes));
	memcpy(file->bytes + file->len, bytes, len);
	file->len += len;
}

static void add_host32(struct file *file, uint32_t v)
{
	add(file, &v, sizeof(v));
}

static void begin(struct file *file, uint32_t link)
{
	static const uint16_t version[] = { 2, 4 };

	file->len = 0;
	add_host32(file, 0xa1b2c3d4);
	add(file, version, sizeof(version));
	add_host32(file, 0);
	add_host32(file, 0);
	add_host32(file, 65535);
	add_host32(file, link);
}

static void begin_frame(struct file *file, size_t captured, size_t real)
{
	add_host32(file, 1700000000);
	add_host32(file, 5);
	add_host32(file, (uint32_t)captured);
	add_host32(file, (uint32_t)real);
}

/* A file with one RoCE packet behind this link header. */
static void one_frame(struct file *file, uint32_t link, const void *header, size_t header_len)
{
	struct feed *f = feed_start();

	feed_build(f, &(struct packet){ .opcode = 0x04, .dest_qpn = 7, .payload_len = 16 });
	begin(file, link);
	begin_frame(file, header_len + f->len, header_len + f->len);
	add(file, header, header_len);
	add(file, f->bytes, f->len);
	feed_end(f);
}

static struct capture *open_bytes(const uint8_t *bytes, size_t len)
{
	FILE *stream = fmemopen((void *)bytes, len, "rb");
	char error[256] = "";
	struct capture *c;

	assert_non_null(stream);
	c = capture_open_stream(stream, error, sizeof(error));
	assert_true(c || error[0]);
	return c;
}

static void first_frame(const struct file *file, struct frame *frame)
{
	struct capture *c = open_bytes(file->bytes, file->len);

	assert_non_null(c);
	assert_int_equal(capture_next(c, frame), 1);
	assert_int_equal(capture_next(c, &(struct frame){ 0 }), 0);
	capture_close(c);
}

static void test_link_layers(void **state)
{
	static const struct {
		uint32_t link;
		uint8_t header[32];
		size_t len;
	} rows[] = {
		{ 1, { [12] = 0x08, 0x00 }, 14 },
		{ 1, { [12] = 0x81, 0x00, 0, 5, 0x08, 0x00 }, 18 },
		{ 1, { [12] = 0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 6, 0x08, 0x00 }, 22 },
		{ 113, { [2] = 0, 1, [14] = 0x08, 0x00 }, 16 },
		{ 276, { 0x08, 0x00 }, 20 },
		{ 101, { 0 }, 0 },
		{ 228, { 0 }, 0 },
		{ 0, { 2, 0, 0, 0 }, 4 },
		{ 108, { 0, 0, 0, 2 }, 4 },
	};
	struct frame frame;
	struct file file;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		one_frame(&file, rows[i].link, rows[i].header, rows[i].len);
		first_frame(&file, &frame);
		assert_int_equal(frame.kind, FRAME_UDP);
		assert_int_equal(frame.dport, 4791);
		assert_int_equal(frame.payload_len, 12 + 16 + 4);
	}
}

/* A loopback frame seen going out is seen coming in as well. */
static void test_loopback_copies(void **state)
{
	uint8_t sll[16] = { 0, 4, 772 >> 8, 772 & 255, [14] = 0x08, 0x00 };
	struct frame frame;
	struct file file;

	(void)state;
	one_frame(&file, 113, sll, sizeof(sll));
	first_frame(&file, &frame);
	assert_int_equal(frame.kind, FRAME_OTHER);
	sll[1] = 0;
	one_frame(&file, 113, sll, sizeof(sll));
	first_frame(&file, &frame);
	assert_int_equal(frame.kind, FRAME_UDP);
}

static void test_unknown_link_layer_is_refused(void **state)
{
	char error[256] = "";
	struct file file;
	FILE *stream;

	(void)state;
	begin(&file, 147);
	stream = fmemopen(file.bytes, file.len, "rb");
	assert_null(capture_open_stream(stream, error, sizeof(error)));
	assert_non_null(strstr(error, "147"));
}

/* Cut off anywhere: an error, and no frame that isn't whole. */
static void test_file_ends_anywhere(void **state)
{
	const uint8_t ethernet[14] = { [12] = 0x08 };
	struct frame frame;
	struct capture *c;
	struct file file;
	int ret;

	(void)state;
	one_frame(&file, 1, ethernet, sizeof(ethernet));
	for (size_t len = 1; len < file.len; len++) {
		c = open_bytes(file.bytes, len);
		assert_int_equal(c != NULL, len >= 24);
		if (!c)
			continue;
		ret = capture_next(c, &frame);
		if (len == 24) {
			assert_int_equal(ret, 0);
		} else {
			assert_true(ret < 0);
			assert_true(capture_error(c)[0]);
		}
		capture_close(c);
	}
}

/* The snap length cut the packet: headers are read, the ICRC can't be. */
static void test_short_snap_length(void **state)
{
	struct feed *f = feed_start();
	size_t whole;

	(void)state;
	feed_build(f, &(struct packet){ .opcode = 0x04, .dest_qpn = 7, .payload_len = 1000 });
	whole = f->len;
	for (f->len = 0; f->len < whole; f->len++) {
		feed_bytes(f);
		if (f->len < 28) {
			assert_int_equal(f->kind, EVENT_OTHER);
			continue;
		}
		assert_int_equal(f->kind, EVENT_ROCE);
		assert_int_equal(f->roce.icrc, ICRC_UNCHECKED);
		if (f->len < 28 + 12) {
			assert_int_equal(f->roce.drop, DROP_SHORT);
			continue;
		}
		assert_int_equal(f->roce.drop, DROP_NONE);
		assert_int_equal(f->roce.p.dest_qpn, 7);
		assert_int_equal(f->roce.p.payload_len, 1000);
	}
	feed_end(f);
}

/* Every length field of the IP, UDP and TCP headers with every value of its high byte. */
static void test_lengths_that_lie(void **state)
{
	static const unsigned offsets[] = { 0, 2, 3, 24, 25, 32 };
	struct feed *f = feed_start();
	uint8_t saved;

	(void)state;
	for (unsigned protocol = 6; protocol <= 17; protocol += 11)
		for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
			feed_build(f, &(struct packet){ .opcode = 0x04, .payload_len = 64 });
			f->bytes[9] = (uint8_t)protocol;
			saved = f->bytes[offsets[i]];
			for (unsigned v = 0; v < 256; v++) {
				f->bytes[offsets[i]] = (uint8_t)v;
				feed_bytes(f);
				assert_true(f->roce.p.payload_len <= 64 || f->roce.drop ||
					    f->roce.cut_off);
			}
			f->bytes[offsets[i]] = saved;
		}
	feed_end(f);
}

static void test_reserved_opcodes_and_versions(void **state)
{
	struct feed *f = feed_start();

	(void)state;
	feed_build(f, &(struct packet){ .opcode = 0x04, .payload_len = 64 });
	for (unsigned opcode = 0; opcode < 256; opcode++) {
		f->bytes[28] = (uint8_t)opcode;
		feed_bytes(f);
		assert_int_equal(f->kind, EVENT_ROCE);
		if (!opcode_info((uint8_t)opcode)->name) {
			assert_int_equal(f->roce.drop, DROP_OPCODE);
			assert_true(f->roce.note[0]);
		}
	}
	f->bytes[28] = 0x04;
	f->bytes[29] |= 1;
	feed_bytes(f);
	assert_int_equal(f->roce.drop, DROP_VERSION);
	feed_end(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_link_layers),
		cmocka_unit_test(test_loopback_copies),
		cmocka_unit_test(test_unknown_link_layer_is_refused),
		cmocka_unit_test(test_file_ends_anywhere),
		cmocka_unit_test(test_short_snap_length),
		cmocka_unit_test(test_lengths_that_lie),
		cmocka_unit_test(test_reserved_opcodes_and_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
