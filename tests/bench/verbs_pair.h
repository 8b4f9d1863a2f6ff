/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of RC queue pairs between a process and its child. The two tell each other what they need
 * over a socket pair. All of it ends the program on any error.
 */
#ifndef ROCELINK_BENCH_VERBS_PAIR_H
#define ROCELINK_BENCH_VERBS_PAIR_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct end {
	int fd; /* to the other process */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	char *memory;
	size_t len;
	union ibv_gid gid;
	int gid_index;
	uint64_t peer_addr; /* of the other end's memory */
	uint32_t peer_rkey;
};

_Noreturn void pair_die(const char *what);

void end_open(struct end *end, int fd, const char *device, int gid_index, size_t len);
void end_close(struct end *end);
/* Both ends call it the same number of times, in the same order. */
struct ibv_qp *end_connect(struct end *end, struct ibv_cq *cq, unsigned depth);
/* Returns when the other end calls it too. */
void end_meet(struct end *end);

#endif
