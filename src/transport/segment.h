/* SPDX-License-Identifier: BSD-2-Clause */
/* Segmentation: which opcode packet number pkt of a work request has. */
#ifndef ROCELINK_TRANSPORT_SEGMENT_H
#define ROCELINK_TRANSPORT_SEGMENT_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "wire/opcode.h"

#define SEGMENT_NONE 0xff

/* Packet pkt of `packets`. */
static inline enum op_position segment_position(uint32_t pkt, uint32_t packets)
{
	if (packets == 1)
		return POS_ONLY;
	if (pkt == 0)
		return POS_FIRST;
	return pkt == packets - 1 ? POS_LAST : POS_MIDDLE;
}

/* The opcode, without the service's three bits; SEGMENT_NONE: the operation is not supported. */
uint8_t segment_opcode(enum ibv_wr_opcode wr, enum op_position position);

#endif
