/* SPDX-License-Identifier: BSD-2-Clause */
/* A link's state, shared by shm.c and shm_traffic.c. */
#ifndef ROCELINK_NET_SHM_INTERNAL_H
#define ROCELINK_NET_SHM_INTERNAL_H

#include "net/port_internal.h"
#include "net/pring.h"

#define SHM_ACCEPT 'A' /* the byte that accepts an offer */

/* What two processes share. Index 0 of the arrays is the offering side's: its blocks, and the ring
 * it produces. */
struct segment {
	uint32_t magic;
	_Atomic uint64_t blocks[2][QPN_BLOCKS / 64];
	struct pring_shared rings[2];
};

enum link_state { LINK_FREE, LINK_OFFERED, LINK_READY, LINK_REFUSED, LINK_DEAD };

struct shm_link {
	struct rx rx; /* our end of the socket pair; first, as epoll names it */
	enum link_state state;
	bool self;
	unsigned side; /* our index in the segment's arrays */
	unsigned refs;
	unsigned block; /* offered to its owner */
	uint64_t due_ns;
	struct segment *segment;
	struct pring_producer out;
	struct pring_consumer in;
};

struct shm {
	struct shm_link links[SHM_LINKS_MAX];
	unsigned used;			      /* links[used ...] were never used */
	unsigned next;			      /* to receive from */
	uint8_t of_block[QPN_BLOCKS];	      /* index + 1 of the link to its owner; 0: not known */
	uint32_t refused_until_s[QPN_BLOCKS]; /* seconds of the monotonic clock */
	bool changed;
	bool woken; /* bytes that wake us were read, and nobody said since that we sleep */
	struct shm_link *self; /* to ourselves, or NULL */
	unsigned pending;
};

/* The peer accepted; it refused, or its time was up; it is gone, or broke the rules. */
void shm_link_ready(struct port *port, struct shm_link *link);
void shm_link_refused(struct port *port, struct shm_link *link);
void shm_link_died(struct port *port, struct shm_link *link, const char *why);

#endif
