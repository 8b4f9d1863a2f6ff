/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows (IBA 10.6.7): another key on part of a region, with rights of its own.
 *
 *	       bind                              bind again (type 1 only)
 *	free  ------>  bound to a region's range  --------
 *	      <------                             <-------
 *	       type 1: a bind of length 0;  type 2: an invalidate
 *
 * A window is an entry of the table like a region, whose `host` is that of the range it is bound to.
 * Whom it admits is its `pd`: a type 1 window all of its protection domain, a type 2 window (2B) the
 * queue pair that bound it alone, whose protection domain is the window's.
 */
#include "mem/mem.h"

#include <string.h>

#define WINDOW_ACCESS                                                                  \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_ZERO_BASED)
#define TAG_MASK 0xffu

static void unbind(struct mr *w)
{
	if (!w->region)
		return;
	w->region->windows--;
	w->region = NULL;
	w->host = NULL;
	w->length = 0;
	w->access = 0;
	w->pd = w->home;
}

static enum mem_fault check_window(const struct mr *w, const struct mem_bind *b)
{
	if (!w || !w->window)
		return MEM_KEY;
	if ((b->new_key ^ w->key) & ~TAG_MASK)
		return MEM_KEY;
	if (w->window == IBV_MW_TYPE_2 && (w->region || b->length == 0))
		return MEM_WINDOW;
	/* Some programs give the flags of a region, local write among them: it means nothing here. */
	if (b->access & ~(unsigned)(WINDOW_ACCESS | IBV_ACCESS_LOCAL_WRITE))
		return MEM_ACCESS;
	if (w->window == IBV_MW_TYPE_1 && (b->access & IBV_ACCESS_ZERO_BASED))
		return MEM_ACCESS;
	return MEM_OK;
}

/* C10-72 to 75. */
static enum mem_fault check_region(const struct mr *r, const void *pd, const struct mem_bind *b)
{
	if (!r || r->window)
		return MEM_KEY;
	if (r->pd != pd)
		return MEM_PD;
	if (!(r->access & IBV_ACCESS_MW_BIND))
		return MEM_ACCESS;
	if ((b->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(r->access & IBV_ACCESS_LOCAL_WRITE))
		return MEM_ACCESS;
	if (b->addr < r->iova || b->addr - r->iova > r->length ||
	    b->length > r->length - (b->addr - r->iova))
		return MEM_BOUNDS;
	return MEM_OK;
}

enum mem_fault mem_bind(const struct mem_table *t, const void *pd, const void *qp,
			const struct mem_bind *b)
{
	struct mr *w = mem_find_any_tag(t, b->window_key);
	struct mr *region = NULL;
	enum mem_fault fault = check_window(w, b);

	if (!fault && w->home != pd)
		fault = MEM_PD;
	if (!fault && b->length) {
		region = mem_find(t, b->region_key);
		fault = check_region(region, pd, b);
	}
	if (fault)
		return fault;
	unbind(w);
	w->key = b->new_key;
	if (!region)
		return MEM_OK;
	w->region = region;
	region->windows++;
	w->host = region->host + (b->addr - region->iova);
	w->null = region->null;
	w->gone = false;
	w->length = b->length;
	w->iova = b->access & IBV_ACCESS_ZERO_BASED ? 0 : b->addr;
	w->access = b->access & WINDOW_ACCESS;
	if (w->window == IBV_MW_TYPE_2)
		w->pd = qp;
	return MEM_OK;
}

enum mem_fault mem_invalidate(const struct mem_table *t, const void *pd, const void *qp,
			      uint32_t key)
{
	struct mr *w = mem_find(t, key);

	if (!w || w->window != IBV_MW_TYPE_2)
		return MEM_KEY;
	if (w->home != pd || (w->region && w->pd != qp))
		return MEM_PD;
	unbind(w);
	return MEM_OK;
}

const void *mem_domain(const struct mem_table *t, const void *pd, const void *qp, uint32_t key)
{
	const struct mr *w = mem_find(t, key);

	return w && w->window == IBV_MW_TYPE_2 ? qp : pd;
}

static void unbind_where(const struct mem_table *t, const struct mr *region, const void *qp)
{
	for (uint32_t i = 0; i < t->capacity; i++) {
		struct mr *w = t->slots[i];

		if (w && w->region && (w->region == region || w->pd == qp))
			unbind(w);
	}
}

void mem_unbind_region(const struct mem_table *t, const struct mr *region)
{
	unbind_where(t, region, NULL);
}

void mem_unbind_qp(const struct mem_table *t, const void *qp)
{
	unbind_where(t, NULL, qp);
}

void mem_remove_window(struct mem_table *t, struct mr *w)
{
	unbind(w);
	mem_remove(t, w);
}
