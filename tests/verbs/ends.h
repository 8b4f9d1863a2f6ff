/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scenes of two ends, a near and a far one, each with the device opened by itself and a queue pair. What
 * they need to know of each other they tell by a socket, and they wait for each other there; so a scene
 * is written once and played in different places, as the environment says:
 *
 *	TEST_ENDS=process		the far end is a thread of this process; without it, another process
 *	ROCELINK_PATH=udp | shm		how packets go
 *	ROCELINK_FAULT=loss=5%,...	what happens to them on the way
 */
#ifndef TESTS_VERBS_ENDS_H
#define TESTS_VERBS_ENDS_H

#include "rig.h"

#define FAR_AT 8192u /* where in the far buffer requests go by themselves */

/* What one end tells the other. */
struct hello {
	uint32_t qpn, srqn, rkey, other_rkey;
	uint64_t addr, other_addr;
};

struct ends {
	bool near;
	int sock;
	struct rig *r;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct hello peer;
	enum ibv_qp_type type;
};

typedef void ends_side(struct ends *e);

/* Both sides, at once. */
void ends_play(ends_side *near, ends_side *far);

/* Packets get lost here: what is refused may end as a request that nobody answers. */
bool ends_lossy(void);

void ends_swap(struct ends *e, struct hello mine);
/* Both are here. */
void ends_meet(struct ends *e);

/* The device, a CQ of 64 and a queue pair on it (RC, UC or UD). */
void ends_open(struct ends *e, enum ibv_qp_type type);
/* To RTS, with the peer's; tells the buffer's address and this key. */
void ends_join(struct ends *e, uint32_t rkey);
/* The same, as impatient as the rig: for who isn't to be answered. */
void ends_join_impatient(struct ends *e, uint32_t rkey);
/* After an error: another queue pair in the old one's place, joined. What the peer said otherwise stays. */
void ends_again(struct ends *e);
/* All that was opened; not before the peer is done as well. */
void ends_close(struct ends *e);

/* Patient, where the rig isn't: two processes and all that runs beside them share few processors. */
int ends_to_rts(struct ibv_qp *qp);

void ends_fill(struct ends *e, uint32_t offset, uint32_t len, unsigned seed);
void ends_expect_filled(struct ends *e, uint32_t offset, uint32_t len, unsigned seed);
uint64_t ends_word(struct ends *e, uint32_t offset);
void ends_set_word(struct ends *e, uint32_t offset, uint64_t value);

/* Signaled, and how it ended. */
struct ibv_wc ends_run(struct ends *e, struct ibv_send_wr *wr);
/* A WRITE, READ or atomic (add 5; compare with 5, swap 77) between the start of the buffer and there. */
enum ibv_wc_status ends_request_at(struct ends *e, enum ibv_wr_opcode opcode, uint32_t len,
				   uint64_t addr, uint32_t rkey);
/* Any request, to FAR_AT of the peer's buffer. */
enum ibv_wc_status ends_request(struct ends *e, enum ibv_wr_opcode opcode, uint32_t len,
				uint32_t rkey, uint32_t imm_or_key, unsigned flags);

/* Before a request that nobody will answer. */
void ends_hurry(struct ends *e);
/* Before a request that will be refused: whom loss keeps from hearing so shouldn't wait for long. */
void ends_hasten(struct ends *e);
/* This status, or under loss that nobody said so. */
void ends_expect_refused(enum ibv_wc_status status, enum ibv_wc_status expected);
/* The event, others of the same context being ignored, is of this object. */
void ends_expect_event(struct ends *e, enum ibv_event_type type, const void *element);

/*
 * Attempts of the near end on the far end's memory, which both know: what is refused breaks the
 * connection, tells the far end so, and is followed by ends_again() on both sides. Both return together.
 */
struct attempt {
	enum ibv_wr_opcode opcode;
	int64_t offset; /* from the address */
	uint32_t len;
	bool refused;
};
void ends_try(struct ends *e, const struct attempt *list, unsigned n, uint64_t addr, uint32_t rkey);
void ends_await_tries(struct ends *e, const struct attempt *list, unsigned n);

#define TRIES(list) (list), sizeof(list) / sizeof((list)[0])

#endif
