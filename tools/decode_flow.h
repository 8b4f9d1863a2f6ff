/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A flow: all packets from one address to one queue pair (for UD: from one queue pair). Requests of
 * a reliable or unreliable connection count their PSNs up along the flow; responses answer the
 * requests of the flow in the other direction, their `reverse`, which the exchange names or the
 * PSNs betray.
 *
 * Invariants: every request PSN seen so far lies in [first, next); what was seen is remembered in
 * one table of fixed size, so that an old entry may be overwritten: then a repetition is known as
 * one, but not of which frame.
 */
#ifndef ROCELINK_TOOLS_DECODE_FLOW_H
#define ROCELINK_TOOLS_DECODE_FLOW_H

#include "tools/decode_roce.h"

#define FLOW_READS 32

struct flow_read {
	struct psn psn;
	unsigned span; /* PSNs that its responses take; 0: the path MTU isn't known yet */
	uint32_t dma_len;
	uint64_t number;
};

struct flow_nak {
	uint8_t syndrome;
	struct psn psn;
	uint64_t number; /* 0: none yet */
};

struct flow {
	struct gid src, dst;
	uint32_t qpn, src_qpn;
	uint32_t id; /* names it in the table of what was seen */
	unsigned to_side;
	const struct told_qp *dest; /* as told, or NULL */
	uint64_t gid_told;
	uint64_t generation; /* of the registry, when dest was looked up */
	struct flow *reverse;

	bool started;
	struct psn first, next;
	unsigned slack; /* how far beyond next the next PSN may lie: a READ of unknown span came
			   last */
	unsigned mtu;	/* 0: not known yet */
	bool acked_valid;
	struct psn acked;
	struct flow_nak nak; /* the last that answered this flow */
	struct flow_read reads[FLOW_READS];
	unsigned n_reads; /* all so far; a ring */
	struct flow *next_hash, *next_older;
};

/* The flow of the packet, made at need, with dest up to date. */
struct flow *flow_get(struct flows *fl, const struct gid *src, const struct gid *dst, uint32_t qpn,
		      uint32_t src_qpn);
/* Judge the (whole, undamaged) packet and enter it. */
void flow_track(struct flows *fl, struct flow *flow, const struct frame *f, struct roce *r);

#define SEEN_SLOTS 65536

enum seen_class { SEEN_REQUEST = 1, SEEN_RESPONSE };

struct seen {
	uint32_t flow;
	uint32_t psn;
	enum seen_class class;
	uint64_t number;      /* the first frame with it */
	uint64_t last_number; /* the last */
	uint64_t last_time_ns;
};

struct seen *seen_find(struct flows *fl, const struct flow *flow, enum seen_class class,
		       struct psn psn);
void seen_enter(struct flows *fl, const struct flow *flow, enum seen_class class, struct psn psn,
		const struct frame *f);

/* decode_answer.c: responses to the requests of flow->reverse. */
void flow_track_response(struct flows *fl, struct flow *flow, const struct frame *f,
			 struct roce *r);

/* PSNs that the responses to a READ of this length take. mtu > 0. */
unsigned read_span(uint32_t dma_len, unsigned mtu);
/* The READ whose responses include the PSN, or NULL. */
const struct flow_read *flow_find_read(const struct flow *flow, struct psn psn);
void flow_learn_mtu(struct flow *flow, unsigned mtu);

#endif
