/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The responders that never reply. UC: a message with a gap is dropped whole, the next FIRST or
 * ONLY starts anew (IBA 9.8.2.2). UD: one packet, one message; Q_Key checked, 40 bytes of network
 * header in front (IBA 9.8.3).
 */
#include <string.h>

#include "transport/qp.h"
#include "transport/receive.h"

#define GRH_LEN	     40
#define IPPROTO_UDP_ 17

static enum drop uc_fault_drop(enum fault fault)
{
	switch (fault) {
	case FAULT_NO_RECEIVE:
		return DROP_NO_RECEIVE;
	case FAULT_OPCODE_SEQUENCE:
		return DROP_SEQUENCE;
	case FAULT_RECEIVE_LENGTH:
	case FAULT_LENGTH:
		return DROP_TOO_LONG;
	case FAULT_NONE:
	case FAULT_OPCODE:
	case FAULT_RECEIVE_KEY:
	case FAULT_ACCESS:
	case FAULT_UNALIGNED:
	case FAULT_READ_DEPTH:
	case FAULT_GONE:
	case FAULT_XRC_SRQ:
	case FAULT_INVALIDATE:
	case FAULT_COUNT:
		break;
	}
	return DROP_ACCESS;
}

enum drop responder_uc_rx(struct qp *qp, const struct packet *pkt)
{
	struct responder *r = &qp->resp;
	bool begins = pkt->op->position == POS_FIRST || pkt->op->position == POS_ONLY;
	bool in_order = psn_eq(pkt->psn, r->epsn);
	enum fault fault;

	r->epsn = psn_add(pkt->psn, 1);
	if (begins) {
		/* What was unfinished is given up; its receive serves the new message. */
		r->message = MESSAGE_NONE;
		r->skip_message = false;
	} else if (!in_order) {
		r->skip_message = true;
	}
	if (r->skip_message) {
		r->message = MESSAGE_NONE;
		return DROP_SEQUENCE;
	}
	fault = receive_message_packet(qp, pkt);
	if (!fault)
		return DROP_NONE;
	r->message = MESSAGE_NONE;
	r->skip_message = true;
	if (fault == FAULT_RECEIVE_LENGTH || fault == FAULT_RECEIVE_KEY) {
		receive_complete(qp, NULL,
				 fault == FAULT_RECEIVE_LENGTH ? IBV_WC_LOC_LEN_ERR
							       : IBV_WC_LOC_PROT_ERR);
		qp_fatal(qp, IBV_EVENT_QP_REQ_ERR);
	}
	return uc_fault_drop(fault);
}

/* The 40 bytes in front of a datagram: the IPv6 header, or 20 bytes of nothing and the IPv4 header.
 */
static void fill_grh(uint8_t grh[GRH_LEN], const struct path *path, const struct packet *pkt)
{
	uint32_t udp_len =
		8 + packet_headers_len(pkt->opcode) + pkt->payload_len + pkt->pad + ICRC_LEN;

	memset(grh, 0, GRH_LEN);
	if (gid_is_ipv4(&path->sgid)) {
		uint8_t *ip = grh + 20;

		ip[0] = 0x45;
		ip[1] = path->traffic_class;
		ip[2] = (uint8_t)((udp_len + 20) >> 8);
		ip[3] = (uint8_t)(udp_len + 20);
		ip[6] = 0x40;
		ip[8] = path->hop_limit;
		ip[9] = IPPROTO_UDP_;
		memcpy(ip + 12, path->sgid.raw + 12, 4);
		memcpy(ip + 16, path->dgid.raw + 12, 4);
		return;
	}
	grh[0] = (uint8_t)(0x60 | path->traffic_class >> 4);
	grh[1] = (uint8_t)(path->traffic_class << 4 | path->flow_label >> 16);
	grh[2] = (uint8_t)(path->flow_label >> 8);
	grh[3] = (uint8_t)path->flow_label;
	grh[4] = (uint8_t)(udp_len >> 8);
	grh[5] = (uint8_t)udp_len;
	grh[6] = IPPROTO_UDP_;
	grh[7] = path->hop_limit;
	memcpy(grh + 8, path->sgid.raw, 16);
	memcpy(grh + 24, path->dgid.raw, 16);
}

/*
 * In a completion on RoCE there is no service level to tell, and adapters tell there what the GRH
 * area holds: 2, an IPv4 header; 0, 40 bytes of GRH or IPv6. UCX takes all else for damaged.
 */
#define SL_IPV4 2

static void complete_datagram(struct qp *qp, const struct packet *pkt, bool ipv4)
{
	struct responder *r = &qp->resp;
	struct ibv_wc wc = {
		.wr_id = r->recv->wr_id,
		.opcode = IBV_WC_RECV,
		.byte_len = pkt->payload_len + GRH_LEN,
		.qp_num = qp->qpn,
		.src_qp = pkt->src_qpn,
		.wc_flags = IBV_WC_GRH,
		.sl = ipv4 ? SL_IPV4 : 0,
	};

	if (pkt->op->headers & HDR_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = pkt->imm;
	}
	r->recv_taken = false;
	qp->cfg.ops->complete(qp->cfg.recv_cq, &wc, pkt->solicited);
}

enum drop responder_ud_rx(struct qp *qp, const struct packet *pkt, const struct path *path)
{
	const struct recv_wqe *recv = qp->resp.recv;
	const void *pd = qp->resp.queue->pd;
	uint8_t grh[GRH_LEN];

	if (pkt->op->kind != OP_SEND)
		return DROP_OPCODE;
	if (pkt->qkey != qp->attr.qkey)
		return DROP_QKEY;
	if (pkt->payload_len > qp->mtu)
		return DROP_TOO_LONG;
	if (!receive_take(qp))
		return DROP_NO_RECEIVE;
	/* The receive stays for the next datagram when this one doesn't fit. */
	if (recv->len < GRH_LEN + pkt->payload_len)
		return DROP_TOO_LONG;
	fill_grh(grh, path, pkt);
	if (mem_scatter(qp->cfg.mem, pd, recv->sge, recv->num_sge, 0, grh, GRH_LEN) ||
	    mem_scatter(qp->cfg.mem, pd, recv->sge, recv->num_sge, GRH_LEN, pkt->payload,
			pkt->payload_len)) {
		receive_complete(qp, NULL, IBV_WC_LOC_PROT_ERR);
		qp_fatal(qp, IBV_EVENT_QP_FATAL);
		return DROP_ACCESS;
	}
	complete_datagram(qp, pkt, gid_is_ipv4(&path->sgid));
	return DROP_NONE;
}
