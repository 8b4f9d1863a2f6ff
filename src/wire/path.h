/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a packet goes to or came from: everything in the IP and UDP headers that matters. */
#ifndef ROCELINK_WIRE_PATH_H
#define ROCELINK_WIRE_PATH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct gid {
	uint8_t raw[16]; /* an IPv6 address, or an IPv4-mapped one (::ffff:a.b.c.d) */
};

struct path {
	struct gid sgid, dgid; /* source and destination of the packet */
	uint32_t ifindex; /* scope of link-local and multicast addresses; the device's interface */
	uint32_t flow_label;   /* 20 bits, IPv6 */
	uint16_t sport;	       /* UDP source port */
	uint8_t traffic_class; /* IPv4 TOS, IPv6 traffic class */
	uint8_t hop_limit;     /* IPv4 TTL, IPv6 hop limit */
	bool local; /* the destination is an address of this host; not compared by path_eq() */
};

static inline bool gid_is_ipv4(const struct gid *g)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

	return memcmp(g->raw, mapped, sizeof(mapped)) == 0;
}

static inline bool gid_eq(const struct gid *a, const struct gid *b)
{
	return memcmp(a->raw, b->raw, sizeof(a->raw)) == 0;
}

/* An IPv4-mapped 224.0.0.0/4 or an IPv6 ff00::/8 address. */
static inline bool gid_is_multicast(const struct gid *g)
{
	return g->raw[0] == 0xff || (gid_is_ipv4(g) && g->raw[12] >> 4 == 0xe);
}

static inline bool gid_is_link_local(const struct gid *g)
{
	return g->raw[0] == 0xfe && (g->raw[1] & 0xc0) == 0x80;
}

static inline bool gid_is_zero(const struct gid *g)
{
	static const struct gid zero;

	return gid_eq(g, &zero);
}

/* Same destination, source and header fields: packets that may share one segmented send. */
static inline bool path_eq(const struct path *a, const struct path *b)
{
	return gid_eq(&a->sgid, &b->sgid) && gid_eq(&a->dgid, &b->dgid) &&
	       a->ifindex == b->ifindex && a->flow_label == b->flow_label && a->sport == b->sport &&
	       a->traffic_class == b->traffic_class && a->hop_limit == b->hop_limit;
}

#define GID_STRLEN 46 /* enough for any address and the NUL */
/* Text of a GID: "::ffff:192.0.2.1" or "fe80::1". Returns buf. */
const char *gid_format(const struct gid *g, char buf[GID_STRLEN]);

#endif
