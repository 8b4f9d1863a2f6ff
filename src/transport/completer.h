/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The completer: takes acknowledgements and responses, advances the oldest unacknowledged PSN
 * (una), places READ data and atomic results, and completes work requests, each exactly once and in
 * order (IBA 9.7.5-6).
 *
 * una only moves forward. An acknowledgement carries it over SEND and WRITE packets but never over
 * a READ or atomic whose response hasn't come: that is a lost response, and the requester goes back
 * to it.
 */
#ifndef ROCELINK_TRANSPORT_COMPLETER_H
#define ROCELINK_TRANSPORT_COMPLETER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/packet.h"
#include "wire/psn.h"

struct qp;
struct send_wqe;

struct completer {
	struct psn una;
	struct psn
		gone_back; /* una at which a lost response was already answered by going back ... */
	bool went_back;	   /* ... so that its followers don't do it again */
};

void completer_start(struct qp *qp, struct psn sq_psn);

/* ACK, NAK, READ response, atomic response. */
enum drop completer_rx(struct qp *qp, const struct packet *pkt, uint64_t now_ns);

/* Complete the oldest work request with this status; an error takes the QP to ERR (or SQE). */
void completer_finish(struct qp *qp, enum ibv_wc_status status);

/* Complete everything left in both queues with IBV_WC_WR_FLUSH_ERR. */
void completer_flush_send(struct qp *qp);

#endif
