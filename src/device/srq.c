/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues: a receive queue of the transport that many queue pairs draw from. With XRC
 * peers name it by its number, and its completions go to a CQ of its own. */
#include <stdlib.h>

#include "base/log.h"
#include "device/xrc.h"

static void limit_reached(struct recv_queue *rq)
{
	struct dev_srq *srq = container_of(rq, struct dev_srq, rq);

	dev_async_post(srq->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
}

static int check(const struct ibv_srq_attr *attr)
{
	if (attr->max_wr < 1 || attr->max_wr > QP_MAX_WR) {
		log_info("create_srq: max_wr is %u, must be 1 to %d", attr->max_wr, QP_MAX_WR);
		return -EINVAL;
	}
	if (attr->max_sge > QP_MAX_SGE) {
		log_info("create_srq: max_sge is %u, must be at most %d", attr->max_sge,
			 QP_MAX_SGE);
		return -EINVAL;
	}
	return 0;
}

static void discard(struct dev_srq *srq)
{
	recv_queue_destroy(&srq->rq);
	pthread_mutex_destroy(&srq->post_lock);
	pthread_mutex_destroy(&srq->ibv.mutex);
	pthread_cond_destroy(&srq->ibv.cond);
	dev_limit_give(srq->ctx->dev, DEV_SRQ);
	free(srq);
}

int dev_srq_create(struct ibv_pd *ibv_pd, void *srq_context, struct ibv_srq_attr *attr,
		   struct dev_xrcd *xrcd, struct dev_cq *cq, struct ibv_srq **out)
{
	struct dev_pd_object *pd = ((struct dev_pd *)ibv_pd)->object;
	struct dev_context *ctx = dev_context_of(ibv_pd->context);
	struct dev_srq *srq;
	int rc;

	rc = dev_pd_check(ibv_pd, "create_srq");
	if (!rc)
		rc = check(attr);
	if (rc)
		return rc;
	rc = dev_limit_take(ctx->dev, DEV_SRQ);
	if (rc)
		return rc;
	srq = dev_zalloc(sizeof(*srq));
	if (!srq) {
		dev_limit_give(ctx->dev, DEV_SRQ);
		return -ENOMEM;
	}
	rc = recv_queue_init(&srq->rq, attr->max_wr, attr->max_sge, pd);
	if (rc) {
		log_info("create_srq: no memory for %u work requests of %u SGEs", attr->max_wr,
			 attr->max_sge);
		dev_limit_give(ctx->dev, DEV_SRQ);
		free(srq);
		return rc;
	}
	srq->rq.on_limit = limit_reached;
	srq->ctx = ctx;
	srq->pd = pd;
	srq->ibv.context = ibv_pd->context;
	srq->ibv.srq_context = srq_context;
	srq->ibv.pd = ibv_pd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	pthread_mutex_init(&srq->post_lock, NULL);
	attr->max_wr = srq->rq.ring.max;
	attr->max_sge = srq->rq.max_sge;
	srq->rq.cq = srq->cq = cq;
	srq->xrcd = xrcd;
	rc = xrcd ? xrc_srq_add(srq) : 0;
	if (rc) {
		discard(srq);
		return rc;
	}
	dev_object_add(ctx, DEV_SRQ, &srq->link,
		       (int *[]){ DEV_PD_USERS(ibv_pd), xrcd ? &xrcd->users : NULL,
				  cq ? &cq->users : NULL },
		       4);
	*out = &srq->ibv;
	return 0;
}

void dev_srq_release(struct dev_srq *srq)
{
	if (srq->xrcd)
		xrc_srq_remove(srq);
	discard(srq);
}

int dev_srq_destroy(struct ibv_srq *ibv)
{
	struct dev_srq *srq = (struct dev_srq *)ibv;
	int rc;

	if (dev_forked(srq->ctx))
		return 0;
	/* No message must find it any more when its CQ may go. */
	if (srq->xrcd)
		xrc_srq_remove(srq);
	rc = dev_object_remove(srq->ctx, &srq->link, &srq->users,
			       (int *[]){ DEV_PD_USERS(ibv->pd),
					  srq->xrcd ? &srq->xrcd->users : NULL,
					  srq->cq ? &srq->cq->users : NULL },
			       4);
	if (rc) {
		log_info("destroy_srq: %d queue pairs use it", srq->users);
		return rc;
	}
	srq->xrcd = NULL;
	dev_async_forget(srq->ctx, srq);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != srq->async_read)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	dev_srq_release(srq);
	return 0;
}

/* Move what is posted to a queue of another size. Under post and engine lock. */
static int resize(struct dev_srq *srq, uint32_t max_wr)
{
	struct recv_queue bigger, old = srq->rq;
	uint32_t count = ring_count(&old.ring);
	int rc;

	if (max_wr < count) {
		log_info("modify_srq: max_wr %u is below the %u posted", max_wr, count);
		return -EINVAL;
	}
	rc = recv_queue_init(&bigger, max_wr, old.max_sge, old.pd);
	if (rc) {
		log_info("modify_srq: no memory for %u work requests", max_wr);
		return rc;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct recv_wqe *wqe = ring_slot(&old.ring, ring_head(&old.ring) + i);
		struct ibv_recv_wr wr = {
			.wr_id = wqe->wr_id,
			.sg_list = (struct ibv_sge *)wqe->sge,
			.num_sge = (int)wqe->num_sge,
		};

		recv_queue_post(&bigger, &wr);
	}
	bigger.cq = old.cq;
	bigger.on_limit = old.on_limit;
	atomic_store(&bigger.limit, atomic_load(&old.limit));
	srq->rq = bigger;
	recv_queue_destroy(&old);
	return 0;
}

int dev_srq_modify(struct ibv_srq *ibv, const struct ibv_srq_attr *attr, int mask)
{
	struct dev_srq *srq = (struct dev_srq *)ibv;
	uint32_t max_wr = mask & IBV_SRQ_MAX_WR ? attr->max_wr : srq->rq.ring.max;
	int rc = 0;

	if (dev_refuse_forked(srq->ctx))
		return -EPERM;
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) {
		log_info("modify_srq: srq_attr_mask 0x%x has undefined bits", mask);
		return -EINVAL;
	}
	if (max_wr < 1 || max_wr > QP_MAX_WR) {
		log_info("modify_srq: max_wr is %u, must be 1 to %d", max_wr, QP_MAX_WR);
		return -EINVAL;
	}
	if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > max_wr) {
		log_info("modify_srq: srq_limit is %u, must be at most max_wr, %u", attr->srq_limit,
			 max_wr);
		return -EINVAL;
	}
	pthread_mutex_lock(&srq->post_lock);
	engine_lock(srq->ctx->engine);
	if (mask & IBV_SRQ_MAX_WR)
		rc = resize(srq, max_wr);
	if (!rc && (mask & IBV_SRQ_LIMIT)) {
		atomic_store(&srq->rq.limit, attr->srq_limit);
		recv_queue_check_limit(&srq->rq);
	}
	engine_unlock(srq->ctx->engine);
	pthread_mutex_unlock(&srq->post_lock);
	return rc;
}

int dev_srq_query(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct dev_srq *srq = (struct dev_srq *)ibv;

	*attr = (struct ibv_srq_attr){
		.max_wr = srq->rq.ring.max,
		.max_sge = srq->rq.max_sge,
		.srq_limit = atomic_load(&srq->rq.limit),
	};
	return 0;
}

int dev_srq_num(const struct ibv_srq *ibv, uint32_t *num)
{
	const struct dev_srq *srq = (const struct dev_srq *)ibv;

	if (!srq->xrcd) {
		log_info("get_srq_num: only an XRC SRQ has a number");
		return -EINVAL;
	}
	*num = srq->srqn;
	return 0;
}

int dev_srq_post(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct dev_srq *srq = (struct dev_srq *)ibv;
	int rc = 0;

	if (dev_refuse_forked(srq->ctx)) {
		*bad = wr;
		return EPERM;
	}
	pthread_mutex_lock(&srq->post_lock);
	for (; wr; wr = wr->next) {
		rc = recv_queue_post(&srq->rq, wr);
		if (rc) {
			*bad = wr;
			break;
		}
	}
	pthread_mutex_unlock(&srq->post_lock);
	if (rc)
		log_info("post_srq_recv: %d SGEs (at most %u), %u receives posted (at most %u): %s",
			 wr->num_sge, srq->rq.max_sge, ring_count(&srq->rq.ring), srq->rq.ring.max,
			 strerror(rc));
	return rc;
}
