/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of packets in memory that two processes share: one produces, one consumes. Descriptors
 * name bursts (equal-sized packets of one path, as the outbox groups them) that lie whole in a data
 * area; the producer's outbox writes straight into that area, and the consumer reads from it.
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

#define RING_DATA  (512u << 10)
#define RING_DESCS 512u
#define RING_MTU   (32u << 10) /* what messages are cut at */

struct pring_desc {
	uint32_t offset, len, seg_len;
	uint32_t ifindex, flow_label;
	uint8_t traffic_class, hop_limit;
	uint8_t reserved[2];
	struct gid sgid, dgid;
	uint8_t pad[8];
};

struct pring_shared {
	_Alignas(64) _Atomic uint32_t tail; /* descriptors published */
	_Alignas(64) _Atomic uint32_t head; /* descriptors consumed */
	_Alignas(64) _Atomic uint32_t consumer_sleeps;
	_Atomic uint32_t producer_waits;
	_Alignas(64) struct pring_desc descs[RING_DESCS];
	_Alignas(64) uint8_t data[RING_DATA];
};

struct pring_producer {
	struct pring_shared *shared;
	uint32_t tail, head;	   /* head: as seen last */
	uint32_t written, freed;   /* bytes of the data area, running */
	uint32_t ends[RING_DESCS]; /* `written` behind each descriptor's data */
	struct outbox box;	   /* empty between pring_open() and its writers */
	bool broken;
};

struct pring_consumer {
	struct pring_shared *shared;
	uint32_t head, tail; /* tail: as seen last */
	bool broken;
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
bool pring_empty(struct pring_consumer *c);
/* The consumer is about to sleep (or, sleeps false, is up again). False: there is something. */
bool pring_consumer_sleeps(struct pring_consumer *c, bool sleeps);

#endif
