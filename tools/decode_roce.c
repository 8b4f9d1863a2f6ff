/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/decode_flow.h"
#include "tools/decode_icrc.h"
#include "tools/decode_roce.h"

enum { PACKET_MAX = PACKET_HEADER_MAX + MTU_MAX + ICRC_LEN };

unsigned roce_segments(const struct frame *f, size_t *len)
{
	size_t segment_len = frame_icrc_segment_len(f);

	*len = segment_len ? segment_len : f->payload_len;
	return segment_len ? (unsigned)((f->payload_len + segment_len - 1) / segment_len) : 1;
}

/* What can be told of a packet that can't be parsed. */
static void read_bth(struct packet *p, const uint8_t *data, size_t len)
{
	if (len < BTH_LEN)
		return;
	p->opcode = data[0];
	p->op = opcode_info(data[0]);
	p->dest_qpn = frame_be32(data + 4) & 0xffffff;
	p->psn = psn_make(frame_be32(data + 8));
}

/* Parse what was captured; the bytes that were not count as zeros. */
static void parse(struct roce *r, const uint8_t *data, size_t captured)
{
	uint8_t whole[PACKET_MAX] = { 0 };

	if (!r->cut_off) {
		r->drop = packet_parse(&r->p, data, captured);
	} else if (captured < BTH_LEN || r->len > sizeof(whole) ||
		   captured < packet_headers_len(data[0])) {
		r->drop = DROP_SHORT;
	} else {
		memcpy(whole, data, captured);
		r->drop = packet_parse(&r->p, whole, r->len);
	}
	r->p.payload = NULL;
	if (r->drop != DROP_NONE) {
		read_bth(&r->p, data, captured);
		note_add(r, "%s",
			 r->cut_off ? "cut off in the capture" : drop_explanation(r->drop));
	}
}

static void check_icrc(struct roce *r, const struct frame *f, const uint8_t *data)
{
	if (r->cut_off) {
		r->icrc = ICRC_UNCHECKED;
		return;
	}
	if (r->len < BTH_LEN + ICRC_LEN)
		return;
	r->icrc_stored = frame_icrc_stored(data, r->len);
	r->icrc_right = frame_icrc(f, r->segment, r->segments, data, r->len);
	r->icrc = r->icrc_stored == r->icrc_right ? ICRC_OK : ICRC_BAD;
}

/* Where the PSN comes from: the first PSN of whoever sends the requests. */
static void trace_psn(struct roce *r, const struct told_qp *sender, const struct told_qp *receiver)
{
	const struct told_qp *requester;

	r->psn_of_receiver = r->p.op->flags & OPF_RESPONSE;
	requester = r->psn_of_receiver ? receiver : sender;
	if (!requester)
		return;
	r->psn_told = requester->number;
	r->psn_offset = psn_make(r->p.psn.v - requester->v.psn).v;
}

static void trace_memory(struct roce *r, const struct told_qp *receiver)
{
	if (!receiver || !(r->p.op->headers & (HDR_RETH | HDR_ATOMIC_ETH)))
		return;
	r->region = told_find_region(receiver, r->p.rkey);
	if (r->region)
		r->va_offset = r->p.va - r->region->v.va;
}

static void trace(struct flows *fl, struct roce *r, const struct flow *flow)
{
	const struct told_qp *receiver = flow->dest;
	const struct told_qp *sender = receiver ? told_peer(receiver) : NULL;
	uint64_t gid_told;

	if (receiver) {
		r->qpn_told = receiver->number;
		r->gid_told = flow->gid_told;
	}
	if (r->p.op->headers & HDR_DETH)
		sender = told_find(fl->registry, &flow->src, r->p.src_qpn, &gid_told);
	if (sender) {
		r->src_qpn_known = true;
		r->src_qpn = sender->v.qpn;
		r->src_qpn_told = sender->number;
	}
	if (r->p.op->headers & HDR_DETH) {
		r->src_qpn_known = true;
		r->src_qpn = r->p.src_qpn;
	}
	trace_psn(r, sender, receiver);
	trace_memory(r, receiver);
}

static void find_parties(struct flows *fl, struct roce *r, const struct flow *flow)
{
	bool shared = gid_eq(&flow->src, &flow->dst);
	struct exchange *x;

	if (flow->dest) {
		x = flow->dest->teller->exchange;
		r->to = flow->dest->teller->party;
		r->from = x->side[flow->dest->teller == &x->side[0]].party;
		return;
	}
	r->from = party_get(fl->parties, &flow->src, shared ? !flow->to_side : 0);
	r->to = party_get(fl->parties, &flow->dst, shared ? flow->to_side : 0);
}

void roce_read(struct flows *fl, const struct frame *f, unsigned segment, unsigned segments,
	       const uint8_t *data, size_t len, struct roce *r)
{
	struct flow *flow;
	bool ud;

	memset(r, 0, sizeof(*r));
	r->segment = segment;
	r->segments = segments;
	r->cut_off = f->payload_len < f->claimed_len;
	r->len = r->cut_off ? f->claimed_len : len;
	r->p.op = opcode_info(0);
	parse(r, data, len);
	check_icrc(r, f, data);
	ud = r->drop == DROP_NONE && r->p.op->headers & HDR_DETH;
	flow = flow_get(fl, &f->src, &f->dst, r->p.dest_qpn, ud ? r->p.src_qpn : 0);
	find_parties(fl, r, flow);
	if (r->drop != DROP_NONE) {
		fl->malformed++;
		return;
	}
	trace(fl, r, flow);
	if (r->icrc == ICRC_BAD) {
		fl->bad_icrcs++;
		note_add(r, "ICRC wrong: damaged or rewritten on its way; the receiver drops it");
		return;
	}
	flow_track(fl, flow, f, r);
}
