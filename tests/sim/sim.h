/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two nodes in one thread, joined by a simulated network under a virtual clock: the real transport,
 * memory and wire code, no sockets. Each has one or more queue pairs: number k of node 0 is connected
 * to number k of node 1. A node's queue pairs share its memory, its outbox, its completion queues and,
 * as the pairs are told to, its shared receive queue. All that is random comes from one 64-bit seed.
 */
#ifndef ROCELINK_TESTS_SIM_H
#define ROCELINK_TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "mem/mem.h"
#include "transport/qp.h"
#include "wire/outbox.h"

#define SIM_PAIRS   12u
#define SIM_MEMORY  (112u << 10)
#define SIM_CANARY  4096u
#define SIM_WCS	    4096u
#define SIM_WINDOWS 3u
#define SIM_HISTORY 128u
#define SIM_SRQN    0x5a5a5au
#define SIM_QKEY    0x11111111u

struct sim_packet;

struct sim_node {
	struct qp qp[SIM_PAIRS];
	unsigned n_qps;
	struct recv_queue srq; /* of the pairs that want it, and of XRC targets, number SIM_SRQN */
	struct mem_table mem;
	struct outbox box;
	struct mr mr;
	struct mr windows[SIM_WINDOWS]; /* of type 2, made by the scenarios that need some */
	uint8_t *memory;		/* mr.length bytes between two canaries */
	uint8_t *allocation;
	unsigned n_send_wc, n_recv_wc;
	unsigned events[32];				  /* by enum ibv_event_type */
	uint64_t sent;					  /* packets this node put on the wire */
	struct ibv_wc send_wc[SIM_WCS], recv_wc[SIM_WCS]; /* last: not cleared */
};

struct sim_pair {
	enum ibv_qp_type type; /* IBV_QPT_XRC_SEND: one is the initiator, the other its target */
	bool reverse;	       /* XRC: node 1 has the initiator */
	uint8_t srq;	       /* bit i: at node i it receives from the shared queue */
};

struct sim_config {
	struct sim_pair pair[SIM_PAIRS];
	unsigned n_pairs;
	enum ibv_mtu mtu;
	uint32_t psn; /* of both directions */
	uint32_t rd_atomic;
	uint8_t retry_cnt, rnr_retry, min_rnr_timer;
	/* Bit k set: packet k of that node (counted from 0) is lost. */
	uint64_t drop_mask[2];
	/* Probabilities in parts per million. */
	uint32_t loss, duplicate, reorder, corrupt;
	uint32_t replay; /* a packet sent before, any time ago, arrives again */
	/* The link: one delay, then a queue that is emptied at a rate (0: at once). */
	uint64_t delay_ns; /* 0: 20 us */
	uint32_t mbps, queue_bytes;
	uint64_t seed;
	uint32_t memory; /* bytes of each node's, a multiple of 8 */
	uint32_t wrs;	 /* work requests that a queue holds */
	uint32_t sges;	 /* of a work request */
};

struct sim {
	struct sim_config cfg;
	uint64_t now_ns;
	uint64_t random;
	struct sim_packet *wire, *wire_end; /* sorted by arrival */
	uint64_t busy_ns[2];		    /* until when each direction of the link is sending */
	uint64_t overflowed;		    /* packets that found the link's queue full */
	struct sim_packet *history[SIM_HISTORY]; /* sent last; only when they are replayed */
	unsigned n_history;
	uint64_t drops[DROP_COUNT];
	FILE *pcap; /* set after sim_start(): what is put on the wire, lost or not, goes here */
	/* Or NULL; set after sim_start(): hears of a completion when it is made. */
	void (*on_completion)(void *arg, struct sim_node *n, const struct ibv_wc *wc);
	void *on_completion_arg;
	struct sim_node node[2]; /* last: each clears itself */
};

extern const struct sim_config sim_defaults;

/* All QPs in RTS. */
void sim_start(struct sim *s, const struct sim_config *cfg);
/* Until both ends are at rest or the virtual time is over. True: at rest. Checks the invariants of
 * all QPs after every event. */
bool sim_run(struct sim *s, uint64_t limit_ns);
/* Nothing is on its way, armed or owed. */
bool sim_idle(const struct sim *s);
/* All QPs are destroyed, and others of the same numbers connected, with this PSN. */
void sim_reincarnate(struct sim *s, uint32_t psn);
/* All queue pairs through RESET and to each other again; what completed before is forgotten. */
void sim_reconnect(struct sim *s);
/* The packets sent last, if cfg.replay kept them, arrive once more. Returns how many. */
unsigned sim_replay_history(struct sim *s);
/* From a node to the other. */
struct path sim_path(unsigned to);
/* Frees all; fails the test when a canary was touched. */
void sim_end(struct sim *s);

/* Post a receive to the queue that a QP of the node receives from. */
int sim_try_recv(struct sim_node *n, unsigned pair, const struct ibv_recv_wr *wr);
/* To that of the first; it succeeds. */
void sim_post_recv(struct sim_node *n, const struct ibv_recv_wr *wr);
/* Take a QP to the error state, as a program does. */
void sim_to_error(struct sim *s, struct qp *qp);

uint64_t sim_random(struct sim *s);
/* True once in 10^6 / ppm times. */
bool sim_chance(struct sim *s, uint32_t ppm);
/* Bytes of a node's memory as an SGE. */
struct ibv_sge sim_sge(const struct sim_node *n, uint32_t offset, uint32_t len);
uint64_t sim_va(const struct sim_node *n, uint32_t offset);
/* The QP of this number, or NULL. */
struct qp *sim_find_qp(struct sim_node *n, uint32_t qpn);
/* Deliver a packet of our making to a node's first QP as if it came from the other. */
enum drop sim_inject(struct sim *s, unsigned to, struct packet *p);
/* The same with len bytes from the BTH on, the last 4 of which become the right ICRC. */
enum drop sim_inject_bytes(struct sim *s, unsigned to, const uint8_t *data, size_t len);

#endif
