/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC target queue pairs and the handles on them (xrc.h). A handle is a dev_qp whose own transport
 * object only refuses what is posted to it.
 */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "device/xrc_remote.h"
#include "transport/relay.h"

/* All, under the engine lock. */
static struct list targets = { &targets, &targets };

#define RELAY_WAITS 1000 /* of 50 us and more */

static struct xrc_target *target_of(struct qp *qp)
{
	return container_of(container_of(qp, struct engine_qp, qp), struct xrc_target, eqp);
}

/* Every handle hears of it; engine. */
static void post_event(struct qp *qp, enum ibv_event_type type)
{
	struct list *pos;

	list_for_each(pos, &target_of(qp)->handles)
	{
		struct dev_qp *handle = container_of(pos, struct dev_qp, handle_link);

		dev_async_post(handle->ctx, type, handle);
	}
	xrc_openers_event(target_of(qp), type);
}

static const struct qp_ops ops = { .complete = dev_cq_complete, .event = post_event };

static int check_xrcd(const char *call, const struct dev_context *ctx, bool given,
		      const struct ibv_xrcd *xrcd)
{
	if (given && xrcd && xrcd->context == &ctx->verbs.context)
		return 0;
	log_info("%s: xrcd must be given, of this context, and its bit set in comp_mask", call);
	return -EINVAL;
}

static struct dev_qp *make_handle(struct dev_context *ctx, struct dev_xrcd *xrcd, void *context)
{
	static struct recv_queue not_here;
	struct dev_qp *qp = dev_zalloc(sizeof(*qp));

	if (!qp)
		return NULL;
	qp->ctx = ctx;
	qp->engine = ctx->engine;
	qp->xrcd = xrcd;
	qp->ibv.qp_base.context = &ctx->verbs.context;
	qp->ibv.qp_base.qp_context = context;
	qp->ibv.qp_base.qp_type = IBV_QPT_XRC_RECV;
	qp->eqp.qp.cfg.type = IBV_QPT_XRC_RECV;
	qp->eqp.qp.cfg.srq = &not_here;
	atomic_store(&qp->eqp.qp.state, IBV_QPS_RTS);
	list_init(&qp->send_link);
	list_init(&qp->recv_link);
	list_init(&qp->handle_link);
	pthread_mutex_init(&qp->send_lock, NULL);
	pthread_mutex_init(&qp->recv_lock, NULL);
	pthread_mutex_init(&qp->ibv.qp_base.mutex, NULL);
	pthread_cond_init(&qp->ibv.qp_base.cond, NULL);
	return qp;
}

static void free_handle(struct dev_qp *qp)
{
	pthread_mutex_destroy(&qp->send_lock);
	pthread_mutex_destroy(&qp->recv_lock);
	pthread_mutex_destroy(&qp->ibv.qp_base.mutex);
	pthread_cond_destroy(&qp->ibv.qp_base.cond);
	free(qp);
}

/* Under the engine lock. */
static void attach(struct dev_qp *handle, struct xrc_target *target)
{
	struct ibv_qp *ibv = &handle->ibv.qp_base;

	handle->target = target;
	list_append(&target->handles, &handle->handle_link);
	ibv->handle = ibv->qp_num = handle->eqp.qp.qpn = target->eqp.qp.qpn;
	ibv->state = (enum ibv_qp_state)atomic_load(&target->eqp.qp.state);
}

static void publish(struct dev_qp *handle, struct dev_qp **out)
{
	dev_object_add(handle->ctx, DEV_QP, &handle->link, (int *[]){ &handle->xrcd->users }, 1);
	*out = handle;
}

static void target_destroy(struct xrc_target *target)
{
	qp_destroy(&target->eqp.qp);
	dev_limit_give(target->dev, DEV_QP);
	xrc_domain_put(target->domain);
	free(target);
}

static int target_new(struct dev_context *ctx, struct xrc_domain *domain, struct dev_qp *handle)
{
	struct qp_config config = {
		.ops = &ops,
		.mem = engine_mem(ctx->engine),
		.type = IBV_QPT_XRC_RECV,
		.find_srq = xrc_find_srq,
		.xrcd = domain,
		.relay = &xrc_relay_ops,
	};
	struct xrc_target *target;
	int rc = dev_limit_take(ctx->dev, DEV_QP);

	if (rc)
		return rc;
	target = dev_zalloc(sizeof(*target));
	rc = target ? qp_init(&target->eqp.qp, &config) : -ENOMEM;
	if (rc) {
		dev_limit_give(ctx->dev, DEV_QP);
		free(target);
		return rc;
	}
	target->engine = ctx->engine;
	target->domain = xrc_domain_get(domain);
	target->creator = ctx;
	target->stream = xrc_random();
	xrc_openers_init(target);
	target->dev = ctx->dev;
	list_init(&target->handles);
	engine_lock(ctx->engine);
	rc = engine_add_qp(ctx->engine, &target->eqp);
	if (!rc) {
		list_append(&domain->targets, &target->link);
		list_append(&targets, &target->all);
		attach(handle, target);
	}
	engine_unlock(ctx->engine);
	if (rc) {
		log_info("create_qp: no queue pair number to be had: %s", strerror(-rc));
		target_destroy(target);
		return rc;
	}
	return 0;
}

int dev_xrc_target_create(struct dev_context *ctx, struct ibv_qp_init_attr_ex *attr,
			  struct dev_qp **out)
{
	struct dev_xrcd *xrcd = (struct dev_xrcd *)attr->xrcd;
	struct dev_qp *handle;
	int rc = check_xrcd("create_qp", ctx, attr->comp_mask & IBV_QP_INIT_ATTR_XRCD, attr->xrcd);

	if (rc)
		return rc;
	handle = make_handle(ctx, xrcd, attr->qp_context);
	if (!handle)
		return -ENOMEM;
	rc = target_new(ctx, xrcd->domain, handle);
	if (rc) {
		free_handle(handle);
		return rc;
	}
	attr->cap = (struct ibv_qp_cap){ 0 };
	publish(handle, out);
	return 0;
}

/* Under the engine lock. */
static struct xrc_target *find_target(const struct xrc_domain *domain, uint32_t qpn)
{
	struct list *pos;

	list_for_each(pos, &domain->targets)
	{
		struct xrc_target *target = container_of(pos, struct xrc_target, link);

		if (target->eqp.qp.qpn == qpn)
			return target;
	}
	return NULL;
}

static int check_open(const struct dev_context *ctx, const struct ibv_qp_open_attr *attr)
{
	const uint32_t must = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	if (attr->comp_mask & ~(must | IBV_QP_OPEN_ATTR_CONTEXT)) {
		log_info("open_qp: comp_mask 0x%x has undefined bits", attr->comp_mask);
		return -EOPNOTSUPP;
	}
	if ((attr->comp_mask & must) != must || attr->qp_type != IBV_QPT_XRC_RECV) {
		log_info("open_qp: comp_mask 0x%x must hold 0x%x, and qp_type be IBV_QPT_XRC_RECV",
			 attr->comp_mask, must);
		return -EINVAL;
	}
	return check_xrcd("open_qp", ctx, true, attr->xrcd);
}

int dev_xrc_target_open(struct dev_context *ctx, const struct ibv_qp_open_attr *attr,
			struct dev_qp **out)
{
	struct dev_xrcd *xrcd = (struct dev_xrcd *)attr->xrcd;
	struct xrc_target *target;
	struct dev_qp *handle;
	bool elsewhere;
	int rc = check_open(ctx, attr);

	if (rc)
		return rc;
	handle = make_handle(ctx, xrcd,
			     attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL);
	if (!handle)
		return -ENOMEM;
	engine_lock(ctx->engine);
	elsewhere = xrcd->domain->claim >= 0 && !engine_owns_qpn(ctx->engine, attr->qp_num);
	target = find_target(xrcd->domain, attr->qp_num);
	if (target)
		attach(handle, target);
	engine_unlock(ctx->engine);
	rc = target ? 0 : -EINVAL;
	if (!target && elsewhere)
		rc = xrc_remote_open(handle, attr->qp_num);
	else if (!target)
		log_info("open_qp: the domain has no target 0x%06x", attr->qp_num);
	if (rc) {
		free_handle(handle);
		return rc;
	}
	publish(handle, out);
	return 0;
}

/*
 * A program that learnt from another of the domain that a message has arrived may destroy the target
 * before the other engine's answer is here, and so the acknowledgement isn't sent: as long as an answer
 * takes, it is waited for.
 */
static void await_relay(struct dev_qp *handle)
{
	struct xrc_target *target = handle->target;
	const struct timespec pause = { .tv_nsec = 50000 };

	for (unsigned i = 0; i < RELAY_WAITS; i++) {
		bool waits;

		engine_lock(target->engine);
		waits = target->eqp.qp.resp.relay.run &&
			handle->handle_link.next == &target->handles &&
			handle->handle_link.prev == &target->handles;
		engine_unlock(target->engine);
		if (!waits)
			return;
		nanosleep(&pause, NULL);
		engine_poll(target->engine);
	}
}

/* Under the lock; without a handle left. */
static void unlink_target(struct xrc_target *target)
{
	xrc_openers_end(target);
	if (target->expecting)
		engine_forget_peer(target->engine, &target->eqp);
	relay_clear(&target->eqp.qp);
	engine_alarm_cancel(target->engine, &target->alarm);
	engine_remove_qp(target->engine, &target->eqp);
	list_remove(&target->link);
	list_remove(&target->all);
}

void xrc_target_end(struct xrc_target *target)
{
	unlink_target(target);
	target_destroy(target);
}

static void detach(struct dev_qp *handle)
{
	struct xrc_target *target = handle->target;
	bool last;

	if (!target) {
		xrc_remote_close(handle);
		return;
	}
	await_relay(handle);
	engine_lock(target->engine);
	list_remove(&handle->handle_link);
	last = list_empty(&target->handles) && !(target->creator && xrc_openers_keep(target));
	if (last)
		unlink_target(target);
	engine_unlock(handle->engine);
	if (last)
		target_destroy(target);
}

void xrc_context_closed(struct dev_context *ctx)
{
	struct list *pos, *next;

	engine_lock(ctx->engine);
	for (pos = targets.next; pos != &targets; pos = next) {
		struct xrc_target *target = container_of(pos, struct xrc_target, all);

		next = pos->next;
		if (target->creator != ctx)
			continue;
		target->creator = NULL;
		if (list_empty(&target->handles))
			xrc_target_end(target);
	}
	engine_unlock(ctx->engine);
}

struct xrc_target *xrc_target_find(struct engine *e, uint32_t qpn, const struct xrc_name *name)
{
	struct engine_qp *eqp = engine_find_qp(e, qpn);
	struct xrc_target *target;

	if (!eqp || eqp->qp.cfg.type != IBV_QPT_XRC_RECV)
		return NULL;
	target = container_of(eqp, struct xrc_target, eqp);
	return target->domain->claim >= 0 && memcmp(&target->domain->name, name, sizeof(*name)) == 0
		       ? target
		       : NULL;
}

void xrc_targets_abandon(void)
{
	list_init(&targets);
}

void dev_xrc_target_release(struct dev_qp *handle)
{
	detach(handle);
	free_handle(handle);
}

int dev_xrc_target_close(struct dev_qp *handle)
{
	struct ibv_qp *ibv = &handle->ibv.qp_base;

	detach(handle);
	dev_object_remove(handle->ctx, &handle->link, NULL, (int *[]){ &handle->xrcd->users }, 1);
	dev_async_forget(handle->ctx, handle);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != handle->async_read)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	free_handle(handle);
	return 0;
}
