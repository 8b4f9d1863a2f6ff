/* SPDX-License-Identifier: BSD-2-Clause */
/* What has come: is it what was sent, and room for what comes later. */
#include <string.h>

#include "tools/pingpong.h"

int pp_check_length(struct pp *pp, const struct ibv_wc *wc, uint64_t seq)
{
	uint32_t len = pp->plan.size + (pp->plan.type == PP_UD ? PP_GRH : 0);

	if (wc->byte_len == len)
		return ROCELINK_OK;
	return pp_fail(&pp->err, ROCELINK_MISMATCH,
		       "message %llu came with %u bytes instead of %u: give both sides the same -s",
		       (unsigned long long)seq, wc->byte_len, len);
}

int pp_take_received(struct pp *pp, const struct ibv_wc *wc, uint64_t *received)
{
	unsigned qp = pp_wc_qp(wc);
	const uint8_t *at = pp_recv_slot(pp, qp, *received);
	int rc = pp_check_length(pp, wc, *received);

	if (rc)
		return rc;
	if (pp->plan.type == PP_UD)
		at += PP_GRH;
	rc = pp_check(pp, at, *received, !pp->client);
	++*received;
	return rc ? rc : pp_post_recv(pp, qp, *received - 1);
}

int pp_check_answer(struct pp *pp, uint64_t seq)
{
	uint64_t value;

	if (!pp->plan.verify)
		return ROCELINK_OK;
	if (pp->plan.op == PP_READ)
		return pp_check(pp, pp_send_slot(pp, seq), seq % pp->depth, false);
	memcpy(&value, pp_send_slot(pp, seq), sizeof(value));
	if (value != seq)
		return pp_fail(&pp->err, ROCELINK_PROTOCOL,
			       "verify: %s number %llu found %llu instead of %llu",
			       pp_op_name(pp->plan.op), (unsigned long long)seq,
			       (unsigned long long)value, (unsigned long long)seq);
	pp->verified++;
	return ROCELINK_OK;
}
