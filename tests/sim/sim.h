/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two queue pairs in one thread, joined by a simulated network under a virtual clock: the real
 * transport, memory and wire code, no sockets. All that is random comes from one 64-bit seed.
 */
#ifndef ROCELINK_TESTS_SIM_H
#define ROCELINK_TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "mem/mem.h"
#include "transport/qp.h"
#include "wire/outbox.h"

#define SIM_MEMORY  (112u << 10)
#define SIM_CANARY  4096u
#define SIM_WCS	    4096u
#define SIM_WINDOWS 3u
#define SIM_HISTORY 128u
#define SIM_SRQN    0x5a5a5au

struct sim_node {
	struct qp qp;
	struct recv_queue srq; /* with cfg.srq, node 1's; XRC: the target's, number SIM_SRQN */
	struct mem_table mem;
	struct outbox box;
	struct mr mr;
	struct mr windows[SIM_WINDOWS]; /* of type 2, made by the scenarios that need some */
	uint8_t *memory;		/* SIM_MEMORY bytes between two canaries */
	uint8_t *allocation;
	struct ibv_wc send_wc[SIM_WCS], recv_wc[SIM_WCS];
	unsigned n_send_wc, n_recv_wc;
	unsigned events[32]; /* by enum ibv_event_type */
	uint64_t sent;	     /* packets this node put on the wire */
};

struct sim_config {
	enum ibv_qp_type type; /* IBV_QPT_XRC_SEND: of node 0, node 1 is its target */
	bool srq;	       /* node 1 receives from a shared queue */
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
	uint32_t sge; /* entries per work request offered; 0: 30 */
};

struct sim_packet;

struct sim {
	struct sim_config cfg;
	struct sim_node node[2];
	uint64_t now_ns;
	uint64_t random;
	struct sim_packet *wire; /* sorted by arrival */
	uint64_t busy_ns[2];	 /* until when each direction of the link is sending */
	uint64_t overflowed;	 /* packets that found the link's queue full */
	struct sim_packet *history[SIM_HISTORY]; /* sent last; only when they are replayed */
	unsigned n_history;
	uint64_t drops[DROP_COUNT];
	FILE *pcap; /* set after sim_start(): what is put on the wire, lost or not, goes here */
};

extern const struct sim_config sim_defaults;

/* Both QPs in RTS. */
void sim_start(struct sim *s, const struct sim_config *cfg);
/* Until both ends are at rest or the virtual time is over. True: at rest. Checks invariants after
 * every event. */
bool sim_run(struct sim *s, uint64_t limit_ns);
/* Both QPs are destroyed, and others of the same numbers connected, with this PSN. */
void sim_reincarnate(struct sim *s, uint32_t psn);
/* The packets sent last, if cfg.replay kept them, arrive once more. Returns how many. */
unsigned sim_replay_history(struct sim *s);
/* From a node to the other. */
struct path sim_path(unsigned to);
/* Frees all; fails the test when a canary was touched. */
void sim_end(struct sim *s);

/* Post a receive to a node's own queue, or to its SRQ. */
void sim_post_recv(struct sim_node *n, const struct ibv_recv_wr *wr);

uint64_t sim_random(struct sim *s);
/* Bytes [0, SIM_MEMORY) of a node's memory as an SGE. */
struct ibv_sge sim_sge(const struct sim_node *n, uint32_t offset, uint32_t len);
uint64_t sim_va(const struct sim_node *n, uint32_t offset);
/* Deliver a packet of our making to a node as if it came from the other. */
enum drop sim_inject(struct sim *s, unsigned to, struct packet *p);
/* The same with len bytes from the BTH on, the last 4 of which become the right ICRC. */
enum drop sim_inject_bytes(struct sim *s, unsigned to, const uint8_t *data, size_t len);

#endif
