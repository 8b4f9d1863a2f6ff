/* SPDX-License-Identifier: BSD-2-Clause */
/* Acknowledgements, NAKs, READ responses and results of atomics: which requests they answer. */
#include <inttypes.h>
#include <string.h>

#include "tools/decode_flow.h"

enum { PAIRING_SEARCH_MAX = 512 };

/* Without an exchange: the youngest unpaired flow in the other direction with such a PSN. */
static struct flow *guess_reverse(struct flows *fl, struct flow *flow, struct psn psn)
{
	struct flow *other = fl->newest;

	for (int i = 0; other && i < PAIRING_SEARCH_MAX; i++, other = other->next_older) {
		if (other->reverse || !other->started || other == flow ||
		    !gid_eq(&other->src, &flow->dst) || !gid_eq(&other->dst, &flow->src))
			continue;
		if (psn_diff(psn, other->first) >= 0 &&
		    psn_diff(psn, other->next) <= (int32_t)other->slack)
			return other;
	}
	return NULL;
}

static struct flow *find_reverse(struct flows *fl, struct flow *flow, struct psn psn)
{
	const struct told_qp *peer = flow->dest ? told_peer(flow->dest) : NULL;

	if (flow->reverse)
		return flow->reverse;
	if (peer)
		flow->reverse = flow_get(fl, &flow->dst, &flow->src, peer->v.qpn, 0);
	else
		flow->reverse = guess_reverse(fl, flow, psn);
	if (flow->reverse)
		flow->reverse->reverse = flow;
	return flow->reverse;
}

static uint64_t request_number(struct flows *fl, const struct flow *requests, struct psn psn)
{
	const struct seen *s = seen_find(fl, requests, SEEN_REQUEST, psn);
	const struct flow_read *read;

	if (s)
		return s->number;
	read = flow_find_read(requests, psn);
	return read ? read->number : 0;
}

/* Everything up to and including last is answered now. */
static void acknowledge(struct flows *fl, struct flow *requests, struct psn last, struct roce *r)
{
	struct psn first = requests->acked_valid ? psn_add(requests->acked, 1) : requests->first;

	if (psn_diff(last, first) < 0)
		return;
	r->answers_first = request_number(fl, requests, first);
	r->answers_last = request_number(fl, requests, last);
	requests->acked = last;
	requests->acked_valid = true;
}

static void note_answers(struct roce *r, const char *verb)
{
	if (!r->answers_last)
		return;
	if (r->answers_first && r->answers_first != r->answers_last)
		note_add(r, "%s #%" PRIu64 " to #%" PRIu64, verb, r->answers_first,
			 r->answers_last);
	else
		note_add(r, "%s #%" PRIu64, verb, r->answers_last);
}

static void track_ack(struct flows *fl, struct flow *requests, struct roce *r)
{
	bool news = !requests->acked_valid || psn_diff(r->p.psn, requests->acked) > 0;

	if (!requests->started ||
	    psn_diff(r->p.psn, requests->next) >= (int32_t)requests->slack + 1) {
		note_add(r, "answers a packet that isn't in the capture");
		return;
	}
	if (!news) {
		note_add(r, "says nothing new: the answer to a repeated request");
		r->answers_last = request_number(fl, requests, r->p.psn);
		return;
	}
	acknowledge(fl, requests, r->p.psn, r);
	note_answers(r, "acknowledges");
}

static void track_rnr_nak(struct flows *fl, struct flow *requests, struct roce *r)
{
	unsigned code = r->p.syndrome & AETH_VALUE_MASK;
	char wait[32];

	duration_format(rnr_timer_ns(code), wait);
	fl->rnr_naks++;
	if (requests)
		r->answers_last = request_number(fl, requests, r->p.psn);
	note_answers(r, "refuses");
	note_add(r,
		 "receiver not ready: no receive is posted for this request; the requester repeats "
		 "it after at least %s (timer code %u)",
		 wait, code);
}

static void track_nak(struct flows *fl, struct flow *requests, struct roce *r)
{
	unsigned code = r->p.syndrome & AETH_VALUE_MASK;

	fl->naks++;
	if (requests)
		r->answers_last = request_number(fl, requests, r->p.psn);
	if (code == NAK_PSN_SEQUENCE)
		note_add(r, "expects PSN 0x%06x", r->p.psn.v);
	else
		note_answers(r, "refuses");
	note_add(r, "%s", nak_explanation(code));
}

static void track_acknowledge(struct flows *fl, struct flow *requests, const struct frame *f,
			      struct roce *r)
{
	switch (r->p.syndrome & AETH_KIND_MASK) {
	case AETH_ACK:
		if (requests)
			track_ack(fl, requests, r);
		return;
	case AETH_RNR_NAK:
		track_rnr_nak(fl, requests, r);
		break;
	case AETH_NAK:
		track_nak(fl, requests, r);
		break;
	default:
		note_add(r, "reserved AETH syndrome");
		return;
	}
	if (requests)
		requests->nak = (struct flow_nak){ r->p.syndrome, r->p.psn, f->number };
}

/* READ responses and results of atomics carry data: a repeated one is told. */
static void track_data(struct flows *fl, struct flow *flow, struct flow *requests,
		       const struct frame *f, struct roce *r)
{
	const struct seen *before = seen_find(fl, flow, SEEN_RESPONSE, r->p.psn);
	const struct flow_read *read;

	if (r->p.op->position == POS_FIRST || r->p.op->position == POS_MIDDLE)
		flow_learn_mtu(requests, r->p.payload_len);
	read = r->p.op->kind == OP_READ_RESPONSE ? flow_find_read(requests, r->p.psn) : NULL;
	if (read) {
		r->answers_first = r->answers_last = read->number;
		note_add(r, "part %d of %u of the READ in #%" PRIu64,
			 psn_diff(r->p.psn, read->psn) + 1, read->span ? read->span : 1,
			 read->number);
	} else {
		r->answers_first = r->answers_last = request_number(fl, requests, r->p.psn);
		note_answers(r, "result of");
	}
	if (before) {
		r->retransmission = true;
		r->original = before->number;
		fl->retransmissions++;
		note_add(r, "repeats #%" PRIu64, r->original);
	}
	seen_enter(fl, flow, SEEN_RESPONSE, r->p.psn, f);
	if (!requests->acked_valid || psn_diff(r->p.psn, requests->acked) > 0) {
		requests->acked = r->p.psn;
		requests->acked_valid = true;
	}
}

void flow_track_response(struct flows *fl, struct flow *flow, const struct frame *f, struct roce *r)
{
	struct flow *requests = find_reverse(fl, flow, r->p.psn);

	if (r->p.op->kind == OP_ACKNOWLEDGE)
		track_acknowledge(fl, requests, f, r);
	else if (requests)
		track_data(fl, flow, requests, f, r);
}
