/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast membership: which queue pairs get a group's datagrams; the port joins with the first
 * member. */
#include <errno.h>
#include <stdlib.h>

#include "device/engine_internal.h"

struct mcast_group *engine_mcast_find(const struct engine *e, const struct gid *gid,
				      unsigned ifindex)
{
	struct mcast_group *g = e->groups;

	while (g && (g->ifindex != ifindex || !gid_eq(&g->gid, gid)))
		g = g->next;
	return g;
}

static struct mcast_member **find_member(struct mcast_group *g, const struct engine_qp *eqp)
{
	struct mcast_member **link = &g->members;

	while (*link && (*link)->eqp != eqp)
		link = &(*link)->next;
	return link;
}

/* One group more, or one member of this one, on its interface? */
static bool is_room(const struct engine *e, const struct mcast_group *g, unsigned ifindex)
{
	unsigned groups = 0, members = 0;

	for (const struct mcast_group *any = e->groups; any; any = any->next) {
		if (any->ifindex != ifindex)
			continue;
		groups++;
		members += any->n_members;
	}
	return members < ENGINE_MAX_MEMBERS &&
	       (g ? g->n_members < ENGINE_MAX_GROUP_MEMBERS : groups < ENGINE_MAX_GROUPS);
}

/* Without a member yet. */
static int group_new(struct engine *e, const struct gid *gid, unsigned ifindex,
		     struct mcast_group **out)
{
	struct mcast_group *g = calloc(1, sizeof(*g));
	int ret;

	if (!g)
		return ENOMEM;
	ret = port_multicast_join(e->port, gid, ifindex);
	if (ret) {
		free(g);
		return -ret;
	}
	*g = (struct mcast_group){ .next = e->groups, .gid = *gid, .ifindex = ifindex };
	e->groups = g;
	*out = g;
	return 0;
}

static void group_end(struct engine *e, struct mcast_group *g)
{
	struct mcast_group **link = &e->groups;

	while (*link != g)
		link = &(*link)->next;
	*link = g->next;
	port_multicast_leave(e->port, &g->gid, g->ifindex);
	free(g);
}

int engine_attach_mcast(struct engine *e, struct engine_qp *eqp, const struct gid *gid,
			unsigned ifindex)
{
	struct mcast_group *g = engine_mcast_find(e, gid, ifindex);
	struct mcast_member *m;
	int ret = 0;

	/* Attaching twice is attaching once (ibv_attach_mcast(3)). */
	if (g && *find_member(g, eqp))
		return 0;
	if (!is_room(e, g, ifindex))
		return ENOSPC;
	m = malloc(sizeof(*m));
	if (!m)
		return ENOMEM;
	if (!g)
		ret = group_new(e, gid, ifindex, &g);
	if (!g) {
		free(m);
		return ret;
	}
	*m = (struct mcast_member){ .next = g->members, .eqp = eqp };
	g->members = m;
	g->n_members++;
	return 0;
}

static bool leave(struct engine *e, struct mcast_group *g, const struct engine_qp *eqp)
{
	struct mcast_member **link = find_member(g, eqp);
	struct mcast_member *m = *link;

	if (!m)
		return false;
	*link = m->next;
	free(m);
	if (--g->n_members == 0)
		group_end(e, g);
	return true;
}

int engine_detach_mcast(struct engine *e, struct engine_qp *eqp, const struct gid *gid,
			unsigned ifindex)
{
	struct mcast_group *g = engine_mcast_find(e, gid, ifindex);

	return g && leave(e, g, eqp) ? 0 : EINVAL;
}

void engine_mcast_forget(struct engine *e, const struct engine_qp *eqp)
{
	struct mcast_group *next;

	for (struct mcast_group *g = e->groups; g; g = next) {
		next = g->next;
		leave(e, g, eqp);
	}
}
