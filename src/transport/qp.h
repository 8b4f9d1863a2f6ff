/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair of the transport: RC, UC, UD, or one half of XRC. Pure: time, packets and calls come in as
 * arguments; packets leave through an outbox, completions and events through struct qp_ops. The
 * engine serialises all calls but qp_post_*, which may run beside them (one poster at a time per
 * queue).
 *
 * After anything happened to a QP the engine asks qp_tx() for what may be sent now and
 * qp_next_deadline() for when qp_tick() is due: nobody keeps wake-up flags.
 *
 * XRC (IBA annex A14) splits RC in two: an initiator (IBV_QPT_XRC_SEND) has a requester and a
 * completer, a target (IBV_QPT_XRC_RECV) a responder. A target has neither protection domain nor
 * receive queue: each request names a shared receive queue of its domain, which brings both.
 */
#ifndef ROCELINK_TRANSPORT_QP_H
#define ROCELINK_TRANSPORT_QP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"
#include "mem/mem.h"
#include "transport/completer.h"
#include "transport/requester.h"
#include "transport/responder.h"
#include "transport/retry.h"
#include "transport/wq.h"
#include "wire/outbox.h"
#include "wire/packet.h"

#define QP_MAX_RD_ATOMIC 128
#define QP_MAX_SGE	 30
#define QP_MAX_INLINE	 1024
#define QP_MAX_WR	 16384
#define QP_MAX_MSG	 0x80000000u

struct qp;

/* Calls up, all under the engine's lock. cq is what qp_init was given. */
struct qp_ops {
	void (*complete)(void *cq, const struct ibv_wc *wc, bool solicited);
	void (*event)(struct qp *qp, enum ibv_event_type type);
};

struct qp_config {
	const struct qp_ops *ops;
	const struct mem_table *mem;
	enum ibv_qp_type type;
	const void *pd;
	void *send_cq, *recv_cq;
	struct recv_queue *srq; /* or NULL */
	/* XRC target: the SRQ of its domain with this number, or NULL. */
	struct recv_queue *(*find_srq)(void *xrcd, uint32_t srqn);
	void *xrcd;
	const struct relay_ops *relay; /* or NULL: SRQs of other processes aren't reached */
	struct ibv_qp_cap cap; /* as asked; qp_init rounds up and writes back what it gives */
	bool sq_sig_all;
	uint32_t window_bytes; /* unacknowledged data at most; 0: a default */
	/* UDP source port of packets from the first queue pair to the second; NULL: a fixed one. */
	uint16_t (*sport)(uint32_t src_qpn, uint32_t dest_qpn);
	/* UD: the outbox for a datagram to this queue pair (NULL: wait); NULL: the one given. */
	struct outbox *(*choose_box)(void *arg, const struct path *path, uint32_t dest_qpn);
	void *choose_arg;
};

/* Counters of one QP, and summed by the engine. */
struct qp_counters {
	uint64_t tx_packets, rx_packets, tx_bytes, rx_bytes;
	uint64_t retransmitted; /* packets sent again */
	uint64_t timeouts;
	uint64_t naks_sent, naks_received, rnr_naks_sent, rnr_naks_received;
	uint64_t duplicates;
};

struct qp {
	struct qp_config cfg;
	uint32_t qpn;	   /* set by the engine before the first modify */
	_Atomic int state; /* enum ibv_qp_state */
	/* As written by modify, for query; the parts below hold what they need in units of theirs.
	 */
	struct ibv_qp_attr attr;
	struct path path;		  /* to the peer; RC and UC */
	uint32_t mtu;			  /* bytes; UD: the port's */
	uint32_t local_mtu, local_window; /* of the same-host path; 0: not on it */
	struct ring sq;
	struct recv_queue rq;
	struct requester req;
	struct completer comp;
	struct responder resp;
	struct retry retry;
	struct qp_counters counters;
	bool sq_drained_pending; /* SQD: the event is due when the send queue is at rest */
	bool established;	 /* COMM_EST was told */
	bool has_bound;		 /* a memory window, at some time */
};

void qp_counters_add(struct qp_counters *sum, const struct qp_counters *c);

/* Acknowledged and retried: RC and both halves of XRC. */
static inline bool qp_is_reliable(const struct qp *qp)
{
	return qp->cfg.type == IBV_QPT_RC || qp->cfg.type == IBV_QPT_XRC_SEND ||
	       qp->cfg.type == IBV_QPT_XRC_RECV;
}

/* The opcode bits of its service. */
uint8_t qp_service_bits(const struct qp *qp);

/* UDP source port of this QP's packets to that one. */
uint16_t qp_sport(const struct qp *qp, uint32_t dest_qpn);

/* 0 or -errno (-EINVAL: a capability beyond the limits, unknown type; -ENOMEM). */
int qp_init(struct qp *qp, struct qp_config *config);
void qp_destroy(struct qp *qp);

/*
 * ibv_modify_qp. path: the address vector resolved by the device, needed when mask has IBV_QP_AV
 * (NULL when the attribute has no GRH: refused). port_mtu: the active MTU, bytes. 0, or an errno
 * (positive, as ibv_modify_qp returns) with a sentence in why: which attribute and what would be
 * right.
 */
int qp_modify(struct qp *qp, const struct ibv_qp_attr *attr, int mask, const struct path *path,
	      uint32_t port_mtu, uint64_t now_ns, char *why, size_t why_len);

/*
 * RC and UC: packets go by the same-host path, which loses none and takes longer ones: messages are
 * cut at mtu bytes, and `window` packets may be unacknowledged. Until RESET; nothing may have been
 * sent yet.
 */
void qp_set_local(struct qp *qp, uint32_t mtu, uint32_t window);

/* ibv_query_qp: exactly what was set, the current state and depths. */
void qp_query(const struct qp *qp, struct ibv_qp_attr *attr);

/*
 * Post one work request; the chain is the caller's loop. 0 or a positive errno: ENOMEM full, EINVAL
 * wrong state, opcode, flags, SGE count or inline length. path: UD only, from the address handle.
 * inline_data: with IBV_SEND_INLINE, wr->sg_list is copied from. The caller then kicks the engine.
 */
int qp_post_send(struct qp *qp, const struct ibv_send_wr *wr, const struct path *path);
int qp_post_recv(struct qp *qp, const struct ibv_recv_wr *wr);

/* A packet for this QP, ICRC checked. path: as received (sgid the peer). */
enum drop qp_rx(struct qp *qp, const struct packet *pkt, const struct path *path, uint64_t now_ns);

/* Send what may be sent now. True: the outbox filled up or the burst limit was reached, call again.
 */
bool qp_tx(struct qp *qp, struct outbox *box, uint64_t now_ns);

/* A deadline passed: timers. Followed by qp_tx. */
void qp_tick(struct qp *qp, uint64_t now_ns);
uint64_t qp_next_deadline(const struct qp *qp); /* TIME_NEVER: none */

/* To ERR from within, with the events and flushes this brings. */
void qp_fatal(struct qp *qp, enum ibv_event_type event);

/* The windows bound by this QP become free: before it goes, since they know it by its address. */
void qp_unbind(struct qp *qp);

/* A send failed: to ERR, or with UC and UD to SQE. */
void qp_send_error(struct qp *qp);

/* Was something sent that awaits its acknowledgement? */
bool qp_outstanding(const struct qp *qp);
/* Are no more than so many requests posted and not yet begun, each of at most so many bytes? */
bool qp_unsent_within(const struct qp *qp, uint32_t requests, uint32_t len);

/* May this QP take part in any transfer? For destroy and for tests: everything is at rest. */
bool qp_idle(const struct qp *qp);

#endif
