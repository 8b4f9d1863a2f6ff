/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bandwidth: as many messages as the queues take, from the client to the server.
 *
 * A reliable service does this by itself. UC and UD lose what the receiver isn't ready for, so there
 * the server says now and then how many messages have come, in the immediate value of an empty
 * SEND, and the client has at most `depth` unaccounted. When nothing comes for a moment, it asks
 * (pingpong_lossy.c); then those count as lost and the client goes on: the stream never waits for a
 * message that isn't there. Each of its messages carries its number as an immediate value, since
 * that is what makes a completion of a WRITE at the receiver.
 */
#include <arpa/inet.h>
#include <string.h>

#include "base/units.h"
#include "tools/pingpong.h"
#include "tools/progress.h"

enum { LAST_WORDS = 3 }; /* the last count is said so often, since it may be lost too */

static const char phase[] = "streamed";

struct lossy {
	uint64_t total;
	uint64_t posted, completed; /* by the client */
	uint64_t arrived;	    /* as the server knows, or as the client was told */
	uint64_t lost;		    /* as far as the client can tell */
	unsigned in_a_row;
	uint64_t first_ns, last_ns; /* arrivals at the server */
};

bool pp_reliable(const struct pp *pp)
{
	return pp->plan.type == PP_RC || pp->plan.type == PP_XRC;
}

void pp_progress(const struct pp *pp, const char *what, uint64_t done)
{
	if (!pp->o->explain)
		progress_show(what, done, pp->plan.iters);
}

static bool one_sided(const struct pp *pp)
{
	return pp->plan.op >= PP_READ;
}

static int stream_client(struct pp *pp, uint64_t base)
{
	uint64_t posted = 0, done = 0;
	int rc = ROCELINK_OK;

	while (rc == ROCELINK_OK && done < pp->plan.iters) {
		struct ibv_wc wc;

		for (; rc == ROCELINK_OK && posted < pp->plan.iters && posted - done < pp->depth;
		     posted++)
			rc = one_sided(pp) ? pp_post_read(pp, base + posted)
					   : pp_post_send(pp, 0, base + posted);
		if (rc == ROCELINK_OK)
			rc = pp_wait(pp, &wc);
		if (rc == ROCELINK_OK && one_sided(pp))
			rc = pp_check_answer(pp, base + done);
		done++;
		pp_progress(pp, "bandwidth", done);
	}
	return rc;
}

static int stream_server(struct pp *pp, uint64_t *received)
{
	int rc = ROCELINK_OK;

	for (unsigned i = 0; i < pp->plan.iters && rc == ROCELINK_OK; i++) {
		struct ibv_wc wc;

		rc = pp_wait(pp, &wc);
		if (rc == ROCELINK_OK && pp_wc_is_recv(&wc))
			rc = pp_take_received(pp, &wc, received);
		pp_progress(pp, "bandwidth", i);
	}
	return rc;
}

/* An answer of the ping-pong may come as late as this; it is not empty. */
static bool is_count(const struct pp *pp, const struct ibv_wc *wc)
{
	return wc->wc_flags & IBV_WC_WITH_IMM &&
	       wc->byte_len == (pp->plan.type == PP_UD ? PP_GRH : 0);
}

/* Only an exact count tells what is lost. Before it all that isn't counted may still come, and what
 * a WRITE has brought still be looked at. */
static void take_count(struct lossy *l, uint32_t count)
{
	l->arrived = count & ~PP_COUNT_EXACT;
	if (count & PP_COUNT_EXACT || l->lost > l->posted - l->arrived)
		l->lost = l->posted - l->arrived;
	l->in_a_row = 0;
}

/* The client: one completion; or nothing came, and the server is asked. */
static int account(struct pp *pp, struct lossy *l)
{
	bool sending = l->posted > l->completed;
	struct ibv_wc wc;
	int rc = pp_wait_for(pp, sending ? PP_STALL_US : PP_LOSS_US, &wc);

	if (rc == ROCELINK_TIMEOUT && !sending) {
		rc = pp_lossy_ask(pp);
		return rc ? rc : pp_lossy_count(pp, &l->in_a_row);
	}
	if (rc)
		return rc;
	if (!pp_wc_is_recv(&wc)) {
		l->completed++;
		return ROCELINK_OK;
	}
	if (is_count(pp, &wc))
		take_count(l, ntohl(wc.imm_data));
	if (l->arrived > l->posted)
		return pp_fail(&pp->err, ROCELINK_PROTOCOL,
			       "the server counts more messages than were sent");
	return pp_post_recv(pp, 0, 0);
}

static int lossy_client(struct pp *pp, uint64_t base, struct lossy *l)
{
	int rc = ROCELINK_OK;

	while (rc == ROCELINK_OK && (l->arrived + l->lost < l->total || l->completed < l->posted)) {
		while (rc == ROCELINK_OK && l->posted < l->total &&
		       l->posted - l->arrived - l->lost < pp->depth &&
		       l->posted - l->completed < pp->depth) {
			rc = pp_post_numbered(pp, base + l->posted, (uint32_t)(base + l->posted));
			l->posted++;
		}
		if (rc == ROCELINK_OK)
			rc = account(pp, l);
		pp_progress(pp, "bandwidth", l->arrived);
	}
	return rc;
}

/* What the server says at the end counts, if it gets through. */
static int last_words(struct pp *pp, struct lossy *l)
{
	struct ibv_wc wc;
	int rc;

	while ((rc = pp_wait_for(pp, PP_LOSS_US, &wc)) == ROCELINK_OK) {
		if (pp_wc_is_recv(&wc) && is_count(pp, &wc)) {
			take_count(l, ntohl(wc.imm_data));
			break;
		}
	}
	return rc == ROCELINK_TIMEOUT ? ROCELINK_OK : rc;
}

static int say_count(struct pp *pp, struct lossy *l, uint32_t exact)
{
	int rc = pp_post_count(pp, (uint32_t)l->arrived | exact);

	l->posted += rc == ROCELINK_OK;
	return rc;
}

static int reap_counts(struct pp *pp, struct lossy *l)
{
	int rc = ROCELINK_OK;

	while (rc == ROCELINK_OK && l->completed < l->posted) {
		struct ibv_wc wc;

		rc = pp_wait(pp, &wc);
		l->completed += rc == ROCELINK_OK && !pp_wc_is_recv(&wc);
	}
	return rc;
}

static int take(struct pp *pp, const struct ibv_wc *wc, uint64_t base, struct lossy *l,
		uint64_t *received)
{
	uint64_t seq;
	int rc = pp_take_numbered(pp, wc, received, &seq);

	/* Or a late one of the ping-pong. */
	if (rc || seq < base)
		return rc;
	l->last_ns = pp_now();
	if (!l->arrived++)
		l->first_ns = l->last_ns;
	if (l->arrived % (pp->depth / 2) || l->posted - l->completed >= pp->depth)
		return ROCELINK_OK;
	return say_count(pp, l, 0);
}

/* Until the client has come to the barrier; each look is one when nothing is under way any more. */
static int lossy_server(struct pp *pp, uint64_t base, struct lossy *l, uint64_t *received)
{
	struct pp_watch w;
	int rc = pp_lossy_begin(pp, phase, &w);

	while (rc == ROCELINK_OK && !w.over) {
		struct ibv_wc wc;

		rc = pp_wait_for(pp, PP_LOOK_US, &wc);
		if (rc == ROCELINK_OK && pp_wc_is_recv(&wc)) {
			w.quiet_us = 0;
			rc = take(pp, &wc, base, l, received);
		} else if (rc == ROCELINK_OK) {
			l->completed++;
		} else if (rc == ROCELINK_TIMEOUT) {
			rc = pp_lossy_look(pp, &w);
			if (rc == ROCELINK_OK && w.asked)
				rc = reap_counts(pp, l);
			if (rc == ROCELINK_OK && w.asked)
				rc = say_count(pp, l, PP_COUNT_EXACT);
			if (rc == ROCELINK_OK && w.asked)
				rc = pp_lossy_answer(pp, &w);
		}
	}
	if (rc == ROCELINK_OK)
		rc = reap_counts(pp, l);
	for (unsigned i = 0; rc == ROCELINK_OK && i < LAST_WORDS; i++)
		rc = say_count(pp, l, PP_COUNT_EXACT);
	return rc ? rc : reap_counts(pp, l);
}

static int lossy(struct pp *pp, uint64_t base, uint64_t received)
{
	struct lossy l = { .total = pp->plan.iters };
	uint64_t started = pp_now();
	int rc;

	if (!pp->client) {
		rc = pp_lossy_end(pp, phase, lossy_server(pp, base, &l, &received));
		pp->arrived = l.arrived;
		pp->stream_ns = l.last_ns - l.first_ns;
		return rc;
	}
	rc = lossy_client(pp, base, &l);
	pp->stream_ns = pp_now() - started;
	rc = pp_lossy_end(pp, phase, rc);
	if (rc == ROCELINK_OK)
		rc = last_words(pp, &l);
	pp->arrived = l.arrived;
	return rc;
}

int pp_stream(struct pp *pp, uint64_t base, uint64_t received)
{
	bool counts = pp->plan.op == PP_SEND || pp->plan.immediate;
	uint64_t started = pp_now();
	int rc = ROCELINK_OK;

	if (!pp_reliable(pp))
		return lossy(pp, base, received);
	pp->arrived = pp->plan.iters;
	if (pp->client)
		rc = stream_client(pp, base);
	else if (counts)
		rc = stream_server(pp, &received);
	/* A server that only looks on has measured nothing. */
	if (pp->client || counts)
		pp->stream_ns = pp_now() - started;
	return rc;
}
