/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The opcode table (IBA 9.2.1, tables 37 and 38; XRC: annex A14; CNP: annex A17.9.3; FLUSH and
 * ATOMIC WRITE: annex A19). The five low bits of an opcode mean the same in every service, so that
 * the way back, from properties to opcode, is one table of low bits and a look at the row found
 * there.
 */
#include "wire/opcode.h"

#include <stdbool.h>

#define LEN_IF(set, header, len) ((set) & (header) ? (len) : 0u)
#define HEADERS_LEN(h)                                                                         \
	(LEN_IF(h, HDR_XRCETH, 4u) + LEN_IF(h, HDR_DETH, 8u) + LEN_IF(h, HDR_FETH, 4u) +       \
	 LEN_IF(h, HDR_RETH, 16u) + LEN_IF(h, HDR_ATOMIC_ETH, 28u) + LEN_IF(h, HDR_AETH, 4u) + \
	 LEN_IF(h, HDR_ATOMIC_ACK, 8u) + LEN_IF(h, HDR_IMM, 4u) + LEN_IF(h, HDR_IETH, 4u))

#define ROW(name, kind, position, headers, flags)                                         \
	{                                                                                 \
		name, OP_##kind, POS_##position, (headers), (flags), HEADERS_LEN(headers) \
	}

/* clang-format off */

/* Short names of this table only. */
#define NONE 0
#define XRC  HDR_XRCETH
#define DETH HDR_DETH
#define FETH HDR_FETH
#define RETH HDR_RETH
#define ATOM HDR_ATOMIC_ETH
#define AETH HDR_AETH
#define AACK HDR_ATOMIC_ACK
#define IMM  HDR_IMM
#define IETH HDR_IETH
/* Q request, A response; P may carry payload; R consumes a receive work request, E completes it. */
#define Q    OPF_REQUEST
#define A    OPF_RESPONSE
#define QP   (OPF_REQUEST | OPF_PAYLOAD)
#define AP   (OPF_RESPONSE | OPF_PAYLOAD)
#define QPR  (QP | OPF_RECV_WR)
#define QPRE (QPR | OPF_RECV_END)

static const struct opcode_info opcodes[256] = {
	/*              name                             kind             position  headers            flags */
	/* RC */
	[0x00] = ROW("SEND First",                       SEND,               FIRST,  NONE,              QPR),
	[0x01] = ROW("SEND Middle",                      SEND,               MIDDLE, NONE,              QPR),
	[0x02] = ROW("SEND Last",                        SEND,               LAST,   NONE,              QPRE),
	[0x03] = ROW("SEND Last with Immediate",         SEND,               LAST,   IMM,               QPRE),
	[0x04] = ROW("SEND Only",                        SEND,               ONLY,   NONE,              QPRE),
	[0x05] = ROW("SEND Only with Immediate",         SEND,               ONLY,   IMM,               QPRE),
	[0x06] = ROW("RDMA WRITE First",                 WRITE,              FIRST,  RETH,              QP),
	[0x07] = ROW("RDMA WRITE Middle",                WRITE,              MIDDLE, NONE,              QP),
	[0x08] = ROW("RDMA WRITE Last",                  WRITE,              LAST,   NONE,              QP),
	[0x09] = ROW("RDMA WRITE Last with Immediate",   WRITE,              LAST,   IMM,               QPRE),
	[0x0a] = ROW("RDMA WRITE Only",                  WRITE,              ONLY,   RETH,              QP),
	[0x0b] = ROW("RDMA WRITE Only with Immediate",   WRITE,              ONLY,   RETH | IMM,        QPRE),
	[0x0c] = ROW("RDMA READ Request",                READ_REQUEST,       ONLY,   RETH,              Q),
	[0x0d] = ROW("RDMA READ response First",         READ_RESPONSE,      FIRST,  AETH,              AP),
	[0x0e] = ROW("RDMA READ response Middle",        READ_RESPONSE,      MIDDLE, NONE,              AP),
	[0x0f] = ROW("RDMA READ response Last",          READ_RESPONSE,      LAST,   AETH,              AP),
	[0x10] = ROW("RDMA READ response Only",          READ_RESPONSE,      ONLY,   AETH,              AP),
	[0x11] = ROW("Acknowledge",                      ACKNOWLEDGE,        ONLY,   AETH,              A),
	[0x12] = ROW("ATOMIC Acknowledge",               ATOMIC_ACKNOWLEDGE, ONLY,   AETH | AACK,       A),
	[0x13] = ROW("CmpSwap",                          COMPARE_SWAP,       ONLY,   ATOM,              Q),
	[0x14] = ROW("FetchAdd",                         FETCH_ADD,          ONLY,   ATOM,              Q),
	[0x16] = ROW("SEND Last with Invalidate",        SEND,               LAST,   IETH,              QPRE),
	[0x17] = ROW("SEND Only with Invalidate",        SEND,               ONLY,   IETH,              QPRE),
	[0x1c] = ROW("FLUSH",                            FLUSH,              ONLY,   FETH | RETH,       Q),
	[0x1d] = ROW("ATOMIC WRITE",                     ATOMIC_WRITE,       ONLY,   RETH,              QP),
	/* UC */
	[0x20] = ROW("SEND First",                       SEND,               FIRST,  NONE,              QPR),
	[0x21] = ROW("SEND Middle",                      SEND,               MIDDLE, NONE,              QPR),
	[0x22] = ROW("SEND Last",                        SEND,               LAST,   NONE,              QPRE),
	[0x23] = ROW("SEND Last with Immediate",         SEND,               LAST,   IMM,               QPRE),
	[0x24] = ROW("SEND Only",                        SEND,               ONLY,   NONE,              QPRE),
	[0x25] = ROW("SEND Only with Immediate",         SEND,               ONLY,   IMM,               QPRE),
	[0x26] = ROW("RDMA WRITE First",                 WRITE,              FIRST,  RETH,              QP),
	[0x27] = ROW("RDMA WRITE Middle",                WRITE,              MIDDLE, NONE,              QP),
	[0x28] = ROW("RDMA WRITE Last",                  WRITE,              LAST,   NONE,              QP),
	[0x29] = ROW("RDMA WRITE Last with Immediate",   WRITE,              LAST,   IMM,               QPRE),
	[0x2a] = ROW("RDMA WRITE Only",                  WRITE,              ONLY,   RETH,              QP),
	[0x2b] = ROW("RDMA WRITE Only with Immediate",   WRITE,              ONLY,   RETH | IMM,        QPRE),
	/* UD */
	[0x64] = ROW("SEND Only",                        SEND,               ONLY,   DETH,              QPRE),
	[0x65] = ROW("SEND Only with Immediate",         SEND,               ONLY,   DETH | IMM,        QPRE),
	/* CNP */
	[0x81] = ROW("CNP",                              CNP,                ONLY,   NONE,              OPF_PAYLOAD),
	/* XRC: requests name the SRQ, responses are those of RC */
	[0xa0] = ROW("SEND First",                       SEND,               FIRST,  XRC,               QPR),
	[0xa1] = ROW("SEND Middle",                      SEND,               MIDDLE, XRC,               QPR),
	[0xa2] = ROW("SEND Last",                        SEND,               LAST,   XRC,               QPRE),
	[0xa3] = ROW("SEND Last with Immediate",         SEND,               LAST,   XRC | IMM,         QPRE),
	[0xa4] = ROW("SEND Only",                        SEND,               ONLY,   XRC,               QPRE),
	[0xa5] = ROW("SEND Only with Immediate",         SEND,               ONLY,   XRC | IMM,         QPRE),
	[0xa6] = ROW("RDMA WRITE First",                 WRITE,              FIRST,  XRC | RETH,        QP),
	[0xa7] = ROW("RDMA WRITE Middle",                WRITE,              MIDDLE, XRC,               QP),
	[0xa8] = ROW("RDMA WRITE Last",                  WRITE,              LAST,   XRC,               QP),
	[0xa9] = ROW("RDMA WRITE Last with Immediate",   WRITE,              LAST,   XRC | IMM,         QPRE),
	[0xaa] = ROW("RDMA WRITE Only",                  WRITE,              ONLY,   XRC | RETH,        QP),
	[0xab] = ROW("RDMA WRITE Only with Immediate",   WRITE,              ONLY,   XRC | RETH | IMM,  QPRE),
	[0xac] = ROW("RDMA READ Request",                READ_REQUEST,       ONLY,   XRC | RETH,        Q),
	[0xad] = ROW("RDMA READ response First",         READ_RESPONSE,      FIRST,  AETH,              AP),
	[0xae] = ROW("RDMA READ response Middle",        READ_RESPONSE,      MIDDLE, NONE,              AP),
	[0xaf] = ROW("RDMA READ response Last",          READ_RESPONSE,      LAST,   AETH,              AP),
	[0xb0] = ROW("RDMA READ response Only",          READ_RESPONSE,      ONLY,   AETH,              AP),
	[0xb1] = ROW("Acknowledge",                      ACKNOWLEDGE,        ONLY,   AETH,              A),
	[0xb2] = ROW("ATOMIC Acknowledge",               ATOMIC_ACKNOWLEDGE, ONLY,   AETH | AACK,       A),
	[0xb3] = ROW("CmpSwap",                          COMPARE_SWAP,       ONLY,   XRC | ATOM,        Q),
	[0xb4] = ROW("FetchAdd",                         FETCH_ADD,          ONLY,   XRC | ATOM,        Q),
	[0xb6] = ROW("SEND Last with Invalidate",        SEND,               LAST,   XRC | IETH,        QPRE),
	[0xb7] = ROW("SEND Only with Invalidate",        SEND,               ONLY,   XRC | IETH,        QPRE),
	[0xbc] = ROW("FLUSH",                            FLUSH,              ONLY,   XRC | FETH | RETH, Q),
	[0xbd] = ROW("ATOMIC WRITE",                     ATOMIC_WRITE,       ONLY,   XRC | RETH,        QP),
};

/* Low bits of the opcode: [kind][position][none, immediate, invalidate]; 0 where there are none. */
static const uint8_t low_bits[OP_CNP + 1][POS_LAST + 1][3] = {
	[OP_SEND] = {
		[POS_FIRST] = { 0x00 }, [POS_MIDDLE] = { 0x01 },
		[POS_LAST] = { 0x02, 0x03, 0x16 }, [POS_ONLY] = { 0x04, 0x05, 0x17 },
	},
	[OP_WRITE] = {
		[POS_FIRST] = { 0x06 }, [POS_MIDDLE] = { 0x07 },
		[POS_LAST] = { 0x08, 0x09 }, [POS_ONLY] = { 0x0a, 0x0b },
	},
	[OP_READ_REQUEST] = { [POS_ONLY] = { 0x0c } },
	[OP_READ_RESPONSE] = {
		[POS_FIRST] = { 0x0d }, [POS_MIDDLE] = { 0x0e }, [POS_LAST] = { 0x0f }, [POS_ONLY] = { 0x10 },
	},
	[OP_ACKNOWLEDGE] = { [POS_ONLY] = { 0x11 } },
	[OP_ATOMIC_ACKNOWLEDGE] = { [POS_ONLY] = { 0x12 } },
	[OP_COMPARE_SWAP] = { [POS_ONLY] = { 0x13 } },
	[OP_FETCH_ADD] = { [POS_ONLY] = { 0x14 } },
	[OP_FLUSH] = { [POS_ONLY] = { 0x1c } },
	[OP_ATOMIC_WRITE] = { [POS_ONLY] = { 0x1d } },
	[OP_CNP] = { [POS_ONLY] = { 0x01 } },
};
/* clang-format on */

const struct opcode_info *opcode_info(uint8_t opcode)
{
	return &opcodes[opcode];
}

int opcode_find(enum wire_service service, enum op_kind kind, enum op_position position,
		unsigned headers)
{
	const unsigned variant = headers & (HDR_IMM | HDR_IETH);
	unsigned column = variant == HDR_IMM ? 1 : variant == HDR_IETH ? 2 : 0;
	int opcode = (int)service << 5 | low_bits[kind][position][column];
	const struct opcode_info *row = &opcodes[opcode];

	/* The row found must be the one asked for: it isn't where the service has no such opcode.
	 */
	if (kind == OP_NONE || row->kind != kind || row->position != position ||
	    (row->headers & (HDR_IMM | HDR_IETH)) != variant)
		return -1;
	return opcode;
}

unsigned opcode_headers_len(unsigned headers)
{
	return HEADERS_LEN(headers);
}
