/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending what the responder owes: READ and atomic responses in order, then one ACK or NAK. */
#include <string.h>

#include "transport/qp.h"

/* Without the bits of the service, RC or XRC. */
enum { RC_READ_FIRST = 0x0d, RC_READ_MIDDLE = 0x0e, RC_READ_LAST = 0x0f, RC_READ_ONLY = 0x10 };
enum { RC_ACKNOWLEDGE = 0x11, RC_ATOMIC_ACKNOWLEDGE = 0x12 };

enum put { PUT_DONE, PUT_FULL, PUT_FAULT };

static struct packet response_header(const struct qp *qp, uint8_t opcode, struct psn psn,
				     uint8_t syndrome, uint32_t msn)
{
	return (struct packet){
		.opcode = (uint8_t)(opcode | qp_service_bits(qp)),
		.mig_req = true,
		.pkey = 0xffff,
		.dest_qpn = qp->attr.dest_qp_num,
		.psn = psn,
		.syndrome = syndrome,
		.msn = msn,
	};
}

static uint8_t *put_headers(struct qp *qp, struct outbox *box, const struct packet *p,
			    uint32_t *total)
{
	unsigned headers = packet_headers_len(p->opcode);
	uint8_t *out;

	*total = headers + p->payload_len + packet_pad(p->payload_len);
	out = outbox_reserve(box, &qp->path, *total);
	if (!out)
		return NULL;
	packet_build_headers(p, out);
	return out + headers;
}

static void commit(struct qp *qp, struct outbox *box, const struct packet *p, uint32_t total)
{
	outbox_commit(box, total);
	qp->counters.tx_packets++;
	qp->counters.tx_bytes += p->payload_len;
}

static enum put put_bare(struct qp *qp, struct outbox *box, const struct packet *p)
{
	uint32_t total;

	if (!put_headers(qp, box, p, &total))
		return PUT_FULL;
	commit(qp, box, p, total);
	return PUT_DONE;
}

static enum put put_atomic(struct qp *qp, struct outbox *box, const struct reply *reply)
{
	struct packet p = response_header(qp, RC_ATOMIC_ACKNOWLEDGE, reply->psn,
					  AETH_ACK | AETH_CREDIT_INVALID, reply->msn);

	p.atomic_result = reply->result;
	return put_bare(qp, box, &p);
}

static uint8_t read_opcode(const struct reply *reply, bool last)
{
	if (reply->packets == 0)
		return last ? RC_READ_ONLY : RC_READ_FIRST;
	return last ? RC_READ_LAST : RC_READ_MIDDLE;
}

/* The next packet of a READ response; the memory is checked again, it may have gone meanwhile. */
static enum put put_read(struct qp *qp, struct outbox *box, struct reply *reply)
{
	uint32_t len = reply->left < reply->mtu ? reply->left : reply->mtu;
	struct packet p = response_header(qp, read_opcode(reply, len == reply->left),
					  psn_add(reply->psn, reply->packets),
					  AETH_ACK | AETH_CREDIT_INVALID, reply->msn);
	uint8_t *payload;
	uint32_t total;

	p.payload_len = len;
	payload = put_headers(qp, box, &p, &total);
	if (!payload)
		return PUT_FULL;
	if (len && mem_read(qp->cfg.mem, reply->pd, reply->rkey, reply->va, len,
			    IBV_ACCESS_REMOTE_READ, payload))
		return PUT_FAULT;
	memset(payload + len, 0, packet_pad(len));
	commit(qp, box, &p, total);
	reply->va += len;
	reply->left -= len;
	reply->packets++;
	return PUT_DONE;
}

static void memory_gone(struct qp *qp, const struct reply *reply)
{
	struct responder *r = &qp->resp;

	r->ack_due = true;
	r->syndrome = AETH_NAK | NAK_REMOTE_ACCESS;
	r->ack_psn = psn_add(reply->psn, reply->packets);
	qp->counters.naks_sent++;
	qp_fatal(qp, IBV_EVENT_QP_ACCESS_ERR);
}

/* False: stop (full, out of budget, or an error). */
static bool put_reply(struct qp *qp, struct outbox *box, struct reply *reply, uint32_t *budget)
{
	enum put put;

	do {
		if (*budget == 0)
			return false;
		put = reply->atomic ? put_atomic(qp, box, reply) : put_read(qp, box, reply);
		if (put == PUT_FAULT)
			memory_gone(qp, reply);
		if (put != PUT_DONE)
			return false;
		--*budget;
	} while (reply->left);
	return true;
}

static bool put_ack(struct qp *qp, struct outbox *box)
{
	struct responder *r = &qp->resp;
	struct packet p = response_header(qp, RC_ACKNOWLEDGE, r->ack_psn, r->syndrome, r->msn);

	if (put_bare(qp, box, &p) != PUT_DONE)
		return false;
	r->ack_due = false;
	return true;
}

bool responder_tx(struct qp *qp, struct outbox *box, uint32_t *budget)
{
	struct responder *r = &qp->resp;

	while (r->reply_head != r->reply_tail) {
		struct reply *reply = &r->replies[r->reply_head % r->reply_slots];

		if (!put_reply(qp, box, reply, budget))
			break;
		r->reply_head++;
	}
	return r->reply_head != r->reply_tail;
}

bool responder_tx_ack(struct qp *qp, struct outbox *box)
{
	const struct responder *r = &qp->resp;

	return r->ack_due && r->reply_head == r->reply_tail && !put_ack(qp, box);
}
