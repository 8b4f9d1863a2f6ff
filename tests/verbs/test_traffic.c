/* SPDX-License-Identifier: BSD-2-Clause */
/* Data through the API: what the classic and the ibv_wr_* calls carry, datagrams and their answers,
 * fork. */
#include "rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../net/namespace.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

struct ex {
	struct ibv_cq *cq;
	struct ibv_qp_ex *qp;
};

static struct ex make_ex(struct rig *r, uint64_t ops)
{
	struct ex ex = { .cq = rig_cq(r, 64, NULL) };
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ex.cq,
		.recv_cq = ex.cq,
		.cap = { 4, 16, 4, 4, 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = r->pd,
		.send_ops_flags = ops,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &attr);

	if (qp) {
		ex.qp = ibv_qp_to_qp_ex(qp);
		assert_non_null(ex.qp);
	}
	return ex;
}

static void drop_ex(struct ex *ex)
{
	if (ex->qp)
		assert_int_equal(ibv_destroy_qp(&ex->qp->qp_base), 0);
	assert_int_equal(ibv_destroy_cq(ex->cq), 0);
}

#define RC_OPS                                                                                  \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                              \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static void wr_family(void **state)
{
	struct rig *r = *state;
	struct ex ex = make_ex(r, RC_OPS);
	uint64_t at = (uintptr_t)r->buffer;
	struct ibv_sge list[2] = { { at, 3, r->mr->lkey }, { at + 100, 2, r->mr->lkey } };
	char text[] = "inline";
	struct ibv_wc wc;

	rig_connect_self(&ex.qp->qp_base);
	memcpy(r->buffer, "abc", 3);
	memcpy(r->buffer + 100, "de", 2);
	assert_int_equal(rig_post_recv(r, &ex.qp->qp_base, 50, 8192, 64), 0);

	ibv_wr_start(ex.qp);
	ex.qp->wr_id = 1;
	ex.qp->wr_flags = 0;
	ibv_wr_rdma_write(ex.qp, r->mr->rkey, at + 4096);
	ibv_wr_set_sge_list(ex.qp, 2, list);
	ex.qp->wr_id = 2;
	ibv_wr_rdma_write(ex.qp, r->mr->rkey, at + 4200);
	ibv_wr_set_inline_data(ex.qp, text, strlen(text));
	ex.qp->wr_id = 3;
	ex.qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(ex.qp, htobe32(77));
	ibv_wr_set_sge(ex.qp, r->mr->lkey, at, 3);
	/* Inline data is taken at once. */
	memset(text, 'x', strlen(text));
	assert_int_equal(ibv_wr_complete(ex.qp), 0);
	for (int i = 0; i < 2; i++) {
		wc = rig_await(ex.cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND) {
			assert_int_equal(wc.wr_id, 3);
			continue;
		}
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
		assert_int_equal(be32toh(wc.imm_data), 77);
	}
	assert_memory_equal(r->buffer + 4096, "abcde", 5);
	assert_memory_equal(r->buffer + 4200, "inline", 6);
	assert_memory_equal(r->buffer + 8192, "abc", 3);

	/* READ and atomics. */
	memcpy(r->buffer + 512, &(uint64_t){ 40 }, 8);
	ibv_wr_start(ex.qp);
	ibv_wr_atomic_fetch_add(ex.qp, r->mr->rkey, at + 512, 2);
	ibv_wr_set_sge(ex.qp, r->mr->lkey, at + 1024, 8);
	ibv_wr_atomic_cmp_swp(ex.qp, r->mr->rkey, at + 512, 42, 7);
	ibv_wr_set_sge(ex.qp, r->mr->lkey, at + 1032, 8);
	ibv_wr_rdma_read(ex.qp, r->mr->rkey, at + 512);
	ibv_wr_set_sge(ex.qp, r->mr->lkey, at + 1040, 8);
	assert_int_equal(ibv_wr_complete(ex.qp), 0);
	rig_await_n(ex.cq, 3);
	assert_memory_equal(r->buffer + 1024, (&(uint64_t[]){ 40, 42, 7 }), 24);
	drop_ex(&ex);
}

/* All or none, and an aborted batch leaves nothing behind. */
static void wr_batches_are_atomic(void **state)
{
	struct rig *r = *state;
	struct ex ex = make_ex(r, RC_OPS);
	uint64_t at = (uintptr_t)r->buffer;
	uint8_t big[65] = { 1 };

	rig_connect_self(&ex.qp->qp_base);
	ibv_wr_start(ex.qp);
	ibv_wr_rdma_write(ex.qp, r->mr->rkey, at + 4096);
	ibv_wr_set_sge(ex.qp, r->mr->lkey, at, 8);
	ibv_wr_abort(ex.qp);

	ex.qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(ex.qp);
	for (int i = 0; i < 5; i++) {
		ibv_wr_rdma_write(ex.qp, r->mr->rkey, at + 4096);
		ibv_wr_set_sge(ex.qp, r->mr->lkey, at, 8);
	}
	assert_int_equal(ibv_wr_complete(ex.qp), ENOMEM);

	ibv_wr_start(ex.qp);
	ibv_wr_set_sge(ex.qp, r->mr->lkey, at, 8);
	assert_int_equal(ibv_wr_complete(ex.qp), EINVAL);

	ibv_wr_start(ex.qp);
	ibv_wr_rdma_write(ex.qp, r->mr->rkey, at + 4096);
	ibv_wr_set_inline_data(ex.qp, big, sizeof(big));
	assert_int_equal(ibv_wr_complete(ex.qp), EINVAL);

	ex.qp->wr_id = 9;
	ibv_wr_start(ex.qp);
	ibv_wr_rdma_write(ex.qp, r->mr->rkey, at + 4096);
	ibv_wr_set_sge(ex.qp, r->mr->lkey, at, 8);
	assert_int_equal(ibv_wr_complete(ex.qp), 0);
	/* The only one that was posted. */
	assert_int_equal(rig_await(ex.cq).wr_id, 9);
	drop_ex(&ex);
	ex = make_ex(r, IBV_QP_EX_WITH_TSO);
	assert_null(ex.qp);
	assert_int_equal(errno, EOPNOTSUPP);
	drop_ex(&ex);
}

static void query_returns_what_was_set(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 16, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	rig_connect_self(qp);
	assert_int_equal(ibv_query_qp(qp, &attr, ~0, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(attr.dest_qp_num, qp->qp_num);
	assert_int_equal(attr.rq_psn, 7);
	assert_int_equal(attr.sq_psn, 7);
	assert_int_equal(attr.max_dest_rd_atomic, 4);
	assert_int_equal(attr.max_rd_atomic, 4);
	assert_int_equal(attr.min_rnr_timer, 1);
	assert_int_equal(attr.timeout, 12);
	assert_int_equal(attr.retry_cnt, 7);
	assert_int_equal(attr.rnr_retry, 7);
	assert_int_equal(attr.port_num, 1);
	assert_int_equal(attr.ah_attr.is_global, 1);
	assert_int_equal(attr.ah_attr.grh.hop_limit, 1);
	assert_ptr_equal(init.send_cq, cq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	assert_true(init.cap.max_send_wr >= 16 && init.cap.max_inline_data >= 64);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* A datagram to oneself by this GID; the answer goes to the address the GRH area names. */
static void ask_and_answer(struct rig *r, uint8_t gid_index)
{
	struct ibv_cq *cq = rig_cq(r, 16, NULL);
	struct ibv_qp *a = rig_qp(r, IBV_QPT_UD, cq, cq, NULL),
		      *b = rig_qp(r, IBV_QPT_UD, cq, cq, NULL);
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .sgid_index = gid_index, .hop_limit = 3 } };
	struct ibv_sge sge = { (uintptr_t)r->buffer, 100, r->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = 0
	};
	struct ibv_send_wr *bad;
	struct ibv_ah *ah, *back;
	struct ibv_wc wc;

	rig_connect(a, b);
	assert_int_equal(ibv_query_gid(r->ctx, 1, gid_index, &attr.grh.dgid), 0);
	ah = ibv_create_ah(r->pd, &attr);
	assert_non_null(ah);
	memset(r->buffer, 0x5a, 100);
	assert_int_equal(rig_post_recv(r, b, 1, 4096, 140), 0);
	assert_int_equal(rig_post_recv(r, a, 2, 8192, 140), 0);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b->qp_num;
	wr.wr.ud.remote_qkey = 0x1234;
	assert_int_equal(ibv_post_send(a, &wr, &bad), 0);
	wc = rig_await(cq);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.byte_len, 140);
	assert_int_equal(wc.src_qp, a->qp_num);
	assert_true(wc.wc_flags & IBV_WC_GRH);
	assert_memory_equal(r->buffer + 4096 + 40, r->buffer, 100);
	back = ibv_create_ah_from_wc(r->pd, &wc, (struct ibv_grh *)(r->buffer + 4096), 1);
	assert_non_null(back);
	assert_int_equal(
		ibv_init_ah_from_wc(r->ctx, 1, &wc, (struct ibv_grh *)(r->buffer + 4096), &attr),
		0);
	assert_int_equal(attr.grh.sgid_index, gid_index);
	wr.wr.ud.ah = back;
	wr.wr.ud.remote_qpn = wc.src_qp;
	assert_int_equal(ibv_post_send(b, &wr, &bad), 0);
	wc = rig_await(cq);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.src_qp, b->qp_num);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_destroy_ah(back), 0);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void datagrams(void **state)
{
	struct rig *r = *state;
	struct ibv_gid_entry table[64];
	ssize_t n = ibv_query_gid_table(r->ctx, table, 64, 0);

	assert_true(n >= 1);
	for (ssize_t i = 0; i < n; i++)
		ask_and_answer(r, (uint8_t)table[i].gid_index);
}

static int receive_from_group(struct rig *r, struct ibv_cq *cq, struct ibv_qp *sender,
			      struct ibv_ah *ah, int members)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer, 32, r->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	int got = 0;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = 0x1234;
	assert_int_equal(ibv_post_send(sender, &wr, &bad), 0);
	for (int i = 0; i < members + 1; i++) {
		struct ibv_wc wc = rig_await(cq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		got += wc.opcode == IBV_WC_RECV;
	}
	return got;
}

/* Every attached queue pair gets the group's datagram, once; the others and the detached don't. */
static void multicast(void **state)
{
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, 239, 1, 2, 3 } }, unicast;
	struct ibv_qp *member[2], *stranger;
	struct rig *r = *state;
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &unicast), 0);
	must_run("ip route add 239.0.0.0/8 dev lo");
	stranger = rig_qp(r, IBV_QPT_UD, cq, cq, NULL);
	for (int i = 0; i < 2; i++)
		member[i] = rig_qp(r, IBV_QPT_UD, cq, cq, NULL);
	rig_connect(member[0], member[1]);
	rig_connect_self(stranger);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rig_post_recv(r, stranger, 9, 4096, 200), 0);
		assert_int_equal(rig_post_recv(r, member[0], 2, 4096, 200), 0);
		assert_int_equal(rig_post_recv(r, member[1], 3, 8192, 200), 0);
	}
	assert_int_equal(ibv_attach_mcast(member[0], &unicast, 0), EINVAL);
	assert_int_equal(ibv_detach_mcast(member[0], &group, 0), EINVAL);
	assert_int_equal(ibv_attach_mcast(member[0], &group, 0), 0);
	assert_int_equal(ibv_attach_mcast(member[0], &group, 0), 0);
	assert_int_equal(ibv_attach_mcast(member[1], &group, 0), 0);
	attr.grh.dgid = group;
	ah = ibv_create_ah(r->pd, &attr);
	assert_non_null(ah);
	assert_int_equal(receive_from_group(r, cq, member[0], ah, 2), 2);
	assert_int_equal(ibv_detach_mcast(member[1], &group, 0), 0);
	assert_int_equal(receive_from_group(r, cq, stranger, ah, 1), 1);
	/* Destroying is detaching. */
	assert_int_equal(ibv_destroy_ah(ah), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(ibv_destroy_qp(member[i]), 0);
	assert_int_equal(ibv_destroy_qp(stranger), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* One group on two interfaces: a member hears what comes on its own. */
static void multicast_on_its_interface(void **state)
{
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, 239, 1, 2, 4 } };
	struct ibv_ah_attr to_group = { .is_global = 1, .port_num = 1, .grh = { .dgid = group } };
	struct ibv_ah_attr back = to_group;
	struct rig *r = *state, other = { .ctx = rig_open("d0"), .buffer = r->buffer };
	struct ibv_cq *cq = rig_cq(r, 8, NULL), *other_cq = rig_cq(&other, 8, NULL);
	struct ibv_qp *here, *there;
	struct ibv_send_wr wr = { .wr_id = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	other.pd = ibv_alloc_pd(other.ctx);
	other.mr = ibv_reg_mr(other.pd, other.buffer, RIG_BUFFER, RIG_ALL_ACCESS);
	here = rig_qp(r, IBV_QPT_UD, cq, cq, NULL);
	there = rig_qp(&other, IBV_QPT_UD, other_cq, other_cq, NULL);
	rig_connect_self(here);
	rig_connect_self(there);
	must_run("ip route replace 239.0.0.0/8 dev lo");
	assert_int_equal(ibv_attach_mcast(here, &group, 0), 0);
	assert_int_equal(ibv_attach_mcast(there, &group, 0), 0);
	assert_int_equal(rig_post_recv(r, here, 2, 4096, 200), 0);
	assert_int_equal(rig_post_recv(&other, there, 3, 8192, 200), 0);
	wr.wr.ud.ah = ibv_create_ah(r->pd, &to_group);
	wr.wr.ud.remote_qpn = 0xffffff;
	wr.wr.ud.remote_qkey = 0x1234;
	assert_int_equal(ibv_post_send(here, &wr, &bad), 0);
	rig_await_n(cq, 2);
	assert_int_equal(ibv_destroy_ah(wr.wr.ud.ah), 0);
	/* What it hears first is what it tells itself: 8 bytes. */
	assert_int_equal(ibv_query_gid(other.ctx, 1, 0, &back.grh.dgid), 0);
	wr.wr.ud.ah = ibv_create_ah(other.pd, &back);
	wr.wr.ud.remote_qpn = there->qp_num;
	wr.sg_list = &(struct ibv_sge){ (uintptr_t)other.buffer, 8, other.mr->lkey };
	wr.num_sge = 1;
	assert_int_equal(ibv_post_send(there, &wr, &bad), 0);
	do
		wc = rig_await(other_cq);
	while (wc.opcode != IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 48);
	assert_int_equal(ibv_destroy_ah(wr.wr.ud.ah), 0);
	assert_int_equal(ibv_destroy_qp(here), 0);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* A child that looks at everything and exits, or execs, leaves the parent's traffic alone. */
static void fork_does_no_harm(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);

	assert_int_equal(ibv_fork_init(), 0);
	rig_connect_self(qp);
	for (int round = 0; round < 4; round++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			struct ibv_wc wc;

			if (round & 1)
				execlp("true", "true", (char *)NULL);
			if (rig_post_send(r, qp, 0, 0, 8, 0) != EPERM ||
			    ibv_poll_cq(cq, 1, &wc) != 0 || ibv_alloc_pd(r->ctx) ||
			    ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_close_device(r->ctx))
				_exit(1);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(rig_post_recv(r, qp, 0, 4096, 64), 0);
		assert_int_equal(rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED), 0);
		rig_await_n(cq, 2);
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

#ifndef __SANITIZE_THREAD__
/* A child may open the device for itself. */
static void child_with_a_context_of_its_own(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		void *own;
		struct rig *r;
		struct ibv_cq *cq;
		struct ibv_qp *qp;

		rig_setup(&own);
		r = own;
		cq = rig_cq(r, 16, NULL);
		qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
		rig_connect_self(qp);
		rig_post_recv(r, qp, 0, 4096, 64);
		rig_post_send(r, qp, 0, 0, 8, IBV_SEND_SIGNALED);
		rig_await_n(cq, 2);
		_exit(ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || rig_teardown(&own) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static _Atomic bool stop_opening;

static void *open_and_close(void *arg)
{
	while (!atomic_load(&stop_opening))
		ibv_close_device(rig_open("lo"));
	return arg;
}

/* Whatever the other threads are in the middle of: the child finds no lock taken for ever. */
__attribute__((unused)) static void forked_amid_opening(void **state)
{
	pthread_t thread;

	(void)state;
	atomic_store(&stop_opening, false);
	assert_int_equal(pthread_create(&thread, NULL, open_and_close, NULL), 0);
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			alarm(20);
			_exit(ibv_close_device(rig_open("lo")));
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	atomic_store(&stop_opening, true);
	pthread_join(thread, NULL);
}
#endif

static void two_contexts_of_one_device(void **state)
{
	struct rig *r = *state;
	struct ibv_context *second = rig_open("lo");
	struct ibv_pd *pd = ibv_alloc_pd(second);
	struct ibv_cq *theirs = ibv_create_cq(second, 8, NULL, NULL, 0), *cq = rig_cq(r, 8, NULL);
	struct ibv_qp_init_attr attr = {
		.send_cq = theirs, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 }
	};

	assert_ptr_equal(second->device, r->ctx->device);
	/* Objects don't mix. */
	assert_null(ibv_create_qp(r->pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_cq(theirs), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(second), 0);
	for (int i = 0; i < 200; i++)
		assert_int_equal(ibv_close_device(rig_open("lo")), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(wr_family),
		TEST(wr_batches_are_atomic),
		TEST(query_returns_what_was_set),
		TEST(datagrams),
		TEST(multicast),
		TEST(multicast_on_its_interface),
		TEST(fork_does_no_harm),
#ifndef __SANITIZE_THREAD__ /* which doesn't know threads of a forked child */
		TEST(child_with_a_context_of_its_own),
#ifndef __SANITIZE_ADDRESS__ /* whose allocator's locks a forked child inherits as they are */
		cmocka_unit_test(forked_amid_opening),
#endif
#endif
		TEST(two_contexts_of_one_device),
	};

	rig_isolate();
	namespace_add_link();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
