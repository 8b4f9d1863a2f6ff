/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/units.h"
#include "link/dialer.h"
#include "link/fail.h"
#include "link/gid.h"
#include "link/resolver.h"
#include "link/trace.h"

static uint16_t *port_of(struct sockaddr_storage *ss)
{
	return ss->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)ss)->sin6_port
					 : &((struct sockaddr_in *)ss)->sin_port;
}

static int open_one(struct acceptor *a, int epfd, const struct addrinfo *ai, int backlog,
		    bool reuse_port)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct sockaddr_storage ss = { 0 };
	socklen_t len = ai->ai_addrlen;
	int one = 1, fd, error;

	memcpy(&ss, ai->ai_addr, len);
	/* With service "0" all families get the port that the first was given. */
	if (*port_of(&ss) == 0)
		*port_of(&ss) = htons(a->port);
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (reuse_port)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&ss, len) != 0 || listen(fd, backlog) != 0 ||
	    getsockname(fd, (struct sockaddr *)&ss, &len) != 0 ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) != 0) {
		error = errno;
		close(fd);
		return error;
	}
	a->port = ntohs(*port_of(&ss));
	a->fds[a->count++] = fd;
	return 0;
}

int acceptor_open(struct acceptor *a, int epfd, const char *host, const char *service, int backlog,
		  bool reuse_port, struct rocelink_error *err)
{
	const struct addrinfo *list;
	struct resolver *r;
	int rc, error = 0;

	memset(a, 0, sizeof(*a));
	rc = resolver_start(host, service, true, &r, err);
	if (rc)
		return rc;
	rc = resolver_wait(r, link_now() + 5 * NS_PER_SEC, &list, err);
	for (; !rc && list && a->count < ACCEPTOR_MAX; list = list->ai_next) {
		int failed = open_one(a, epfd, list, backlog, reuse_port);

		/* A family that this host doesn't have is no failure if another works. */
		if (failed && (!error || failed == EADDRINUSE))
			error = failed;
	}
	resolver_drop(r);
	if (rc)
		return rc;
	if (a->count && error != EADDRINUSE)
		return ROCELINK_OK;
	acceptor_close(a);
	return link_fail(err, ROCELINK_NETWORK, ROCELINK_PHASE_CONNECT, error,
			 "can't listen on %s port %s%s", host, service,
			 error == EADDRINUSE ? " (another program has it; `ss -ltnp` says which)"
			 : error == EADDRNOTAVAIL ? " (this host doesn't have that address)"
			 : error == EACCES	  ? " (ports below 1024 need privilege)"
						  : "");
}

int acceptor_take(struct acceptor *a)
{
	for (unsigned i = 0; i < a->count; i++) {
		int fd = accept4(a->fds[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			return fd;
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED &&
		    errno != EINTR)
			return -1;
	}
	errno = EAGAIN;
	return -1;
}

bool acceptor_is_loopback(const struct acceptor *a)
{
	for (unsigned i = 0; i < a->count; i++) {
		struct sockaddr_storage ss = { 0 };
		socklen_t len = sizeof(ss);
		struct address address;

		if (getsockname(a->fds[i], (struct sockaddr *)&ss, &len) != 0 ||
		    !address_from_sockaddr(&address, (struct sockaddr *)&ss) ||
		    !address_is_loopback(&address))
			return false;
	}
	return true;
}

void acceptor_close(struct acceptor *a)
{
	for (unsigned i = 0; i < a->count; i++)
		close(a->fds[i]);
	a->count = 0;
}
