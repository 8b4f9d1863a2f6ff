/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Group membership, counted: a socket joins a group once per interface. The main sockets join while the
 * kernel lets them (20 groups of IPv4 by default, a few hundred of IPv6) and get these groups only.
 * From then on further sockets, which receive nothing, join in their place, and the main socket gets
 * every group that the host is in: whose member is who is the caller's business anyway.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/port_internal.h"

#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

static int change(int fd, const struct gid *group, unsigned ifindex, bool join)
{
	struct ip_mreqn r4 = { .imr_ifindex = (int)ifindex };
	struct ipv6_mreq r6 = { .ipv6mr_interface = ifindex };
	int ret;

	if (gid_is_ipv4(group)) {
		memcpy(&r4.imr_multiaddr, group->raw + 12, 4);
		ret = setsockopt(fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &r4,
				 sizeof(r4));
	} else {
		memcpy(&r6.ipv6mr_multiaddr, group->raw, 16);
		ret = setsockopt(fd, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &r6,
				 sizeof(r6));
	}
	return ret ? -errno : 0;
}

static bool is_full(int ret)
{
	return ret == -ENOBUFS || ret == -ENOMEM;
}

/* Try the sockets there are, the last first, since the others are full. */
static int join_held(struct port *port, const struct gid *group, unsigned ifindex, int *fd)
{
	bool ipv4 = gid_is_ipv4(group);
	int ret = -ENOBUFS;

	for (unsigned i = port->n_holders; i-- && is_full(ret);) {
		if (port->holders[i].ipv4 != ipv4)
			continue;
		*fd = port->holders[i].fd;
		ret = change(*fd, group, ifindex, true);
	}
	return ret;
}

static int add_holder(struct port *port, bool ipv4)
{
	struct multicast_holder *grown =
		realloc(port->holders, (port->n_holders + 1) * sizeof(*grown));
	int fd;

	if (!grown)
		return -ENOMEM;
	port->holders = grown;
	fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	grown[port->n_holders++] = (struct multicast_holder){ .fd = fd, .ipv4 = ipv4 };
	return 0;
}

static int join(struct port *port, const struct gid *group, unsigned ifindex, int *fd)
{
	bool ipv4 = gid_is_ipv4(group);
	int main_fd = ipv4 ? port->main4.fd : port->main6.fd, ret;

	if (main_fd < 0)
		return -EAFNOSUPPORT;
	*fd = main_fd;
	ret = change(main_fd, group, ifindex, true);
	if (!is_full(ret))
		return ret;
	ret = join_held(port, group, ifindex, fd);
	if (is_full(ret)) {
		ret = add_holder(port, ipv4);
		if (!ret)
			ret = join_held(port, group, ifindex, fd);
	}
	if (!ret)
		ret = ipv4 ? socket_set(main_fd, IPPROTO_IP, IP_MULTICAST_ALL, 1)
			   : socket_set(main_fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 1);
	return ret;
}

static struct multicast_group *find(struct port *port, const struct gid *group, unsigned ifindex)
{
	for (unsigned i = 0; i < port->n_groups; i++)
		if (port->groups[i].ifindex == ifindex && gid_eq(&port->groups[i].gid, group))
			return &port->groups[i];
	return NULL;
}

int port_multicast_join(struct port *port, const struct gid *group, unsigned ifindex)
{
	struct multicast_group *g = find(port, group, ifindex);
	struct multicast_group *grown;
	int ret, fd;

	if (!gid_is_multicast(group))
		return -EINVAL;
	if (g) {
		g->refs++;
		return 0;
	}
	grown = realloc(port->groups, (port->n_groups + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	port->groups = grown;
	ret = join(port, group, ifindex, &fd);
	if (ret)
		return ret;
	grown[port->n_groups++] =
		(struct multicast_group){ .gid = *group, .ifindex = ifindex, .refs = 1, .fd = fd };
	return 0;
}

int port_multicast_leave(struct port *port, const struct gid *group, unsigned ifindex)
{
	struct multicast_group *g = find(port, group, ifindex);
	int ret;

	if (!g)
		return -ENOENT;
	if (--g->refs)
		return 0;
	ret = change(g->fd, group, ifindex, false);
	*g = port->groups[--port->n_groups];
	return ret;
}

void multicast_close(struct port *port)
{
	for (unsigned i = 0; i < port->n_holders; i++)
		close(port->holders[i].fd);
	free(port->holders);
	free(port->groups);
}
