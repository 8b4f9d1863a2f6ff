/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One captured frame, taken apart down to the UDP or TCP payload. All pointers lead into the bytes
 * that were captured, and every length here was checked against them: a frame that claims more than
 * was captured has payload_len < claimed_len.
 */
#ifndef ROCELINK_TOOLS_DECODE_FRAME_H
#define ROCELINK_TOOLS_DECODE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/path.h"

enum frame_kind {
	FRAME_OTHER, /* not IP, or cut off before the ports; what says why */
	FRAME_TCP,
	FRAME_UDP,
	FRAME_ICMP,
};

enum tcp_flag { TCP_FIN = 0x01, TCP_SYN = 0x02, TCP_RST = 0x04, TCP_ACK = 0x10 };

struct frame {
	uint64_t number;  /* from 1 */
	uint64_t time_ns; /* since the first frame */
	enum frame_kind kind;
	const char *what; /* FRAME_OTHER: one word for people */

	bool has_addresses;
	struct gid src, dst;
	const uint8_t *ip; /* the IP header, extension headers not included */
	size_t ip_len;

	uint16_t sport, dport;
	const uint8_t *l4; /* the UDP header or ICMP message */
	const uint8_t *payload;
	size_t payload_len; /* bytes that are really there */
	size_t claimed_len; /* bytes the headers speak of */

	uint32_t seq;	   /* TCP */
	uint8_t tcp_flags; /* enum tcp_flag */
};

/* Take the IP packet at data[0..len) apart. The fields above kind are left alone. */
void frame_parse_ip(struct frame *f, const uint8_t *data, size_t len);

static inline uint16_t frame_be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t frame_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t frame_be64(const uint8_t *p)
{
	return (uint64_t)frame_be32(p) << 32 | frame_be32(p + 4);
}

#endif
