/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many objects of a kind a device has, for the contexts of this process: what ibv_query_device()
 * says can be had, one more can't.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "device/device.h"

static const struct {
	const char *name;
	unsigned max;
} kinds[DEV_KINDS] = {
	[DEV_QP] = { "queue pairs", 1 << 18 },
	[DEV_AH] = { "address handles", 1 << 18 },
	[DEV_MW] = { "memory windows", 1 << 20 },
	[DEV_MR] = { "memory regions", 1 << 20 },
	[DEV_SRQ] = { "shared receive queues", 1 << 16 },
	[DEV_CQ] = { "completion queues", 1 << 18 },
	[DEV_PD] = { "protection domains", 1 << 20 },
};

int dev_limit(enum dev_kind kind)
{
	return (int)kinds[kind].max;
}

int dev_limit_take(struct dev *dev, enum dev_kind kind)
{
	if (atomic_fetch_add(&dev->made[kind], 1) < kinds[kind].max)
		return 0;
	dev_limit_give(dev, kind);
	log_info("%s has %u %s in a process, all of them are taken", dev->ibv.name, kinds[kind].max,
		 kinds[kind].name);
	return -ENOMEM;
}

void dev_limit_give(struct dev *dev, enum dev_kind kind)
{
	if (kinds[kind].max)
		atomic_fetch_sub(&dev->made[kind], 1);
}
