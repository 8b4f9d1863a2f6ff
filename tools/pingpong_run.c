/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The measurement. First one message at a time, for the latency:
 *
 *   SEND, WRITE with immediate   each side answers the other's message (as ibv_*_pingpong do)
 *   WRITE                        the same, the receiver watching the last byte in its memory
 *   READ, atomics                the client alone; the server's program does nothing
 *
 * (on UC and UD, between two of us, with numbers, since some may be lost: pingpong_echo.c),
 * then, between two of us, as many as the queue takes, for the bandwidth (pingpong_stream.c).
 */
#include <stdlib.h>
#include <string.h>

#include "tools/pingpong.h"
#include "tools/progress.h"

enum { HALF_SENT = 1, HALF_RECEIVED = 2 };

struct side {
	unsigned pending; /* of the present exchange */
	uint64_t sent, received;
	uint64_t started_ns;
};

static bool one_sided(const struct pp *pp)
{
	return pp->plan.op >= PP_READ;
}

static bool polled_write(const struct pp *pp)
{
	return pp->plan.op == PP_WRITE && !pp->plan.immediate;
}

void pp_sample(struct pp *pp, uint64_t ns)
{
	if (pp->n_samples < pp->plan.iters)
		pp->samples[pp->n_samples++] = ns;
	pp_progress(pp, "latency", pp->n_samples);
}

static int begin(struct pp *pp, unsigned qp, struct side *s)
{
	s->pending = HALF_SENT | HALF_RECEIVED;
	s->started_ns = pp_now();
	return pp_post_send(pp, qp, s->sent++);
}

/* The rule of the stock programs: the next is sent when the last is gone and its answer is here. */
static int two_sided(struct pp *pp, struct side *sides)
{
	uint64_t total = pp->plan.iters, sent = 0, received = 0; /* of all queue pairs together */
	int rc = ROCELINK_OK;

	for (unsigned i = 0; i < pp->qps && rc == ROCELINK_OK; i++) {
		sides[i].pending = HALF_RECEIVED;
		if (pp->client)
			rc = begin(pp, i, &sides[i]);
	}
	while (rc == ROCELINK_OK && (sent < total || received < total)) {
		struct ibv_wc wc;
		struct side *s;

		rc = pp_wait(pp, &wc);
		if (rc)
			break;
		s = &sides[pp_wc_qp(&wc)];
		if (pp_wc_is_recv(&wc)) {
			if (pp->client)
				pp_sample(pp, (pp_now() - s->started_ns) / 2);
			rc = pp_take_received(pp, &wc, &s->received);
			s->pending &= ~(unsigned)HALF_RECEIVED;
			received++;
		} else {
			s->pending &= ~(unsigned)HALF_SENT;
			sent++;
		}
		/* What was begun counts too: the server's last answer has no exchange after it. */
		if (rc == ROCELINK_OK && !s->pending && sent < total && s->sent < total)
			rc = begin(pp, pp_wc_qp(&wc), s);
	}
	return rc;
}

static int reap(struct pp *pp, uint64_t sent, uint64_t *completed, unsigned at_most)
{
	struct ibv_wc wc;

	while (sent - *completed > at_most) {
		int rc = pp_wait(pp, &wc);

		if (rc)
			return rc;
		++*completed;
	}
	return ROCELINK_OK;
}

static int await_flag(struct pp *pp, uint64_t seq, uint64_t *completed)
{
	int rc = pp_watch_flags(pp, seq, 1, PP_STALL_US, completed, &seq);

	return rc ? rc : pp_check(pp, pp_recv_slot(pp, 0, seq), seq, !pp->client);
}

static int write_polled(struct pp *pp)
{
	uint64_t completed = 0, seq;
	int rc = ROCELINK_OK;

	for (seq = 0; seq < pp->plan.iters && rc == ROCELINK_OK; seq++) {
		uint64_t started = pp_now();

		if (!pp->client)
			rc = await_flag(pp, seq, &completed);
		if (rc == ROCELINK_OK)
			rc = reap(pp, seq, &completed, pp->depth - 1);
		if (rc == ROCELINK_OK)
			rc = pp_post_send(pp, 0, seq);
		if (rc == ROCELINK_OK && pp->client) {
			rc = await_flag(pp, seq, &completed);
			pp_sample(pp, (pp_now() - started) / 2);
		}
	}
	return rc ? rc : reap(pp, seq, &completed, 0);
}

static int read_each(struct pp *pp)
{
	int rc = ROCELINK_OK;

	for (uint64_t seq = 0; seq < pp->plan.iters && rc == ROCELINK_OK; seq++) {
		uint64_t started = pp_now();
		struct ibv_wc wc;

		rc = pp_post_read(pp, seq);
		if (rc == ROCELINK_OK)
			rc = pp_wait(pp, &wc);
		pp_sample(pp, pp_now() - started);
		if (rc == ROCELINK_OK)
			rc = pp_check_answer(pp, seq);
	}
	return rc;
}

int pp_agree(struct pp *pp, const char *name, int rc)
{
	struct rocelink_error err;
	int ret = rocelink_conn_sync(pp->conn, name, rc ? pp->err.text : NULL, PP_SYNC_US, &err);

	if (rc)
		return rc;
	if (ret)
		pp->err = err;
	return ret;
}

static int measure(struct pp *pp)
{
	struct side sides[PP_MAX_QPS] = { 0 };
	bool lossy = !pp_reliable(pp) && !pp->o->compat;
	uint64_t started = pp_now();
	int rc;

	if (lossy)
		rc = pp_echo(pp, &sides[0].received);
	else if (one_sided(pp))
		rc = pp->client ? read_each(pp) : ROCELINK_OK;
	else
		rc = polled_write(pp) ? write_polled(pp) : two_sided(pp, sides);
	pp->latency_ns = pp_now() - started;
	progress_end();
	if (pp->o->compat)
		return rc;
	/* Else the first message of the stream may be taken for an answer. */
	if (!lossy)
		rc = pp_agree(pp, "latency measured", rc);
	if (rc == ROCELINK_OK)
		rc = pp_stream(pp, pp->plan.iters, sides[0].received);
	progress_end();
	return rc;
}

/* What has no completion at the server is looked at when the client has finished. */
static int check_memory(struct pp *pp)
{
	uint64_t total = 2ull * pp->plan.iters, value;
	int rc = ROCELINK_OK;

	if (pp->client || !pp->plan.verify || !pp_reliable(pp))
		return rc;
	if (polled_write(pp))
		for (uint64_t seq =
			     total - (pp->depth < pp->plan.iters ? pp->depth : pp->plan.iters);
		     seq < total && rc == ROCELINK_OK; seq++)
			rc = pp_check(pp, pp_recv_slot(pp, 0, seq), seq, true);
	if (pp->plan.op != PP_FETCH_ADD && pp->plan.op != PP_CMP_SWAP)
		return rc;
	/* As the adapter wrote it. */
	value = __atomic_load_n((const uint64_t *)(const void *)pp_recv_slot(pp, 0, 0),
				__ATOMIC_ACQUIRE);
	if (value != total)
		return pp_fail(&pp->err, ROCELINK_PROTOCOL,
			       "verify: after %llu atomics the value is %llu",
			       (unsigned long long)total, (unsigned long long)value);
	pp->verified++;
	return rc;
}

int pp_run(struct pp *pp)
{
	int rc = measure(pp);

	if (pp->o->compat)
		return rc;
	rc = pp_agree(pp, "finished", rc);
	if (rc)
		return rc;
	return pp_agree(pp, "checked", check_memory(pp));
}
