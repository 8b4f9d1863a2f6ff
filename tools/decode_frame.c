/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IP, UDP, TCP and ICMP headers of a captured frame. No length is believed before it was compared
 * with what was captured. Fragments are not put together: RoCE packets never are fragments, since
 * the path MTU keeps them below the link's.
 */
#include <netinet/in.h>
#include <string.h>

#include "tools/decode_frame.h"

enum {
	IPV4_HEADER_MIN = 20,
	IPV6_HEADER = 40,
	UDP_HEADER = 8,
	TCP_HEADER_MIN = 20,
	ICMP_HEADER = 8,
	EXTENSIONS_MAX = 8,
};

static void give_up(struct frame *f, const char *what)
{
	f->kind = FRAME_OTHER;
	f->what = what;
}

static void parse_udp(struct frame *f, const uint8_t *data, size_t len, size_t claimed)
{
	size_t udp_len;

	if (len < UDP_HEADER) {
		give_up(f, "UDP, cut off");
		return;
	}
	udp_len = frame_be16(data + 4);
	/* Behind the datagram may stand padding of the link; a length of 0 is a jumbogram. */
	if (udp_len >= UDP_HEADER && udp_len < claimed)
		claimed = udp_len;
	f->kind = FRAME_UDP;
	f->l4 = data;
	f->sport = frame_be16(data);
	f->dport = frame_be16(data + 2);
	f->payload = data + UDP_HEADER;
	f->claimed_len = claimed - UDP_HEADER;
	f->payload_len = (len < claimed ? len : claimed) - UDP_HEADER;
}

static void parse_tcp(struct frame *f, const uint8_t *data, size_t len, size_t claimed)
{
	size_t header;

	if (len < TCP_HEADER_MIN) {
		give_up(f, "TCP, cut off");
		return;
	}
	header = (size_t)(data[12] >> 4) * 4;
	if (header < TCP_HEADER_MIN || header > claimed) {
		give_up(f, "TCP, malformed");
		return;
	}
	f->kind = FRAME_TCP;
	f->l4 = data;
	f->sport = frame_be16(data);
	f->dport = frame_be16(data + 2);
	f->seq = frame_be32(data + 4);
	f->tcp_flags = data[13];
	f->claimed_len = claimed - header;
	f->payload = data + (header < len ? header : len);
	f->payload_len = header < len ? len - header : 0;
	if (f->payload_len > f->claimed_len)
		f->payload_len = f->claimed_len;
}

static void parse_l4(struct frame *f, uint8_t protocol, const uint8_t *data, size_t len,
		     size_t claimed)
{
	if (len > claimed)
		len = claimed;
	switch (protocol) {
	case IPPROTO_UDP:
		if (claimed < UDP_HEADER)
			give_up(f, "UDP, malformed");
		else
			parse_udp(f, data, len, claimed);
		return;
	case IPPROTO_TCP:
		parse_tcp(f, data, len, claimed);
		return;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (len < ICMP_HEADER) {
			give_up(f, "ICMP, cut off");
			return;
		}
		f->kind = FRAME_ICMP;
		f->l4 = data;
		f->payload = data + ICMP_HEADER;
		f->payload_len = len - ICMP_HEADER;
		f->claimed_len = claimed - ICMP_HEADER;
		return;
	default:
		give_up(f, "IP");
	}
}

static struct gid mapped(const uint8_t *ipv4)
{
	struct gid g = { { [10] = 0xff, [11] = 0xff } };

	memcpy(g.raw + 12, ipv4, 4);
	return g;
}

static void parse_ipv4(struct frame *f, const uint8_t *data, size_t len)
{
	size_t header, total;

	if (len < IPV4_HEADER_MIN) {
		give_up(f, "IPv4, cut off");
		return;
	}
	header = (size_t)(data[0] & 0x0f) * 4;
	total = frame_be16(data + 2);
	if (total == 0) /* the kernel hands segments out before it cuts them (TSO) */
		total = len;
	if (header < IPV4_HEADER_MIN || header > len || header > total) {
		give_up(f, "IPv4, malformed");
		return;
	}
	f->has_addresses = true;
	f->src = mapped(data + 12);
	f->dst = mapped(data + 16);
	f->ip = data;
	f->ip_len = header;
	if (frame_be16(data + 6) & 0x3fff) {
		give_up(f, "IPv4 fragment");
		return;
	}
	parse_l4(f, data[9], data + header, len - header, total - header);
}

/* Length of the extension header of this kind, or 0: none that can be stepped over. */
static size_t extension_len(uint8_t kind, const uint8_t *data, size_t len)
{
	if (len < 8)
		return 0;
	switch (kind) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
		return ((size_t)data[1] + 1) * 8;
	default:
		return 0;
	}
}

static void parse_ipv6(struct frame *f, const uint8_t *data, size_t len)
{
	size_t claimed, step;
	uint8_t next;

	if (len < IPV6_HEADER) {
		give_up(f, "IPv6, cut off");
		return;
	}
	claimed = frame_be16(data + 4);
	if (claimed == 0)
		claimed = len - IPV6_HEADER;
	f->has_addresses = true;
	memcpy(f->src.raw, data + 8, 16);
	memcpy(f->dst.raw, data + 24, 16);
	f->ip = data;
	f->ip_len = IPV6_HEADER;
	next = data[6];
	data += IPV6_HEADER;
	len -= IPV6_HEADER;
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		step = extension_len(next, data, len);
		if (step == 0 || step > len || step > claimed)
			break;
		next = data[0];
		data += step;
		len -= step;
		claimed -= step;
	}
	if (next == IPPROTO_FRAGMENT) {
		give_up(f, "IPv6 fragment");
		return;
	}
	parse_l4(f, next, data, len, claimed);
}

void frame_parse_ip(struct frame *f, const uint8_t *data, size_t len)
{
	unsigned version = len ? data[0] >> 4 : 0;

	if (version == 4)
		parse_ipv4(f, data, len);
	else if (version == 6)
		parse_ipv6(f, data, len);
	else
		give_up(f, "not IP");
}
