/* SPDX-License-Identifier: BSD-2-Clause */
/* What has come: is it what was sent, and room for what comes later. */
#include <arpa/inet.h>
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

int pp_take_numbered(struct pp *pp, const struct ibv_wc *wc, uint64_t *received, uint64_t *seq)
{
	const uint8_t *at;
	int rc;

	*seq = wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : UINT64_MAX;
	if (*seq >= 2ull * pp->plan.iters)
		return pp_fail(&pp->err, ROCELINK_PROTOCOL, "a message came without its number");
	at = pp_recv_slot(pp, 0, pp->plan.op == PP_SEND ? *received : *seq);
	if (pp->plan.type == PP_UD)
		at += PP_GRH;
	rc = pp_check_length(pp, wc, *seq);
	if (rc == ROCELINK_OK)
		rc = pp_check(pp, at, *seq, !pp->client);
	++*received;
	return rc ? rc : pp_post_recv(pp, 0, *received - 1);
}

static bool flagged(const struct pp *pp, uint64_t first, uint64_t n, uint64_t *seq)
{
	for (*seq = first; *seq < first + n; ++*seq) {
		const uint8_t *last = pp_recv_slot(pp, 0, *seq) + pp->plan.size - 1;

		/* What came before the flag came before what is read next. */
		if (__atomic_load_n(last, __ATOMIC_ACQUIRE) == pp_flag(pp, *seq))
			return true;
	}
	return false;
}

/* Completions are taken on the way: polling is also what lets a software adapter receive in this
 * thread. */
int pp_watch_flags(struct pp *pp, uint64_t first, uint64_t n, uint64_t timeout_us,
		   uint64_t *completed, uint64_t *seq)
{
	uint64_t until = pp_now() + UINT64_C(1000) * timeout_us;
	struct ibv_wc wc;

	for (unsigned spins = 0; !flagged(pp, first, n, seq); spins++) {
		int got = ibv_poll_cq(pp->ep[0]->cq, 1, &wc);

		if (got < 0 || (got > 0 && wc.status != IBV_WC_SUCCESS))
			return pp_fail(&pp->err, ROCELINK_VERBS, "WRITE completed with \"%s\"",
				       got < 0 ? "ibv_poll_cq failed"
					       : ibv_wc_status_str(wc.status));
		*completed += (unsigned)got;
		if (spins % 1024 == 1023 && pp_now() > until)
			return pp_fail(&pp->err, ROCELINK_TIMEOUT,
				       "the peer's WRITE number %llu didn't come within %.3f s",
				       (unsigned long long)first, (double)timeout_us / 1e6);
	}
	return ROCELINK_OK;
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
