/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls about GIDs and devices. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "link/device.h"
#include "link/fail.h"
#include "link/gid.h"
#include "link/resolver.h"
#include "link/trace.h"

static const uint64_t resolve_ns = 5 * NS_PER_SEC;

int rocelink_gid_list(struct ibv_context *context, uint8_t port, struct rocelink_gid *gids, int max,
		      struct rocelink_error *err)
{
	struct gid_table t = { 0 };
	int count;

	if (max > 0 && link_check_size(gids[0].size, sizeof(gids[0]), "rocelink_gid", err))
		return -1;
	if (gid_table_add(&t, context, port, err)) {
		gid_table_free(&t);
		return -1;
	}
	for (int i = 0; i < max && i < (int)t.count; i++) {
		/* The caller's elements may be longer than ours. */
		char *at = (char *)gids + (size_t)i * gids[0].size;

		memcpy(at + sizeof(size_t), (const char *)&t.gids[i] + sizeof(size_t),
		       sizeof(t.gids[i]) - sizeof(size_t));
		memcpy(at, &gids[0].size, sizeof(size_t));
	}
	count = (int)t.count;
	gid_table_free(&t);
	return count;
}

int rocelink_gid_get(struct ibv_context *context, uint8_t port, int index, struct rocelink_gid *gid,
		     struct rocelink_error *err)
{
	struct gid_table t = { 0 };
	int rc = link_check_size(gid->size, sizeof(*gid), "rocelink_gid", err);

	if (!rc)
		rc = gid_table_add(&t, context, port, err);
	if (!rc) {
		rc = ROCELINK_NO_DEVICE;
		for (unsigned i = 0; i < t.count && rc; i++)
			if (t.gids[i].index == index)
				rc = link_store_result(gid, &t.gids[i], sizeof(*gid));
		if (rc)
			link_fail(err, ROCELINK_NO_DEVICE, ROCELINK_PHASE_NEGOTIATE, 0,
				  "%s port %u has no GID at index %d (%u GIDs; rocelink_gid_list() "
				  "or "
				  "`rocelink devices -v` shows them)",
				  ibv_get_device_name(context->device), port, index, t.count);
	}
	gid_table_free(&t);
	return rc;
}

static int resolve(const char *host, struct address *a, struct rocelink_error *err)
{
	const struct addrinfo *list;
	struct resolver *r;
	int rc = resolver_start(host, NULL, false, &r, err);

	if (rc)
		return rc;
	rc = resolver_wait(r, link_now() + resolve_ns, &list, err);
	if (!rc && !address_from_sockaddr(a, list->ai_addr))
		rc = link_fail(err, ROCELINK_RESOLVE, ROCELINK_PHASE_RESOLVE, 0,
			       "%s has no IP address", host);
	resolver_drop(r);
	return rc;
}

static struct ibv_device **list_devices(int *count, struct rocelink_error *err)
{
	struct ibv_device **list = ibv_get_device_list(count);

	if (list && *count > 0)
		return list;
	link_fail(err, ROCELINK_NO_DEVICE, ROCELINK_PHASE_NONE, list ? 0 : errno,
		  "there is no RDMA device; link the program with the adapter too (pkg-config "
		  "--libs rocelink), or "
		  "start it with `rocelink run`");
	if (list)
		ibv_free_device_list(list);
	return NULL;
}

static bool has_active_port(struct ibv_context *context)
{
	struct ibv_device_attr dev;
	struct ibv_port_attr port;

	if (ibv_query_device(context, &dev))
		return false;
	for (unsigned p = 1; p <= dev.phys_port_cnt; p++)
		if (ibv_query_port(context, (uint8_t)p, &port) == 0 &&
		    port.state == IBV_PORT_ACTIVE)
			return true;
	return false;
}

/* The devices that are up, open: the first opened and the last closed start and stop the whole
 * adapter, so that no device is closed to be opened again. */
struct opened {
	struct ibv_context **contexts;
	int count;
};

static int open_all(struct opened *all, struct rocelink_error *err)
{
	int count;
	struct ibv_device **list = list_devices(&count, err);

	if (!list)
		return ROCELINK_NO_DEVICE;
	all->contexts = calloc((size_t)count, sizeof(*all->contexts));
	for (int i = 0; i < count && all->contexts; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);

		if (context && has_active_port(context))
			all->contexts[all->count++] = context;
		else if (context)
			ibv_close_device(context);
	}
	ibv_free_device_list(list);
	return all->contexts ? ROCELINK_OK : link_no_memory(err);
}

/* All but `keep`. */
static void close_all(struct opened *all, const struct ibv_context *keep)
{
	for (int i = 0; i < all->count; i++)
		if (all->contexts[i] != keep)
			ibv_close_device(all->contexts[i]);
	free(all->contexts);
}

/* Of all GIDs of these devices, loopback devices' too. */
static int choose_among(const struct opened *all, const char *host, struct rocelink_gid *gid,
			struct rocelink_error *err)
{
	struct gid_table t = { 0 };
	struct address to;
	struct route route;
	char why[sizeof(gid->why)];
	int rc = host ? resolve(host, &to, err) : ROCELINK_OK, at;

	for (int i = 0; i < all->count && !rc; i++)
		rc = gid_table_add(&t, all->contexts[i], 0, err);
	if (!rc) {
		if (host)
			route_find(&route, &to);
		at = gid_choose(&t, host ? &route : NULL, why, sizeof(why), err);
		if (at >= 0 && t.gids) {
			memcpy(t.gids[at].why, why, sizeof(why));
			rc = link_store_result(gid, &t.gids[at], sizeof(*gid));
		} else {
			rc = ROCELINK_NO_DEVICE;
		}
	}
	gid_table_free(&t);
	return rc;
}

int rocelink_gid_choose(struct ibv_context *context, const char *host, struct rocelink_gid *gid,
			struct rocelink_error *err)
{
	struct opened all = { 0 }, given = { .contexts = &context, .count = 1 };
	int rc = link_check_size(gid->size, sizeof(*gid), "rocelink_gid", err);

	link_log_init();
	if (!rc && !context)
		rc = open_all(&all, err);
	if (!rc)
		rc = choose_among(context ? &given : &all, host, gid, err);
	close_all(&all, NULL);
	return rc;
}

struct ibv_context *link_device_open_named(const char *name, struct rocelink_error *err)
{
	int count;
	struct ibv_device **list = list_devices(&count, err);
	struct ibv_context *context = NULL;
	char names[400] = "";
	size_t used = 0;
	bool found = false;

	if (!list)
		return NULL;
	for (int i = 0; i < count && !found; i++) {
		const char *own = ibv_get_device_name(list[i]);

		if (used + 70 < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
						 i ? ", " : "", own);
		found = strcmp(own, name) == 0;
		if (!found)
			continue;
		context = ibv_open_device(list[i]);
		if (!context)
			link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_NONE, errno,
				  "ibv_open_device of %s", name);
	}
	if (!found)
		link_fail(err, ROCELINK_NO_DEVICE, ROCELINK_PHASE_NONE, 0,
			  "there is no device \"%s\"; there is: %s", name, names);
	ibv_free_device_list(list);
	return context;
}

struct ibv_context *rocelink_device_open(const char *host, struct rocelink_gid *gid,
					 struct rocelink_error *err)
{
	struct rocelink_gid own = { .size = sizeof(own) }, *chosen = gid ? gid : &own;
	struct ibv_context *context = NULL;
	struct opened all = { 0 };
	int rc = link_check_size(chosen->size, sizeof(*chosen), "rocelink_gid", err);

	link_log_init();
	if (!rc)
		rc = open_all(&all, err);
	if (!rc)
		rc = choose_among(&all, host, chosen, err);
	for (int i = 0; i < all.count && !rc && !context; i++)
		if (strcmp(ibv_get_device_name(all.contexts[i]->device), chosen->device) == 0)
			context = all.contexts[i];
	close_all(&all, context);
	return context;
}
