/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: a ring with one producer, the engine, which writes slots and tail under its
 * lock, and pollers, which read slots and write head under the poll lock. They don't share a lock.
 *
 * slots and mask change (resize, clean) only under both locks. A full ring is never written to: the
 * CQ is in error from then on (IBA 11.6.3.1).
 */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "device/device.h"

static uint32_t ring_size(uint32_t cqe)
{
	uint32_t size = 8;

	while (size < cqe)
		size <<= 1;
	return size;
}

static struct cq_slot *alloc_slots(uint32_t n)
{
	void *slots = aligned_alloc(64, (size_t)n * sizeof(struct cq_slot));

	if (!slots)
		log_info("no memory for a completion queue of %u entries", n);
	return slots;
}

static void init_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	/* A program may destroy a queue pair between start_poll and end_poll, which cleans the CQ.
	 */
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static int check(const struct dev_context *ctx, const struct ibv_cq_init_attr_ex *attr)
{
	const struct ibv_context *ibv = &ctx->verbs.context;

	if (attr->cqe < 1 || attr->cqe > DEV_MAX_CQE) {
		log_info("create_cq: cqe is %u, must be 1 to %d", attr->cqe, DEV_MAX_CQE);
		return -EINVAL;
	}
	if (attr->comp_vector >= (uint32_t)ibv->num_comp_vectors) {
		log_info("create_cq: comp_vector is %u, must be below %d", attr->comp_vector,
			 ibv->num_comp_vectors);
		return -EINVAL;
	}
	if (attr->channel && attr->channel->context != ibv) {
		log_info("create_cq: channel is of another context");
		return -EINVAL;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD &&
	    (!attr->parent_domain || attr->parent_domain->context != ibv ||
	     !((struct dev_pd *)attr->parent_domain)->parent)) {
		log_info("create_cq: parent_domain must be one of this context's");
		return -EINVAL;
	}
	return 0;
}

int dev_cq_create(struct dev_context *ctx, const struct ibv_cq_init_attr_ex *attr,
		  struct dev_cq **out)
{
	struct dev_channel *ch = (struct dev_channel *)attr->channel;
	struct dev_cq *cq;
	uint32_t size;
	int rc;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	rc = check(ctx, attr);
	if (rc)
		return rc;
	rc = dev_limit_take(ctx->dev, DEV_CQ);
	if (rc)
		return rc;
	cq = aligned_alloc(64, sizeof(*cq));
	if (!cq) {
		log_info("create_cq: out of memory");
		dev_limit_give(ctx->dev, DEV_CQ);
		return -ENOMEM;
	}
	memset(cq, 0, sizeof(*cq));
	size = ring_size(attr->cqe);
	cq->slots = alloc_slots(size);
	if (!cq->slots) {
		dev_limit_give(ctx->dev, DEV_CQ);
		free(cq);
		return -ENOMEM;
	}
	cq->mask = size - 1;
	cq->ctx = ctx;
	cq->ibv.context = &ctx->verbs.context;
	cq->ibv.channel = attr->channel;
	cq->ibv.cq_context = attr->cq_context;
	cq->ibv.cqe = (int)size;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	init_lock(&cq->poll_lock);
	list_init(&cq->pending_link);
	list_init(&cq->send_qps);
	list_init(&cq->recv_qps);
	list_init(&cq->srqs);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		cq->domain = (struct dev_pd *)attr->parent_domain;
	dev_object_add(
		ctx, DEV_CQ, &cq->link,
		(int *[]){ ch ? &ch->ibv.refcnt : NULL, cq->domain ? &cq->domain->users : NULL },
		2);
	*out = cq;
	return 0;
}

void dev_cq_release(struct dev_cq *cq)
{
	dev_cq_notify_stop(cq);
	dev_cq_overrun_finish(cq);
	pthread_mutex_destroy(&cq->poll_lock);
	pthread_mutex_destroy(&cq->ibv.mutex);
	pthread_cond_destroy(&cq->ibv.cond);
	free(cq->slots);
	dev_limit_give(cq->ctx->dev, DEV_CQ);
	free(cq);
}

/* ibv_destroy_cq(3): waits until all events that were read are acknowledged. */
static void await_acks(struct dev_cq *cq)
{
	unsigned events_read = 0;

	dev_async_forget(cq->ctx, cq);
	if (cq->ibv.channel)
		events_read = dev_channel_forget((struct dev_channel *)cq->ibv.channel, cq);
	pthread_mutex_lock(&cq->ibv.mutex);
	while (cq->ibv.comp_events_completed != events_read ||
	       cq->ibv.async_events_completed != cq->async_read)
		pthread_cond_wait(&cq->ibv.cond, &cq->ibv.mutex);
	pthread_mutex_unlock(&cq->ibv.mutex);
}

int dev_cq_destroy(struct ibv_cq *ibv)
{
	struct dev_cq *cq = (struct dev_cq *)ibv;
	struct dev_channel *ch = (struct dev_channel *)ibv->channel;
	int rc;

	if (dev_forked(cq->ctx))
		return 0;
	rc = dev_object_remove(cq->ctx, &cq->link, &cq->users,
			       (int *[]){ cq->domain ? &cq->domain->users : NULL }, 1);
	if (rc) {
		log_info("destroy_cq: queue pairs still use it");
		return rc;
	}
	dev_cq_notify_stop(cq);
	await_acks(cq);
	/* Only now: the channel may be destroyed as soon as nobody uses it. */
	if (ch)
		dev_object_unuse(cq->ctx, &ch->ibv.refcnt);
	dev_cq_release(cq);
	return 0;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

void dev_cq_complete(void *arg, const struct ibv_wc *wc, bool solicited)
{
	struct dev_cq *cq = arg;
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	struct cq_slot *slot;

	if (__builtin_expect(tail - atomic_load_explicit(&cq->head, memory_order_acquire) >
					     cq->mask ||
				     engine_fault_cq_overrun(cq->ctx->engine),
			     0)) {
		dev_cq_overrun(cq, wc->qp_num);
		return;
	}
	slot = &cq->slots[tail & cq->mask];
	slot->wc = *wc;
	if (cq->stamped)
		slot->stamp_ns = now_ns(CLOCK_MONOTONIC);
	if (cq->wall_stamped)
		slot->wall_ns = now_ns(CLOCK_REALTIME);
	if (!cq->ibv.channel) {
		atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
		return;
	}
	atomic_store(&cq->tail, tail + 1);
	dev_cq_notify(cq, wc->status != IBV_WC_SUCCESS, solicited);
}

bool dev_cq_pop(struct dev_cq *cq, struct cq_slot *slot)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);

	if (head == atomic_load_explicit(&cq->tail, memory_order_acquire))
		return false;
	*slot = cq->slots[head & cq->mask];
	atomic_store_explicit(&cq->head, head + 1, memory_order_release);
	return true;
}

static int pop(struct dev_cq *cq, int n, struct ibv_wc *wc)
{
	uint32_t head, count;

	if (atomic_load_explicit(&cq->head, memory_order_relaxed) ==
	    atomic_load_explicit(&cq->tail, memory_order_relaxed))
		return 0;
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	count = atomic_load_explicit(&cq->tail, memory_order_acquire) - head;
	if (count > (uint32_t)n)
		count = (uint32_t)n;
	for (uint32_t i = 0; i < count; i++)
		wc[i] = cq->slots[(head + i) & cq->mask].wc;
	atomic_store_explicit(&cq->head, head + count, memory_order_release);
	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
	return (int)count;
}

int dev_cq_poll(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct dev_cq *cq = (struct dev_cq *)ibv;
	int got;

	if (n <= 0) {
		if (n < 0)
			log_info("poll_cq: num_entries is %d, must be at least 0", n);
		return n < 0 ? -1 : 0;
	}
	got = pop(cq, n, wc);
	if (got || dev_forked(cq->ctx))
		return got;
	engine_poll(cq->ctx->engine);
	return pop(cq, n, wc);
}

int dev_cq_resize(struct ibv_cq *ibv, int cqe)
{
	struct dev_cq *cq = (struct dev_cq *)ibv;
	struct engine *e = cq->ctx->engine;
	struct cq_slot *slots, *old;
	uint32_t head, count, size;

	if (dev_refuse_forked(cq->ctx))
		return -EPERM;
	if (cqe < 1 || cqe > DEV_MAX_CQE) {
		log_info("resize_cq: cqe is %d, must be 1 to %d", cqe, DEV_MAX_CQE);
		return -EINVAL;
	}
	size = ring_size((uint32_t)cqe);
	slots = alloc_slots(size);
	if (!slots)
		return -ENOMEM;
	pthread_mutex_lock(&cq->poll_lock);
	engine_lock(e);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	count = atomic_load_explicit(&cq->tail, memory_order_relaxed) - head;
	old = slots;
	if (count <= (uint32_t)cqe) {
		for (uint32_t i = 0; i < count; i++)
			slots[(head + i) & (size - 1)] = cq->slots[(head + i) & cq->mask];
		old = cq->slots;
		cq->slots = slots;
		cq->mask = size - 1;
		ibv->cqe = (int)size;
	}
	engine_unlock(e);
	pthread_mutex_unlock(&cq->poll_lock);
	free(old);
	if (count > (uint32_t)cqe) {
		log_info("resize_cq: cqe %d is below the %u completions waiting in it", cqe, count);
		return -EINVAL;
	}
	return 0;
}

void dev_cq_clean(struct dev_cq *cq, uint32_t qpn)
{
	uint32_t head, tail, to;

	pthread_mutex_lock(&cq->poll_lock);
	engine_lock(cq->ctx->engine);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	/* From the newest to the oldest, so that pollers' head moves rather than the engine's tail.
	 */
	for (uint32_t from = to = tail; from != head;) {
		const struct cq_slot *slot = &cq->slots[--from & cq->mask];

		if (slot->wc.qp_num != qpn)
			cq->slots[--to & cq->mask] = *slot;
	}
	atomic_store_explicit(&cq->head, to, memory_order_release);
	engine_unlock(cq->ctx->engine);
	pthread_mutex_unlock(&cq->poll_lock);
}
