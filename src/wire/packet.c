/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * BTH and extended headers (IBA 9.2, 9.3) to values and back. Which headers a packet has, and in
 * which order, follows from its opcode's row alone: parse and build walk the set in the same order.
 *
 * Sizes against the path MTU and the request's length are not checked here: the responder answers
 * those with a NAK (IBA 9.7.4.1.6). What is dropped here could not be answered at all.
 */
#include "wire/packet.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/units.h"

#define CNP_PAYLOAD_LEN		 16 /* reserved bytes behind the BTH (annex A17.9.3) */
#define ATOMIC_WRITE_PAYLOAD_LEN 8

struct wire_bth {
	uint8_t opcode;
	uint8_t flags; /* SE, MigReq, pad count, transport header version */
	be16 pkey;
	uint8_t ecn; /* FECN, BECN, reserved */
	be24 dest_qpn;
	uint8_t ack_req;
	be24 psn;
};
_Static_assert(sizeof(struct wire_bth) == BTH_LEN, "BTH");

enum { BTH_SE = 0x80, BTH_MIG_REQ = 0x40, BTH_PAD_SHIFT = 4, BTH_TVER_MASK = 0x0f };
enum { BTH_FECN = 0x80, BTH_BECN = 0x40 };
enum { BTH_ACK_REQ = 0x80 };

struct wire_xrceth {
	uint8_t reserved;
	be24 srqn;
};
struct wire_deth {
	be32 qkey;
	uint8_t reserved;
	be24 src_qpn;
};
struct wire_feth {
	be32 bits; /* 26 reserved, 2 selectivity level, 4 placement type */
};
struct wire_reth {
	be64 va;
	be32 rkey;
	be32 dma_len;
};
struct wire_atomic_eth {
	be64 va;
	be32 rkey;
	be64 swap_add;
	be64 compare;
};
struct wire_aeth {
	uint8_t syndrome;
	be24 msn;
};
struct wire_atomic_ack {
	be64 result;
};
struct wire_ieth {
	be32 rkey;
};
_Static_assert(sizeof(struct wire_reth) == 16, "RETH");
_Static_assert(sizeof(struct wire_atomic_eth) == 28, "AtomicETH");

enum { FETH_TYPE_MASK = 0x0f, FETH_LEVEL_SHIFT = 4, FETH_LEVEL_MASK = 0x03 };

static const uint8_t *parse_xrceth(struct packet *p, const uint8_t *at)
{
	const struct wire_xrceth *h = (const void *)at;

	p->xrc_srqn = load_be24(h->srqn);
	return at + sizeof(*h);
}

static const uint8_t *parse_deth(struct packet *p, const uint8_t *at)
{
	const struct wire_deth *h = (const void *)at;

	p->qkey = load_be32(h->qkey);
	p->src_qpn = load_be24(h->src_qpn);
	return at + sizeof(*h);
}

static const uint8_t *parse_feth(struct packet *p, const uint8_t *at)
{
	const struct wire_feth *h = (const void *)at;
	uint32_t bits = load_be32(h->bits);

	p->flush_type = bits & FETH_TYPE_MASK;
	p->flush_level = bits >> FETH_LEVEL_SHIFT & FETH_LEVEL_MASK;
	return at + sizeof(*h);
}

static const uint8_t *parse_reth(struct packet *p, const uint8_t *at)
{
	const struct wire_reth *h = (const void *)at;

	p->va = load_be64(h->va);
	p->rkey = load_be32(h->rkey);
	p->dma_len = load_be32(h->dma_len);
	return at + sizeof(*h);
}

static const uint8_t *parse_atomic_eth(struct packet *p, const uint8_t *at)
{
	const struct wire_atomic_eth *h = (const void *)at;

	p->va = load_be64(h->va);
	p->rkey = load_be32(h->rkey);
	p->swap_add = load_be64(h->swap_add);
	p->compare = load_be64(h->compare);
	return at + sizeof(*h);
}

static const uint8_t *parse_aeth(struct packet *p, const uint8_t *at)
{
	const struct wire_aeth *h = (const void *)at;

	p->syndrome = h->syndrome;
	p->msn = load_be24(h->msn);
	return at + sizeof(*h);
}

static void parse_extended(struct packet *p, const uint8_t *at)
{
	const unsigned headers = p->op->headers;

	if (headers & HDR_XRCETH)
		at = parse_xrceth(p, at);
	if (headers & HDR_DETH)
		at = parse_deth(p, at);
	if (headers & HDR_FETH)
		at = parse_feth(p, at);
	if (headers & HDR_RETH)
		at = parse_reth(p, at);
	if (headers & HDR_ATOMIC_ETH)
		at = parse_atomic_eth(p, at);
	if (headers & HDR_AETH)
		at = parse_aeth(p, at);
	if (headers & HDR_ATOMIC_ACK) {
		p->atomic_result = load_be64(((const struct wire_atomic_ack *)at)->result);
		at += sizeof(struct wire_atomic_ack);
	}
	if (headers & HDR_IMM) {
		memcpy(&p->imm, at, sizeof(p->imm));
		at += sizeof(p->imm);
	}
	if (headers & HDR_IETH)
		p->invalidate_rkey = load_be32(((const struct wire_ieth *)at)->rkey);
}

/* total: bytes between headers and ICRC. */
static bool payload_possible(const struct opcode_info *op, size_t total, unsigned pad,
			     uint32_t payload_max)
{
	if (total % 4 != 0 || pad > total || total - pad > payload_max)
		return false;
	if (!(op->flags & OPF_PAYLOAD))
		return total == 0;
	if (op->kind == OP_CNP)
		return total == CNP_PAYLOAD_LEN && pad == 0;
	if (op->kind == OP_ATOMIC_WRITE)
		return total == ATOMIC_WRITE_PAYLOAD_LEN && pad == 0;
	/* A message goes on behind a FIRST or MIDDLE, so that its payload is a whole MTU: no pad.
	 */
	return pad == 0 || op->position == POS_LAST || op->position == POS_ONLY;
}

static enum drop parse(struct packet *p, const uint8_t *head, const uint8_t *data, size_t len,
		       uint32_t payload_max)
{
	const struct wire_bth *bth = (const void *)head;
	const struct opcode_info *op;
	size_t headers_len, total;

	if (len < BTH_LEN + ICRC_LEN)
		return DROP_SHORT;
	op = opcode_info(bth->opcode);
	if (op->kind == OP_NONE)
		return DROP_OPCODE;
	if (bth->flags & BTH_TVER_MASK)
		return DROP_VERSION;
	headers_len = BTH_LEN + op->headers_len;
	if (len < headers_len + ICRC_LEN)
		return DROP_SHORT;
	total = len - headers_len - ICRC_LEN;
	p->pad = bth->flags >> BTH_PAD_SHIFT & 3;
	if (!payload_possible(op, total, p->pad, payload_max))
		return DROP_LENGTH;

	p->opcode = bth->opcode;
	p->op = op;
	p->solicited = bth->flags & BTH_SE;
	p->mig_req = bth->flags & BTH_MIG_REQ;
	p->pkey = load_be16(bth->pkey);
	p->fecn = bth->ecn & BTH_FECN;
	p->becn = bth->ecn & BTH_BECN;
	p->dest_qpn = load_be24(bth->dest_qpn);
	p->ack_req = bth->ack_req & BTH_ACK_REQ;
	p->psn = psn_make(load_be24(bth->psn));
	parse_extended(p, head + BTH_LEN);
	p->payload = data + headers_len;
	p->payload_len = (uint32_t)(total - p->pad);
	return DROP_NONE;
}

enum drop packet_parse(struct packet *p, const uint8_t *data, size_t len)
{
	p->mtu = 0;
	return parse(p, data, data, len, MTU_MAX);
}

enum drop packet_parse_local(struct packet *p, const uint8_t *head, const uint8_t *data, size_t len,
			     uint32_t mtu)
{
	p->mtu = mtu;
	return parse(p, head, data, len, mtu);
}

/* Append a header: put() returns where the next one goes. */
static uint8_t *put(uint8_t *at, const void *header, size_t len)
{
	memcpy(at, header, len);
	return at + len;
}
#define PUT(at, type, ...) put((at), &(const struct type){ __VA_ARGS__ }, sizeof(struct type))

static uint8_t *build_bth(const struct packet *p, uint8_t *at)
{
	return PUT(at, wire_bth, .opcode = p->opcode,
		   .flags = (uint8_t)((p->solicited ? BTH_SE : 0) | (p->mig_req ? BTH_MIG_REQ : 0) |
				      packet_pad(p->payload_len) << BTH_PAD_SHIFT),
		   .pkey = make_be16(p->pkey),
		   .ecn = (uint8_t)((p->fecn ? BTH_FECN : 0) | (p->becn ? BTH_BECN : 0)),
		   .dest_qpn = make_be24(p->dest_qpn), .ack_req = p->ack_req ? BTH_ACK_REQ : 0,
		   .psn = make_be24(p->psn.v));
}

static uint8_t *build_feth(const struct packet *p, uint8_t *at)
{
	uint32_t bits = (p->flush_level & FETH_LEVEL_MASK) << FETH_LEVEL_SHIFT |
			(p->flush_type & FETH_TYPE_MASK);

	return PUT(at, wire_feth, .bits = make_be32(bits));
}

unsigned packet_build_headers(const struct packet *p, uint8_t *out)
{
	const unsigned headers = opcode_info(p->opcode)->headers;
	uint8_t *at = build_bth(p, out);

	if (headers & HDR_XRCETH)
		at = PUT(at, wire_xrceth, .srqn = make_be24(p->xrc_srqn));
	if (headers & HDR_DETH)
		at = PUT(at, wire_deth, .qkey = make_be32(p->qkey),
			 .src_qpn = make_be24(p->src_qpn));
	if (headers & HDR_FETH)
		at = build_feth(p, at);
	if (headers & HDR_RETH)
		at = PUT(at, wire_reth, .va = make_be64(p->va), .rkey = make_be32(p->rkey),
			 .dma_len = make_be32(p->dma_len));
	if (headers & HDR_ATOMIC_ETH)
		at = PUT(at, wire_atomic_eth, .va = make_be64(p->va), .rkey = make_be32(p->rkey),
			 .swap_add = make_be64(p->swap_add), .compare = make_be64(p->compare));
	if (headers & HDR_AETH)
		at = PUT(at, wire_aeth, .syndrome = p->syndrome, .msn = make_be24(p->msn));
	if (headers & HDR_ATOMIC_ACK)
		at = PUT(at, wire_atomic_ack, .result = make_be64(p->atomic_result));
	if (headers & HDR_IMM)
		at = put(at, &p->imm, sizeof(p->imm));
	if (headers & HDR_IETH)
		at = PUT(at, wire_ieth, .rkey = make_be32(p->invalidate_rkey));
	return (unsigned)(at - out);
}

/*
 * Table 46 in units of 10 us: from code 2 on, even codes are powers of two and each odd code is
 * half more than the one before it; code 0 stands for what would be code 32.
 */
uint64_t rnr_timer_ns(unsigned code)
{
	uint64_t units;

	code &= AETH_VALUE_MASK;
	if (code == 0)
		code = 32;
	if (code == 1)
		units = 1;
	else if (code % 2 == 0)
		units = UINT64_C(1) << code / 2;
	else
		units = UINT64_C(3) << (code - 3) / 2;
	return units * 10 * NS_PER_US;
}
