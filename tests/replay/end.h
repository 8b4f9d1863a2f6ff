/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Our end of a replayed conversation: one queue pair in RTS, all memory that either role may need,
 * and the packets it sent. No clock: every call happens at NOW_NS.
 */
#ifndef ROCELINK_TESTS_REPLAY_END_H
#define ROCELINK_TESTS_REPLAY_END_H

#include "conversation.h"
#include "mem/mem.h"
#include "transport/qp.h"

enum { RECEIVE_LEN = 128 << 10, NOW_NS = 1000000000 };

/* A captured conversation, and what has to be known besides. */
struct row {
	const char *file;
	enum ibv_wc_status status; /* of the first work request that fails */
	bool wrong_key;
	bool no_read;	     /* the responder's queue pair allows none */
	uint8_t rnr_timer;   /* the responder's; and it has no receive */
	uint32_t beyond;     /* bytes of the last request that lie outside the region */
	uint32_t receive;    /* size of the responder's receives; 0: enough */
	uint8_t nak;	     /* ours where the kernel deviates */
	bool responder_only; /* the requester's part hangs on its clock */
};

struct end {
	const struct row *row;
	struct qp qp;
	struct mem_table mem;
	struct mr remote; /* what the peer's requests name */
	struct mr local;
	struct outbox box;
	uint64_t key_state;
	uint8_t *bytes;
	struct seen *sent;
	size_t n_sent;
	unsigned n_good, n_bad;
	enum ibv_wc_status first_bad;
};

void end_open(struct end *e, const struct conversation *c, const struct row *row, bool requester);
void end_close(struct end *e);
/* What the queue pair has to send goes to e->sent. */
void end_transmit(struct end *e);
void end_post_receive(struct end *e);

#endif
