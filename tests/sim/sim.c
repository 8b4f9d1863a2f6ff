/* SPDX-License-Identifier: BSD-2-Clause */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim_pcap.h"
#include "wire/icrc.h"

#define DELAY_NS (20 * NS_PER_US)
/* Small, so that it fills up in the middle of a response. */
#define OUTBOX_BYTES (20 << 10)
#define CANARY	     0xa5

struct sim_packet {
	struct sim_packet *next;
	uint64_t at_ns;
	unsigned to;
	uint16_t ipv4_id;
	struct path path;
	uint32_t len;
	uint8_t data[MTU_MAX + PACKET_HEADER_MAX + ICRC_LEN];
};

const struct sim_config sim_defaults = {
	.type = IBV_QPT_RC,
	.mtu = IBV_MTU_256,
	.psn = 0x1000,
	.rd_atomic = 4,
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.seed = 1,
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

static bool chance(struct sim *s, uint32_t ppm)
{
	return ppm && sim_random(s) % 1000000 < ppm;
}

/* The QP is a node's first member; its queues are told apart by the opcode's receive bit. */
static struct sim_node *node_of(void *qp)
{
	return qp;
}

static void complete(void *cq, const struct ibv_wc *wc, bool solicited)
{
	struct sim_node *n = node_of(cq);

	(void)solicited;
	if (wc->opcode & IBV_WC_RECV) {
		assert_true(n->n_recv_wc < SIM_WCS);
		n->recv_wc[n->n_recv_wc++] = *wc;
	} else {
		assert_true(n->n_send_wc < SIM_WCS);
		n->send_wc[n->n_send_wc++] = *wc;
	}
}

static void event(struct qp *qp, enum ibv_event_type type)
{
	node_of(qp)->events[type]++;
}

static const struct qp_ops ops = { .complete = complete, .event = event };

static struct recv_queue *find_srq(void *xrcd, uint32_t srqn)
{
	struct sim_node *n = xrcd;

	return srqn == SIM_SRQN ? &n->srq : NULL;
}

void sim_post_recv(struct sim_node *n, const struct ibv_recv_wr *wr)
{
	if (n->qp.cfg.type == IBV_QPT_XRC_RECV || n->qp.cfg.srq)
		assert_int_equal(recv_queue_post(&n->srq, wr), 0);
	else
		assert_int_equal(qp_post_recv(&n->qp, wr), 0);
}

static struct path path_to(unsigned to)
{
	struct path p = { .sport = 0xc000, .hop_limit = 64 };

	p.sgid.raw[10] = p.sgid.raw[11] = p.dgid.raw[10] = p.dgid.raw[11] = 0xff;
	p.sgid.raw[12] = p.dgid.raw[12] = 10;
	p.sgid.raw[15] = (uint8_t)(2 - to);
	p.dgid.raw[15] = (uint8_t)(1 + to);
	return p;
}

static void modify(struct qp *qp, struct ibv_qp_attr *attr, int mask, const struct path *path)
{
	char why[256] = "";

	if (qp_modify(qp, attr, mask | IBV_QP_STATE, path, 4096, 0, why, sizeof(why)))
		fail_msg("modify: %s", why);
}

static void connect_node(struct sim *s, unsigned i)
{
	struct qp *qp = &s->node[i].qp;
	struct path path = path_to(!i);
	bool rc = s->cfg.type == IBV_QPT_RC || s->cfg.type == IBV_QPT_XRC_SEND;
	bool ud = s->cfg.type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 0x11111111,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = s->cfg.mtu,
		.dest_qp_num = s->node[!i].qp.qpn,
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
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS), NULL);
	attr.qp_state = IBV_QPS_RTR;
	modify(qp, &attr,
	       ud ? 0
		  : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			       (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0),
	       &path);
	attr.qp_state = IBV_QPS_RTS;
	modify(qp, &attr,
	       IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
				   : 0),
	       NULL);
}

static void make_qp(struct sim *s, unsigned i)
{
	struct sim_node *n = &s->node[i];
	struct qp_config cfg = {
		.ops = &ops,
		.mem = &n->mem,
		.type = s->cfg.type == IBV_QPT_XRC_SEND && i == 1 ? IBV_QPT_XRC_RECV : s->cfg.type,
		.pd = n,
		.srq = s->cfg.srq && i == 1 ? &n->srq : NULL,
		.find_srq = find_srq,
		.xrcd = n,
		.send_cq = n,
		.recv_cq = n,
		.cap = { .max_send_wr = 256,
			 .max_recv_wr = 256,
			 .max_send_sge = 30,
			 .max_recv_sge = 30,
			 .max_inline_data = 256 },
	};

	if (cfg.type == IBV_QPT_XRC_RECV)
		cfg.pd = cfg.send_cq = cfg.recv_cq = NULL;
	assert_int_equal(qp_init(&n->qp, &cfg), 0);
	n->qp.qpn = 0x100 + i;
}

static void start_node(struct sim *s, unsigned i)
{
	struct sim_node *n = &s->node[i];

	n->allocation = malloc(SIM_MEMORY + 2 * SIM_CANARY);
	memset(n->allocation, CANARY, SIM_MEMORY + 2 * SIM_CANARY);
	n->memory = n->allocation + SIM_CANARY;
	for (uint32_t b = 0; b < SIM_MEMORY; b += 8) {
		uint64_t v = sim_random(s);

		memcpy(n->memory + b, &v, 8);
	}
	assert_int_equal(mem_init(&n->mem, key_random, s), 0);
	n->mr = (struct mr){
		.pd = n,
		.iova = UINT64_C(0x10000) * (i + 1),
		.length = SIM_MEMORY,
		.host = n->memory,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	};
	assert_int_equal(mem_add(&n->mem, &n->mr), 0);
	assert_int_equal(outbox_init(&n->box, OUTBOX_BYTES), 0);
	assert_int_equal(recv_queue_init(&n->srq, 256, 30, n), 0);
	n->srq.cq = n;
	make_qp(s, i);
}

void sim_start(struct sim *s, const struct sim_config *cfg)
{
	memset(s, 0, sizeof(*s));
	s->cfg = *cfg;
	s->random = cfg->seed;
	s->now_ns = NS_PER_SEC;
	for (unsigned i = 0; i < 2; i++)
		start_node(s, i);
	for (unsigned i = 0; i < 2; i++)
		connect_node(s, i);
}

void sim_reincarnate(struct sim *s, uint32_t psn)
{
	s->cfg.psn = psn;
	for (unsigned i = 0; i < 2; i++) {
		qp_destroy(&s->node[i].qp);
		make_qp(s, i);
	}
	for (unsigned i = 0; i < 2; i++)
		connect_node(s, i);
}

void sim_end(struct sim *s)
{
	while (s->wire) {
		struct sim_packet *p = s->wire;

		s->wire = p->next;
		free(p);
	}
	for (unsigned i = 0; i < SIM_HISTORY; i++) {
		free(s->history[i]);
		s->history[i] = NULL;
	}
	for (unsigned i = 0; i < 2; i++) {
		struct sim_node *n = &s->node[i];

		for (uint32_t b = 0; b < SIM_CANARY; b++) {
			assert_int_equal(n->allocation[b], CANARY);
			assert_int_equal(n->memory[SIM_MEMORY + b], CANARY);
		}
		qp_destroy(&n->qp);
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

static void insert(struct sim *s, const struct sim_packet *packet)
{
	struct sim_packet *p = malloc(sizeof(*p));
	struct sim_packet **link = &s->wire;

	memcpy(p, packet, sizeof(*p));
	while (*link && (*link)->at_ns <= p->at_ns)
		link = &(*link)->next;
	p->next = *link;
	*link = p;
}

/* Change a byte so that the check notices: over IPv4 it is blind to one change in 2^15. */
static void corrupt(struct sim *s, struct sim_packet *p)
{
	uint16_t id;

	do {
		p->data[sim_random(s) % p->len] ^= (uint8_t)(1 + sim_random(s) % 255);
		id = 0;
	} while (icrc_check(&p->path, &id, p->data, p->len));
}

/* When the link has sent this packet; 0: its queue is full. */
static uint64_t through_the_link(struct sim *s, unsigned from, uint32_t len)
{
	uint64_t *busy = &s->busy_ns[from];
	uint64_t backlog = *busy > s->now_ns ? *busy - s->now_ns : 0;

	if (!s->cfg.mbps)
		return s->now_ns;
	if (backlog * s->cfg.mbps / 8000 + len > s->cfg.queue_bytes) {
		s->overflowed++;
		return 0;
	}
	*busy = s->now_ns + backlog + (uint64_t)len * 8000 / s->cfg.mbps;
	return *busy;
}

/* A packet sent earlier, to whom it was for, perhaps with its checksum broken. */
static void replay(struct sim *s, const struct sim_packet *p)
{
	struct sim_packet **slot = &s->history[s->n_history++ % SIM_HISTORY];
	struct sim_packet old;
	unsigned n;

	if (!*slot)
		*slot = malloc(sizeof(**slot));
	memcpy(*slot, p, sizeof(*p));
	if (!chance(s, s->cfg.replay))
		return;
	n = s->n_history < SIM_HISTORY ? s->n_history : SIM_HISTORY;
	memcpy(&old, s->history[sim_random(s) % n], sizeof(old));
	old.at_ns = s->now_ns + sim_random(s) % (NS_PER_MS * 100);
	if (sim_random(s) % 8 == 0)
		old.len = 1 + (uint32_t)(sim_random(s) % old.len);
	insert(s, &old);
}

static void put_on_wire(struct sim *s, unsigned from, struct sim_packet *p)
{
	const uint64_t delay_ns = s->cfg.delay_ns ? s->cfg.delay_ns : DELAY_NS;
	uint64_t number = s->node[from].sent++;

	/* AckReq is for those that are acknowledged. */
	assert_true(qp_is_reliable(&s->node[from].qp) || !(p->data[8] & 0x80));
	if (s->pcap)
		sim_pcap_write(s->pcap, s->now_ns, &p->path, p->ipv4_id, p->data, p->len);
	if (s->cfg.replay)
		replay(s, p);
	if (number < 64 && s->cfg.drop_mask[from] >> number & 1)
		return;
	if (chance(s, s->cfg.loss))
		return;
	p->at_ns = through_the_link(s, from, p->len);
	if (!p->at_ns)
		return;
	p->at_ns += delay_ns;
	if (chance(s, s->cfg.reorder))
		p->at_ns += sim_random(s) % (4 * delay_ns);
	if (chance(s, s->cfg.corrupt))
		corrupt(s, p);
	insert(s, p);
	if (chance(s, s->cfg.duplicate)) {
		p->at_ns += sim_random(s) % (2 * delay_ns);
		insert(s, p);
	}
}

static void send_group(struct sim *s, unsigned from, const struct outbox_group *g)
{
	const uint8_t *buf = s->node[from].box.buf;

	for (uint32_t k = 0; k < g->segments; k++) {
		uint32_t at = k * g->seg_len;
		struct sim_packet p = { .to = !from, .path = g->path, .ipv4_id = (uint16_t)k };

		p.len = g->len - at < g->seg_len ? g->len - at : g->seg_len;
		memcpy(p.data, buf + g->offset + at, p.len);
		put_on_wire(s, from, &p);
	}
}

static void transmit(struct sim *s, unsigned i)
{
	struct sim_node *n = &s->node[i];
	bool more;

	do {
		more = qp_tx(&n->qp, &n->box, s->now_ns);
		for (unsigned g = n->box.first_group; g < n->box.n_groups; g++)
			send_group(s, i, &n->box.groups[g]);
		outbox_sent(&n->box, n->box.n_groups - n->box.first_group);
	} while (more);
	check_invariants(&n->qp);
}

static enum drop receive(struct sim *s, const struct sim_packet *p)
{
	uint16_t id = p->ipv4_id;
	struct packet pkt;
	enum drop drop = packet_parse(&pkt, p->data, p->len);

	if (drop)
		return drop;
	/* Damage that another ID would explain passes once in 2^15, as documented: not here. */
	if (!icrc_check(&p->path, &id, p->data, p->len) || id != p->ipv4_id)
		return DROP_ICRC;
	if (pkt.dest_qpn != s->node[p->to].qp.qpn)
		return DROP_QPN;
	return qp_rx(&s->node[p->to].qp, &pkt, &p->path, s->now_ns);
}

unsigned sim_replay_history(struct sim *s)
{
	unsigned n = 0;

	for (; n < SIM_HISTORY && s->history[n]; n++) {
		s->drops[receive(s, s->history[n])]++;
		transmit(s, s->history[n]->to);
	}
	return n;
}

struct path sim_path(unsigned to)
{
	return path_to(to);
}

enum drop sim_inject(struct sim *s, unsigned to, struct packet *p)
{
	struct path path = path_to(to);
	enum drop drop;

	p->op = opcode_info(p->opcode);
	p->mig_req = true;
	p->pkey = 0xffff;
	p->dest_qpn = s->node[to].qp.qpn;
	drop = qp_rx(&s->node[to].qp, p, &path, s->now_ns);
	transmit(s, to);
	return drop;
}

enum drop sim_inject_bytes(struct sim *s, unsigned to, const uint8_t *data, size_t len)
{
	struct sim_packet p = { .to = to, .path = path_to(to), .len = (uint32_t)len };
	enum drop drop;

	assert_true(len >= ICRC_LEN && len <= sizeof(p.data));
	memcpy(p.data, data, len);
	if (len >= BTH_LEN + ICRC_LEN) {
		uint32_t icrc = htole32(icrc_compute(&p.path, 0, p.data, len - ICRC_LEN));

		memcpy(p.data + len - ICRC_LEN, &icrc, sizeof(icrc));
	}
	if (s->pcap)
		sim_pcap_write(s->pcap, s->now_ns, &p.path, 0, p.data, p.len);
	drop = receive(s, &p);
	s->drops[drop]++;
	transmit(s, to);
	return drop;
}

static uint64_t next_event(const struct sim *s)
{
	uint64_t next = s->wire ? s->wire->at_ns : TIME_NEVER;

	for (unsigned i = 0; i < 2; i++)
		if (qp_next_deadline(&s->node[i].qp) < next)
			next = qp_next_deadline(&s->node[i].qp);
	return next;
}

bool sim_run(struct sim *s, uint64_t limit_ns)
{
	uint64_t end = s->now_ns + limit_ns;

	transmit(s, 0);
	transmit(s, 1);
	for (;;) {
		uint64_t next = next_event(s);

		if (next == TIME_NEVER)
			break;
		if (next > end)
			return false;
		if (next > s->now_ns)
			s->now_ns = next;
		if (s->wire && s->wire->at_ns <= s->now_ns) {
			struct sim_packet *p = s->wire;

			s->wire = p->next;
			s->drops[receive(s, p)]++;
			transmit(s, p->to);
			free(p);
			continue;
		}
		for (unsigned i = 0; i < 2; i++) {
			if (qp_next_deadline(&s->node[i].qp) > s->now_ns)
				continue;
			qp_tick(&s->node[i].qp, s->now_ns);
			transmit(s, i);
		}
	}
	return qp_idle(&s->node[0].qp) && qp_idle(&s->node[1].qp);
}
