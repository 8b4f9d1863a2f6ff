/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue pair of the program's, while it is being linked: collect its values, write the agreed
 * ones into it. The only file of this part that changes queue pairs.
 */
#ifndef ROCELINK_LINK_QP_H
#define ROCELINK_LINK_QP_H

#include "link/message.h"
#include "link/negotiate.h"
#include "link/trace.h"

struct link_qp {
	struct ibv_qp *qp;
	unsigned index;
	struct rocelink_qp_options options;
	struct qp_values values; /* what we say in HELLO */
	struct agreed agreed;
	struct ibv_ah *ah; /* ours to destroy */
	bool was_reset;	   /* when it was given to us: a failure puts it back there */
	bool in_init;	   /* it is in INIT with a port */
	uint8_t port;	   /* of a queue pair that came in INIT, else 0 */
};

/* Take a queue pair: check its type and state, and the options. Touches nothing. */
int link_qp_take(struct link_qp *q, struct ibv_qp *qp, const struct rocelink_qp_options *options,
		 unsigned index, struct rocelink_error *err);

/* Fill q->values, which need the port's MTU and the device's depths, and move it to INIT. */
int link_qp_init(struct link_qp *q, const struct rocelink_gid *gid, enum rocelink_compat compat,
		 const struct tracer *t, struct rocelink_error *err);

/* q->agreed is known: INIT -> RTR -> RTS, and UD's address handle. */
int link_qp_connect(struct link_qp *q, const struct rocelink_gid *gid,
		    const struct gid_value *remote, const struct tracer *t,
		    struct rocelink_error *err);

/* What we ask a peer to wait after an RNR NAK. */
uint8_t link_qp_min_rnr_code(const struct link_qp *q);

/* After a failure: back to RESET if it came so; and in any case drop what was made here. */
void link_qp_undo(struct link_qp *q, bool reset);

#endif
