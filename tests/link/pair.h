/* SPDX-License-Identifier: BSD-2-Clause */
/* Two connections over a channel in memory, with queue pairs of two doubled devices. */
#ifndef TESTS_LINK_PAIR_H
#define TESTS_LINK_PAIR_H

#include "fake_verbs.h"
#include "mem_channel.h"

enum { PAIR_MAX_QPS = 8 };

struct side {
	struct fake_device dev;
	struct fake_qp qps[PAIR_MAX_QPS];
	struct rocelink_conn *conn;
	struct rocelink_options options;
	struct rocelink_error err;
	enum rocelink_role role;
};

struct pair {
	struct mem_end ends[2];
	struct side side[2]; /* 0 active, 1 passive unless changed before pair_open() */
};

void pair_init(struct pair *p);
/* Make the connections. */
void pair_open(struct pair *p);
/* Give both sides `count` queue pairs of the type, and start. */
void pair_start(struct pair *p, enum ibv_qp_type type, int count);
/* One side alone. */
void side_start(struct side *s, enum ibv_qp_type type, int count);
/* Drive both until nothing moves any more. */
void pair_run(struct pair *p);
void pair_free(struct pair *p);

/* All of the above for RC, up to ESTABLISHED on both sides. */
void pair_establish(struct pair *p);

#endif
