/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: entries of the memory table that a send queue binds to part of a region
 * (mem/window.c). ibv_bind_mw() of type 1 chooses the new key; type 2 is bound by a work request that
 * names it.
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

int dev_mw_create(struct ibv_pd *ibv_pd, enum ibv_mw_type type, struct ibv_mw **out)
{
	struct dev_pd_object *pd = ((struct dev_pd *)ibv_pd)->object;
	struct dev_context *ctx = dev_context_of(ibv_pd->context);
	struct dev_mw *mw;
	int rc;

	rc = dev_pd_check(ibv_pd, "alloc_mw");
	if (rc)
		return rc;
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		log_info("alloc_mw: type %d, IBV_MW_TYPE_1 and _2 are right", type);
		return -EINVAL;
	}
	rc = dev_limit_take(ctx->dev, DEV_MW);
	if (rc)
		return rc;
	mw = dev_zalloc(sizeof(*mw));
	if (!mw) {
		dev_limit_give(ctx->dev, DEV_MW);
		return -ENOMEM;
	}
	mw->pd = pd;
	mw->window = (struct mr){ .pd = pd, .home = pd, .window = type };
	engine_lock(ctx->engine);
	rc = mem_add(engine_mem(ctx->engine), &mw->window);
	engine_unlock(ctx->engine);
	if (rc) {
		log_info("alloc_mw: no key to be had: %s", strerror(-rc));
		dev_limit_give(ctx->dev, DEV_MW);
		free(mw);
		return rc;
	}
	mw->ibv = (struct ibv_mw){
		.context = ibv_pd->context,
		.pd = ibv_pd,
		.rkey = mw->window.key,
		.handle = mw->window.key,
		.type = type,
	};
	dev_object_add(ctx, DEV_MW, &mw->link, (int *[]){ DEV_PD_USERS(ibv_pd) }, 2);
	*out = &mw->ibv;
	return 0;
}

void dev_mw_release(struct dev_mw *mw)
{
	struct dev_context *ctx = dev_context_of(mw->ibv.context);

	engine_lock(ctx->engine);
	mem_remove_window(engine_mem(ctx->engine), &mw->window);
	engine_unlock(ctx->engine);
	dev_limit_give(ctx->dev, DEV_MW);
	free(mw);
}

int dev_mw_destroy(struct ibv_mw *ibv)
{
	struct dev_mw *mw = (struct dev_mw *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);

	if (dev_forked(ctx))
		return 0;
	dev_object_remove(ctx, &mw->link, NULL, (int *[]){ DEV_PD_USERS(ibv->pd) }, 2);
	dev_mw_release(mw);
	return 0;
}

int dev_mw_bind(struct ibv_qp *ibv_qp, struct ibv_mw *mw, const struct ibv_mw_bind *bind)
{
	struct dev_qp *qp = (struct dev_qp *)ibv_qp;
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
	};
	int rc;

	if (dev_refuse_forked(qp->ctx))
		return EPERM;
	wr.bind_mw.mw = mw;
	wr.bind_mw.bind_info = bind->bind_info;
	pthread_mutex_lock(&qp->send_lock);
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	rc = dev_qp_post_one(qp, &wr);
	if (!rc)
		mw->rkey = wr.bind_mw.rkey;
	pthread_mutex_unlock(&qp->send_lock);
	if (!rc)
		engine_kick(qp->engine, &qp->eqp);
	return rc;
}
