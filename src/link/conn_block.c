/* SPDX-License-Identifier: BSD-2-Clause */
/* The blocking calls: loops around the non-blocking ones. No state of their own. */
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "base/units.h"
#include "link/conn.h"
#include "link/fail.h"

enum { RDMA_PAUSE_NS = 20 * NS_PER_MS };

static uint64_t after(uint64_t us)
{
	uint64_t now = link_now(), ns = config_ns(us);

	return ns > TIME_NEVER - now ? TIME_NEVER : now + ns;
}

/* Sleep until there is something to drive, or until a time. */
static int sleep_until(struct rocelink_conn *conn, uint64_t until, struct rocelink_error *err)
{
	const struct rocelink_channel *ch = &conn->line.channel;
	struct pollfd p = { .fd = conn->epfd, .events = POLLIN };
	uint64_t now = link_now(), at = conn_deadline(conn);
	uint64_t ns;

	at = until < at ? until : at;
	ns = at <= now ? 0 : at - now;
	if (conn->has_line && ch->fd <= 0) {
		if (!ch->wait)
			return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
					 "a blocking call needs fd or wait in rocelink_channel");
		/* The carrier knows nothing of a name that is being resolved. */
		if (conn->rdma && ns > RDMA_PAUSE_NS) {
			at = now + RDMA_PAUSE_NS;
			ns = RDMA_PAUSE_NS;
		}
		ch->wait(ch->arg, at == TIME_NEVER ? ROCELINK_NO_DEADLINE : ns / NS_PER_US + 1);
		return ROCELINK_OK;
	}
	if (at == TIME_NEVER) {
		ppoll(&p, 1, NULL, NULL);
	} else {
		struct timespec ts = { .tv_sec = (time_t)(ns / NS_PER_SEC),
				       .tv_nsec = (long)(ns % NS_PER_SEC) };

		ppoll(&p, 1, &ts, NULL);
	}
	return ROCELINK_OK;
}

static int cannot_reach(const struct rocelink_conn *conn, enum rocelink_state state,
			struct rocelink_error *err)
{
	return link_fail(err,
			 conn->state >= ROCELINK_STATE_CLOSING ? ROCELINK_CLOSED : ROCELINK_INVALID,
			 conn->phase, 0, "the connection is %s and can't become %s any more",
			 rocelink_state_name(conn->state), rocelink_state_name(state));
}

int rocelink_conn_wait(struct rocelink_conn *conn, enum rocelink_state state,
		       struct rocelink_error *err)
{
	for (;;) {
		int rc = rocelink_conn_drive(conn, err);

		if (rc)
			return rc;
		/* OPEN and REQUESTED are the same station of two roads. */
		if (conn->state == state ||
		    (conn->state > state && conn->state <= ROCELINK_STATE_ESTABLISHED) ||
		    (conn->state == ROCELINK_STATE_OPEN && state == ROCELINK_STATE_REQUESTED) ||
		    (state == ROCELINK_STATE_CLOSING && conn->state == ROCELINK_STATE_CLOSED))
			return ROCELINK_OK;
		if (conn->state > state)
			return cannot_reach(conn, state, err);
		/* Waiting for the end: when the peer has said BYE this side does too. */
		if (state == ROCELINK_STATE_CLOSED && conn->state == ROCELINK_STATE_CLOSING &&
		    !conn->line.session.said_bye) {
			rc = rocelink_conn_bye(conn, err);
			if (rc)
				return rc;
			continue;
		}
		if (!conn->started &&
		    (conn->state == ROCELINK_STATE_OPEN || conn->state == ROCELINK_STATE_REQUESTED))
			return cannot_reach(conn, state, err);
		rc = sleep_until(conn, TIME_NEVER, err);
		if (rc)
			return rc;
	}
}

int rocelink_conn_establish(struct rocelink_conn *conn, struct rocelink_error *err)
{
	int rc = rocelink_conn_start(conn, err);

	if (rc)
		return rc;
	rc = rocelink_conn_wait(conn, ROCELINK_STATE_ESTABLISHED, err);
	/* A peer that says BYE at once was still there. */
	return rc == ROCELINK_CLOSED && conn->state == ROCELINK_STATE_CLOSING ? ROCELINK_OK : rc;
}

int rocelink_conn_close(struct rocelink_conn *conn, struct rocelink_error *err)
{
	int rc;

	if (conn->state == ROCELINK_STATE_CLOSED)
		return ROCELINK_OK;
	rc = rocelink_conn_bye(conn, err);
	return rc ? rc : rocelink_conn_wait(conn, ROCELINK_STATE_CLOSED, err);
}

int rocelink_conn_wait_region(struct rocelink_conn *conn, const char *name, uint64_t timeout_us,
			      struct rocelink_remote_region *region, struct rocelink_error *err)
{
	uint64_t until = after(timeout_us);

	for (;;) {
		int rc = rocelink_conn_drive(conn, err);

		if (rc)
			return rc;
		rc = rocelink_conn_find(conn, name, region);
		if (rc == ROCELINK_INVALID)
			return link_check_size(0, sizeof(*region), "rocelink_remote_region", err);
		if (rc == ROCELINK_OK)
			return rc;
		if (conn->state >= ROCELINK_STATE_CLOSING || conn->by_ticket)
			return link_fail(err, ROCELINK_NOT_FOUND, ROCELINK_PHASE_OPEN, 0,
					 "the peer offers no region \"%s\" and can't any more",
					 name ? name : "");
		if (link_now() >= until)
			return link_fail(err, ROCELINK_TIMEOUT, ROCELINK_PHASE_OPEN, 0,
					 "the peer has not offered region \"%s\" in time; it "
					 "offers %u others",
					 name ? name : "", conn->peer_regions.count);
		rc = sleep_until(conn, until, err);
		if (rc)
			return rc;
	}
}

int rocelink_conn_sync(struct rocelink_conn *conn, const char *name, const char *failure,
		       uint64_t timeout_us, struct rocelink_error *err)
{
	uint64_t until = after(timeout_us);
	int rc = rocelink_conn_sync_say(conn, name, failure, err);

	while (!rc) {
		struct rocelink_error ended;
		int drove = rocelink_conn_drive(conn, &ended);

		rc = rocelink_conn_sync_test(conn, name, err);
		if (rc != ROCELINK_AGAIN)
			return rc;
		if (drove) {
			if (err)
				*err = ended;
			return drove;
		}
		if (link_now() >= until)
			return link_fail(err, ROCELINK_TIMEOUT, ROCELINK_PHASE_OPEN, 0,
					 "the peer has not come to sync \"%s\" in time", name);
		rc = sleep_until(conn, until, err);
	}
	return rc;
}

/* Establish with one queue pair, or nothing remains. */
static struct rocelink_conn *finish(struct rocelink_conn *conn, struct ibv_qp *qp,
				    struct rocelink_error *err)
{
	struct rocelink_error why;

	if (!conn)
		return NULL;
	if (rocelink_conn_add_qp(conn, qp, NULL, &why) != ROCELINK_OK)
		rocelink_conn_refuse(conn, ROCELINK_REASON_LOCAL, 0, why.text);
	else if (rocelink_conn_establish(conn, &why) == ROCELINK_OK)
		return conn;
	if (err)
		*err = why;
	rocelink_conn_free(conn);
	return NULL;
}

struct rocelink_conn *rocelink_connect(const char *host, const char *service, struct ibv_qp *qp,
				       const struct rocelink_options *options,
				       struct rocelink_error *err)
{
	return finish(rocelink_dial(host, service, options, err), qp, err);
}

struct rocelink_conn *rocelink_accept(struct rocelink_listener *listener, struct ibv_qp *qp,
				      uint64_t timeout_us, struct rocelink_error *err)
{
	return finish(rocelink_listener_wait(listener, timeout_us, err), qp, err);
}

struct rocelink_conn *rocelink_meet(const char *local_host, const char *host, const char *service,
				    struct ibv_qp *qp, const struct rocelink_options *options,
				    struct rocelink_error *err)
{
	return finish(rocelink_dial_meet(local_host, host, service, options, err), qp, err);
}
