/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions: what the program registers, entered into the engine's memory table. No page is
 * ever pinned, so every region could be called an on-demand one: what IBV_ACCESS_ON_DEMAND changes is
 * that the memory needn't be there at the registration.
 *
 * A region can have several names, one for each context that registered or imported it (file.h).
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "device/device.h"
#include "device/mr_fault.h"

#define ACCESS_KNOWN                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |     \
	 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB)
#define ACCESS_WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

int dev_mr_check_access(const char *call, unsigned access)
{
	unsigned must = access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;

	if (must & ~(unsigned)ACCESS_KNOWN) {
		log_info("%s: access 0x%x has undefined flags", call, access);
		return -EINVAL;
	}
	/* IBA 11.2.8.2: remote write and atomic need local write. */
	if ((must & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(must & IBV_ACCESS_LOCAL_WRITE)) {
		log_info("%s: access 0x%x: remote write and remote atomic need "
			 "IBV_ACCESS_LOCAL_WRITE too",
			 call, access);
		return -EINVAL;
	}
	return 0;
}

/* All memory, now and later. */
static bool is_implicit(const void *addr, size_t length, unsigned access)
{
	return (access & IBV_ACCESS_ON_DEMAND) && !addr && length == SIZE_MAX;
}

static int check_range(const char *call, const void *addr, size_t length, unsigned access)
{
	int rc;

	if (length == 0) {
		log_info("%s: length is 0, it must be at least 1", call);
		return -EINVAL;
	}
	if (access & IBV_ACCESS_ON_DEMAND) {
		if (is_implicit(addr, length, access) || (uintptr_t)addr + length > (uintptr_t)addr)
			return 0;
		log_info("%s: [%p, +%zu) wraps around", call, addr, length);
		return -EINVAL;
	}
	rc = dev_probe_memory(addr, length, access & ACCESS_WRITES);
	if (rc)
		log_info("%s: [%p, +%zu) is not all mapped%s", call, addr, length,
			 access & ACCESS_WRITES ? " and writable, as the access asks for" : "");
	return rc;
}

static int check_iova(const char *call, uint64_t iova, size_t length)
{
	if (iova + length < iova) {
		log_info("%s: iova 0x%llx + length %zu wraps around", call,
			 (unsigned long long)iova, length);
		return -EINVAL;
	}
	return 0;
}

static struct dev_mr_object *object_new(struct dev_context *ctx, struct dev_pd_object *pd,
					const struct mr *desc)
{
	struct dev_mr_object *object = dev_zalloc(sizeof(*object));
	int rc;

	if (!object)
		return NULL;
	object->mr = *desc;
	object->mr.pd = object->pd = pd;
	mr_fault_watch();
	engine_lock(ctx->engine);
	rc = mem_add(engine_mem(ctx->engine), &object->mr);
	engine_unlock(ctx->engine);
	if (rc) {
		log_info("no key to be had for a region: %s", strerror(-rc));
		free(object);
		return NULL;
	}
	return object;
}

/* The keys are the same under all names; the address is told to who registered it only. */
static void name_init(struct dev_mr *mr, struct ibv_pd *pd, struct dev_mr_object *object)
{
	mr->object = object;
	mr->ibv = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.length = object->mr.length,
		.handle = object->shared.handle,
		.lkey = object->mr.key,
		.rkey = object->mr.null ? 0 : object->mr.key,
	};
	dev_object_add(dev_context_of(pd->context), DEV_MR, &mr->link,
		       (int *[]){ &((struct dev_pd *)pd)->users }, 1);
}

int dev_mr_enter(struct ibv_pd *pd, const struct mr *desc, struct dev_mr **out)
{
	struct dev_pd_object *domain = ((struct dev_pd *)pd)->object;
	struct dev_context *ctx = dev_context_of(pd->context);
	struct dev_mr_object *object = NULL;
	struct dev_mr *mr;

	if (dev_limit_take(ctx->dev, DEV_MR))
		return -ENOMEM;
	mr = dev_zalloc(sizeof(*mr));
	if (mr)
		object = object_new(ctx, domain, desc);
	if (!object) {
		free(mr);
		dev_limit_give(ctx->dev, DEV_MR);
		return -ENOMEM;
	}
	dev_shared_use(ctx->file, &domain->shared, 1);
	dev_shared_add(ctx->file, DEV_SHARED_MR, &object->shared);
	name_init(mr, pd, object);
	mr->ibv.addr = desc->host;
	*out = mr;
	return 0;
}

/* As other devices have it, of whichever protection domain the region is: that of the keys. */
int dev_mr_import(struct ibv_pd *pd, uint32_t handle, struct ibv_mr **out)
{
	struct dev_context *ctx = dev_context_of(pd->context);
	struct dev_shared *object;
	struct dev_mr *mr;
	int rc = dev_pd_check(pd, "import_mr");

	if (rc)
		return rc;
	mr = dev_zalloc(sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	object = dev_shared_find(ctx->file, DEV_SHARED_MR, handle, "import_mr");
	if (!object) {
		free(mr);
		return -ENOENT;
	}
	name_init(mr, pd, (struct dev_mr_object *)object);
	*out = &mr->ibv;
	return 0;
}

int dev_mr_create(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
		  struct ibv_mr **out)
{
	struct mr desc = { .iova = iova, .length = length, .host = addr, .access = access };
	struct dev_mr *mr;
	int rc;

	rc = dev_pd_check(pd, "reg_mr");
	if (!rc)
		rc = dev_mr_check_access("reg_mr", access);
	if (!rc)
		rc = check_range("reg_mr", addr, length, access);
	if (access & IBV_ACCESS_ZERO_BASED)
		desc.iova = 0;
	if (!rc)
		rc = check_iova("reg_mr", desc.iova, length);
	if (!rc)
		rc = dev_mr_enter(pd, &desc, &mr);
	if (rc)
		return rc;
	*out = &mr->ibv;
	return 0;
}

void dev_mr_object_end(struct dev_mr_object *object, struct engine *e)
{
	engine_lock(e);
	mem_remove(engine_mem(e), &object->mr);
	engine_unlock(e);
	if (object->mapping)
		munmap(object->mapping, object->mapping_len);
}

void dev_mr_release(struct dev_mr *mr)
{
	struct dev_context *ctx = dev_context_of(mr->ibv.context);

	if (dev_shared_drop(ctx->file, &mr->object->shared))
		free(mr->object);
	free(mr);
}

static bool has_windows(const char *call, const struct dev_mr *mr)
{
	struct engine *e = dev_context_of(mr->ibv.context)->engine;
	uint32_t windows;

	engine_lock(e);
	windows = mr->object->mr.windows;
	engine_unlock(e);
	if (windows)
		log_info("%s: %u memory windows are bound to the region", call, windows);
	return windows;
}

static void name_end(struct dev_mr *mr)
{
	dev_object_remove(dev_context_of(mr->ibv.context), &mr->link, NULL,
			  (int *[]){ &((struct dev_pd *)mr->ibv.pd)->users }, 1);
	dev_mr_release(mr);
}

int dev_mr_destroy(struct ibv_mr *ibv)
{
	struct dev_mr *mr = (struct dev_mr *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	struct dev_mr_object *object = mr->object;
	int rc;

	if (dev_forked(ctx))
		return 0;
	if (has_windows("dereg_mr", mr))
		return -EBUSY;
	rc = dev_shared_destroy(ctx->file, &object->shared, "dereg_mr");
	if (rc)
		return rc;
	/* The memory's owner may free it as soon as it has no user. */
	dev_mr_object_end(object, ctx->engine);
	if (object->dm)
		dev_shared_use(ctx->file, &object->dm->shared, -1);
	dev_shared_use(ctx->file, &object->pd->shared, -1);
	dev_limit_give(ctx->dev, DEV_MR);
	name_end(mr);
	return 0;
}

void dev_mr_unimport(struct ibv_mr *ibv)
{
	if (!dev_forked(dev_context_of(ibv->context)))
		name_end((struct dev_mr *)ibv);
}

static int check_rereg(const struct dev_mr *mr, int flags, const struct ibv_pd *pd, void *addr,
		       size_t length, unsigned access)
{
	int rc = dev_shared_check(&mr->object->shared, "rereg_mr");

	if (rc)
		return rc;
	if (mr->object->special) {
		log_info("rereg_mr: the region is a null one, or of device memory or a dma-buf: "
			 "deregister it and register another");
		return -EOPNOTSUPP;
	}
	if (has_windows("rereg_mr", mr))
		return -EBUSY;
	if (flags == 0 || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) {
		log_info("rereg_mr: flags 0x%x, must be a set of enum ibv_rereg_mr_flags", flags);
		return -EINVAL;
	}
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != mr->ibv.context)) {
		log_info("rereg_mr: pd must be one of the region's context");
		return -EINVAL;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
		rc = dev_mr_check_access("rereg_mr", access);
		if (rc)
			return rc;
	}
	rc = flags & IBV_REREG_MR_CHANGE_PD ? dev_pd_check(pd, "rereg_mr") : 0;
	return rc ? rc : check_range("rereg_mr", addr, length, access);
}

/* To another protection domain: this name of the region, and the region. */
static void move(struct dev_context *ctx, struct dev_mr *mr, struct ibv_pd *pd)
{
	struct dev_pd_object *to = ((struct dev_pd *)pd)->object;

	pthread_mutex_lock(&ctx->file->lock);
	((struct dev_pd *)mr->ibv.pd)->users--;
	((struct dev_pd *)pd)->users++;
	mr->object->pd->shared.users--;
	to->shared.users++;
	pthread_mutex_unlock(&ctx->file->lock);
	mr->object->pd = to;
	mr->ibv.pd = pd;
}

/* Another place or PD brings new keys, so that what the peers hold of the old region is void. With
 * the same place the keys stay, as on other devices: what they allow changes. */
int dev_mr_rereg(struct ibv_mr *ibv, int flags, struct ibv_pd *ibv_pd, void *addr, size_t length,
		 unsigned access)
{
	struct dev_mr *mr = (struct dev_mr *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	struct dev_mr_object *object = mr->object;
	struct mr changed = object->mr;
	int rc;

	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = changed.access;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = changed.host;
		length = changed.length;
	} else {
		changed.host = addr;
		changed.length = length;
		changed.iova = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	rc = dev_refuse_forked(ctx) ? -EPERM : check_rereg(mr, flags, ibv_pd, addr, length, access);
	if (rc) {
		errno = -rc;
		return IBV_REREG_MR_ERR_INPUT;
	}
	changed.access = access;
	changed.gone = false;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		move(ctx, mr, ibv_pd);
		changed.pd = object->pd;
	}
	engine_lock(ctx->engine);
	if (flags == IBV_REREG_MR_CHANGE_ACCESS) {
		object->mr = changed;
	} else {
		mem_remove(engine_mem(ctx->engine), &object->mr);
		object->mr = changed;
		rc = mem_add(engine_mem(ctx->engine), &object->mr);
	}
	engine_unlock(ctx->engine);
	if (rc) {
		log_info("rereg_mr: no key to be had: %s", strerror(-rc));
		errno = -rc;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		ibv->addr = addr;
	ibv->length = length;
	ibv->lkey = ibv->rkey = object->mr.key;
	return 0;
}

static int advise_one(struct engine *e, const struct dev_pd_object *pd,
		      enum ibv_advise_mr_advice advice, const struct ibv_sge *sge)
{
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	const struct mr *mr;
	uint64_t at = 0;
	int rc = 0;

	engine_lock(e);
	mr = mem_find(engine_mem(e), sge->lkey);
	if (!mr)
		rc = -ENOENT;
	else if (mr->pd != pd || (write && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
		rc = -EPERM;
	else if (!(mr->access & IBV_ACCESS_ON_DEMAND))
		rc = -EINVAL;
	else if (mem_check(engine_mem(e), pd, sge->lkey, sge->addr, sge->length, 0))
		rc = -EFAULT;
	else
		at = (uintptr_t)mr->host + (sge->addr - mr->iova);
	engine_unlock(e);
	if (rc || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return rc;
	return dev_probe_populate((const void *)(uintptr_t)at, sge->length, write);
}

int dev_mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		  const struct ibv_sge *list, uint32_t n)
{
	int rc = dev_pd_check(pd, "advise_mr");

	if (rc)
		return rc;
	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH &&
	    advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
	    advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
		log_info("advise_mr: advice %d is not defined", (int)advice);
		return -EOPNOTSUPP;
	}
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || n == 0) {
		log_info("advise_mr: flags 0x%x (0x%x is defined), %u ranges (1 at least)", flags,
			 IBV_ADVISE_MR_FLAG_FLUSH, n);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < n && !rc; i++) {
		rc = advise_one(dev_context_of(pd->context)->engine, ((struct dev_pd *)pd)->object,
				advice, &list[i]);
		if (rc)
			log_info("advise_mr: range %u, lkey 0x%x: %s", i, list[i].lkey,
				 strerror(-rc));
	}
	return rc;
}
