/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "link/fail.h"
#include "link/gid.h"

/*
 * The rules, best first. RoCE v2 before InfiniBand's own routing before RoCE v1 at equal rank,
 * since v1 can't leave its link and few peers speak it.
 */
enum score {
	SCORE_NONE = 0,
	SCORE_LINK_LOCAL_ONLY, /* a link-local one where the peer isn't link-local: last resort */
	SCORE_IB,	       /* routed by LID, no IP address to compare */
	SCORE_FAMILY,	       /* the peer's family, but not the source address of the route */
	SCORE_SOURCE,	       /* exactly the source address that the route has */
};

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool address_is_ipv4(const struct address *a)
{
	return memcmp(a->ip, mapped, sizeof(mapped)) == 0;
}

bool address_is_link_local(const struct address *a)
{
	return a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

bool address_is_loopback(const struct address *a)
{
	static const uint8_t one[16] = { [15] = 1 };

	return (address_is_ipv4(a) && a->ip[12] == 127) || memcmp(a->ip, one, sizeof(one)) == 0;
}

bool address_from_sockaddr(struct address *a, const struct sockaddr *sa)
{
	memset(a, 0, sizeof(*a));
	if (sa->sa_family == AF_INET) {
		memcpy(a->ip, mapped, sizeof(mapped));
		memcpy(a->ip + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		memcpy(a->ip, &in6->sin6_addr, sizeof(a->ip));
		a->scope = address_is_link_local(a) ? in6->sin6_scope_id : 0;
		return true;
	}
	return false;
}

void address_text(const struct address *a, char *buf, size_t len)
{
	if (address_is_ipv4(a))
		inet_ntop(AF_INET, a->ip + 12, buf, (socklen_t)len);
	else
		inet_ntop(AF_INET6, a->ip, buf, (socklen_t)len);
}

static struct address gid_address(const struct rocelink_gid *g)
{
	struct address a = { .scope = g->ifindex };

	memcpy(a.ip, g->gid.raw, sizeof(a.ip));
	return a;
}

static unsigned kind_rank(const struct rocelink_gid *g)
{
	return g->type == ROCELINK_GID_ROCE_V2 ? 2 : g->type == ROCELINK_GID_IB ? 1 : 0;
}

static unsigned score_of(const struct rocelink_gid *g, const struct route *route)
{
	struct address a = gid_address(g);

	if (g->type == ROCELINK_GID_IB)
		return SCORE_IB;
	if (!g->present)
		return SCORE_NONE;
	if (!route)
		return address_is_link_local(&a) ? SCORE_LINK_LOCAL_ONLY
		       : address_is_loopback(&a) ? SCORE_IB
						 : SCORE_FAMILY;
	if (route->known && memcmp(a.ip, route->source.ip, sizeof(a.ip)) == 0) {
		/* The same fe80:: address may stand on several interfaces. */
		if (address_is_link_local(&a) && route->to.scope && a.scope &&
		    a.scope != route->to.scope)
			return SCORE_NONE;
		return SCORE_SOURCE;
	}
	/* Loopback addresses reach nobody else, and others don't reach loopback. */
	if (address_is_loopback(&a) && !address_is_loopback(&route->to))
		return SCORE_NONE;
	if (address_is_link_local(&a) != address_is_link_local(&route->to))
		return address_is_link_local(&a) ? SCORE_LINK_LOCAL_ONLY : SCORE_NONE;
	if (address_is_link_local(&a) && route->to.scope && a.scope && a.scope != route->to.scope)
		return SCORE_NONE;
	return address_is_ipv4(&a) == address_is_ipv4(&route->to) ? SCORE_FAMILY : SCORE_NONE;
}

unsigned gid_score(const struct rocelink_gid *g, const struct route *route)
{
	unsigned score = score_of(g, route);

	return score ? 3 * score + kind_rank(g) : 0;
}

static void explain(const struct rocelink_gid *g, const struct route *route, char *why, size_t len)
{
	char to[INET6_ADDRSTRLEN] = "", source[INET6_ADDRSTRLEN] = "";
	const char *on = *g->ifname ? g->ifname : g->device;

	if (route)
		address_text(&route->to, to, sizeof(to));
	if (route && route->known)
		address_text(&route->source, source, sizeof(source));
	switch ((enum score)score_of(g, route)) {
	case SCORE_SOURCE:
		snprintf(why, len,
			 "this host reaches %s from its address %s on %s, which is this GID", to,
			 source, on);
		break;
	case SCORE_FAMILY:
		if (!route)
			snprintf(why, len, "no peer is named; this is the first global address");
		else if (route->known)
			snprintf(why, len,
				 "the route to %s leaves from %s, which is no GID here; %s is the "
				 "best of "
				 "the same family",
				 to, source, g->address);
		else
			snprintf(why, len, "there is no route to %s; %s is of the same family", to,
				 g->address);
		break;
	case SCORE_IB:
		snprintf(why, len, "%s",
			 g->type == ROCELINK_GID_IB
				 ? "InfiniBand: the path goes by LID"
				 : "no peer is named; there is only a loopback address");
		break;
	case SCORE_LINK_LOCAL_ONLY:
		snprintf(why, len, "there is nothing but this link-local address on %s%s%s", on,
			 route ? " to reach " : "", to);
		break;
	case SCORE_NONE:
	default:
		snprintf(why, len, "of no use");
		break;
	}
}

/* For the error text: what there was. */
static void list_gids(const struct gid_table *t, char *buf, size_t len)
{
	size_t used = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < t->count && used + 80 < len; i++)
		used += (size_t)snprintf(buf + used, len - used, "%s%s/%u index %d %s%s",
					 i ? ", " : "", t->gids[i].device, t->gids[i].port,
					 t->gids[i].index, t->gids[i].address,
					 t->gids[i].present ? "" : " (gone)");
}

int gid_choose(const struct gid_table *t, const struct route *route, char *why, size_t why_len,
	       struct rocelink_error *err)
{
	char to[INET6_ADDRSTRLEN] = "any peer", list[600];
	unsigned best = 0;
	int found = -1;

	for (unsigned i = 0; i < t->count; i++) {
		unsigned score = gid_score(&t->gids[i], route);

		if (score > best) {
			best = score;
			found = (int)i;
		}
	}
	if (found >= 0) {
		explain(&t->gids[found], route, why, why_len);
		return found;
	}
	if (route)
		address_text(&route->to, to, sizeof(to));
	list_gids(t, list, sizeof(list));
	link_fail(err, ROCELINK_NO_DEVICE, ROCELINK_PHASE_NEGOTIATE, 0,
		  "no GID to reach %s with%s%s; there is: %s. Use a device of the interface that "
		  "the route "
		  "goes through, or give this interface an address of that family",
		  to, route && !route->known && route->error ? ": " : "",
		  route && !route->known && route->error ? strerrordesc_np(route->error) : "",
		  *list ? list : "nothing");
	return -1;
}

void gid_to_value(struct gid_value *v, const struct rocelink_gid *g)
{
	memset(v, 0, sizeof(*v));
	v->kind = (uint8_t)g->type;
	v->lid = g->lid;
	memcpy(v->gid, g->gid.raw, sizeof(v->gid));
}
