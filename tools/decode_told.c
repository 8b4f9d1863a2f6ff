/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_told.h"

static void teller_destroy(struct teller *t)
{
	for (unsigned i = 0; i < t->n_qps; i++)
		free(t->qps[i]);
	free(t->qps);
	for (struct told_region *r = t->regions, *next; r; r = next) {
		next = r->next;
		free(r);
	}
	for (struct told_gid *g = t->gids, *next; g; g = next) {
		next = g->next;
		free(g);
	}
}

void registry_destroy(struct registry *r)
{
	for (struct exchange *x = r->exchanges, *next; x; x = next) {
		next = x->next;
		teller_destroy(&x->side[0]);
		teller_destroy(&x->side[1]);
		free(x);
	}
	memset(r, 0, sizeof(*r));
}

struct exchange *exchange_add(struct registry *r, struct party *a, struct party *b)
{
	struct exchange *x = decode_alloc(sizeof(*x));

	x->side[0].party = a;
	x->side[1].party = b;
	x->side[0].exchange = x->side[1].exchange = x;
	x->next = r->exchanges;
	r->exchanges = x;
	return x;
}

static struct told_qp **bucket_of(struct registry *r, uint32_t qpn)
{
	return &r->buckets[(qpn ^ qpn >> 12) % TOLD_BUCKETS];
}

static bool same_qp(const struct told *a, const struct told *b)
{
	return a->qpn == b->qpn && a->psn == b->psn && gid_eq(&a->gid, &b->gid) &&
	       a->rkey == b->rkey && a->va == b->va && a->qkey == b->qkey;
}

static bool enter_qp(struct registry *r, struct teller *t, const struct told *v, uint64_t number)
{
	struct told_qp **bucket = bucket_of(r, v->qpn), *qp;

	for (qp = *bucket; qp; qp = qp->next_hash)
		if (qp->teller == t && same_qp(&qp->v, v))
			return false;
	if (t->n_qps == t->cap_qps) {
		t->cap_qps = t->cap_qps ? 2 * t->cap_qps : 4;
		t->qps = decode_realloc(t->qps, t->cap_qps * sizeof(*t->qps));
	}
	qp = decode_alloc(sizeof(*qp));
	qp->v = *v;
	qp->number = number;
	qp->teller = t;
	qp->index = t->n_qps;
	qp->next_hash = *bucket;
	*bucket = qp;
	t->qps[t->n_qps++] = qp;
	r->generation++;
	return true;
}

static bool enter_gid(struct teller *t, const struct gid *gid, uint64_t number)
{
	struct told_gid *g;

	for (g = t->gids; g; g = g->next)
		if (gid_eq(&g->gid, gid))
			return false;
	g = decode_alloc(sizeof(*g));
	g->gid = *gid;
	g->number = number;
	g->next = t->gids;
	t->gids = g;
	return true;
}

static bool enter_region(struct teller *t, const struct told *v, uint64_t number)
{
	struct told_region *r;

	for (r = t->regions; r; r = r->next)
		if (r->v.rkey == v->rkey && r->v.va == v->va && r->v.length == v->length)
			return false;
	r = decode_alloc(sizeof(*r));
	r->v = *v;
	r->number = number;
	r->next = t->regions;
	t->regions = r;
	return true;
}

bool told_enter(struct registry *r, struct exchange *x, unsigned side, const struct told *v,
		uint64_t number)
{
	struct teller *t = &x->side[side];
	bool new = false;

	if (v->has & TOLD_QPN && v->qpn != 0)
		new |= enter_qp(r, t, v, number);
	if (v->has & TOLD_GID && !gid_is_zero(&v->gid))
		new |= enter_gid(t, &v->gid, number);
	if (v->has & TOLD_RKEY)
		new |= enter_region(t, v, number);
	return new;
}

const struct told_qp *told_find(const struct registry *r, const struct gid *gid, uint32_t qpn,
				uint64_t *gid_number)
{
	const struct told_qp *qp = *bucket_of((struct registry *)r, qpn);

	for (; qp; qp = qp->next_hash) {
		if (qp->v.qpn != qpn)
			continue;
		for (const struct told_gid *g = qp->teller->gids; g; g = g->next)
			if (gid_eq(&g->gid, gid)) {
				*gid_number = g->number;
				return qp;
			}
	}
	return NULL;
}

const struct told_qp *told_peer(const struct told_qp *qp)
{
	struct exchange *x = qp->teller->exchange;
	struct teller *other = qp->teller == &x->side[0] ? &x->side[1] : &x->side[0];

	return qp->index < other->n_qps ? other->qps[qp->index] : NULL;
}

const struct told_region *told_find_region(const struct told_qp *qp, uint32_t rkey)
{
	for (const struct told_region *r = qp->teller->regions; r; r = r->next)
		if (r->v.rkey == rkey)
			return r;
	return NULL;
}
