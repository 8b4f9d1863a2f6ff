/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast membership: which queue pairs get a group's datagrams; the port joins with the first
 * member. */
#include <errno.h>
#include <stdlib.h>

#include "device/engine_internal.h"

static unsigned count_members(const struct engine *e, const struct gid *group, unsigned ifindex)
{
	unsigned n = 0;

	for (const struct mcast_member *m = e->members; m; m = m->next)
		n += gid_eq(&m->group, group) && m->ifindex == ifindex;
	return n;
}

static struct mcast_member **find_member(struct engine *e, const struct engine_qp *eqp,
					 const struct gid *group)
{
	struct mcast_member **link = &e->members;

	while (*link && ((*link)->eqp != eqp || !gid_eq(&(*link)->group, group)))
		link = &(*link)->next;
	return link;
}

int engine_attach_mcast(struct engine *e, struct engine_qp *eqp, const struct gid *group,
			unsigned ifindex)
{
	struct mcast_member *m;
	int ret;

	/* Attaching twice is attaching once (ibv_attach_mcast(3)). */
	if (*find_member(e, eqp, group))
		return 0;
	m = malloc(sizeof(*m));
	if (!m)
		return ENOMEM;
	if (count_members(e, group, ifindex) == 0) {
		ret = port_multicast_join(e->port, group, ifindex);
		if (ret) {
			free(m);
			return -ret;
		}
	}
	*m = (struct mcast_member){
		.next = e->members, .eqp = eqp, .group = *group, .ifindex = ifindex
	};
	e->members = m;
	return 0;
}

int engine_detach_mcast(struct engine *e, struct engine_qp *eqp, const struct gid *group,
			unsigned ifindex)
{
	struct mcast_member **link = find_member(e, eqp, group);
	struct mcast_member *m = *link;
	struct gid left = *group;

	if (!m)
		return EINVAL;
	*link = m->next;
	free(m);
	if (count_members(e, &left, ifindex) == 0)
		port_multicast_leave(e->port, &left, ifindex);
	return 0;
}
