/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What /sys/class/infiniband/DEVICE would say of a device, had it a kernel driver: the files that
 * programs read beside the API. The text is what the kernel's drivers write there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "device/device.h"

#define CLASS "/sys/class/infiniband/"

struct view {
	struct dev *dev;
	char *text;
	size_t cap;
};

#define print(v, ...) snprintf((v)->text, (v)->cap, __VA_ARGS__)

/* A 128-bit or 64-bit number in groups of four digits. */
static int say_groups(struct view *v, const uint8_t *raw, size_t len)
{
	int n = 0;

	for (size_t i = 0; i < len; i += 2)
		n += snprintf(v->text + n, v->cap - (size_t)n, "%s%02x%02x", i ? ":" : "", raw[i],
			      raw[i + 1]);
	return n + snprintf(v->text + n, v->cap - (size_t)n, "\n");
}

static int node_type(struct view *v, unsigned index)
{
	(void)index;
	return print(v, "%d: CA\n", IBV_NODE_CA);
}

static int node_guid(struct view *v, unsigned index)
{
	(void)index;
	return say_groups(v, (const uint8_t *)&v->dev->guid, sizeof(v->dev->guid));
}

static int fw_ver(struct view *v, unsigned index)
{
	(void)index;
	return print(v, "%s\n", ROCELINK_VERSION);
}

static int link_layer(struct view *v, unsigned index)
{
	(void)index;
	return print(v, "Ethernet\n");
}

static int state(struct view *v, unsigned index)
{
	bool up;

	(void)index;
	pthread_mutex_lock(&v->dev->lock);
	up = v->dev->net.up;
	pthread_mutex_unlock(&v->dev->lock);
	return up ? print(v, "%d: ACTIVE\n", IBV_PORT_ACTIVE)
		  : print(v, "%d: DOWN\n", IBV_PORT_DOWN);
}

static int lid(struct view *v, unsigned index)
{
	(void)index;
	return print(v, "0x0\n");
}

static int pkey(struct view *v, unsigned index)
{
	return index == 0 ? print(v, "0xffff\n") : -ENOENT;
}

static int gid(struct view *v, unsigned index)
{
	struct gid gid = { 0 };
	int rc = dev_gid_get(v->dev, DEV_PORT, index, &gid);

	if (rc && rc != -ENODATA)
		return -ENOENT;
	return say_groups(v, gid.raw, sizeof(gid.raw));
}

/* The kernel's files of an entry that isn't used can be opened, but not read. */
static int gid_used(struct view *v, unsigned index)
{
	struct gid gid;
	int rc = dev_gid_get(v->dev, DEV_PORT, index, &gid);

	return rc == -ENODATA ? -EINVAL : rc ? -ENOENT : 0;
}

static int gid_type(struct view *v, unsigned index)
{
	int rc = gid_used(v, index);

	return rc ? rc : print(v, "RoCE v2\n");
}

static int gid_ndev(struct view *v, unsigned index)
{
	int rc = gid_used(v, index);

	return rc ? rc : print(v, "%s\n", v->dev->net.name);
}

static const struct {
	const char *name;
	bool indexed; /* one file for each index */
	int (*say)(struct view *v, unsigned index);
} files[] = {
	{ "node_type", false, node_type },
	{ "node_guid", false, node_guid },
	{ "sys_image_guid", false, node_guid },
	{ "fw_ver", false, fw_ver },
	{ "ports/1/link_layer", false, link_layer },
	{ "ports/1/state", false, state },
	{ "ports/1/lid", false, lid },
	{ "ports/1/pkeys/", true, pkey },
	{ "ports/1/gids/", true, gid },
	{ "ports/1/gid_attrs/types/", true, gid_type },
	{ "ports/1/gid_attrs/ndevs/", true, gid_ndev },
};

static bool parse_index(const char *text, unsigned *index)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	*index = n > UINT32_MAX ? UINT32_MAX : (unsigned)n;
	return *text >= '0' && *text <= '9' && *end == '\0';
}

static int say_file(struct view *v, const char *file)
{
	unsigned index = 0;

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		size_t len = strlen(files[i].name);

		if (files[i].indexed
			    ? !strncmp(file, files[i].name, len) && parse_index(file + len, &index)
			    : !strcmp(file, files[i].name))
			return files[i].say(v, index);
	}
	return -ENOENT;
}

static struct dev *find(struct dev **list, const char *name, size_t len)
{
	for (; *list; list++)
		if (strlen((*list)->ibv.name) == len && !memcmp((*list)->ibv.name, name, len))
			return *list;
	return NULL;
}

int dev_sysfs_read(const char *path, char *text, size_t cap)
{
	struct view view = { .text = text, .cap = cap };
	const char *name = path + strlen(CLASS), *file;
	struct dev **list;
	int rc = -ENOENT;
	size_t n;

	if (strncmp(path, CLASS, strlen(CLASS)) != 0 || !(file = strchr(name, '/')))
		return -ENOENT;
	if (dev_list(&list, &n))
		return -ENOENT;
	view.dev = find(list, name, (size_t)(file - name));
	if (view.dev)
		rc = say_file(&view, file + 1);
	for (size_t i = 0; i < n; i++)
		dev_put(list[i]);
	free(list);
	return rc;
}
