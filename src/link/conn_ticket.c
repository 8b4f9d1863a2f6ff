/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections whose channel is a person: the public calls around ticket.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "link/conn.h"
#include "link/fail.h"
#include "link/ticket.h"

struct rocelink_conn *rocelink_by_ticket(const struct rocelink_options *options,
					 struct rocelink_error *err)
{
	struct rocelink_conn *conn;
	struct config *config;

	link_log_init();
	if (config_new(options, &config, err))
		return NULL;
	if (config->compat) {
		config_unref(config);
		link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			  "the ibv_*_pingpong programs know no tickets");
		return NULL;
	}
	conn = conn_new(config, ROCELINK_PEER, err);
	if (!conn)
		return NULL;
	if (conn_rdma_wait(conn, err)) {
		rocelink_conn_free(conn);
		return NULL;
	}
	conn->by_ticket = true;
	conn->state = ROCELINK_STATE_OPEN;
	/* A person has all the time in the world. */
	conn->total_deadline_ns = UINT64_MAX;
	return conn;
}

static int check_ticket_conn(const struct rocelink_conn *conn, struct rocelink_error *err)
{
	if (!conn->by_ticket)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "tickets are for connections made by rocelink_by_ticket()");
	if (conn->state == ROCELINK_STATE_FAILED) {
		if (err)
			*err = conn->error;
		return (int)conn->error.code;
	}
	if (conn->qp_count == 0)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "add a queue pair first (rocelink_conn_add_qp)");
	return ROCELINK_OK;
}

int rocelink_ticket_write(struct rocelink_conn *conn, char *text, size_t len,
			  struct rocelink_error *err)
{
	int rc = check_ticket_conn(conn, err);

	if (!rc && conn->state == ROCELINK_STATE_OPEN) {
		rc = conn_prepare(conn, err);
		if (!rc)
			rc = conn_make_hello(conn, err);
	}
	if (rc)
		return rc;
	rc = ticket_encode(&conn->hello, text, len);
	if (rc == -ENOSPC)
		return link_fail(
			err, ROCELINK_LIMIT, ROCELINK_PHASE_HELLO, 0,
			"the ticket doesn't fit in %zu bytes; ROCELINK_MAX_TICKET is enough", len);
	if (rc == -E2BIG)
		return link_fail(err, ROCELINK_LIMIT, ROCELINK_PHASE_HELLO, 0,
				 "a ticket holds at most %d queue pairs and %d regions",
				 TICKET_MAX_QPS, TICKET_MAX_REGIONS);
	if (rc)
		return link_no_memory(err);
	if (conn->state == ROCELINK_STATE_OPEN)
		conn->state = ROCELINK_STATE_EXCHANGING;
	conn->started = true;
	tracer_say(&conn->tracer, ROCELINK_STEP_SENT, "ticket written: %s", text);
	return ROCELINK_OK;
}

static int link_by(struct rocelink_conn *conn, struct message *hello, struct rocelink_error *err)
{
	char text[1024];
	int rc;

	message_describe(hello, text, sizeof(text));
	tracer_say(&conn->tracer, ROCELINK_STEP_RECEIVED, "ticket read: %s", text);
	if (hello->qps[0].qpn == conn->hello.qps[0].qpn &&
	    memcmp(hello->gids[0].gid, conn->hello.gids[0].gid, sizeof(hello->gids[0].gid)) == 0)
		return link_fail(err, ROCELINK_MISMATCH, ROCELINK_PHASE_HELLO, 0,
				 "this is this side's own ticket: the other side's is needed");
	rc = conn_hear_hello(conn, hello, err);
	if (!rc)
		rc = conn_accept_hello(conn, err);
	return rc ? rc : conn_link_qps(conn, err);
}

int rocelink_ticket_read(struct rocelink_conn *conn, const char *text, struct rocelink_error *err)
{
	struct rocelink_error failure = { 0 };
	struct message hello;
	char why[160];
	int rc = check_ticket_conn(conn, err);

	if (rc)
		return rc;
	if (conn->state != ROCELINK_STATE_EXCHANGING)
		return link_fail(
			err, ROCELINK_INVALID, ROCELINK_PHASE_HELLO, 0, "%s",
			conn->state == ROCELINK_STATE_OPEN
				? "write this side's ticket first: it can't change afterwards"
				: "a ticket serves one connection, and this one has had its own");
	rc = ticket_decode(text, &hello, why, sizeof(why));
	if (rc) {
		/* A slip of the pen: it can be read again. */
		message_free(&hello);
		return rc == -ENOMEM ? link_no_memory(err)
				     : link_fail(err, ROCELINK_PROTOCOL, ROCELINK_PHASE_HELLO, 0,
						 "this ticket can't be read: %s", why);
	}
	rc = link_by(conn, &hello, &failure);
	message_free(&hello);
	if (rc) {
		failure.code = (enum rocelink_code)rc;
		conn_fail(conn, &failure);
		if (err)
			*err = conn->error;
		return rc;
	}
	conn->state = ROCELINK_STATE_ESTABLISHED;
	tracer_say(&conn->tracer, ROCELINK_STEP_ESTABLISHED,
		   "established on this side (a ticket has no READY)");
	return ROCELINK_OK;
}

int rocelink_ticket_describe(const char *text, char *buf, size_t len, struct rocelink_error *err)
{
	struct message hello;
	char why[160];
	int rc = ticket_decode(text, &hello, why, sizeof(why));

	if (rc == -ENOMEM)
		rc = link_no_memory(err);
	else if (rc)
		rc = link_fail(err, ROCELINK_PROTOCOL, ROCELINK_PHASE_HELLO, 0,
			       "this ticket can't be read: %s", why);
	else
		message_describe(&hello, buf, len);
	message_free(&hello);
	return rc;
}
