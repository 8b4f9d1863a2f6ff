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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/test.h"
#include "conversation.h"
#include "mem/mem.h"
#include "transport/qp.h"

enum { RECEIVE_LEN = 128 << 10, OUTBOX_LEN = 1 << 20, NOW_NS = 1000000000, WRONG_KEY = 0x77 };

struct row {
	const char *file;
	enum ibv_wc_status status; /* of the last work request of a conversation that ends badly */
	bool no_receive;
};

static const struct row rows[] = {
	{ .file = "rc-ipv4.pcap" }, { .file = "rc-ipv6ll.pcap" }, { .file = "rc-odd.pcap" },
	{ .file = "sendlat.pcap" }, { .file = "write.pcap" },	  { .file = "read.pcap" },
	{ .file = "cmpswap.pcap" }, { .file = "fetchadd.pcap" },
};

/* Our end: one queue pair, all memory it may need, and the packets it sent. */
struct end {
	struct qp qp;
	struct mem_table mem;
	struct mr remote; /* what the peer's requests name */
	struct mr local;
	struct outbox box;
	uint64_t key_state;
	uint8_t *bytes;
	struct seen *sent;
	size_t n_sent;
	unsigned n_good, n_bad;
	enum ibv_wc_status first_bad;
};

static uint64_t next_key(void *arg)
{
	uint64_t *state = arg;

	return *state += UINT64_C(0x9e3779b97f4a7c15);
}

static void complete(void *cq, const struct ibv_wc *wc, bool solicited)
{
	struct end *e = cq;

	(void)solicited;
	if (wc->status == IBV_WC_SUCCESS)
		e->n_good++;
	else if (e->n_bad++ == 0)
		e->first_bad = wc->status;
}

static void event(struct qp *qp, enum ibv_event_type type)
{
	(void)qp;
	(void)type;
}

static void region(struct end *e, struct mr *mr, uint64_t iova, uint64_t len, uint8_t *host)
{
	*mr = (struct mr){ .pd = e, .iova = iova, .length = len, .host = host };
	mr->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	assert_int_equal(mem_add(&e->mem, mr), 0);
}

static void modify(struct end *e, struct ibv_qp_attr *attr, int mask, const struct path *path)
{
	char why[256] = "";

	if (qp_modify(&e->qp, attr, mask | IBV_QP_STATE, path, 4096, NOW_NS, why, sizeof(why)))
		fail_msg("modify: %s", why);
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	return bytes == 256    ? IBV_MTU_256
	       : bytes == 512  ? IBV_MTU_512
	       : bytes == 1024 ? IBV_MTU_1024
	       : bytes == 2048 ? IBV_MTU_2048
			       : IBV_MTU_4096;
}

static void connect_end(struct end *e, const struct conversation *c, const struct path *path,
			uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = e->remote.access,
		.path_mtu = mtu_code(c->mtu),
		.dest_qp_num = peer,
		.rq_psn = c->messages[0].pkt.psn.v,
		.sq_psn = c->messages[0].pkt.psn.v,
		.max_rd_atomic = QP_MAX_RD_ATOMIC,
		.max_dest_rd_atomic = QP_MAX_RD_ATOMIC,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	modify(e, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, NULL);
	attr.qp_state = IBV_QPS_RTR;
	modify(e, &attr,
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	       path);
	attr.qp_state = IBV_QPS_RTS;
	modify(e, &attr,
	       IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC,
	       NULL);
}

static void end_open(struct end *e, const struct conversation *c, bool requester)
{
	static const struct qp_ops ops = { .complete = complete, .event = event };
	struct qp_config cfg = {
		.ops = &ops,
		.mem = &e->mem,
		.type = IBV_QPT_RC,
		.pd = e,
		.send_cq = e,
		.recv_cq = e,
		.cap = { 1024, 1024, 1, 1, 0 },
		.sq_sig_all = true,
	};
	struct path path = c->path;

	memset(e, 0, sizeof(*e));
	if (!requester) {
		path.sgid = c->path.dgid;
		path.dgid = c->path.sgid;
	}
	e->bytes = calloc(1, c->length + RECEIVE_LEN);
	memcpy(e->bytes, c->image, c->length);
	assert_int_equal(mem_init(&e->mem, next_key, &e->key_state), 0);
	region(e, &e->remote, c->va, c->length, e->bytes);
	region(e, &e->local, 0x10000, RECEIVE_LEN, e->bytes + c->length);
	assert_int_equal(outbox_init(&e->box, OUTBOX_LEN), 0);
	assert_int_equal(qp_init(&e->qp, &cfg), 0);
	e->qp.qpn = requester ? c->requester_qpn : c->responder_qpn;
	connect_end(e, c, &path, requester ? c->responder_qpn : c->requester_qpn);
}

static void end_close(struct end *e)
{
	for (size_t i = 0; i < e->n_sent; i++)
		free(e->sent[i].bytes);
	free(e->sent);
	qp_destroy(&e->qp);
	outbox_destroy(&e->box);
	mem_destroy(&e->mem);
	free(e->bytes);
}

static void keep_sent(struct end *e, const uint8_t *data, size_t len)
{
	struct seen *m;

	e->sent = realloc(e->sent, (e->n_sent + 1) * sizeof(*m));
	m = &e->sent[e->n_sent++];
	memset(m, 0, sizeof(*m));
	m->bytes = malloc(len);
	memcpy(m->bytes, data, len);
	assert_int_equal(packet_parse(&m->pkt, m->bytes, len), DROP_NONE);
}

static void transmit(struct end *e)
{
	bool more;

	do {
		more = qp_tx(&e->qp, &e->box, NOW_NS);
		for (unsigned i = e->box.first_group; i < e->box.n_groups; i++) {
			const struct outbox_group *g = &e->box.groups[i];

			for (uint32_t at = 0; at < g->len; at += g->seg_len)
				keep_sent(e, e->box.buf + g->offset + at,
					  g->len - at < g->seg_len ? g->len - at : g->seg_len);
		}
		outbox_sent(&e->box, e->box.n_groups - e->box.first_group);
	} while (more);
}

static void post_receive(struct end *e)
{
	struct ibv_sge sge = { e->local.iova, RECEIVE_LEN, e->local.key };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	assert_int_equal(qp_post_recv(&e->qp, &wr), 0);
}

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

static void expect_reply(const struct seen *ours, const struct seen *kernels)
{
	const struct packet *o = &ours->pkt, *k = &kernels->pkt;
	unsigned at = kernels->frame;

	expect(at, "opcode", o->opcode, k->opcode);
	expect(at, "PSN", o->psn.v, k->psn.v);
	expect(at, "destination QPN", o->dest_qpn, k->dest_qpn);
	expect(at, "pad", o->pad, k->pad);
	if (k->op->headers & HDR_AETH) {
		bool ack = (k->syndrome & AETH_KIND_MASK) == AETH_ACK;

		expect(at, "syndrome", o->syndrome & (ack ? AETH_KIND_MASK : 0xff),
		       k->syndrome & (ack ? AETH_KIND_MASK : 0xff));
		expect(at, "MSN", o->msn, k->msn);
	}
	if (k->op->headers & HDR_ATOMIC_ACK)
		expect(at, "original value", o->atomic_result, k->atomic_result);
	expect_payload(ours, kernels);
}

static void expect_replies(const struct end *e, const struct conversation *c)
{
	struct seen *kernels = calloc(c->n_messages, sizeof(*kernels));
	size_t n = 0, at = 0, our_at = 0;
	const struct seen *k, *o;

	for (size_t i = 0; i < c->n_messages; i++) {
		if (c->messages[i].reply)
			kernels[n++] = c->messages[i];
	}
	while ((k = next_reply(kernels, n, &at))) {
		o = next_reply(e->sent, e->n_sent, &our_at);
		if (!o)
			fail_msg("frame %u: no reply of ours", k->frame);
		expect_reply(o, k);
	}
	assert_int_equal(our_at, e->n_sent);
	free(kernels);
}

static void replay_to_responder(const struct conversation *c, const struct row *row)
{
	struct end e;

	end_open(&e, c, false);
	for (unsigned i = 0; i < 256 && !row->no_receive; i++)
		post_receive(&e);
	for (size_t i = 0; i < c->n_messages; i++) {
		struct packet p = c->messages[i].pkt;
		unsigned before = e.n_good;

		if (c->messages[i].reply)
			continue;
		p.rkey = row->status == IBV_WC_REM_ACCESS_ERR ? WRONG_KEY : e.remote.key;
		qp_rx(&e.qp, &p, &c->path, NOW_NS);
		transmit(&e);
		if (e.n_good > before)
			post_receive(&e);
	}
	expect_replies(&e, c);
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
	end_open(&e, c, true);
	for (size_t i = 0; i < c->n_messages; i++) {
		const struct packet *p = &c->messages[i].pkt;

		if (c->messages[i].reply) {
			qp_rx(&e.qp, p, &back, NOW_NS);
		} else if (begins(p)) {
			post_like(&e, c, i);
			messages++;
		}
		transmit(&e);
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
