/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: on an adapter of silicon, memory on its chip; here, memory of the adapter that the
 * program reaches by copies and by regions only. There is as much as a device says (max_dm_size).
 *
 * The child of a fork may allocate some, since no other object is involved; it is in no list of the
 * context or its file, which are the parent's, and can't be imported.
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

/* Of copies by the program, as adapters of silicon have it: a program that keeps to it runs there too. */
#define COPY_ALIGN    4u
#define LOG_ALIGN_MIN 6
#define LOG_ALIGN_MAX 21

static int check_copy(const struct ibv_dm *ibv, uint64_t offset, size_t length)
{
	const struct dev_dm_object *dm = ((const struct dev_dm *)ibv)->object;

	if (dev_shared_check(&dm->shared, "memcpy of device memory"))
		return ENOENT;
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
	int rc = check_copy(ibv, offset, length);

	if (!rc)
		memcpy(((struct dev_dm *)ibv)->object->memory + offset, from, length);
	return rc;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t offset, size_t length)
{
	int rc = check_copy(ibv, offset, length);

	if (!rc)
		memcpy(to, ((struct dev_dm *)ibv)->object->memory + offset, length);
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

static struct dev_dm_object *allocate(size_t length, uint32_t log_align)
{
	size_t align = (size_t)1 << (log_align < LOG_ALIGN_MIN ? LOG_ALIGN_MIN : log_align);
	size_t size = (length + align - 1) & ~(align - 1);
	struct dev_dm_object *dm = dev_zalloc(sizeof(*dm));

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
	dm->generation = dev_fork_generation;
	dm->shared.names = 1;
	list_init(&dm->shared.link);
	return dm;
}

static void name_init(struct dev_dm *dm, struct dev_context *ctx, struct dev_dm_object *object)
{
	dm->object = object;
	dm->ibv = (struct ibv_dm){
		.context = &ctx->verbs.context,
		.memcpy_to_dm = copy_to,
		.memcpy_from_dm = copy_from,
		.comp_mask = IBV_DM_MASK_HANDLE,
		.handle = object->shared.handle,
	};
	list_init(&dm->link);
	if (!dev_forked(ctx))
		dev_object_add(ctx, DEV_DM, &dm->link, NULL, 0);
}

int dev_dm_create(struct dev_context *ctx, const struct ibv_alloc_dm_attr *attr,
		  struct ibv_dm **out)
{
	struct dev_dm_object *object;
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
	dm = dev_zalloc(sizeof(*dm));
	object = dm ? allocate(attr->length, attr->log_align_req) : NULL;
	if (!object) {
		free(dm);
		give_back(ctx->dev, attr->length);
		return -ENOMEM;
	}
	if (!dev_forked(ctx))
		dev_shared_add(ctx->file, DEV_SHARED_DM, &object->shared);
	name_init(dm, ctx, object);
	*out = &dm->ibv;
	return 0;
}

int dev_dm_import(struct dev_context *ctx, uint32_t handle, struct ibv_dm **out)
{
	struct dev_shared *object;
	struct dev_dm *dm;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	dm = dev_zalloc(sizeof(*dm));
	if (!dm)
		return -ENOMEM;
	object = dev_shared_find(ctx->file, DEV_SHARED_DM, handle, "import_dm");
	if (!object) {
		free(dm);
		return -ENOENT;
	}
	name_init(dm, ctx, (struct dev_dm_object *)object);
	*out = &dm->ibv;
	return 0;
}

void dev_dm_object_end(struct dev_dm_object *object, struct dev *dev)
{
	give_back(dev, object->length);
	free(object->memory);
}

/* The memory stays for other names of it, though they can't get at it: who is copying is safe. */
void dev_dm_release(struct dev_dm *dm)
{
	struct dev_context *ctx = dev_context_of(dm->ibv.context);

	if (dev_shared_drop(ctx->file, &dm->object->shared)) {
		dev_dm_object_end(dm->object, ctx->dev);
		free(dm->object);
	}
	free(dm);
}

static void name_end(struct dev_context *ctx, struct dev_dm *dm)
{
	dev_object_remove(ctx, &dm->link, NULL, NULL, 0);
	dev_dm_release(dm);
}

int dev_dm_destroy(struct ibv_dm *ibv)
{
	struct dev_dm *dm = (struct dev_dm *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	int rc;

	if (dev_forked(ctx)) {
		if (dm->object->generation == dev_fork_generation) {
			dev_dm_object_end(dm->object, ctx->dev);
			free(dm->object);
			free(dm);
		}
		return 0;
	}
	rc = dev_shared_destroy(ctx->file, &dm->object->shared, "free_dm");
	if (!rc)
		name_end(ctx, dm);
	return rc;
}

void dev_dm_unimport(struct ibv_dm *ibv)
{
	struct dev_context *ctx = dev_context_of(ibv->context);

	if (!dev_forked(ctx))
		name_end(ctx, (struct dev_dm *)ibv);
}
