/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every packet of real captures (the kernel's Soft-RoCE driver against itself, see
 * tests/data/README.md) parses, is rebuilt bit for bit, and gives away its IPv4 identification.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "capture.h"
#include "test.h"
#include "wire/icrc.h"
#include "wire/packet.h"

static const struct {
	const char *name;
	int packets;
} captures[] = {
	{ "cmpswap", 10 }, { "fetchadd", 10 }, { "rc-ipv4", 30 }, { "rc-ipv6ll", 30 },
	{ "rc-odd", 66 },  { "read", 55 },     { "sendlat", 20 }, { "uc", 24 },
	{ "ud", 6 },	   { "write", 55 },
};

static void each_packet(void (*visit)(const struct capture_packet *p, void *arg), void *arg)
{
	const char *source = getenv("SOURCE_DIR");
	char file[4096];

	for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
		snprintf(file, sizeof(file), "%s/tests/data/%s.pcap", source ? source : ".",
			 captures[i].name);
		assert_int_equal(capture_each(file, visit, arg), captures[i].packets);
	}
}

static void rebuild(const struct capture_packet *c, void *arg)
{
	uint8_t built[8192];
	struct packet p;
	uint32_t icrc;
	size_t len;

	(void)arg;
	assert_int_equal(packet_parse(&p, c->data, c->len), DROP_NONE);
	len = packet_build_headers(&p, built);
	assert_int_equal(len, packet_headers_len(p.opcode));
	memcpy(built + len, p.payload, p.payload_len);
	len += p.payload_len;
	memset(built + len, 0, packet_pad(p.payload_len));
	len += packet_pad(p.payload_len);
	icrc = htole32(icrc_compute(&c->path, c->ipv4_id, built, len));
	memcpy(built + len, &icrc, sizeof(icrc));
	assert_int_equal(len + sizeof(icrc), c->len);
	assert_memory_equal(built, c->data, c->len);
}

static void packets_are_rebuilt_bit_for_bit(void **state)
{
	(void)state;
	each_packet(rebuild, NULL);
}

static void recover_id(const struct capture_packet *c, void *arg)
{
	const uint16_t guesses[] = { 0, c->ipv4_id, (uint16_t)(c->ipv4_id + 1),
				     (uint16_t)~c->ipv4_id };
	bool ipv4 = gid_is_ipv4(&c->path.sgid);
	int *ids = arg;

	for (size_t i = 0; i < ARRAY_LEN(guesses); i++) {
		uint16_t id = guesses[i];

		assert_true(icrc_check(&c->path, &id, c->data, c->len));
		assert_int_equal(id, ipv4 ? c->ipv4_id : guesses[i]);
	}
	*ids += ipv4 && c->ipv4_id != 0;
}

static void ipv4_identification_is_recovered(void **state)
{
	int ids = 0;

	(void)state;
	each_packet(recover_id, &ids);
	assert_int_equal(ids, 276); /* all IPv4 packets: none of these senders uses 0 */
}

static void damage(const struct capture_packet *c, void *arg)
{
	uint8_t copy[8192];
	const size_t bits[] = {
		0, 9, BTH_LEN * 8 - 1, c->len * 4, c->len * 8 - 33, c->len * 8 - 1
	};

	(void)arg;
	for (size_t i = 0; i < ARRAY_LEN(bits); i++) {
		uint16_t id = c->ipv4_id;

		memcpy(copy, c->data, c->len);
		copy[bits[i] / 8] ^= (uint8_t)(1 << bits[i] % 8);
		assert_false(icrc_check(&c->path, &id, copy, c->len));
		assert_int_equal(id, c->ipv4_id);
	}
}

static void damaged_bits_are_seen(void **state)
{
	(void)state;
	each_packet(damage, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_are_rebuilt_bit_for_bit),
		cmocka_unit_test(ipv4_identification_is_recovered),
		cmocka_unit_test(damaged_bits_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
