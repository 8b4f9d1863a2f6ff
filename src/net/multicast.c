/* SPDX-License-Identifier: BSD-2-Clause */
/* Group membership of the main sockets, counted: a socket joins a group once per interface. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "net/port_internal.h"

static int change(const struct port *port, const struct gid *group, unsigned ifindex, bool join)
{
	if (gid_is_ipv4(group)) {
		struct ip_mreqn r = { .imr_ifindex = (int)ifindex };

		if (port->main4.fd < 0)
			return -EAFNOSUPPORT;
		memcpy(&r.imr_multiaddr, group->raw + 12, 4);
		return setsockopt(port->main4.fd, IPPROTO_IP,
				  join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &r, sizeof(r))
			       ? -errno
			       : 0;
	}
	struct ipv6_mreq r = { .ipv6mr_interface = ifindex };

	if (port->main6.fd < 0)
		return -EAFNOSUPPORT;
	memcpy(&r.ipv6mr_multiaddr, group->raw, 16);
	return setsockopt(port->main6.fd, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP,
			  &r, sizeof(r))
		       ? -errno
		       : 0;
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
	int ret;

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
	ret = change(port, group, ifindex, true);
	if (ret)
		return ret;
	grown[port->n_groups++] =
		(struct multicast_group){ .gid = *group, .ifindex = ifindex, .refs = 1 };
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
	ret = change(port, group, ifindex, false);
	*g = port->groups[--port->n_groups];
	return ret;
}
