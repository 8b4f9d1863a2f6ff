/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same as the other tests do within one process, between two: once through shared memory and once over
 * UDP (ROCELINK_PATH).
 */
#include "ends.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_BESIDE_POLLS 5

static const uint32_t sizes[] = { 0, 1, 64, 1024, 1025, 5001, 32768, 130000 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void connected_near(struct ends *e, enum ibv_qp_type type)
{
	ends_open(e, type);
	ends_join(e, e->r->mr->rkey);
	for (unsigned i = 0; i < SIZES; i++) {
		ends_fill(e, 0, sizes[i], i);
		ends_meet(e); /* the receives are there */
		assert_int_equal(ends_request(e, IBV_WR_SEND, sizes[i], 0, 0, 0), IBV_WC_SUCCESS);
		assert_int_equal(ends_request(e, IBV_WR_SEND_WITH_IMM, sizes[i], 0, htobe32(i), 0),
				 IBV_WC_SUCCESS);
		ends_meet(e);
		assert_int_equal(ends_request(e, IBV_WR_RDMA_WRITE, sizes[i], e->peer.rkey, 0, 0),
				 IBV_WC_SUCCESS);
		assert_int_equal(ends_request(e, IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i], e->peer.rkey,
					      htobe32(i), 0),
				 IBV_WC_SUCCESS);
		ends_meet(e);
	}
}

static void connected_far(struct ends *e, enum ibv_qp_type type)
{
	ends_open(e, type);
	ends_join(e, e->r->mr->rkey);
	for (unsigned i = 0; i < SIZES; i++) {
		memset(e->r->buffer, 0xee, RIG_BUFFER);
		for (int k = 0; k < 3; k++)
			assert_int_equal(rig_post_recv(e->r, e->qp, 1, FAR_AT, 130000), 0);
		ends_meet(e);
		for (int k = 0; k < 2; k++) {
			struct ibv_wc wc = rig_await(e->cq);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.byte_len, sizes[i]);
			assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, k ? IBV_WC_WITH_IMM : 0);
			if (k)
				assert_int_equal(wc.imm_data, htobe32(i));
		}
		ends_expect_filled(e, FAR_AT, sizes[i], i);
		memset(e->r->buffer, 0xee, RIG_BUFFER);
		ends_meet(e);
		assert_int_equal(rig_await(e->cq).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		ends_expect_filled(e, FAR_AT, sizes[i], i);
		assert_int_equal(e->r->buffer[FAR_AT + sizes[i]], 0xee);
		ends_meet(e);
	}
}

/* What only RC has. */
static void rc_near(struct ends *e)
{
	connected_near(e, IBV_QPT_RC);
	ends_meet(e);
	for (unsigned i = 0; i < SIZES; i++) {
		memset(e->r->buffer, 0, RIG_BUFFER);
		assert_int_equal(ends_request(e, IBV_WR_RDMA_READ, sizes[i], e->peer.rkey, 0, 0),
				 IBV_WC_SUCCESS);
		ends_expect_filled(e, 0, sizes[i], 99);
		assert_int_equal(e->r->buffer[sizes[i]], 0);
	}
	ends_meet(e); /* the far word is 5 now */
	ends_meet(e);
	assert_int_equal(ends_request(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, e->peer.rkey, 0, 0),
			 IBV_WC_SUCCESS);
	assert_int_equal(ends_word(e, 0), 5);
	assert_int_equal(ends_request(e, IBV_WR_ATOMIC_CMP_AND_SWP, 8, e->peer.rkey, 0, 0),
			 IBV_WC_SUCCESS);
	assert_int_equal(ends_word(e, 0), 10); /* isn't 5: not swapped */
	ends_meet(e);
	ends_meet(e); /* it was looked at */
	ends_set_word(e, 0, 1234);
	assert_int_equal(ends_request(e, IBV_WR_ATOMIC_WRITE, 8, e->peer.rkey, 0, 0),
			 IBV_WC_SUCCESS);
	ends_meet(e);
	/* No receive, then a wrong key. */
	assert_int_equal(ends_request(e, IBV_WR_RDMA_WRITE, 8, e->peer.rkey ^ 0x1100, 0, 0),
			 IBV_WC_REM_ACCESS_ERR);
	ends_close(e);
}

static void rc_far(struct ends *e)
{
	struct ibv_async_event event;

	connected_far(e, IBV_QPT_RC);
	ends_fill(e, FAR_AT, 130000, 99);
	ends_meet(e);
	ends_meet(e);
	ends_set_word(e, FAR_AT, 5);
	ends_meet(e);
	ends_meet(e);
	assert_int_equal(ends_word(e, FAR_AT), 10);
	ends_meet(e);
	ends_meet(e);
	assert_int_equal(ends_word(e, FAR_AT), 1234);
	event = rig_await_event(e->r->ctx, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, e->qp);
	ibv_ack_async_event(&event);
	ends_close(e);
}

static void rc(void **state)
{
	(void)state;
	ends_play(rc_near, rc_far);
}

static void uc_near(struct ends *e)
{
	connected_near(e, IBV_QPT_UC);
	ends_close(e);
}

static void uc_far(struct ends *e)
{
	connected_far(e, IBV_QPT_UC);
	ends_close(e);
}

static void uc(void **state)
{
	(void)state;
	ends_play(uc_near, uc_far);
}

static void ud_send(struct ends *e, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_sge sge = { (uintptr_t)e->r->buffer, 600, e->r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = 0x1234;
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	assert_int_equal(rig_await(e->cq).status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

/* The answer goes to whom the completion and the GRH name. */
static void ud_near(struct ends *e)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	ends_open(e, IBV_QPT_UD);
	ends_join(e, 0);
	assert_int_equal(ibv_query_gid(e->r->ctx, 1, 0, &attr.grh.dgid), 0);
	ends_fill(e, 0, 600, 3);
	assert_int_equal(rig_post_recv(e->r, e->qp, 9, FAR_AT, 700), 0);
	ends_meet(e);
	ud_send(e, ibv_create_ah(e->r->pd, &attr), e->peer.qpn);
	assert_int_equal(rig_await(e->cq).src_qp, e->peer.qpn);
	ends_expect_filled(e, FAR_AT + 40, 600, 4);
	ends_close(e);
}

static void ud_far(struct ends *e)
{
	struct ibv_wc wc;

	ends_open(e, IBV_QPT_UD);
	ends_join(e, 0);
	assert_int_equal(rig_post_recv(e->r, e->qp, 9, FAR_AT, 700), 0);
	ends_meet(e);
	wc = rig_await(e->cq);
	assert_int_equal(wc.byte_len, 640);
	assert_int_equal(wc.src_qp, e->peer.qpn);
	ends_expect_filled(e, FAR_AT + 40, 600, 3);
	ends_fill(e, 0, 600, 4);
	ud_send(e,
		ibv_create_ah_from_wc(e->r->pd, &wc, (struct ibv_grh *)(e->r->buffer + FAR_AT), 1),
		wc.src_qp);
	ends_close(e);
}

static void ud(void **state)
{
	(void)state;
	ends_play(ud_near, ud_far);
}

/* A type 2 window of the far end, until a SEND takes it away. */
static void window_near(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	ends_swap(e, (struct hello){ .qpn = e->qp->qp_num });
	ends_fill(e, 0, 64, 8);
	assert_int_equal(ends_request(e, IBV_WR_RDMA_WRITE, 64, e->peer.rkey, 0, 0),
			 IBV_WC_SUCCESS);
	assert_int_equal(ends_request(e, IBV_WR_SEND_WITH_INV, 8, 0, e->peer.rkey, 0),
			 IBV_WC_SUCCESS);
	ends_meet(e);
	assert_int_equal(ends_request(e, IBV_WR_RDMA_WRITE, 64, e->peer.rkey, 0, 0),
			 IBV_WC_REM_ACCESS_ERR);
	ends_close(e);
}

static void window_far(struct ends *e)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	mr = ibv_reg_mr(e->r->pd, e->r->buffer, RIG_BUFFER,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	wr.bind_mw.mw = ibv_alloc_mw(e->r->pd, IBV_MW_TYPE_2);
	wr.bind_mw.rkey = ibv_inc_rkey(wr.bind_mw.mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ mr, (uintptr_t)e->r->buffer + FAR_AT, 64,
							  IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	rig_await_n(e->cq, 1);
	assert_int_equal(rig_post_recv(e->r, e->qp, 1, 0, 64), 0);
	ends_swap(e, (struct hello){ .rkey = wr.bind_mw.rkey, .addr = (uintptr_t)e->r->buffer });
	wc = rig_await(e->cq);
	assert_true(wc.wc_flags & IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, wr.bind_mw.rkey);
	ends_expect_filled(e, FAR_AT, 64, 8);
	ends_meet(e);
	ends_meet(e); /* the refused write */
	assert_int_equal(ibv_dealloc_mw(wr.bind_mw.mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void window(void **state)
{
	(void)state;
	ends_play(window_near, window_far);
}

static struct ibv_qp *xrc_qp(struct ends *e, enum ibv_qp_type type, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.send_cq = xrcd ? NULL : e->cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 1 },
		.comp_mask = xrcd ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
		.pd = e->r->pd,
		.xrcd = xrcd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(e->r->ctx, &attr);

	assert_non_null(qp);
	return qp;
}

static void xrc_near(struct ends *e)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_qp *initiator;

	ends_open(e, IBV_QPT_RC);
	initiator = xrc_qp(e, IBV_QPT_XRC_SEND, NULL);
	sge = (struct ibv_sge){ (uintptr_t)e->r->buffer, 3000, e->r->mr->lkey };
	ends_swap(e, (struct hello){ .qpn = initiator->qp_num });
	assert_int_equal(rig_to_init(initiator), 0);
	assert_int_equal(rig_to_rtr(initiator, e->peer.qpn), 0);
	assert_int_equal(ends_to_rts(initiator), 0);
	ends_fill(e, 0, 3000, 21);
	ends_meet(e);
	wr.qp_type.xrc.remote_srqn = e->peer.srqn;
	assert_int_equal(ibv_post_send(initiator, &wr, &bad), 0);
	rig_await_n(e->cq, 1);
	assert_int_equal(ibv_destroy_qp(initiator), 0);
	ends_close(e);
}

static void xrc_far(struct ends *e)
{
	struct ibv_xrcd_init_attr xrcd_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
	};
	struct ibv_recv_wr recv = { .wr_id = 6, .num_sge = 1 }, *bad;
	struct ibv_sge sge;
	struct ibv_qp *target;
	struct ibv_srq *srq;
	uint32_t srqn;

	ends_open(e, IBV_QPT_RC);
	attr.pd = e->r->pd;
	attr.cq = e->cq;
	attr.xrcd = ibv_open_xrcd(e->r->ctx, &xrcd_attr);
	srq = ibv_create_srq_ex(e->r->ctx, &attr);
	assert_non_null(srq);
	assert_int_equal(ibv_get_srq_num(srq, &srqn), 0);
	target = xrc_qp(e, IBV_QPT_XRC_RECV, attr.xrcd);
	ends_swap(e, (struct hello){ .qpn = target->qp_num, .srqn = srqn });
	assert_int_equal(rig_to_init(target), 0);
	assert_int_equal(rig_to_rtr(target, e->peer.qpn), 0);
	sge = (struct ibv_sge){ (uintptr_t)e->r->buffer + FAR_AT, 4096, e->r->mr->lkey };
	recv.sg_list = &sge;
	assert_int_equal(ibv_post_srq_recv(srq, &recv, &bad), 0);
	ends_meet(e);
	assert_int_equal(rig_await(e->cq).wr_id, 6);
	ends_expect_filled(e, FAR_AT, 3000, 21);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_qp(target), 0);
	assert_int_equal(ibv_close_xrcd(attr.xrcd), 0);
	ends_close(e);
}

static void xrc(void **state)
{
	(void)state;
	ends_play(xrc_near, xrc_far);
}

/* Asked for solicited completions, the channel keeps still at others, and stamps are in their order. */
static void solicited_near(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	assert_int_equal(ends_request(e, IBV_WR_SEND, 8, 0, 0, 0), IBV_WC_SUCCESS);
	assert_int_equal(ends_request(e, IBV_WR_SEND, 8, 0, 0, 0), IBV_WC_SUCCESS);
	ends_meet(e);
	ends_meet(e);
	assert_int_equal(ends_request(e, IBV_WR_SEND, 8, 0, 0, IBV_SEND_SOLICITED), IBV_WC_SUCCESS);
	ends_close(e);
}

static void solicited_far(struct ends *e)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16,
					    .wc_flags =
						    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
						    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK };
	struct ibv_poll_cq_attr poll_attr = { 0 };
	uint64_t raw = 0, wall = 0;
	struct ibv_cq_ex *cq;
	struct ibv_cq *told;
	void *context;

	ends_open(e, IBV_QPT_RC);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	attr.channel = ibv_create_comp_channel(e->r->ctx);
	cq = ibv_create_cq_ex(e->r->ctx, &attr);
	assert_non_null(cq);
	e->qp = rig_qp(e->r, IBV_QPT_RC, e->cq, ibv_cq_ex_to_cq(cq), NULL);
	assert_int_equal(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 1), 0);
	assert_int_equal(rig_to_init(e->qp), 0);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(rig_post_recv(e->r, e->qp, i, FAR_AT, 64), 0);
	ends_join(e, 0);
	ends_meet(e); /* two have arrived */
	assert_false(rig_readable(attr.channel->fd, 0));
	ends_meet(e);
	assert_int_equal(ibv_get_cq_event(attr.channel, &told, &context), 0);
	assert_ptr_equal(told, ibv_cq_ex_to_cq(cq));
	ibv_ack_cq_events(told, 1);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(i ? ibv_next_poll(cq) : ibv_start_poll(cq, &poll_attr), 0);
		assert_int_equal(cq->status, IBV_WC_SUCCESS);
		assert_int_equal(cq->wr_id, i);
		assert_true(ibv_wc_read_completion_ts(cq) >= raw);
		assert_true(ibv_wc_read_completion_wallclock_ns(cq) >= wall);
		raw = ibv_wc_read_completion_ts(cq);
		wall = ibv_wc_read_completion_wallclock_ns(cq);
	}
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	assert_true(raw && wall > raw);
	ends_meet(e);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	assert_int_equal(ibv_destroy_comp_channel(attr.channel), 0);
}

static void solicited(void **state)
{
	(void)state;
	ends_play(solicited_near, solicited_far);
}

/* Device memory and memory on demand at the far end. */
static void special_near(struct ends *e)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	ends_swap(e, (struct hello){ 0 });
	sge = (struct ibv_sge){ (uintptr_t)e->r->buffer, 64, e->r->mr->lkey };
	ends_fill(e, 0, 64, 30);
	assert_int_equal(ends_request(e, IBV_WR_RDMA_WRITE, 64, e->peer.rkey, 0, 0),
			 IBV_WC_SUCCESS);
	wr.wr.rdma.remote_addr = 128; /* zero-based */
	wr.wr.rdma.rkey = e->peer.other_rkey;
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
	rig_await_n(e->cq, 1);
	ends_close(e);
}

static void special_far(struct ends *e)
{
	struct ibv_alloc_dm_attr attr = { .length = 256 };
	struct ibv_mr *demand, *device;
	struct ibv_dm *dm;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	demand = ibv_reg_mr(e->r->pd, NULL, SIZE_MAX, RIG_ALL_ACCESS | IBV_ACCESS_ON_DEMAND);
	dm = ibv_alloc_dm(e->r->ctx, &attr);
	device = ibv_reg_dm_mr(e->r->pd, dm, 0, 256,
			       IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
				       IBV_ACCESS_REMOTE_WRITE);
	assert_non_null(demand);
	assert_non_null(device);
	ends_swap(e, (struct hello){ .rkey = demand->rkey,
				     .other_rkey = device->rkey,
				     .addr = (uintptr_t)e->r->buffer });
	ends_meet(e);
	ends_expect_filled(e, FAR_AT, 64, 30);
	assert_int_equal(ibv_memcpy_from_dm(e->r->buffer, dm, 128, 64), 0);
	ends_expect_filled(e, 0, 64, 30);
	assert_int_equal(ibv_dereg_mr(demand), 0);
	assert_int_equal(ibv_dereg_mr(device), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
}

static void special_regions(void **state)
{
	(void)state;
	ends_play(special_near, special_far);
}

/* The far process ends without a word: a completion tells. */
static void death_near(struct ends *e)
{
	struct ibv_wc wc;
	void *r;

	ends_open(e, IBV_QPT_RC);
	ends_join_impatient(e, 0);
	/* Its end of the socket goes with it. */
	assert_int_equal(read(e->sock, &wc, 1), 0);
	assert_int_equal(rig_post_send(e->r, e->qp, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	wc = rig_await(e->cq);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	r = e->r;
	rig_teardown(&r);
}

static void death_far(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join_impatient(e, 0);
	_exit(0);
}

static void death(void **state)
{
	(void)state;
	ends_play(death_near, death_far);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void *await_event(void *channel)
{
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_get_cq_event(channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void poll_for_a_while(struct ends *e)
{
	const uint64_t until = now_ms() + 20;
	struct ibv_wc wc;

	while (now_ms() < until)
		assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 0);
}

/*
 * A thread waits for an event, and another one polls for a while: what looks like a program that drives in a
 * loop takes nothing from the one that sleeps, nor does what comes in meanwhile.
 */
static void event_beside_polls_near(struct ends *e)
{
	struct timespec end;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	pthread_t waiter;

	ends_open(e, IBV_QPT_UC);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	channel = ibv_create_comp_channel(e->r->ctx);
	cq = rig_cq(e->r, 16, channel);
	e->qp = rig_qp(e->r, IBV_QPT_UC, e->cq, cq, NULL);
	ends_join(e, e->r->mr->rkey);
	for (unsigned i = 0; i < ROUNDS_BESIDE_POLLS; i++) {
		e->r->buffer[FAR_AT] = 0;
		assert_int_equal(rig_post_recv(e->r, e->qp, i, FAR_AT, 64), 0);
		assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
		assert_int_equal(pthread_create(&waiter, NULL, await_event, channel), 0);
		poll_for_a_while(e);
		ends_meet(e); /* the far end writes */
		do
			poll_for_a_while(e);
		while (!*(volatile uint8_t *)(e->r->buffer + FAR_AT));
		/* Nobody polls any more, and the background thread has seen that. */
		usleep(10000);
		ends_meet(e); /* and sends */
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec += 10;
		assert_int_equal(pthread_timedjoin_np(waiter, NULL, &end), 0);
		assert_int_equal(rig_await(cq).wr_id, i);
	}
	ends_meet(e);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	e->qp = rig_qp(e->r, IBV_QPT_UC, e->cq, e->cq, NULL);
	ends_close(e);
}

static void event_beside_polls_far(struct ends *e)
{
	ends_open(e, IBV_QPT_UC);
	e->r->buffer[0] = 1;
	ends_join(e, e->r->mr->rkey);
	for (unsigned i = 0; i < ROUNDS_BESIDE_POLLS; i++) {
		ends_meet(e);
		assert_int_equal(ends_request(e, IBV_WR_RDMA_WRITE, 1, e->peer.rkey, 0, 0),
				 IBV_WC_SUCCESS);
		ends_meet(e);
		assert_int_equal(ends_request(e, IBV_WR_SEND, 8, 0, 0, 0), IBV_WC_SUCCESS);
	}
	ends_meet(e);
	ends_close(e);
}

static void event_beside_polls(void **state)
{
	(void)state;
	ends_play(event_beside_polls_near, event_beside_polls_far);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rc),
		TEST(uc),
		TEST(ud),
		TEST(window),
		TEST(xrc),
		TEST(solicited),
		TEST(special_regions),
		TEST(event_beside_polls),
		TEST(death),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
