/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ICRC against public vectors and against a slow model that computes the whole CRC bit by bit
 * over an explicit IP packet.
 */
#include "wire/icrc.h"

#include <endian.h>
#include <string.h>

#include "base/units.h"
#include "prng.h"
#include "test.h"
#include "wire/packet.h"

static struct path ipv4_path(uint32_t src, uint32_t dst, uint16_t sport)
{
	struct path p = { .sport = sport };

	memset(p.sgid.raw + 10, 0xff, 2);
	memset(p.dgid.raw + 10, 0xff, 2);
	src = htobe32(src);
	dst = htobe32(dst);
	memcpy(p.sgid.raw + 12, &src, 4);
	memcpy(p.dgid.raw + 12, &dst, 4);
	return p;
}

/* Captured on a ConnectX-4 Lx: 10.0.17.1 -> 10.0.18.1, source port 0, identification 0x718c, DF. */
static void vector_connectx4_cnp(void **state)
{
	static const uint8_t packet[] = { 0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18,
					  0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
					  0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
					  0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a };
	const struct path path = ipv4_path(0x0a001101, 0x0a001201, 0);
	uint16_t id = 0;
	struct packet p;

	(void)state;
	assert_int_equal(icrc_compute(&path, 0x718c, packet, 28), 0x2a00fd82);
	assert_true(icrc_check(&path, &id, packet, sizeof(packet)));
	assert_int_equal(id, 0x718c);
	assert_int_equal(packet_parse(&p, packet, sizeof(packet)), DROP_NONE);
	assert_int_equal(p.op->kind, OP_CNP);
	assert_true(p.becn && !p.fecn);
	assert_int_equal(p.dest_qpn, 0x118);
}

/* UC SEND Only, 192.168.0.7 -> itself, source port 49152, identification 1144, DF; built by
 * headers. */
static void vector_uc_send_only(void **state)
{
	static const uint8_t payload[] = { 0x46, 0x30, 0x81, 0x8b, 0xe2, 0x89, 0x35, 0xd9,
					   0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88,
					   0x5e, 0x50, 0x00, 0x00, 0x78, 0xf3, 0x53, 0xf3 };
	const struct path path = ipv4_path(0xc0a80007, 0xc0a80007, 49152);
	const struct packet p = { .opcode = 0x24,
				  .mig_req = true,
				  .pkey = 0xffff,
				  .dest_qpn = 211,
				  .psn = { 13571856 },
				  .payload_len = 18 };
	uint8_t built[BTH_LEN + sizeof(payload)];
	uint16_t id = 0xffff;

	(void)state;
	assert_int_equal(packet_build_headers(&p, built), BTH_LEN);
	memcpy(built + BTH_LEN, payload, sizeof(payload));
	assert_int_equal(icrc_compute(&path, 1144, built, sizeof(built) - ICRC_LEN), 0xf353f378);
	assert_true(icrc_check(&path, &id, built, sizeof(built)));
	assert_int_equal(id, 1144);
}

static uint32_t slow_crc(uint32_t crc, uint8_t byte)
{
	crc ^= byte;
	for (int i = 0; i < 8; i++)
		crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	return crc;
}

static void put16(uint8_t *at, size_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

/* Annex A17.3.3 word by word: write the IP packet, mask what may change on the way, CRC all of it.
 */
static uint32_t model_icrc(const struct path *path, uint16_t id, bool df, const uint8_t *data,
			   size_t len)
{
	bool ipv4 = gid_is_ipv4(&path->sgid);
	uint8_t head[8 + 40 + 8], *ip = head + 8, *udp = ip + (ipv4 ? 20 : 40);
	uint32_t crc = 0xffffffff;

	memset(head, 0, sizeof(head));
	memset(head, 0xff, 8);
	if (ipv4) {
		ip[0] = 0x45;
		ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
		put16(ip + 2, 20 + 8 + len + 4);
		put16(ip + 4, id);
		ip[6] = df ? 0x40 : 0;
		ip[9] = 17;
		memcpy(ip + 12, path->sgid.raw + 12, 4);
		memcpy(ip + 16, path->dgid.raw + 12, 4);
	} else {
		ip[0] = 0x6f;
		ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
		put16(ip + 4, 8 + len + 4);
		ip[6] = 17;
		memcpy(ip + 8, path->sgid.raw, 16);
		memcpy(ip + 24, path->dgid.raw, 16);
	}
	put16(udp, path->sport);
	put16(udp + 2, 4791);
	put16(udp + 4, 8 + len + 4);
	udp[6] = udp[7] = 0xff;
	for (uint8_t *b = head; b < udp + 8; b++)
		crc = slow_crc(crc, *b);
	for (size_t i = 0; i < len; i++)
		crc = slow_crc(crc, i == 4 ? 0xff : data[i]);
	return ~crc;
}

static struct path random_path(struct prng *r, bool ipv4)
{
	struct path p = ipv4_path((uint32_t)prng_u64(r), (uint32_t)prng_u64(r), 0);

	if (!ipv4) {
		prng_fill(r, p.sgid.raw, 16);
		prng_fill(r, p.dgid.raw, 16);
	}
	/* Whatever may change on the way must not matter. */
	p.flow_label = prng_u64(r) & 0xfffff;
	p.traffic_class = (uint8_t)prng_u64(r);
	p.hop_limit = (uint8_t)prng_u64(r);
	p.ifindex = (uint32_t)prng_u64(r);
	p.sport = (uint16_t)prng_u64(r);
	return p;
}

static void append(uint8_t *data, size_t len, uint32_t icrc)
{
	icrc = htole32(icrc);
	memcpy(data + len, &icrc, sizeof(icrc));
}

/* Every length there is, so that each power of x is divided out at least once. */
static void every_length_matches_the_model(void **state)
{
	uint8_t data[PACKET_HEADER_MAX + MTU_MAX + ICRC_LEN];
	struct prng r = { .state = 2 };

	(void)state;
	prng_fill(&r, data, sizeof(data));
	for (size_t len = BTH_LEN; len <= sizeof(data) - ICRC_LEN; len += 4) {
		struct path path = random_path(&r, true), path6 = random_path(&r, false);
		uint16_t true_id = (uint16_t)prng_u64(&r), id;
		bool df = prng_u64(&r) & 1;
		uint32_t icrc = model_icrc(&path, true_id, df, data, len);

		if (df)
			assert_int_equal(icrc_compute(&path, true_id, data, len), icrc);
		append(data, len, icrc);
		id = (uint16_t)prng_u64(&r);
		assert_true(icrc_check(&path, &id, data, len + ICRC_LEN));
		assert_int_equal(id, true_id);

		icrc = model_icrc(&path6, 0, true, data, len);
		assert_int_equal(icrc_compute(&path6, true_id, data, len), icrc);
		append(data, len, icrc);
		assert_true(icrc_check(&path6, &id, data, len + ICRC_LEN));
	}
}

static void every_id_is_recovered(void **state)
{
	const struct path path = ipv4_path(0x0a000001, 0x0a000002, 50000);
	uint8_t data[64 + ICRC_LEN] = { 0x04 };

	(void)state;
	for (unsigned v = 0; v <= 0xffff; v++) {
		uint16_t id = 7;

		append(data, 64, icrc_compute(&path, (uint16_t)v, data, 64));
		assert_true(icrc_check(&path, &id, data, sizeof(data)));
		assert_int_equal(id, v);
	}
}

/* What may change on the way doesn't matter; all else in the BTH does. */
static void masked_bth_byte(void **state)
{
	const struct path path = ipv4_path(1, 2, 3);
	uint8_t data[32] = { 0x04 };
	uint32_t before = icrc_compute(&path, 0, data, sizeof(data));

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++) {
		data[i] ^= 0x80;
		if (i == 4)
			assert_int_equal(icrc_compute(&path, 0, data, sizeof(data)), before);
		else
			assert_int_not_equal(icrc_compute(&path, 0, data, sizeof(data)), before);
		data[i] ^= 0x80;
	}
}

/* 17 of 32 bits are free over IPv4: about one random ICRC in 2^15 passes, and none over IPv6. */
static void random_icrcs_are_refused(void **state)
{
	uint8_t data[128 + ICRC_LEN];
	struct prng r = { .state = 3 };
	const struct path path = random_path(&r, true), path6 = random_path(&r, false);
	unsigned accepted = 0, accepted6 = 0;

	(void)state;
	prng_fill(&r, data, sizeof(data));
	for (int i = 0; i < 1 << 18; i++) {
		uint16_t id = 0;

		append(data, 128, (uint32_t)prng_u64(&r));
		accepted += icrc_check(&path, &id, data, sizeof(data));
		accepted6 += icrc_check(&path6, &id, data, sizeof(data));
	}
	assert_in_range(accepted, 1, 24); /* 8 expected */
	assert_int_equal(accepted6, 0);
}

static void short_packets_are_refused(void **state)
{
	const struct path path = ipv4_path(1, 2, 3);
	const uint8_t data[BTH_LEN + ICRC_LEN] = { 0 };
	uint16_t id = 0;

	(void)state;
	for (size_t len = 0; len < sizeof(data); len++)
		assert_false(icrc_check(&path, &id, data, len));
	assert_false(icrc_check(&path, &id, data, 65528));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vector_connectx4_cnp),
		cmocka_unit_test(vector_uc_send_only),
		cmocka_unit_test(every_length_matches_the_model),
		cmocka_unit_test(every_id_is_recovered),
		cmocka_unit_test(masked_bth_byte),
		cmocka_unit_test(random_icrcs_are_refused),
		cmocka_unit_test(short_packets_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
