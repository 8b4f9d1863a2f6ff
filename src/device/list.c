/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The list of devices: one for each usable network interface, named rl_<interface>. A device lives
 * while a list or a context refers to it and keeps its address between looks, as libibverbs'
 * devices do.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/device.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list devices = { &devices, &devices };

/* Stands in the obsolete first field of ibv_device, which nobody reads: how a device is known as
 * ours. */
static struct ibv_context *ours(struct ibv_device *device, int cmd_fd)
{
	(void)device;
	(void)cmd_fd;
	return NULL;
}

bool dev_is_ours(const struct ibv_device *device)
{
	return device && device->_ops._dummy1 == ours;
}

static uint64_t hash(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * UINT64_C(0x100000001b3);
	return h;
}

/* EUI-64 of the MAC; where there is none, a hash of host and interface with the "local" bit. */
static __be64 device_guid(const struct netdev *net)
{
	static const uint8_t no_mac[6];
	const uint8_t *m = net->mac;
	char machine[64] = "";
	uint64_t h;
	FILE *f;

	if (memcmp(m, no_mac, sizeof(no_mac)) != 0) {
		uint8_t eui[8] = { m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5] };
		__be64 guid;

		memcpy(&guid, eui, sizeof(guid));
		return guid;
	}
	f = fopen("/etc/machine-id", "re");
	if (f) {
		if (!fgets(machine, sizeof(machine), f))
			machine[0] = '\0';
		fclose(f);
	}
	h = hash(hash(UINT64_C(0xcbf29ce484222325), machine), net->name);
	return htobe64((h & ~(UINT64_C(1) << 56)) | UINT64_C(1) << 57);
}

static void observed(struct engine_observer *o)
{
	dev_refresh(container_of(o, struct dev, observer));
}

static void link_fault(struct engine_observer *o, bool down)
{
	dev_link_fault(container_of(o, struct dev, observer), down);
}

static void device_fatal(struct engine_observer *o)
{
	dev_fatal(container_of(o, struct dev, observer));
}

static struct dev *create(const struct netdev *net)
{
	struct dev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->ibv._ops._dummy1 = ours;
	dev->ibv.node_type = IBV_NODE_CA;
	dev->ibv.transport_type = IBV_TRANSPORT_IB;
	snprintf(dev->ibv.name, sizeof(dev->ibv.name), "rl_%s", net->name);
	snprintf(dev->ibv.dev_name, sizeof(dev->ibv.dev_name), "rl_%s", net->name);
	/* What programs look for below it (device/numa_node, ...) an interface has as well. */
	snprintf(dev->ibv.dev_path, sizeof(dev->ibv.dev_path), "/sys/class/net/%s", net->name);
	snprintf(dev->ibv.ibdev_path, sizeof(dev->ibv.ibdev_path), "/sys/class/net/%s", net->name);
	dev->guid = device_guid(net);
	dev->net = *net;
	dev->observer.netdev_changed = observed;
	dev->observer.link_fault = link_fault;
	dev->observer.device_fatal = device_fatal;
	pthread_mutex_init(&dev->lock, NULL);
	list_init(&dev->contexts);
	list_append(&devices, &dev->link);
	return dev;
}

static void destroy(struct dev *dev)
{
	list_remove(&dev->link);
	pthread_mutex_destroy(&dev->lock);
	free(dev);
}

static struct dev *find(const struct netdev *net)
{
	struct list *pos;

	list_for_each(pos, &devices)
	{
		struct dev *dev = container_of(pos, struct dev, link);

		if (dev->net.ifindex == net->ifindex && !strcmp(dev->net.name, net->name))
			return dev;
	}
	return NULL;
}

static int collect(const struct netdev *nets, size_t n, struct dev **array)
{
	for (size_t i = 0; i < n; i++) {
		struct dev *dev = find(&nets[i]);

		if (!dev)
			dev = create(&nets[i]);
		if (!dev)
			return -ENOMEM;
		dev->refs++;
		array[i] = dev;
	}
	return 0;
}

int dev_list(struct dev ***list, size_t *n)
{
	struct netdev *nets;
	struct dev **array;
	int rc;

	if (!settings_get())
		return -EINVAL;
	rc = netdev_list(&nets, n);
	if (rc) {
		log_error("can't list the network interfaces: %s", strerror(-rc));
		return rc;
	}
	array = calloc(*n + 1, sizeof(struct dev *));
	if (!array) {
		free(nets);
		return -ENOMEM;
	}
	pthread_mutex_lock(&list_lock);
	rc = collect(nets, *n, array);
	pthread_mutex_unlock(&list_lock);
	free(nets);
	for (size_t i = 0; i < *n && array[i]; i++) {
		if (rc)
			dev_put(array[i]);
		else
			dev_refresh(array[i]);
	}
	if (rc) {
		free(array);
		return rc;
	}
	*list = array;
	return 0;
}

struct dev *dev_get(struct dev *dev)
{
	pthread_mutex_lock(&list_lock);
	dev->refs++;
	pthread_mutex_unlock(&list_lock);
	return dev;
}

void dev_put(struct dev *dev)
{
	pthread_mutex_lock(&list_lock);
	if (--dev->refs == 0)
		destroy(dev);
	pthread_mutex_unlock(&list_lock);
}

void dev_list_lock(void)
{
	pthread_mutex_lock(&list_lock);
}

void dev_list_unlock(void)
{
	pthread_mutex_unlock(&list_lock);
}

void dev_list_abandon_contexts(void)
{
	struct list *pos;

	list_for_each(pos, &devices)
	{
		struct dev *dev = container_of(pos, struct dev, link);

		pthread_mutex_init(&dev->lock, NULL);
		list_init(&dev->contexts);
		memset((void *)dev->made, 0, sizeof(dev->made));
	}
}
