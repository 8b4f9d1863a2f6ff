/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester: cuts posted work requests into request packets and decides what may be sent now.
 *
 * It holds a cursor into the send queue: work request `cur` (a ring index between head and tail),
 * packet `pkt` within it, and that packet's PSN. Going back (a NAK, a timeout, a lost response)
 * moves the cursor; packets are rebuilt from the work request, nothing sent is kept.
 *
 * Invariants (RC):  una <= psn <= max on the PSN circle;  max - una <= window, READ responses
 * included; work requests head ... assigned-1 have their PSNs, contiguous from una's on; cur is the
 * work request that holds psn, or assigned; READ and atomic requests out <= max_rd_atomic.
 */
#ifndef ROCELINK_TRANSPORT_REQUESTER_H
#define ROCELINK_TRANSPORT_REQUESTER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/outbox.h"
#include "wire/psn.h"

struct qp;
struct send_wqe;

#define REQUESTER_READS_MAX 128

struct requester {
	uint32_t cur;
	uint32_t pkt;
	struct psn psn;	 /* next to send */
	struct psn max;	 /* one beyond the highest sent so far */
	struct psn last; /* first PSN of the request packet sent last: what a probe repeats */
	uint32_t since_ack_req; /* packets since one asked for an acknowledgement */
	uint32_t assigned;	/* ring index one beyond the last work request that has its PSNs */
	/* READ and atomic requests that await responses: ring of the PSN behind each one's last
	 * response. */
	struct psn read_ends[REQUESTER_READS_MAX];
	uint32_t read_head, read_tail;
	uint32_t max_reads; /* max_rd_atomic */
	uint32_t mtu;	    /* bytes of each packet of a message but the last */
	uint32_t window;    /* packets that may be unacknowledged now */
	uint32_t window_max;
	uint32_t window_near; /* what window_max is where packets take no time: the peer's buffer */
	uint8_t fault; /* enum ibv_wc_status: work request cur can't be sent; fails once it is the
			  oldest */
};

/* Bounds of what one work request may carry, in PSNs: 2^31 bytes at MTU 256 is 2^23 packets. */
uint32_t requester_packets(uint32_t len, uint32_t mtu);

void requester_start(struct qp *qp, struct psn sq_psn, uint32_t max_rd_atomic);
/* Before anything is sent: how messages are cut, and how many packets may be unacknowledged. */
void requester_set_window(struct qp *qp, uint32_t mtu, uint32_t packets);

/* So many packets were answered within a round trip of rtt_ns, where the shortest was rtt_min_ns: what is
 * on a long way needs no room at the peer. */
void requester_measured(struct qp *qp, uint32_t answered, uint64_t rtt_ns, uint64_t rtt_min_ns);

/* Move the cursor to a PSN in una ... max. */
void requester_seek(struct qp *qp, struct psn psn);

/* Send requests; a UC or UD work request completes when its last packet is in the outbox. True when
 * the outbox is full or the burst limit reached while more could be sent. */
bool requester_tx(struct qp *qp, struct outbox *box, uint64_t now_ns, uint32_t *budget);

/* The completer moved una forward: requests answered make room, and the cursor is never behind una.
 */
void requester_acked(struct qp *qp);

/* No request is waiting to be sent or acknowledged. */
bool requester_idle(const struct qp *qp);

#endif
