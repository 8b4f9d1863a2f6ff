// SPDX-License-Identifier: BSD-2-Clause
#include "end.h"

#include <stdlib.h>
#include <string.h>

#include "../unit/test.h"

enum { OUTBOX_LEN = 1 << 20 };

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

enum {
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC,
};

static void region(struct end *e, struct mr *mr, uint64_t iova, uint64_t len, uint8_t *host)
{
	*mr = (struct mr){ .pd = e, .iova = iova, .length = len, .host = host };
	mr->access = ACCESS;
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
		.qp_access_flags = e->row->no_read ? ACCESS & ~IBV_ACCESS_REMOTE_READ : ACCESS,
		.path_mtu = mtu_code(c->mtu),
		.dest_qp_num = peer,
		.rq_psn = c->messages[0].pkt.psn.v,
		.sq_psn = c->messages[0].pkt.psn.v,
		.max_rd_atomic = QP_MAX_RD_ATOMIC,
		.max_dest_rd_atomic = QP_MAX_RD_ATOMIC,
		.min_rnr_timer = e->row->rnr_timer,
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

void end_open(struct end *e, const struct conversation *c, const struct row *row, bool requester)
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
	e->row = row;
	if (!requester) {
		path.sgid = c->path.dgid;
		path.dgid = c->path.sgid;
	}
	e->bytes = calloc(1, c->length + RECEIVE_LEN);
	memcpy(e->bytes, c->image, c->length);
	assert_int_equal(mem_init(&e->mem, next_key, &e->key_state), 0);
	region(e, &e->remote, c->va, c->length - row->beyond, e->bytes);
	region(e, &e->local, 0x10000, RECEIVE_LEN, e->bytes + c->length);
	assert_int_equal(outbox_init(&e->box, OUTBOX_LEN), 0);
	assert_int_equal(qp_init(&e->qp, &cfg), 0);
	e->qp.qpn = requester ? c->requester_qpn : c->responder_qpn;
	connect_end(e, c, &path, requester ? c->responder_qpn : c->requester_qpn);
}

void end_close(struct end *e)
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

void end_transmit(struct end *e)
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

void end_post_receive(struct end *e)
{
	struct ibv_sge sge = { e->local.iova, RECEIVE_LEN, e->local.key };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	if (e->row->rnr_timer)
		return;
	if (e->row->receive)
		sge.length = e->row->receive;
	assert_int_equal(qp_post_recv(&e->qp, &wr), 0);
}
