/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/dialer.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/units.h"
#include "link/fail.h"

static const uint64_t pause_ns = 50 * NS_PER_MS;

void sockaddr_text(const struct sockaddr_storage *ss, char *buf, size_t len)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	socklen_t size =
		ss->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

	if (ss->ss_family != AF_INET && ss->ss_family != AF_INET6) {
		snprintf(buf, len, "%s", ss->ss_family == AF_UNIX ? "unix socket" : "unknown");
		return;
	}
	if (getnameinfo((const struct sockaddr *)ss, size, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV)) {
		snprintf(buf, len, "unknown");
		return;
	}
	snprintf(buf, len, ss->ss_family == AF_INET6 ? "[%.48s]:%.5s" : "%.48s:%.5s", host, port);
}

static uint64_t later(uint64_t now, uint64_t ns)
{
	return ns > TIME_NEVER - now ? TIME_NEVER : now + ns;
}

int dialer_start(struct dialer *d, int epfd, const char *host, const char *service,
		 uint64_t resolve_ns, uint64_t connect_ns, bool retry, uint64_t now,
		 struct rocelink_error *err)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rc;

	*d = (struct dialer){
		.epfd = epfd,
		.host = strdup(host),
		.service = strdup(service),
		.fd = -1,
		.retry = retry,
		.resolve_ns = resolve_ns,
		.connect_ns = connect_ns,
		.phase_deadline_ns = later(now, resolve_ns),
		.step_deadline_ns = TIME_NEVER,
		.resolving = true,
	};
	if (!d->host || !d->service)
		return link_no_memory(err);
	rc = resolver_start(host, service, false, &d->resolver, err);
	if (rc || resolver_fd(d->resolver) < 0)
		return rc;
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, resolver_fd(d->resolver), &ev) != 0)
		return link_fail(err, ROCELINK_SYSTEM, ROCELINK_PHASE_RESOLVE, errno, "epoll_ctl");
	return ROCELINK_OK;
}

static void close_attempt(struct dialer *d)
{
	if (d->fd >= 0)
		close(d->fd); /* leaves the epoll set with it */
	d->fd = -1;
}

void dialer_stop(struct dialer *d)
{
	close_attempt(d);
	if (d->resolver && resolver_fd(d->resolver) >= 0)
		epoll_ctl(d->epfd, EPOLL_CTL_DEL, resolver_fd(d->resolver), NULL);
	resolver_drop(d->resolver);
	free(d->host);
	free(d->service);
	memset(d, 0, sizeof(*d));
	d->fd = -1;
}

uint64_t dialer_next_deadline(const struct dialer *d)
{
	return d->step_deadline_ns < d->phase_deadline_ns ? d->step_deadline_ns
							  : d->phase_deadline_ns;
}

static int resolved(struct dialer *d, uint64_t now, struct rocelink_error *err)
{
	int rc = resolver_result(d->resolver, &d->list, err);

	if (rc == ROCELINK_AGAIN && now >= d->phase_deadline_ns)
		return link_fail(
			err, ROCELINK_TIMEOUT, ROCELINK_PHASE_RESOLVE, 0,
			"resolving \"%s\" took longer than %.1f s: is the name server reachable?",
			d->host, (double)d->resolve_ns / (double)NS_PER_SEC);
	if (rc)
		return rc;
	if (resolver_fd(d->resolver) >= 0)
		epoll_ctl(d->epfd, EPOLL_CTL_DEL, resolver_fd(d->resolver), NULL);
	d->resolving = false;
	d->next = d->list;
	d->phase_deadline_ns = later(now, d->connect_ns);
	return ROCELINK_OK;
}

static unsigned addresses_left(const struct dialer *d)
{
	unsigned n = 0;

	for (const struct addrinfo *a = d->next; a; a = a->ai_next)
		n++;
	return n ? n : 1;
}

/* Begin with the next address; a failure of it alone is remembered only. */
static void try_next(struct dialer *d, uint64_t now)
{
	const struct addrinfo *a = d->next;
	struct epoll_event ev = { .events = EPOLLOUT };
	struct sockaddr_storage ss = { 0 };
	uint64_t left =
		d->phase_deadline_ns == TIME_NEVER ? TIME_NEVER : d->phase_deadline_ns - now;

	d->step_deadline_ns = later(now, left == TIME_NEVER ? left : left / addresses_left(d));
	d->next = a->ai_next;
	memcpy(&ss, a->ai_addr, a->ai_addrlen);
	sockaddr_text(&ss, d->last_address, sizeof(d->last_address));
	d->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (d->fd < 0) {
		d->last_errno = errno;
		return;
	}
	if (connect(d->fd, a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS) {
		d->last_errno = errno;
		close_attempt(d);
		return;
	}
	if (epoll_ctl(d->epfd, EPOLL_CTL_ADD, d->fd, &ev) != 0) {
		d->last_errno = errno;
		close_attempt(d);
	}
}

/* Has the socket connected, failed, or neither yet? */
static int attempt_result(struct dialer *d)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	int error = 0;
	socklen_t error_len = sizeof(error);

	getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &error_len);
	if (error)
		return error;
	return getpeername(d->fd, (struct sockaddr *)&peer, &len) == 0 ? 0 : EINPROGRESS;
}

static int exhausted(struct dialer *d, struct rocelink_error *err)
{
	bool refused = d->last_errno == ECONNREFUSED;

	return link_fail(err, d->last_errno == ETIMEDOUT ? ROCELINK_TIMEOUT : ROCELINK_NETWORK,
			 ROCELINK_PHASE_CONNECT, d->last_errno,
			 "can't connect to %s port %s (last tried %s)%s", d->host, d->service,
			 d->last_address,
			 refused ? ", nobody listens there (yet?)"
			 : d->last_errno == ETIMEDOUT
				 ? ", no answer: is the host up, does a firewall drop this port?"
				 : "");
}

static int try_addresses(struct dialer *d, uint64_t now, int *fd, struct rocelink_error *err)
{
	for (;;) {
		int error = d->fd >= 0 ? attempt_result(d) : -1;

		if (error == 0) {
			*fd = d->fd;
			epoll_ctl(d->epfd, EPOLL_CTL_DEL, d->fd, NULL);
			d->fd = -1;
			return ROCELINK_OK;
		}
		if (error == EINPROGRESS && now < dialer_next_deadline(d))
			return link_again(err);
		if (d->fd >= 0) {
			d->last_errno = error == EINPROGRESS ? ETIMEDOUT : error;
			close_attempt(d);
		}
		if (now >= d->phase_deadline_ns)
			return exhausted(d, err);
		if (d->next) {
			try_next(d, now);
			continue;
		}
		if (!d->retry || d->last_errno == ETIMEDOUT)
			return exhausted(d, err);
		d->next = d->list;
		d->step_deadline_ns = later(now, pause_ns);
		return link_again(err);
	}
}

int dialer_drive(struct dialer *d, uint64_t now, int *fd, struct rocelink_error *err)
{
	if (d->resolving) {
		int rc = resolved(d, now, err);

		if (rc)
			return rc;
	} else if (d->fd < 0 && now < d->step_deadline_ns && now < d->phase_deadline_ns) {
		return link_again(err); /* in the pause */
	}
	return try_addresses(d, now, fd, err);
}
