/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/retry.h"

#include "base/units.h"
#include "transport/qp.h"

#define PROBE_MIN_NS	 (2 * NS_PER_MS)
#define PROBE_INITIAL_NS (10 * NS_PER_MS)
#define PROBE_MAX_NS	 (500 * NS_PER_MS)
#define RETRY_FOR_EVER	 7
#define RTT_GUESS_NS	 NS_PER_MS

void retry_init(struct retry *r)
{
	*r = (struct retry){
		.deadline_ns = TIME_NEVER,
		.rnr_until_ns = TIME_NEVER,
		.probe_ns = TIME_NEVER,
		.probe_interval_ns = PROBE_INITIAL_NS,
		.rtt_min_ns = TIME_NEVER,
		.rtt_guess_ns = RTT_GUESS_NS,
	};
}

void retry_set_timeout(struct retry *r, unsigned code)
{
	uint64_t t = UINT64_C(4096) << code;

	/*
	 * C9-141 allows 1 to 4 times the nominal value. A peer in software may not be running for a
	 * while, so short ones get the 4, up to a second; probes find losses long before.
	 */
	if (t < NS_PER_SEC)
		t = t * 4 < NS_PER_SEC ? t * 4 : NS_PER_SEC;
	r->timeout_ns = code ? t : 0;
}

void retry_set_counts(struct retry *r, unsigned retry_cnt, unsigned rnr_retry)
{
	r->retry_cnt = r->retries_left = (uint8_t)retry_cnt;
	r->rnr_retry = r->rnr_left = (uint8_t)rnr_retry;
}

static bool outstanding(const struct qp *qp)
{
	return psn_diff(qp->req.max, qp->comp.una) > 0;
}

static void arm(struct retry *r, uint64_t now_ns)
{
	r->deadline_ns = r->timeout_ns ? now_ns + r->timeout_ns : TIME_NEVER;
	r->probe_ns = now_ns + r->probe_interval_ns;
}

void retry_sent(struct qp *qp, struct psn psn, bool fresh, uint64_t now_ns)
{
	struct retry *r = &qp->retry;

	if (r->probe_ns == TIME_NEVER)
		arm(r, now_ns);
	/* Only packets sent once tell the round trip time (Karn). */
	if (fresh && r->sample_start_ns == 0) {
		r->sample_start_ns = now_ns;
		r->sample_psn = psn;
		r->sample_una = qp->comp.una;
	}
}

static void take_sample(struct qp *qp, uint64_t rtt_ns)
{
	struct retry *r = &qp->retry;

	if (rtt_ns < r->rtt_min_ns)
		r->rtt_min_ns = rtt_ns ? rtt_ns : 1;
	requester_measured(qp, (uint32_t)psn_diff(qp->comp.una, r->sample_una), rtt_ns ? rtt_ns : 1,
			   r->rtt_min_ns);
	r->srtt_ns = r->srtt_ns ? r->srtt_ns - r->srtt_ns / 8 + rtt_ns / 8 : rtt_ns;
}

/* Each probe doubled it. The peer that acknowledges something is there: back to what the round trip
 * time asks for. */
static void reset_probe_interval(struct retry *r)
{
	if (r->srtt_ns == 0) {
		r->probe_interval_ns = PROBE_INITIAL_NS;
		return;
	}
	r->probe_interval_ns = 4 * r->srtt_ns;
	if (r->probe_interval_ns < PROBE_MIN_NS)
		r->probe_interval_ns = PROBE_MIN_NS;
	if (r->probe_interval_ns > PROBE_MAX_NS)
		r->probe_interval_ns = PROBE_MAX_NS;
}

void retry_progress(struct qp *qp, uint64_t now_ns)
{
	struct retry *r = &qp->retry;

	r->retries_left = r->retry_cnt;
	r->rnr_left = r->rnr_retry;
	r->rnr_until_ns = TIME_NEVER;
	if (r->sample_start_ns && psn_diff(qp->comp.una, r->sample_psn) > 0) {
		take_sample(qp, now_ns - r->sample_start_ns);
		r->sample_start_ns = 0;
	}
	reset_probe_interval(r);
	if (outstanding(qp))
		arm(r, now_ns);
	else
		r->deadline_ns = r->probe_ns = TIME_NEVER;
}

void retry_rnr_nak(struct qp *qp, unsigned timer_code, uint64_t now_ns)
{
	struct retry *r = &qp->retry;

	if (r->rnr_retry != RETRY_FOR_EVER) {
		if (r->rnr_left == 0) {
			completer_finish(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		r->rnr_left--;
	}
	/* The packet arrived: the ACK timer rests, and starts anew when packets are sent again. */
	r->retries_left = r->retry_cnt;
	r->deadline_ns = r->probe_ns = TIME_NEVER;
	r->sample_start_ns = 0;
	r->rnr_until_ns = now_ns + rnr_timer_ns(timer_code);
}

/* Going back once halves the window: loss here is nearly always an overflowing receive buffer. */
static void go_back(struct qp *qp)
{
	qp->counters.retransmitted += (uint64_t)(psn_diff(qp->req.psn, qp->comp.una) > 0
							 ? psn_diff(qp->req.psn, qp->comp.una)
							 : 0);
	qp->retry.sample_start_ns = 0;
	requester_seek(qp, qp->comp.una);
}

static void shrink_window(struct requester *req)
{
	req->window /= 2;
	if (req->window < 4)
		req->window = 4;
}

/* Costs one retry, or the work request when none is left. */
static void try_again(struct qp *qp, uint64_t now_ns)
{
	struct retry *r = &qp->retry;

	if (r->retries_left == 0) {
		completer_finish(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	r->retries_left--;
	shrink_window(&qp->req);
	go_back(qp);
	arm(r, now_ns);
}

/*
 * Packets that overtake each other bring several NAKs for one gap, and going back for each of them
 * multiplies the packets, and with them the NAKs, until no retry is left. One that comes within half
 * a round trip of the last going back to the same packet can't tell of that one's fate. (Half: with
 * queues the measured one is longer than the shortest.)
 */
static bool answered_already(const struct qp *qp, uint64_t now_ns)
{
	const struct retry *r = &qp->retry;

	return now_ns < r->nak_until_ns && psn_eq(r->nak_psn, qp->comp.una);
}

void retry_sequence_nak(struct qp *qp, uint64_t now_ns)
{
	struct retry *r = &qp->retry;

	if (answered_already(qp, now_ns))
		return;
	/*
	 * Going back ends a sample: what was learnt from the first NAK holds for those to come. (Of an
	 * earlier gap than the packet sampled, it may have been on its way before that was sent.)
	 */
	if (r->sample_start_ns && psn_diff(qp->comp.una, r->sample_psn) >= 0 &&
	    now_ns - r->sample_start_ns < r->rtt_guess_ns)
		r->rtt_guess_ns = now_ns - r->sample_start_ns;
	r->nak_psn = qp->comp.una;
	r->nak_until_ns = now_ns + (r->srtt_ns ? r->srtt_ns : r->rtt_guess_ns) / 2;
	try_again(qp, now_ns);
}

static void timeout(struct qp *qp, uint64_t now_ns)
{
	qp->counters.timeouts++;
	try_again(qp, now_ns);
}

static void probe(struct qp *qp, uint64_t now_ns)
{
	const struct requester *req = &qp->req;
	struct retry *r = &qp->retry;

	r->probe_interval_ns *= 2;
	if (r->probe_interval_ns > PROBE_MAX_NS)
		r->probe_interval_ns = PROBE_MAX_NS;
	r->probe_ns = now_ns + r->probe_interval_ns;
	r->sample_start_ns = 0;
	/* A response that was asked for again may be lost again: what this one brings tells so anew. */
	qp->comp.went_back = false;
	/* Also amid a retransmission that the window has stopped: its NAK may be what was lost. */
	if (psn_diff(req->last, qp->comp.una) >= 0 && psn_diff(req->psn, req->last) > 0) {
		qp->counters.retransmitted++;
		requester_seek(qp, req->last);
	} else if (psn_eq(req->psn, req->max)) {
		qp->counters.retransmitted++;
		requester_seek(qp, qp->comp.una);
	}
}

void retry_tick(struct qp *qp, uint64_t now_ns)
{
	struct retry *r = &qp->retry;

	if (r->rnr_until_ns <= now_ns)
		r->rnr_until_ns = TIME_NEVER;
	if (r->deadline_ns <= now_ns)
		timeout(qp, now_ns);
	else if (r->probe_ns <= now_ns)
		probe(qp, now_ns);
}

void retry_stop(struct qp *qp)
{
	struct retry *r = &qp->retry;

	r->deadline_ns = r->probe_ns = r->rnr_until_ns = TIME_NEVER;
	r->sample_start_ns = 0;
}

uint64_t retry_next_deadline(const struct retry *r)
{
	uint64_t next = r->deadline_ns;

	if (r->probe_ns < next)
		next = r->probe_ns;
	if (r->rnr_until_ns < next)
		next = r->rnr_until_ns;
	return next;
}

bool retry_blocked(const struct retry *r)
{
	return r->rnr_until_ns != TIME_NEVER;
}
