/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The latency on UC and UD: the server answers each message with one of the same number. A message
 * or answer that is lost is counted, and the client goes on with the next number.
 *
 * Numbers are in the immediate values, but for a WRITE that is polled for: there each side watches
 * the last bytes of its slots, the server those of as many numbers as there are slots.
 */
#include "base/units.h"
#include "tools/pingpong.h"

static const char phase[] = "latency measured";

struct echo {
	bool flags; /* polled WRITE */
	uint64_t sent, completed, received;
};

static int post(struct pp *pp, struct echo *e, uint64_t seq)
{
	e->sent++;
	return e->flags ? pp_post_send(pp, 0, seq) : pp_post_numbered(pp, seq, (uint32_t)seq);
}

/* The next message, at least number `from`: ROCELINK_TIMEOUT if there is none for so long. */
static int arrival(struct pp *pp, struct echo *e, uint64_t from, uint64_t timeout_us, uint64_t *seq)
{
	struct ibv_wc wc;
	int rc;

	if (e->flags) {
		uint64_t window = pp->client ? 1 : pp->depth;

		rc = pp_watch_flags(pp, from, window, timeout_us, &e->completed, seq);
		return rc ? rc : pp_check(pp, pp_recv_slot(pp, 0, *seq), *seq, !pp->client);
	}
	do {
		rc = pp_wait_for(pp, timeout_us, &wc);
		if (rc == ROCELINK_OK && pp_wc_is_recv(&wc))
			return pp_take_numbered(pp, &wc, &e->received, seq);
		e->completed += rc == ROCELINK_OK;
	} while (rc == ROCELINK_OK);
	return rc;
}

static int reap(struct pp *pp, struct echo *e, uint64_t at_most)
{
	int rc = ROCELINK_OK;

	while (rc == ROCELINK_OK && e->sent - e->completed > at_most) {
		struct ibv_wc wc;
		uint64_t seq;

		rc = pp_wait(pp, &wc);
		if (rc == ROCELINK_OK && pp_wc_is_recv(&wc))
			rc = pp_take_numbered(pp, &wc, &e->received, &seq); /* one that was late */
		else
			e->completed += rc == ROCELINK_OK;
	}
	return rc;
}

/* Until number seq is answered, or is known to be lost: then *answered stays as it is. */
static int await(struct pp *pp, struct echo *e, uint64_t seq, bool *answered)
{
	uint64_t patience = PP_LOSS_US, came;
	int rc;

	for (;;) {
		rc = arrival(pp, e, seq, patience, &came);
		if (rc == ROCELINK_OK && came == seq) {
			*answered = true;
			return ROCELINK_OK;
		}
		if (rc == ROCELINK_TIMEOUT && patience == PP_LOOK_US)
			return ROCELINK_OK;
		if (rc == ROCELINK_TIMEOUT) {
			patience = PP_LOOK_US;
			rc = pp_lossy_ask(pp);
		}
		if (rc)
			return rc;
	}
}

static int call(struct pp *pp, struct echo *e)
{
	unsigned in_a_row = 0;
	int rc = ROCELINK_OK;

	for (uint64_t seq = 0; seq < pp->plan.iters && rc == ROCELINK_OK; seq++) {
		uint64_t started = pp_now();
		bool answered = false;

		rc = post(pp, e, seq);
		if (rc == ROCELINK_OK)
			rc = await(pp, e, seq, &answered);
		if (answered) {
			in_a_row = 0;
			pp_sample(pp, (pp_now() - started) / 2);
		} else if (rc == ROCELINK_OK) {
			pp->unanswered++;
			rc = pp_lossy_count(pp, &in_a_row);
		}
		if (rc == ROCELINK_OK)
			rc = reap(pp, e, 0);
	}
	return rc;
}

static int answer(struct pp *pp, struct echo *e)
{
	struct pp_watch w;
	uint64_t next = 0, seq;
	int rc = pp_lossy_begin(pp, phase, &w);

	while (rc == ROCELINK_OK && !w.over) {
		rc = arrival(pp, e, next, PP_LOOK_US, &seq);
		if (rc == ROCELINK_OK) {
			w.quiet_us = 0;
			next = seq + 1;
			rc = reap(pp, e, pp->depth - 1);
			if (rc == ROCELINK_OK)
				rc = post(pp, e, seq);
		} else if (rc == ROCELINK_TIMEOUT) {
			rc = pp_lossy_look(pp, &w);
			if (rc == ROCELINK_OK && w.asked)
				rc = pp_lossy_answer(pp, &w);
		}
	}
	return rc ? rc : reap(pp, e, 0);
}

int pp_echo(struct pp *pp, uint64_t *received)
{
	struct echo e = { .flags = pp->plan.op == PP_WRITE && !pp->plan.immediate };
	int rc = pp->client ? call(pp, &e) : answer(pp, &e);

	*received = e.received;
	return pp_lossy_end(pp, phase, rc);
}
