// SPDX-License-Identifier: BSD-2-Clause
/*
 * The kernel's side of a real conversation against our side of it. Its captured requests are fed to
 * our responder, whose replies must be the kernel's; and its captured replies are fed to our
 * requester, which was given the same work requests and must send the kernel's packets. What a
 * device may choose is left out: where an ACK covers several requests, credits, where AckReq
 * stands.
 *
 * Keys are replaced, since ours are drawn at random; a key that the kernel refused stays wrong.
 */
#include <stdlib.h>
#include <string.h>

#include "../unit/test.h"
#include "end.h"

enum { WRONG_KEY = 0x77 };

/* clang-format off */
static const struct row rows[] = {
	{ .file = "rc-ipv4.pcap" },
	{ .file = "rc-ipv6ll.pcap" },
	{ .file = "rc-odd.pcap" },
	{ .file = "sendlat.pcap" },
	{ .file = "write.pcap" },
	{ .file = "read.pcap" },
	{ .file = "cmpswap.pcap" },
	{ .file = "fetchadd.pcap" },
	{ .file = "mixed.pcap" },
	{ .file = "zero-length.pcap", .wrong_key = true },
	{ .file = "wrong-rkey-write.pcap", .status = IBV_WC_REM_ACCESS_ERR, .wrong_key = true },
	{ .file = "wrong-rkey-read.pcap",  .status = IBV_WC_REM_ACCESS_ERR, .wrong_key = true },
	{ .file = "beyond-write.pcap",     .status = IBV_WC_REM_ACCESS_ERR, .beyond = 904,
	  .responder_only = true },
	{ .file = "qp-no-read.pcap",       .status = IBV_WC_REM_INV_REQ_ERR, .no_read = true },
	{ .file = "receive-too-small.pcap", .status = IBV_WC_REM_OP_ERR, .receive = 16,
	  .nak = AETH_NAK | NAK_INVALID_REQUEST },
	{ .file = "rnr-used-up.pcap", .rnr_timer = 24, .responder_only = true },
	{ .file = "loss.pcap",        .responder_only = true },
	{ .file = "duplication.pcap", .responder_only = true },
};
/* clang-format on */
static void expect(unsigned frame, const char *what, uint64_t ours, uint64_t kernels)
{
	if (ours != kernels)
		fail_msg("frame %u: %s: ours 0x%llx, the kernel's 0x%llx", frame, what,
			 (unsigned long long)ours, (unsigned long long)kernels);
}

static void expect_payload(const struct seen *ours, const struct seen *kernels)
{
	expect(kernels->frame, "payload length", ours->pkt.payload_len, kernels->pkt.payload_len);
	if (memcmp(ours->pkt.payload, kernels->pkt.payload, ours->pkt.payload_len))
		fail_msg("frame %u: payload differs", kernels->frame);
}

/* The next reply that says more than the one before it: of ACKs in a row only the last. */
static const struct seen *next_reply(const struct seen *list, size_t n, size_t *at)
{
	while (*at < n) {
		const struct seen *m = &list[(*at)++];
		bool ack = m->pkt.op->kind == OP_ACKNOWLEDGE &&
			   (m->pkt.syndrome & AETH_KIND_MASK) == AETH_ACK;

		if (!ack || *at == n)
			return m;
	}
	return NULL;
}

static void expect_reply(const struct seen *ours, const struct seen *kernels, const struct row *row)
{
	const struct packet *o = &ours->pkt, *k = &kernels->pkt;
	unsigned at = kernels->frame;
	bool nak = k->op->headers & HDR_AETH && (k->syndrome & AETH_KIND_MASK) == AETH_NAK;

	expect(at, "opcode", o->opcode, k->opcode);
	expect(at, "PSN", o->psn.v, k->psn.v);
	expect(at, "destination QPN", o->dest_qpn, k->dest_qpn);
	expect(at, "pad", o->pad, k->pad);
	if (k->op->headers & HDR_AETH) {
		bool ack = (k->syndrome & AETH_KIND_MASK) == AETH_ACK;

		expect(at, "syndrome", o->syndrome & (ack ? AETH_KIND_MASK : 0xff),
		       nak && row->nak ? row->nak : k->syndrome & (ack ? AETH_KIND_MASK : 0xff));
		expect(at, "MSN", o->msn, k->msn);
	}
	if (k->op->headers & HDR_ATOMIC_ACK)
		expect(at, "original value", o->atomic_result, k->atomic_result);
	expect_payload(ours, kernels);
}

/*
 * The kernel's responder follows an RNR NAK with a NAK for the next packet's sequence number. It
 * says no more than the first one; ours is silent until the requester tries again.
 */
static bool repeats_rnr(const struct seen *before, const struct seen *m)
{
	return before->pkt.op->headers & HDR_AETH && m->pkt.op->headers & HDR_AETH &&
	       (before->pkt.syndrome & AETH_KIND_MASK) == AETH_RNR_NAK &&
	       m->pkt.syndrome == (AETH_NAK | NAK_PSN_SEQUENCE) &&
	       psn_diff(before->pkt.psn, m->pkt.psn) == 0;
}

static void expect_replies(const struct end *e, const struct conversation *c)
{
	struct seen *kernels = calloc(c->n_messages, sizeof(*kernels));
	size_t n = 0, at = 0, our_at = 0;
	const struct seen *k, *o;

	for (size_t i = 0; i < c->n_messages; i++) {
		const struct seen *m = &c->messages[i];

		if (m->reply && !(n && repeats_rnr(&kernels[n - 1], m)))
			kernels[n++] = *m;
	}
	while ((k = next_reply(kernels, n, &at))) {
		o = next_reply(e->sent, e->n_sent, &our_at);
		if (!o)
			fail_msg("frame %u: no reply of ours", k->frame);
		expect_reply(o, k, e->row);
	}
	assert_int_equal(our_at, e->n_sent);
	free(kernels);
}

static void replay_to_responder(const struct conversation *c, const struct row *row)
{
	struct end e;

	end_open(&e, c, row, false);
	for (unsigned i = 0; i < 256; i++)
		end_post_receive(&e);
	for (size_t i = 0; i < c->n_messages; i++) {
		struct packet p = c->messages[i].pkt;
		unsigned before = e.n_good;

		if (c->messages[i].reply)
			continue;
		p.rkey = row->wrong_key ? WRONG_KEY : e.remote.key;
		qp_rx(&e.qp, &p, &c->path, NOW_NS);
		end_transmit(&e);
		if (e.n_good > before)
			end_post_receive(&e);
	}
	expect_replies(&e, c);
	if (row->status != IBV_WC_SUCCESS)
		assert_memory_equal(e.bytes, c->image, c->length);
	end_close(&e);
}

static bool begins(const struct packet *p)
{
	return p->op->position == POS_ONLY || p->op->position == POS_FIRST;
}

static bool ends(const struct packet *p)
{
	return p->op->position == POS_ONLY || p->op->position == POS_LAST;
}

/* The payload of the message that begins at message i, into our memory; where its last packet is. */
static size_t collect(struct end *e, const struct conversation *c, size_t i, uint32_t *len)
{
	*len = 0;
	for (;; i++) {
		const struct packet *p = &c->messages[i].pkt;

		assert_true(i < c->n_messages);
		if (c->messages[i].reply)
			continue;
		assert_true(*len + p->payload_len <= RECEIVE_LEN);
		memcpy(e->local.host + *len, p->payload, p->payload_len);
		*len += p->payload_len;
		if (ends(p))
			return i;
	}
}

static enum ibv_wr_opcode wr_opcode(const struct packet *last)
{
	bool imm = last->op->headers & HDR_IMM;

	switch ((int)last->op->kind) {
	case OP_SEND:
		return imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
	case OP_WRITE:
		return imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	case OP_READ_REQUEST:
		return IBV_WR_RDMA_READ;
	case OP_COMPARE_SWAP:
		return IBV_WR_ATOMIC_CMP_AND_SWP;
	case OP_FETCH_ADD:
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	default:
		fail_msg("no work request sends %s", last->op->name);
	}
	return IBV_WR_SEND;
}

/* The work request from which the kernel made the message that begins at message i. */
static void post_like(struct end *e, const struct conversation *c, size_t i)
{
	const struct packet *first = &c->messages[i].pkt;
	struct ibv_sge sge = { .addr = e->local.iova, .lkey = e->local.key };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1 };
	const struct packet *last = &c->messages[collect(e, c, i, &sge.length)].pkt;

	wr.opcode = wr_opcode(last);
	wr.imm_data = last->imm;
	wr.send_flags = last->solicited ? IBV_SEND_SOLICITED : 0;
	if (first->op->headers & HDR_ATOMIC_ETH) {
		bool swap = first->op->kind == OP_COMPARE_SWAP;

		sge.length = 8;
		wr.wr.atomic.remote_addr = first->va;
		wr.wr.atomic.rkey = first->rkey;
		wr.wr.atomic.compare_add = swap ? first->compare : first->swap_add;
		wr.wr.atomic.swap = first->swap_add;
	} else {
		if (first->op->kind == OP_READ_REQUEST)
			sge.length = first->dma_len;
		wr.wr.rdma.remote_addr = first->va;
		wr.wr.rdma.rkey = first->rkey;
	}
	assert_int_equal(qp_post_send(&e->qp, &wr, NULL), 0);
}

static void expect_request(const struct seen *ours, const struct seen *kernels)
{
	const struct packet *o = &ours->pkt, *k = &kernels->pkt;
	unsigned at = kernels->frame;

	expect(at, "opcode", o->opcode, k->opcode);
	expect(at, "PSN", o->psn.v, k->psn.v);
	expect(at, "destination QPN", o->dest_qpn, k->dest_qpn);
	expect(at, "solicited event", o->solicited, k->solicited);
	expect(at, "P_Key", o->pkey, k->pkey);
	expect(at, "pad", o->pad, k->pad);
	if (k->op->headers & (HDR_RETH | HDR_ATOMIC_ETH)) {
		expect(at, "address", o->va, k->va);
		expect(at, "R_Key", o->rkey, k->rkey);
	}
	if (k->op->headers & HDR_RETH)
		expect(at, "DMA length", o->dma_len, k->dma_len);
	if (k->op->headers & HDR_ATOMIC_ETH) {
		expect(at, "swap or add", o->swap_add, k->swap_add);
		if (k->op->kind == OP_COMPARE_SWAP)
			expect(at, "compare", o->compare, k->compare);
	}
	if (k->op->headers & HDR_IMM)
		expect(at, "immediate", o->imm, k->imm);
	if (ends(k))
		expect(at, "AckReq", o->ack_req, k->ack_req);
	expect_payload(ours, kernels);
}

static void replay_to_requester(const struct conversation *c, const struct row *row)
{
	struct path back = c->path;
	unsigned messages = 0;
	size_t n = 0;
	struct end e;

	back.sgid = c->path.dgid;
	back.dgid = c->path.sgid;
	end_open(&e, c, row, true);
	for (size_t i = 0; i < c->n_messages; i++) {
		const struct packet *p = &c->messages[i].pkt;

		if (c->messages[i].reply) {
			qp_rx(&e.qp, p, &back, NOW_NS);
		} else if (begins(p)) {
			post_like(&e, c, i);
			messages++;
		}
		end_transmit(&e);
	}
	for (size_t i = 0; i < c->n_messages; i++) {
		if (c->messages[i].reply)
			continue;
		if (n == e.n_sent)
			fail_msg("frame %u: no request of ours", c->messages[i].frame);
		expect_request(&e.sent[n++], &c->messages[i]);
	}
	assert_int_equal(n, e.n_sent);
	assert_int_equal(e.n_good + e.n_bad, messages);
	assert_int_equal(e.n_bad ? e.first_bad : IBV_WC_SUCCESS, row->status);
	end_close(&e);
}

static void replay(void **state)
{
	const struct row *row = *state;
	struct conversations all;

	conversations_read(&all, row->file);
	for (size_t i = 0; i < all.n; i++) {
		replay_to_responder(&all.list[i], row);
		if (!row->responder_only)
			replay_to_requester(&all.list[i], row);
	}
	conversations_free(&all);
}

int main(void)
{
	enum { N = sizeof(rows) / sizeof(rows[0]) };
	struct CMUnitTest tests[N];

	for (size_t i = 0; i < N; i++)
		tests[i] =
			(struct CMUnitTest){ rows[i].file, replay, NULL, NULL, (void *)&rows[i] };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
