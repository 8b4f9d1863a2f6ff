/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state machine of a connection. Each call moves bytes, hears messages, then takes every step
 * that has become possible:
 *
 *	CONNECTING --(active: greeted)---> OPEN ------(started)--> EXCHANGING
 *	CONNECTING --(passive: HELLO)----> REQUESTED -(started)--> EXCHANGING
 *	EXCHANGING --(both HELLOs: queue pairs to RTS, say READY; both READYs)--> ESTABLISHED
 *	ESTABLISHED --(BYE by either)----> CLOSING --(both BYEs, end of stream)--> CLOSED
 */
#include "link/conn.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "link/compat.h"
#include "link/fail.h"

/* What the peer is told when we end for a reason of ours. */
static enum rocelink_reason reason_for(const struct rocelink_error *why)
{
	if (why->reason)
		return why->reason;
	if (why->code == ROCELINK_TIMEOUT)
		return ROCELINK_REASON_TIMEOUT;
	if (why->code == ROCELINK_PROTOCOL)
		return ROCELINK_REASON_PROTOCOL;
	return ROCELINK_REASON_LOCAL;
}

int conn_fail(struct rocelink_conn *conn, const struct rocelink_error *why)
{
	bool established = conn->state >= ROCELINK_STATE_ESTABLISHED;

	if (conn->state == ROCELINK_STATE_FAILED)
		return (int)conn->error.code;
	conn->error = *why;
	if (!conn->error.phase)
		conn->error.phase = conn->phase;
	conn->state = ROCELINK_STATE_FAILED;
	conn->phase_deadline_ns = conn->total_deadline_ns = TIME_NEVER;
	if (conn->has_line) {
		session_decline(&conn->line.session, reason_for(why), why->app_reason, why->text);
		line_flush(&conn->line, NULL);
	}
	if (conn->dialing) {
		dialer_stop(&conn->dialer);
		conn->dialing = false;
	}
	conn_rdma_stop(conn);
	for (unsigned i = 0; i < conn->qp_count && !established; i++)
		link_qp_undo(&conn->qps[i], true);
	tracer_say(&conn->tracer, ROCELINK_STEP_FAILED, "%s", why->text);
	log_info("link: %s", why->text);
	return (int)conn->error.code;
}

static int hear(struct rocelink_conn *conn, struct message *m, struct rocelink_error *err)
{
	char text[2048];

	if (!conn->tracer.off) {
		message_describe(m, text, sizeof(text));
		tracer_say(&conn->tracer, ROCELINK_STEP_RECEIVED, "received %s", text);
	}
	switch ((enum frame_type)m->type) {
	case FRAME_HELLO:
		return conn_hear_hello(conn, m, err);
	case FRAME_SYNC:
	case FRAME_REGION:
	case FRAME_WITHDRAW:
		return conn_hear_shared(conn, m, err);
	case FRAME_BYE:
		if (conn->state == ROCELINK_STATE_ESTABLISHED)
			conn->state = ROCELINK_STATE_CLOSING;
		return ROCELINK_OK;
	case FRAME_READY:
	case FRAME_DECLINE:
	case FRAME_TYPES:
	default:
		return ROCELINK_OK;
	}
}

/* All whole messages that are in. */
static int hear_all(struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct session *s = &conn->line.session;
	struct message m;
	int rc;

	while ((rc = session_next(s, &m, err)) == ROCELINK_OK) {
		rc = hear(conn, &m, err);
		message_free(&m);
		if (rc)
			return rc;
	}
	if (rc != ROCELINK_AGAIN)
		return rc;
	if (conn->line.in_ended && !s->heard_end)
		return session_end(s, err);
	return ROCELINK_OK;
}

static int pump(struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct rocelink_error lost;
	int rc, heard;

	do {
		rc = line_drive(&conn->line, &conn->tracer, &lost);
		heard = hear_all(conn, err);
		if (heard)
			return heard;
	} while (rc == ROCELINK_OK);
	if (rc == ROCELINK_AGAIN || conn->line.session.heard_bye)
		return ROCELINK_OK;
	if (err)
		*err = lost;
	return rc;
}

static int connect_step(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	bool resolving;
	int fd, rc;

	if (conn->meet)
		return meet_drive(conn, now, err);
	if (!conn->dialing)
		return ROCELINK_OK;
	resolving = conn->dialer.resolving;
	rc = dialer_drive(&conn->dialer, now, &fd, err);
	if (resolving && !conn->dialer.resolving)
		tracer_say(&conn->tracer, ROCELINK_STEP_RESOLVED, "\"%s\" service \"%s\" is %s",
			   conn->dialer.host, conn->dialer.service, conn->dialer.last_address);
	if (rc)
		return rc;
	dialer_stop(&conn->dialer);
	conn->dialing = false;
	return conn_adopt_fd(conn, fd, true, err);
}

/*
 * The deadline of a phase starts when the one before is done; while this side's program is the one that is
 * waited for, only the deadline of the whole counts.
 */
static void watch_phase(struct rocelink_conn *conn, uint64_t now)
{
	bool ours = !conn->started &&
		    (conn->state == ROCELINK_STATE_OPEN || conn->state == ROCELINK_STATE_REQUESTED);

	if (ours)
		conn_enter(conn, ROCELINK_PHASE_NONE, TIME_NEVER, now);
	else if (conn->phase == ROCELINK_PHASE_NONE && conn->started && conn->has_line)
		conn_enter(conn, ROCELINK_PHASE_HELLO, conn->config->hello_ns, now);
	if (conn->phase == ROCELINK_PHASE_SECURE && conn->line.secured)
		conn_enter(conn, ROCELINK_PHASE_HELLO, conn->config->hello_ns, now);
}

static int start_step(struct rocelink_conn *conn, struct rocelink_error *err)
{
	int rc;

	if (!conn->started)
		return ROCELINK_OK;
	if (conn->config->compat)
		compat_set_type(&conn->line.session, conn->qps[0].values.type, &conn->peer_hello);
	rc = conn_choose_gids(conn, err);
	if (!rc)
		rc = conn_init_qps(conn, err);
	if (!rc)
		rc = conn_prepare(conn, err);
	if (!rc)
		rc = conn_make_hello(conn, err);
	if (!rc && conn->state == ROCELINK_STATE_REQUESTED)
		rc = conn_accept_hello(conn, err);
	/* The stock server is in RTS before it answers. */
	if (!rc && conn->state == ROCELINK_STATE_REQUESTED && conn->config->compat)
		rc = conn_link_qps(conn, err);
	if (!rc)
		rc = conn_say(conn, &conn->hello, err);
	if (!rc)
		conn->state = ROCELINK_STATE_EXCHANGING;
	return rc;
}

static int exchange_step(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	struct session *s = &conn->line.session;
	struct message m;
	int rc = ROCELINK_OK;

	if (s->heard_hello && !s->said_ready) {
		if (conn->role != ROCELINK_PASSIVE)
			rc = conn_accept_hello(conn, err);
		if (!rc && !(conn->config->compat && conn->role == ROCELINK_PASSIVE))
			rc = conn_link_qps(conn, err);
		if (rc)
			return rc;
		message_init(&m, FRAME_READY);
		message_set_status(&m, ROCELINK_REASON_NONE, 0, NO_QP_INDEX, NULL);
		message_set_echo(&m, s->peer_nonce);
		rc = conn_say(conn, &m, err);
		conn_enter(conn, ROCELINK_PHASE_READY, conn->config->ready_ns, now);
		if (!rc)
			rc = hear_all(conn,
				      err); /* with the stock programs our word is theirs too */
		if (rc)
			return rc;
	}
	if (!s->said_ready || !s->heard_ready)
		return ROCELINK_OK;
	conn->state = s->heard_bye ? ROCELINK_STATE_CLOSING : ROCELINK_STATE_ESTABLISHED;
	conn_enter(conn, ROCELINK_PHASE_OPEN, TIME_NEVER, now);
	conn->total_deadline_ns = TIME_NEVER;
	tracer_say(&conn->tracer, ROCELINK_STEP_ESTABLISHED, "established: both sides are READY");
	return ROCELINK_OK;
}

static void close_step(struct rocelink_conn *conn)
{
	struct session *s = &conn->line.session;

	if (!s->said_bye || !line_is_flushed(&conn->line))
		return;
	/* A carrier of the program's may not tell the end of its stream: BYE is enough. */
	if (!s->heard_bye || (!conn->line.in_ended && conn->line.peer.ss_family))
		return;
	conn->state = ROCELINK_STATE_CLOSED;
	conn->phase_deadline_ns = TIME_NEVER;
	line_flush(&conn->line, NULL);
	tracer_say(&conn->tracer, ROCELINK_STEP_CLOSED, "closed: both sides said BYE");
}

/* One round; sets *moved if the state has changed. */
static int step(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	const struct session *s = &conn->line.session;

	watch_phase(conn, now);
	switch (conn->state) {
	case ROCELINK_STATE_CONNECTING:
		if (!conn->has_line || conn->rdma)
			return ROCELINK_OK;
		if (s->heard_hello && conn->role == ROCELINK_PASSIVE)
			conn->state = ROCELINK_STATE_REQUESTED;
		else if (conn->line.secured && s->greeted && conn->role != ROCELINK_PASSIVE)
			conn->state = ROCELINK_STATE_OPEN;
		if (conn->state != ROCELINK_STATE_CONNECTING && conn->qp_count && !conn->started) {
			int rc = conn_choose_gids(conn, err);

			return rc ? rc : conn_init_qps(conn, err);
		}
		return ROCELINK_OK;
	case ROCELINK_STATE_OPEN:
	case ROCELINK_STATE_REQUESTED:
		return start_step(conn, err);
	case ROCELINK_STATE_EXCHANGING:
		return exchange_step(conn, now, err);
	case ROCELINK_STATE_CLOSING:
		close_step(conn);
		return ROCELINK_OK;
	case ROCELINK_STATE_ESTABLISHED:
	case ROCELINK_STATE_CLOSED:
	case ROCELINK_STATE_FAILED:
	default:
		return ROCELINK_OK;
	}
}

static int timed_out(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	static const char *const waits[] = {
		[ROCELINK_PHASE_NONE] = "this side's program did not start the exchange in time",
		[ROCELINK_PHASE_RESOLVE] = "the host name was not resolved in time",
		[ROCELINK_PHASE_CONNECT] = "no connection in time",
		[ROCELINK_PHASE_SECURE] = "no TLS handshake in time: does the peer use TLS?",
		[ROCELINK_PHASE_HELLO] = "the peer sent no HELLO in time: does its program accept?",
		[ROCELINK_PHASE_NEGOTIATE] = "the negotiation took too long",
		[ROCELINK_PHASE_INIT] = "INIT took too long",
		[ROCELINK_PHASE_RTR] = "RTR took too long",
		[ROCELINK_PHASE_RTS] = "RTS took too long",
		[ROCELINK_PHASE_READY] = "the peer did not become READY in time after its HELLO",
		[ROCELINK_PHASE_OPEN] = "open",
		[ROCELINK_PHASE_CLOSE] = "the peer did not say BYE in time",
	};
	bool whole = now >= conn->total_deadline_ns;

	if (now < conn->phase_deadline_ns && !whole)
		return ROCELINK_OK;
	return link_fail(err, ROCELINK_TIMEOUT, conn->phase, 0, "%s%s", waits[conn->phase],
			 whole && now < conn->phase_deadline_ns
				 ? " (options.timeout_us for the whole is over)"
				 : "");
}

static int drive(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	enum rocelink_state before;
	int rc = ROCELINK_OK;

	if (conn->state == ROCELINK_STATE_CONNECTING) {
		rc = conn_rdma_drive(conn, now, err);
		if (rc && rc != ROCELINK_AGAIN)
			return rc;
		rc = connect_step(conn, now, err);
	}
	if (rc && rc != ROCELINK_AGAIN)
		return rc;
	do {
		before = conn->state;
		rc = conn->has_line ? pump(conn, err) : ROCELINK_OK;
		if (!rc)
			rc = step(conn, now, err);
		if (rc)
			return rc;
	} while (conn->state != before);
	if (conn->has_line)
		line_flush(&conn->line, NULL);
	return timed_out(conn, now, err);
}

int conn_drive_at(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	struct rocelink_error why = { 0 };
	int rc;

	if (conn->state == ROCELINK_STATE_CLOSED)
		return ROCELINK_OK;
	if (conn->state != ROCELINK_STATE_FAILED) {
		rc = drive(conn, now, &why);
		if (!rc)
			return ROCELINK_OK;
		why.code = (enum rocelink_code)rc;
		conn_fail(conn, &why);
	}
	if (err)
		*err = conn->error;
	return (int)conn->error.code;
}

int rocelink_conn_drive(struct rocelink_conn *conn, struct rocelink_error *err)
{
	return conn_drive_at(conn, link_now(), err);
}

uint64_t conn_deadline(const struct rocelink_conn *conn)
{
	uint64_t at = conn->phase_deadline_ns < conn->total_deadline_ns ? conn->phase_deadline_ns
									: conn->total_deadline_ns;
	uint64_t other = conn->dialing ? dialer_next_deadline(&conn->dialer) : TIME_NEVER;

	if (conn->rdma && conn->rdma_deadline_ns < at)
		at = conn->rdma_deadline_ns;
	return other < at ? other : at;
}

uint64_t rocelink_conn_next_deadline(const struct rocelink_conn *conn)
{
	uint64_t at = conn_deadline(conn), now = link_now();

	if (at == TIME_NEVER)
		return ROCELINK_NO_DEADLINE;
	return at <= now ? 0 : (at - now + NS_PER_US - 1) / NS_PER_US;
}

int rocelink_conn_start(struct rocelink_conn *conn, struct rocelink_error *err)
{
	if (conn->state == ROCELINK_STATE_FAILED) {
		if (err)
			*err = conn->error;
		return (int)conn->error.code;
	}
	if (conn->qp_count == 0 || conn->by_ticket)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0, "%s",
				 conn->by_ticket ? "a connection by ticket has no channel to start"
						 : "add a queue pair first (rocelink_conn_add_qp)");
	conn->started = true;
	return rocelink_conn_drive(conn, err);
}

int rocelink_conn_refuse(struct rocelink_conn *conn, enum rocelink_reason reason,
			 uint32_t app_reason, const char *text)
{
	struct rocelink_error why = { .code = ROCELINK_CLOSED,
				      .reason = reason,
				      .app_reason = app_reason };

	if (conn->state >= ROCELINK_STATE_ESTABLISHED)
		return ROCELINK_INVALID;
	snprintf(why.text, sizeof(why.text), "%s",
		 text ? text : "this side refused the connection");
	if (reason == ROCELINK_REASON_NONE)
		why.reason = ROCELINK_REASON_APPLICATION;
	conn_fail(conn, &why);
	return ROCELINK_OK;
}

int rocelink_conn_bye(struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct session *s = &conn->line.session;
	struct message m;
	int rc = ROCELINK_OK;

	if (conn->state < ROCELINK_STATE_ESTABLISHED)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_CLOSE, 0,
				 "the connection isn't established: refuse or free it");
	if (conn->by_ticket)
		conn->state = ROCELINK_STATE_CLOSED;
	if (conn->state >= ROCELINK_STATE_CLOSED || s->said_bye)
		return rocelink_conn_drive(conn, err);
	if (conn->config->compat) {
		/* There is no BYE in the stock programs' exchange: the end of the stream it is. */
		s->said_bye = s->heard_bye = true;
	} else {
		message_init(&m, FRAME_BYE);
		rc = conn_say(conn, &m, err);
	}
	conn->state = ROCELINK_STATE_CLOSING;
	conn_enter(conn, ROCELINK_PHASE_CLOSE, conn->config->close_ns, link_now());
	return rc ? rc : rocelink_conn_drive(conn, err);
}
