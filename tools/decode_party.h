/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parties of a conversation: A, B, C ... in the order in which they appear. A party is a host,
 * or one of two programs on one host when both ends have the same address. A host that tells a GID
 * in an exchange is known by that address too.
 */
#ifndef ROCELINK_TOOLS_DECODE_PARTY_H
#define ROCELINK_TOOLS_DECODE_PARTY_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/path.h"

struct party {
	struct gid address; /* under which it appeared first */
	unsigned index;
	char name[16];	/* "A" ... "Z", then "P27" ... */
	bool announced; /* the reader was told its address */
	bool second;	/* of two programs at this address */
	struct party *next;
};

#define PARTY_BUCKETS 1024

struct party_address;

struct parties {
	struct party *first, **last;
	unsigned count;
	struct party_address *buckets[PARTY_BUCKETS];
};

void parties_init(struct parties *p);
void parties_destroy(struct parties *p);
/* side: 0, or 0 and 1 for the two ends that share this address. */
struct party *party_get(struct parties *p, const struct gid *address, unsigned side);
/* The party goes by this address as well, unless somebody else was seen there before. */
void party_add_address(struct parties *p, struct party *party, const struct gid *address,
		       unsigned side);

/* Text of an address for people: an IPv4 address without "::ffff:". Returns buf. */
const char *address_format(const struct gid *g, char buf[GID_STRLEN]);

#endif
