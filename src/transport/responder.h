/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responder: executes the peer's requests (IBA 9.7.4, figure 'Responder: validate inbound
 * packet'): opcode sequence, PSN, resources, length, key; then places data, and owes replies.
 *
 * Replies leave in PSN order: first the queue of READ and atomic responses, then one ACK or NAK for
 * all the rest. An ACK that wasn't sent yet is overtaken by a later one: coalescing.
 */
#ifndef ROCELINK_TRANSPORT_RESPONDER_H
#define ROCELINK_TRANSPORT_RESPONDER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/outbox.h"
#include "wire/packet.h"
#include "wire/path.h"
#include "wire/psn.h"

struct qp;
struct recv_queue;
struct recv_wqe;

/* What the responder finds wrong with a request (RC: reply in respond_fault's table). */
enum fault {
	FAULT_NONE,
	FAULT_OPCODE_SEQUENCE, /* FIRST inside a message, MIDDLE outside one, change of operation */
	FAULT_OPCODE,	       /* operation not supported or not enabled on the QP */
	FAULT_LENGTH,	       /* FIRST/MIDDLE not MTU long, data beyond the RETH's length */
	FAULT_RECEIVE_LENGTH,  /* SEND longer than the receive buffer */
	FAULT_RECEIVE_KEY,     /* the receive buffer's L_Key is wrong */
	FAULT_NO_RECEIVE,      /* no receive work request: RNR */
	FAULT_ACCESS,	       /* R_Key, bounds, permission, protection domain */
	FAULT_UNALIGNED,       /* atomic not on 8 bytes */
	FAULT_READ_DEPTH,      /* more READs and atomics than max_dest_rd_atomic */
	FAULT_GONE,	       /* memory deregistered while a READ was being answered */
	FAULT_INVALIDATE,      /* SEND with invalidate: not a window of this queue pair */
	FAULT_XRC_SRQ,	       /* XRC: no such SRQ in the target's domain */
	FAULT_COUNT
};
const char *fault_name(enum fault fault);

/* A READ or atomic response owed. */
struct reply {
	struct psn psn; /* of the request = of the first response packet */
	uint32_t msn;
	bool atomic;
	bool duplicate;
	uint64_t result; /* atomic */
	uint64_t va;	 /* READ: next byte to send */
	uint32_t rkey;
	const void *pd;
	uint32_t left;	  /* bytes still to send */
	uint32_t packets; /* sent so far */
	uint32_t mtu;	  /* READ: of each response packet but the last */
};

/* Result of an atomic executed, kept for duplicates. */
struct atomic_result {
	struct psn psn;
	bool valid;
	bool write; /* ATOMIC WRITE, which has none */
	uint64_t result;
};

enum message { MESSAGE_NONE, MESSAGE_SEND, MESSAGE_WRITE };

/* XRC: packets that wait for another process (relay.h). */
struct relay_packet;
struct relay {
	struct relay_packet *first, *last;
	size_t bytes;
	unsigned run;  /* so many of them are with that process */
	uint32_t srqn; /* of the message in progress, when its SRQ is there; else 0 */
};

struct responder {
	struct psn epsn;      /* expected */
	uint32_t msn;	      /* 24 bits */
	enum message message; /* in progress */
	uint32_t offset;      /* bytes of it received */
	/* Where receives come from; with XRC the SRQ that the message in progress names. */
	struct recv_queue *queue;
	uint64_t va;	/* WRITE: from the RETH */
	const void *pd; /* whose memory it names: receive_domain() */
	uint32_t rkey, dma_len;
	struct recv_wqe *recv; /* the receive being filled; storage of the responder's */
	bool recv_taken;
	bool starved;	   /* fault injection: the next look for a receive finds none */
	bool skip_message; /* UC: dropping the rest of a damaged message */

	bool ack_due; /* one ACK or NAK to send after the replies */
	uint8_t syndrome;
	struct psn ack_psn;
	bool nak_armed; /* a NAK for epsn was sent; later packets are dropped silently ... */
	struct psn last_out_of_order; /* ... until the peer starts over (PSN goes back) */

	uint32_t depth; /* max_dest_rd_atomic: fresh READs and atomics the peer may have open */
	struct reply *replies; /* ring of reply_slots entries */
	uint32_t reply_slots, reply_head, reply_tail;
	struct atomic_result *atomics; /* ring of atomic_slots entries */
	uint32_t atomic_slots, atomic_next;
	struct relay relay;
};

/* What the peer cut this message at, and expects a READ response to be cut at. */
uint32_t responder_mtu(const struct qp *qp, const struct packet *pkt);

/* Storage for the receive in progress. 0 or -ENOMEM. */
int responder_init(struct qp *qp);
void responder_destroy(struct qp *qp);
/* On the way to RTR: 0 or -ENOMEM. */
int responder_start(struct qp *qp, struct psn rq_psn, uint32_t max_dest_rd_atomic);
void responder_reset(struct qp *qp);
/* max_dest_rd_atomic changed; what is owed and remembered is kept. 0 or -ENOMEM. */
int responder_set_depth(struct qp *qp, uint32_t max_dest_rd_atomic);

enum drop responder_rx(struct qp *qp, const struct packet *pkt, uint64_t now_ns);
/* For relay.c: the same, nothing being held; a message's packet was executed; a request wasn't, for this
 * reason; and what becomes of the receive it took, if any. */
enum drop responder_execute(struct qp *qp, const struct packet *pkt);
void responder_advance(struct responder *r, const struct packet *pkt);
void responder_fail(struct qp *qp, enum fault fault);
void responder_fail_receive(struct qp *qp, enum fault fault);

enum drop responder_uc_rx(struct qp *qp, const struct packet *pkt);
enum drop responder_ud_rx(struct qp *qp, const struct packet *pkt, const struct path *path);

/* Send READ and atomic responses owed. True when the outbox is full or the budget used up while
 * more is owed. */
bool responder_tx(struct qp *qp, struct outbox *box, uint32_t *budget);
/* Send the ACK or NAK owed, unless responses that come before it are. True when the outbox is full.
 */
bool responder_tx_ack(struct qp *qp, struct outbox *box);

/* This SRQ goes away: a receive taken from it for a message in progress is forgotten. */
void responder_forget_srq(struct qp *qp, const struct recv_queue *srq);

/* Complete the receive in progress and all posted ones with IBV_WC_WR_FLUSH_ERR. */
void responder_flush(struct qp *qp);

bool responder_idle(const struct qp *qp);

#endif
