/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * options.rdma_host: resolved beside the making of the channel, so that nothing blocks when the GID
 * is chosen by the route to it. A connection leaves CONNECTING only when the address is known.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "base/units.h"
#include "link/conn.h"
#include "link/fail.h"
#include "link/resolver.h"

int conn_rdma_start(struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct epoll_event ev = { .events = EPOLLIN };
	uint64_t now = link_now(), ns = conn->config->resolve_ns;
	int rc = resolver_start(conn->config->rdma_host, NULL, false, &conn->rdma, err);

	if (rc)
		return rc;
	conn->rdma_deadline_ns = ns > TIME_NEVER - now ? TIME_NEVER : now + ns;
	if (resolver_fd(conn->rdma) < 0)
		return conn_rdma_drive(conn, now, err);
	if (epoll_ctl(conn->epfd, EPOLL_CTL_ADD, resolver_fd(conn->rdma), &ev) != 0)
		return link_fail(err, ROCELINK_SYSTEM, ROCELINK_PHASE_RESOLVE, errno, "epoll_ctl");
	return ROCELINK_OK;
}

void conn_rdma_stop(struct rocelink_conn *conn)
{
	if (conn->rdma && resolver_fd(conn->rdma) >= 0)
		epoll_ctl(conn->epfd, EPOLL_CTL_DEL, resolver_fd(conn->rdma), NULL);
	resolver_drop(conn->rdma);
	conn->rdma = NULL;
}

int conn_rdma_drive(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err)
{
	const struct addrinfo *list;
	int rc;

	if (!conn->rdma)
		return ROCELINK_OK;
	rc = resolver_result(conn->rdma, &list, err);
	if (rc == ROCELINK_AGAIN && now < conn->rdma_deadline_ns)
		return rc;
	if (rc == ROCELINK_AGAIN)
		rc = link_fail(err, ROCELINK_TIMEOUT, ROCELINK_PHASE_RESOLVE, 0,
			       "resolving options.rdma_host \"%s\" takes too long: is the name "
			       "server reachable?",
			       conn->config->rdma_host);
	else if (!rc && !address_from_sockaddr(&conn->rdma_address, list->ai_addr))
		rc = link_fail(err, ROCELINK_RESOLVE, ROCELINK_PHASE_RESOLVE, 0,
			       "options.rdma_host \"%s\" has no IP address",
			       conn->config->rdma_host);
	conn->has_rdma_address = rc == ROCELINK_OK;
	conn_rdma_stop(conn);
	return rc;
}

int conn_rdma_wait(struct rocelink_conn *conn, struct rocelink_error *err)
{
	const struct addrinfo *list;

	if (conn->rdma && resolver_wait(conn->rdma, conn->rdma_deadline_ns, &list, err))
		return ROCELINK_RESOLVE;
	return conn_rdma_drive(conn, link_now(), err);
}
