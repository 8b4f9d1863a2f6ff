/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One RoCE v2 packet from the BTH to the byte before the ICRC, as values. Parsing checks everything
 * that can be checked without knowing the queue pair; nothing of the wire is trusted before.
 * Pure: no system calls, no state.
 */
#ifndef ROCELINK_WIRE_PACKET_H
#define ROCELINK_WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/opcode.h"
#include "wire/psn.h"

#define ROCE_UDP_PORT	  4791
#define BTH_LEN		  12
#define ICRC_LEN	  4
#define PACKET_HEADER_MAX (BTH_LEN + 4 + 16 + 28 + 4 + 4) /* no packet has more than these */
#define MTU_MIN		  256
#define MTU_MAX		  4096
#define QPN_MULTICAST	  0xffffffu

/* AETH syndrome (IBA 9.7.5.1): the three high bits tell the kind, five low bits the value. */
enum aeth_kind { AETH_ACK = 0x00, AETH_RNR_NAK = 0x20, AETH_NAK = 0x60 };
enum { AETH_KIND_MASK = 0xe0, AETH_VALUE_MASK = 0x1f, AETH_CREDIT_INVALID = 0x1f };
enum nak_code {
	NAK_PSN_SEQUENCE = 0,
	NAK_INVALID_REQUEST = 1,
	NAK_REMOTE_ACCESS = 2,
	NAK_REMOTE_OPERATIONAL = 3,
	NAK_INVALID_RD_REQUEST = 4,
};

/* Why a packet was dropped. Every value has a name, a counter and a test that provokes it. */
enum drop {
	DROP_NONE,
	DROP_SHORT,	 /* shorter than its headers and ICRC */
	DROP_OPCODE,	 /* reserved opcode */
	DROP_VERSION,	 /* transport header version not 0 */
	DROP_LENGTH,	 /* payload where there is none, over 4096 bytes, pad longer than payload,
			    length % 4 */
	DROP_ICRC,	 /* ICRC wrong */
	DROP_QPN,	 /* no such queue pair */
	DROP_SERVICE,	 /* opcode of another service than the queue pair's */
	DROP_STATE,	 /* the queue pair's state doesn't receive */
	DROP_PKEY,	 /* P_Key doesn't match */
	DROP_QKEY,	 /* Q_Key doesn't match */
	DROP_ADDRESS,	 /* not from the queue pair's peer, or to another address of ours */
	DROP_STALE,	 /* ACK or response that answers nothing outstanding */
	DROP_DUPLICATE,	 /* repeated request that needs no answer */
	DROP_SEQUENCE,	 /* out of order: answered by a NAK once, dropped after that; UC: message
			    dropped */
	DROP_NO_RECEIVE, /* UC, UD: no receive work request posted */
	DROP_TOO_LONG,	 /* UD: message longer than the receive buffer; UC: longer than expected */
	DROP_ACCESS,	 /* UC: R_Key, bounds or permission */
	DROP_MULTICAST,	 /* no member of the group here */
	DROP_FORWARD,	 /* belongs to another process, which is gone or whose queue is full */
	DROP_CNP,	 /* congestion notification: counted, no action */
	DROP_COUNT
};

const char *drop_name(enum drop drop);	      /* short: "icrc", "qpn", ... */
const char *drop_explanation(enum drop drop); /* a sentence for people */

struct packet {
	uint8_t opcode;
	const struct opcode_info *op; /* set by parse; build takes it from opcode */
	bool solicited;
	bool mig_req;
	bool ack_req;
	uint8_t pad; /* parse: as received; build: computed from payload_len */
	uint16_t pkey;
	uint32_t dest_qpn;
	struct psn psn;
	bool fecn, becn;
	/* Extended headers; valid where op->headers names them. */
	uint32_t xrc_srqn;
	uint32_t qkey, src_qpn;		  /* DETH */
	uint32_t flush_type, flush_level; /* FETH: placement type bits, selectivity level */
	uint64_t va;			  /* RETH, AtomicETH */
	uint32_t rkey;			  /* RETH, AtomicETH */
	uint32_t dma_len;		  /* RETH */
	uint64_t swap_add, compare;	  /* AtomicETH */
	uint8_t syndrome;		  /* AETH */
	uint32_t msn;			  /* AETH, 24 bits */
	uint64_t atomic_result;		  /* AtomicAckETH */
	uint32_t imm;		  /* ImmDt, big-endian as on the wire (as in ibv_wc.imm_data) */
	uint32_t invalidate_rkey; /* IETH */
	/* parse only: into the parsed buffer */
	const uint8_t *payload;
	uint32_t payload_len; /* without pad */
	uint32_t mtu;	      /* what the sender cut the message at; 0: the queue pair's path MTU */
};

/* Parse len bytes from the BTH up to and including the ICRC (which is not checked here). */
enum drop packet_parse(struct packet *p, const uint8_t *data, size_t len);

/*
 * The same for a packet of the same-host path, cut at mtu bytes. Its sender could change data while
 * it is read, so headers are only taken from head, a copy of the first bytes (as many as there are,
 * PACKET_HEADER_MAX are enough). The ICRC's place is there but nothing is in it.
 */
enum drop packet_parse_local(struct packet *p, const uint8_t *head, const uint8_t *data, size_t len,
			     uint32_t mtu);

/* Bytes of headers that build will write for this opcode. */
static inline unsigned packet_headers_len(uint8_t opcode)
{
	return BTH_LEN + opcode_info(opcode)->headers_len;
}

/* Write BTH and extended headers (not payload, pad or ICRC); p->payload_len must be set, since the
 * pad count stands in the BTH. Returns the bytes written. */
unsigned packet_build_headers(const struct packet *p, uint8_t *out);

static inline unsigned packet_pad(uint32_t payload_len)
{
	return -payload_len & 3;
}

/* RNR timer code to nanoseconds (IBA table 46), 32 codes. */
uint64_t rnr_timer_ns(unsigned code);

#endif
