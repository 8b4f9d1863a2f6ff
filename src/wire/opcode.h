/* SPDX-License-Identifier: BSD-2-Clause */
/* The opcode table of IBA 9.2.1 (BTH OpCode): one row per opcode, all else derived from it. */
#ifndef ROCELINK_WIRE_OPCODE_H
#define ROCELINK_WIRE_OPCODE_H

#include <stdint.h>

/* The three high bits of the opcode. */
enum wire_service {
	WIRE_RC = 0,
	WIRE_UC = 1,
	WIRE_RD = 2, /* not supported: rows are empty */
	WIRE_UD = 3,
	WIRE_CNP = 4, /* congestion notification, opcode 0x81 */
	WIRE_XRC = 5,
};

enum op_kind {
	OP_NONE, /* reserved opcode */
	OP_SEND,
	OP_WRITE,
	OP_READ_REQUEST,
	OP_READ_RESPONSE,
	OP_ACKNOWLEDGE,
	OP_ATOMIC_ACKNOWLEDGE,
	OP_COMPARE_SWAP,
	OP_FETCH_ADD,
	OP_RESYNC,
	OP_FLUSH,
	OP_ATOMIC_WRITE,
	OP_CNP,
};

enum op_position { POS_ONLY, POS_FIRST, POS_MIDDLE, POS_LAST };

/* Extended headers behind the BTH, in the order in which they stand in a packet. */
enum op_header {
	HDR_XRCETH = 1 << 0,	 /* 4 bytes: XRC SRQ number */
	HDR_DETH = 1 << 1,	 /* 8 */
	HDR_FETH = 1 << 2,	 /* 4: flush extended header */
	HDR_RETH = 1 << 3,	 /* 16 */
	HDR_ATOMIC_ETH = 1 << 4, /* 28 */
	HDR_AETH = 1 << 5,	 /* 4 */
	HDR_ATOMIC_ACK = 1 << 6, /* 8 */
	HDR_IMM = 1 << 7,	 /* 4 */
	HDR_IETH = 1 << 8,	 /* 4: R_Key to invalidate */
};

enum op_flag {
	OPF_REQUEST = 1 << 0, /* travels requester to responder */
	OPF_RESPONSE = 1 << 1,
	OPF_PAYLOAD = 1 << 2,  /* may carry payload */
	OPF_RECV_WR = 1 << 3,  /* this packet's message consumes a receive work request */
	OPF_RECV_END = 1 << 4, /* this packet completes a receive work request */
};

struct opcode_info {
	const char *name; /* as Wireshark has it without the service, e.g. "SEND First"; NULL:
			     reserved */
	enum op_kind kind;
	enum op_position position;
	uint16_t headers;    /* enum op_header */
	uint8_t flags;	     /* enum op_flag */
	uint8_t headers_len; /* bytes of the extended headers */
};

/* The row of this opcode; never NULL: a reserved opcode gives a row with kind OP_NONE. */
const struct opcode_info *opcode_info(uint8_t opcode);

/* The opcode with these properties, or -1 where the service has none. headers: HDR_IMM or HDR_IETH
 * or 0, the only ones that distinguish opcodes of one kind and position. */
int opcode_find(enum wire_service service, enum op_kind kind, enum op_position position,
		unsigned headers);

/* Bytes of all extended headers in the set. */
unsigned opcode_headers_len(unsigned headers);

static inline enum wire_service opcode_service(uint8_t opcode)
{
	return (enum wire_service)(opcode >> 5);
}

#endif
