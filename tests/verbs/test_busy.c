/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No object goes while another was made with it: EBUSY for each pair of holder and user, and 0 once the
 * user is gone. A parent domain is held by what was made in it, and holds its PD and thread domain.
 */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static struct ibv_cq *make_cq(struct rig *r, struct ibv_comp_channel *channel,
			      struct ibv_pd *domain)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4,
		.channel = channel,
		.comp_mask = domain ? IBV_CQ_INIT_ATTR_MASK_PD : 0,
		.parent_domain = domain,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r->ctx, &attr);

	assert_non_null(cq);
	return ibv_cq_ex_to_cq(cq);
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, enum ibv_qp_type type, struct ibv_cq *cq,
			      struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { 1, 1, 1, 1, 0 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &attr);

	assert_non_null(qp);
	return qp;
}

static struct ibv_srq *make_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct ibv_srq *srq;

	if (xrcd) {
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.srq_type = IBV_SRQT_XRC;
		attr.xrcd = xrcd;
		attr.cq = cq;
	}
	srq = ibv_create_srq_ex(pd->context, &attr);
	assert_non_null(srq);
	return srq;
}

static struct ibv_ah *make_ah(struct ibv_pd *pd)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(pd->context, 1, 0, &attr.grh.dgid), 0);
	ah = ibv_create_ah(pd, &attr);
	assert_non_null(ah);
	return ah;
}

static struct ibv_dm *make_dm(struct ibv_context *ctx)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(ctx, &attr);

	assert_non_null(dm);
	return dm;
}

/* The domain is busy with each of these, one after the other, and free again without it. */
static void each_in_domain(struct rig *r, struct ibv_pd *pd)
{
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	struct ibv_dm *dm = make_dm(r->ctx);
	void *made;

#define HOLDS(make, drop)                                    \
	do {                                                 \
		made = (make);                               \
		assert_non_null(made);                       \
		assert_int_equal(ibv_dealloc_pd(pd), EBUSY); \
		assert_int_equal((drop)(made), 0);           \
	} while (0)
	HOLDS(ibv_reg_mr(pd, r->buffer, 64, 0), ibv_dereg_mr);
	HOLDS(ibv_alloc_null_mr(pd), ibv_dereg_mr);
	HOLDS(ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED), ibv_dereg_mr);
	HOLDS(ibv_alloc_mw(pd, IBV_MW_TYPE_1), ibv_dealloc_mw);
	HOLDS(ibv_alloc_mw(pd, IBV_MW_TYPE_2), ibv_dealloc_mw);
	HOLDS(make_ah(pd), ibv_destroy_ah);
	HOLDS(make_srq(pd, NULL, NULL), ibv_destroy_srq);
	HOLDS(make_qp(pd, IBV_QPT_RC, cq, NULL), ibv_destroy_qp);
	HOLDS(make_qp(pd, IBV_QPT_UC, cq, NULL), ibv_destroy_qp);
	HOLDS(make_qp(pd, IBV_QPT_UD, cq, NULL), ibv_destroy_qp);
	HOLDS(make_qp(pd, IBV_QPT_XRC_SEND, cq, NULL), ibv_destroy_qp);
#undef HOLDS
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void protection_domain(void **state)
{
	struct rig *r = *state;
	struct ibv_pd *pd = ibv_alloc_pd(r->ctx);

	each_in_domain(r, pd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void parent_domain(void **state)
{
	struct rig *r = *state;
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = ibv_alloc_pd(r->ctx),
						    .td = ibv_alloc_td(r->ctx, &td_attr) };
	struct ibv_pd *parent = ibv_alloc_parent_domain(r->ctx, &attr);
	struct ibv_cq *cq;

	assert_non_null(parent);
	assert_int_equal(ibv_dealloc_pd(attr.pd), EBUSY);
	assert_int_equal(ibv_dealloc_td(attr.td), EBUSY);
	each_in_domain(r, parent);
	cq = make_cq(r, NULL, parent);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(attr.td), 0);
	assert_int_equal(ibv_dealloc_pd(attr.pd), 0);
}

/* A region that moves to another domain leaves the first. */
static void moved(void **state)
{
	struct rig *r = *state;
	struct ibv_parent_domain_init_attr attr = { .pd = r->pd };
	struct ibv_pd *parent = ibv_alloc_parent_domain(r->ctx, &attr), *pd = ibv_alloc_pd(r->ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, r->buffer, 64, 0);

	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, parent, NULL, 0, 0), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, r->pd, NULL, 0, 0), 0);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void completion_queues(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_cq *cq = make_cq(r, channel, NULL), *other = rig_cq(r, 4, NULL);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = other, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC
	};
	struct ibv_xrcd_init_attr xrcd_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(r->ctx, &xrcd_attr);
	struct ibv_qp *qp = ibv_create_qp(r->pd, &attr);
	struct ibv_srq *srq = make_srq(r->pd, xrcd, other);

	/* For its sends alone, for its receives alone, for an XRC SRQ. */
	assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_destroy_cq(other), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	assert_int_equal(ibv_destroy_cq(other), EBUSY);
	assert_int_equal(ibv_close_xrcd(xrcd), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(other), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
}

static void others(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	struct ibv_srq *srq = make_srq(r->pd, NULL, NULL);
	struct ibv_qp *qp = make_qp(r->pd, IBV_QPT_RC, cq, srq);
	struct ibv_dm *dm = make_dm(r->ctx);
	struct ibv_mr *mr = ibv_reg_dm_mr(r->pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED);
	struct ibv_xrcd_init_attr xrcd_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(r->ctx, &xrcd_attr);
	struct ibv_qp_init_attr_ex target_attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ibv_qp *target = ibv_create_qp_ex(r->ctx, &target_attr);
	struct ibv_mr *windowed =
		ibv_reg_mr(r->pd, r->buffer, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(r->pd, IBV_MW_TYPE_1);
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { windowed, (uintptr_t)r->buffer, 64, IBV_ACCESS_REMOTE_READ },
	};

	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), EBUSY);
	assert_int_equal(ibv_destroy_qp(target), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	assert_int_equal(ibv_bind_mw(p.a, mw, &bind), 0);
	rig_await_n(p.cq_a, 1);
	assert_int_equal(ibv_dereg_mr(windowed), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(windowed), 0);
	rig_pair_free(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(protection_domain), TEST(parent_domain), TEST(moved),
		TEST(completion_queues), TEST(others),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
