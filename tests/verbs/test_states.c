/* SPDX-License-Identifier: BSD-2-Clause */
/* What ibv_query_qp() returns, in every state of every type of queue pair: each attribute as it was set last, each
 * that wasn't set as 0; and after a modify that was refused as before it. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A queue pair with what it needs, and what a query should say. */
struct subject {
	struct ibv_qp *qp;
	struct ibv_cq *send, *recv;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_qp_attr want;
	struct ibv_qp_init_attr init;
};

static struct subject make(struct rig *r, enum ibv_qp_type type)
{
	struct subject s = { .send = rig_cq(r, 8, NULL), .recv = rig_cq(r, 8, NULL) };
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = r,
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = r->pd,
		.send_cq = s.send,
		.recv_cq = s.recv,
		.sq_sig_all = 1,
		.cap = { 5, 6, 2, 3, 40 },
	};

	if (type == IBV_QPT_UC) {
		s.srq = ibv_create_srq(r->pd, &srq);
		attr.srq = s.srq;
	}
	if (type == IBV_QPT_XRC_SEND)
		attr.recv_cq = NULL;
	if (type == IBV_QPT_XRC_RECV) {
		s.xrcd = ibv_open_xrcd(r->ctx, &domain);
		attr = (struct ibv_qp_init_attr_ex){ .qp_context = r,
						     .qp_type = type,
						     .comp_mask = IBV_QP_INIT_ATTR_XRCD,
						     .xrcd = s.xrcd };
	}
	s.qp = ibv_create_qp_ex(r->ctx, &attr);
	assert_non_null(s.qp);
	s.init = (struct ibv_qp_init_attr){ .qp_context = r,
					    .send_cq = attr.send_cq,
					    .recv_cq = attr.recv_cq,
					    .srq = attr.srq,
					    .cap = attr.cap,
					    .qp_type = type,
					    .sq_sig_all = attr.sq_sig_all };
	s.want.cap = attr.cap;
	return s;
}

static void drop(struct subject *s)
{
	assert_int_equal(ibv_destroy_qp(s->qp), 0);
	if (s->xrcd)
		assert_int_equal(ibv_close_xrcd(s->xrcd), 0);
	if (s->srq)
		assert_int_equal(ibv_destroy_srq(s->srq), 0);
	assert_int_equal(ibv_destroy_cq(s->send), 0);
	assert_int_equal(ibv_destroy_cq(s->recv), 0);
}

#define SAME(field)                                                                      \
	do {                                                                             \
		if (got.field != s->want.field)                                          \
			fail_msg("type %d, state %d: " #field " is %lld, not %lld",      \
				 s->qp->qp_type, s->want.qp_state, (long long)got.field, \
				 (long long)s->want.field);                              \
	} while (0)

static void check(const struct subject *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr got;

	memset(&got, 0xaa, sizeof(got));
	assert_int_equal(ibv_query_qp(s->qp, &got, 0, &init), 0);
	SAME(qp_state);
	SAME(cur_qp_state);
	SAME(path_mtu);
	SAME(path_mig_state);
	SAME(qkey);
	SAME(rq_psn);
	SAME(sq_psn);
	SAME(dest_qp_num);
	SAME(qp_access_flags);
	SAME(cap.max_send_wr);
	SAME(cap.max_recv_wr);
	SAME(cap.max_send_sge);
	SAME(cap.max_recv_sge);
	SAME(cap.max_inline_data);
	SAME(ah_attr.grh.dgid.global.subnet_prefix);
	SAME(ah_attr.grh.dgid.global.interface_id);
	SAME(ah_attr.grh.flow_label);
	SAME(ah_attr.grh.sgid_index);
	SAME(ah_attr.grh.hop_limit);
	SAME(ah_attr.grh.traffic_class);
	SAME(ah_attr.dlid);
	SAME(ah_attr.sl);
	SAME(ah_attr.src_path_bits);
	SAME(ah_attr.static_rate);
	SAME(ah_attr.is_global);
	SAME(ah_attr.port_num);
	SAME(alt_ah_attr.is_global);
	SAME(alt_ah_attr.port_num);
	SAME(pkey_index);
	SAME(alt_pkey_index);
	SAME(sq_draining);
	SAME(max_rd_atomic);
	SAME(max_dest_rd_atomic);
	SAME(min_rnr_timer);
	SAME(port_num);
	SAME(timeout);
	SAME(retry_cnt);
	SAME(rnr_retry);
	SAME(alt_port_num);
	SAME(alt_timeout);
	SAME(rate_limit);
	assert_int_equal(s->qp->state, s->want.qp_state);
	assert_ptr_equal(init.qp_context, s->init.qp_context);
	assert_ptr_equal(init.send_cq, s->init.send_cq);
	assert_ptr_equal(init.recv_cq, s->init.recv_cq);
	assert_ptr_equal(init.srq, s->init.srq);
	assert_int_equal(init.qp_type, s->init.qp_type);
	assert_int_equal(init.sq_sig_all, s->init.sq_sig_all);
	assert_memory_equal(&init.cap, &s->init.cap, sizeof(init.cap));
}

/* Set these; the mask says which of the wanted values are new. */
static void set(struct subject *s, enum ibv_qp_state to, const struct ibv_qp_attr *values, int mask)
{
	struct ibv_qp_attr attr = *values;

	attr.qp_state = to;
	assert_int_equal(ibv_modify_qp(s->qp, &attr, mask | IBV_QP_STATE), 0);
	s->want.qp_state = s->want.cur_qp_state = to;
#define TAKE(bit, field)                            \
	do {                                        \
		if (mask & (bit))                   \
			s->want.field = attr.field; \
	} while (0)
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_PATH_MIG_STATE, path_mig_state);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
#undef TAKE
	check(s);
}

/* Two sets of values, each at its limits; which a type takes in which transition. */
static struct ibv_qp_attr values(struct rig *r, bool high)
{
	struct ibv_qp_attr v = {
		.path_mtu = high ? IBV_MTU_4096 : IBV_MTU_256,
		.path_mig_state = IBV_MIG_MIGRATED,
		.qkey = high ? 0x7fffffff : 1,
		.rq_psn = high ? 0xffffff : 0,
		.sq_psn = high ? 0xfffffe : 0,
		.dest_qp_num = high ? 0xfffffe : 2,
		.qp_access_flags = high ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						   IBV_ACCESS_REMOTE_ATOMIC
					: 0,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .sl = high ? 7 : 0,
			     .static_rate = high ? IBV_RATE_10_GBPS : IBV_RATE_MAX,
			     .grh = { .flow_label = high ? 0xfffff : 0,
				      .hop_limit = high ? 255 : 1,
				      .traffic_class = high ? 0xfc : 0 } },
		.max_rd_atomic = high ? 128 : 0,
		.max_dest_rd_atomic = high ? 128 : 0,
		.min_rnr_timer = high ? 31 : 0,
		.port_num = 1,
		.timeout = high ? 31 : 0,
		.retry_cnt = high ? 7 : 0,
		.rnr_retry = high ? 7 : 0,
	};

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &v.ah_attr.grh.dgid), 0);
	return v;
}

static const struct masks {
	enum ibv_qp_type type;
	int init, rtr, rts, live, drained; /* beside the state */
} masks[] = {
#define INIT   (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define PATH   (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define SERVE  (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define ASK    (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define ALWAYS (IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)
	{ IBV_QPT_RC, INIT, PATH | SERVE, IBV_QP_SQ_PSN | ASK, ALWAYS | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_AV | ASK | SERVE | INIT | ALWAYS },
	{ IBV_QPT_UC, INIT, PATH, IBV_QP_SQ_PSN, ALWAYS, IBV_QP_AV | INIT | ALWAYS },
	{ IBV_QPT_UD, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
	  IBV_QP_QKEY | IBV_QP_PKEY_INDEX, IBV_QP_SQ_PSN | IBV_QP_QKEY, IBV_QP_QKEY,
	  IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPT_XRC_SEND, INIT, PATH, IBV_QP_SQ_PSN | ASK, ALWAYS,
	  IBV_QP_AV | ASK | INIT | ALWAYS },
	{ IBV_QPT_XRC_RECV, INIT, PATH | SERVE, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT,
	  ALWAYS | IBV_QP_MIN_RNR_TIMER, IBV_QP_AV | IBV_QP_TIMEOUT | SERVE | INIT | ALWAYS },
};

/* Through all states and back, the attributes first low, then high, then low where they can change. */
static void every_state(void **state)
{
	struct rig *r = *state;
	const struct ibv_qp_attr low = values(r, false), high = values(r, true);

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		const struct masks *m = &masks[i];
		struct subject s = make(r, m->type);

		check(&s);
		for (int round = 0; round < 2; round++) {
			const struct ibv_qp_attr *one = round ? &high : &low,
						 *two = round ? &low : &high;

			set(&s, IBV_QPS_INIT, one, m->init);
			set(&s, IBV_QPS_INIT, two, m->init);
			set(&s, IBV_QPS_RTR, one, m->rtr);
			set(&s, IBV_QPS_RTS, one, m->rts);
			set(&s, IBV_QPS_RTS, two, m->live);
			set(&s, IBV_QPS_SQD, two, 0);
			set(&s, IBV_QPS_SQD, two, m->drained);
			set(&s, IBV_QPS_SQD, one, m->drained);
			set(&s, IBV_QPS_RTS, two, m->live);
			set(&s, IBV_QPS_ERR, two, 0);
			/* Nothing is left of it. */
			s.want = (struct ibv_qp_attr){ .cap = s.init.cap };
			set(&s, IBV_QPS_RESET, two, 0);
		}
		drop(&s);
	}
}

/* A refused modify, for each attribute that is wrong then, changes nothing of what it says beside. */
static void refused_modifies(void **state)
{
	static const int wrong[] = { IBV_QP_SQ_PSN,	IBV_QP_DEST_QPN, IBV_QP_QKEY,
				     IBV_QP_PATH_MTU,	IBV_QP_RQ_PSN,	 IBV_QP_ALT_PATH,
				     IBV_QP_RATE_LIMIT, IBV_QP_CAP };
	struct rig *r = *state;
	const struct ibv_qp_attr low = values(r, false), high = values(r, true);
	struct subject s = make(r, IBV_QPT_RC);
	struct ibv_qp_attr attr;

	set(&s, IBV_QPS_INIT, &low, masks[0].init);
	set(&s, IBV_QPS_RTR, &low, masks[0].rtr);
	set(&s, IBV_QPS_RTS, &low, masks[0].rts);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		attr = high;
		attr.qp_state = IBV_QPS_RTS;
		assert_int_not_equal(
			ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | masks[0].live | wrong[i]), 0);
		check(&s);
	}
	/* A value out of range beside good ones, and a current state that isn't. */
	set(&s, IBV_QPS_SQD, &low, 0);
	attr = high;
	attr.retry_cnt = 8;
	assert_int_equal(ibv_modify_qp(s.qp, &attr, masks[0].drained), EINVAL);
	check(&s);
	attr = high;
	attr.cur_qp_state = IBV_QPS_RTR;
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	check(&s);
	drop(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(every_state), TEST(refused_modifies) };

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
