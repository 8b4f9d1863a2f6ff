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

struct end {
	bool near;
	int sock;
	struct rig *r;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct hello peer;
	enum ibv_qp_type type;
};

typedef void end_side(struct end *e);

/* Both sides, at once. */
void ends_play(end_side *near, end_side *far);

/* Packets get lost here: what is refused may end as a request that nobody answers. */
bool ends_lossy(void);

void end_swap(struct end *e, struct hello mine);
/* Both are here. */
void end_meet(struct end *e);

/* The device, a CQ of 64 and a queue pair on it (RC, UC or UD). */
void end_open(struct end *e, enum ibv_qp_type type);
/* To RTS, with the peer's; tells the buffer's address and this key. */
void end_join(struct end *e, uint32_t rkey);
/* The same, as impatient as the rig: for who isn't to be answered. */
void end_join_impatient(struct end *e, uint32_t rkey);
/* After an error: another queue pair in the old one's place, joined. What the peer said otherwise stays. */
void end_again(struct end *e);
/* All that was opened; not before the peer is done as well. */
void end_close(struct end *e);

/* Patient, where the rig isn't: two processes and all that runs beside them share few processors. */
int end_to_rts(struct ibv_qp *qp);

void end_fill(struct end *e, uint32_t offset, uint32_t len, unsigned seed);
void end_expect_filled(struct end *e, uint32_t offset, uint32_t len, unsigned seed);
uint64_t end_word(struct end *e, uint32_t offset);
void end_set_word(struct end *e, uint32_t offset, uint64_t value);

/* Signaled, and how it ended. */
struct ibv_wc end_run(struct end *e, struct ibv_send_wr *wr);
/* A WRITE, READ or atomic (add 5; compare with 5, swap 77) between the start of the buffer and there. */
enum ibv_wc_status end_request_at(struct end *e, enum ibv_wr_opcode opcode, uint32_t len,
				  uint64_t addr, uint32_t rkey);
/* Any request, to FAR_AT of the peer's buffer. */
enum ibv_wc_status end_request(struct end *e, enum ibv_wr_opcode opcode, uint32_t len,
			       uint32_t rkey, uint32_t imm_or_key, unsigned flags);

/* Before a request that will be refused: whom loss keeps from hearing so shouldn't wait for long. */
void end_hasten(struct end *e);
/* This status, or under loss that nobody said so. */
void end_expect_refused(enum ibv_wc_status status, enum ibv_wc_status expected);
/* The event, others of the same context being ignored, is of this object. */
void end_expect_event(struct end *e, enum ibv_event_type type, const void *element);

/*
 * Attempts of the near end on the far end's memory, which both know: what is refused breaks the
 * connection, tells the far end so, and is followed by end_again() on both sides. Both return together.
 */
struct attempt {
	enum ibv_wr_opcode opcode;
	int64_t offset; /* from the address */
	uint32_t len;
	bool refused;
};
void end_try(struct end *e, const struct attempt *list, unsigned n, uint64_t addr, uint32_t rkey);
void end_await_tries(struct end *e, const struct attempt *list, unsigned n);

#define TRIES(list) (list), sizeof(list) / sizeof((list)[0])

#endif
