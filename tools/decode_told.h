/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the two ends of an exchange told each other, and the search for it: which queue pair, with
 * which first PSN, at which GID, was told in which frame. One struct exchange per TCP connection;
 * the n-th queue pair of one side is linked with the n-th of the other. All of it lives until the
 * end of the decoding.
 */
#ifndef ROCELINK_TOOLS_DECODE_TOLD_H
#define ROCELINK_TOOLS_DECODE_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/decode_party.h"
#include "wire/path.h"

enum told_has {
	TOLD_LID = 1 << 0,
	TOLD_QPN = 1 << 1,
	TOLD_PSN = 1 << 2,
	TOLD_GID = 1 << 3,
	TOLD_QKEY = 1 << 4,
	TOLD_SRQN = 1 << 5,
	TOLD_RKEY = 1 << 6, /* with va */
	TOLD_LENGTH = 1 << 7,
	TOLD_NAME = 1 << 8,
	TOLD_MTU = 1 << 9,
	TOLD_TYPE = 1 << 10,
};

#define TOLD_NAME_LEN 64

/* One record of an exchange. */
struct told {
	unsigned has; /* enum told_has */
	uint32_t lid, qpn, psn, qkey, srqn, rkey, mtu;
	uint64_t va, length;
	struct gid gid;
	const char *type; /* "RC" ... */
	char name[TOLD_NAME_LEN];
};

struct teller;

struct told_qp {
	struct told v;
	uint64_t number; /* the frame that told it */
	struct teller *teller;
	unsigned index; /* among the teller's */
	struct told_qp *next_hash;
};

struct told_region {
	struct told v;
	uint64_t number;
	struct told_region *next;
};

struct told_gid {
	struct gid gid;
	uint64_t number;
	struct told_gid *next;
};

struct teller {
	struct party *party;
	struct exchange *exchange;
	struct told_qp **qps;
	unsigned n_qps, cap_qps;
	struct told_region *regions; /* newest first */
	struct told_gid *gids;
};

struct exchange {
	struct teller side[2];
	struct exchange *next;
};

#define TOLD_BUCKETS 1024

struct registry {
	struct told_qp *buckets[TOLD_BUCKETS]; /* by QPN, newest first */
	struct exchange *exchanges;
	uint64_t generation; /* changes with every new queue pair */
};

void registry_destroy(struct registry *r);
struct exchange *exchange_add(struct registry *r, struct party *a, struct party *b);

/* Enter what the side told in this frame. False: it has told just this before. */
bool told_enter(struct registry *r, struct exchange *x, unsigned side, const struct told *v,
		uint64_t number);

/* The newest queue pair of this number whose teller told this GID, and the frame of the GID. */
const struct told_qp *told_find(const struct registry *r, const struct gid *gid, uint32_t qpn,
				uint64_t *gid_number);
/* The queue pair that this one is linked with, or NULL. */
const struct told_qp *told_peer(const struct told_qp *qp);
/* The newest region of the teller of this queue pair with this key, or NULL. */
const struct told_region *told_find_region(const struct told_qp *qp, uint32_t rkey);

#endif
