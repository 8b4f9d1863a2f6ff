/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/qp_table.h"

#include <errno.h>
#include <stdlib.h>

static int grow(struct qp_table *t, struct port *port, uint64_t random)
{
	struct engine_qp **block = calloc(QPNS_PER_BLOCK, sizeof(struct engine_qp *));
	int number;

	if (!block)
		return -ENOMEM;
	number = port_claim_block(port);
	if (number < 0) {
		free(block);
		return number;
	}
	t->blocks[number] = block;
	t->owned[t->n_owned++] = (uint16_t)number;
	/* Start somewhere in the new block: numbers can't be guessed from the block alone. */
	t->cursor = (t->n_owned - 1) * QPNS_PER_BLOCK + (uint32_t)random % QPNS_PER_BLOCK;
	return 0;
}

int qp_table_add(struct qp_table *t, struct port *port, struct engine_qp *eqp, uint64_t random)
{
	uint32_t total = t->n_owned * QPNS_PER_BLOCK;

	/* A quarter stays free, so that numbers rest before they are used again. */
	if (t->live >= total - total / 4) {
		int ret = grow(t, port, random);

		if (ret && t->live == total)
			return ret;
		total = t->n_owned * QPNS_PER_BLOCK;
	}
	for (;;) {
		uint32_t number = t->owned[t->cursor / QPNS_PER_BLOCK];
		uint32_t index = t->cursor % QPNS_PER_BLOCK;

		t->cursor = (t->cursor + 1) % total;
		if (t->blocks[number][index])
			continue;
		t->blocks[number][index] = eqp;
		t->live++;
		eqp->qp.qpn = number << QPN_BLOCK_BITS | index;
		return 0;
	}
}

void qp_table_remove(struct qp_table *t, struct engine_qp *eqp)
{
	uint32_t qpn = eqp->qp.qpn;

	if (qp_table_find(t, qpn) != eqp)
		return;
	t->blocks[qpn_block(qpn)][qpn & (QPNS_PER_BLOCK - 1)] = NULL;
	t->live--;
}

int qp_table_block(struct qp_table *t, struct port *port, uint32_t i, uint64_t random)
{
	int ret = i < t->n_owned ? 0 : grow(t, port, random);

	return ret ? ret : t->owned[i];
}

void qp_table_destroy(struct qp_table *t, struct port *port)
{
	for (uint32_t i = 0; i < t->n_owned; i++) {
		port_release_block(port, t->owned[i]);
		free(t->blocks[t->owned[i]]);
		t->blocks[t->owned[i]] = NULL;
	}
	t->n_owned = 0;
}
