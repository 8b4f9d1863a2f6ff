/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The packet parser on any bytes: what it accepts lies within them, and written anew and parsed
 * again it is the same. The ICRC check takes the bytes as they are, and once repaired.
 */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "../sim/sim_pcap.h"
#include "fuzz.h"
#include "wire/icrc.h"
#include "wire/packet.h"

const char *fuzz_pcap;

static const struct path ipv4 = { .sgid = { { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1 } },
				  .dgid = { { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2 } },
				  .sport = 0xc000,
				  .hop_limit = 64 };
static const struct path ipv6 = { .sgid = { { 0xfd, [15] = 1 } },
				  .dgid = { { 0xfd, [15] = 2 } },
				  .sport = 0xc000,
				  .hop_limit = 64 };

/* The same packet, whatever its reserved bits and pad bytes were. */
static void write_anew(const struct packet *p)
{
	uint8_t bytes[PACKET_HEADER_MAX + MTU_MAX + 4 + ICRC_LEN] = { 0 };
	unsigned head = packet_build_headers(p, bytes);
	struct packet again = { 0 }, first = *p;
	enum drop drop;

	assert(head == packet_headers_len(p->opcode));
	if (p->payload_len)
		memcpy(bytes + head, p->payload, p->payload_len);
	drop = packet_parse(&again, bytes, head + p->payload_len + p->pad + ICRC_LEN);
	assert(drop == DROP_NONE);
	assert(again.payload_len == p->payload_len && again.pad == p->pad);
	assert(!p->payload_len || !memcmp(again.payload, p->payload, p->payload_len));
	first.payload = again.payload;
	assert(!memcmp(&again, &first, sizeof(first)));
}

static void check_icrc(const struct path *path, const uint8_t *data, size_t len)
{
	uint8_t repaired[PACKET_HEADER_MAX + MTU_MAX + 8];
	uint16_t id = 7;
	uint32_t icrc;

	icrc_check(path, &id, data, len);
	if (len > sizeof(repaired))
		return;
	memcpy(repaired, data, len);
	icrc = htole32(icrc_compute(path, 0x1234, repaired, len - ICRC_LEN));
	memcpy(repaired + len - ICRC_LEN, &icrc, sizeof(icrc));
	id = 7;
	assert(icrc_check(path, &id, repaired, len));
	assert(id == (path == &ipv4 ? 0x1234 : 7));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packet p = { 0 };

	if (fuzz_pcap) {
		FILE *f = sim_pcap_open(fuzz_pcap);

		sim_pcap_write(f, 0, &ipv4, 0, data, (uint32_t)size);
		fclose(f);
	}
	if (packet_parse(&p, data, size) != DROP_NONE)
		return 0;
	assert(p.op == opcode_info(p.opcode));
	assert(p.payload >= data && p.payload_len <= MTU_MAX);
	assert(p.payload + p.payload_len + p.pad + ICRC_LEN == data + size);
	write_anew(&p);
	check_icrc(&ipv4, data, size);
	check_icrc(&ipv6, data, size);
	return 0;
}
