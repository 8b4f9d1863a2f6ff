/* SPDX-License-Identifier: BSD-2-Clause */
#include "oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define COUNTER_LEN 8u
#define FIRST_FREE  64u
#define GRH_LEN	    40u
#define LONGEST	    3000u /* bytes of a message */
#define INLINE_MAX  256u

/* What is known of a byte when the image doesn't say it all: the peer's byte of the same offset may
 * have been copied over it, or anything. */
enum { EXACT, EITHER, ANYTHING };

static struct sim_node *node_of(const struct oracle *o, unsigned node)
{
	return &o->sim->node[node];
}

static const struct qp *qp_of(const struct oracle *o, unsigned node, unsigned pair)
{
	return &o->sim->node[node].qp[pair];
}

static bool is_reliable(const struct oracle *o, const struct oracle_op *op)
{
	return qp_is_reliable(qp_of(o, op->node, op->pair));
}

static bool is_send(const struct oracle_op *op)
{
	return op->opcode == IBV_WR_SEND || op->opcode == IBV_WR_SEND_WITH_IMM;
}

static bool is_write(const struct oracle_op *op)
{
	return op->opcode == IBV_WR_RDMA_WRITE || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* It takes a receive. */
static bool is_message(const struct oracle_op *op)
{
	return is_send(op) || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The queue that a QP receives from: SIM_PAIRS is the node's SRQ. */
static unsigned queue_of(const struct oracle *o, unsigned node, unsigned pair)
{
	const struct qp *qp = qp_of(o, node, pair);

	return qp->cfg.srq || qp->cfg.type == IBV_QPT_XRC_RECV ? SIM_PAIRS : pair;
}

void oracle_start(struct oracle *o, struct sim *s, unsigned victim)
{
	memset(o, 0, sizeof(*o));
	o->sim = s;
	o->victim = victim;
	o->next = FIRST_FREE;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(s->node[i].mr.length, ORACLE_MEMORY);
		memset(s->node[i].memory, 0, COUNTER_LEN);
		memcpy(o->image[i], s->node[i].memory, ORACLE_MEMORY);
	}
}

bool oracle_has_room(const struct oracle *o, uint32_t len)
{
	return o->n_ops < ORACLE_OPS && o->n_recvs < ORACLE_RECVS && o->next + len <= ORACLE_MEMORY;
}

static uint32_t reserve(struct oracle *o, uint32_t len)
{
	uint32_t at = o->next;

	assert_true(oracle_has_room(o, len));
	o->next += len;
	return at;
}

/* Often around multiples of the path MTU. */
static uint32_t choose_len(struct oracle *o, const struct oracle_op *op)
{
	const struct qp *qp = qp_of(o, op->node, op->pair);
	const uint32_t max = qp->cfg.type == IBV_QPT_UD ? ORACLE_RECV - GRH_LEN - 1 : LONGEST;
	uint32_t len = (uint32_t)(sim_random(o->sim) % (max + 1));

	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return COUNTER_LEN;
	if (sim_random(o->sim) % 2)
		return len;
	len = len / qp->mtu * qp->mtu + (uint32_t)(sim_random(o->sim) % 3) - 1;
	return len > max ? 0 : len;
}

static enum ibv_wr_opcode choose_opcode(struct oracle *o, enum ibv_qp_type type)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE,
		IBV_WR_SEND,	      IBV_WR_RDMA_READ,		  IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	const unsigned n = type == IBV_QPT_UD ? 1 : type == IBV_QPT_UC ? 3 : ARRAY_LEN(opcodes);

	return opcodes[sim_random(o->sim) % n];
}

/* UD: any of the peer's UD queue pairs. */
static unsigned choose_target(struct oracle *o, unsigned node, unsigned pair)
{
	unsigned to = pair;

	if (qp_of(o, node, pair)->cfg.type != IBV_QPT_UD)
		return pair;
	do
		to = (unsigned)(sim_random(o->sim) % o->sim->cfg.n_pairs);
	while (qp_of(o, !node, to)->cfg.type != IBV_QPT_UD);
	return to;
}

/* Bytes of a node in up to three entries. */
static int cut(struct oracle *o, const struct sim_node *n, uint32_t at, uint32_t len,
	       struct ibv_sge sge[3])
{
	int k = 0;

	while (k < 2 && len && sim_random(o->sim) % 2) {
		uint32_t part = (uint32_t)(sim_random(o->sim) % (len + 1));

		sge[k++] = sim_sge(n, at, part);
		at += part;
		len -= part;
	}
	sge[k++] = sim_sge(n, at, len);
	return k;
}

static void post(struct oracle *o, const struct oracle_op *op)
{
	const struct sim_node *peer = node_of(o, !op->node);
	struct sim_node *n = node_of(o, op->node);
	struct path path = sim_path(!op->node);
	struct ibv_sge sge[3];
	struct ibv_send_wr wr = { .wr_id = o->n_ops, .sg_list = sge, .opcode = op->opcode };
	const uint64_t flags = sim_random(o->sim);

	wr.num_sge = cut(o, n, op->at, op->len, sge);
	wr.imm_data = htobe32(o->n_ops);
	wr.send_flags = op->signalled ? IBV_SEND_SIGNALED : 0;
	wr.send_flags |= flags % 8 == 0 ? IBV_SEND_FENCE : 0;
	if ((is_send(op) || is_write(op)) && op->len <= INLINE_MAX && flags & 8) {
		wr.send_flags |= IBV_SEND_INLINE;
		wr.num_sge = 1;
		sge[0] = (struct ibv_sge){ (uintptr_t)n->memory + op->at, op->len, 0 };
	}
	wr.qp_type.xrc.remote_srqn = SIM_SRQN;
	if (n->qp[op->pair].cfg.type == IBV_QPT_UD) {
		wr.wr.ud.remote_qpn = peer->qp[op->to].qpn;
		wr.wr.ud.remote_qkey = SIM_QKEY;
	} else if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = sim_va(peer, 0);
		wr.wr.atomic.rkey = peer->mr.key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = sim_va(peer, op->at);
		wr.wr.rdma.rkey = peer->mr.key ^ op->bad;
	}
	if (qp_post_send(&n->qp[op->pair], &wr, &path) == 0)
		o->op[o->n_ops++] = *op;
	else
		o->next = op->at;
}

void oracle_post(struct oracle *o, unsigned node, unsigned pair)
{
	const enum ibv_qp_type type = qp_of(o, node, pair)->cfg.type;
	struct oracle_op op = { .node = node, .pair = pair };

	if (type == IBV_QPT_XRC_RECV)
		return;
	op.opcode = choose_opcode(o, type);
	op.to = choose_target(o, node, pair);
	op.len = choose_len(o, &op);
	op.at = reserve(o, op.len);
	op.signalled = sim_random(o->sim) % 4;
	post(o, &op);
}

void oracle_post_bad(struct oracle *o, unsigned node, unsigned pair)
{
	struct oracle_op op = { .node = node,
				.pair = pair,
				.to = pair,
				.opcode = IBV_WR_RDMA_WRITE,
				.at = reserve(o, COUNTER_LEN),
				.len = COUNTER_LEN,
				.bad = true };

	assert_int_equal(pair, o->victim);
	post(o, &op);
}

void oracle_recv(struct oracle *o, unsigned node, unsigned pair)
{
	const uint32_t at = reserve(o, ORACLE_RECV);
	struct ibv_sge sge[3];
	struct ibv_recv_wr wr = { .wr_id = o->n_recvs, .sg_list = sge };

	wr.num_sge = cut(o, node_of(o, node), at, ORACLE_RECV, sge);
	if (sim_try_recv(node_of(o, node), pair, &wr) == 0)
		o->recv[o->n_recvs++] = (struct oracle_recv){ .node = node,
							      .pair = queue_of(o, node, pair),
							      .at = at };
}

/* Bytes of the peer's memory are those of the node's now, and the image knows it. */
static void placed(struct oracle *o, unsigned node, uint32_t at, uint32_t from, uint32_t len)
{
	const uint8_t *source = node_of(o, !node)->memory + from;

	assert_memory_equal(node_of(o, node)->memory + at, source, len);
	memcpy(&o->image[node][at], source, len);
	memset(&o->wild[node][at], EXACT, len);
}

static void doubt(struct oracle *o, unsigned node, uint32_t at, uint32_t len, int what)
{
	memset(&o->wild[node][at], what, len);
}

static void fetched(struct oracle *o, const struct oracle_op *op)
{
	uint64_t old;

	memcpy(&old, node_of(o, op->node)->memory + op->at, sizeof(old));
	assert_in_range(old, 0, ORACLE_OPS - 1);
	assert_false(o->fetched[!op->node][old]);
	o->fetched[!op->node][old] = true;
	o->adds[!op->node]++;
	memcpy(&o->image[op->node][op->at], &old, sizeof(old));
}

static void op_succeeded(struct oracle *o, struct oracle_op *op)
{
	op->complete = true;
	assert_false(op->bad || o->broken[op->node][op->pair]);
	if (!is_reliable(o, op)) {
		if (is_write(op) && !op->arrived)
			doubt(o, !op->node, op->at, op->len, EITHER);
	} else if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		fetched(o, op);
	} else if (op->opcode == IBV_WR_RDMA_READ) {
		placed(o, op->node, op->at, op->at, op->len);
	} else {
		if (is_message(op))
			assert_int_equal(op->arrived, 1);
		if (is_write(op))
			placed(o, !op->node, op->at, op->at, op->len);
	}
}

static void op_failed(struct oracle *o, struct oracle_op *op, enum ibv_wc_status status)
{
	bool *broken = &o->broken[op->node][op->pair];

	op->complete = op->failed = true;
	assert_int_equal(op->pair, o->victim);
	if (*broken)
		assert_int_equal(status, IBV_WC_WR_FLUSH_ERR);
	*broken = true;
	if (op->opcode == IBV_WR_RDMA_READ) {
		doubt(o, op->node, op->at, op->len, EITHER);
	} else if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		doubt(o, op->node, op->at, op->len, ANYTHING);
		o->doubtful_adds[!op->node]++;
	} else if (is_write(op) && !op->arrived) {
		doubt(o, !op->node, op->at, op->len, EITHER);
	}
}

/* The requests of this queue pair before `end` that haven't completed: nobody wanted to hear of them,
 * and they have succeeded. */
static void succeed_silently(struct oracle *o, unsigned node, unsigned pair, unsigned end)
{
	for (unsigned i = 0; i < end; i++) {
		struct oracle_op *op = &o->op[i];

		if (op->node != node || op->pair != pair || op->complete)
			continue;
		assert_false(op->signalled);
		op_succeeded(o, op);
	}
}

static void send_completion(struct oracle *o, unsigned node, const struct ibv_wc *wc)
{
	struct oracle_op *op = &o->op[wc->wr_id];

	assert_in_range(wc->wr_id, 0, o->n_ops - 1);
	assert_int_equal(op->node, node);
	assert_int_equal(wc->qp_num, qp_of(o, node, op->pair)->qpn);
	assert_false(op->complete);
	succeed_silently(o, node, op->pair, (unsigned)wc->wr_id);
	if (wc->status != IBV_WC_SUCCESS) {
		op_failed(o, op, wc->status);
		return;
	}
	assert_true(op->signalled);
	op_succeeded(o, op);
}

/* Which message this receive is of. */
static struct oracle_op *message_of(struct oracle *o, unsigned node, unsigned pair,
				    const struct ibv_wc *wc)
{
	const uint32_t imm = be32toh(wc->imm_data);
	unsigned i = 0;

	if (!qp_is_reliable(qp_of(o, node, pair))) {
		assert_true(wc->wc_flags & IBV_WC_WITH_IMM);
		assert_in_range(imm, 0, o->n_ops - 1);
		i = imm;
		/* The network may have doubled it. */
		if (!o->sim->cfg.duplicate && !o->sim->cfg.replay)
			assert_int_equal(o->op[i].arrived, 0);
	} else {
		while (i < o->n_ops && (o->op[i].node == node || o->op[i].pair != pair ||
					!is_message(&o->op[i]) || o->op[i].arrived))
			i++;
		assert_true(i < o->n_ops);
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			assert_int_equal(imm, i);
	}
	assert_int_equal(o->op[i].node, !node);
	assert_int_equal(o->op[i].to, pair);
	return &o->op[i];
}

static void message_arrived(struct oracle *o, unsigned node, struct oracle_op *op,
			    const struct oracle_recv *r, const struct ibv_wc *wc)
{
	const struct qp *sender = qp_of(o, op->node, op->pair);
	const uint32_t head = sender->cfg.type == IBV_QPT_UD ? GRH_LEN : 0;

	op->arrived++;
	assert_int_equal(wc->byte_len, op->len + head);
	assert_int_equal(!!(wc->wc_flags & IBV_WC_WITH_IMM), op->opcode != IBV_WR_SEND);
	assert_int_equal(wc->src_qp, sender->cfg.type == IBV_QPT_XRC_SEND ? SIM_SRQN : sender->qpn);
	if (is_write(op)) {
		assert_int_equal(wc->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		placed(o, node, op->at, op->at, op->len);
		return;
	}
	assert_int_equal(wc->opcode, IBV_WC_RECV);
	doubt(o, node, r->at, head, ANYTHING);
	placed(o, node, r->at + head, op->at, op->len);
}

/* Might a message that nobody was told of have begun to fill receives of this queue? One of UC that
 * was lost in part, one of the victim. */
static bool may_be_touched(const struct oracle *o, unsigned node, unsigned queue)
{
	for (unsigned k = 0; k < o->sim->cfg.n_pairs; k++)
		if (queue_of(o, node, k) == queue &&
		    (k == o->victim || qp_of(o, node, k)->cfg.type == IBV_QPT_UC))
			return true;
	return false;
}

/* A queue pair's own receives are used in order. */
static void check_recv_order(const struct oracle *o, const struct oracle_recv *r)
{
	if (r->pair == SIM_PAIRS)
		return;
	for (const struct oracle_recv *e = o->recv; e < r; e++)
		assert_true(e->complete || e->node != r->node || e->pair != r->pair);
}

static void recv_completion(struct oracle *o, unsigned node, const struct ibv_wc *wc)
{
	const struct qp *qp = sim_find_qp(node_of(o, node), wc->qp_num);
	struct oracle_recv *r = &o->recv[wc->wr_id];
	unsigned pair;

	assert_in_range(wc->wr_id, 0, o->n_recvs - 1);
	assert_non_null(qp);
	pair = (unsigned)(qp - node_of(o, node)->qp);
	assert_false(r->complete);
	assert_int_equal(r->node, node);
	assert_int_equal(r->pair, queue_of(o, node, pair));
	check_recv_order(o, r);
	r->complete = true;
	if (may_be_touched(o, node, r->pair))
		doubt(o, node, r->at, ORACLE_RECV, ANYTHING);
	if (wc->status == IBV_WC_SUCCESS) {
		message_arrived(o, node, message_of(o, node, pair, wc), r, wc);
		return;
	}
	assert_int_equal(wc->status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(pair, o->victim);
}

void oracle_completion(void *arg, struct sim_node *n, const struct ibv_wc *wc)
{
	struct oracle *o = arg;
	const unsigned node = n != &o->sim->node[0];

	if (wc->opcode & IBV_WC_RECV)
		recv_completion(o, node, wc);
	else
		send_completion(o, node, wc);
}

static void check_memory(const struct oracle *o, unsigned node)
{
	const uint8_t *memory = o->sim->node[node].memory, *peer = o->sim->node[!node].memory;
	const uint8_t *image = o->image[node], *wild = o->wild[node];

	for (uint32_t b = COUNTER_LEN; b < ORACLE_MEMORY; b++) {
		if (memory[b] == image[b] || wild[b] == ANYTHING)
			continue;
		if (wild[b] == EXACT || memory[b] != peer[b])
			fail_msg("node %u, byte %u: %02x instead of %02x", node, b, memory[b],
				 image[b]);
	}
}

/* Each add was executed once: whoever asked got a value that nobody else got. */
static void check_adds(const struct oracle *o, unsigned node)
{
	uint64_t counter;

	memcpy(&counter, o->sim->node[node].memory, sizeof(counter));
	assert_in_range(counter, o->adds[node], o->adds[node] + o->doubtful_adds[node]);
	for (uint64_t v = counter; v < ORACLE_OPS; v++)
		assert_false(o->fetched[node][v]);
}

static void check_qp(const struct oracle *o, unsigned node, unsigned pair)
{
	const struct qp *qp = qp_of(o, node, pair);

	if (pair == o->victim)
		return;
	assert_int_equal(atomic_load(&qp->state), IBV_QPS_RTS);
	if (qp_is_reliable(qp)) {
		assert_int_equal(qp->retry.retries_left, qp->retry.retry_cnt);
		assert_int_equal(qp->req.read_tail, qp->req.read_head);
	}
}

void oracle_check(struct oracle *o)
{
	assert_true(sim_idle(o->sim));
	for (unsigned node = 0; node < 2; node++) {
		for (unsigned k = 0; k < o->sim->cfg.n_pairs; k++) {
			succeed_silently(o, node, k, o->n_ops);
			check_qp(o, node, k);
		}
	}
	for (unsigned i = 0; i < o->n_recvs; i++)
		if (!o->recv[i].complete && may_be_touched(o, o->recv[i].node, o->recv[i].pair))
			doubt(o, o->recv[i].node, o->recv[i].at, ORACLE_RECV, ANYTHING);
	for (unsigned node = 0; node < 2; node++) {
		check_memory(o, node);
		check_adds(o, node);
	}
}
