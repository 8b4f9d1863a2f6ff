/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/negotiate.h"

#include <stdio.h>
#include <string.h>

static bool types_match(uint8_t mine, uint8_t peer)
{
	if (mine == WIRE_XRC_INI)
		return peer == WIRE_XRC_TGT;
	if (mine == WIRE_XRC_TGT)
		return peer == WIRE_XRC_INI;
	return mine == peer;
}

/* Operations that a service has (IBA table 38). */
static uint8_t ops_of(uint8_t type)
{
	switch ((enum wire_qp_type)type) {
	case WIRE_UD:
		return ROCELINK_OP_SEND;
	case WIRE_UC:
		return ROCELINK_OP_SEND | ROCELINK_OP_WRITE;
	case WIRE_RC:
	case WIRE_XRC_INI:
	case WIRE_XRC_TGT:
	default:
		return ROCELINK_OP_SEND | ROCELINK_OP_WRITE | ROCELINK_OP_READ | ROCELINK_OP_ATOMIC;
	}
}

static enum rocelink_reason check_ops(unsigned index, const char *whose, const struct qp_values *q,
				      const struct qp_values *other, char *text, size_t len)
{
	uint8_t deep = ROCELINK_OP_READ | ROCELINK_OP_ATOMIC;

	if (q->ops & ~ops_of(q->type) & 0xf) {
		snprintf(text, len,
			 "queue pair %u: %s side wants operations (0x%x) that %s doesn't have; use "
			 "RC "
			 "or other operations",
			 index, whose, q->ops, wire_qp_type_name(q->type));
		return ROCELINK_REASON_QP_TYPE;
	}
	if (q->ops & deep && (q->initiator_depth == 0 || other->responder_depth == 0)) {
		snprintf(text, len,
			 "queue pair %u: %s side wants READ or atomics, but its initiator depth is "
			 "%u and "
			 "the other's responder depth %u; both must be 1 or more",
			 index, whose, q->initiator_depth, other->responder_depth);
		return ROCELINK_REASON_QP_TYPE;
	}
	return ROCELINK_REASON_NONE;
}

enum rocelink_reason negotiate_check(const struct message *mine, const struct message *peer,
				     char *text, size_t len)
{
	if (message_has(mine, FIELD_SERVICE_NAME) && message_has(peer, FIELD_SERVICE_NAME) &&
	    strcmp(mine->service_name, peer->service_name) != 0) {
		snprintf(text, len,
			 "this side is a \"%s\", the other a \"%s\"; is it the right port?",
			 mine->service_name, peer->service_name);
		return ROCELINK_REASON_SERVICE;
	}
	if (mine->qp_count != peer->qp_count) {
		snprintf(
			text, len,
			"this side has %u queue pairs, the other %u; both must add the same number",
			mine->qp_count, peer->qp_count);
		return ROCELINK_REASON_QP_COUNT;
	}
	for (unsigned i = 0; i < mine->qp_count; i++) {
		const struct qp_values *a = &mine->qps[i], *b = &peer->qps[i];
		enum rocelink_reason reason;

		if (!types_match(a->type, b->type)) {
			snprintf(text, len,
				 "queue pair %u is %s on this side and %s on the other; make them "
				 "%s",
				 i, wire_qp_type_name(a->type), wire_qp_type_name(b->type),
				 a->type >= WIRE_XRC_INI || b->type >= WIRE_XRC_INI
					 ? "an XRC initiator and an XRC target"
					 : "the same");
			return ROCELINK_REASON_QP_TYPE;
		}
		reason = check_ops(i, "this", a, b, text, len);
		if (!reason)
			reason = check_ops(i, "the other", b, a, text, len);
		if (reason)
			return reason;
	}
	return ROCELINK_REASON_NONE;
}

static uint8_t smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static uint8_t wish(uint8_t bit, const struct qp_values *mine, const struct qp_values *peer,
		    uint8_t a, uint8_t b, uint8_t nobody)
{
	bool mine_wants = mine->wishes & bit, peer_wants = peer->wishes & bit;

	if (mine_wants && peer_wants)
		return a > b ? a : b;
	return mine_wants ? a : peer_wants ? b : nobody;
}

static uint8_t wish_timeout(const struct qp_values *mine, const struct qp_values *peer)
{
	/* 0 means never, the longest of all. */
	if ((mine->wishes & WISH_TIMEOUT && mine->timeout == 0) ||
	    (peer->wishes & WISH_TIMEOUT && peer->timeout == 0))
		return 0;
	return wish(WISH_TIMEOUT, mine, peer, mine->timeout, peer->timeout, DEFAULT_TIMEOUT_CODE);
}

void negotiate_pair(const struct qp_values *mine, const struct qp_values *peer,
		    struct agreed *agreed)
{
	*agreed = (struct agreed){
		.type = mine->type,
		.mtu = smaller(mine->mtu, peer->mtu),
		.initiator_depth = smaller(mine->initiator_depth, peer->responder_depth),
		.responder_depth = smaller(mine->responder_depth, peer->initiator_depth),
		.timeout = wish_timeout(mine, peer),
		.retry = wish(WISH_RETRY, mine, peer, mine->retry, peer->retry, DEFAULT_RETRY),
		.rnr_retry = wish(WISH_RNR_RETRY, mine, peer, mine->rnr_retry, peer->rnr_retry,
				  DEFAULT_RNR_RETRY),
		.hop_limit = wish(WISH_HOP_LIMIT, mine, peer, mine->hop_limit, peer->hop_limit,
				  DEFAULT_HOP_LIMIT),
		.traffic_class = wish(WISH_TRAFFIC_CLASS, mine, peer, mine->traffic_class,
				      peer->traffic_class, 0),
		.service_level = wish(WISH_SERVICE_LEVEL, mine, peer, mine->service_level,
				      peer->service_level, 0),
		.psn = mine->psn,
		.remote_qpn = peer->qpn,
		.remote_psn = peer->psn,
		.remote_qkey = peer->qkey,
		.remote_srqn = peer->srqn,
	};
}

/* On RoCE: IPv4 with IPv4; link-local with link-local; other IPv6 with the same. */
static unsigned family_of(const struct gid_value *g)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (memcmp(g->gid, mapped, sizeof(mapped)) == 0)
		return 4;
	return g->gid[0] == 0xfe && (g->gid[1] & 0xc0) == 0x80 ? 60 : 6;
}

bool negotiate_gids_match(const struct gid_value *a, const struct gid_value *b)
{
	if (a->kind != b->kind)
		return false;
	return a->kind == ROCELINK_GID_IB || family_of(a) == family_of(b);
}
