/* SPDX-License-Identifier: BSD-2-Clause */
/* What ibv_create_cq_ex and ibv_modify_cq add: every field of a completion, its timestamps, flags of
 * the creation, moderation of events; and resizing while completions come. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

static struct ibv_cq_ex *make(struct rig *r, struct ibv_cq_init_attr_ex attr)
{
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r->ctx, &attr);

	assert_non_null(cq);
	return cq;
}

static void start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };

	while (ibv_start_poll(cq, &attr) == ENOENT)
		;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void ud_to_self(struct rig *r, struct ibv_qp *qp)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_sge sge = { (uintptr_t)r->buffer, 10, r->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .imm_data = htobe32(0x11223344) };
	struct ibv_send_wr *bad;
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid), 0);
	ah = ibv_create_ah(r->pd, &attr);
	assert_non_null(ah);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = 0x1234;
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

/* Each field by its reader, and the timestamps between the clocks before and after. */
static void test_fields(void **state)
{
	struct rig *r = *state;
	struct ibv_cq_ex *cq =
		make(r, (struct ibv_cq_init_attr_ex){
				.cqe = 16,
				.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM |
					    IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
					    IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |
					    IBV_WC_EX_WITH_DLID_PATH_BITS |
					    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
					    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK });
	struct ibv_cq *send = rig_cq(r, 16, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_UD, send, ibv_cq_ex_to_cq(cq), NULL);
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	uint64_t wall = now_ns(CLOCK_REALTIME), raw;

	rig_connect_self(qp);
	assert_int_equal(ibv_query_rt_values_ex(r->ctx, &values), 0);
	raw = (uint64_t)values.raw_clock.tv_sec * 1000000000 + (uint64_t)values.raw_clock.tv_nsec;
	assert_int_equal(rig_post_recv(r, qp, 77, 4096, 100), 0);
	ud_to_self(r, qp);
	start_poll(cq);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(cq->wr_id, 77);
	assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	assert_int_equal(ibv_wc_read_vendor_err(cq), 0);
	assert_int_equal(ibv_wc_read_byte_len(cq), 50);
	assert_int_equal(be32toh(ibv_wc_read_imm_data(cq)), 0x11223344);
	assert_int_equal(ibv_wc_read_qp_num(cq), qp->qp_num);
	assert_int_equal(ibv_wc_read_src_qp(cq), qp->qp_num);
	assert_int_equal(ibv_wc_read_wc_flags(cq), IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_int_equal(ibv_wc_read_slid(cq), 0);
	/* The GRH area holds an IPv4 header. */
	assert_int_equal(ibv_wc_read_sl(cq), 2);
	assert_int_equal(ibv_wc_read_dlid_path_bits(cq), 0);
	assert_in_range(ibv_wc_read_completion_wallclock_ns(cq), wall, now_ns(CLOCK_REALTIME));
	assert_int_equal(ibv_query_rt_values_ex(r->ctx, &values), 0);
	assert_in_range(ibv_wc_read_completion_ts(cq), raw,
			(uint64_t)values.raw_clock.tv_sec * 1000000000 +
				(uint64_t)values.raw_clock.tv_nsec);
	ibv_end_poll(cq);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(send), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void test_refused(void **state)
{
	static const struct ibv_cq_init_attr_ex unsupported[] = {
		{ .cqe = 1, .wc_flags = IBV_WC_EX_WITH_CVLAN },
		{ .cqe = 1, .wc_flags = IBV_WC_EX_WITH_FLOW_TAG },
		{ .cqe = 1, .wc_flags = IBV_WC_EX_WITH_TM_INFO },
		{ .cqe = 1, .wc_flags = UINT64_C(1) << 40 },
		{ .cqe = 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 4 },
		{ .cqe = 1, .comp_mask = 4 },
	};
	struct rig *r = *state;
	struct ibv_modify_cq_attr modify = { .attr_mask = 2 };
	struct ibv_cq_init_attr_ex attr;
	struct ibv_cq *cq = rig_cq(r, 1, NULL);

	for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
		attr = unsupported[i];
		errno = 0;
		assert_null(ibv_create_cq_ex(r->ctx, &attr));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 0 };
	assert_null(ibv_create_cq_ex(r->ctx, &attr));
	assert_int_equal(errno, EINVAL);
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 1, .comp_vector = 100000 };
	assert_null(ibv_create_cq_ex(r->ctx, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_modify_cq(cq, &modify), EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* A CQ of one thread: the same, without a lock. */
static void test_single_threaded(void **state)
{
	struct rig *r = *state;
	struct ibv_cq_ex *cq =
		make(r, (struct ibv_cq_init_attr_ex){ .cqe = 32,
						      .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
						      .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
						      .wc_flags = IBV_WC_STANDARD_FLAGS });
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq), NULL);
	struct ibv_wc wc;

	rig_connect_self(qp);
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(rig_post_recv(r, qp, i, 4096, 100), 0);
		assert_int_equal(rig_post_send(r, qp, i, 0, 10, 0), 0);
		start_poll(cq);
		assert_int_equal(cq->wr_id, i);
		assert_int_equal(ibv_next_poll(cq), ENOENT);
		ibv_end_poll(cq);
		assert_int_equal(rig_post_recv(r, qp, i, 4096, 100), 0);
		assert_int_equal(rig_post_send(r, qp, i, 0, 10, 0), 0);
		wc = rig_await(ibv_cq_ex_to_cq(cq));
		assert_int_equal(wc.wr_id, i);
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

/* A program that promised to keep up: what doesn't fit is lost without an event. */
static void test_ignore_overrun(void **state)
{
	struct rig *r = *state;
	struct ibv_cq_ex *cq =
		make(r, (struct ibv_cq_init_attr_ex){ .cqe = 8,
						      .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
						      .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN });
	struct ibv_cq *recv = ibv_cq_ex_to_cq(cq), *send = rig_cq(r, 16, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, send, recv, NULL);
	struct ibv_wc wc;

	rig_connect_self(qp);
	for (uint64_t i = 0; i < 12; i++) {
		assert_int_equal(rig_post_recv(r, qp, i, 4096, 100), 0);
		assert_int_equal(rig_post_send(r, qp, i, 0, 10, IBV_SEND_SIGNALED), 0);
	}
	rig_await_n(send, 12);
	for (uint64_t i = 0; i < 8; i++)
		assert_int_equal(rig_await(recv).wr_id, i);
	assert_int_equal(ibv_poll_cq(recv, 1, &wc), 0);
	assert_false(rig_readable(r->ctx->async_fd, 0));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(recv), 0);
	assert_int_equal(ibv_destroy_cq(send), 0);
}

static void test_parent_domain(void **state)
{
	struct rig *r = *state;
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(r->ctx, &td_attr);
	struct ibv_parent_domain_init_attr parent_attr = { .pd = r->pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(r->ctx, &parent_attr);
	struct ibv_cq_init_attr_ex attr = { .cqe = 1,
					    .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
					    .parent_domain = r->pd };
	struct ibv_cq_ex *cq;

	assert_non_null(td);
	assert_non_null(parent);
	assert_null(ibv_create_cq_ex(r->ctx, &attr));
	assert_int_equal(errno, EINVAL);
	attr.parent_domain = parent;
	cq = make(r, attr);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
}

static void moderate(struct ibv_cq *cq, uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { count, period_us } };

	assert_int_equal(ibv_modify_cq(cq, &attr), 0);
}

static void take_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	if (!rig_readable(channel->fd, 30000))
		fail_msg("no event");
	assert_int_equal(ibv_get_cq_event(channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	assert_false(rig_readable(channel->fd, 0));
}

static void receive(struct rig *r, struct ibv_qp *qp, struct ibv_cq *cq, int n)
{
	for (int i = 0; i < n; i++) {
		assert_int_equal(rig_post_recv(r, qp, 0, 4096, 64), 0);
		assert_int_equal(rig_post_send(r, qp, 0, 0, 8, 0), 0);
		rig_await_n(cq, 1);
	}
}

static void test_moderation(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_cq *send = rig_cq(r, 16, NULL), *recv = rig_cq(r, 16, channel);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, send, recv, NULL);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	rig_connect_self(qp);
	/* The fourth. */
	moderate(recv, 4, 0);
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	receive(r, qp, recv, 3);
	assert_false(rig_readable(channel->fd, 0));
	receive(r, qp, recv, 1);
	take_event(channel);
	/* Or when the time is over: the second of at most 1000 that come. */
	moderate(recv, 1000, 1);
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	receive(r, qp, recv, 1);
	take_event(channel);
	/* What is held back comes with the end of moderation. */
	moderate(recv, 4, 0);
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	receive(r, qp, recv, 2);
	assert_false(rig_readable(channel->fd, 0));
	moderate(recv, 0, 0);
	take_event(channel);
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	receive(r, qp, recv, 1);
	take_event(channel);
	/* An error is told at once. */
	moderate(recv, 1000, 0);
	assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
	assert_int_equal(rig_post_recv(r, qp, 0, 4096, 64), 0);
	assert_int_equal(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	take_event(channel);
	assert_int_equal(rig_await(recv).status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(recv), 0);
	assert_int_equal(ibv_destroy_cq(send), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* An event that waits for its time goes with its CQ. */
static void test_moderated_queue_goes(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);

	for (int i = 0; i < 50; i++) {
		struct ibv_cq *recv = rig_cq(r, 16, channel);
		struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, recv, recv, NULL);

		rig_connect_self(qp);
		moderate(recv, 1000, (uint16_t)(1 + i));
		assert_int_equal(ibv_req_notify_cq(recv, 0), 0);
		receive(r, qp, recv, 1);
		assert_int_equal(ibv_destroy_qp(qp), 0);
		assert_int_equal(ibv_destroy_cq(recv), 0);
	}
	assert_false(rig_readable(channel->fd, 0));
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

enum { LOAD = 20000 };

struct load {
	struct rig *r;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	_Atomic int left;
};

static void *poll_all(void *arg)
{
	struct load *l = arg;
	uint64_t next = 0;

	while (next < LOAD) {
		struct ibv_wc wc[7];
		int n = ibv_poll_cq(l->cq, 7, wc);

		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id != next)
				return (void *)(uintptr_t)(next + 1);
			next++;
			l->left++;
		}
	}
	return NULL;
}

/* One thread posts, one polls, one resizes: each completion comes once, in order. */
static void test_resize_under_load(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *recv = rig_cq(r, 8, NULL);
	struct load load = {
		.r = r, .qp = rig_qp(r, IBV_QPT_RC, recv, recv, NULL), .cq = recv, .left = 15
	};
	pthread_t poller;
	void *wrong_at;
	int size = 16, rc;

	rig_connect_self(load.qp);
	assert_int_equal(ibv_resize_cq(recv, 16), 0);
	assert_int_equal(pthread_create(&poller, NULL, poll_all, &load), 0);
	for (uint64_t i = 0; i < LOAD; i++) {
		/* Between what may be outstanding and a thousand times that. */
		while (load.left == 0)
			;
		load.left--;
		assert_int_equal(rig_post_recv(r, load.qp, i, 4096, 64), 0);
		/* A request may wait for its acknowledgement longer than for its completion here. */
		do
			rc = rig_post_send(r, load.qp, 0, 0, 8, 0);
		while (rc == ENOMEM);
		assert_int_equal(rc, 0);
		if (i % 5 == 0) {
			size = size > 16000 ? 16 : size * 2;
			assert_int_equal(ibv_resize_cq(recv, size), 0);
		}
	}
	pthread_join(poller, &wrong_at);
	assert_null(wrong_at);
	assert_int_equal(ibv_destroy_qp(load.qp), 0);
	assert_int_equal(ibv_destroy_cq(recv), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_fields),
		TEST(test_refused),
		TEST(test_single_threaded),
		TEST(test_ignore_overrun),
		TEST(test_parent_domain),
		TEST(test_moderation),
		TEST(test_moderated_queue_goes),
		TEST(test_resize_under_load),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
