/* SPDX-License-Identifier: BSD-2-Clause */
/* Everything about all devices, through libibverbs and librocelink. */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/devices.h"

const char *device_link_layer(uint8_t link_layer)
{
	return link_layer == IBV_LINK_LAYER_ETHERNET	 ? "Ethernet"
	       : link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
							 : "unspecified";
}

const char *device_gid_type(enum rocelink_gid_type type)
{
	switch (type) {
	case ROCELINK_GID_IB:
		return "InfiniBand";
	case ROCELINK_GID_ROCE_V1:
		return "RoCE v1";
	case ROCELINK_GID_ROCE_V2:
		return "RoCE v2";
	default:
		return "unknown";
	}
}

bool device_gid_chosen(const struct device_choice *choice, const struct rocelink_gid *gid)
{
	return choice->found && choice->gid.index == gid->index && choice->gid.port == gid->port &&
	       strcmp(choice->gid.device, gid->device) == 0;
}

/* The kernel's devices are in sysfs, ours are not. */
static void find_origin(struct device_info *d)
{
	char path[128], target[PATH_MAX];
	const char *slash;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", d->name);
	d->adapter = access(path, F_OK) != 0;
	if (d->adapter)
		return;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/driver", d->name);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return;
	target[n] = '\0';
	slash = strrchr(target, '/');
	snprintf(d->driver, sizeof(d->driver), "%.63s", slash ? slash + 1 : target);
}

static void collect_gids(struct ibv_context *context, struct device_port *p)
{
	struct rocelink_error err;
	int n = rocelink_gid_list(context, p->number, NULL, 0, &err);

	if (n > 0)
		p->gids = calloc((size_t)n, sizeof(*p->gids));
	for (int i = 0; p->gids && i < n; i++)
		p->gids[i].size = sizeof(p->gids[i]);
	if (p->gids) {
		int got = rocelink_gid_list(context, p->number, p->gids, n, &err);

		/* Addresses come and go between the two calls. */
		p->n_gids = got < n ? got : n;
		n = got;
	}
	if (n < 0) {
		p->n_gids = 0;
		snprintf(p->error, sizeof(p->error), "%.255s", err.text);
	}
}

static void collect_device(struct device_info *d, struct ibv_device *device)
{
	struct ibv_context *context;

	snprintf(d->name, sizeof(d->name), "%s", ibv_get_device_name(device));
	d->guid = be64toh(ibv_get_device_guid(device));
	find_origin(d);
	errno = 0;
	context = ibv_open_device(device);
	if (!context || ibv_query_device(context, &d->attr))
		d->open_errno = errno ? errno : EIO;
	else
		d->ports = calloc(d->attr.phys_port_cnt, sizeof(*d->ports));
	for (int i = 0; context && d->ports && i < d->attr.phys_port_cnt; i++) {
		d->ports[i].number = (uint8_t)(i + 1);
		d->ports[i].queried =
			ibv_query_port(context, (uint8_t)(i + 1), &d->ports[i].attr) == 0;
		collect_gids(context, &d->ports[i]);
	}
	if (!d->ports)
		d->attr.phys_port_cnt = 0;
	if (context)
		ibv_close_device(context);
}

struct device_info *devices_collect(int *n)
{
	struct ibv_device **devices;
	struct device_info *list;

	errno = 0;
	devices = ibv_get_device_list(n);
	if (!devices) {
		*n = 0;
		return NULL;
	}
	list = *n ? calloc((size_t)*n, sizeof(*list)) : NULL;
	if (!list)
		*n = 0;
	for (int i = 0; i < *n; i++)
		collect_device(&list[i], devices[i]);
	ibv_free_device_list(devices);
	return list;
}

void devices_free(struct device_info *list, int n)
{
	for (int i = 0; i < n; i++) {
		for (int p = 0; list[i].ports && p < list[i].attr.phys_port_cnt; p++)
			free(list[i].ports[p].gids);
		free(list[i].ports);
	}
	free(list);
}
