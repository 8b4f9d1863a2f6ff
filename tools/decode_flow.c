/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_flow.h"

/* A PSN this far away belongs to another connection that uses the same queue pair number. */
enum { PSN_FAR = 1 << 16 };

static uint32_t mix(uint32_t hash, uint32_t v)
{
	hash = (hash ^ v) * 0x9e3779b1u;
	return hash ^ hash >> 15;
}

static struct seen *seen_slot(struct flows *fl, uint32_t flow, enum seen_class class, uint32_t psn)
{
	return &fl->seen[mix(mix(flow, (uint32_t) class), psn) % SEEN_SLOTS];
}

struct seen *seen_find(struct flows *fl, const struct flow *flow, enum seen_class class,
		       struct psn psn)
{
	struct seen *s = seen_slot(fl, flow->id, class, psn.v);

	return s->class == class && s->flow == flow->id && s->psn == psn.v ? s : NULL;
}

void seen_enter(struct flows *fl, const struct flow *flow, enum seen_class class, struct psn psn,
		const struct frame *f)
{
	struct seen *s = seen_find(fl, flow, class, psn);

	if (!s) {
		s = seen_slot(fl, flow->id, class, psn.v);
		*s = (struct seen){ .flow = flow->id, .psn = psn.v, .class = class };
		s->number = f->number;
	}
	s->last_number = f->number;
	s->last_time_ns = f->time_ns;
}

void flows_init(struct flows *fl, struct registry *registry, struct parties *parties)
{
	memset(fl, 0, sizeof(*fl));
	fl->registry = registry;
	fl->parties = parties;
	fl->seen = decode_alloc(SEEN_SLOTS * sizeof(*fl->seen));
}

void flows_destroy(struct flows *fl)
{
	for (struct flow *flow = fl->newest, *older; flow; flow = older) {
		older = flow->next_older;
		free(flow);
	}
	free(fl->seen);
	memset(fl, 0, sizeof(*fl));
}

static struct flow **bucket_of(struct flows *fl, const struct gid *src, const struct gid *dst,
			       uint32_t qpn, uint32_t src_qpn)
{
	uint32_t hash = mix(qpn, src_qpn);

	for (unsigned i = 0; i < sizeof(src->raw); i += 4)
		hash = mix(mix(hash, frame_be32(src->raw + i)), frame_be32(dst->raw + i));
	return &fl->buckets[hash % FLOW_BUCKETS];
}

/* Forget the sequence: another connection uses the queue pair number now. */
static void restart(struct flows *fl, struct flow *flow)
{
	flow->id = ++fl->count;
	flow->reverse = NULL;
	flow->started = false;
	flow->slack = 0;
	flow->mtu = 0;
	flow->acked_valid = false;
	flow->nak.number = 0;
	flow->n_reads = 0;
}

static void look_up(struct flows *fl, struct flow *flow)
{
	const struct told_qp *dest;

	if (flow->generation == fl->registry->generation)
		return;
	flow->generation = fl->registry->generation;
	dest = told_find(fl->registry, &flow->dst, flow->qpn, &flow->gid_told);
	if (dest == flow->dest)
		return;
	flow->dest = dest;
	restart(fl, flow);
}

struct flow *flow_get(struct flows *fl, const struct gid *src, const struct gid *dst, uint32_t qpn,
		      uint32_t src_qpn)
{
	struct flow **bucket = bucket_of(fl, src, dst, qpn, src_qpn), *flow;

	for (flow = *bucket; flow; flow = flow->next_hash)
		if (flow->qpn == qpn && flow->src_qpn == src_qpn && gid_eq(&flow->src, src) &&
		    gid_eq(&flow->dst, dst)) {
			look_up(fl, flow);
			return flow;
		}
	flow = decode_alloc(sizeof(*flow));
	flow->src = *src;
	flow->dst = *dst;
	flow->qpn = qpn;
	flow->src_qpn = src_qpn;
	flow->id = ++fl->count;
	flow->to_side = fl->newest ? !fl->newest->to_side : 1;
	flow->next_hash = *bucket;
	*bucket = flow;
	flow->next_older = fl->newest;
	fl->newest = flow;
	look_up(fl, flow);
	return flow;
}

unsigned read_span(uint32_t dma_len, unsigned mtu)
{
	return dma_len ? (unsigned)(((uint64_t)dma_len + mtu - 1) / mtu) : 1;
}

const struct flow_read *flow_find_read(const struct flow *flow, struct psn psn)
{
	for (unsigned i = 0; i < flow->n_reads && i < FLOW_READS; i++) {
		const struct flow_read *read = &flow->reads[(flow->n_reads - 1 - i) % FLOW_READS];
		unsigned span = read->span ? read->span : read_span(read->dma_len, MTU_MIN);
		int32_t offset = psn_diff(psn, read->psn);

		if (offset >= 0 && (unsigned)offset < span)
			return read;
	}
	return NULL;
}

void flow_learn_mtu(struct flow *flow, unsigned mtu)
{
	if (mtu < MTU_MIN || mtu > MTU_MAX || (mtu & (mtu - 1)))
		return;
	flow->mtu = mtu;
	for (unsigned i = 0; i < FLOW_READS; i++)
		flow->reads[i].span = read_span(flow->reads[i].dma_len, mtu);
	if (flow->slack) {
		const struct flow_read *last = &flow->reads[(flow->n_reads - 1) % FLOW_READS];

		flow->next = psn_add(last->psn, last->span);
		flow->slack = 0;
	}
}

/* The only path MTU with which a READ of this length takes so many PSNs. */
static void learn_from_span(struct flow *flow, uint32_t dma_len, unsigned span)
{
	for (unsigned mtu = MTU_MIN; mtu <= MTU_MAX; mtu *= 2)
		if (read_span(dma_len, mtu) == span) {
			if (span > 1)
				flow_learn_mtu(flow, mtu);
			return;
		}
}

/* A new READ is the flow's last packet: what follows? */
static void enter_read(struct flow *flow, const struct frame *f, const struct packet *p)
{
	struct flow_read *read = &flow->reads[flow->n_reads++ % FLOW_READS];

	*read = (struct flow_read){ .psn = p->psn, .dma_len = p->dma_len, .number = f->number };
	if (flow->mtu) {
		read->span = read_span(p->dma_len, flow->mtu);
		flow->next = psn_add(p->psn, read->span);
		return;
	}
	flow->next = psn_add(p->psn, read_span(p->dma_len, MTU_MAX));
	flow->slack = read_span(p->dma_len, MTU_MIN) - read_span(p->dma_len, MTU_MAX);
}

/* PSNs between the expected one and this. */
static unsigned hole_before(struct flow *flow, struct psn psn)
{
	unsigned hole = (unsigned)psn_diff(psn, flow->next);
	const struct flow_read *last;

	if (flow->slack && hole <= flow->slack) {
		last = &flow->reads[(flow->n_reads - 1) % FLOW_READS];
		learn_from_span(flow, last->dma_len, (unsigned)psn_diff(psn, last->psn));
		hole = 0;
	}
	flow->slack = 0;
	return hole;
}

/* Why was it sent again? */
static void explain_repetition(struct flow *flow, const struct frame *f, struct roce *r,
			       const struct seen *before)
{
	char waited[32];

	if (flow->nak.number > (before ? before->last_number : 0)) {
		r->because = flow->nak.number;
		note_add(r, "asked for by the NAK in #%" PRIu64, r->because);
	} else if (before) {
		r->waited_ns = f->time_ns - before->last_time_ns;
		duration_format(r->waited_ns, waited);
		note_add(r, "%s after the last time, without an answer", waited);
	}
}

static void track_repetition(struct flows *fl, struct flow *flow, const struct frame *f,
			     struct roce *r)
{
	const struct seen *before = seen_find(fl, flow, SEEN_REQUEST, r->p.psn);
	const struct flow_read *read = flow_find_read(flow, r->p.psn);

	r->retransmission = true;
	if (before) {
		r->original = before->number;
		note_add(r, "retransmission of #%" PRIu64, r->original);
	} else if (read && r->p.op->kind == OP_READ_REQUEST) {
		r->original = read->number;
		note_add(r, "asks again for the rest of the READ in #%" PRIu64, r->original);
	} else if (flow->nak.number) {
		note_add(r, "retransmission of a packet that was lost before the capture");
	} else {
		r->retransmission = false;
		note_add(r, "PSN below those seen before: late, or repeats what isn't captured");
		return;
	}
	explain_repetition(flow, f, r, before);
	fl->retransmissions++;
}

static void track_request(struct flows *fl, struct flow *flow, const struct frame *f,
			  struct roce *r)
{
	const struct told_qp *sender = flow->dest ? told_peer(flow->dest) : NULL;
	const struct packet *p = &r->p;
	int32_t ahead;

	if (p->op->position == POS_FIRST || p->op->position == POS_MIDDLE)
		flow_learn_mtu(flow, p->payload_len);
	if (!flow->started) {
		flow->started = true;
		flow->first = flow->next = sender ? psn_make(sender->v.psn) : p->psn;
		if (sender && abs(psn_diff(p->psn, flow->first)) > PSN_FAR) {
			note_add(r, "far from the first PSN that was told");
			flow->first = flow->next = p->psn;
		}
	}
	ahead = psn_diff(p->psn, flow->next);
	if (abs(ahead) > PSN_FAR) {
		note_add(r, "the PSN jumps: a new connection of the same queue pair number?");
		restart(fl, flow);
		flow->started = true;
		flow->first = flow->next = p->psn;
		ahead = 0;
	}
	if (ahead < 0) {
		track_repetition(fl, flow, f, r);
	} else {
		r->missing = hole_before(flow, p->psn);
		fl->missing += r->missing;
		if (r->missing)
			note_add(r, "%u %s missing before this one", r->missing,
				 r->missing == 1 ? "packet is" : "packets are");
		flow->next = psn_add(p->psn, 1);
		if (p->op->kind == OP_READ_REQUEST)
			enter_read(flow, f, p);
	}
	seen_enter(fl, flow, SEEN_REQUEST, p->psn, f);
}

void flow_track(struct flows *fl, struct flow *flow, const struct frame *f, struct roce *r)
{
	switch (opcode_service(r->p.opcode)) {
	case WIRE_RC:
	case WIRE_UC:
	case WIRE_XRC:
		if (r->p.op->flags & OPF_RESPONSE)
			flow_track_response(fl, flow, f, r);
		else
			track_request(fl, flow, f, r);
		break;
	case WIRE_CNP:
		note_add(r, "congestion notification: a switch marked packets of this queue pair");
		break;
	case WIRE_UD: /* one sequence for all destinations: holes are normal */
	case WIRE_RD:
	default:
		break;
	}
}
