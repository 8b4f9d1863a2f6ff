/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains, the numbers of their shared receive queues, and target queue pairs.
 *
 * A domain is known by the file it was opened on: contexts of one device that open the same file share
 * it, in one process or in several of one user (xrc_claim.h). SRQs and targets live in the process that
 * made them. A message for an SRQ of another process is relayed to it (xrc_relay.c).
 *
 * A target has no owner: the queue pair that was created and each one opened on it are handles,
 * which all modify, query and hear the events of the one target; it goes with the last of them.
 */
#ifndef ROCELINK_DEVICE_XRC_H
#define ROCELINK_DEVICE_XRC_H

#include "device/device.h"
#include "device/xrc_claim.h"

struct xrc_domain {
	struct list link;
	struct dev *dev;
	int claim;	      /* xrc_claim(); -1: nobody else can open it */
	struct xrc_name name; /* with a claim */
	unsigned generation;  /* of forks: a child's domains are its own */
	int refs;	      /* handles of it; under the domains' lock */
	struct list targets;  /* under the engine lock */
};

struct xrc_target {
	struct engine_qp eqp;
	struct engine *engine;
	struct dev *dev;
	struct list link;    /* domain->targets */
	struct list handles; /* dev_qp.handle_link; under the engine lock */
	bool expecting;	     /* engine_expect_peer was called */
	struct xrc_domain *domain;
	/* xrc_relay.c */
	uint64_t stream, run;
	uint64_t run_since_ns;
	bool doomed; /* the SRQ's process was gone when last asked */
	struct engine_alarm alarm;
};

/* struct qp_config.find_srq: under the engine lock. */
struct recv_queue *xrc_find_srq(void *domain, uint32_t srqn);

/* The domain of the SRQ with this number, if it is the named one; else NULL. */
struct xrc_domain *xrc_domain_of(uint32_t srqn, const struct xrc_name *name);

/* xrc_relay.c: of targets. Under the engine lock. */
extern const struct relay_ops xrc_relay_ops;
/* A message of another process's engine. */
void xrc_relay_receive(struct engine *e, const uint8_t *data, size_t len);
/* This SRQ goes away. */
void xrc_relay_forget_srq(const struct recv_queue *rq);
/* In the child of a fork. */
void xrc_relay_abandon(void);

/* Give the SRQ a number and let messages in (0 or -errno); and take it out of all targets' hands. */
int xrc_srq_add(struct dev_srq *srq);
void xrc_srq_remove(struct dev_srq *srq);
/* Its CQ overran: the targets that are at it fail, others when they name it. Under the engine lock. */
void xrc_srq_break(struct dev_srq *srq);

/* Around a fork, so that the child finds the lock free. */
void xrc_fork_lock(bool take);
/* In the child, with the lock. */
void xrc_abandon(void);

#endif
