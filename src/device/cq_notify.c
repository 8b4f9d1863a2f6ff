/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When a completion queue tells its channel. No wake-up is lost: a program arms, then polls; the
 * engine advances the tail, then looks whether it is armed; both in sequentially consistent order,
 * so at least one of them sees the other.
 *
 * Moderation (ibv_modify_cq) holds an event back until there are enough completions for it, or the
 * period since the first of them is over. Errors are told at once.
 */
#include "base/log.h"
#include "device/device.h"

static void tell(struct dev_cq *cq)
{
	engine_alarm_cancel(cq->ctx->engine, &cq->event_alarm);
	cq->since_event = 0;
	cq->held_back = false;
	/* The program may have gone from solicited-only to any meanwhile: either way it is owed an
	 * event. */
	atomic_store(&cq->armed, CQ_IDLE);
	dev_channel_post((struct dev_channel *)cq->ibv.channel, cq);
}

static bool enough(struct dev_cq *cq)
{
	if (cq->event_count == 0 && cq->event_period_ns == 0)
		return true;
	if (cq->event_count && cq->since_event >= cq->event_count)
		return true;
	if (cq->event_period_ns && !cq->event_alarm.due_ns)
		engine_alarm_set(cq->ctx->engine, &cq->event_alarm,
				 engine_now_ns() + cq->event_period_ns);
	cq->held_back = true;
	return false;
}

void dev_cq_notify(struct dev_cq *cq, bool failed, bool solicited)
{
	int armed = atomic_load(&cq->armed);

	cq->since_event++;
	if (armed == CQ_IDLE || (armed == CQ_SOLICITED && !solicited))
		return;
	if (failed || enough(cq))
		tell(cq);
}

static void period_over(struct engine_alarm *a)
{
	tell(container_of(a, struct dev_cq, event_alarm));
}

int dev_cq_moderate(struct ibv_cq *ibv, uint32_t count, uint32_t period_us)
{
	struct dev_cq *cq = (struct dev_cq *)ibv;

	if (dev_refuse_forked(cq->ctx))
		return -EPERM;
	engine_lock(cq->ctx->engine);
	cq->event_alarm.ring = period_over;
	cq->event_count = count;
	cq->event_period_ns = period_us * UINT64_C(1000);
	/* What was held back under the old rule. */
	if (cq->held_back)
		tell(cq);
	engine_unlock(cq->ctx->engine);
	return 0;
}

void dev_cq_notify_stop(struct dev_cq *cq)
{
	engine_lock(cq->ctx->engine);
	engine_alarm_cancel(cq->ctx->engine, &cq->event_alarm);
	engine_unlock(cq->ctx->engine);
}

int dev_cq_req_notify(struct ibv_cq *ibv, int solicited_only)
{
	struct dev_cq *cq = (struct dev_cq *)ibv;
	int wanted = solicited_only ? CQ_SOLICITED : CQ_NEXT;
	int armed = atomic_load_explicit(&cq->armed, memory_order_relaxed);

	if (!cq->ibv.channel) {
		log_info("req_notify_cq: the completion queue was created without a channel");
		return EINVAL;
	}
	/* A request for any completion isn't weakened by one for solicited ones (IBA 11.4.2.2). */
	while (armed < wanted) {
		if (atomic_compare_exchange_weak(&cq->armed, &armed, wanted))
			return 0;
	}
	/* Armed already, but the order with what the program polls next must hold here too. */
	atomic_thread_fence(memory_order_seq_cst);
	return 0;
}
