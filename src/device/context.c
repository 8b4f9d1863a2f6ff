/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device contexts: opened on a device or imported on another's file (file.h), hold the engine, know
 * their objects. What the program left behind is let go when the context is closed, as the kernel does
 * for an adapter's driver.
 *
 * After a fork the child's copy of a context is dead: its sockets and peers belong to the parent.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/device.h"
#include "device/mr_fault.h"
#include "device/xrc.h"

unsigned dev_fork_generation;

/* Opening and closing are rare: one lock keeps first and last of a device's contexts in order. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* The child inherits no lock taken by a thread it doesn't have, and contexts that are not its own.
 */
static void before_fork(void)
{
	pthread_mutex_lock(&open_lock);
	/* Opening a domain keeps its device on the list: that lock is the inner one. */
	xrc_fork_lock(true);
	mr_fault_fork_lock(true);
	dev_list_lock();
}

static void after_fork_in_parent(void)
{
	dev_list_unlock();
	mr_fault_fork_lock(false);
	xrc_fork_lock(false);
	pthread_mutex_unlock(&open_lock);
}

static void after_fork_in_child(void)
{
	dev_fork_generation++;
	dev_list_abandon_contexts();
	dev_list_unlock();
	mr_fault_fork_lock(false);
	xrc_abandon();
	xrc_fork_lock(false);
	pthread_mutex_unlock(&open_lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* After the engine has registered itself: the last registered is the first to lock, and ours are
 * outside. */
static void watch_forks_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
}

/* Any number below this is accepted as a completion vector; programs spread over as many as there
 * are CPUs. */
static int comp_vectors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (int)n;
}

static void enter(struct dev_context *ctx)
{
	struct dev *dev = ctx->dev;
	bool first;

	pthread_mutex_lock(&dev->lock);
	first = list_empty(&dev->contexts);
	list_append(&dev->contexts, &ctx->link);
	pthread_mutex_unlock(&dev->lock);
	if (first)
		engine_observe(ctx->engine, &dev->observer);
}

static void leave(struct dev_context *ctx)
{
	struct dev *dev = ctx->dev;
	bool last;

	pthread_mutex_lock(&dev->lock);
	list_remove(&ctx->link);
	last = list_empty(&dev->contexts);
	pthread_mutex_unlock(&dev->lock);
	if (last)
		engine_unobserve(ctx->engine, &dev->observer);
}

static struct dev_context *allocate(void)
{
	struct dev_context *ctx;

	if (!settings_get()) {
		errno = EINVAL;
		return NULL;
	}
	ctx = dev_zalloc(sizeof(*ctx));
	if (!ctx)
		return NULL;
	ctx->generation = dev_fork_generation;
	for (int i = 0; i < DEV_KINDS; i++)
		list_init(&ctx->objects[i]);
	return ctx;
}

/* With a file and its descriptor. Under the lock. */
static int start(struct dev_context *ctx, struct dev *dev)
{
	struct ibv_context *ibv = &ctx->verbs.context;
	char error[256] = "";
	int rc = dev_async_open(ctx);

	if (rc)
		return rc;
	rc = engine_get(&ctx->engine, error, sizeof(error));
	if (rc) {
		/* Whatever the log level: without it nobody would know why no device can be opened. */
		fprintf(stderr, "rocelink: can't open %s: %s\n", dev->ibv.name,
			*error ? error : strerror(-rc));
		dev_async_close(ctx);
		return rc;
	}
	watch_forks_once();
	ctx->verbs.sz = sizeof(ctx->verbs);
	ibv->device = &dev->ibv;
	ibv->num_comp_vectors = comp_vectors();
	ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&ibv->mutex, NULL);
	ctx->dev = dev_get(dev);
	enter(ctx);
	return 0;
}

int dev_context_open(struct dev *dev, struct dev_context **out)
{
	struct dev_context *ctx = allocate();
	int rc;

	if (!ctx)
		return -errno;
	pthread_mutex_lock(&open_lock);
	rc = dev_file_create(dev, &ctx->file, &ctx->verbs.context.cmd_fd);
	if (!rc) {
		rc = start(ctx, dev);
		if (rc) {
			close(ctx->verbs.context.cmd_fd);
			dev_file_put(ctx->file, NULL);
		}
	}
	pthread_mutex_unlock(&open_lock);
	if (rc) {
		free(ctx);
		return rc;
	}
	*out = ctx;
	return 0;
}

int dev_context_import(int fd, struct dev_context **out)
{
	struct dev_context *ctx = allocate();
	int rc;

	if (!ctx)
		return -errno;
	pthread_mutex_lock(&open_lock);
	rc = dev_file_find(fd, &ctx->file);
	if (!rc) {
		ctx->verbs.context.cmd_fd = fd;
		rc = start(ctx, ctx->file->dev);
		/* Others are on it: the file stays. */
		if (rc)
			dev_file_put(ctx->file, NULL);
	}
	pthread_mutex_unlock(&open_lock);
	if (rc) {
		free(ctx);
		return rc;
	}
	*out = ctx;
	return 0;
}

/* The protection domain that this object needs, which may outlive the context; NULL: none. */
static struct dev_pd_object *needed_domain(enum dev_kind kind, struct list *link)
{
	switch (kind) {
	case DEV_QP:
		return container_of(link, struct dev_qp, link)->pd;
	case DEV_AH:
		return container_of(link, struct dev_ah, link)->pd;
	case DEV_MW:
		return container_of(link, struct dev_mw, link)->pd;
	case DEV_SRQ:
		return container_of(link, struct dev_srq, link)->pd;
	case DEV_DOMAIN:
		return container_of(link, struct dev_pd, link)->object;
	case DEV_MR: /* a name; the region itself needs the domain */
	case DEV_DM:
	case DEV_CQ:
	case DEV_CHANNEL:
	case DEV_XRCD:
	case DEV_PD:
	case DEV_TD:
	case DEV_KINDS:
		break;
	}
	return NULL;
}

static void release(enum dev_kind kind, struct list *link)
{
	switch (kind) {
	case DEV_QP:
		dev_qp_release(container_of(link, struct dev_qp, link));
		break;
	case DEV_AH:
		dev_ah_release(container_of(link, struct dev_ah, link));
		break;
	case DEV_MW:
		dev_mw_release(container_of(link, struct dev_mw, link));
		break;
	case DEV_MR:
		dev_mr_release(container_of(link, struct dev_mr, link));
		break;
	case DEV_DM:
		dev_dm_release(container_of(link, struct dev_dm, link));
		break;
	case DEV_SRQ:
		dev_srq_release(container_of(link, struct dev_srq, link));
		break;
	case DEV_CQ:
		dev_cq_release(container_of(link, struct dev_cq, link));
		break;
	case DEV_CHANNEL:
		dev_channel_release(container_of(link, struct dev_channel, link));
		break;
	case DEV_XRCD:
		dev_xrcd_release(container_of(link, struct dev_xrcd, link));
		break;
	case DEV_DOMAIN:
	case DEV_PD:
		dev_pd_release(container_of(link, struct dev_pd, link));
		break;
	case DEV_TD:
		free(container_of(link, struct dev_td, link));
		break;
	case DEV_KINDS:
		break;
	}
}

static void release_all(struct dev_context *ctx)
{
	struct dev_pd_object *domain;
	struct list *pos, *next;
	unsigned left = 0;

	for (int kind = 0; kind < DEV_KINDS; kind++) {
		for (pos = ctx->objects[kind].next; pos != &ctx->objects[kind]; pos = next) {
			next = pos->next;
			domain = needed_domain((enum dev_kind)kind, pos);
			release((enum dev_kind)kind, pos);
			if (domain)
				dev_shared_use(ctx->file, &domain->shared, -1);
			left++;
		}
	}
	if (left)
		log_info("%s was closed with %u objects (queue pairs, regions, ...) not destroyed",
			 ctx->dev->ibv.name, left);
}

int dev_context_close(struct dev_context *ctx)
{
	/* The objects are the parent's; its engine's lock may be held for ever in this copy. */
	if (dev_forked(ctx))
		return 0;
	release_all(ctx);
	xrc_context_closed(ctx);
	pthread_mutex_lock(&open_lock);
	leave(ctx);
	dev_file_put(ctx->file, ctx->engine);
	engine_put(ctx->engine);
	pthread_mutex_unlock(&open_lock);
	dev_async_close(ctx);
	close(ctx->verbs.context.cmd_fd);
	dev_put(ctx->dev);
	pthread_mutex_destroy(&ctx->verbs.context.mutex);
	free(ctx);
	return 0;
}

bool dev_refuse_forked(const struct dev_context *ctx)
{
	if (!dev_forked(ctx))
		return false;
	log_info("%s was opened by the process that forked this one: its context is of no use "
		 "here, open the device again",
		 ctx->dev->ibv.name);
	return true;
}

int dev_check_alive(const struct dev_context *ctx)
{
	if (!engine_is_dead(ctx->engine))
		return 0;
	log_info(
		"%s is in the fatal state (an injected fault): close it, with all other devices of "
		"this process, and open it again",
		ctx->dev->ibv.name);
	return -EIO;
}

void *dev_zalloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		log_info("out of memory for an object of %zu bytes", size);
	return p;
}

void dev_object_add(struct dev_context *ctx, enum dev_kind kind, struct list *link,
		    int *const users[], size_t n)
{
	pthread_mutex_lock(&ctx->file->lock);
	list_append(&ctx->objects[kind], link);
	for (size_t i = 0; i < n; i++)
		if (users[i])
			++*users[i];
	pthread_mutex_unlock(&ctx->file->lock);
}

int dev_object_remove(struct dev_context *ctx, struct list *link, const int *own_users,
		      int *const users[], size_t n)
{
	int rc = 0;

	pthread_mutex_lock(&ctx->file->lock);
	if (own_users && *own_users) {
		rc = -EBUSY;
	} else {
		list_remove(link);
		for (size_t i = 0; i < n; i++)
			if (users[i])
				--*users[i];
	}
	pthread_mutex_unlock(&ctx->file->lock);
	return rc;
}

void dev_object_use(struct dev_context *ctx, int *users)
{
	pthread_mutex_lock(&ctx->file->lock);
	++*users;
	pthread_mutex_unlock(&ctx->file->lock);
}

void dev_object_unuse(struct dev_context *ctx, int *users)
{
	pthread_mutex_lock(&ctx->file->lock);
	--*users;
	pthread_mutex_unlock(&ctx->file->lock);
}
