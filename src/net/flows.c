/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow sockets: bound to the port like the main sockets, then connected to the peer's address and
 * source port. The kernel prefers them for their flow, so its packets come to this process whatever
 * the hash over the processes says. Between bind() and connect() such a socket takes its share of
 * all packets, like a main socket; they are sorted out like any others.
 *
 * Announced flows (references) last until they are put. Learned flows stay, and make room when
 * the table is full and they were idle.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "net/port_internal.h"

#define LEARN_AFTER 4 /* forwarded bursts: a stranger's single packets cost no socket */

static bool flow_is(const struct flow *f, const struct path *path)
{
	return f->rx.fd >= 0 && f->sport == path->sport && gid_eq(&f->peer, &path->sgid) &&
	       gid_eq(&f->local, &path->dgid);
}

static struct flow *find(struct port *port, const struct path *path)
{
	for (unsigned i = 0; i < FLOWS_MAX; i++)
		if (flow_is(&port->flows[i], path))
			return &port->flows[i];
	return NULL;
}

static void flow_close(struct port *port, struct flow *f)
{
	port_unwatch_close(port, &f->rx);
	port->stats.flows--;
}

/* A free place; at need that of a learned flow that received nothing since the last look. */
static struct flow *find_place(struct port *port)
{
	struct flow *idle = NULL;

	for (unsigned i = 0; i < FLOWS_MAX; i++)
		if (port->flows[i].rx.fd < 0)
			return &port->flows[i];
	for (unsigned i = 0; i < FLOWS_MAX; i++) {
		struct flow *f = &port->flows[i];

		if (f->refs == 0 && !f->received)
			idle = f;
		f->received = false;
	}
	if (idle)
		flow_close(port, idle);
	return idle;
}

static int bind_connect(int fd, bool ipv4, const struct path *path, uint16_t udp_port,
			const struct gid *local)
{
	unsigned scope = path_scope(path);
	union address a;
	socklen_t len = address_set(&a, ipv4, local, udp_port, local ? scope : 0);

	if (bind(fd, &a.sa, len))
		return -errno;
	len = address_set(&a, ipv4, &path->sgid, path->sport, scope);
	return connect(fd, &a.sa, len) ? -errno : 0;
}

static bool is_bound_to(int fd, const struct gid *local)
{
	union address a;
	socklen_t len = sizeof(a);
	uint16_t udp_port;
	struct gid gid;

	if (getsockname(fd, &a.sa, &len))
		return false;
	address_gid(&a, &gid, &udp_port);
	return gid_eq(&gid, local);
}

/*
 * A connected socket, or -errno. Binding to the wildcard first means that, until connect(), only a
 * share of the packets comes here and not all to that address; the route then chooses the local
 * address, mostly the right one.
 */
static int connected_socket(const struct port *port, const struct path *path)
{
	const bool ipv4 = gid_is_ipv4(&path->sgid);

	for (int attempt = 0; attempt < 2; attempt++) {
		int fd = socket_udp(ipv4);
		int ret;

		if (fd < 0)
			return fd;
		ret = socket_prepare_receive(fd, ipv4);
		if (!ret)
			ret = bind_connect(fd, ipv4, path, port->udp_port,
					   attempt ? &path->dgid : NULL);
		if (!ret && is_bound_to(fd, &path->dgid))
			return fd;
		close(fd);
		if (ret && attempt)
			return ret;
	}
	return -EADDRNOTAVAIL;
}

static struct flow *flow_open(struct port *port, const struct path *path)
{
	struct flow *f = find_place(port);
	char peer[GID_STRLEN];
	int fd, ret;

	if (!f)
		return NULL;
	fd = connected_socket(port, path);
	*f = (struct flow){
		.rx = { .fd = fd, .kind = RX_FLOW, .ipv4 = gid_is_ipv4(&path->sgid) },
		.sport = path->sport,
		.peer = path->sgid,
		.local = path->dgid,
		.received = true,
	};
	ret = fd < 0 ? fd : port_watch(port, &f->rx);
	if (ret) {
		log_info(
			"no socket for the flow from %s port %u: %s; its packets may take a detour",
			gid_format(&path->sgid, peer), path->sport, strerror(-ret));
		if (fd >= 0)
			close(fd);
		f->rx.fd = -1;
		return NULL;
	}
	port->stats.flows++;
	return f;
}

void port_flow_get(struct port *port, const struct path *path)
{
	struct flow *f = find(port, path);

	if (!f)
		f = flow_open(port, path);
	if (f)
		f->refs++;
}

void port_flow_put(struct port *port, const struct path *path)
{
	struct flow *f = find(port, path);

	if (f && f->refs && --f->refs == 0 && !f->learned)
		flow_close(port, f);
}

static struct flow_candidate *candidate(struct port *port, const struct path *path)
{
	uint32_t hash = path->sport;

	for (unsigned i = 0; i < 16; i++)
		hash = hash * 31 + path->sgid.raw[i];
	return &port->candidates[hash % FLOW_CANDIDATES];
}

void flows_learn(struct port *port, const struct path *path)
{
	struct flow_candidate *c = candidate(port, path);
	struct flow *f;

	if (c->sport != path->sport || !gid_eq(&c->peer, &path->sgid) ||
	    !gid_eq(&c->local, &path->dgid))
		*c = (struct flow_candidate){ .peer = path->sgid,
					      .local = path->dgid,
					      .sport = path->sport };
	if (++c->seen < LEARN_AFTER)
		return;
	c->seen = 0;
	if (find(port, path))
		return;
	f = flow_open(port, path);
	if (f)
		f->learned = true;
}
