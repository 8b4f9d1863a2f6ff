/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of the verbs face share: a network namespace with loopback only, its device
 * opened, and queue pairs on it that are connected to each other. All through the public API of
 * <infiniband/verbs.h>.
 */
#ifndef TESTS_VERBS_RIG_H
#define TESTS_VERBS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <infiniband/verbs.h>
#include <stdbool.h>

#define RIG_BUFFER 262144
#define RIG_ALL_ACCESS                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

struct rig {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint8_t *buffer;
	struct ibv_mr *mr; /* of the buffer; all access */
};

/* In a namespace of the test's own; exits with 77 (skipped) where that isn't allowed. Once per
 * program. */
void rig_isolate(void);

/* The device of this interface, opened; fails the test when there is none. */
struct ibv_context *rig_open(const char *interface);
int rig_setup(void **state);
int rig_teardown(void **state);

struct ibv_cq *rig_cq(struct rig *r, int cqe, struct ibv_comp_channel *channel);
/* 16 requests and 4 SGEs each way, 64 bytes inline. */
struct ibv_qp *rig_qp(struct rig *r, enum ibv_qp_type type, struct ibv_cq *send,
		      struct ibv_cq *recv, struct ibv_srq *srq);

int rig_to_init(struct ibv_qp *qp);
int rig_to_rtr(struct ibv_qp *qp, uint32_t dest_qpn);
int rig_to_rts(struct ibv_qp *qp);
/* All three steps, for both. */
void rig_connect(struct ibv_qp *a, struct ibv_qp *b);
/* A queue pair that is its own peer. */
void rig_connect_self(struct ibv_qp *qp);

/* Two connected queue pairs, each with a CQ of its own for both directions. */
struct rig_pair {
	struct ibv_cq *cq_a, *cq_b;
	struct ibv_qp *a, *b;
};
struct rig_pair rig_pair_make(struct rig *r, enum ibv_qp_type type);
void rig_pair_free(struct rig_pair *p);
/* One work request of `a` (add 1, or compare with 1 and swap 0), and how it ended. */
enum ibv_wc_status rig_run(struct rig_pair *p, enum ibv_wr_opcode opcode, uint64_t local,
			   uint32_t len, uint32_t lkey, uint64_t remote, uint32_t rkey);

int rig_post_recv(struct rig *r, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset, uint32_t len);
int rig_post_send(struct rig *r, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset, uint32_t len,
		  unsigned flags);

/* Poll until a completion comes; fails the test after half a minute. */
struct ibv_wc rig_await(struct ibv_cq *cq);
/* Poll n completions, all of which must be successful. */
void rig_await_n(struct ibv_cq *cq, int n);
/* Wait for this asynchronous event (others before it are acknowledged and ignored). */
struct ibv_async_event rig_await_event(struct ibv_context *ctx, enum ibv_event_type type);
/* Does this byte, which the adapter writes meanwhile, become the value soon? */
bool rig_becomes(const volatile uint8_t *byte, uint8_t value);
/* Is the descriptor readable, now or within this time? */
bool rig_readable(int fd, int timeout_ms);

#endif
