/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/segment.h"

/* [work request][position]; the values are those of IBA table 38, and are tested against
 * opcode_find(). */
/* clang-format off */
#define NO SEGMENT_NONE
static const uint8_t segments[][4] = {
	/*                               ONLY  FIRST MIDDLE LAST */
	[IBV_WR_RDMA_WRITE]           = { 0x0a, 0x06, 0x07, 0x08 },
	[IBV_WR_RDMA_WRITE_WITH_IMM]  = { 0x0b, 0x06, 0x07, 0x09 },
	[IBV_WR_SEND]                 = { 0x04, 0x00, 0x01, 0x02 },
	[IBV_WR_SEND_WITH_IMM]        = { 0x05, 0x00, 0x01, 0x03 },
	[IBV_WR_RDMA_READ]            = { 0x0c, 0x0c, 0x0c, 0x0c },
	[IBV_WR_ATOMIC_CMP_AND_SWP]   = { 0x13, NO,   NO,   NO   },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { 0x14, NO,   NO,   NO   },
	[IBV_WR_LOCAL_INV]            = { NO,   NO,   NO,   NO   },
	[IBV_WR_BIND_MW]              = { NO,   NO,   NO,   NO   },
	[IBV_WR_SEND_WITH_INV]        = { 0x17, 0x00, 0x01, 0x16 },
	[IBV_WR_TSO]                  = { NO,   NO,   NO,   NO   },
	[IBV_WR_DRIVER1]              = { NO,   NO,   NO,   NO   },
	/* Numbers that aren't given out. */
	[IBV_WR_DRIVER1 + 1 ... IBV_WR_ATOMIC_WRITE - 1] = { NO, NO, NO, NO },
	[IBV_WR_ATOMIC_WRITE]         = { 0x1d, NO,   NO,   NO   },
};
/* clang-format on */

uint8_t segment_opcode(enum ibv_wr_opcode wr, enum op_position position)
{
	if ((unsigned)wr >= sizeof(segments) / sizeof(segments[0]))
		return SEGMENT_NONE;
	return segments[wr][position];
}
