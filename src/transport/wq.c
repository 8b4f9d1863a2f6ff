/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/wq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

int ring_init(struct ring *r, uint32_t max, uint32_t slot_size)
{
	uint32_t slots = round_up_pow2(max ? max : 1);

	*r = (struct ring){ .stride = (slot_size + 15u) & ~15u, .mask = slots - 1, .max = max };
	r->slots = calloc(slots, r->stride);
	return r->slots ? 0 : -ENOMEM;
}

void ring_destroy(struct ring *r)
{
	free(r->slots);
	r->slots = NULL;
}

void *ring_claim(struct ring *r)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	if (tail - ring_head(r) >= r->max)
		return NULL;
	return ring_slot(r, tail);
}

int recv_queue_init(struct recv_queue *rq, uint32_t max, uint32_t max_sge, const void *pd)
{
	*rq = (struct recv_queue){ .max_sge = max_sge, .pd = pd };
	return ring_init(&rq->ring, max,
			 (uint32_t)(sizeof(struct recv_wqe) + max_sge * sizeof(struct ibv_sge)));
}

void recv_queue_destroy(struct recv_queue *rq)
{
	ring_destroy(&rq->ring);
}

int recv_queue_post(struct recv_queue *rq, const struct ibv_recv_wr *wr)
{
	struct recv_wqe *w;
	uint64_t len = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	w = ring_claim(&rq->ring);
	if (!w)
		return ENOMEM;
	w->wr_id = wr->wr_id;
	w->num_sge = (uint32_t)wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		len += wr->sg_list[i].length;
	}
	w->len = len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
	ring_publish(&rq->ring);
	return 0;
}

void recv_queue_check_limit(struct recv_queue *rq)
{
	uint32_t limit = atomic_load_explicit(&rq->limit, memory_order_relaxed);

	if (limit == 0 || ring_count(&rq->ring) >= limit)
		return;
	if (atomic_compare_exchange_strong(&rq->limit, &limit, 0) && rq->on_limit)
		rq->on_limit(rq);
}

bool recv_queue_take(struct recv_queue *rq, struct recv_wqe *out)
{
	const struct recv_wqe *w;

	if (ring_count(&rq->ring) == 0)
		return false;
	w = ring_slot(&rq->ring, ring_head(&rq->ring));
	memcpy(out, w, sizeof(*w) + w->num_sge * sizeof(w->sge[0]));
	ring_retire(&rq->ring);
	recv_queue_check_limit(rq);
	return true;
}
