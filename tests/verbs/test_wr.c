/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls of the ibv_wr_* family that other tests have no use for: one service type after another. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>

static struct ibv_qp_ex *make(struct rig *r, enum ibv_qp_type type, struct ibv_cq *cq, uint64_t ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = type == IBV_QPT_XRC_SEND ? NULL : cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 4, .max_inline_data = 64 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = r->pd,
		.send_ops_flags = ops,
	};
	struct ibv_qp *qp;

	if (type != IBV_QPT_XRC_SEND) {
		attr.cap.max_recv_wr = 16;
		attr.cap.max_recv_sge = 4;
	}
	qp = ibv_create_qp_ex(r->ctx, &attr);
	assert_non_null(qp);
	assert_non_null(ibv_qp_to_qp_ex(qp));
	return ibv_qp_to_qp_ex(qp);
}

/* Datagrams: the address with each request, data from several places of the program. */
static void test_datagram(void **state)
{
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_data_buf parts[2] = { { (char[]){ "ab" }, 2 }, { (char[]){ "cde" }, 3 } };
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 16, NULL);
	struct ibv_qp_ex *ex = make(r, IBV_QPT_UD, cq, IBV_QP_EX_WITH_SEND);
	struct ibv_ah *ah;

	rig_connect_self(&ex->qp_base);
	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &ah_attr.grh.dgid), 0);
	ah = ibv_create_ah(r->pd, &ah_attr);
	assert_int_equal(rig_post_recv(r, &ex->qp_base, 1, 4096, 100), 0);
	ibv_wr_start(ex);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, ex->qp_base.qp_num, 0x1234);
	ibv_wr_set_inline_data_list(ex, 2, parts);
	assert_int_equal(ibv_wr_complete(ex), 0);
	rig_await_n(cq, 2);
	assert_memory_equal(r->buffer + 4096 + 40, "abcde", 5);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_qp(&ex->qp_base), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };

	while (ibv_start_poll(cq, &attr) == ENOENT)
		;
}

/* WRITE with immediate; and a SEND that takes the receiver's window away, who is told which. */
static void test_immediate_and_invalidate(void **state)
{
	struct rig *r = *state;
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r->ctx, &cq_attr);
	struct ibv_qp_ex *ex = make(r, IBV_QPT_RC, ibv_cq_ex_to_cq(cq),
				    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW |
					    IBV_QP_EX_WITH_SEND_WITH_INV);
	struct ibv_mr *mr =
		ibv_reg_mr(r->pd, r->buffer, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(r->pd, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_mw_bind_info info = { mr, (uintptr_t)r->buffer, 64, IBV_ACCESS_REMOTE_WRITE };

	rig_connect_self(&ex->qp_base);
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(rig_post_recv(r, &ex->qp_base, i, 8192, 100), 0);
	memset(r->buffer + 4096, 0x77, 16);
	ibv_wr_start(ex);
	ex->wr_flags = 0;
	ibv_wr_bind_mw(ex, mw, key, &info);
	ibv_wr_rdma_write_imm(ex, key, (uintptr_t)r->buffer + 8, htobe32(99));
	ibv_wr_set_sge(ex, r->mr->lkey, (uintptr_t)r->buffer + 4096, 16);
	ibv_wr_send_inv(ex, key);
	ibv_wr_set_sge(ex, r->mr->lkey, (uintptr_t)r->buffer + 4096, 3);
	assert_int_equal(ibv_wr_complete(ex), 0);
	start_poll(cq);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(be32toh(ibv_wc_read_imm_data(cq)), 99);
	ibv_end_poll(cq);
	assert_int_equal(r->buffer[8], 0x77);
	start_poll(cq);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_wc_flags(cq), IBV_WC_WITH_INV);
	assert_int_equal(ibv_wc_read_invalidated_rkey(cq), key);
	ibv_end_poll(cq);
	assert_int_equal(ibv_destroy_qp(&ex->qp_base), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

/* XRC: the receive queue with each request. */
static void test_xrc(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 16, NULL);
	struct ibv_xrcd_init_attr xrcd_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(r->ctx, &xrcd_attr);
	struct ibv_srq_init_attr_ex srq_attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = r->pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(r->ctx, &srq_attr);
	struct ibv_qp_init_attr_ex target_attr = { .qp_type = IBV_QPT_XRC_RECV,
						   .comp_mask = IBV_QP_INIT_ATTR_XRCD,
						   .xrcd = xrcd };
	struct ibv_qp *target = ibv_create_qp_ex(r->ctx, &target_attr);
	struct ibv_qp_ex *ex = make(r, IBV_QPT_XRC_SEND, cq, IBV_QP_EX_WITH_SEND);
	struct ibv_sge sge = { (uintptr_t)r->buffer + 4096, 64, r->mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 }, *bad;
	uint32_t number;

	assert_non_null(srq);
	assert_non_null(target);
	assert_int_equal(ibv_get_srq_num(srq, &number), 0);
	assert_int_equal(ibv_post_srq_recv(srq, &recv, &bad), 0);
	rig_connect(&ex->qp_base, target);
	memset(r->buffer, 0x33, 10);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, number);
	ibv_wr_set_sge(ex, r->mr->lkey, (uintptr_t)r->buffer, 10);
	assert_int_equal(ibv_wr_complete(ex), 0);
	rig_await_n(cq, 2);
	assert_int_equal(r->buffer[4096 + 9], 0x33);
	assert_int_equal(ibv_destroy_qp(&ex->qp_base), 0);
	assert_int_equal(ibv_destroy_qp(target), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_datagram, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_immediate_and_invalidate, rig_setup,
						rig_teardown),
		cmocka_unit_test_setup_teardown(test_xrc, rig_setup, rig_teardown),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
