/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work queues: rings of work requests with one producer side (posting threads, which the caller
 * serialises) and one consumer side (the engine). head and tail run freely; slot i is i & mask.
 */
#ifndef ROCELINK_TRANSPORT_WQ_H
#define ROCELINK_TRANSPORT_WQ_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mem/mem.h"
#include "wire/path.h"
#include "wire/psn.h"

struct ring {
	uint8_t *slots;
	uint32_t stride;
	uint32_t mask;
	uint32_t max;	       /* work requests that may be in the ring */
	_Atomic uint32_t head; /* consumer: oldest */
	_Atomic uint32_t tail; /* producer: next free */
};

/* 0 or -ENOMEM. max 0 gives a ring on which every post fails. */
int ring_init(struct ring *r, uint32_t max, uint32_t slot_size);
void ring_destroy(struct ring *r);

static inline void *ring_slot(const struct ring *r, uint32_t index)
{
	return r->slots + (size_t)(index & r->mask) * r->stride;
}

static inline uint32_t ring_head(const struct ring *r)
{
	return atomic_load_explicit(&r->head, memory_order_acquire);
}

static inline uint32_t ring_tail(const struct ring *r)
{
	return atomic_load_explicit(&r->tail, memory_order_acquire);
}

static inline uint32_t ring_count(const struct ring *r)
{
	return ring_tail(r) - ring_head(r);
}

/* Producer: the slot to fill, or NULL when the ring is full. ring_publish() makes it visible. */
void *ring_claim(struct ring *r);

static inline void ring_publish(struct ring *r)
{
	atomic_fetch_add_explicit(&r->tail, 1, memory_order_release);
}

static inline void ring_retire(struct ring *r)
{
	atomic_fetch_add_explicit(&r->head, 1, memory_order_release);
}

/* A posted send work request. The first part is the program's, the rest the requester's. */
struct send_wqe {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add, swap;
	uint32_t rkey;
	uint32_t imm;	    /* big-endian immediate, or the R_Key to invalidate */
	uint32_t len;	    /* bytes of the whole message */
	uint8_t opcode;	    /* enum ibv_wr_opcode */
	uint8_t send_flags; /* enum ibv_send_flags */
	uint8_t num_sge;
	uint8_t status;	    /* enum ibv_wc_status, once known */
	uint32_t dest_srqn; /* XRC */
	union {
		struct { /* UD */
			uint32_t dest_qpn, qkey;
			struct path path;
		};
		struct mem_bind bind; /* BIND_MW */
	};
	/* requester: valid once the first packet has been sent */
	struct psn first_psn;
	uint32_t packets; /* PSNs it takes: request packets, or READ response packets */
	uint32_t chunk;	  /* READ: responses that one request asks for at most */
	/* the SGE list, or with IBV_SEND_INLINE the data itself */
	struct ibv_sge sge[];
};

static inline const uint8_t *send_wqe_inline(const struct send_wqe *w)
{
	return (const uint8_t *)w->sge;
}

static inline bool send_wqe_is_atomic(const struct send_wqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* READs, atomics and ATOMIC WRITE are done by their response, all else by an acknowledgement. */
static inline bool send_wqe_wants_response(const struct send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_WRITE ||
	       send_wqe_is_atomic(w);
}

/* Done here, once all before it is done; nothing is sent. */
static inline bool send_wqe_is_local(const struct send_wqe *w)
{
	return w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW;
}

struct recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t len; /* bytes it can hold */
	struct ibv_sge sge[];
};

/* A receive queue: a QP's own, or an SRQ that many QPs draw from. */
struct recv_queue {
	struct ring ring;
	uint32_t max_sge;
	const void *pd; /* protection domain of its buffers */
	void *cq;	/* XRC: where its completions go; NULL: to the queue pair's */
	/* SRQ limit: when fewer than limit remain, limit becomes 0 and on_limit is called once. */
	_Atomic uint32_t limit;
	void (*on_limit)(struct recv_queue *rq);
};

int recv_queue_init(struct recv_queue *rq, uint32_t max, uint32_t max_sge, const void *pd);
void recv_queue_destroy(struct recv_queue *rq);
/* Call on_limit if fewer than the limit remain: when one is set, since nobody may take any then. */
void recv_queue_check_limit(struct recv_queue *rq);
/* Producer side. 0, ENOMEM (full) or EINVAL (too many SGEs). */
int recv_queue_post(struct recv_queue *rq, const struct ibv_recv_wr *wr);
/* Consumer side: copy the oldest to out (room for max_sge entries) and retire it; false when empty.
 */
bool recv_queue_take(struct recv_queue *rq, struct recv_wqe *out);

#endif
