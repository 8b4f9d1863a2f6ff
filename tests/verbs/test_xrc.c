/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC through the API: domains and who shares them, SRQs named by number, the two halves of a
 * connection, handles on a target, and what is refused. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

static struct ibv_xrcd *open_domain(struct ibv_context *ctx, int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = oflags,
	};

	errno = 0;
	return ibv_open_xrcd(ctx, &attr);
}

static struct ibv_srq *make_srq(struct ibv_pd *pd, struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(pd->context, &attr);

	assert_non_null(srq);
	assert_true(attr.attr.max_wr >= 16);
	return srq;
}

static uint32_t number(struct ibv_srq *srq)
{
	uint32_t n = 0;

	assert_int_equal(ibv_get_srq_num(srq, &n), 0);
	assert_in_range(n, 1, 0xffffff);
	return n;
}

static struct ibv_qp *make_target(struct ibv_context *ctx, struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &attr);

	assert_non_null(qp);
	return qp;
}

static struct ibv_qp *open_target(struct ibv_context *ctx, struct ibv_xrcd *xrcd, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
			     IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_num = qpn,
		.xrcd = xrcd,
		.qp_context = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	errno = 0;
	return ibv_open_qp(ctx, &attr);
}

static struct ibv_qp *make_initiator(struct rig *r, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 2 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = r->pd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &attr);

	assert_non_null(qp);
	assert_int_equal(attr.cap.max_recv_wr, 0);
	return qp;
}

static void post_srq(struct rig *r, struct ibv_srq *srq, struct ibv_mr *mr, uint64_t id,
		     uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + offset, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

static int send_to(struct rig *r, struct ibv_qp *qp, uint32_t srqn, enum ibv_wr_opcode opcode,
		   uint32_t offset, uint32_t len, uint32_t to, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + offset, len, r->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)r->buffer + to;
	wr.wr.rdma.rkey = rkey;
	wr.qp_type.xrc.remote_srqn = srqn;
	return ibv_post_send(qp, &wr, &bad);
}

/* One of everything. */
struct half {
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *target, *initiator;
	uint32_t srqn;
};

static struct half make_half(struct rig *r)
{
	struct half h = { .send_cq = rig_cq(r, 32, NULL), .recv_cq = rig_cq(r, 32, NULL) };

	h.xrcd = open_domain(r->ctx, -1, O_CREAT);
	assert_non_null(h.xrcd);
	h.srq = make_srq(r->pd, h.xrcd, h.recv_cq);
	h.srqn = number(h.srq);
	h.target = make_target(r->ctx, h.xrcd);
	h.initiator = make_initiator(r, h.send_cq);
	rig_connect(h.initiator, h.target);
	return h;
}

static void drop_half(struct half *h)
{
	assert_int_equal(ibv_destroy_qp(h->initiator), 0);
	if (h->target)
		assert_int_equal(ibv_destroy_qp(h->target), 0);
	if (h->srq)
		assert_int_equal(ibv_destroy_srq(h->srq), 0);
	assert_int_equal(ibv_close_xrcd(h->xrcd), 0);
	assert_int_equal(ibv_destroy_cq(h->send_cq), 0);
	assert_int_equal(ibv_destroy_cq(h->recv_cq), 0);
}

/* One connection, two SRQs, each with a CQ of its own. */
static void to_each_srq(void **state)
{
	struct rig *r = *state;
	struct half h = make_half(r);
	struct ibv_cq *other_cq = rig_cq(r, 8, NULL);
	struct ibv_srq *other = make_srq(r->pd, h.xrcd, other_cq);
	struct ibv_wc wc;

	assert_int_not_equal(h.srqn, number(other));
	memset(r->buffer, 'x', 5000);
	post_srq(r, h.srq, r->mr, 1, 8192, 8192);
	post_srq(r, other, r->mr, 2, 16384, 8192);
	assert_int_equal(send_to(r, h.initiator, number(other), IBV_WR_SEND, 0, 5000, 0, 0), 0);
	assert_int_equal(send_to(r, h.initiator, h.srqn, IBV_WR_SEND, 0, 10, 0, 0), 0);
	rig_await_n(h.send_cq, 2);
	wc = rig_await(h.recv_cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.byte_len, 10);
	assert_int_equal(wc.qp_num, h.target->qp_num);
	assert_int_equal(wc.src_qp, h.srqn);
	wc = rig_await(other_cq);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.src_qp, number(other));
	assert_memory_equal(r->buffer + 16384, r->buffer, 5000);
	assert_int_equal(ibv_destroy_cq(other_cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(other), 0);
	assert_int_equal(ibv_destroy_cq(other_cq), 0);
	drop_half(&h);
}

/* A target has no protection domain: memory is that of the SRQ named. */
static void memory_is_the_srqs(void **state)
{
	struct rig *r = *state;
	struct half h = make_half(r);
	struct ibv_pd *pd = ibv_alloc_pd(r->ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, r->buffer, RIG_BUFFER,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_cq *cq = rig_cq(r, 8, NULL);
	struct ibv_srq *other = make_srq(pd, h.xrcd, cq);

	memset(r->buffer, 'y', 64);
	assert_int_equal(
		send_to(r, h.initiator, number(other), IBV_WR_RDMA_WRITE, 0, 64, 4096, mr->rkey),
		0);
	rig_await_n(h.send_cq, 1);
	assert_memory_equal(r->buffer + 4096, r->buffer, 64);
	assert_int_equal(
		send_to(r, h.initiator, h.srqn, IBV_WR_RDMA_READ, 64, 64, 4096, r->mr->rkey), 0);
	rig_await_n(h.send_cq, 1);
	assert_memory_equal(r->buffer + 64, r->buffer, 64);
	assert_int_equal(send_to(r, h.initiator, h.srqn, IBV_WR_RDMA_WRITE, 0, 64, 4096, mr->rkey),
			 0);
	assert_int_equal(rig_await(h.send_cq).status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_destroy_srq(other), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	drop_half(&h);
}

static int scratch_file(void)
{
	char name[] = "xrc-domain-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	assert_int_equal(unlink(name), 0);
	return fd;
}

static void domains(void **state)
{
	struct rig *r = *state;
	int fd = scratch_file();
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };
	struct ibv_xrcd *a, *b;

	assert_null(open_domain(r->ctx, fd, 0));
	assert_int_equal(errno, EAGAIN);
	assert_null(open_domain(r->ctx, 9999, O_CREAT));
	assert_int_equal(errno, EBADF);
	assert_null(open_domain(r->ctx, fd, O_CREAT | O_TRUNC));
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null(ibv_open_xrcd(r->ctx, &attr));
	assert_int_equal(errno, EINVAL);
	a = open_domain(r->ctx, fd, O_CREAT | O_EXCL);
	assert_non_null(a);
	assert_null(open_domain(r->ctx, fd, O_CREAT | O_EXCL));
	assert_int_equal(errno, EINVAL);
	b = open_domain(r->ctx, fd, 0);
	assert_non_null(b);
	assert_int_equal(ibv_close_xrcd(a), 0);
	/* b still holds it. */
	assert_null(open_domain(r->ctx, fd, O_CREAT | O_EXCL));
	assert_int_equal(ibv_close_xrcd(b), 0);
	assert_null(open_domain(r->ctx, fd, 0));
	close(fd);
}

/* Two contexts that opened the same file: an SRQ of one, reached through a target of the other,
 * which outlives the handle that created it. */
static void shared_by_file(void **state)
{
	struct rig *r = *state, there = { .ctx = rig_open("lo") };
	int fd = scratch_file();
	struct ibv_xrcd *mine = open_domain(r->ctx, fd, O_CREAT);
	struct ibv_xrcd *theirs = open_domain(there.ctx, fd, 0);
	struct ibv_cq *send_cq = rig_cq(r, 8, NULL), *cq = rig_cq(&there, 8, NULL);
	struct ibv_pd *pd = ibv_alloc_pd(there.ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, r->buffer, RIG_BUFFER, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_srq *srq = make_srq(pd, theirs, cq);
	struct ibv_qp *target = make_target(r->ctx, mine), *opened;
	struct ibv_qp *initiator = make_initiator(r, send_cq);
	struct ibv_async_event event;

	rig_connect(initiator, target);
	opened = open_target(there.ctx, theirs, target->qp_num);
	assert_non_null(opened);
	assert_int_equal(opened->state, IBV_QPS_RTS);
	assert_int_equal(opened->qp_num, target->qp_num);
	assert_ptr_equal(opened->qp_context, theirs);
	assert_int_equal(ibv_destroy_qp(target), 0);
	assert_int_equal(ibv_close_xrcd(mine), 0);
	memset(r->buffer, 'z', 64);
	post_srq(r, srq, mr, 5, 4096, 64);
	assert_int_equal(send_to(r, initiator, number(srq), IBV_WR_SEND, 0, 64, 0, 0), 0);
	rig_await_n(send_cq, 1);
	assert_int_equal(rig_await(cq).wr_id, 5);
	assert_memory_equal(r->buffer + 4096, r->buffer, 64);
	/* What happens to the target, its handle hears. */
	assert_int_equal(send_to(r, initiator, number(srq) ^ 0x800000, IBV_WR_SEND, 0, 1, 0, 0), 0);
	assert_int_equal(rig_await(send_cq).status, IBV_WC_REM_INV_REQ_ERR);
	event = rig_await_event(there.ctx, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, opened);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_destroy_qp(opened), 0);
	assert_null(open_target(there.ctx, theirs, initiator->qp_num));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_qp(initiator), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_cq(send_cq), 0);
	assert_int_equal(ibv_close_xrcd(theirs), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(there.ctx), 0);
	close(fd);
}

static void wrong_uses(void **state)
{
	struct rig *r = *state;
	struct half h = make_half(r);
	struct ibv_srq_init_attr basic = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *plain = ibv_create_srq(r->pd, &basic);
	struct ibv_srq_init_attr_ex incomplete = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = r->pd,
		.cq = h.recv_cq,
	};
	struct ibv_qp_init_attr_ex target = { .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_qp_init_attr rc = {
		.send_cq = h.send_cq,
		.recv_cq = h.send_cq,
		.srq = h.srq,
		.cap = { 1, 1, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_recv_wr recv = { .num_sge = 0 }, *bad;
	struct ibv_qp_open_attr open = { .comp_mask = IBV_QP_OPEN_ATTR_NUM };
	uint32_t n;

	assert_int_equal(ibv_get_srq_num(plain, &n), EINVAL);
	assert_null(ibv_create_srq_ex(r->ctx, &incomplete));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_qp_ex(r->ctx, &target));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_qp(r->pd, &rc));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_open_qp(r->ctx, &open));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(send_to(r, h.target, h.srqn, IBV_WR_SEND, 0, 1, 0, 0), EINVAL);
	assert_int_equal(ibv_post_recv(h.target, &recv, &bad), EINVAL);
	assert_int_equal(ibv_post_recv(h.initiator, &recv, &bad), ENOMEM);
	assert_int_equal(ibv_close_xrcd(h.xrcd), EBUSY);
	assert_int_equal(ibv_destroy_srq(plain), 0);
	drop_half(&h);
}

/* The ibv_wr_* way. */
static void wr_family(void **state)
{
	struct rig *r = *state;
	struct half h = make_half(r);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND,
		.send_cq = h.send_cq,
		.cap = { .max_send_wr = 16, .max_send_sge = 2, .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = r->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct ibv_qp_ex *ex;
	struct ibv_qp *target = make_target(r->ctx, h.xrcd);
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &attr);
	uint64_t value = 5, got;
	struct ibv_wc wc;

	assert_non_null(qp);
	ex = ibv_qp_to_qp_ex(qp);
	rig_connect(qp, target);
	post_srq(r, h.srq, r->mr, 1, 8192, 64);
	post_srq(r, h.srq, r->mr, 2, 8192, 64);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, h.srqn);
	ibv_wr_set_inline_data(ex, "hello", 5);
	ibv_wr_rdma_write_imm(ex, r->mr->rkey, (uintptr_t)r->buffer + 4096, 7);
	ibv_wr_set_xrc_srqn(ex, h.srqn);
	ibv_wr_set_inline_data(ex, "there", 5);
	ibv_wr_atomic_write(ex, r->mr->rkey, (uintptr_t)r->buffer + 64, &value);
	ibv_wr_set_xrc_srqn(ex, h.srqn);
	assert_int_equal(ibv_wr_complete(ex), 0);
	rig_await_n(h.send_cq, 3);
	wc = rig_await(h.recv_cq);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.qp_num, target->qp_num);
	wc = rig_await(h.recv_cq);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.imm_data, 7);
	memcpy(&got, r->buffer + 64, 8);
	assert_int_equal(got, 5);
	assert_memory_equal(r->buffer + 8192, "hello", 5);
	assert_memory_equal(r->buffer + 4096, "there", 5);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_qp(target), 0);
	drop_half(&h);
}

/* Another size: it is still found, and completes where it did. */
static void resized(void **state)
{
	struct rig *r = *state;
	struct half h = make_half(r);
	struct ibv_srq_attr attr = { .max_wr = 200 };

	post_srq(r, h.srq, r->mr, 1, 8192, 64);
	assert_int_equal(ibv_modify_srq(h.srq, &attr, IBV_SRQ_MAX_WR), 0);
	assert_int_equal(send_to(r, h.initiator, h.srqn, IBV_WR_SEND, 0, 8, 0, 0), 0);
	rig_await_n(h.send_cq, 1);
	assert_int_equal(rig_await(h.recv_cq).wr_id, 1);
	drop_half(&h);
}

/* Sizes and states as they were set, by either half. */
static void queries(void **state)
{
	struct rig *r = *state;
	struct half h = make_half(r);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(h.target, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.max_dest_rd_atomic, 4);
	assert_int_equal(attr.max_rd_atomic, 0);
	assert_int_equal(attr.dest_qp_num, h.initiator->qp_num);
	assert_int_equal(init.qp_type, IBV_QPT_XRC_RECV);
	assert_null(init.send_cq);
	assert_int_equal(init.cap.max_send_wr, 0);
	assert_int_equal(ibv_query_qp(h.initiator, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.max_rd_atomic, 4);
	assert_int_equal(attr.max_dest_rd_atomic, 0);
	assert_null(init.recv_cq);
	drop_half(&h);
}

struct flood {
	struct rig *r;
	struct half *h;
	_Atomic int sent;
};

/* Sends until its queue pair is in error; every request is completed. */
static void *flood(void *arg)
{
	struct flood *f = arg;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };

	while (wc.status == IBV_WC_SUCCESS) {
		if (send_to(f->r, f->h->initiator, f->h->srqn, IBV_WR_SEND, 0, 3000, 0, 0))
			break;
		f->sent++;
		wc = rig_await(f->h->send_cq);
	}
	return wc.status == IBV_WC_REM_INV_REQ_ERR ? f : NULL;
}

/* The SRQ goes while messages to it arrive: its last completions stay whole, the sender is told. */
static void srq_goes_amid_traffic(void **state)
{
	struct rig *r = *state;

	for (unsigned round = 0; round < 20; round++) {
		struct half h = make_half(r);
		struct flood f = { .r = r, .h = &h };
		pthread_t thread;
		void *told;
		int got = 0;

		for (unsigned i = 0; i < 16; i++)
			post_srq(r, h.srq, r->mr, i, 8192, 4096);
		assert_int_equal(pthread_create(&thread, NULL, flood, &f), 0);
		while (f.sent < (int)(1 + round % 8))
			got += ibv_poll_cq(h.recv_cq, 1, &(struct ibv_wc){ 0 });
		assert_int_equal(ibv_destroy_srq(h.srq), 0);
		h.srq = NULL;
		assert_int_equal(pthread_join(thread, &told), 0);
		assert_ptr_equal(told, &f);
		drop_half(&h);
	}
}

/* A context that is closed with all of it left. */
static void left_behind(void **state)
{
	struct rig there = { .ctx = rig_open("lo") };
	struct ibv_xrcd *xrcd = open_domain(there.ctx, -1, O_CREAT);
	struct ibv_cq *cq = rig_cq(&there, 8, NULL);
	struct ibv_pd *pd = ibv_alloc_pd(there.ctx);
	struct ibv_qp *target = make_target(there.ctx, xrcd);

	(void)state;
	make_srq(pd, xrcd, cq);
	assert_non_null(open_target(there.ctx, xrcd, target->qp_num));
	assert_int_equal(ibv_close_device(there.ctx), 0);
}

int main(void)
{
	rig_isolate();

	const struct CMUnitTest tests[] = {
		TEST(to_each_srq),
		TEST(memory_is_the_srqs),
		TEST(domains),
		TEST(shared_by_file),
		TEST(wrong_uses),
		TEST(queries),
		TEST(srq_goes_amid_traffic),
		TEST(wr_family),
		TEST(resized),
		cmocka_unit_test(left_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
