/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC, a target's messages for an SRQ of another process. The target's responder keeps what belongs to
 * the connection (PSN, MSN, acknowledgements); the packets themselves are executed where the SRQ and
 * its memory are. They go there in runs: as many as wait, for one SRQ, in sequence. A run counts as
 * executed when that process has said so, and nothing is acknowledged before. Until then the
 * responder executes nothing else: whatever arrives waits here, in order.
 *
 *   idle (nothing is held) --packet for elsewhere--> run (its packets are the first held)
 *   run --answer--> the next held packets, a run or not ... --> idle
 *
 * Invariant: packets are held only while there is a run.
 */
#ifndef ROCELINK_TRANSPORT_RELAY_H
#define ROCELINK_TRANSPORT_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/responder.h"
#include "wire/packet.h"

struct qp;

#define RELAY_RUN_BYTES (68u << 10) /* of relay_room(), but one packet always fits */
#define RELAY_HELD_MAX	(8u << 20)  /* bytes; more than any window */

/* What the target's owner brings. Under the engine's lock. */
struct relay_ops {
	/* Is the SRQ of this number, if there is one, another process's? */
	bool (*is_elsewhere)(const struct qp *qp, uint32_t srqn);
	/* Give the run to that process: the first relay.run held packets. FAULT_NONE:
	 * relay_answered() follows. */
	enum fault (*start)(struct qp *qp);
	/* The message that this SRQ has begun to receive, or the run, ends here and now. */
	void (*end)(struct qp *qp, uint32_t srqn);
	/* A request that isn't relayed (READ, atomics): for the log. */
	void (*refused)(const struct qp *qp, const struct packet *pkt);
};

/* A packet that waits; its payload follows. */
struct relay_packet {
	struct relay_packet *next;
	struct packet pkt;
	uint8_t payload[];
};

/* Bytes that a packet needs at most where it is one of a run. */
static inline size_t relay_room(const struct packet *pkt)
{
	return 2 * sizeof(uint64_t) + PACKET_HEADER_MAX + ICRC_LEN + pkt->payload_len + 3;
}

/* True: this packet must go to relay_rx() instead of being executed. */
bool relay_wants(const struct qp *qp, const struct packet *pkt);
enum drop relay_rx(struct qp *qp, const struct packet *pkt);

/* The run's first `done` packets were executed, the next one met this fault (FAULT_NONE: done is all). */
void relay_answered(struct qp *qp, unsigned done, enum fault fault);

/* Forget what is held: the connection ends. */
void relay_clear(struct qp *qp);

/*
 * The other process: execute one packet of a run. proxy: a target that stands for the real one, with its
 * number, domain and access flags, and lives at least as long as a message is in progress
 * (relay_in_progress). After a fault other than FAULT_NO_RECEIVE it holds no receive.
 */
enum fault relay_execute(struct qp *proxy, const struct packet *pkt);
bool relay_in_progress(const struct qp *proxy);
/* The connection ended within a message: the receive it took is flushed. */
void relay_flush(struct qp *proxy);

#endif
