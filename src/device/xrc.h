/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains, the numbers of their shared receive queues, and target queue pairs.
 *
 * A domain is known by the file it was opened on: contexts of one device that open the same file share
 * it, in one process or in several of one user (xrc_claim.h). SRQs and targets live in the process that
 * made them. A message for an SRQ of another process is relayed to it (xrc_relay.c).
 *
 * A target has no owner: the queue pair that was created and each one opened on it, here or in another
 * process (xrc_remote.c), are handles, which all modify, query and hear the events of the one target; it
 * goes with the last of them, or with the context that created it.
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
	/* xrc_remote.c: handles of other processes, and what they ask for. */
	struct list openers, calls;
	unsigned n_calls;
	struct engine_alarm watch;
	struct list all;	     /* of all targets */
	struct dev_context *creator; /* NULL: it was closed */
};

/* This process's target with this number, of the named domain; or NULL. Under the lock. */
struct xrc_target *xrc_target_find(struct engine *e, uint32_t qpn, const struct xrc_name *name);
/* It has no handle left, or none that keeps it. Under the lock. */
void xrc_target_end(struct xrc_target *target);
/* What it created and only other processes have open goes. */
void xrc_context_closed(struct dev_context *ctx);
/* dev_qp_modify() of a target, under the lock: 0 or -errno, and a line in the log. */
int dev_qp_modify_target(struct xrc_target *target, const struct ibv_qp_attr *attr, int mask);

struct xrc_domain *xrc_domain_get(struct xrc_domain *domain);
void xrc_domain_put(struct xrc_domain *domain);

/* struct qp_config.find_srq: under the engine lock. */
struct recv_queue *xrc_find_srq(void *domain, uint32_t srqn);

/* The domain of the SRQ with this number, if it is the named one; else NULL. */
struct xrc_domain *xrc_domain_of(uint32_t srqn, const struct xrc_name *name);

/* What processes that share a domain say to each other: the first word of a message. */
enum xrc_message {
	XRC_RUN = 1, /* xrc_relay.c */
	XRC_DONE,
	XRC_ASK,
	XRC_END,
	XRC_HELLO, /* means nothing, but arrives while the process lives */
	XRC_CALL,  /* xrc_remote.c */
	XRC_RETURN,
	XRC_EVENT,
};
uint64_t xrc_random(void);

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
void xrc_targets_abandon(void);
void xrc_abandon(void);

#endif
