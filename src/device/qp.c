/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs: life and states. The transport's object does the work; here are its references to
 * other objects, its place in the engine, and its events.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "device/xrc_remote.h"

static void post_event(struct qp *t, enum ibv_event_type type)
{
	struct engine_qp *eqp = container_of(t, struct engine_qp, qp);
	struct dev_qp *qp = container_of(eqp, struct dev_qp, eqp);

	dev_async_post(qp->ctx, type, qp);
}

static const struct qp_ops ops = { .complete = dev_cq_complete, .event = post_event };

static int check_references(const struct dev_context *ctx, const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_context *ibv = &ctx->verbs.context;
	bool initiator = attr->qp_type == IBV_QPT_XRC_SEND;
	const char *wrong = NULL;

	if (!attr->pd || attr->pd->context != ibv)
		wrong = "pd";
	else if (!attr->send_cq || attr->send_cq->context != ibv)
		wrong = "send_cq";
	else if (!initiator && (!attr->recv_cq || attr->recv_cq->context != ibv))
		wrong = "recv_cq";
	else if (!initiator && attr->srq &&
		 (attr->srq->context != ibv || ((struct dev_srq *)attr->srq)->xrcd))
		wrong = "srq";
	if (!wrong)
		return 0;
	log_info("create_qp: %s is %s, it must be an object of this context", wrong,
		 "NULL, of another context or (an SRQ) for XRC");
	return -EINVAL;
}

static int check_type(const struct ibv_qp_init_attr_ex *attr)
{
	switch ((int)attr->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return 0;
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_DRIVER:
		log_info("create_qp: qp_type %d isn't there, RC, UC, UD and XRC are",
			 attr->qp_type);
		return -EOPNOTSUPP;
	default:
		log_info("create_qp: qp_type %d is unknown; IBV_QPT_RC, _UC and _UD are right",
			 attr->qp_type);
		return -EINVAL;
	}
}

static int check_mask(const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			       (attr->qp_type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : 0);

	if (attr->comp_mask & ~known) {
		log_info("create_qp: comp_mask 0x%x: of its bits, 0x%x are there", attr->comp_mask,
			 known);
		return -EOPNOTSUPP;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) && attr->qp_type != IBV_QPT_XRC_RECV) {
		log_info("create_qp: comp_mask has no IBV_QP_INIT_ATTR_PD");
		return -EINVAL;
	}
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) {
		log_info("create_qp: create_flags 0x%x: none is there, use 0", attr->create_flags);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int start(struct dev_qp *qp, struct ibv_qp_init_attr_ex *attr)
{
	struct dev_cq *send_cq = (struct dev_cq *)attr->send_cq,
		      *recv_cq = (struct dev_cq *)attr->recv_cq;
	struct dev_srq *srq = (struct dev_srq *)attr->srq;
	struct qp_config config = {
		.ops = &ops,
		.mem = engine_mem(qp->engine),
		.type = attr->qp_type,
		.pd = qp->pd,
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.srq = srq ? &srq->rq : NULL,
		.cap = attr->cap,
		.sq_sig_all = attr->sq_sig_all,
	};
	int rc = qp_init(&qp->eqp.qp, &config);

	if (rc) {
		const struct ibv_qp_cap *cap = &attr->cap;

		log_info("create_qp: cap: %u and %u work requests (at most %d), %u and %u SGEs "
			 "(%d), inline %u "
			 "(%d): %s",
			 cap->max_send_wr, cap->max_recv_wr, QP_MAX_WR, cap->max_send_sge,
			 cap->max_recv_sge, QP_MAX_SGE, cap->max_inline_data, QP_MAX_INLINE,
			 strerror(-rc));
		return rc;
	}
	engine_lock(qp->engine);
	rc = engine_add_qp(qp->engine, &qp->eqp);
	if (!rc) {
		list_append(&send_cq->send_qps, &qp->send_link);
		if (recv_cq)
			list_append(&recv_cq->recv_qps, &qp->recv_link);
	}
	engine_unlock(qp->engine);
	if (rc) {
		log_info("create_qp: no queue pair number to be had: %s", strerror(-rc));
		qp_destroy(&qp->eqp.qp);
		return rc;
	}
	attr->cap = config.cap;
	return 0;
}

static void fill_public(struct dev_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *ibv = &qp->ibv.qp_base;

	*ibv = (struct ibv_qp){
		.context = &qp->ctx->verbs.context,
		.qp_context = attr->qp_context,
		.pd = attr->pd,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.handle = qp->eqp.qp.qpn,
		.qp_num = qp->eqp.qp.qpn,
		.state = IBV_QPS_RESET,
		.qp_type = attr->qp_type,
	};
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
}

static void free_qp(struct dev_qp *qp)
{
	dev_limit_give(qp->ctx->dev, DEV_QP);
	dev_qp_builder_destroy(qp);
	pthread_mutex_destroy(&qp->send_lock);
	pthread_mutex_destroy(&qp->recv_lock);
	free(qp);
}

static int *cq_users(struct ibv_cq *cq)
{
	return cq ? &((struct dev_cq *)cq)->users : NULL;
}

static int *srq_users(struct ibv_srq *srq)
{
	return srq ? &((struct dev_srq *)srq)->users : NULL;
}

static int create(struct dev_context *ctx, struct ibv_qp_init_attr_ex *attr, struct dev_qp **out)
{
	struct dev_qp *qp;
	int rc;

	rc = check_references(ctx, attr);
	if (!rc)
		rc = dev_pd_check(attr->pd, "create_qp");
	if (rc)
		return rc;
	rc = dev_limit_take(ctx->dev, DEV_QP);
	if (rc)
		return rc;
	qp = dev_zalloc(sizeof(*qp));
	if (!qp) {
		dev_limit_give(ctx->dev, DEV_QP);
		return -ENOMEM;
	}
	qp->ctx = ctx;
	qp->engine = ctx->engine;
	qp->pd = ((struct dev_pd *)attr->pd)->object;
	qp->sq_sig_all = attr->sq_sig_all;
	list_init(&qp->send_link);
	list_init(&qp->recv_link);
	pthread_mutex_init(&qp->send_lock, NULL);
	pthread_mutex_init(&qp->recv_lock, NULL);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		rc = dev_qp_builder_create(qp, attr->qp_type, attr->send_ops_flags);
	if (!rc)
		rc = start(qp, attr);
	if (rc) {
		free_qp(qp);
		return rc;
	}
	fill_public(qp, attr);
	dev_object_add(ctx, DEV_QP, &qp->link,
		       (int *[]){ DEV_PD_USERS(attr->pd), cq_users(attr->send_cq),
				  cq_users(attr->recv_cq), srq_users(attr->srq) },
		       5);
	*out = qp;
	return 0;
}

int dev_qp_create(struct dev_context *ctx, struct ibv_qp_init_attr_ex *attr, struct dev_qp **out)
{
	struct ibv_qp_init_attr_ex own = *attr;
	int rc;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	rc = dev_check_alive(ctx);
	if (!rc)
		rc = check_type(attr);
	if (!rc)
		rc = check_mask(attr);
	if (rc)
		return rc;
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return dev_xrc_target_create(ctx, attr, out);
	/* An initiator receives nothing; what is given for it is ignored, as on other devices. */
	if (attr->qp_type == IBV_QPT_XRC_SEND) {
		own.recv_cq = NULL;
		own.srq = NULL;
	}
	rc = create(ctx, &own, out);
	if (!rc)
		attr->cap = own.cap;
	return rc;
}

static void forget_peer(struct engine *e, struct engine_qp *eqp, bool *expecting)
{
	if (*expecting)
		engine_forget_peer(e, eqp);
	*expecting = false;
}

/* Out of the engine: from here on no packet, completion or event of it comes. */
static void stop(struct dev_qp *qp)
{
	engine_lock(qp->engine);
	forget_peer(qp->engine, &qp->eqp, &qp->expecting);
	engine_remove_qp(qp->engine, &qp->eqp);
	qp_unbind(&qp->eqp.qp);
	list_remove(&qp->send_link);
	list_remove(&qp->recv_link);
	engine_unlock(qp->engine);
}

void dev_qp_release(struct dev_qp *qp)
{
	if (qp->xrcd) {
		dev_xrc_target_release(qp);
		return;
	}
	stop(qp);
	qp_destroy(&qp->eqp.qp);
	pthread_mutex_destroy(&qp->ibv.qp_base.mutex);
	pthread_cond_destroy(&qp->ibv.qp_base.cond);
	free_qp(qp);
}

static void clean_cqs(struct ibv_qp *ibv)
{
	if (ibv->send_cq)
		dev_cq_clean((struct dev_cq *)ibv->send_cq, ibv->qp_num);
	if (ibv->recv_cq && ibv->recv_cq != ibv->send_cq)
		dev_cq_clean((struct dev_cq *)ibv->recv_cq, ibv->qp_num);
}

int dev_qp_destroy(struct ibv_qp *ibv)
{
	struct dev_qp *qp = (struct dev_qp *)ibv;

	if (dev_forked(qp->ctx))
		return 0;
	if (qp->xrcd)
		return dev_xrc_target_close(qp);
	stop(qp);
	clean_cqs(ibv);
	dev_object_remove(qp->ctx, &qp->link, NULL,
			  (int *[]){ DEV_PD_USERS(ibv->pd), cq_users(ibv->send_cq),
				     cq_users(ibv->recv_cq), srq_users(ibv->srq) },
			  5);
	dev_async_forget(qp->ctx, qp);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != qp->async_read)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	qp_destroy(&qp->eqp.qp);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free_qp(qp);
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

/* The transport's object: the queue pair's own, or the target's that it is a handle on. */
static struct engine_qp *transport(struct dev_qp *qp)
{
	return qp->target ? &qp->target->eqp : &qp->eqp;
}

/* Under the engine lock: the flow the peer's packets come by changes with address, QPN and state.
 */
static int modify(struct engine *e, struct engine_qp *eqp, bool *expecting, struct dev *dev,
		  const struct ibv_qp_attr *attr, int mask, const struct path *path, char *why,
		  size_t why_len)
{
	bool readdress = mask & (IBV_QP_AV | IBV_QP_DEST_QPN);
	bool was_expecting = *expecting;
	int state, rc;

	if (readdress || ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET))
		forget_peer(e, eqp, expecting);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR)
		engine_pay_debts(e);
	rc = qp_modify(&eqp->qp, attr, mask, path, dev_mtu(dev), now_ns(), why, why_len);
	state = atomic_load(&eqp->qp.state);
	if (eqp->qp.cfg.type != IBV_QPT_UD && !*expecting &&
	    (was_expecting || (!rc && readdress)) && state != IBV_QPS_RESET) {
		engine_expect_peer(e, eqp);
		*expecting = true;
	}
	if (!rc)
		engine_kick(e, eqp);
	return rc;
}

/* What the device knows of: the path of the address, if there is one, and the port. */
static int resolve(struct dev *dev, const struct ibv_qp_attr *attr, int mask, struct path *path,
		   char *why, size_t why_len)
{
	int rc = 0;

	if (mask & IBV_QP_AV)
		rc = -dev_path_resolve(dev, &attr->ah_attr, path, why, why_len);
	if (!rc && (mask & IBV_QP_PORT) && attr->port_num != DEV_PORT) {
		snprintf(why, why_len, "port_num is %u, the device has port %u", attr->port_num,
			 DEV_PORT);
		rc = EINVAL;
	}
	return rc;
}

int dev_qp_modify_target(struct xrc_target *target, const struct ibv_qp_attr *attr, int mask)
{
	char why[256] = "";
	struct path path;
	int rc = resolve(target->dev, attr, mask, &path, why, sizeof(why));

	if (!rc)
		rc = modify(target->engine, &target->eqp, &target->expecting, target->dev, attr,
			    mask, mask & IBV_QP_AV ? &path : NULL, why, sizeof(why));
	if (rc)
		log_info("modify_qp 0x%06x, by another process: %s", target->eqp.qp.qpn,
			 *why ? why : strerror(rc));
	return -rc;
}

int dev_qp_modify(struct ibv_qp *ibv, const struct ibv_qp_attr *attr, int mask)
{
	struct dev_qp *qp = (struct dev_qp *)ibv;
	bool resets = (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET;
	bool *expecting = qp->target ? &qp->target->expecting : &qp->expecting;
	char why[256] = "";
	struct path path;
	int rc;

	if (dev_refuse_forked(qp->ctx))
		return -EPERM;
	if (dev_check_alive(qp->ctx))
		return -EIO;
	if (qp->remote_id)
		return xrc_remote_modify(qp, attr, mask);
	rc = resolve(qp->ctx->dev, attr, mask, &path, why, sizeof(why));
	/* No poster writes to a queue that is being reset. */
	if (resets) {
		pthread_mutex_lock(&qp->send_lock);
		pthread_mutex_lock(&qp->recv_lock);
	}
	engine_lock(qp->engine);
	if (!rc)
		rc = modify(qp->engine, transport(qp), expecting, qp->ctx->dev, attr, mask,
			    mask & IBV_QP_AV ? &path : NULL, why, sizeof(why));
	engine_unlock(qp->engine);
	if (resets) {
		pthread_mutex_unlock(&qp->recv_lock);
		pthread_mutex_unlock(&qp->send_lock);
	}
	if (rc) {
		log_info("modify_qp 0x%06x: %s", ibv->qp_num, *why ? why : strerror(rc));
		return -rc;
	}
	if (mask & IBV_QP_STATE)
		ibv->state = attr->qp_state;
	if (resets)
		clean_cqs(ibv);
	return 0;
}

int dev_qp_query(struct ibv_qp *ibv, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	struct dev_qp *qp = (struct dev_qp *)ibv;

	if (dev_refuse_forked(qp->ctx))
		return -EPERM;
	if (qp->remote_id) {
		int rc = xrc_remote_query(qp, attr);

		if (rc)
			return rc;
	} else {
		engine_lock(qp->engine);
		qp_query(&transport(qp)->qp, attr);
		engine_unlock(qp->engine);
	}
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.srq = ibv->srq,
		.cap = attr->cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	ibv->state = attr->qp_state;
	return 0;
}
