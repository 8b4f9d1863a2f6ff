/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC domains and the numbers of their SRQs: from the process's blocks, as those of queue pairs, so that other
 * processes know whose an SRQ is. */
#include "device/qp_table.h"
#include "device/xrc_remote.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static pthread_mutex_t domains_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list domains = { &domains, &domains };

/* Under the engine lock; chains by number. */
#define CHAINS	       1024u
#define SRQS_PER_BLOCK 3072u /* of 4096 numbers: so that they rest before they are used again */
static struct dev_srq *srqs[CHAINS];
static uint32_t n_srqs, cursor;

static struct dev_srq **chain(uint32_t srqn)
{
	return &srqs[srqn % CHAINS];
}

static struct dev_srq *find(uint32_t srqn)
{
	struct dev_srq *srq = *chain(srqn);

	while (srq && (srq->srqn != srqn || srq->ctx->generation != dev_fork_generation))
		srq = srq->next_numbered;
	return srq;
}

struct recv_queue *xrc_find_srq(void *domain, uint32_t srqn)
{
	struct dev_srq *srq = find(srqn);

	return srq && srq->xrcd->domain == domain && !srq->broken ? &srq->rq : NULL;
}

struct xrc_domain *xrc_domain_of(uint32_t srqn, const struct xrc_name *name)
{
	struct dev_srq *srq = find(srqn);
	struct xrc_domain *d = srq ? srq->xrcd->domain : NULL;

	return d && d->claim >= 0 && memcmp(&d->name, name, sizeof(*name)) == 0 ? d : NULL;
}

/* The first number is random: one that a peer took from another process is unlikely to be ours. */
static int draw_number(struct engine *e, uint32_t *srqn)
{
	const uint32_t total = (n_srqs / SRQS_PER_BLOCK + 1) << QPN_BLOCK_BITS;

	if (!cursor && getrandom(&cursor, sizeof(cursor), 0) < 0)
		log_debug("SRQ numbers aren't random: %s", strerror(errno));
	do {
		int block;

		cursor = (cursor + 1) % total;
		block = engine_own_block(e, cursor >> QPN_BLOCK_BITS);
		if (block < 0)
			return block;
		*srqn = (uint32_t)block << QPN_BLOCK_BITS | (cursor & (QPNS_PER_BLOCK - 1));
	} while (find(*srqn));
	return 0;
}

int xrc_srq_add(struct dev_srq *srq)
{
	int rc;

	engine_lock(srq->ctx->engine);
	rc = draw_number(srq->ctx->engine, &srq->srqn);
	if (!rc) {
		n_srqs++;
		srq->next_numbered = *chain(srq->srqn);
		*chain(srq->srqn) = srq;
		list_append(&srq->cq->srqs, &srq->cq_link);
	}
	engine_unlock(srq->ctx->engine);
	if (rc)
		log_info("create_srq: no number to be had: %s", strerror(-rc));
	return rc;
}

void xrc_srq_remove(struct dev_srq *srq)
{
	struct dev_srq **link = chain(srq->srqn);
	struct list *pos;

	engine_lock(srq->ctx->engine);
	while (*link && *link != srq)
		link = &(*link)->next_numbered;
	if (*link) {
		*link = srq->next_numbered;
		n_srqs--;
	}
	list_remove(&srq->cq_link);
	xrc_relay_forget_srq(&srq->rq);
	list_for_each(pos, &srq->xrcd->domain->targets)
	{
		struct xrc_target *target = container_of(pos, struct xrc_target, link);

		responder_forget_srq(&target->eqp.qp, &srq->rq);
	}
	engine_unlock(srq->ctx->engine);
}

void xrc_srq_break(struct dev_srq *srq)
{
	struct list *pos;

	srq->broken = true;
	dev_async_post(srq->ctx, IBV_EVENT_SRQ_ERR, srq);
	list_for_each(pos, &srq->xrcd->domain->targets)
	{
		struct xrc_target *target = container_of(pos, struct xrc_target, link);
		struct qp *qp = &target->eqp.qp;

		if (qp->resp.queue != &srq->rq && qp->qpn != srq->cq->lost_qpn)
			continue;
		qp_fatal(qp, IBV_EVENT_QP_FATAL);
		engine_kick(target->engine, &target->eqp);
	}
}

static struct xrc_domain *find_domain(const struct dev *dev, const struct xrc_name *name)
{
	struct list *pos;

	list_for_each(pos, &domains)
	{
		struct xrc_domain *d = container_of(pos, struct xrc_domain, link);

		if (d->claim >= 0 && d->dev == dev && memcmp(&d->name, name, sizeof(*name)) == 0 &&
		    d->generation == dev_fork_generation)
			return d;
	}
	return NULL;
}

static int new_domain(struct dev_context *ctx, const struct xrc_name *name, int oflags,
		      struct xrc_domain **out)
{
	struct xrc_domain *d = dev_zalloc(sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->claim = name ? xrc_claim(name, oflags) : -1;
	if (name && d->claim < 0) {
		int rc = d->claim;

		free(d);
		return rc;
	}
	if (name)
		d->name = *name;
	d->dev = dev_get(ctx->dev);
	d->generation = ctx->generation;
	list_init(&d->targets);
	list_append(&domains, &d->link);
	*out = d;
	return 0;
}

/* Under the lock. name: NULL for a domain that nobody else can open. */
static int get_domain(struct dev_context *ctx, const struct xrc_name *name, int oflags,
		      struct xrc_domain **out)
{
	int rc = 0;

	*out = name ? find_domain(ctx->dev, name) : NULL;
	if (*out && (oflags & O_EXCL)) {
		log_info("open_xrcd: O_EXCL, but the file's domain is open already");
		return -EINVAL;
	}
	if (!*out)
		rc = new_domain(ctx, name, oflags, out);
	if (!rc)
		(*out)->refs++;
	return rc;
}

uint64_t xrc_random(void)
{
	uint64_t v;

	return getrandom(&v, sizeof(v), 0) == sizeof(v) ? v : engine_now_ns();
}

struct xrc_domain *xrc_domain_get(struct xrc_domain *d)
{
	pthread_mutex_lock(&domains_lock);
	d->refs++;
	pthread_mutex_unlock(&domains_lock);
	return d;
}

void xrc_domain_put(struct xrc_domain *d)
{
	bool last;

	pthread_mutex_lock(&domains_lock);
	last = --d->refs == 0;
	if (last) {
		list_remove(&d->link);
		if (d->claim >= 0)
			close(d->claim);
	}
	pthread_mutex_unlock(&domains_lock);
	if (!last)
		return;
	dev_put(d->dev);
	free(d);
}

int dev_xrcd_open(struct dev_context *ctx, const struct ibv_xrcd_init_attr *attr,
		  struct ibv_xrcd **out)
{
	const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct xrc_name name = { .ifindex = ctx->dev->net.ifindex };
	struct dev_xrcd *xrcd;
	struct stat file;
	int rc;

	if (dev_refuse_forked(ctx))
		return -EPERM;
	if (attr->comp_mask & ~both || attr->oflags & ~(O_CREAT | O_EXCL)) {
		log_info("open_xrcd: comp_mask 0x%x (0x%x is right), oflags 0x%x (O_CREAT and "
			 "O_EXCL are there)",
			 attr->comp_mask, both, attr->oflags);
		return -EOPNOTSUPP;
	}
	if (attr->comp_mask != both) {
		log_info("open_xrcd: comp_mask 0x%x: IBV_XRCD_INIT_ATTR_FD and _OFLAGS must be set",
			 attr->comp_mask);
		return -EINVAL;
	}
	if (attr->fd != -1 && fstat(attr->fd, &file)) {
		rc = -errno;
		log_info("open_xrcd: fd %d: %s", attr->fd, strerror(-rc));
		return rc;
	}
	if (attr->fd != -1) {
		name.file_dev = file.st_dev;
		name.file_ino = file.st_ino;
	}
	xrcd = dev_zalloc(sizeof(*xrcd));
	if (!xrcd)
		return -ENOMEM;
	pthread_mutex_lock(&domains_lock);
	rc = get_domain(ctx, attr->fd == -1 ? NULL : &name, attr->oflags, &xrcd->domain);
	pthread_mutex_unlock(&domains_lock);
	if (rc) {
		free(xrcd);
		return rc;
	}
	xrcd->ibv.context = &ctx->verbs.context;
	dev_object_add(ctx, DEV_XRCD, &xrcd->link, NULL, 0);
	*out = &xrcd->ibv;
	return 0;
}

void dev_xrcd_release(struct dev_xrcd *xrcd)
{
	xrc_domain_put(xrcd->domain);
	free(xrcd);
}

int dev_xrcd_close(struct ibv_xrcd *ibv)
{
	struct dev_xrcd *xrcd = (struct dev_xrcd *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);
	int rc;

	if (dev_forked(ctx))
		return 0;
	rc = dev_object_remove(ctx, &xrcd->link, &xrcd->users, NULL, 0);
	if (rc) {
		log_info("close_xrcd: %d SRQs and queue pairs of it are left", xrcd->users);
		return rc;
	}
	dev_xrcd_release(xrcd);
	return 0;
}

/* The child hasn't opened them: what it inherited must not keep them open. */
void xrc_abandon(void)
{
	struct list *pos;

	n_srqs = 0;
	xrc_relay_abandon();
	xrc_remote_abandon();
	xrc_targets_abandon();
	list_for_each(pos, &domains)
	{
		struct xrc_domain *d = container_of(pos, struct xrc_domain, link);

		if (d->claim >= 0)
			close(d->claim);
		d->claim = -1;
	}
}

void xrc_fork_lock(bool take)
{
	if (take)
		pthread_mutex_lock(&domains_lock);
	else
		pthread_mutex_unlock(&domains_lock);
}
