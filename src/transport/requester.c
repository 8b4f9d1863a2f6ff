/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/requester.h"

#include <string.h>

#include "base/units.h"
#include "transport/qp.h"
#include "transport/segment.h"

#define WINDOW_MIN_PACKETS 4
/* Ask for an acknowledgement at least this often within a window. */
#define ACK_REQUESTS_PER_WINDOW 4
/*
 * Round trips shorter than this are the peers' own time. On longer ways the window is what arrives in one,
 * twice: it grows until packets queue up somewhere, and the round trip takes twice the shortest.
 */
#define NEAR_NS		 (100 * NS_PER_US)
#define WINDOW_MAX_BYTES (4u << 20)
/* The window, halved by a loss, is whole again after at most half as many acknowledgements. */
#define GROWTH 32

uint32_t requester_packets(uint32_t len, uint32_t mtu)
{
	return len ? (len - 1) / mtu + 1 : 1;
}

void requester_start(struct qp *qp, struct psn sq_psn, uint32_t max_rd_atomic)
{
	struct requester *req = &qp->req;

	req->cur = req->assigned = ring_head(&qp->sq);
	req->pkt = 0;
	req->psn = req->max = req->last = sq_psn;
	req->since_ack_req = 0;
	req->read_head = req->read_tail = 0;
	req->max_reads = max_rd_atomic;
	req->fault = IBV_WC_SUCCESS;
}

void requester_set_window(struct qp *qp, uint32_t mtu, uint32_t packets)
{
	struct requester *req = &qp->req;

	req->mtu = mtu;
	req->window_near = packets > WINDOW_MIN_PACKETS ? packets : WINDOW_MIN_PACKETS;
	req->window_max = req->window = req->window_near;
}

void requester_measured(struct qp *qp, uint32_t answered, uint64_t rtt_ns, uint64_t rtt_min_ns)
{
	struct requester *req = &qp->req;
	uint32_t limit = WINDOW_MAX_BYTES / req->mtu;
	uint64_t packets = 2 * answered * rtt_min_ns / rtt_ns;

	/* On the same host what takes long is the peer, and its buffer is all there is. */
	if (qp->path.local)
		return;
	if (rtt_min_ns < NEAR_NS || packets < req->window_near)
		packets = req->window_near;
	else if (packets > limit)
		packets = limit > req->window_near ? limit : req->window_near;
	req->window_max = (uint32_t)packets;
	if (req->window > req->window_max)
		req->window = req->window_max;
}

static struct send_wqe *wqe_at(const struct qp *qp, uint32_t index)
{
	return ring_slot(&qp->sq, index);
}

static uint32_t reads_out(const struct requester *req)
{
	return req->read_tail - req->read_head;
}

void requester_seek(struct qp *qp, struct psn psn)
{
	struct requester *req = &qp->req;
	uint32_t i;

	req->psn = psn;
	req->fault = IBV_WC_SUCCESS;
	/* Requests from here on will be sent again and count as out then; those before still do. */
	while (reads_out(req) &&
	       psn_diff(req->read_ends[(req->read_tail - 1) % REQUESTER_READS_MAX], psn) > 0)
		req->read_tail--;
	for (i = ring_head(&qp->sq); i != req->assigned; i++) {
		const struct send_wqe *w = wqe_at(qp, i);
		int32_t into = psn_diff(psn, w->first_psn);

		if (into < (int32_t)w->packets) {
			req->pkt = (uint32_t)into;
			req->cur = i;
			return;
		}
	}
	req->cur = req->assigned;
	req->pkt = 0;
}

void requester_acked(struct qp *qp)
{
	struct requester *req = &qp->req;

	while (reads_out(req) &&
	       psn_diff(qp->comp.una, req->read_ends[req->read_head % REQUESTER_READS_MAX]) >= 0)
		req->read_head++;
	if (psn_diff(qp->comp.una, req->psn) > 0)
		requester_seek(qp, qp->comp.una);
	req->window += 1 + req->window_max / GROWTH;
	if (req->window > req->window_max)
		req->window = req->window_max;
}

bool requester_idle(const struct qp *qp)
{
	return ring_count(&qp->sq) == 0;
}

static uint32_t outstanding(const struct qp *qp)
{
	return (uint32_t)psn_diff(qp->req.psn, qp->comp.una);
}

/*
 * Response packets that the next request of this READ asks for. Requests end on a grid that stays
 * the same when they are repeated: a responder answers a repeated READ only within the bounds of
 * the original one.
 */
static uint32_t read_chunk(const struct requester *req, const struct send_wqe *w)
{
	uint32_t to_grid = w->chunk - req->pkt % w->chunk;
	uint32_t left = w->packets - req->pkt;

	return to_grid < left ? to_grid : left;
}

static bool read_fits(const struct qp *qp, uint32_t psns)
{
	uint32_t out = outstanding(qp);

	/* The window may have shrunk since the grid was laid: one request is always allowed. */
	return out == 0 || out + psns <= qp->req.window;
}

static bool sq_draining(const struct qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_SQD;
}

/* May packet req->pkt of the cursor's work request be sent now? psns: how many PSNs it takes. */
static bool may_send(const struct qp *qp, const struct send_wqe *w, uint32_t *psns)
{
	const struct requester *req = &qp->req;

	*psns = 1;
	if (!qp_is_reliable(qp))
		return true;
	if (req->pkt == 0 && (w->send_flags & IBV_SEND_FENCE) && reads_out(req))
		return false;
	if (send_wqe_wants_response(w)) {
		if (reads_out(req) >= req->max_reads)
			return false;
		if (w->opcode == IBV_WR_RDMA_READ) {
			*psns = read_chunk(req, w);
			return read_fits(qp, *psns);
		}
	}
	return outstanding(qp) < req->window;
}

static void fill_headers(const struct qp *qp, const struct send_wqe *w, uint32_t offset,
			 uint32_t psns, struct packet *p)
{
	bool last = qp->req.pkt + psns == w->packets;

	p->mig_req = true;
	p->pkey = 0xffff;
	p->psn = qp->req.psn;
	p->solicited = last && (w->send_flags & IBV_SEND_SOLICITED);
	p->dest_qpn = qp->attr.dest_qp_num;
	p->va = w->remote_addr + offset;
	p->rkey = w->rkey;
	p->dma_len = w->len;
	p->imm = p->invalidate_rkey = w->imm;
	p->xrc_srqn = w->dest_srqn;
	if (qp->cfg.type == IBV_QPT_UD) {
		p->dest_qpn = w->dest_qpn;
		p->qkey = w->qkey;
		p->src_qpn = qp->qpn;
	} else if (w->opcode == IBV_WR_RDMA_READ) {
		uint64_t chunk = (uint64_t)psns * qp->req.mtu;
		uint32_t left = w->len - offset;

		p->dma_len = chunk < left ? (uint32_t)chunk : left;
	} else if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		p->compare = w->compare_add;
		p->swap_add = w->swap;
	} else if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		p->swap_add = w->compare_add;
	}
}

static enum mem_fault put_payload(const struct qp *qp, const struct send_wqe *w, uint32_t offset,
				  uint8_t *out, uint32_t len)
{
	enum mem_fault fault = MEM_OK;

	if (w->send_flags & IBV_SEND_INLINE)
		memcpy(out, send_wqe_inline(w) + offset, len);
	else
		fault = mem_gather(qp->cfg.mem, qp->cfg.pd, w->sge, w->num_sge, offset, out, len);
	memset(out + len, 0, packet_pad(len));
	return fault;
}

/* The cursor's packet is in the outbox. */
static void advance(struct qp *qp, const struct send_wqe *w, uint32_t psns)
{
	struct requester *req = &qp->req;

	req->last = req->psn;
	if (send_wqe_wants_response(w))
		req->read_ends[req->read_tail++ % REQUESTER_READS_MAX] = psn_add(req->psn, psns);
	req->psn = psn_add(req->psn, psns);
	if (psn_diff(req->psn, req->max) > 0)
		req->max = req->psn;
	req->pkt += psns;
	if (req->pkt == w->packets) {
		req->pkt = 0;
		req->cur++;
	}
}

/* Local work requests run once all before them are done (stricter than IBA 10.8.3.3 asks). */
static bool local_is_next(const struct qp *qp)
{
	const struct requester *req = &qp->req;

	return req->cur == req->assigned && req->cur != ring_tail(&qp->sq) && !sq_draining(qp) &&
	       send_wqe_is_local(wqe_at(qp, req->cur));
}

static void run_local(struct qp *qp)
{
	const struct send_wqe *w = wqe_at(qp, qp->req.cur);
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	if (w->opcode == IBV_WR_BIND_MW) {
		qp->has_bound = true;
		if (mem_bind(qp->cfg.mem, qp->cfg.pd, qp, &w->bind))
			status = IBV_WC_MW_BIND_ERR;
	} else if (mem_invalidate(qp->cfg.mem, qp->cfg.pd, qp, w->imm)) {
		status = IBV_WC_LOC_QP_OP_ERR;
	}
	qp->req.cur++;
	qp->req.assigned++;
	completer_finish(qp, status);
}

static void run_locals(struct qp *qp)
{
	while (local_is_next(qp) && ring_head(&qp->sq) == qp->req.cur)
		run_local(qp);
}

/* The work request whose packet is next, if that packet may be sent now; psns: how many PSNs it
 * takes. */
static struct send_wqe *next_packet(struct qp *qp, uint32_t *psns)
{
	struct requester *req = &qp->req;
	struct send_wqe *w;

	if (req->cur == ring_tail(&qp->sq))
		return NULL;
	if (req->cur == req->assigned && (sq_draining(qp) || local_is_next(qp)))
		return NULL;
	w = wqe_at(qp, req->cur);
	if (req->cur == req->assigned) {
		w->first_psn = req->psn;
		w->packets = send_wqe_is_atomic(w) ? 1 : requester_packets(w->len, qp->req.mtu);
		w->chunk = req->max_reads > 1 ? (req->window + 1) / 2 : req->window;
		req->assigned++;
	}
	return may_send(qp, w, psns) ? w : NULL;
}

/* Ask for an acknowledgement when nothing follows at once, and a few times per window. */
static bool ack_wanted(struct qp *qp)
{
	struct requester *req = &qp->req;
	uint32_t psns;

	if (!qp_is_reliable(qp))
		return false;
	return ++req->since_ack_req * ACK_REQUESTS_PER_WINDOW >= req->window ||
	       !next_packet(qp, &psns);
}

enum put { PUT_DONE, PUT_FULL, PUT_FAULT };

/* Write the cursor's packet to the outbox and advance. */
static enum put put_packet(struct qp *qp, const struct send_wqe *w, uint32_t psns,
			   struct outbox *box)
{
	enum op_position position = segment_position(qp->req.pkt, w->packets);
	uint32_t offset = qp->req.pkt * qp->req.mtu;
	struct packet p = { 0 };
	unsigned headers;
	uint32_t total;
	uint8_t *out;

	p.opcode = (uint8_t)(segment_opcode((enum ibv_wr_opcode)w->opcode, position) |
			     qp_service_bits(qp));
	if (!send_wqe_wants_response(w) || w->opcode == IBV_WR_ATOMIC_WRITE)
		p.payload_len = w->len - offset < qp->req.mtu ? w->len - offset : qp->req.mtu;
	fill_headers(qp, w, offset, psns, &p);
	headers = packet_headers_len(p.opcode);
	total = headers + p.payload_len + packet_pad(p.payload_len);
	if (qp->cfg.type == IBV_QPT_UD && qp->cfg.choose_box)
		box = qp->cfg.choose_box(qp->cfg.choose_arg, &w->path, w->dest_qpn);
	out = box ? outbox_reserve(box, qp->cfg.type == IBV_QPT_UD ? &w->path : &qp->path, total)
		  : NULL;
	if (!out)
		return PUT_FULL;
	if (p.payload_len && put_payload(qp, w, offset, out + headers, p.payload_len))
		return PUT_FAULT;
	advance(qp, w, psns);
	p.ack_req = ack_wanted(qp);
	if (p.ack_req)
		qp->req.since_ack_req = 0;
	packet_build_headers(&p, out);
	outbox_commit(box, total);
	qp->counters.tx_packets++;
	qp->counters.tx_bytes += p.payload_len;
	return PUT_DONE;
}

/* UC and UD: sent is done. */
static void complete_sent(struct qp *qp)
{
	while (ring_head(&qp->sq) != qp->req.cur)
		completer_finish(qp, IBV_WC_SUCCESS);
	qp->comp.una = qp->req.psn;
}

bool requester_tx(struct qp *qp, struct outbox *box, uint64_t now_ns, uint32_t *budget)
{
	struct requester *req = &qp->req;
	bool reliable = qp_is_reliable(qp);
	struct send_wqe *w;
	uint32_t psns;

	if (reliable && retry_blocked(&qp->retry))
		return false;
	run_locals(qp);
	while (!req->fault && (w = next_packet(qp, &psns))) {
		struct psn psn = req->psn;
		bool fresh = psn_eq(psn, req->max);

		if (*budget == 0)
			return true;
		switch (put_packet(qp, w, psns, box)) {
		case PUT_FULL:
			return true;
		case PUT_FAULT:
			req->fault = IBV_WC_LOC_PROT_ERR;
			break;
		case PUT_DONE:
			--*budget;
			if (reliable)
				retry_sent(qp, psn, fresh, now_ns);
			else
				complete_sent(qp);
		}
		run_locals(qp);
	}
	if (req->fault && ring_head(&qp->sq) == req->cur)
		completer_finish(qp, (enum ibv_wc_status)req->fault);
	return false;
}
