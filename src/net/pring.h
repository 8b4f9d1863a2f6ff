/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of packets in memory that two processes share: one produces, one consumes. Each slot
 * describes a burst (equal-sized packets of one path, as the outbox groups them), which lies whole
 * in a data area; the producer's outbox writes straight into that area, and the consumer reads from
 * it. A short burst lies in the slot itself, and a tiny one on the same path as the burst before takes the
 * place of the path: what such a message takes from one processor's cache to the other's is two cache
 * lines next to each other, or a single one.
 *
 * Neither trusts the other: whatever lies in shared memory is copied, then checked, then used. What
 * can't be is broken, and the ring with it; the memory outside is never touched. Only the payload
 * is read in place, and may change while it is copied, as a peer's memory may that is being sent.
 *
 * Whoever is going to sleep says so in the ring, looks once more, and is then woken by the other
 * (how is not the ring's business): no wake-up is lost, and none costs anything while both are
 * awake.
 */
#ifndef ROCELINK_NET_PRING_H
#define ROCELINK_NET_PRING_H

#include <stdbool.h>
#include <stdint.h>

#include "net/port.h"
#include "wire/outbox.h"

#define RING_DATA    (512u << 10)
#define RING_SLOTS   512u
#define RING_SHORT   64u	 /* bytes that a slot holds */
#define RING_MTU     (60u << 10) /* what messages are cut at; a packet is shorter than 64 KiB */
#define RING_TINY    48u	 /* bytes that a descriptor holds instead of the path */
#define RING_IN_SLOT UINT32_MAX
#define RING_IN_DESC (UINT32_MAX - 1)

struct pring_path {
	uint32_t ifindex, flow_label;
	uint8_t traffic_class, hop_limit;
	uint8_t reserved[2];
	struct gid sgid, dgid;
};

struct pring_desc {
	uint32_t offset, len, seg_len;
	union {
		struct pring_path path;
		uint8_t tiny[RING_TINY]; /* offset is RING_IN_DESC: that of the burst before */
	};
	_Atomic uint32_t sequence; /* written last: one more than the slot's running number */
};

struct pring_slot {
	_Alignas(128) struct pring_desc desc;
	uint8_t data[RING_SHORT]; /* desc.offset is RING_IN_SLOT */
};

struct pring_shared {
	_Alignas(128) _Atomic uint32_t head; /* slots consumed */
	_Atomic uint32_t producer_waits;
	_Alignas(128) _Atomic uint32_t consumer_sleeps;
	struct pring_slot slots[RING_SLOTS];
	_Alignas(128) uint8_t data[RING_DATA];
};

struct pring_producer {
	struct pring_shared *shared;
	uint32_t tail, head;	   /* head: as seen last */
	uint32_t written, freed;   /* bytes of the data area, running */
	uint32_t ends[RING_SLOTS]; /* `written` behind each slot's data */
	uint32_t in_use;	   /* bytes of the box that were published, while publishing */
	struct outbox box;	   /* empty between pring_open() and its writers */
	struct path path;	   /* of the last burst */
	bool broken;
};

struct pring_consumer {
	struct pring_shared *shared;
	uint32_t head;
	bool broken, has_path;
	struct path path;	/* of the last burst, if there was one */
	struct pring_desc desc; /* our copy of the next one's */
};

void pring_producer_init(struct pring_producer *p, struct pring_shared *shared);
void pring_consumer_init(struct pring_consumer *c, struct pring_shared *shared);

/* The outbox with room for at least one packet of RING_MTU, or NULL: the ring is full or broken. */
struct outbox *pring_open(struct pring_producer *p);
/* May pring_open() succeed? */
bool pring_has_room(struct pring_producer *p);
/* Hand over what was written to the outbox. True: the consumer sleeps, wake it. */
bool pring_publish(struct pring_producer *p);
/* The producer is about to sleep with the ring full. False: there is room meanwhile. */
bool pring_producer_sleeps(struct pring_producer *p);

/* The next burst, in shared memory: valid until pring_consume(). False: there is none, or the ring
 * is broken. */
bool pring_peek(struct pring_consumer *c, struct burst *burst);
/* Done with it. */
void pring_consume(struct pring_consumer *c);
/* After some bursts. True: the producer waits for room, wake it. */
bool pring_wakes_producer(struct pring_consumer *c);
bool pring_empty(const struct pring_consumer *c);
/* The consumer is about to sleep (or, sleeps false, is up again). False: there is something. */
bool pring_consumer_sleeps(struct pring_consumer *c, bool sleeps);

#endif
