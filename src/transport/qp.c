/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queue pair as a whole: the only place where requester, completer, responder and retry meet.
 *
 *	RESET -> INIT -> RTR -> RTS <-> SQD        any -> ERR: both queues flushed
 *	                         ^------ SQE       UC, UD: a send failed; the receive queue goes on
 */
#include "transport/qp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/qp_attr.h"

/* Packets that one visit may send: queue pairs take turns, and the peer begins with these while the
 * next are made. */
#define TX_BUDGET	     64
#define FIXED_SPORT	     0xc000
#define DEFAULT_WINDOW_BYTES (128u << 10)

static enum ibv_qp_state state_of(const struct qp *qp)
{
	return (enum ibv_qp_state)atomic_load_explicit(&qp->state, memory_order_acquire);
}

static void set_state(struct qp *qp, enum ibv_qp_state state)
{
	atomic_store_explicit(&qp->state, (int)state, memory_order_release);
}

static int check_config(const struct qp_config *c)
{
	if (c->type != IBV_QPT_RC && c->type != IBV_QPT_UC && c->type != IBV_QPT_UD &&
	    c->type != IBV_QPT_XRC_SEND && c->type != IBV_QPT_XRC_RECV)
		return -EOPNOTSUPP;
	if (c->cap.max_send_wr > QP_MAX_WR || c->cap.max_recv_wr > QP_MAX_WR ||
	    c->cap.max_send_sge > QP_MAX_SGE || c->cap.max_recv_sge > QP_MAX_SGE ||
	    c->cap.max_inline_data > QP_MAX_INLINE)
		return -EINVAL;
	return 0;
}

static int init_queues(struct qp *qp)
{
	struct ibv_qp_cap *cap = &qp->cfg.cap;
	uint32_t sges = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);
	uint32_t data = cap->max_inline_data > sges ? cap->max_inline_data : sges;
	bool own_rq = !qp->cfg.srq && qp->cfg.type != IBV_QPT_XRC_SEND &&
		      qp->cfg.type != IBV_QPT_XRC_RECV;
	int ret;

	/* The room an SGE list takes anyway is given to inline data. */
	cap->max_inline_data = data;
	ret = ring_init(&qp->sq, cap->max_send_wr, (uint32_t)sizeof(struct send_wqe) + data);
	if (ret)
		return ret;
	ret = recv_queue_init(&qp->rq, own_rq ? cap->max_recv_wr : 0,
			      own_rq ? cap->max_recv_sge : 0, qp->cfg.pd);
	if (ret)
		return ret;
	return responder_init(qp);
}

void qp_counters_add(struct qp_counters *sum, const struct qp_counters *c)
{
	sum->tx_packets += c->tx_packets;
	sum->rx_packets += c->rx_packets;
	sum->tx_bytes += c->tx_bytes;
	sum->rx_bytes += c->rx_bytes;
	sum->retransmitted += c->retransmitted;
	sum->timeouts += c->timeouts;
	sum->naks_sent += c->naks_sent;
	sum->naks_received += c->naks_received;
	sum->rnr_naks_sent += c->rnr_naks_sent;
	sum->rnr_naks_received += c->rnr_naks_received;
	sum->duplicates += c->duplicates;
}

uint8_t qp_service_bits(const struct qp *qp)
{
	switch (qp->cfg.type) {
	case IBV_QPT_UC:
		return WIRE_UC << 5;
	case IBV_QPT_UD:
		return WIRE_UD << 5;
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return WIRE_XRC << 5;
	case IBV_QPT_RC:
	case IBV_QPT_RAW_PACKET:
	case IBV_QPT_DRIVER:
		break;
	}
	return WIRE_RC << 5;
}

uint16_t qp_sport(const struct qp *qp, uint32_t dest_qpn)
{
	return qp->cfg.sport ? qp->cfg.sport(qp->qpn, dest_qpn) : FIXED_SPORT;
}

int qp_init(struct qp *qp, struct qp_config *config)
{
	int ret;

	*qp = (struct qp){ .cfg = *config, .mtu = MTU_MIN };
	ret = check_config(&qp->cfg);
	if (ret)
		return ret;
	if (qp->cfg.type == IBV_QPT_XRC_RECV)
		qp->cfg.cap = (struct ibv_qp_cap){ 0 };
	else if (qp->cfg.cap.max_send_sge == 0)
		qp->cfg.cap.max_send_sge = 1;
	if (qp->cfg.type == IBV_QPT_XRC_SEND)
		qp->cfg.cap.max_recv_wr = qp->cfg.cap.max_recv_sge = 0;
	if (qp->cfg.window_bytes == 0)
		qp->cfg.window_bytes = DEFAULT_WINDOW_BYTES;
	retry_init(&qp->retry);
	ret = init_queues(qp);
	if (ret)
		qp_destroy(qp);
	else
		config->cap = qp->cfg.cap;
	return ret;
}

void qp_destroy(struct qp *qp)
{
	ring_destroy(&qp->sq);
	recv_queue_destroy(&qp->rq);
	responder_destroy(qp);
}

void qp_unbind(struct qp *qp)
{
	if (qp->has_bound)
		mem_unbind_qp(qp->cfg.mem, qp);
	qp->has_bound = false;
}

/* Back to RESET: what is posted is forgotten without a completion. */
static void reset(struct qp *qp)
{
	retry_init(&qp->retry);
	qp_unbind(qp);
	responder_reset(qp);
	atomic_store(&qp->sq.head, ring_tail(&qp->sq));
	atomic_store(&qp->rq.ring.head, ring_tail(&qp->rq.ring));
	qp->req = (struct requester){ .cur = ring_head(&qp->sq), .assigned = ring_head(&qp->sq) };
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->sq_drained_pending = false;
	qp->established = false;
	qp->local_mtu = qp->local_window = 0;
}

static void enter_error(struct qp *qp)
{
	set_state(qp, IBV_QPS_ERR);
	retry_stop(qp);
	completer_flush_send(qp);
	responder_flush(qp);
	if (qp->cfg.srq || qp->cfg.type == IBV_QPT_XRC_RECV)
		qp->cfg.ops->event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void qp_fatal(struct qp *qp, enum ibv_event_type event)
{
	if (state_of(qp) == IBV_QPS_ERR)
		return;
	qp->cfg.ops->event(qp, event);
	enter_error(qp);
}

void qp_send_error(struct qp *qp)
{
	if (qp_is_reliable(qp)) {
		enter_error(qp);
		return;
	}
	set_state(qp, IBV_QPS_SQE);
	completer_flush_send(qp);
}

static void set_window(struct qp *qp)
{
	if (qp->local_mtu)
		requester_set_window(qp, qp->local_mtu, qp->local_window);
	else
		requester_set_window(qp, qp->mtu, qp->cfg.window_bytes / qp->mtu);
}

void qp_set_local(struct qp *qp, uint32_t mtu, uint32_t window)
{
	qp->local_mtu = mtu;
	qp->local_window = window;
	set_window(qp);
}

static int start(struct qp *qp, const struct ibv_qp_attr *attr, int mask, enum ibv_qp_state to,
		 uint32_t port_mtu)
{
	/* One half of XRC is given only what it needs. */
	uint32_t depth = mask & IBV_QP_MAX_DEST_RD_ATOMIC ? attr->max_dest_rd_atomic : 0;

	if (to == IBV_QPS_RTR) {
		qp->mtu = qp->cfg.type == IBV_QPT_UD ? port_mtu : 128u << attr->path_mtu;
		return responder_start(qp, psn_make(attr->rq_psn), depth);
	}
	if (to == IBV_QPS_RTS && state_of(qp) == IBV_QPS_RTR) {
		requester_start(qp, psn_make(attr->sq_psn),
				mask & IBV_QP_MAX_QP_RD_ATOMIC ? attr->max_rd_atomic : 0);
		set_window(qp);
		completer_start(qp, psn_make(attr->sq_psn));
	}
	return 0;
}

static void apply_live(struct qp *qp, const struct ibv_qp_attr *attr, int mask,
		       const struct path *path)
{
	qp_attr_store(&qp->attr, attr, mask);
	if (mask & IBV_QP_AV) {
		qp->path = *path;
		qp->path.sport = qp_sport(qp, qp->attr.dest_qp_num);
	}
	if (mask & IBV_QP_TIMEOUT)
		retry_set_timeout(&qp->retry, attr->timeout);
	if (mask & (IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY))
		retry_set_counts(&qp->retry, qp->attr.retry_cnt, qp->attr.rnr_retry);
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->req.max_reads = attr->max_rd_atomic;
}

/* Programs give both halves of XRC what RC needs; what a half has no use for is left out, as other
 * devices do. */
static int own_mask(const struct qp *qp, int mask)
{
	if (qp->cfg.type == IBV_QPT_XRC_SEND)
		mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (qp->cfg.type == IBV_QPT_XRC_RECV)
		mask &= ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

int qp_modify(struct qp *qp, const struct ibv_qp_attr *attr, int mask, const struct path *path,
	      uint32_t port_mtu, uint64_t now_ns, char *why, size_t why_len)
{
	enum ibv_qp_state from = state_of(qp);
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int ret;

	(void)now_ns;
	mask = own_mask(qp, mask);
	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from) {
		snprintf(why, why_len, "cur_qp_state is %s, but the queue pair is in %s",
			 qp_state_name(attr->cur_qp_state), qp_state_name(from));
		return EINVAL;
	}
	ret = qp_attr_check_transition(qp->cfg.type, from, to, mask, why, why_len);
	if (!ret)
		ret = qp_attr_check_values(attr, mask, path, port_mtu, why, why_len);
	if (ret)
		return ret;
	ret = start(qp, attr, mask, to, port_mtu);
	if (!ret && to == IBV_QPS_SQD && (mask & IBV_QP_MAX_DEST_RD_ATOMIC))
		ret = responder_set_depth(qp, attr->max_dest_rd_atomic);
	if (ret) {
		snprintf(why, why_len, "out of memory");
		return ENOMEM;
	}
	apply_live(qp, attr, mask, path);
	if (to == IBV_QPS_RESET)
		reset(qp);
	if (to == IBV_QPS_SQD && from == IBV_QPS_RTS)
		qp->sq_drained_pending =
			(mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && attr->en_sqd_async_notify;
	if (to == IBV_QPS_ERR && from != IBV_QPS_ERR)
		enter_error(qp);
	else
		set_state(qp, to);
	return 0;
}

void qp_query(const struct qp *qp, struct ibv_qp_attr *attr)
{
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = state_of(qp);
	attr->cap = qp->cfg.cap;
	attr->sq_draining = state_of(qp) == IBV_QPS_SQD && ring_head(&qp->sq) != qp->req.assigned;
}

static bool service_matches(const struct qp *qp, const struct packet *pkt)
{
	if ((pkt->opcode & 0xe0) != qp_service_bits(qp))
		return false;
	/* The halves of XRC: a target has no requester, an initiator no responder. */
	if (pkt->op->flags & OPF_RESPONSE)
		return qp->cfg.type != IBV_QPT_XRC_RECV;
	return qp->cfg.type != IBV_QPT_XRC_SEND;
}

static bool can_receive(enum ibv_qp_state state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
	       state == IBV_QPS_SQE;
}

/* C9-64 and following: what must hold before a packet touches the queue pair. */
static enum drop check_header(const struct qp *qp, const struct packet *pkt,
			      const struct path *path)
{
	if (!service_matches(qp, pkt))
		return DROP_SERVICE;
	if (!can_receive(state_of(qp)))
		return DROP_STATE;
	/* Our P_Key is the default one, a full member: every member of the partition matches. */
	if ((pkt->pkey & 0x7fff) != 0x7fff)
		return DROP_PKEY;
	if (qp->cfg.type != IBV_QPT_UD &&
	    (!gid_eq(&path->sgid, &qp->path.dgid) || !gid_eq(&path->dgid, &qp->path.sgid)))
		return DROP_ADDRESS;
	return DROP_NONE;
}

static void established(struct qp *qp)
{
	if (qp->established || state_of(qp) != IBV_QPS_RTR)
		return;
	qp->established = true;
	qp->cfg.ops->event(qp, IBV_EVENT_COMM_EST);
}

enum drop qp_rx(struct qp *qp, const struct packet *pkt, const struct path *path, uint64_t now_ns)
{
	enum drop drop = check_header(qp, pkt, path);

	if (drop)
		return drop;
	qp->counters.rx_packets++;
	qp->counters.rx_bytes += pkt->payload_len;
	if (pkt->op->flags & OPF_RESPONSE)
		return state_of(qp) == IBV_QPS_RTR ? DROP_STATE : completer_rx(qp, pkt, now_ns);
	established(qp);
	if (qp->cfg.type == IBV_QPT_UC)
		return responder_uc_rx(qp, pkt);
	if (qp->cfg.type == IBV_QPT_UD)
		return responder_ud_rx(qp, pkt, path);
	return responder_rx(qp, pkt, now_ns);
}

static void check_drained(struct qp *qp)
{
	if (!qp->sq_drained_pending || ring_head(&qp->sq) != qp->req.assigned)
		return;
	qp->sq_drained_pending = false;
	qp->cfg.ops->event(qp, IBV_EVENT_SQ_DRAINED);
}

bool qp_tx(struct qp *qp, struct outbox *box, uint64_t now_ns)
{
	uint32_t budget = TX_BUDGET;
	bool more;

	switch (state_of(qp)) {
	case IBV_QPS_RTR:
	case IBV_QPS_SQE:
		if (state_of(qp) == IBV_QPS_SQE)
			completer_flush_send(qp);
		more = responder_tx(qp, box, &budget);
		return responder_tx_ack(qp, box) || more;
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
		more = responder_tx(qp, box, &budget);
		if (!more && can_receive(state_of(qp)))
			more = requester_tx(qp, box, now_ns, &budget);
		/* Last, since a short packet may end a segmented send but not begin one. */
		more = responder_tx_ack(qp, box) || more;
		check_drained(qp);
		return more;
	case IBV_QPS_ERR:
		/* The NAK that tells why, and what was posted since. */
		more = responder_tx_ack(qp, box);
		completer_flush_send(qp);
		responder_flush(qp);
		return more;
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_UNKNOWN:
		break;
	}
	return false;
}

void qp_tick(struct qp *qp, uint64_t now_ns)
{
	if (can_receive(state_of(qp)))
		retry_tick(qp, now_ns);
}

uint64_t qp_next_deadline(const struct qp *qp)
{
	return retry_next_deadline(&qp->retry);
}

bool qp_outstanding(const struct qp *qp)
{
	return psn_diff(qp->req.max, qp->comp.una) > 0;
}

bool qp_unsent_within(const struct qp *qp, uint32_t requests, uint32_t len)
{
	uint32_t tail = ring_tail(&qp->sq);

	if (tail - qp->req.assigned > requests)
		return false;
	for (uint32_t i = qp->req.assigned; i != tail; i++) {
		const struct send_wqe *w = ring_slot(&qp->sq, i);

		if (w->len > len)
			return false;
	}
	return true;
}

bool qp_idle(const struct qp *qp)
{
	return requester_idle(qp) && responder_idle(qp) &&
	       retry_next_deadline(&qp->retry) == TIME_NEVER;
}
