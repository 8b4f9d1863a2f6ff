/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events of a context. The descriptor (async_fd) is an eventfd that is readable while
 * an event is unread. An object counts the events read of it, and its destroyer waits until as many
 * are acknowledged.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "device/device.h"

struct event {
	struct list link;
	struct ibv_async_event ibv;
};

int dev_async_open(struct dev_context *ctx)
{
	struct ibv_context *ibv = &ctx->verbs.context;

	ibv->async_fd = eventfd(0, EFD_CLOEXEC);
	if (ibv->async_fd < 0)
		return -errno;
	pthread_mutex_init(&ctx->async.lock, NULL);
	list_init(&ctx->async.events);
	return 0;
}

void dev_async_close(struct dev_context *ctx)
{
	struct list *pos, *next;

	for (pos = ctx->async.events.next; pos != &ctx->async.events; pos = next) {
		next = pos->next;
		free(container_of(pos, struct event, link));
	}
	pthread_mutex_destroy(&ctx->async.lock);
	close(ctx->verbs.context.async_fd);
}

enum element { ELEMENT_PORT, ELEMENT_CQ, ELEMENT_QP, ELEMENT_SRQ };

static enum element element_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ELEMENT_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ELEMENT_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ELEMENT_SRQ;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_WQ_FATAL:
		break;
	}
	return ELEMENT_PORT;
}

bool dev_async_is_of_qp(enum ibv_event_type type)
{
	return element_of(type) == ELEMENT_QP;
}

void dev_async_post(struct dev_context *ctx, enum ibv_event_type type, void *element)
{
	const uint64_t one = 1;
	struct event *e = calloc(1, sizeof(*e));

	log_debug("event: %d", type);
	if (!e) {
		log_error("out of memory: an asynchronous event (%d) is lost", type);
		return;
	}
	e->ibv.event_type = type;
	switch (element_of(type)) {
	case ELEMENT_PORT:
		e->ibv.element.port_num = DEV_PORT;
		break;
	case ELEMENT_CQ:
	case ELEMENT_QP:
	case ELEMENT_SRQ:
		e->ibv.element.qp = element; /* a union of pointers */
		break;
	}
	pthread_mutex_lock(&ctx->async.lock);
	list_append(&ctx->async.events, &e->link);
	if (write(ctx->verbs.context.async_fd, &one, sizeof(one)) != sizeof(one))
		log_error("can't signal an asynchronous event: %s", strerror(errno));
	pthread_mutex_unlock(&ctx->async.lock);
}

/* Under the lock. */
static void drain(struct dev_context *ctx)
{
	uint64_t count;

	if (list_empty(&ctx->async.events) &&
	    read(ctx->verbs.context.async_fd, &count, sizeof(count)) < 0)
		log_debug("asynchronous events: %s", strerror(errno));
}

static void count_read(const struct ibv_async_event *event)
{
	switch (element_of(event->event_type)) {
	case ELEMENT_CQ:
		((struct dev_cq *)event->element.cq)->async_read++;
		break;
	case ELEMENT_QP:
		((struct dev_qp *)event->element.qp)->async_read++;
		break;
	case ELEMENT_SRQ:
		((struct dev_srq *)event->element.srq)->async_read++;
		break;
	case ELEMENT_PORT:
		break;
	}
}

static bool take(struct dev_context *ctx, struct ibv_async_event *event)
{
	struct event *e = NULL;

	pthread_mutex_lock(&ctx->async.lock);
	if (!list_empty(&ctx->async.events)) {
		e = container_of(ctx->async.events.next, struct event, link);
		list_remove(&e->link);
		count_read(&e->ibv);
		*event = e->ibv;
		drain(ctx);
	}
	pthread_mutex_unlock(&ctx->async.lock);
	free(e);
	return e != NULL;
}

int dev_async_get(struct dev_context *ctx, struct ibv_async_event *event)
{
	struct pollfd fd = { .fd = ctx->verbs.context.async_fd, .events = POLLIN };

	if (dev_refuse_forked(ctx))
		return -EPERM;
	while (!take(ctx, event)) {
		int flags = fcntl(fd.fd, F_GETFL);

		if (flags < 0)
			return -errno;
		if (flags & O_NONBLOCK)
			return -EAGAIN;
		if (poll(&fd, 1, -1) < 0)
			return -errno;
	}
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void dev_async_ack(const struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;

	switch (element_of(event->event_type)) {
	case ELEMENT_CQ:
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case ELEMENT_QP:
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case ELEMENT_SRQ:
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	case ELEMENT_PORT:
		break;
	}
}

void dev_async_forget(struct dev_context *ctx, const void *element)
{
	struct list *pos, *next;
	bool dropped = false;

	pthread_mutex_lock(&ctx->async.lock);
	for (pos = ctx->async.events.next; pos != &ctx->async.events; pos = next) {
		struct event *e = container_of(pos, struct event, link);

		next = pos->next;
		if (element_of(e->ibv.event_type) == ELEMENT_PORT || e->ibv.element.qp != element)
			continue;
		list_remove(&e->link);
		free(e);
		dropped = true;
	}
	if (dropped)
		drain(ctx);
	pthread_mutex_unlock(&ctx->async.lock);
}
