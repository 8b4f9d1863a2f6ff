/* SPDX-License-Identifier: BSD-2-Clause */
#include "sim_pcap.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/units.h"
#include "wire/packet.h"

#define IP_LEN	   20
#define UDP_LEN	   8
#define LINK_RAW   101
#define MAGIC_NANO 0xa1b23c4d

FILE *sim_pcap_open(const char *file)
{
	const struct {
		uint32_t magic;
		uint16_t major, minor;
		uint32_t zone, accuracy, snap, link;
	} head = { MAGIC_NANO, 2, 4, 0, 0, 65535, LINK_RAW };
	FILE *f = fopen(file, "wb");

	if (f)
		fwrite(&head, sizeof(head), 1, f);
	return f;
}

static void put16(uint8_t *at, uint32_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

void sim_pcap_write(FILE *f, uint64_t now_ns, const struct path *path, uint16_t ipv4_id,
		    const uint8_t *data, uint32_t len)
{
	const uint32_t total = IP_LEN + UDP_LEN + len;
	const uint32_t record[4] = { (uint32_t)(now_ns / NS_PER_SEC),
				     (uint32_t)(now_ns % NS_PER_SEC), total, total };
	uint8_t head[IP_LEN + UDP_LEN] = { 0x45, path->traffic_class };
	uint32_t sum = 0;

	put16(head + 2, total);
	put16(head + 4, ipv4_id);
	head[6] = 0x40; /* don't fragment */
	head[8] = path->hop_limit;
	head[9] = 17;
	memcpy(head + 12, path->sgid.raw + 12, 4);
	memcpy(head + 16, path->dgid.raw + 12, 4);
	for (unsigned i = 0; i < IP_LEN; i += 2)
		sum += (uint32_t)head[i] << 8 | head[i + 1];
	sum = (sum >> 16) + (sum & 0xffff);
	put16(head + 10, ~(sum + (sum >> 16)) & 0xffff);
	put16(head + IP_LEN, path->sport);
	put16(head + IP_LEN + 2, ROCE_UDP_PORT);
	put16(head + IP_LEN + 4, UDP_LEN + len);
	fwrite(record, sizeof(record), 1, f);
	fwrite(head, sizeof(head), 1, f);
	fwrite(data, len, 1, f);
}
