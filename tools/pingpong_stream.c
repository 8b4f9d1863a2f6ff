/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bandwidth: as many messages as the queues take, from the client to the server.
 *
 * A reliable service does this by itself. UC and UD lose what the receiver isn't ready for, so there
 * the server says now and then how many messages have come, in the immediate value of an empty
 * SEND, and the client has at most `depth` unaccounted. When nothing comes for a moment, those count
 * as lost and the client goes on: the stream never waits for a message that isn't there. Each of its
 * messages carries its number as an immediate value, since that is what makes a completion of a
 * WRITE at the receiver.
 */
#include <arpa/inet.h>
#include <string.h>

#include "base/units.h"
#include "tools/pingpong.h"
#include "tools/progress.h"

enum {
	LOSS_US = 50 * 1000, /* nothing came for so long: lost */
	LOOK_US = 5 * 1000,  /* how often the server looks whether the client has finished */
	LAST_WORDS = 3,	     /* the last count is said so often, since it may be lost too */
	LAST_LOOKS = 4,	     /* empty looks after which nothing is under way any more */
};

struct lossy {
	uint64_t total;
	uint64_t posted, completed; /* by the client */
	uint64_t arrived;	    /* as the server knows, or as the client was told */
	uint64_t lost;		    /* as far as the client can tell */
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

/* The client: one completion, or the loss of what is out. */
static int account(struct pp *pp, struct lossy *l)
{
	uint64_t out = l->posted - l->arrived - l->lost;
	bool sending = l->posted > l->completed;
	struct ibv_wc wc;
	int rc = pp_wait_for(pp, sending ? PP_STALL_US : LOSS_US, &wc);

	if (rc == ROCELINK_TIMEOUT && !sending) {
		l->lost += out;
		return ROCELINK_OK;
	}
	if (rc)
		return rc;
	if (!pp_wc_is_recv(&wc)) {
		l->completed++;
		return ROCELINK_OK;
	}
	/* An answer of the ping-pong may come as late as this; it has no immediate value. */
	if (wc.wc_flags & IBV_WC_WITH_IMM) {
		l->arrived = ntohl(wc.imm_data);
		if (l->arrived > l->posted)
			return pp_fail(&pp->err, ROCELINK_PROTOCOL,
				       "the server counts more messages than were sent");
		/* What counted as lost was only late. */
		if (l->lost > l->posted - l->arrived)
			l->lost = l->posted - l->arrived;
	}
	return pp_post_recv(pp, 0, 0);
}

static int lossy_client(struct pp *pp, uint64_t base, struct lossy *l)
{
	int rc = ROCELINK_OK;

	while (rc == ROCELINK_OK && (l->arrived + l->lost < l->total || l->completed < l->posted)) {
		while (rc == ROCELINK_OK && l->posted < l->total &&
		       l->posted - l->arrived - l->lost < pp->depth &&
		       l->posted - l->completed < pp->depth) {
			rc = pp_post_numbered(pp, base + l->posted, (uint32_t)l->posted);
			l->posted++;
		}
		if (rc == ROCELINK_OK)
			rc = account(pp, l);
		pp_progress(pp, "bandwidth", l->arrived);
	}
	return rc;
}

/* What the server says at the end counts; it may take a moment. */
static int last_words(struct pp *pp, struct lossy *l)
{
	int rc = ROCELINK_OK;

	l->lost = 0;
	while (rc == ROCELINK_OK && l->arrived + l->lost < l->total)
		rc = account(pp, l);
	return rc;
}

static int take_numbered(struct pp *pp, const struct ibv_wc *wc, uint64_t base, struct lossy *l,
			 uint64_t *received)
{
	uint32_t number = ntohl(wc->imm_data);
	const uint8_t *at = pp_recv_slot(pp, 0, pp->plan.op == PP_SEND ? *received : base + number);
	int rc = ROCELINK_OK;

	/* Without a number it is a late one of the ping-pong. */
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		l->last_ns = pp_now();
		if (!l->arrived++)
			l->first_ns = l->last_ns;
		if (pp->plan.type == PP_UD)
			at += PP_GRH;
		rc = pp_check_length(pp, wc, base + number);
		if (rc == ROCELINK_OK)
			rc = pp_check(pp, at, base + number, true);
	}
	if (rc)
		return rc;
	++*received;
	return pp_post_recv(pp, 0, *received - 1);
}

static int say_count(struct pp *pp, struct lossy *l)
{
	int rc = pp_post_count(pp, (uint32_t)l->arrived);

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

/* Until the client has come to the barrier and nothing is under way any more. */
static int lossy_server(struct pp *pp, uint64_t base, struct lossy *l, uint64_t *received)
{
	unsigned step = pp->depth / 2, empty = 0;
	bool over = false;
	int rc = rocelink_conn_sync_say(pp->conn, "streamed", NULL, &pp->err);

	while (rc == ROCELINK_OK && empty < LAST_LOOKS) {
		struct ibv_wc wc;

		rc = pp_wait_for(pp, LOOK_US, &wc);
		if (rc == ROCELINK_OK && pp_wc_is_recv(&wc)) {
			empty = 0;
			rc = take_numbered(pp, &wc, base, l, received);
			if (rc == ROCELINK_OK && l->arrived && l->arrived % step == 0 &&
			    l->posted - l->completed < pp->depth)
				rc = say_count(pp, l);
		} else if (rc == ROCELINK_OK) {
			l->completed++;
		} else if (rc == ROCELINK_TIMEOUT) {
			rc = rocelink_conn_drive(pp->conn, &pp->err);
			if (rc == ROCELINK_OK && !over) {
				rc = rocelink_conn_sync_test(pp->conn, "streamed", &pp->err);
				over = rc == ROCELINK_OK;
				rc = rc == ROCELINK_AGAIN ? ROCELINK_OK : rc;
			}
			empty += over;
		}
	}
	if (rc == ROCELINK_OK)
		rc = reap_counts(pp, l);
	for (unsigned i = 0; rc == ROCELINK_OK && i < LAST_WORDS; i++)
		rc = say_count(pp, l);
	return rc ? rc : reap_counts(pp, l);
}

static int lossy(struct pp *pp, uint64_t base, uint64_t received)
{
	struct lossy l = { .total = pp->plan.iters };
	uint64_t started = pp_now();
	int rc;

	if (!pp->client) {
		rc = lossy_server(pp, base, &l, &received);
		pp->arrived = l.arrived;
		pp->stream_ns = l.last_ns - l.first_ns;
		return rc;
	}
	rc = lossy_client(pp, base, &l);
	pp->stream_ns = pp_now() - started;
	rc = pp_agree(pp, "streamed", rc);
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
