/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels. Their descriptor is an eventfd that is readable while a CQ has an unread
 * event; what it counts doesn't matter. It is written at every event, so that edge-triggered
 * pollers see each, and emptied when the last is read: both under the channel's lock. Only for the
 * thread that waits in here and drives the engine itself it isn't written: that one takes the event
 * at once, and writes it if it leaves any.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "device/device.h"

int dev_channel_create(struct dev_context *ctx, struct ibv_comp_channel **out)
{
	struct dev_channel *ch;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	ch = dev_zalloc(sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	ch->ibv.context = &ctx->verbs.context;
	ch->ibv.fd = eventfd(0, EFD_CLOEXEC);
	if (ch->ibv.fd < 0) {
		int rc = -errno;

		log_info("create_comp_channel: %s", strerror(-rc));
		free(ch);
		return rc;
	}
	pthread_mutex_init(&ch->lock, NULL);
	list_init(&ch->pending);
	dev_object_add(ctx, DEV_CHANNEL, &ch->link, NULL, 0);
	*out = &ch->ibv;
	return 0;
}

void dev_channel_release(struct dev_channel *ch)
{
	close(ch->ibv.fd);
	pthread_mutex_destroy(&ch->lock);
	free(ch);
}

int dev_channel_destroy(struct ibv_comp_channel *ibv)
{
	struct dev_channel *ch = (struct dev_channel *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	int rc;

	if (dev_forked(ctx))
		return 0;
	rc = dev_object_remove(ctx, &ch->link, &ibv->refcnt, NULL, 0);
	if (rc) {
		log_info("destroy_comp_channel: %d completion queues use it", ibv->refcnt);
		return rc;
	}
	dev_channel_release(ch);
	return 0;
}

/* Under the lock. */
static void signal_fd(struct dev_channel *ch)
{
	const uint64_t one = 1;

	if (write(ch->ibv.fd, &one, sizeof(one)) != sizeof(one))
		log_error("completion channel: can't signal an event: %s", strerror(errno));
	ch->signalled = true;
}

void dev_channel_post(struct dev_channel *ch, struct dev_cq *cq)
{
	pthread_mutex_lock(&ch->lock);
	if (cq->events_pending++ == 0)
		list_append(&ch->pending, &cq->pending_link);
	if (!engine_driver_waits_for(cq->ctx->engine, ch))
		signal_fd(ch);
	pthread_mutex_unlock(&ch->lock);
}

/* Under the lock. */
static void drain(struct dev_channel *ch)
{
	uint64_t count;

	if (!list_empty(&ch->pending) || !ch->signalled)
		return;
	if (read(ch->ibv.fd, &count, sizeof(count)) < 0)
		log_debug("completion channel: %s", strerror(errno));
	ch->signalled = false;
}

static struct dev_cq *take(struct dev_channel *ch)
{
	struct dev_cq *cq = NULL;

	pthread_mutex_lock(&ch->lock);
	if (!list_empty(&ch->pending)) {
		cq = container_of(ch->pending.next, struct dev_cq, pending_link);
		list_remove(&cq->pending_link);
		cq->events_read++;
		/* Others' turn first. */
		if (--cq->events_pending)
			list_append(&ch->pending, &cq->pending_link);
		if (!list_empty(&ch->pending) && !ch->signalled)
			signal_fd(ch);
		drain(ch);
	}
	pthread_mutex_unlock(&ch->lock);
	return cq;
}

static bool has_event(void *arg)
{
	struct dev_channel *ch = arg;
	bool has;

	pthread_mutex_lock(&ch->lock);
	has = !list_empty(&ch->pending);
	pthread_mutex_unlock(&ch->lock);
	return has;
}

int dev_channel_get_event(struct ibv_comp_channel *ibv, struct ibv_cq **out, void **cq_context)
{
	struct dev_channel *ch = (struct dev_channel *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	struct dev_cq *cq;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	while (!(cq = take(ch))) {
		int flags = fcntl(ibv->fd, F_GETFL), rc;

		if (flags < 0)
			return -errno;
		if (flags & O_NONBLOCK)
			return -EAGAIN;
		rc = engine_wait_fd(ctx->engine, ibv->fd, has_event, ch);
		if (rc)
			return rc;
	}
	*out = ibv_cq_ex_to_cq(&cq->ibv);
	*cq_context = cq->ibv.cq_context;
	return 0;
}

unsigned dev_channel_forget(struct dev_channel *ch, struct dev_cq *cq)
{
	unsigned events_read;

	pthread_mutex_lock(&ch->lock);
	if (cq->events_pending) {
		list_remove(&cq->pending_link);
		cq->events_pending = 0;
		drain(ch);
	}
	events_read = cq->events_read;
	pthread_mutex_unlock(&ch->lock);
	return events_read;
}

void dev_cq_ack_events(struct ibv_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
