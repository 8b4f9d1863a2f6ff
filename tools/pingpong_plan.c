/* SPDX-License-Identifier: BSD-2-Clause */
/* The plan as text: "type=rc op=send size=4096 iters=1000 verify=0 immediate=0 act=0". */
#include <string.h>

#include "tools/pingpong.h"

void pp_plan_write(const struct pp_plan *plan, char *text, size_t len)
{
	snprintf(text, len, "type=%s op=%s size=%u iters=%u verify=%d immediate=%d act=%d",
		 pp_type_name(plan->type), pp_op_name(plan->op), plan->size, plan->iters,
		 plan->verify, plan->immediate, plan->act);
}

bool pp_plan_read(struct pp_plan *plan, const char *text, size_t len)
{
	char copy[256], type[16], op[16];
	unsigned verify, immediate, act;
	struct rocelink_error err;
	int end = 0;

	if (len == 0 || len >= sizeof(copy) || memchr(text, '\0', len))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	/* Widths bound each number, since sscanf's own overflow is undefined. */
	if (sscanf(copy, "type=%15s op=%15s size=%9u iters=%8u verify=%1u immediate=%1u act=%1u%n",
		   type, op, &plan->size, &plan->iters, &verify, &immediate, &act, &end) != 7 ||
	    (size_t)end != len)
		return false;
	plan->verify = verify;
	plan->immediate = immediate;
	plan->act = (enum pp_act)act;
	return pp_type_parse(type, &plan->type) && pp_op_parse(op, &plan->op) && plan->size > 0 &&
	       plan->size <= PP_MAX_SIZE && plan->iters > 0 && plan->iters <= PP_MAX_ITERS &&
	       act < PP_ACTS && pp_plan_check(plan, &err) == ROCELINK_OK;
}

static int differ(struct rocelink_error *err, const char *what, const char *theirs,
		  const char *ours)
{
	return pp_fail(err, ROCELINK_MISMATCH,
		       "the client wants %s %s and the server was started with %s; leave it away "
		       "on the server",
		       what, theirs, ours);
}

static int differ_number(struct rocelink_error *err, const char *what, unsigned theirs,
			 unsigned ours)
{
	char a[16], b[16];

	snprintf(a, sizeof(a), "%u", theirs);
	snprintf(b, sizeof(b), "%u", ours);
	return differ(err, what, a, b);
}

int pp_plan_accept(struct pp_plan *plan, const struct pp_options *o,
		   const struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct rocelink_peer peer = { .size = sizeof(peer) };
	int rc;

	if (o->compat) {
		*plan = o->plan;
		return ROCELINK_OK;
	}
	rc = rocelink_conn_peer(conn, &peer);
	if (rc)
		return pp_fail(err, (enum rocelink_code)rc, "the peer's HELLO can't be read");
	if (!pp_plan_read(plan, peer.private_data, peer.private_data_len))
		return pp_fail(err, ROCELINK_PROTOCOL,
			       "the peer's private data is no plan of rocelink pingpong");
	if ((o->said & SAID_TYPE) && o->plan.type != plan->type)
		return differ(err, "--type", pp_type_name(plan->type), pp_type_name(o->plan.type));
	if ((o->said & SAID_OP) && o->plan.op != plan->op)
		return differ(err, "--op", pp_op_name(plan->op), pp_op_name(o->plan.op));
	if ((o->said & SAID_SIZE) && o->plan.size != plan->size)
		return differ_number(err, "--size", plan->size, o->plan.size);
	if ((o->said & SAID_ITERS) && o->plan.iters != plan->iters)
		return differ_number(err, "--iters", plan->iters, o->plan.iters);
	if ((o->said & SAID_VERIFY) && !plan->verify)
		return differ(err, "no", "--verify", "it");
	return ROCELINK_OK;
}
