/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles on a target of another process (ibv_open_qp): what they are asked to do is done there. A target
 * that others have opened outlives its own process's handles, but not the context that created it.
 *
 *   opener                                 the target's process
 *      CALL open, modify, query, close ->  an opener in the target's list; done between two steps' parts
 *      <- RETURN (not of close)
 *      <- EVENT                            what happens to the target, each opener hears
 *
 * A process that has none but others' handles left looks every second whether those live.
 */
#ifndef ROCELINK_DEVICE_XRC_REMOTE_H
#define ROCELINK_DEVICE_XRC_REMOTE_H

#include "device/xrc.h"

/* The opener's side. Without the lock. 0, or -errno and a line in the log. */
int xrc_remote_open(struct dev_qp *handle, uint32_t qpn);
void xrc_remote_close(struct dev_qp *handle);
int xrc_remote_modify(struct dev_qp *handle, const struct ibv_qp_attr *attr, int mask);
int xrc_remote_query(struct dev_qp *handle, struct ibv_qp_attr *attr);

/* The target's side. Under the lock: begin, and forget all (when it is destroyed). */
void xrc_openers_init(struct xrc_target *target);
void xrc_openers_end(struct xrc_target *target);
/* It has no handle of this process left: does it stay for others? */
bool xrc_openers_keep(struct xrc_target *target);
void xrc_openers_event(struct xrc_target *target, enum ibv_event_type type);

/* A message of another process's engine. Under the lock. */
void xrc_remote_receive(struct engine *e, const uint8_t *data, size_t len);
/* In the child of a fork. */
void xrc_remote_abandon(void);

#endif
