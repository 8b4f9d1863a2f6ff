/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting: the way every message begins. Under the queue's own lock each request goes into the
 * ring, then the engine is kicked once for the whole chain; nobody else's lock is waited for.
 */
#include "device/device.h"

static bool is_in_error(const struct dev_qp *qp)
{
	return atomic_load_explicit(&qp->eqp.qp.state, memory_order_acquire) == IBV_QPS_ERR;
}

int dev_qp_post_one(struct dev_qp *qp, const struct ibv_send_wr *wr)
{
	const struct dev_ah *ah = NULL;

	if (qp->ibv.qp_base.qp_type == IBV_QPT_UD)
		ah = (const struct dev_ah *)wr->wr.ud.ah;
	return qp_post_send(&qp->eqp.qp, wr, ah ? &ah->path : NULL);
}

int dev_qp_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct dev_qp *qp = (struct dev_qp *)ibv;
	struct ibv_send_wr *first = wr;
	int rc = 0;

	if (dev_refuse_forked(qp->ctx)) {
		*bad = wr;
		return EPERM;
	}
	pthread_mutex_lock(&qp->send_lock);
	for (; wr; wr = wr->next) {
		rc = dev_qp_post_one(qp, wr);
		if (__builtin_expect(rc, 0)) {
			*bad = wr;
			break;
		}
	}
	pthread_mutex_unlock(&qp->send_lock);
	if (wr != first)
		engine_kick(qp->engine, &qp->eqp);
	return rc;
}

int dev_qp_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct dev_qp *qp = (struct dev_qp *)ibv;
	int rc = 0;

	if (dev_refuse_forked(qp->ctx)) {
		*bad = wr;
		return EPERM;
	}
	pthread_mutex_lock(&qp->recv_lock);
	for (; wr; wr = wr->next) {
		rc = qp_post_recv(&qp->eqp.qp, wr);
		if (__builtin_expect(rc, 0)) {
			*bad = wr;
			break;
		}
	}
	pthread_mutex_unlock(&qp->recv_lock);
	/* A receive waits for a packet; only in ERR there is something to do: flush it. */
	if (__builtin_expect(is_in_error(qp), 0))
		engine_kick(qp->engine, &qp->eqp);
	return rc;
}
