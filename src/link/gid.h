/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which GID to use: the most common thing to get wrong. The choice itself is pure (tables and a
 * route go in); reading the tables and asking the kernel for a route are apart.
 *
 *	gid_table.c   ibv_query_gid_table, interfaces and addresses behind the entries
 *	gid_choice.c  the rules and their explanation
 *	route.c       which source address the kernel would use to reach an address
 */
#ifndef ROCELINK_LINK_GID_H
#define ROCELINK_LINK_GID_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "link/message.h"

enum { GID_TABLE_MAX = 1024 };

struct ifaddrs;

struct gid_table {
	struct rocelink_gid *gids;
	unsigned count;
	struct ifaddrs *addresses; /* of this host; gid_table.c */
};

/* An IP address without port; IPv4 as an IPv4-mapped IPv6 address, which is a GID's form too. */
struct address {
	uint8_t ip[16];
	unsigned scope; /* interface of a link-local address, or 0 */
};

/* What the kernel says about reaching somewhere. */
struct route {
	struct address to;
	bool known;
	struct address source;
	int error; /* errno when !known */
};

/* Add all GIDs of the device's port (0: all ports) to the table. */
int gid_table_add(struct gid_table *t, struct ibv_context *context, uint8_t port,
		  struct rocelink_error *err);
void gid_table_free(struct gid_table *t);

bool address_from_sockaddr(struct address *a, const struct sockaddr *sa);
void address_text(const struct address *a, char *buf, size_t len);
bool address_is_ipv4(const struct address *a);
bool address_is_link_local(const struct address *a);
bool address_is_loopback(const struct address *a);

void route_find(struct route *r, const struct address *to);

/*
 * The GID of the table to reach route->to with. Index in the table, or -1 with *err filled. `why`
 * gets the reason. route NULL: no peer is known, the first with a global address.
 */
int gid_choose(const struct gid_table *t, const struct route *route, char *why, size_t why_len,
	       struct rocelink_error *err);

/* How good this GID is for this route; 0: of no use. Higher is better. */
unsigned gid_score(const struct rocelink_gid *g, const struct route *route);

void gid_to_value(struct gid_value *v, const struct rocelink_gid *g);

#endif
