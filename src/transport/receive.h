/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receiving messages: SEND and WRITE packets, in order, into memory; the receive work request that
 * a message consumes; its completion. Shared by the RC and UC responders.
 */
#ifndef ROCELINK_TRANSPORT_RECEIVE_H
#define ROCELINK_TRANSPORT_RECEIVE_H

#include <infiniband/verbs.h>

#include "transport/responder.h"

struct qp;

/* Place one packet of a SEND or WRITE. Nothing has changed when a fault is returned but, perhaps,
 * that a receive was taken. */
enum fault receive_message_packet(struct qp *qp, const struct packet *pkt);

/* Does this packet of a SEND or WRITE fit the message in progress, or the lack of one? */
enum fault receive_check_sequence(const struct responder *r, const struct packet *pkt);

/* Take a receive work request unless one is taken. False: none is posted. */
bool receive_take(struct qp *qp);

/* Whose memory may this request name? The queue pair's protection domain; XRC: that of the SRQ it
 * names, FAULT_XRC_SRQ if the domain has none of this number; mem_domain() of it. */
enum fault receive_domain(const struct qp *qp, const struct packet *pkt, const void **pd);

/* Complete the taken receive: from the message's last packet, or with pkt NULL an error status. */
void receive_complete(struct qp *qp, const struct packet *pkt, enum ibv_wc_status status);

#endif
