/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of the simulation share: the words that they are written in (script.c), the table of
 * scenarios (scenarios.c), and how one is run, described and repeated (runner.c).
 */
#ifndef ROCELINK_TESTS_SIM_SCENARIOS_H
#define ROCELINK_TESTS_SIM_SCENARIOS_H

#include "sim.h"

#define LIMIT_NS   (600 * NS_PER_SEC)
#define MTU	   256
#define EDGE_SIZES 8

/* Posts work to node 0 (and receives to node 1) of the first pair, and knows what must be true
 * afterwards. */
struct scenario {
	const char *name;
	enum ibv_qp_type type;
	void (*post)(struct sim *s);
	void (*check)(struct sim *s);
	bool srq; /* of node 1 */
};

extern const struct scenario scenarios[];
extern const unsigned n_scenarios;
const struct scenario *scenario_find(const char *name);

/* The one simulation of a test program: it is large. */
extern struct sim sim;

/* Lengths around the path MTU. */
extern const uint32_t edge_sizes[EDGE_SIZES];

/* Signalled; it must be accepted. */
void post_wr(struct sim *s, unsigned node, struct ibv_send_wr *wr);
/* From node 0, offset and length being the same at both ends. */
void post_one(struct sim *s, enum ibv_wr_opcode opcode, uint64_t id, uint32_t offset, uint32_t len,
	      unsigned flags);
/* Fetch-add to the first 8 bytes of node 1. */
void post_atomic(struct sim *s, uint64_t id, uint32_t local, uint64_t add);
void post_recv(struct sim *s, unsigned node, uint64_t id, uint32_t offset, uint32_t len);
/* A WRITE of each edge size. */
void post_writes(struct sim *s);
/* A window over 4 KiB of the node, that a peer may write through. Returns its key. */
uint32_t bind_window(struct sim_node *n, unsigned i, uint32_t tag);

void expect_same(struct sim *s, uint32_t offset, uint32_t len);
/* n successful completions with wr_id 0 ... n-1, in order, and no other. */
void expect_wcs(const struct ibv_wc *wc, unsigned got, unsigned n);
/* By node 0. */
void expect_sent(struct sim *s, unsigned n);

/* From start to check. */
void run_one(const struct scenario *sc, const struct sim_config *cfg);
/* "SCENARIO MTU PSN ...": what reproduces the run. */
const char *describe(void);
/* The program's name is known, and its runs can be repeated. */
void runner_start(const char *program_name);
/* Teardown: after a test that failed within a run, the command that repeats just that one, and its
 * packets. */
int explain_failure(void **state);
/* PROGRAM --run SCENARIO MTU PSN ... [PCAP]: what explain_failure() named. The exit status. */
int run_spec(int argc, char **argv);

#endif
