/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains. A parent domain is another name for its PD, with a thread domain as a hint;
 * regions and queue pairs made through it belong to the PD.
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

int dev_pd_create(struct dev_context *ctx, struct ibv_pd **out)
{
	struct dev_pd *pd;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	pd = dev_zalloc(sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	pd->ibv.context = &ctx->verbs.context;
	pd->root = pd;
	dev_object_add(ctx, DEV_PD, &pd->link, NULL, 0);
	*out = &pd->ibv;
	return 0;
}

int dev_parent_domain_create(struct dev_context *ctx,
			     const struct ibv_parent_domain_init_attr *attr, struct ibv_pd **out)
{
	struct dev_td *td = (struct dev_td *)attr->td;
	struct dev_pd *root, *pd;

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
	root = ((struct dev_pd *)attr->pd)->root;
	pd = dev_zalloc(sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	pd->ibv.context = &ctx->verbs.context;
	pd->root = root;
	pd->td = td;
	dev_object_add(ctx, DEV_DOMAIN, &pd->link,
		       (int *[]){ &root->users, td ? &td->users : NULL }, 2);
	*out = &pd->ibv;
	return 0;
}

int dev_pd_destroy(struct ibv_pd *ibv)
{
	struct dev_pd *pd = (struct dev_pd *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	int *parent = pd->root != pd ? &pd->root->users : NULL;
	int rc;

	if (dev_forked(ctx))
		return 0;
	rc = dev_object_remove(ctx, &pd->link, &pd->users,
			       (int *[]){ parent, pd->td ? &pd->td->users : NULL }, 2);
	if (rc) {
		log_info("dealloc_pd: %d objects of the protection domain are left", pd->users);
		return rc;
	}
	free(pd);
	return 0;
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
