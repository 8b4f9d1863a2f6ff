/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What follows when a CQ is full: an event, and its queue pairs go to the error state; its XRC SRQs are
 * broken, and targets that use them go to that state then or with their next message. That can't
 * happen within the completion that didn't fit, which comes from the middle of a queue pair's work;
 * so a thread is started for it, once in the life of a CQ, and joined before the CQ goes.
 */
#include "base/log.h"
#include "device/xrc.h"

static void fail(struct dev_cq *cq, struct dev_qp *qp)
{
	struct qp *t = &qp->eqp.qp;
	int state = atomic_load(&t->state);

	if (state == IBV_QPS_RESET || state == IBV_QPS_ERR)
		return;
	qp_fatal(t, IBV_EVENT_QP_FATAL);
	engine_kick(cq->ctx->engine, &qp->eqp);
}

static void *reap(void *arg)
{
	struct dev_cq *cq = arg;
	struct list *pos;

	engine_lock(cq->ctx->engine);
	list_for_each(pos, &cq->send_qps) fail(cq, container_of(pos, struct dev_qp, send_link));
	list_for_each(pos, &cq->recv_qps) fail(cq, container_of(pos, struct dev_qp, recv_link));
	list_for_each(pos, &cq->srqs) xrc_srq_break(container_of(pos, struct dev_srq, cq_link));
	engine_unlock(cq->ctx->engine);
	return NULL;
}

void dev_cq_overrun(struct dev_cq *cq, uint32_t qpn)
{
	int rc;

	if (cq->ignore_overrun || atomic_load_explicit(&cq->overrun, memory_order_relaxed))
		return;
	atomic_store(&cq->overrun, true);
	cq->lost_qpn = qpn;
	log_info("a completion queue of %d entries is full and a completion is lost: create it "
		 "with as many "
		 "entries as work requests may be outstanding on its queue pairs",
		 cq->ibv.cqe);
	dev_async_post(cq->ctx, IBV_EVENT_CQ_ERR, cq);
	rc = pthread_create(&cq->reaper, NULL, reap, cq);
	cq->has_reaper = rc == 0;
	if (rc)
		log_error("completion queue overrun: can't start a thread: %s", strerror(rc));
}

void dev_cq_overrun_finish(struct dev_cq *cq)
{
	bool join;

	engine_lock(cq->ctx->engine);
	join = cq->has_reaper;
	cq->has_reaper = false;
	engine_unlock(cq->ctx->engine);
	if (join)
		pthread_join(cq->reaper, NULL);
}
