/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both ends connect and listen at once (docs/protocol.md, section 8, "Crossing connections"). Lines
 * are gathered from both directions until the nonces decide; the one that is left becomes the
 * connection's.
 *
 * The keeper, whose nonce is larger, decides as soon as a line is greeted. The other waits for
 * HELLO.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/units.h"
#include "link/acceptor.h"
#include "link/conn.h"
#include "link/fail.h"

enum { MEET_LINES = 8 };

struct meet {
	struct acceptor acceptor;
	bool dial_failed;
	struct rocelink_error dial_error;
	struct line *lines[MEET_LINES];
};

int meet_start(struct rocelink_conn *conn, const char *local_host, const char *host,
	       const char *service, struct rocelink_error *err)
{
	struct meet *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return link_no_memory(err);
	conn->meet = m;
	conn->host = strdup(host);
	if (!conn->host)
		return link_no_memory(err);
	rc = acceptor_open(&m->acceptor, conn->epfd, local_host, service, MEET_LINES, false, err);
	if (!rc)
		rc = security_check_listen(conn->config->security,
					   acceptor_is_loopback(&m->acceptor), local_host, err);
	if (rc)
		return rc;
	conn->dialing = true;
	conn_enter(conn, ROCELINK_PHASE_CONNECT, TIME_NEVER, 0);
	/* The other end may start later: being refused is normal. */
	return dialer_start(&conn->dialer, conn->epfd, host, service, conn->config->resolve_ns,
			    conn->config->total_ns, true, link_now(), err);
}

static void drop_line(struct meet *m, unsigned i)
{
	line_close(m->lines[i]);
	free(m->lines[i]);
	m->lines[i] = NULL;
}

void meet_free(struct rocelink_conn *conn)
{
	struct meet *m = conn->meet;

	if (!m)
		return;
	for (unsigned i = 0; i < MEET_LINES; i++)
		if (m->lines[i])
			drop_line(m, i);
	acceptor_close(&m->acceptor);
	free(m);
	conn->meet = NULL;
}

static void add_line(struct rocelink_conn *conn, int fd, bool outgoing)
{
	struct meet *m = conn->meet;
	struct line *l = calloc(1, sizeof(*l));
	unsigned i = 0;

	while (i < MEET_LINES && m->lines[i])
		i++;
	if (!l || i == MEET_LINES) {
		free(l);
		close(fd);
		return;
	}
	m->lines[i] = l;
	line_init_fd(l, fd, conn->epfd);
	l->outgoing = outgoing;
	/* PEER: either side may turn out to be the one that says HELLO first. */
	if (line_start(l, conn->config->security, outgoing, conn->host, ROCELINK_PEER, conn->nonce,
		       true, ROCELINK_COMPAT_NONE, &conn->tracer, &m->dial_error)) {
		m->dial_failed = m->dial_failed || outgoing;
		drop_line(m, i);
	}
}

static void gather(struct rocelink_conn *conn, uint64_t now)
{
	struct meet *m = conn->meet;
	int fd, rc;

	while ((fd = acceptor_take(&m->acceptor)) >= 0)
		add_line(conn, fd, false);
	if (!conn->dialing)
		return;
	rc = dialer_drive(&conn->dialer, now, &fd, &m->dial_error);
	if (rc == ROCELINK_AGAIN)
		return;
	dialer_stop(&conn->dialer);
	conn->dialing = false;
	m->dial_failed = rc != ROCELINK_OK;
	if (!rc)
		add_line(conn, fd, true);
}

/* This line it is: it becomes the connection's, in the role that the nonces give. */
static int choose(struct rocelink_conn *conn, unsigned i, enum rocelink_role role)
{
	struct meet *m = conn->meet;

	conn->line = *m->lines[i];
	free(m->lines[i]);
	m->lines[i] = NULL;
	for (unsigned k = 0; k < MEET_LINES; k++)
		if (m->lines[k]) {
			session_decline(&m->lines[k]->session, ROCELINK_REASON_SIMULTANEOUS, 0,
					"another of the crossing connections is used");
			line_flush(m->lines[k], NULL);
		}
	meet_free(conn);
	if (conn->dialing)
		dialer_stop(&conn->dialer);
	conn->dialing = false;
	conn->role = role;
	conn->line.session.role = role;
	conn->has_line = true;
	conn_enter(conn, ROCELINK_PHASE_HELLO, conn->config->hello_ns, link_now());
	return ROCELINK_OK;
}

static bool have_outgoing(const struct meet *m)
{
	for (unsigned i = 0; i < MEET_LINES; i++)
		if (m->lines[i] && m->lines[i]->outgoing)
			return true;
	return false;
}

/* A line with both greetings. True: it was chosen. */
static bool judge(struct rocelink_conn *conn, unsigned i)
{
	struct meet *m = conn->meet;
	struct line *l = m->lines[i];
	struct session *s = &l->session;
	int keeper = session_compare_nonces(s);

	if (!s->peer_meet) {
		choose(conn, i, l->outgoing ? ROCELINK_ACTIVE : ROCELINK_PASSIVE);
		return true;
	}
	if (keeper > 0 && (l->outgoing || !have_outgoing(m))) {
		choose(conn, i, ROCELINK_ACTIVE);
		return true;
	}
	if (keeper >= 0) {
		session_decline(s, ROCELINK_REASON_SIMULTANEOUS, 0,
				keeper ? "the other of two crossing connections is used"
				       : "this is a connection to itself");
		line_flush(l, NULL);
		drop_line(m, i);
		return false;
	}
	/* The keeper says HELLO on the one it wants: 8 bytes of frame header are enough to see. */
	if (s->in.len >= FRAME_HEADER_LEN && s->in.data[1] == FRAME_HELLO) {
		choose(conn, i, ROCELINK_PASSIVE);
		return true;
	}
	return false;
}

static void drive_line(struct rocelink_conn *conn, unsigned i, bool *chosen)
{
	struct meet *m = conn->meet;
	struct line *l = m->lines[i];
	struct rocelink_error why;
	int rc;

	do {
		rc = line_drive(l, &conn->tracer, &why);
		if (!l->session.greeted && session_greet(&l->session, &why) > ROCELINK_AGAIN)
			rc = ROCELINK_PROTOCOL;
	} while (rc == ROCELINK_OK);
	if (l->session.greeted)
		*chosen = judge(conn, i);
	if (*chosen || !m->lines[i])
		return;
	/* Declined or broken: another line will come. A lost outgoing one is remembered for the
	 * text. */
	if (rc != ROCELINK_AGAIN || l->in_ended) {
		if (rc != ROCELINK_AGAIN)
			m->dial_error = why;
		drop_line(m, i);
	}
}

int meet_drive(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	struct meet *m = conn->meet;
	bool chosen = false, any = false;

	gather(conn, now);
	for (unsigned i = 0; i < MEET_LINES && !chosen; i++)
		if (m->lines[i])
			drive_line(conn, i, &chosen);
	if (chosen)
		return ROCELINK_OK;
	for (unsigned i = 0; i < MEET_LINES; i++)
		any = any || m->lines[i];
	if (m->dial_failed && !any && m->dial_error.code == ROCELINK_RESOLVE) {
		if (err)
			*err = m->dial_error;
		return (int)m->dial_error.code;
	}
	return link_again(err);
}
