/* SPDX-License-Identifier: BSD-2-Clause */
#include <isa-l/crc.h>
#include <string.h>

#include "tools/decode_icrc.h"
#include "wire/packet.h"

enum {
	IP_HEADER_MAX = 60,
	UDP_HEADER = 8,
	PSEUDO_LRH = 8, /* stands for the local route header of an InfiniBand packet: all ones */
	PACKET_MIN = BTH_LEN + ICRC_LEN,
	PACKET_MAX = PACKET_HEADER_MAX + MTU_MAX + ICRC_LEN,
};

static void put_be16(uint8_t *p, size_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* The fields that routers change are all ones. */
static void mask_ip(uint8_t *ip)
{
	if (ip[0] >> 4 == 4) {
		ip[1] = 0xff;		  /* type of service */
		ip[8] = 0xff;		  /* time to live */
		memset(ip + 10, 0xff, 2); /* checksum */
	} else {
		ip[0] |= 0x0f; /* traffic class, flow label */
		memset(ip + 1, 0xff, 3);
		ip[7] = 0xff; /* hop limit */
	}
}

/* What segmentation gives the header of segment k: own lengths, the k-th identification. */
static void cut_headers(uint8_t *ip, size_t ip_len, uint8_t *udp, unsigned segment, size_t udp_len)
{
	put_be16(udp + 4, udp_len);
	if (ip[0] >> 4 == 4) {
		put_be16(ip + 2, ip_len + udp_len);
		put_be16(ip + 4, frame_be16(ip + 4) + segment);
	} else {
		put_be16(ip + 4, udp_len);
	}
}

uint32_t frame_icrc(const struct frame *f, unsigned segment, unsigned segments, const uint8_t *data,
		    size_t len)
{
	uint8_t head[PSEUDO_LRH + IP_HEADER_MAX + UDP_HEADER + BTH_LEN];
	uint8_t *ip = head + PSEUDO_LRH, *udp = ip + f->ip_len, *bth = udp + UDP_HEADER;
	uint32_t crc;

	memset(head, 0xff, PSEUDO_LRH);
	memcpy(ip, f->ip, f->ip_len);
	memcpy(udp, f->l4, UDP_HEADER);
	memcpy(bth, data, BTH_LEN);
	if (segments > 1)
		cut_headers(ip, f->ip_len, udp, segment, UDP_HEADER + len);
	mask_ip(ip);
	memset(udp + 6, 0xff, 2); /* checksum */
	bth[4] = 0xff;		  /* FECN, BECN, reserved */
	crc = crc32_gzip_refl(0, head, (uint64_t)(bth + BTH_LEN - head));
	return crc32_gzip_refl(crc, data + BTH_LEN, len - BTH_LEN - ICRC_LEN);
}

uint32_t frame_icrc_stored(const uint8_t *data, size_t len)
{
	const uint8_t *p = data + len - ICRC_LEN;

	return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

size_t frame_icrc_segment_len(const struct frame *f)
{
	const uint8_t *data = f->payload;
	size_t total = f->payload_len;

	if (total < f->claimed_len || total < 2 * PACKET_MIN ||
	    frame_icrc(f, 0, 1, data, total) == frame_icrc_stored(data, total))
		return 0;
	for (size_t len = PACKET_MIN; len <= PACKET_MAX && len < total; len += 4)
		if (frame_icrc(f, 0, 2, data, len) == frame_icrc_stored(data, len))
			return len;
	return 0;
}
