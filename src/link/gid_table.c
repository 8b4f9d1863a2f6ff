/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/fail.h"
#include "link/gid.h"

/* Older devices have no table call: entry by entry, with the type guessed from the link layer. */
static ssize_t read_entries_one_by_one(struct ibv_context *context, struct ibv_gid_entry *entries,
				       size_t max, uint8_t port_num,
				       const struct ibv_port_attr *port)
{
	static const union ibv_gid zero;
	size_t n = 0;

	for (int i = 0; i < port->gid_tbl_len && n < max; i++) {
		union ibv_gid gid;

		if (ibv_query_gid(context, port_num, i, &gid) ||
		    memcmp(&gid, &zero, sizeof(gid)) == 0)
			continue;
		entries[n++] = (struct ibv_gid_entry){
			.gid = gid,
			.gid_index = (uint32_t)i,
			.port_num = port_num,
			.gid_type = port->link_layer == IBV_LINK_LAYER_ETHERNET
					    ? IBV_GID_TYPE_ROCE_V2
					    : IBV_GID_TYPE_IB,
		};
	}
	return (ssize_t)n;
}

/* The host's addresses, asked for once a table: the kernel tells all interfaces' each time. */
static const struct ifaddrs *host_addresses(struct gid_table *t)
{
	if (!t->addresses && getifaddrs(&t->addresses) != 0)
		t->addresses = NULL;
	return t->addresses;
}

/* Does this host have the address, and on which interface? */
static bool host_has(const struct ifaddrs *i, const struct address *a, unsigned ifindex,
		     char *ifname, size_t len)
{
	struct address own;

	if (!i)
		return true; /* unknown is no reason to reject it */
	for (; i; i = i->ifa_next) {
		if (!i->ifa_addr || !address_from_sockaddr(&own, i->ifa_addr) ||
		    memcmp(own.ip, a->ip, sizeof(own.ip)) != 0)
			continue;
		if (address_is_link_local(a) && ifindex && if_nametoindex(i->ifa_name) != ifindex)
			continue;
		if (!*ifname)
			snprintf(ifname, len, "%s", i->ifa_name);
		return true;
	}
	return false;
}

/* Fill `present`, ifname, address from the entry and this host's interfaces. */
static void annotate(struct gid_table *t, struct rocelink_gid *g)
{
	struct address a = { 0 };

	memcpy(a.ip, g->gid.raw, sizeof(a.ip));
	address_text(&a, g->address, sizeof(g->address));
	if (g->ifindex && !if_indextoname(g->ifindex, g->ifname))
		g->ifname[0] = '\0';
	g->present = g->type == ROCELINK_GID_IB ||
		     host_has(host_addresses(t), &a, g->ifindex, g->ifname, sizeof(g->ifname));
}

static bool append(struct gid_table *t, struct ibv_context *context, const struct ibv_gid_entry *e,
		   const struct ibv_port_attr *port)
{
	static const enum rocelink_gid_type types[] = {
		[IBV_GID_TYPE_IB] = ROCELINK_GID_IB,
		[IBV_GID_TYPE_ROCE_V1] = ROCELINK_GID_ROCE_V1,
		[IBV_GID_TYPE_ROCE_V2] = ROCELINK_GID_ROCE_V2,
	};
	struct rocelink_gid *gids, *g;

	if (e->gid_type > IBV_GID_TYPE_ROCE_V2 || t->count == GID_TABLE_MAX)
		return true;
	gids = realloc(t->gids, (t->count + 1) * sizeof(*gids));
	if (!gids)
		return false;
	t->gids = gids;
	g = &gids[t->count++];
	memset(g, 0, sizeof(*g));
	g->size = sizeof(*g);
	snprintf(g->device, sizeof(g->device), "%s", ibv_get_device_name(context->device));
	g->port = (uint8_t)e->port_num;
	g->index = (int)e->gid_index;
	g->type = types[e->gid_type];
	g->gid = e->gid;
	g->lid = port->lid;
	g->ifindex = e->ndev_ifindex;
	annotate(t, g);
	return true;
}

static int add_port(struct gid_table *t, struct ibv_context *context, uint8_t port_num,
		    struct rocelink_error *err)
{
	struct ibv_gid_entry *entries;
	struct ibv_port_attr port;
	ssize_t n;
	int rc = ibv_query_port(context, port_num, &port);

	if (rc)
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_NEGOTIATE, rc,
				 "ibv_query_port of %s port %u",
				 ibv_get_device_name(context->device), port_num);
	entries = calloc(GID_TABLE_MAX, sizeof(*entries));
	if (!entries)
		return link_no_memory(err);
	n = ibv_query_gid_table(context, entries, GID_TABLE_MAX, 0);
	if (n < 0)
		n = read_entries_one_by_one(context, entries, GID_TABLE_MAX, port_num, &port);
	for (ssize_t i = 0; i < n; i++)
		if (entries[i].port_num == port_num && !append(t, context, &entries[i], &port)) {
			free(entries);
			return link_no_memory(err);
		}
	free(entries);
	return ROCELINK_OK;
}

int gid_table_add(struct gid_table *t, struct ibv_context *context, uint8_t port,
		  struct rocelink_error *err)
{
	struct ibv_device_attr dev;
	int rc;

	if (port)
		return add_port(t, context, port, err);
	rc = ibv_query_device(context, &dev);
	if (rc)
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_NEGOTIATE, rc,
				 "ibv_query_device of %s", ibv_get_device_name(context->device));
	for (unsigned p = 1; p <= dev.phys_port_cnt; p++) {
		rc = add_port(t, context, (uint8_t)p, err);
		if (rc)
			return rc;
	}
	return ROCELINK_OK;
}

void gid_table_free(struct gid_table *t)
{
	free(t->gids);
	if (t->addresses)
		freeifaddrs(t->addresses);
	memset(t, 0, sizeof(*t));
}
