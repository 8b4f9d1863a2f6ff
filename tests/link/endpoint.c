/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints on the adapter: each option arrives in the objects, and what can't be made is explained. */
#include "check.h"

#include <errno.h>

#include "rocelink/rocelink.h"

static struct rocelink_error err;

static struct rocelink_endpoint *open_one(const struct rocelink_endpoint_options *options)
{
	struct rocelink_endpoint *ep = rocelink_endpoint_open(options, &err);

	if (!ep)
		fail_msg("%s", err.text);
	return ep;
}

static struct ibv_qp_init_attr made(const struct rocelink_endpoint *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(ep->qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RESET);
	return init;
}

static void nothing_said(void **state)
{
	struct rocelink_endpoint *ep = open_one(NULL);
	struct ibv_qp_init_attr init = made(ep);

	(void)state;
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	assert_in_range(init.cap.max_send_wr, 64, 1024);
	assert_in_range(init.cap.max_recv_wr, 64, 1024);
	assert_int_equal(init.sq_sig_all, 0);
	assert_null(ep->channel);
	assert_ptr_equal(ep->qp->send_cq, ep->cq);
	assert_ptr_equal(ep->qp->recv_cq, ep->cq);
	rocelink_endpoint_close(ep);
}

static void all_said(void **state)
{
	struct rocelink_endpoint *ep =
		open_one(ROCELINK_ENDPOINT(.device = "rl_lo", .type = IBV_QPT_UC, .send_depth = 300,
					   .recv_depth = 200, .send_sge = 3, .recv_sge = 2,
					   .inline_bytes = 64, .events = true, .sq_sig_all = true));
	struct ibv_qp_init_attr init = made(ep);

	(void)state;
	assert_string_equal(ibv_get_device_name(ep->context->device), "rl_lo");
	assert_int_equal(init.qp_type, IBV_QPT_UC);
	assert_in_range(init.cap.max_send_wr, 300, 1024);
	assert_in_range(init.cap.max_recv_wr, 200, 1024);
	assert_in_range(init.cap.max_send_sge, 3, 64);
	assert_in_range(init.cap.max_recv_sge, 2, 64);
	assert_in_range(init.cap.max_inline_data, 64, 4096);
	assert_int_equal(init.sq_sig_all, 1);
	assert_non_null(ep->channel);
	assert_ptr_equal(ep->cq->channel, ep->channel);
	rocelink_endpoint_close(ep);
}

/* What is shared isn't destroyed with the one that shares it. */
static void shared(void **state)
{
	struct rocelink_endpoint *first = open_one(ROCELINK_ENDPOINT(.host = "127.0.0.1"));
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(first->pd, &srq_attr);
	struct rocelink_endpoint *second =
		open_one(ROCELINK_ENDPOINT(.shared = first, .cq = first->cq, .srq = srq));

	(void)state;
	assert_ptr_equal(second->context, first->context);
	assert_ptr_equal(second->pd, first->pd);
	assert_ptr_equal(second->cq, first->cq);
	assert_ptr_equal(second->qp->srq, srq);
	rocelink_endpoint_close(second);
	assert_int_equal(ibv_poll_cq(first->cq, 1, &(struct ibv_wc){ 0 }), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	made(first);
	rocelink_endpoint_close(first);
}

static void xrc(void **state)
{
	struct rocelink_endpoint *ep = open_one(ROCELINK_ENDPOINT(.type = IBV_QPT_XRC_SEND));

	(void)state;
	assert_int_equal(made(ep).cap.max_recv_wr, 0);
	rocelink_endpoint_close(ep);
	assert_null(rocelink_endpoint_open(ROCELINK_ENDPOINT(.type = IBV_QPT_XRC_RECV), &err));
	assert_int_equal(err.code, ROCELINK_INVALID);
	assert_contains(err.text, "ibv_create_qp_ex");
}

static void what_is_not_there(void **state)
{
	(void)state;
	assert_null(rocelink_endpoint_open(ROCELINK_ENDPOINT(.device = "nosuch0"), &err));
	assert_int_equal(err.code, ROCELINK_NO_DEVICE);
	assert_contains(err.text, "nosuch0");
	assert_null(rocelink_endpoint_open(ROCELINK_ENDPOINT(.send_depth = 1u << 30), &err));
	assert_int_equal(err.code, ROCELINK_VERBS);
	assert_contains(err.text, "1073741824");
	assert_null(rocelink_endpoint_open(&(struct rocelink_endpoint_options){ 0 }, &err));
	assert_int_equal(err.code, ROCELINK_INVALID);
	rocelink_endpoint_close(NULL);
}

/* The three ends of waiting for a completion, with and without a channel to sleep on. */
static void completions(void **state)
{
	(void)state;
	for (int events = 0; events < 2; events++) {
		struct rocelink_endpoint *ep =
			open_one(ROCELINK_ENDPOINT(.host = "127.0.0.1", .events = events));
		struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
		struct ibv_recv_wr wr = { .wr_id = 7 }, *bad;
		struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		struct ibv_wc wc;

		assert_int_equal(rocelink_wait_completion(ep->cq, ep->channel, 1000, &wc, &err),
				 ROCELINK_TIMEOUT);
		assert_int_equal(ibv_modify_qp(ep->qp, &init,
					       IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
						       IBV_QP_ACCESS_FLAGS),
				 0);
		assert_int_equal(ibv_post_recv(ep->qp, &wr, &bad), 0);
		assert_int_equal(ibv_modify_qp(ep->qp, &error, IBV_QP_STATE), 0);
		assert_int_equal(rocelink_wait_completion(ep->cq, ep->channel, 30000000, &wc, &err),
				 ROCELINK_VERBS);
		assert_int_equal(wc.wr_id, 7);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_contains(err.text, "the first bad completion has the cause");
		rocelink_endpoint_close(ep);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said), cmocka_unit_test(all_said),
		cmocka_unit_test(shared),	cmocka_unit_test(xrc),
		cmocka_unit_test(completions),	cmocka_unit_test(what_is_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
