/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fault injector: loses, delays, reorders, duplicates and corrupts packets on their way between
 * the engine and whatever carries them, which knows nothing of it. Outbound it stands between the
 * engine's outbox and the sending of it, inbound between receiving and delivering. Pure: no system
 * calls, no clock, no globals.
 *
 * The fate of packet n of a direction is a function of seed, direction and n alone, so the same
 * sequence of packets meets the same faults in every run.
 *
 * A delayed packet is a copy in a queue ordered by when it is due; packets due at once leave in the
 * order they came. A corrupted packet has one bit flipped, so that the receiver's ICRC check fails.
 * On the same-host path, where packets have no ICRC, it is lost instead: what the check would come
 * to.
 */
#ifndef ROCELINK_NET_FAULT_H
#define ROCELINK_NET_FAULT_H

#include "base/fault_plan.h"
#include "net/port.h"
#include "wire/outbox.h"

struct fault_injector;

/* Of one direction, in packets. */
struct fault_stats {
	uint64_t seen, lost, reordered, duplicated, corrupted, delayed;
	uint64_t link_down; /* lost since the link was down */
	uint64_t overflow;  /* lost since too many were held back already */
};

/* 0 or -ENOMEM. now_ns: the adapter starts. */
int fault_create(struct fault_injector **f, const struct fault_plan *plan, uint64_t now_ns);
void fault_destroy(struct fault_injector *f);

/*
 * Where packets of the same-host path go (those of an outbox without ICRCs): len bytes without the
 * place of the ICRC. False: the ring is full, the packet waits here.
 */
typedef bool fault_ring_put(void *arg, const struct path *path, const uint8_t *data, uint32_t len);
void fault_set_ring(struct fault_injector *f, fault_ring_put *put, void *arg);

/*
 * Take all packets that wait in `box`. What may leave now is in fault_outbox() afterwards, or with
 * the ring, held packets that have become due among it.
 */
void fault_send(struct fault_injector *f, struct outbox *box, uint64_t now_ns);
/* The program ends: packets held back leave now rather than never. */
void fault_send_held(struct fault_injector *f);
struct outbox *fault_outbox(struct fault_injector *f);

/* Deliver what is due of the packets received before, and then of this burst (NULL: none). */
void fault_receive(struct fault_injector *f, const struct burst *burst, uint64_t now_ns,
		   void (*deliver)(void *arg, const struct burst *burst), void *arg);

/* When a held packet is due or the link changes: call fault_send() and fault_receive() then.
 * TIME_NEVER: nothing is to come. */
uint64_t fault_next_due_ns(const struct fault_injector *f, uint64_t now_ns);
bool fault_link_down(struct fault_injector *f, uint64_t now_ns);

/* A message is about to look for a receive: it shall find none. */
bool fault_rnr(struct fault_injector *f);
/* A packet came in: its queue pair shall fail. True once. */
bool fault_qp_error(struct fault_injector *f);
/* A packet came in: the device shall break. True once. */
bool fault_device_fatal(struct fault_injector *f);
/* A completion: its queue shall be overrun. True once. */
bool fault_cq_overrun(struct fault_injector *f);

const struct fault_stats *fault_stats(const struct fault_injector *f,
				      enum fault_direction direction);

#endif
