/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains. A parent domain is another name for its PD, with a thread domain as a hint;
 * regions and queue pairs made through it belong to the PD. So is an imported PD, in another context
 * of the file (file.h).
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

/* For an object that counts it already. */
static int name_new(struct dev_context *ctx, struct dev_pd_object *object, struct ibv_pd **out)
{
	struct dev_pd *pd = dev_zalloc(sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->ibv.context = &ctx->verbs.context;
	pd->ibv.handle = object->shared.handle;
	pd->object = object;
	dev_object_add(ctx, DEV_PD, &pd->link, NULL, 0);
	*out = &pd->ibv;
	return 0;
}

int dev_pd_create(struct dev_context *ctx, struct ibv_pd **out)
{
	struct dev_pd_object *object;
	int rc;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	rc = dev_limit_take(ctx->dev, DEV_PD);
	if (rc)
		return rc;
	object = dev_zalloc(sizeof(*object));
	if (!object) {
		dev_limit_give(ctx->dev, DEV_PD);
		return -ENOMEM;
	}
	dev_shared_add(ctx->file, DEV_SHARED_PD, &object->shared);
	rc = name_new(ctx, object, out);
	if (rc && dev_shared_destroy(ctx->file, &object->shared, "alloc_pd") == 0) {
		dev_limit_give(ctx->dev, DEV_PD);
		free(object);
	}
	return rc;
}

int dev_pd_import(struct dev_context *ctx, uint32_t handle, struct ibv_pd **out)
{
	struct dev_shared *object;
	int rc;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	object = dev_shared_find(ctx->file, DEV_SHARED_PD, handle, "import_pd");
	if (!object)
		return -ENOENT;
	rc = name_new(ctx, (struct dev_pd_object *)object, out);
	if (rc && dev_shared_drop(ctx->file, object))
		free(object);
	return rc;
}

int dev_pd_check(const struct ibv_pd *pd, const char *call)
{
	if (dev_refuse_forked(dev_context_of(pd->context)))
		return -EPERM;
	return dev_shared_check(&((const struct dev_pd *)pd)->object->shared, call);
}

int dev_parent_domain_create(struct dev_context *ctx,
			     const struct ibv_parent_domain_init_attr *attr, struct ibv_pd **out)
{
	struct dev_td *td = (struct dev_td *)attr->td;
	struct dev_pd_object *object;
	struct dev_pd *pd;
	int rc;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	if (!attr->pd || attr->pd->context != &ctx->verbs.context ||
	    (td && td->ibv.context != &ctx->verbs.context)) {
		log_info("alloc_parent_domain: pd and td must be of this context, pd not NULL");
		return -EINVAL;
	}
	if (attr->comp_mask &
	    ~(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)) {
		log_info("alloc_parent_domain: comp_mask 0x%x has undefined bits", attr->comp_mask);
		return -EOPNOTSUPP;
	}
	rc = dev_pd_check(attr->pd, "alloc_parent_domain");
	if (rc)
		return rc;
	object = ((struct dev_pd *)attr->pd)->object;
	pd = dev_zalloc(sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	pd->ibv.context = &ctx->verbs.context;
	pd->ibv.handle = object->shared.handle;
	pd->parent = true;
	pd->object = object;
	pd->td = td;
	dev_object_add(ctx, DEV_DOMAIN, &pd->link,
		       (int *[]){ &object->shared.users, td ? &td->users : NULL }, 2);
	*out = &pd->ibv;
	return 0;
}

static int parent_destroy(struct dev_context *ctx, struct dev_pd *pd)
{
	int rc = dev_object_remove(
		ctx, &pd->link, &pd->users,
		(int *[]){ &pd->object->shared.users, pd->td ? &pd->td->users : NULL }, 2);

	if (rc) {
		log_info("dealloc_pd: %d objects of the parent domain are left", pd->users);
		return rc;
	}
	free(pd);
	return 0;
}

void dev_pd_release(struct dev_pd *pd)
{
	struct dev_context *ctx = dev_context_of(pd->ibv.context);

	if (!pd->parent && dev_shared_drop(ctx->file, &pd->object->shared))
		free(pd->object);
	free(pd);
}

/* A name that something still stands on (a region's name that wasn't given up, or what was made
 * before it was unimported) stays in the context until that is closed. */
static void name_end(struct dev_context *ctx, struct dev_pd *pd)
{
	if (dev_object_remove(ctx, &pd->link, &pd->users, NULL, 0) == 0)
		dev_pd_release(pd);
}

int dev_pd_destroy(struct ibv_pd *ibv)
{
	struct dev_pd *pd = (struct dev_pd *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	int rc;

	if (dev_forked(ctx))
		return 0;
	if (pd->parent)
		return parent_destroy(ctx, pd);
	rc = dev_shared_destroy(ctx->file, &pd->object->shared, "dealloc_pd");
	if (rc)
		return rc;
	dev_limit_give(ctx->dev, DEV_PD);
	name_end(ctx, pd);
	return 0;
}

void dev_pd_unimport(struct ibv_pd *ibv)
{
	struct dev_pd *pd = (struct dev_pd *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);

	if (dev_forked(ctx))
		return;
	if (pd->parent)
		log_info("unimport_pd: a parent domain isn't imported: it is left as it is");
	else
		name_end(ctx, pd);
}

int dev_td_create(struct dev_context *ctx, const struct ibv_td_init_attr *attr, struct ibv_td **out)
{
	struct dev_td *td;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	if (attr->comp_mask) {
		log_info("alloc_td: comp_mask 0x%x, no bit of it is defined", attr->comp_mask);
		return -EOPNOTSUPP;
	}
	td = dev_zalloc(sizeof(*td));
	if (!td)
		return -ENOMEM;
	td->ibv.context = &ctx->verbs.context;
	dev_object_add(ctx, DEV_TD, &td->link, NULL, 0);
	*out = &td->ibv;
	return 0;
}

int dev_td_destroy(struct ibv_td *ibv)
{
	struct dev_td *td = (struct dev_td *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	int rc;

	if (dev_forked(ctx))
		return 0;
	rc = dev_object_remove(ctx, &td->link, &td->users, NULL, 0);
	if (rc) {
		log_info("dealloc_td: %d parent domains of it are left", td->users);
		return rc;
	}
	free(td);
	return 0;
}
