/* SPDX-License-Identifier: BSD-2-Clause */
/* What can be changed on a queue pair that is in use, and that a query returns it; draining; what is
 * refused. */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

static struct ibv_qp_attr query(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, ~0, &init), 0);
	return attr;
}

static int to_state(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = { .qp_state = to };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static int rdma(struct rig *r, struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + 64 * id, 64, r->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)r->buffer + 32768;
	wr.wr.rdma.rkey = r->mr->rkey;
	return ibv_post_send(qp, &wr, &bad);
}

/* Posted while draining, a request waits for RTS. */
static void drain(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_wc wc;

	rig_connect_self(qp);
	assert_int_equal(rdma(r, qp, IBV_WR_RDMA_WRITE, 0), 0);
	assert_int_equal(to_state(qp, IBV_QPS_SQD), 0);
	rig_await_n(cq, 1);
	assert_int_equal(query(qp).sq_draining, 0);
	assert_int_equal(rdma(r, qp, IBV_WR_RDMA_WRITE, 1), 0);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	assert_int_equal(to_state(qp, IBV_QPS_RTS), 0);
	assert_int_equal(rig_await(cq).wr_id, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void changed_while_drained(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_attr attr = {
		.timeout = 17,
		.retry_cnt = 3,
		.rnr_retry = 2,
		.max_rd_atomic = 16,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 5,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	const int mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_attr got;

	rig_connect_self(qp);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_TIMEOUT), EINVAL);
	assert_int_equal(to_state(qp, IBV_QPS_SQD), 0);
	assert_int_equal(ibv_modify_qp(qp, &attr, mask), 0);
	got = query(qp);
	assert_int_equal(got.timeout, 17);
	assert_int_equal(got.retry_cnt, 3);
	assert_int_equal(got.rnr_retry, 2);
	assert_int_equal(got.max_rd_atomic, 16);
	assert_int_equal(got.max_dest_rd_atomic, 16);
	assert_int_equal(got.min_rnr_timer, 5);
	assert_int_equal(got.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(to_state(qp, IBV_QPS_RTS), 0);
	/* 16 READs at once, where 4 were the limit. */
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(rdma(r, qp, IBV_WR_RDMA_READ, i), 0);
	rig_await_n(cq, 16);
	/* What may be done to memory changes at once, in RTS too. */
	attr.qp_access_flags = 0;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(rdma(r, qp, IBV_WR_RDMA_READ, 0), 0);
	assert_int_not_equal(rig_await(cq).status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* What would be ignored isn't accepted; and a refused modify changes nothing. */
static void refused(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_attr attr = { .min_rnr_timer = 9, .path_mig_state = IBV_MIG_REARM };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_ece ece = { 0 };

	rig_connect_self(qp);
	attr.alt_ah_attr = query(qp).ah_attr;
	attr.alt_port_num = 1;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH),
			 EOPNOTSUPP);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE),
			 EOPNOTSUPP);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_RATE_LIMIT),
			 EINVAL);
	assert_int_equal(query(qp).min_rnr_timer, 1);
	attr.path_mig_state = IBV_MIG_MIGRATED;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE), 0);
	assert_int_equal(query(qp).min_rnr_timer, 9);
	assert_int_equal(query(qp).path_mig_state, IBV_MIG_MIGRATED);
	assert_int_equal(ibv_modify_qp_rate_limit(qp, &rate), EOPNOTSUPP);
	ece.vendor_id = 1;
	assert_int_equal(ibv_query_ece(qp, &ece), EOPNOTSUPP);
	assert_int_equal(ece.vendor_id, 0);
	assert_int_equal(ibv_set_ece(qp, &ece), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	rig_isolate();

	const struct CMUnitTest tests[] = {
		TEST(drain),
		TEST(changed_while_drained),
		TEST(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
