/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A listener: sockets, and the peers that have connected but not yet said HELLO. Those are driven
 * by rocelink_listener_take() until they are in REQUESTED and handed out, or fail and are dropped.
 *
 * Invariant: each pending connection's epoll descriptor is in the listener's, so that one
 * descriptor tells of all; it is taken out when the connection is handed out.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "link/acceptor.h"
#include "link/conn.h"
#include "link/fail.h"
#include "link/gate.h"

enum { DEFAULT_BACKLOG = 512, DEFAULT_PENDING = 256, DEFAULT_PER_HOST = 128, DEFAULT_RATE = 1000 };

struct rocelink_listener {
	struct config *config;
	int epfd;
	struct acceptor acceptor;
	struct gate gate;
	struct rocelink_conn **pending; /* max_pending places */
	unsigned pending_count;
	unsigned next; /* where the search for a finished one goes on: none is starved */
	struct rocelink_listener_counters counters;
};

static int read_options(struct rocelink_listener *l, const struct rocelink_listen_options *options,
			int *backlog, bool *reuse_port, struct rocelink_error *err)
{
	struct rocelink_listen_options o = { 0 };
	unsigned max_pending;
	int rc;

	if (options) {
		rc = link_check_size(options->size, sizeof(o), "rocelink_listen_options", err);
		if (rc)
			return rc;
		link_copy_options(&o, sizeof(o), options, options->size);
	}
	*backlog = o.backlog ? o.backlog : DEFAULT_BACKLOG;
	*reuse_port = o.reuse_port;
	max_pending = o.max_pending ? o.max_pending : DEFAULT_PENDING;
	l->pending = calloc(max_pending, sizeof(struct rocelink_conn *));
	if (!l->pending)
		return link_no_memory(err);
	gate_init(&l->gate, max_pending,
		  o.max_pending_per_host ? o.max_pending_per_host : DEFAULT_PER_HOST,
		  o.max_rate ? o.max_rate : DEFAULT_RATE, link_now());
	return config_new(o.conn, &l->config, err);
}

struct rocelink_listener *rocelink_listen(const char *host, const char *service,
					  const struct rocelink_listen_options *options,
					  struct rocelink_error *err)
{
	struct rocelink_listener *l;
	bool reuse_port = false;
	int rc, backlog = 0;

	link_log_init();
	if (!host || !service) {
		link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			  "say the address to listen on: one of this host's, \"localhost\", or "
			  "\"*\" for all");
		return NULL;
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		link_no_memory(err);
		return NULL;
	}
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	rc = l->epfd < 0
		     ? link_fail(err, ROCELINK_SYSTEM, ROCELINK_PHASE_NONE, errno, "epoll_create1")
		     : read_options(l, options, &backlog, &reuse_port, err);
	if (!rc)
		rc = acceptor_open(&l->acceptor, l->epfd, host, service, backlog, reuse_port, err);
	/* The stock programs' exchange carries no R_Key. */
	if (!rc && !l->config->compat)
		rc = security_check_listen(l->config->security, acceptor_is_loopback(&l->acceptor),
					   host, err);
	if (rc) {
		rocelink_listener_free(l);
		return NULL;
	}
	return l;
}

void rocelink_listener_free(struct rocelink_listener *l)
{
	if (!l)
		return;
	for (unsigned i = 0; l->pending && i < l->pending_count; i++) {
		rocelink_conn_refuse(l->pending[i], ROCELINK_REASON_BUSY, 0,
				     "the listener has ended");
		rocelink_conn_free(l->pending[i]);
	}
	acceptor_close(&l->acceptor);
	if (l->epfd >= 0)
		close(l->epfd);
	config_unref(l->config);
	free(l->pending);
	free(l);
}

uint16_t rocelink_listener_port(const struct rocelink_listener *l)
{
	return l->acceptor.port;
}

int rocelink_listener_fd(const struct rocelink_listener *l)
{
	return l->epfd;
}

static uint64_t deadline(const struct rocelink_listener *l)
{
	uint64_t at = TIME_NEVER;

	for (unsigned i = 0; i < l->pending_count; i++) {
		uint64_t one = conn_deadline(l->pending[i]);

		at = one < at ? one : at;
	}
	return at;
}

uint64_t rocelink_listener_next_deadline(const struct rocelink_listener *l)
{
	uint64_t at = deadline(l), now = link_now();

	if (at == TIME_NEVER)
		return ROCELINK_NO_DEADLINE;
	return at <= now ? 0 : (at - now + NS_PER_US - 1) / NS_PER_US;
}

void rocelink_listener_counters(const struct rocelink_listener *l,
				struct rocelink_listener_counters *counters)
{
	link_store_result(counters, &l->counters, sizeof(*counters));
}

/* Out of the list and the epoll set; the object lives on. */
static struct rocelink_conn *take_out(struct rocelink_listener *l, unsigned i)
{
	struct rocelink_conn *conn = l->pending[i];

	epoll_ctl(l->epfd, EPOLL_CTL_DEL, conn->epfd, NULL);
	l->pending[i] = l->pending[--l->pending_count];
	return conn;
}

static unsigned pending_from(const struct rocelink_listener *l, const struct address *host)
{
	unsigned n = 0;

	for (unsigned i = 0; i < l->pending_count; i++) {
		struct address a;

		if (address_from_sockaddr(&a, (const struct sockaddr *)&l->pending[i]->line.peer) &&
		    memcmp(a.ip, host->ip, sizeof(a.ip)) == 0)
			n++;
	}
	return n;
}

/* BUSY in plain text: also where TLS is wanted, since it costs nothing and tells nothing. */
static void turn_away(struct rocelink_listener *l, struct rocelink_conn *conn)
{
	static const char why[] = "too many peers are connecting; try again later";

	l->counters.refused_busy++;
	log_info("link: a peer over the listener's limits was turned away");
	if (conn->line.tls)
		line_refuse_plain(&conn->line, ROCELINK_REASON_BUSY, why);
	else
		rocelink_conn_refuse(conn, ROCELINK_REASON_BUSY, 0, why);
	rocelink_conn_free(conn);
}

static void admit(struct rocelink_listener *l, int fd)
{
	struct rocelink_conn *conn = conn_new(config_ref(l->config), ROCELINK_PASSIVE, NULL);
	struct epoll_event ev = { .events = EPOLLIN };
	struct rocelink_error why;
	struct address from = { 0 };

	l->counters.accepted++;
	if (!conn) {
		close(fd);
		return;
	}
	if (conn_adopt_fd(conn, fd, false, &why)) {
		l->counters.refused_auth++;
		log_warn("link: a peer was refused: %s", why.text);
		/* Plain text isn't allowed here, but to say so isn't secret. */
		conn->line.secured = !conn->line.tls;
		rocelink_conn_refuse(conn, ROCELINK_REASON_AUTH, 0,
				     "the listener's program asks for no security, and so serves "
				     "peers on its own "
				     "host only");
		rocelink_conn_free(conn);
		return;
	}
	address_from_sockaddr(&from, (const struct sockaddr *)&conn->line.peer);
	if (!gate_admit(&l->gate, l->pending_count, pending_from(l, &from),
			address_is_loopback(&from), link_now()) ||
	    epoll_ctl(l->epfd, EPOLL_CTL_ADD, conn->epfd, &ev) != 0) {
		turn_away(l, conn);
		return;
	}
	l->pending[l->pending_count++] = conn;
}

static void count_failure(struct rocelink_listener *l, const struct rocelink_conn *conn)
{
	char peer[64];

	switch (conn->error.code) {
	case ROCELINK_TIMEOUT:
		l->counters.timed_out++;
		break;
	case ROCELINK_SECURITY:
		l->counters.refused_auth++;
		break;
	case ROCELINK_PROTOCOL:
	case ROCELINK_MISMATCH:
		l->counters.garbage++;
		break;
	case ROCELINK_OK:
	case ROCELINK_AGAIN:
	case ROCELINK_INVALID:
	case ROCELINK_RESOLVE:
	case ROCELINK_NETWORK:
	case ROCELINK_REFUSED:
	case ROCELINK_PEER_FAILED:
	case ROCELINK_CLOSED:
	case ROCELINK_NO_DEVICE:
	case ROCELINK_VERBS:
	case ROCELINK_NOT_FOUND:
	case ROCELINK_LIMIT:
	case ROCELINK_SYSTEM:
	default:
		l->counters.gone++;
		break;
	}
	sockaddr_text(&conn->line.peer, peer, sizeof(peer));
	log_info("link: peer %s dropped: %s", peer, conn->error.text);
}

/* Drive the pending ones; the first that is finished, or NULL. */
static struct rocelink_conn *drive_pending(struct rocelink_listener *l, uint64_t now)
{
	for (unsigned n = l->pending_count; n > 0 && l->pending_count > 0; n--) {
		unsigned i = l->next++ % l->pending_count;
		struct rocelink_conn *conn = l->pending[i];

		conn_drive_at(conn, now, NULL);
		if (conn->state == ROCELINK_STATE_FAILED) {
			count_failure(l, conn);
			rocelink_conn_free(take_out(l, i));
			l->next = i;
		} else if (conn->state == ROCELINK_STATE_REQUESTED) {
			l->counters.requested++;
			l->next = i;
			return take_out(l, i);
		}
	}
	return NULL;
}

struct rocelink_conn *rocelink_listener_take(struct rocelink_listener *l,
					     struct rocelink_error *err)
{
	struct rocelink_conn *conn;
	int fd, error;

	errno = EAGAIN;
	/* A bounded number before those that came earlier get their turn. */
	for (unsigned n = 0; n < l->gate.max_pending; n++) {
		fd = acceptor_take(&l->acceptor);
		if (fd < 0)
			break;
		admit(l, fd);
		errno = EAGAIN;
	}
	error = errno;
	conn = drive_pending(l, link_now());
	if (conn)
		return conn;
	if (error != EAGAIN)
		link_fail(err, ROCELINK_SYSTEM, ROCELINK_PHASE_CONNECT, error,
			  "accepting a connection");
	else
		link_again(err);
	return NULL;
}

struct rocelink_conn *rocelink_listener_wait(struct rocelink_listener *l, uint64_t timeout_us,
					     struct rocelink_error *err)
{
	uint64_t start = link_now(), ns = config_ns(timeout_us);
	uint64_t until = ns > TIME_NEVER - start ? TIME_NEVER : start + ns;
	struct rocelink_conn *conn;
	struct rocelink_error why;

	while (!(conn = rocelink_listener_take(l, &why))) {
		struct pollfd p = { .fd = l->epfd, .events = POLLIN };
		uint64_t now = link_now(), at = deadline(l);
		struct timespec ts;

		if (why.code != ROCELINK_AGAIN) {
			if (err)
				*err = why;
			return NULL;
		}
		if (now >= until) {
			link_fail(err, ROCELINK_TIMEOUT, ROCELINK_PHASE_CONNECT, 0,
				  "no peer has connected to port %u in time", l->acceptor.port);
			return NULL;
		}
		at = until < at ? until : at;
		ns = at == TIME_NEVER ? 3600 * NS_PER_SEC : at <= now ? 0 : at - now;
		ts = (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_SEC),
					.tv_nsec = (long)(ns % NS_PER_SEC) };
		ppoll(&p, 1, &ts, NULL);
	}
	return conn;
}
