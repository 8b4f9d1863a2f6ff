/* SPDX-License-Identifier: BSD-2-Clause */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim_link.h"
#include "sim_pcap.h"
#include "wire/icrc.h"

/* Small, so that it fills up in the middle of a response. */
#define OUTBOX_BYTES (20 << 10)
#define CANARY	     0xa5

const struct sim_config sim_defaults = {
	.pair = { { .type = IBV_QPT_RC } },
	.n_pairs = 1,
	.mtu = IBV_MTU_256,
	.psn = 0x1000,
	.rd_atomic = 4,
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.seed = 1,
	.memory = SIM_MEMORY,
	.wrs = 256,
	.sges = 30,
};

uint64_t sim_random(struct sim *s)
{
	/* splitmix64 */
	uint64_t z = (s->random += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint64_t key_random(void *arg)
{
	return sim_random(arg);
}

bool sim_chance(struct sim *s, uint32_t ppm)
{
	return ppm && sim_random(s) % 1000000 < ppm;
}

/* The node that a completion queue is of; its queues are told apart by the opcode's receive bit. */
static void complete(void *cq, const struct ibv_wc *wc, bool solicited)
{
	struct sim_node *n = cq;
	struct sim *s = n->mem.random_arg;

	(void)solicited;
	if (wc->opcode & IBV_WC_RECV) {
		assert_true(n->n_recv_wc < SIM_WCS);
		n->recv_wc[n->n_recv_wc++] = *wc;
	} else {
		assert_true(n->n_send_wc < SIM_WCS);
		n->send_wc[n->n_send_wc++] = *wc;
	}
	if (s->on_completion)
		s->on_completion(s->on_completion_arg, n, wc);
}

static void event(struct qp *qp, enum ibv_event_type type)
{
	struct sim_node *n = qp->cfg.xrcd;

	n->events[type]++;
}

static const struct qp_ops ops = { .complete = complete, .event = event };

static struct recv_queue *find_srq(void *xrcd, uint32_t srqn)
{
	struct sim_node *n = xrcd;

	return srqn == SIM_SRQN ? &n->srq : NULL;
}

int sim_try_recv(struct sim_node *n, unsigned pair, const struct ibv_recv_wr *wr)
{
	struct qp *qp = &n->qp[pair];

	if (qp->cfg.type == IBV_QPT_XRC_RECV || qp->cfg.srq)
		return recv_queue_post(&n->srq, wr);
	return qp_post_recv(qp, wr);
}

void sim_post_recv(struct sim_node *n, const struct ibv_recv_wr *wr)
{
	assert_int_equal(sim_try_recv(n, 0, wr), 0);
}

struct path sim_path(unsigned to)
{
	struct path p = { .sport = 0xc000, .hop_limit = 64 };

	p.sgid.raw[10] = p.sgid.raw[11] = p.dgid.raw[10] = p.dgid.raw[11] = 0xff;
	p.sgid.raw[12] = p.dgid.raw[12] = 10;
	p.sgid.raw[15] = (uint8_t)(2 - to);
	p.dgid.raw[15] = (uint8_t)(1 + to);
	return p;
}

static void modify(struct qp *qp, struct ibv_qp_attr *attr, int mask, const struct path *path,
		   uint64_t now_ns)
{
	char why[256] = "";

	if (qp_modify(qp, attr, mask | IBV_QP_STATE, path, 4096, now_ns, why, sizeof(why)))
		fail_msg("modify: %s", why);
}

void sim_to_error(struct sim *s, struct qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	modify(qp, &attr, 0, NULL, s->now_ns);
}

static void connect_qp(struct sim *s, unsigned i, unsigned k)
{
	struct qp *qp = &s->node[i].qp[k];
	struct path path = sim_path(!i);
	bool rc = qp_is_reliable(qp);
	bool ud = qp->cfg.type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = SIM_QKEY,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = s->cfg.mtu,
		.dest_qp_num = s->node[!i].qp[k].qpn,
		.rq_psn = s->cfg.psn,
		.sq_psn = s->cfg.psn,
		.max_rd_atomic = (uint8_t)s->cfg.rd_atomic,
		.max_dest_rd_atomic = (uint8_t)s->cfg.rd_atomic,
		.min_rnr_timer = s->cfg.min_rnr_timer,
		.timeout = 14,
		.retry_cnt = s->cfg.retry_cnt,
		.rnr_retry = s->cfg.rnr_retry,
	};

	modify(qp, &attr,
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS), NULL, 0);
	attr.qp_state = IBV_QPS_RTR;
	modify(qp, &attr,
	       ud ? 0
		  : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			       (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0),
	       &path, 0);
	attr.qp_state = IBV_QPS_RTS;
	modify(qp, &attr,
	       IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
				   : 0),
	       NULL, 0);
}

static void make_qp(struct sim *s, unsigned i, unsigned k)
{
	const struct sim_pair *pair = &s->cfg.pair[k];
	struct sim_node *n = &s->node[i];
	struct qp_config cfg = {
		.ops = &ops,
		.mem = &n->mem,
		.type = pair->type,
		.pd = n,
		.srq = pair->srq >> i & 1 ? &n->srq : NULL,
		.find_srq = find_srq,
		.xrcd = n,
		.send_cq = n,
		.recv_cq = n,
		.cap = { .max_send_wr = s->cfg.wrs,
			 .max_recv_wr = s->cfg.wrs,
			 .max_send_sge = s->cfg.sges,
			 .max_recv_sge = s->cfg.sges,
			 .max_inline_data = 256 },
	};

	if (cfg.type == IBV_QPT_XRC_SEND && i == !pair->reverse) {
		cfg.type = IBV_QPT_XRC_RECV;
		cfg.pd = cfg.send_cq = cfg.recv_cq = NULL;
	}
	assert_int_equal(qp_init(&n->qp[k], &cfg), 0);
	n->qp[k].qpn = 0x100 + 2 * k + i;
}

static void make_qps(struct sim *s)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < s->node[i].n_qps; k++)
			make_qp(s, i, k);
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < s->node[i].n_qps; k++)
			connect_qp(s, i, k);
}

static void start_node(struct sim *s, unsigned i)
{
	struct sim_node *n = &s->node[i];
	const uint32_t len = s->cfg.memory;

	memset(n, 0, offsetof(struct sim_node, send_wc));
	n->n_qps = s->cfg.n_pairs;
	n->allocation = malloc(len + 2 * SIM_CANARY);
	memset(n->allocation, CANARY, SIM_CANARY);
	n->memory = n->allocation + SIM_CANARY;
	memset(n->memory + len, CANARY, SIM_CANARY);
	for (uint32_t b = 0; b < len; b += 8) {
		uint64_t v = sim_random(s);

		memcpy(n->memory + b, &v, 8);
	}
	assert_int_equal(mem_init(&n->mem, key_random, s), 0);
	n->mr = (struct mr){
		.pd = n,
		.iova = UINT64_C(0x10000) * (i + 1),
		.length = len,
		.host = n->memory,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	};
	assert_int_equal(mem_add(&n->mem, &n->mr), 0);
	assert_int_equal(outbox_init(&n->box, OUTBOX_BYTES), 0);
	assert_int_equal(recv_queue_init(&n->srq, s->cfg.wrs, s->cfg.sges, n), 0);
	n->srq.cq = n;
}

void sim_start(struct sim *s, const struct sim_config *cfg)
{
	assert_in_range(cfg->n_pairs, 1, SIM_PAIRS);
	memset(s, 0, offsetof(struct sim, node));
	s->cfg = *cfg;
	s->random = cfg->seed;
	s->now_ns = NS_PER_SEC;
	for (unsigned i = 0; i < 2; i++)
		start_node(s, i);
	make_qps(s);
}

static void destroy_qps(struct sim *s)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < s->node[i].n_qps; k++)
			qp_destroy(&s->node[i].qp[k]);
}

void sim_reincarnate(struct sim *s, uint32_t psn)
{
	s->cfg.psn = psn;
	destroy_qps(s);
	make_qps(s);
}

void sim_reconnect(struct sim *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	for (unsigned i = 0; i < 2; i++) {
		s->node[i].n_send_wc = s->node[i].n_recv_wc = 0;
		for (unsigned k = 0; k < s->node[i].n_qps; k++)
			modify(&s->node[i].qp[k], &attr, 0, NULL, 0);
	}
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < s->node[i].n_qps; k++)
			connect_qp(s, i, k);
}

static void check_canaries(const struct sim_node *n)
{
	uint8_t canary[SIM_CANARY];

	memset(canary, CANARY, sizeof(canary));
	assert_memory_equal(n->allocation, canary, SIM_CANARY);
	assert_memory_equal(n->memory + n->mr.length, canary, SIM_CANARY);
}

void sim_end(struct sim *s)
{
	sim_link_clear(s);
	destroy_qps(s);
	for (unsigned i = 0; i < 2; i++) {
		struct sim_node *n = &s->node[i];

		check_canaries(n);
		recv_queue_destroy(&n->srq);
		mem_destroy(&n->mem);
		outbox_destroy(&n->box);
		free(n->allocation);
	}
}

struct ibv_sge sim_sge(const struct sim_node *n, uint32_t offset, uint32_t len)
{
	return (struct ibv_sge){ .addr = n->mr.iova + offset, .length = len, .lkey = n->mr.key };
}

uint64_t sim_va(const struct sim_node *n, uint32_t offset)
{
	return n->mr.iova + offset;
}

struct qp *sim_find_qp(struct sim_node *n, uint32_t qpn)
{
	for (unsigned k = 0; k < n->n_qps; k++)
		if (n->qp[k].qpn == qpn)
			return &n->qp[k];
	return NULL;
}

static void check_invariants(const struct qp *qp)
{
	const struct requester *req = &qp->req;
	uint32_t head = ring_head(&qp->sq);

	if (atomic_load(&qp->state) != IBV_QPS_RTS || !qp_is_reliable(qp))
		return;
	assert_true(psn_diff(req->psn, qp->comp.una) >= 0);
	assert_true(psn_diff(req->max, req->psn) >= 0);
	assert_true(req->cur - head <= req->assigned - head);
	assert_true(req->assigned - head <= ring_tail(&qp->sq) - head);
	assert_true(req->read_tail - req->read_head <= req->max_reads);
	/* Something unacknowledged is always watched by a timer. */
	if (psn_diff(req->max, qp->comp.una) > 0)
		assert_true(qp_next_deadline(qp) != TIME_NEVER);
}

/* AckReq is for those that are acknowledged. */
static void check_ack_req(const uint8_t *bth)
{
	const unsigned service = bth[0] >> 5;

	assert_true(service == 0 || service == 5 || !(bth[8] & 0x80));
}

static void send_group(struct sim *s, unsigned from, const struct outbox_group *g)
{
	const uint8_t *buf = s->node[from].box.buf + g->offset;

	for (uint32_t k = 0; k < g->segments; k++) {
		uint32_t at = k * g->seg_len;
		uint32_t len = g->len - at < g->seg_len ? g->len - at : g->seg_len;
		struct sim_packet *p = sim_packet_new(!from, &g->path, buf + at, len);

		check_ack_req(p->data);
		p->ipv4_id = (uint16_t)k;
		sim_link_put(s, p);
	}
}

/* All that the node may send now; its QPs take turns. */
static void transmit(struct sim *s, unsigned i)
{
	struct sim_node *n = &s->node[i];
	bool more;

	do {
		more = false;
		for (unsigned k = 0; k < n->n_qps; k++)
			more |= qp_tx(&n->qp[k], &n->box, s->now_ns);
		for (unsigned g = n->box.first_group; g < n->box.n_groups; g++)
			send_group(s, i, &n->box.groups[g]);
		outbox_sent(&n->box, n->box.n_groups - n->box.first_group);
	} while (more);
	for (unsigned k = 0; k < n->n_qps; k++)
		check_invariants(&n->qp[k]);
}

static enum drop receive(struct sim *s, const struct sim_packet *p)
{
	uint16_t id = p->ipv4_id;
	struct packet pkt;
	struct qp *qp;
	enum drop drop = packet_parse(&pkt, p->data, p->len);

	if (drop)
		return drop;
	/* Damage that another ID would explain passes once in 2^15, as documented: not here. */
	if (!icrc_check(&p->path, &id, p->data, p->len) || id != p->ipv4_id)
		return DROP_ICRC;
	qp = sim_find_qp(&s->node[p->to], pkt.dest_qpn);
	return qp ? qp_rx(qp, &pkt, &p->path, s->now_ns) : DROP_QPN;
}

unsigned sim_replay_history(struct sim *s)
{
	unsigned n = 0;

	for (; n < SIM_HISTORY && s->history[n]; n++) {
		unsigned to = s->history[n]->to;

		s->drops[receive(s, s->history[n])]++;
		transmit(s, to);
	}
	return n;
}

enum drop sim_inject(struct sim *s, unsigned to, struct packet *p)
{
	struct path path = sim_path(to);
	enum drop drop;

	p->op = opcode_info(p->opcode);
	p->mig_req = true;
	p->pkey = 0xffff;
	p->dest_qpn = s->node[to].qp[0].qpn;
	drop = qp_rx(&s->node[to].qp[0], p, &path, s->now_ns);
	transmit(s, to);
	return drop;
}

enum drop sim_inject_bytes(struct sim *s, unsigned to, const uint8_t *data, size_t len)
{
	const struct path path = sim_path(to);
	struct sim_packet *p = sim_packet_new(to, &path, data, (uint32_t)len);
	enum drop drop;

	if (len >= BTH_LEN + ICRC_LEN) {
		uint32_t icrc = htole32(icrc_compute(&p->path, 0, p->data, len - ICRC_LEN));

		memcpy(p->data + len - ICRC_LEN, &icrc, sizeof(icrc));
	}
	if (s->pcap)
		sim_pcap_write(s->pcap, s->now_ns, &p->path, 0, p->data, p->len);
	drop = receive(s, p);
	free(p);
	s->drops[drop]++;
	transmit(s, to);
	return drop;
}

static uint64_t next_deadline(const struct sim_node *n)
{
	uint64_t next = TIME_NEVER;

	for (unsigned k = 0; k < n->n_qps; k++)
		if (qp_next_deadline(&n->qp[k]) < next)
			next = qp_next_deadline(&n->qp[k]);
	return next;
}

static uint64_t next_event(const struct sim *s)
{
	uint64_t next = sim_first_arrival(s);

	for (unsigned i = 0; i < 2; i++)
		if (next_deadline(&s->node[i]) < next)
			next = next_deadline(&s->node[i]);
	return next;
}

static void tick(struct sim *s, unsigned i)
{
	struct sim_node *n = &s->node[i];

	if (next_deadline(n) > s->now_ns)
		return;
	for (unsigned k = 0; k < n->n_qps; k++)
		if (qp_next_deadline(&n->qp[k]) <= s->now_ns)
			qp_tick(&n->qp[k], s->now_ns);
	transmit(s, i);
}

bool sim_idle(const struct sim *s)
{
	if (next_event(s) != TIME_NEVER)
		return false;
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < s->node[i].n_qps; k++)
			if (!qp_idle(&s->node[i].qp[k]))
				return false;
	return true;
}

bool sim_run(struct sim *s, uint64_t limit_ns)
{
	uint64_t end = s->now_ns + limit_ns;

	transmit(s, 0);
	transmit(s, 1);
	for (;;) {
		uint64_t next = next_event(s);
		struct sim_packet *p;

		if (next == TIME_NEVER)
			return sim_idle(s);
		if (next > end)
			return false;
		if (next > s->now_ns)
			s->now_ns = next;
		p = sim_link_take(s);
		if (p) {
			s->drops[receive(s, p)]++;
			transmit(s, p->to);
			free(p);
			continue;
		}
		for (unsigned i = 0; i < 2; i++)
			tick(s, i);
	}
}
