/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: on an adapter of silicon, memory on its chip; here, memory of the adapter that the
 * program reaches by copies and by regions only. There is as much as a device says (max_dm_size).
 *
 * The child of a fork may allocate some, since no other object is involved; it is in no list of the
 * context, which is the parent's.
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

/* Of copies by the program, as adapters of silicon have it: a program that keeps to it runs there too. */
#define COPY_ALIGN    4u
#define LOG_ALIGN_MIN 6
#define LOG_ALIGN_MAX 21

static int check_copy(const struct dev_dm *dm, uint64_t offset, size_t length)
{
	if (offset % COPY_ALIGN || length % COPY_ALIGN) {
		log_info("memcpy of device memory: [0x%llx, +%zu): both must be multiples of %u",
			 (unsigned long long)offset, length, COPY_ALIGN);
		return EINVAL;
	}
	if (offset <= dm->length && length <= dm->length - offset)
		return 0;
	log_info("memcpy of device memory: [0x%llx, +%zu) is beyond its %zu bytes",
		 (unsigned long long)offset, length, dm->length);
	return EFAULT;
}

static int copy_to(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t length)
{
	struct dev_dm *dm = (struct dev_dm *)ibv;
	int rc = check_copy(dm, offset, length);

	if (!rc)
		memcpy(dm->memory + offset, from, length);
	return rc;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t offset, size_t length)
{
	struct dev_dm *dm = (struct dev_dm *)ibv;
	int rc = check_copy(dm, offset, length);

	if (!rc)
		memcpy(to, dm->memory + offset, length);
	return rc;
}

/* Take this much of what the device has. */
static int take(struct dev *dev, size_t length)
{
	int rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (length > DEV_DM_MAX - dev->dm_used)
		rc = -ENOMEM;
	else
		dev->dm_used += length;
	pthread_mutex_unlock(&dev->lock);
	if (rc)
		log_info("alloc_dm: %zu bytes: the device has %llu, less what is allocated", length,
			 (unsigned long long)DEV_DM_MAX);
	return rc;
}

static void give_back(struct dev *dev, size_t length)
{
	pthread_mutex_lock(&dev->lock);
	dev->dm_used -= length;
	pthread_mutex_unlock(&dev->lock);
}

static struct dev_dm *allocate(size_t length, uint32_t log_align)
{
	size_t align = (size_t)1 << (log_align < LOG_ALIGN_MIN ? LOG_ALIGN_MIN : log_align);
	size_t size = (length + align - 1) & ~(align - 1);
	struct dev_dm *dm = dev_zalloc(sizeof(*dm));

	if (!dm)
		return NULL;
	dm->memory = aligned_alloc(align, size);
	if (!dm->memory) {
		log_info("alloc_dm: no memory for %zu bytes", size);
		free(dm);
		return NULL;
	}
	memset(dm->memory, 0, size);
	dm->length = length;
	return dm;
}

int dev_dm_create(struct dev_context *ctx, const struct ibv_alloc_dm_attr *attr,
		  struct ibv_dm **out)
{
	static _Atomic uint32_t handles;
	struct dev_dm *dm;
	int rc;

	if (attr->length == 0 || attr->log_align_req > LOG_ALIGN_MAX || attr->comp_mask) {
		log_info("alloc_dm: length %zu (at least 1), log_align_req %u (at most %d), "
			 "comp_mask 0x%x (no bit is defined)",
			 attr->length, attr->log_align_req, LOG_ALIGN_MAX, attr->comp_mask);
		return -EINVAL;
	}
	rc = take(ctx->dev, attr->length);
	if (rc)
		return rc;
	dm = allocate(attr->length, attr->log_align_req);
	if (!dm) {
		give_back(ctx->dev, attr->length);
		return -ENOMEM;
	}
	dm->ibv = (struct ibv_dm){
		.context = &ctx->verbs.context,
		.memcpy_to_dm = copy_to,
		.memcpy_from_dm = copy_from,
		.comp_mask = IBV_DM_MASK_HANDLE,
		.handle = ++handles,
	};
	dm->generation = dev_fork_generation;
	if (!dev_forked(ctx))
		dev_object_add(ctx, DEV_DM, &dm->link, NULL, 0);
	*out = &dm->ibv;
	return 0;
}

void dev_dm_release(struct dev_dm *dm)
{
	give_back(dev_context_of(dm->ibv.context)->dev, dm->length);
	free(dm->memory);
	free(dm);
}

int dev_dm_destroy(struct ibv_dm *ibv)
{
	struct dev_dm *dm = (struct dev_dm *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	int rc;

	if (dev_forked(ctx)) {
		if (dm->generation == dev_fork_generation)
			dev_dm_release(dm);
		return 0;
	}
	rc = dev_object_remove(ctx, &dm->link, &dm->users, NULL, 0);
	if (rc) {
		log_info("free_dm: %d regions of it are left", dm->users);
		return rc;
	}
	dev_dm_release(dm);
	return 0;
}
