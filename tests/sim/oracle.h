/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What must be true of a conversation of many queue pairs. The oracle posts the requests and so knows
 * what each does: it holds the image that both memories must have, and the order in which each queue
 * pair must complete. At the moment of a completion its data must be in place; at the end all is
 * complete, once and in order, and no byte differs from the image but those that a lost message may
 * have touched.
 *
 * Each request has bytes of its own, the same offsets at both ends, and so has each receive. Only the
 * counters at the start of each memory are shared: all queue pairs of a node add 1 to its peer's.
 *
 * One pair may be a victim: its requests may fail, then all behind them must.
 */
#ifndef ROCELINK_TESTS_SIM_ORACLE_H
#define ROCELINK_TESTS_SIM_ORACLE_H

#include "sim.h"

#define ORACLE_OPS    400u
#define ORACLE_RECVS  800u
#define ORACLE_MEMORY (1u << 20)
#define ORACLE_RECV   3072u /* bytes of each */
#define NO_VICTIM     SIM_PAIRS

struct oracle_op {
	unsigned node, pair; /* who asks */
	unsigned to;	     /* pair at the other node: UD may send to any */
	enum ibv_wr_opcode opcode;
	uint32_t at, len;
	bool signalled;
	bool bad;	       /* its key is wrong */
	bool complete, failed; /* at the sender */
	unsigned arrived;      /* messages: completions at the receiver */
};

struct oracle_recv {
	unsigned node;
	unsigned pair; /* of the queue; SIM_PAIRS: the SRQ */
	uint32_t at;
	bool complete;
};

struct oracle {
	struct sim *sim;
	struct oracle_op op[ORACLE_OPS];
	struct oracle_recv recv[ORACLE_RECVS];
	unsigned n_ops, n_recvs;
	uint32_t next; /* free memory from here on */
	unsigned victim;
	bool broken[2][SIM_PAIRS]; /* a request of this queue pair has failed */
	/* By node: adds that are complete, those that may or may not have been executed, and which old
	 * values were fetched. */
	unsigned adds[2], doubtful_adds[2];
	bool fetched[2][ORACLE_OPS];
	uint8_t image[2][ORACLE_MEMORY];
	uint8_t wild[2][ORACLE_MEMORY]; /* how much the image knows of a byte */
};

/* The simulation was started with a memory of ORACLE_MEMORY bytes. victim: a pair, or NO_VICTIM. */
void oracle_start(struct oracle *o, struct sim *s, unsigned victim);
/* May len more bytes be used? */
bool oracle_has_room(const struct oracle *o, uint32_t len);
/* Post a request of a random kind, which the pair's service has; none if its queue is full. */
void oracle_post(struct oracle *o, unsigned node, unsigned pair);
/* Of the victim: a WRITE with a key that isn't there. */
void oracle_post_bad(struct oracle *o, unsigned node, unsigned pair);
/* Post a receive to the queue that the pair's end receives from; none if it is full. */
void oracle_recv(struct oracle *o, unsigned node, unsigned pair);
/* The simulation's on_completion. */
void oracle_completion(void *arg, struct sim_node *n, const struct ibv_wc *wc);
/* All is at rest. */
void oracle_check(struct oracle *o);

#endif
