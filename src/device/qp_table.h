/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs by number. Numbers come from blocks of 4096 that the process owns (net/port.h); a
 * number that was given back isn't given out again before the cursor has been round all blocks.
 */
#ifndef ROCELINK_DEVICE_QP_TABLE_H
#define ROCELINK_DEVICE_QP_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/engine.h"
#include "net/port.h"

#define QPNS_PER_BLOCK (1u << QPN_BLOCK_BITS)

struct qp_table {
	struct engine_qp **blocks[QPN_BLOCKS]; /* NULL: not ours */
	uint16_t owned[QPN_BLOCKS];	       /* numbers of our blocks */
	uint32_t n_owned;
	uint32_t live;
	uint32_t cursor; /* into the concatenation of our blocks */
};

static inline bool qp_table_owns(const struct qp_table *t, uint32_t qpn)
{
	return qpn_block(qpn) < QPN_BLOCKS && t->blocks[qpn_block(qpn)];
}

static inline struct engine_qp *qp_table_find(const struct qp_table *t, uint32_t qpn)
{
	return qp_table_owns(t, qpn) ? t->blocks[qpn_block(qpn)][qpn & (QPNS_PER_BLOCK - 1)] : NULL;
}

/* Enter the QP under a new number, its qp.qpn; claims a block of the port at need. 0 or -errno. */
int qp_table_add(struct qp_table *t, struct port *port, struct engine_qp *eqp, uint64_t random);
void qp_table_remove(struct qp_table *t, struct engine_qp *eqp);
/* The number of the i-th block, claimed at need (i at most their count); or -errno. */
int qp_table_block(struct qp_table *t, struct port *port, uint32_t i, uint64_t random);
/* Give all blocks back; the table must be empty of QPs. */
void qp_table_destroy(struct qp_table *t, struct port *port);

#endif
