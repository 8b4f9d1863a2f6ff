/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains, the numbers of their shared receive queues, and target queue pairs.
 *
 * A domain is known by the file it was opened on: contexts of one device in one process that open
 * the same file share it. SRQs and targets live in the process that made them, so another process
 * that opens the file gets a domain of its own: a number from there is unknown here, to
 * ibv_open_qp() as to an XRCETH.
 *
 * A target has no owner: the queue pair that was created and each one opened on it are handles,
 * which all modify, query and hear the events of the one target; it goes with the last of them.
 */
#ifndef ROCELINK_DEVICE_XRC_H
#define ROCELINK_DEVICE_XRC_H

#include "device/device.h"

struct xrc_domain {
	struct list link;
	struct dev *dev;
	bool named; /* by the file: */
	dev_t file_dev;
	ino_t file_ino;
	unsigned generation; /* of forks: a child's domains are its own */
	int refs;	     /* handles of it; under the domains' lock */
	struct list targets; /* under the engine lock */
};

struct xrc_target {
	struct engine_qp eqp;
	struct engine *engine;
	struct dev *dev;
	struct list link;    /* domain->targets */
	struct list handles; /* dev_qp.handle_link; under the engine lock */
	bool expecting;	     /* engine_expect_peer was called */
};

/* struct qp_config.find_srq: under the engine lock. */
struct recv_queue *xrc_find_srq(void *domain, uint32_t srqn);

/* Give the SRQ a number and let messages in; and take it out of all targets' hands. */
void xrc_srq_add(struct dev_srq *srq);
void xrc_srq_remove(struct dev_srq *srq);
/* Its CQ overran: the targets that are at it fail, others when they name it. Under the engine lock. */
void xrc_srq_break(struct dev_srq *srq);

/* Around a fork, so that the child finds the lock free. */
void xrc_fork_lock(bool take);

#endif
