/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Retry: the only place that arms timers. Others call hooks named after what happened.
 *
 * - ACK timeout: local ACK timeout code t is 4.096 us * 2^t, 0 never (IBA C9-141). Each expiry uses up
 *   one of retry_cnt; the peer gets (retry_cnt + 1) timeouts. Runs while something is unacknowledged.
 * - RNR wait: after an RNR NAK nothing is sent for the time it names; the ACK timer rests meanwhile.
 * - Probe: long before the ACK timeout (67 ms by default) a lost tail is found by sending the last
 *   request again: the peer either acknowledges it all or says what it misses. Costs no retry.
 */
#ifndef ROCELINK_TRANSPORT_RETRY_H
#define ROCELINK_TRANSPORT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/psn.h"

struct qp;

struct retry {
	uint64_t timeout_ns;   /* 0: never */
	uint64_t deadline_ns;  /* ACK timer; TIME_NEVER: not running */
	uint64_t rnr_until_ns; /* TIME_NEVER: no RNR wait */
	uint64_t probe_ns;     /* TIME_NEVER: not running */
	uint64_t probe_interval_ns;
	struct psn nak_psn;	  /* gone back to for a sequence NAK ... */
	uint64_t nak_until_ns;	  /* ... and until then others for it say nothing new */
	uint64_t srtt_ns;	  /* smoothed round trip; 0: no sample yet */
	uint64_t rtt_min_ns;	  /* shortest round trip; TIME_NEVER: no sample yet */
	uint64_t rtt_guess_ns;	  /* while there is none */
	uint64_t sample_start_ns; /* when sample_psn was sent; 0: no sample runs */
	struct psn sample_psn;
	struct psn sample_una; /* what was acknowledged then */
	uint8_t retry_cnt, retries_left;
	uint8_t rnr_retry, rnr_left;
};

void retry_init(struct retry *r);
/* Attributes of modify; code: 0 ... 31. */
void retry_set_timeout(struct retry *r, unsigned code);
void retry_set_counts(struct retry *r, unsigned retry_cnt, unsigned rnr_retry);

/* Hooks. */
void retry_sent(struct qp *qp, struct psn psn, bool fresh, uint64_t now_ns);
void retry_progress(struct qp *qp, uint64_t now_ns); /* una moved forward */
void retry_rnr_nak(struct qp *qp, unsigned timer_code, uint64_t now_ns);
void retry_sequence_nak(struct qp *qp, uint64_t now_ns); /* may use up the last retry */
void retry_stop(struct qp *qp);

void retry_tick(struct qp *qp, uint64_t now_ns);
uint64_t retry_next_deadline(const struct retry *r);
/* Requests must wait now. */
bool retry_blocked(const struct retry *r);

#endif
