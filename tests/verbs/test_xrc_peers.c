/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An XRC domain that several processes have open, once through shared memory and once over UDP:
 *
 *   this process: the initiators ---> "middle": targets ---> "far": the SRQs that messages name
 *
 * The two others are forked before anything is opened. All follow one script, step by step, on a
 * page that they share.
 */
#include "rig.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT	 4096 /* where messages arrive */
#define STEP_MAX 40   /* seconds */

enum { NEAR, MIDDLE, FAR };

struct board {
	_Atomic int step;
	uint32_t initiator[2], target[2]; /* numbers */
	uint32_t private_target;
	uint32_t far_srqn, other_srqn, middle_srqn;
	uint32_t far_rkey, middle_rkey;
	uint64_t far_buffer, middle_buffer;
};

static struct board *board;
static int domain_fd;
static pid_t children[2];
static bool is_child;

static void say(int step)
{
	atomic_store(&board->step, step);
}

static void await(int step)
{
	for (int i = 0; i < STEP_MAX * 1000 && atomic_load(&board->step) < step; i++)
		usleep(1000);
	assert_true(atomic_load(&board->step) >= step);
}

static struct ibv_xrcd *open_domain(struct ibv_context *ctx, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = domain_fd,
		.oflags = oflags,
	};

	errno = 0;
	return ibv_open_xrcd(ctx, &attr);
}

/* One end's objects; what a part doesn't need stays NULL. */
struct end {
	struct rig *r;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp[2];
};

static void open_end(struct end *e)
{
	void *r;

	assert_int_equal(rig_setup(&r), 0);
	*e = (struct end){ .r = r };
	e->cq = rig_cq(e->r, 64, NULL);
}

static struct ibv_srq *make_srq(struct end *e, struct ibv_xrcd *xrcd, uint32_t *srqn)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 32, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = e->r->pd,
		.xrcd = xrcd,
		.cq = e->cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(e->r->ctx, &attr);

	assert_non_null(srq);
	assert_int_equal(ibv_get_srq_num(srq, srqn), 0);
	return srq;
}

static void close_end(struct end *e)
{
	void *r = e->r;

	for (int i = 0; i < 2; i++)
		if (e->qp[i])
			assert_int_equal(ibv_destroy_qp(e->qp[i]), 0);
	if (e->srq)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	if (e->xrcd)
		assert_int_equal(ibv_close_xrcd(e->xrcd), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	rig_teardown(&r);
}

static void post(struct end *e, uint64_t id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)e->r->buffer + offset, len, e->r->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_srq_recv(e->srq, &wr, &bad), 0);
}

/* Patient: three processes and all that runs beside them share few processors. */
static void to_rts(struct ibv_qp *qp, unsigned rnr_retry)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = 7,
				    .max_rd_atomic = 4,
				    .timeout = 17,
				    .retry_cnt = 7,
				    .rnr_retry = (uint8_t)rnr_retry };

	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
					       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY),
			 0);
}

/* Steps 1 to 4: everybody is connected and knows everybody's numbers. */
static void open_far(struct end *e)
{
	open_end(e);
	e->xrcd = open_domain(e->r->ctx, O_CREAT | O_EXCL);
	assert_non_null(e->xrcd);
	e->srq = make_srq(e, e->xrcd, &board->far_srqn);
	board->far_rkey = e->r->mr->rkey;
	board->far_buffer = (uintptr_t)e->r->buffer;
	say(1);
}

static void open_middle(struct end *e)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};

	open_end(e);
	await(1);
	e->xrcd = open_domain(e->r->ctx, 0);
	assert_non_null(e->xrcd);
	e->srq = make_srq(e, e->xrcd, &board->middle_srqn);
	board->middle_rkey = e->r->mr->rkey;
	board->middle_buffer = (uintptr_t)e->r->buffer;
	attr.xrcd = e->xrcd;
	for (int i = 0; i < 2; i++) {
		e->qp[i] = ibv_create_qp_ex(e->r->ctx, &attr);
		assert_non_null(e->qp[i]);
		board->target[i] = e->qp[i]->qp_num;
		assert_int_equal(rig_to_init(e->qp[i]), 0);
	}
	say(2);
	await(3);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rig_to_rtr(e->qp[i], board->initiator[i]), 0);
	say(4);
}

static void open_near_with(struct end *e, unsigned rnr_retry)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_XRC_SEND,
		.cap = { .max_send_wr = 64, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};

	open_end(e);
	attr.pd = e->r->pd;
	attr.send_cq = e->cq;
	await(2);
	for (int i = 0; i < 2; i++) {
		e->qp[i] = ibv_create_qp_ex(e->r->ctx, &attr);
		assert_non_null(e->qp[i]);
		board->initiator[i] = e->qp[i]->qp_num;
		assert_int_equal(rig_to_init(e->qp[i]), 0);
		assert_int_equal(rig_to_rtr(e->qp[i], board->target[i]), 0);
		to_rts(e->qp[i], rnr_retry);
	}
	say(3);
	await(4);
}

static void open_near(struct end *e)
{
	open_near_with(e, 7);
}

struct request {
	enum ibv_wr_opcode opcode;
	uint32_t srqn, len, imm, rkey;
	uint64_t remote;
	unsigned flags;
};

static void request(struct end *e, int qp, struct request q)
{
	struct ibv_sge sge = { (uintptr_t)e->r->buffer, q.len, e->r->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = q.opcode,
		.send_flags = IBV_SEND_SIGNALED | q.flags,
		.imm_data = htobe32(q.imm),
	};
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = q.remote;
	wr.wr.rdma.rkey = q.rkey;
	wr.qp_type.xrc.remote_srqn = q.srqn;
	assert_int_equal(ibv_post_send(e->qp[qp], &wr, &bad), 0);
}

static enum ibv_wc_status run(struct end *e, int qp, struct request q)
{
	request(e, qp, q);
	return rig_await(e->cq).status;
}

static struct request to(uint32_t srqn, uint32_t len)
{
	return (struct request){ .opcode = IBV_WR_SEND, .srqn = srqn, .len = len };
}

static void fill(struct end *e, uint32_t offset, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		e->r->buffer[offset + i] = (uint8_t)(seed + i * 7);
}

static void expect_filled(struct end *e, uint32_t offset, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		if (e->r->buffer[offset + i] != (uint8_t)(seed + i * 7))
			fail_msg("byte %u of %u is wrong", i, len);
}

/* The parts, and how they run. */

typedef void part(void);

static pid_t start(part *p)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child)
		return child;
	is_child = true;
	p();
	_exit(0);
}

static void perform(part *near, part *middle, part *far)
{
	char name[] = "xrc-domain-XXXXXX";
	int status;

	/* cmocka goes on with the next test after a failed assertion, in a child as well. */
	if (is_child)
		_exit(1);
	*board = (struct board){ .step = 0 };
	domain_fd = mkstemp(name);
	assert_true(domain_fd >= 0);
	assert_int_equal(unlink(name), 0);
	children[0] = start(middle);
	children[1] = start(far);
	near();
	for (int i = 0; i < 2; i++) {
		if (!children[i])
			continue;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
		children[i] = 0;
	}
	close(domain_fd);
}

/* A test that failed leaves nobody behind. */
static int reap(void **state)
{
	(void)state;
	for (int i = 0; i < 2 && !is_child; i++) {
		if (!children[i])
			continue;
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
		children[i] = 0;
	}
	return 0;
}

static void stop_far(void)
{
	int status;

	assert_int_equal(kill(children[1], SIGSTOP), 0);
	assert_int_equal(waitpid(children[1], &status, WUNTRACED), children[1]);
	assert_true(WIFSTOPPED(status));
}

static void kill_far(void)
{
	assert_int_equal(kill(children[1], SIGKILL), 0);
	assert_int_equal(waitpid(children[1], NULL, 0), children[1]);
	children[1] = 0;
}

/* The middle's part of most tests: it does nothing but be there, till step 1000. */
static void middle_is_there(void)
{
	struct end e;

	open_middle(&e);
	await(1000);
	close_end(&e);
}

/* Every kind and size. */

static const uint32_t sizes[] = { 0, 1, 64, 1024, 1025, 5001, 32768, 130000 };
#define SIZES (int)(sizeof(sizes) / sizeof(sizes[0]))

static void kinds_near(void)
{
	struct end e;

	open_near(&e);
	for (int i = 0; i < SIZES; i++) {
		struct request q = to(board->far_srqn, sizes[i]);

		fill(&e, 0, q.len, (unsigned)i);
		await(10 + 4 * i); /* the receives are there */
		assert_int_equal(run(&e, 0, q), IBV_WC_SUCCESS);
		say(11 + 4 * i);
		await(12 + 4 * i);
		q.opcode = IBV_WR_SEND_WITH_IMM;
		q.imm = 77;
		assert_int_equal(run(&e, 0, q), IBV_WC_SUCCESS);
		q.opcode = IBV_WR_RDMA_WRITE;
		q.remote = board->far_buffer + AT;
		q.rkey = board->far_rkey;
		assert_int_equal(run(&e, 0, q), IBV_WC_SUCCESS);
		q.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		q.imm = 78;
		assert_int_equal(run(&e, 0, q), IBV_WC_SUCCESS);
		say(13 + 4 * i);
	}
	await(1000);
	close_end(&e);
}

static void kinds_far(void)
{
	struct end e;
	struct ibv_wc wc;

	open_far(&e);
	await(4);
	for (int i = 0; i < SIZES; i++) {
		memset(e.r->buffer, 0xee, RIG_BUFFER);
		post(&e, 1, AT, 130000);
		say(10 + 4 * i);
		await(11 + 4 * i);
		wc = rig_await(e.cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, sizes[i]);
		assert_int_equal(wc.qp_num, board->target[0]);
		assert_int_equal(wc.src_qp, board->far_srqn);
		assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, 0);
		expect_filled(&e, AT, sizes[i], (unsigned)i);
		assert_int_equal(e.r->buffer[AT + sizes[i]], 0xee);
		memset(e.r->buffer, 0xee, RIG_BUFFER);
		post(&e, 2, AT, 130000);
		post(&e, 3, 0, 1);
		say(12 + 4 * i);
		await(13 + 4 * i);
		wc = rig_await(e.cq);
		assert_int_equal(wc.imm_data, htobe32(77));
		wc = rig_await(e.cq);
		assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		assert_int_equal(wc.imm_data, htobe32(78));
		assert_int_equal(wc.byte_len, sizes[i]);
		expect_filled(&e, AT, sizes[i], (unsigned)i);
	}
	say(1000);
	close_end(&e);
}

static void every_kind(void **state)
{
	(void)state;
	perform(kinds_near, middle_is_there, kinds_far);
}

/* SRQs of two processes, in turn on one connection. */

#define TURNS	  60
#define LEN_OF(i) (uint32_t)(1 + (i)*37)

static void turns_near(void)
{
	struct end e;

	open_near(&e);
	await(10);
	for (int i = 0; i < TURNS; i++) {
		uint32_t srqn = i % 3 == 1 ? board->middle_srqn : board->far_srqn;

		request(&e, 0, to(srqn, LEN_OF(i)));
	}
	rig_await_n(e.cq, TURNS);
	say(11);
	await(1000);
	close_end(&e);
}

static void turns_receive(struct end *e, bool middle)
{
	for (int i = 0; i < TURNS; i++) {
		struct ibv_wc wc;

		if ((i % 3 == 1) != middle)
			continue;
		wc = rig_await(e->cq);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, LEN_OF(i));
		assert_int_equal(wc.qp_num, board->target[0]);
		post(e, wc.wr_id, AT, 8192);
	}
}

static void turns_middle(void)
{
	struct end e;

	open_middle(&e);
	for (int i = 0; i < 32; i++)
		post(&e, 1, AT, 8192);
	say(9);
	turns_receive(&e, true);
	await(1000);
	close_end(&e);
}

static void turns_far(void)
{
	struct end e;

	open_far(&e);
	for (int i = 0; i < 32; i++)
		post(&e, 1, AT, 8192);
	await(9);
	say(10);
	turns_receive(&e, false);
	await(11);
	say(1000);
	close_end(&e);
}

static void in_turn(void **state)
{
	(void)state;
	perform(turns_near, turns_middle, turns_far);
}

/* No receive there: the initiator waits, or is told. */

static void empty_near(void)
{
	struct end e;

	open_near_with(&e, 7);
	fill(&e, 0, 3000, 5);
	request(&e, 0, to(board->far_srqn, 3000));
	usleep(20000); /* meanwhile it meets an empty queue */
	assert_int_equal(ibv_poll_cq(e.cq, 1, &(struct ibv_wc){ 0 }), 0);
	say(10);
	assert_int_equal(rig_await(e.cq).status, IBV_WC_SUCCESS);
	await(1000);
	close_end(&e);
}

static void empty_far(void)
{
	struct end e;

	open_far(&e);
	await(10);
	post(&e, 9, AT, 3000);
	assert_int_equal(rig_await(e.cq).wr_id, 9);
	expect_filled(&e, AT, 3000, 5);
	say(1000);
	close_end(&e);
}

static void waits_for_receive(void **state)
{
	(void)state;
	perform(empty_near, middle_is_there, empty_far);
}

static void rnr_near(void)
{
	struct end e;

	open_near_with(&e, 1);
	assert_int_equal(run(&e, 0, to(board->far_srqn, 3000)), IBV_WC_RNR_RETRY_EXC_ERR);
	say(1000);
	close_end(&e);
}

static void far_is_there(void)
{
	struct end e;

	open_far(&e);
	await(1000);
	close_end(&e);
}

/* The target is as good as before. */
static void rnr_middle(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end e;

	open_middle(&e);
	await(1000);
	assert_int_equal(ibv_query_qp(e.qp[0], &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTR);
	close_end(&e);
}

static void tells_of_no_receive(void **state)
{
	(void)state;
	perform(rnr_near, rnr_middle, far_is_there);
}

/* What the SRQ's process finds wrong ends as it does within one. */

static void faults_near(void)
{
	struct end e;
	struct request q;

	open_near(&e);
	await(10);
	/* Too long for the receive, on the first connection; a wrong key on the second. */
	assert_int_equal(run(&e, 0, to(board->far_srqn, 3000)), IBV_WC_REM_INV_REQ_ERR);
	q = to(board->far_srqn, 100);
	q.opcode = IBV_WR_RDMA_WRITE;
	q.remote = board->far_buffer;
	q.rkey = board->far_rkey ^ 0x1100;
	assert_int_equal(run(&e, 1, q), IBV_WC_REM_ACCESS_ERR);
	say(11);
	await(1000);
	close_end(&e);
}

static void faults_middle(void)
{
	struct ibv_async_event event;
	struct end e;

	open_middle(&e);
	event = rig_await_event(e.r->ctx, IBV_EVENT_QP_REQ_ERR);
	assert_ptr_equal(event.element.qp, e.qp[0]);
	ibv_ack_async_event(&event);
	event = rig_await_event(e.r->ctx, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, e.qp[1]);
	ibv_ack_async_event(&event);
	event = rig_await_event(e.r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED);
	ibv_ack_async_event(&event);
	await(11);
	say(1000);
	close_end(&e);
}

static void faults_far(void)
{
	struct end e;
	struct ibv_wc wc;

	open_far(&e);
	post(&e, 4, AT, 2500);
	await(4);
	say(10);
	wc = rig_await(e.cq);
	assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(wc.wr_id, 4);
	await(1000);
	assert_int_equal(ibv_poll_cq(e.cq, 1, &wc), 0);
	close_end(&e);
}

static void faults(void **state)
{
	(void)state;
	perform(faults_near, faults_middle, faults_far);
}

/* Numbers that lead to the other process, but not to an SRQ of the domain. */

static void numbers_near(void)
{
	struct end e;

	open_near(&e);
	await(10);
	assert_int_equal(run(&e, 0, to(board->far_srqn ^ 0x800, 10)), IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(run(&e, 1, to(board->other_srqn, 10)), IBV_WC_REM_INV_REQ_ERR);
	say(1000);
	close_end(&e);
}

/* Of its own: nobody else knows it. */
static struct ibv_xrcd *private_domain(struct end *e)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(e->r->ctx, &attr);

	assert_non_null(xrcd);
	return xrcd;
}

static void numbers_far(void)
{
	struct ibv_xrcd *xrcd;
	struct ibv_srq *other;
	struct end e;

	open_far(&e);
	xrcd = private_domain(&e);
	other = make_srq(&e, xrcd, &board->other_srqn);
	post(&e, 1, AT, 100);
	await(4);
	say(10);
	await(1000);
	assert_int_equal(ibv_poll_cq(e.cq, 1, &(struct ibv_wc){ 0 }), 0);
	assert_int_equal(ibv_destroy_srq(other), 0);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	close_end(&e);
}

static void wrong_numbers(void **state)
{
	(void)state;
	perform(numbers_near, middle_is_there, numbers_far);
}

/* READs and atomics of another process's memory are refused, and do nothing. */

static void refused_near(void)
{
	struct end e;
	struct request q;

	open_near(&e);
	q = to(board->far_srqn, 8);
	q.opcode = IBV_WR_RDMA_READ;
	q.remote = board->far_buffer;
	q.rkey = board->far_rkey;
	assert_int_equal(run(&e, 0, q), IBV_WC_REM_INV_REQ_ERR);
	say(1000);
	close_end(&e);
}

static void reads_are_refused(void **state)
{
	(void)state;
	perform(refused_near, middle_is_there, far_is_there);
}

/* The SRQ's process is stopped while a message waits for it, and killed: the initiator hears of it, and all
 * other connections of the target's process go on. */

static void killed_near(void)
{
	struct end e;

	open_near(&e);
	await(10);
	assert_int_equal(run(&e, 0, to(board->far_srqn, 5001)), IBV_WC_SUCCESS);
	stop_far();
	request(&e, 0, to(board->far_srqn, 5001));
	assert_int_equal(run(&e, 1, to(board->middle_srqn, 10)), IBV_WC_SUCCESS);
	kill_far();
	assert_int_equal(rig_await(e.cq).status, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(run(&e, 1, to(board->middle_srqn, 10)), IBV_WC_SUCCESS);
	/* Nobody has the number any more. */
	assert_int_equal(run(&e, 1, to(board->far_srqn, 10)), IBV_WC_REM_INV_REQ_ERR);
	say(1000);
	close_end(&e);
}

static void killed_middle(void)
{
	struct end e;

	open_middle(&e);
	post(&e, 1, AT, 10);
	post(&e, 2, AT, 10);
	await(9);
	say(10);
	rig_await_n(e.cq, 2);
	/* The domain is still open, here. */
	assert_null(open_domain(e.r->ctx, O_CREAT | O_EXCL));
	assert_int_equal(errno, EINVAL);
	await(1000);
	close_end(&e);
}

static void killed_far(void)
{
	struct end e;

	open_far(&e);
	post(&e, 1, AT, 6000);
	post(&e, 2, AT, 6000);
	await(4);
	say(9);
	await(1000);
}

static void killed(void **state)
{
	(void)state;
	perform(killed_near, killed_middle, killed_far);
}

/* A process that is only slow is waited for. */

static void stopped_near(void)
{
	struct end e;

	open_near(&e);
	await(10);
	stop_far();
	for (int i = 0; i < 20; i++)
		request(&e, i % 2, to(board->far_srqn, 2000));
	usleep(300000); /* longer than a question waits */
	assert_int_equal(ibv_poll_cq(e.cq, 1, &(struct ibv_wc){ 0 }), 0);
	assert_int_equal(kill(children[1], SIGCONT), 0);
	rig_await_n(e.cq, 20);
	say(1000);
	close_end(&e);
}

static void stopped_far(void)
{
	struct end e;

	open_far(&e);
	for (int i = 0; i < 20; i++)
		post(&e, 1, AT, 2000);
	await(4);
	say(10);
	rig_await_n(e.cq, 20);
	await(1000);
	close_end(&e);
}

static void stopped(void **state)
{
	(void)state;
	perform(stopped_near, middle_is_there, stopped_far);
}

/* Handles of one process on the target of another. */

static struct ibv_qp *open_target(struct end *e, uint32_t qpn)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
			     IBV_QP_OPEN_ATTR_CONTEXT,
		.qp_num = qpn,
		.xrcd = e->xrcd,
		.qp_context = e,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	errno = 0;
	return ibv_open_qp(e->r->ctx, &attr);
}

static void handles_near(void)
{
	struct end e;

	open_near(&e);
	await(10);
	assert_int_equal(run(&e, 0, to(board->far_srqn, 100)), IBV_WC_SUCCESS);
	say(11);
	await(12);
	/* The other process's handle keeps it. */
	assert_int_equal(run(&e, 0, to(board->far_srqn, 100)), IBV_WC_SUCCESS);
	assert_int_equal(run(&e, 1, to(board->far_srqn ^ 0x800, 1)), IBV_WC_REM_INV_REQ_ERR);
	say(13);
	await(1000);
	close_end(&e);
}

/* The target goes soon after its last handle in another process. */
static void await_no_target(struct end *e, uint32_t qpn)
{
	struct ibv_qp *qp;

	for (int i = 0; i < STEP_MAX * 100 && (qp = open_target(e, qpn)); i++) {
		assert_int_equal(ibv_destroy_qp(qp), 0);
		usleep(10000);
	}
	assert_null(open_target(e, qpn));
	assert_int_equal(errno, EINVAL);
}

static void handles_middle(void)
{
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_XRC_RECV,
					  .comp_mask = IBV_QP_INIT_ATTR_XRCD };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *private;
	struct end e;

	open_middle(&e);
	ex.xrcd = private_domain(&e);
	private = ibv_create_qp_ex(e.r->ctx, &ex);
	assert_non_null(private);
	board->private_target = private->qp_num;
	say(9);
	await(11);
	assert_int_equal(ibv_destroy_qp(private), 0);
	assert_int_equal(ibv_close_xrcd(ex.xrcd), 0);
	/* The other process did that. */
	assert_int_equal(ibv_query_qp(e.qp[0], &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
	e.qp[0] = open_target(&e, board->target[0]);
	assert_non_null(e.qp[0]);
	assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
	e.qp[0] = NULL;
	say(12);
	await(14);
	await_no_target(&e, board->target[0]);
	say(1000);
	close_end(&e);
}

static void expect_event(struct end *e, struct ibv_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event event = rig_await_event(e->r->ctx, type);

	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
}

static void handles_far(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end e;

	open_far(&e);
	post(&e, 1, AT, 100);
	post(&e, 2, AT, 100);
	await(9);
	e.qp[0] = open_target(&e, board->target[0]);
	e.qp[1] = open_target(&e, board->target[1]);
	assert_non_null(e.qp[0]);
	assert_non_null(e.qp[1]);
	assert_int_equal(e.qp[0]->qp_num, board->target[0]);
	assert_int_equal(e.qp[0]->state, IBV_QPS_RTR);
	assert_ptr_equal(e.qp[0]->qp_context, &e);
	assert_int_equal(rig_to_rts(e.qp[0]), 0);
	assert_int_equal(e.qp[0]->state, IBV_QPS_RTS);
	/* What it may not do, its process says. */
	assert_int_equal(rig_to_init(e.qp[0]), EINVAL);
	assert_int_equal(ibv_query_qp(e.qp[0], &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.dest_qp_num, board->initiator[0]);
	assert_int_equal(init.qp_type, IBV_QPT_XRC_RECV);
	assert_int_equal(ibv_query_qp(e.qp[1], &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.dest_qp_num, board->initiator[1]);
	assert_int_equal(attr.qp_state, IBV_QPS_RTR);
	/* No target of the domain has these numbers: another domain's, and nobody's, there and anywhere. */
	assert_null(open_target(&e, board->private_target));
	assert_int_equal(errno, EINVAL);
	assert_null(open_target(&e, board->target[0] ^ 0x800));
	assert_int_equal(errno, EINVAL);
	assert_null(open_target(&e, board->target[0] ^ 0x800000));
	assert_int_equal(errno, EINVAL);
	say(10);
	rig_await_n(e.cq, 2);
	await(13);
	expect_event(&e, e.qp[1], IBV_EVENT_QP_REQ_ERR);
	expect_event(&e, e.qp[1], IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
	assert_int_equal(ibv_destroy_qp(e.qp[1]), 0);
	e.qp[0] = e.qp[1] = NULL;
	say(14);
	await(1000);
	close_end(&e);
}

static void handles(void **state)
{
	(void)state;
	perform(handles_near, handles_middle, handles_far);
}

static void opener_dies_near(void)
{
	struct end e;

	open_near(&e);
	await(11);
	kill_far();
	say(12);
	await(1000);
	close_end(&e);
}

static void opener_dies_middle(void)
{
	struct end e;

	open_middle(&e);
	await(10);
	assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
	e.qp[0] = open_target(&e, board->target[0]);
	assert_non_null(e.qp[0]);
	assert_int_equal(ibv_destroy_qp(e.qp[0]), 0);
	e.qp[0] = NULL;
	say(11);
	await(12);
	await_no_target(&e, board->target[0]);
	say(1000);
	close_end(&e);
}

static void opener_far(void)
{
	struct end e;

	open_far(&e);
	await(4);
	assert_non_null(open_target(&e, board->target[0]));
	say(10);
	await(1000);
}

static void opener_dies(void **state)
{
	(void)state;
	perform(opener_dies_near, opener_dies_middle, opener_far);
}

/* The target goes with the context that created it, though its process has another. */
static void creator_ends_middle(void)
{
	struct ibv_context *other;
	struct end e;

	open_middle(&e);
	other = rig_open("lo");
	await(10);
	close_end(&e);
	say(11);
	await(1000);
	assert_int_equal(ibv_close_device(other), 0);
}

static void creator_ends_far(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end e;

	open_far(&e);
	await(4);
	e.qp[0] = open_target(&e, board->target[0]);
	assert_non_null(e.qp[0]);
	say(10);
	await(11);
	assert_int_equal(ibv_query_qp(e.qp[0], &attr, IBV_QP_STATE, &init), EIO);
	assert_int_equal(rig_to_rts(e.qp[0]), EIO);
	assert_null(open_target(&e, board->target[0]));
	assert_int_equal(errno, EINVAL);
	say(1000);
	close_end(&e);
}

static void creator_ends_near(void)
{
	struct end e;

	open_near(&e);
	await(1000);
	close_end(&e);
}

static void creator_ends(void **state)
{
	(void)state;
	perform(creator_ends_near, creator_ends_middle, creator_ends_far);
}

/* Messages as the target's process sends them, but nonsense: nothing is written, and the true ones still
 * arrive. */

struct forged {
	uint8_t magic[3], version;
	uint32_t block_kind;
	uint32_t kind, qpn, srqn, count, fault, access;
	uint64_t stream, run;
	uint64_t file_dev, file_ino;
	uint32_t ifindex, reserved;
	uint8_t rest[600];
};

static void send_forged(struct forged *f, size_t len, uint32_t number)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "rocelink/%u", number >> 12);
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	assert_int_equal(sendto(fd, f, len, 0, (struct sockaddr *)&un,
				(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)),
			 len);
	close(fd);
}

static void forged_near(void)
{
	struct forged f = { .magic = { 'r', 'l', 'k' }, .version = 1, .block_kind = 5 };
	uint64_t random = 88172645463325252u;
	struct stat st;
	struct end e;

	open_near(&e);
	await(10);
	assert_int_equal(fstat(domain_fd, &st), 0);
	f.file_dev = st.st_dev;
	f.file_ino = st.st_ino;
	f.ifindex = if_nametoindex("lo");
	f.srqn = board->far_srqn;
	for (unsigned i = 0; i < 3000; i++) {
		for (unsigned k = 0; k < sizeof(f.rest); k++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			f.rest[k] = (uint8_t)random;
		}
		/* A record that is nearly right: its length, its MTU, then a header of XRC. */
		if (i % 4)
			memcpy(f.rest, (uint32_t[]){ (uint32_t)random % 600, 1024 }, 8);
		if (i % 4 > 1)
			f.rest[8] = (uint8_t)(0xa0 + i % 12);
		f.kind = i % 8 ? 1 : i % 7;
		f.qpn = i % 3 ? board->target[0] : (uint32_t)random;
		f.stream = i % 5;
		f.count = i % 2 ? 1 : (uint32_t)random;
		send_forged(&f, sizeof(f) - (i % 2 ? 0 : random % sizeof(f.rest)),
			    f.kind == 2 ? board->target[0] : board->far_srqn);
	}
	fill(&e, 0, 5001, 3);
	assert_int_equal(run(&e, 0, to(board->far_srqn, 5001)), IBV_WC_SUCCESS);
	say(1000);
	close_end(&e);
}

static void forged_far(void)
{
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	struct end e;

	open_far(&e);
	for (int i = 0; i < 32; i++)
		post(&e, 1, AT, 8000);
	await(4);
	say(10);
	/* Some SENDs of the nonsense were right by chance. */
	while (wc.status != IBV_WC_SUCCESS || wc.byte_len != 5001) {
		wc = rig_await(e.cq);
		post(&e, 1, AT, 8000);
	}
	expect_filled(&e, AT, 5001, 3);
	await(1000);
	close_end(&e);
}

static void forged_messages(void **state)
{
	(void)state;
	perform(forged_near, middle_is_there, forged_far);
}

/* Who may open the domain: the flags count over all processes. */

static void opens_near(void)
{
	struct ibv_xrcd *xrcd;
	struct end e;

	open_end(&e);
	assert_null(open_domain(e.r->ctx, 0));
	assert_int_equal(errno, EAGAIN);
	say(1);
	await(2);
	assert_null(open_domain(e.r->ctx, O_CREAT | O_EXCL));
	assert_int_equal(errno, EINVAL);
	xrcd = open_domain(e.r->ctx, 0);
	assert_non_null(xrcd);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	say(3);
	await(4);
	/* One of two has closed it; the other dies without doing so. */
	assert_null(open_domain(e.r->ctx, O_EXCL));
	assert_int_equal(errno, EINVAL);
	kill_far();
	assert_null(open_domain(e.r->ctx, 0));
	assert_int_equal(errno, EAGAIN);
	xrcd = open_domain(e.r->ctx, O_CREAT | O_EXCL);
	assert_non_null(xrcd);
	assert_int_equal(ibv_close_xrcd(xrcd), 0);
	close_end(&e);
}

static void opens_middle(void)
{
	struct end e;

	await(3);
	open_end(&e);
	e.xrcd = open_domain(e.r->ctx, O_CREAT);
	assert_non_null(e.xrcd);
	assert_int_equal(ibv_close_xrcd(e.xrcd), 0);
	e.xrcd = NULL;
	say(4);
	close_end(&e);
}

static void opens_far(void)
{
	struct end e;

	await(1);
	open_end(&e);
	e.xrcd = open_domain(e.r->ctx, O_CREAT | O_EXCL);
	assert_non_null(e.xrcd);
	say(2);
	await(1000);
}

static void exclusive_opens(void **state)
{
	(void)state;
	perform(opens_near, opens_middle, opens_far);
}

#define TEST(name) cmocka_unit_test_teardown(name, reap)

int main(void)
{
	rig_isolate();
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED)
		return 1;

	const struct CMUnitTest tests[] = {
		TEST(every_kind),	   TEST(in_turn),	  TEST(waits_for_receive),
		TEST(tells_of_no_receive), TEST(faults),	  TEST(wrong_numbers),
		TEST(reads_are_refused),   TEST(killed),	  TEST(stopped),
		TEST(exclusive_opens),	   TEST(forged_messages), TEST(handles),
		TEST(opener_dies),	   TEST(creator_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
