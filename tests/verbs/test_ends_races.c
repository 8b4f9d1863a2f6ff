/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the far end changes while the near end writes to its memory, and threads of both poll. Whatever the moment:
 * once the call has returned nothing lands there any more, and each request of the near end completes once
 * and in order, as it must.
 */
#include "ends.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEN    3000u
#define DEPTH  8
#define ROUNDS 4

static uint64_t at(const void *p)
{
	return (uintptr_t)p;
}

/* A thread that polls what has no completions, and so drives the adapter. */
struct poller {
	pthread_t thread;
	struct ibv_cq *cq;
	_Atomic bool stop;
};

static void *keep_polling(void *arg)
{
	struct poller *p = arg;
	struct ibv_wc wc;

	while (!p->stop) {
		if (ibv_poll_cq(p->cq, 1, &wc))
			return p;
		sched_yield();
	}
	return NULL;
}

static void poll_beside(struct ends *e, struct poller *p)
{
	p->cq = rig_cq(e->r, 1, NULL);
	p->stop = false;
	assert_int_equal(pthread_create(&p->thread, NULL, keep_polling, p), 0);
}

static void poll_no_more(struct poller *p)
{
	void *wrong;

	p->stop = true;
	assert_int_equal(pthread_join(p->thread, &wrong), 0);
	assert_null(wrong);
	assert_int_equal(ibv_destroy_cq(p->cq), 0);
}

/* Until one fails, which says so; those behind it are flushed. */
static enum ibv_wc_status write_until_failure(struct ends *e)
{
	struct ibv_sge sge = { at(e->r->buffer), LEN, e->r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	enum ibv_wc_status failure = IBV_WC_SUCCESS;
	struct ibv_send_wr *bad;
	uint64_t posted = 0, done = 0;

	wr.wr.rdma.remote_addr = e->peer.addr;
	wr.wr.rdma.rkey = e->peer.rkey;
	while (!failure || done < posted) {
		struct ibv_wc wc;

		while (!failure && posted < done + DEPTH) {
			wr.wr_id = posted++;
			assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
		}
		wc = rig_await(e->cq);
		assert_int_equal(wc.wr_id, done++);
		if (failure)
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		failure = failure ? failure : wc.status;
	}
	return failure;
}

/* What is written to, and where else it may be. */
struct place {
	uint8_t *memory, *elsewhere;
	struct ibv_mr *mr, *windowed;
	struct ibv_mw *mw;
	struct ibv_pd *other;
	struct rig imported;
	uint64_t addr;
	uint32_t rkey;
	int fd;
};

enum through { REGION, ZERO_BASED, DESCRIPTOR, WINDOW_1, WINDOW_2 };

/* One way to end it. `gone`: nobody is left to say so. */
struct change {
	void (*act)(struct ends *e, struct place *p);
	enum through through; /* what is written through */
	bool gone;
};

static void run_local(struct ends *e, struct ibv_send_wr *wr)
{
	struct ibv_wc wc = ends_run(e, wr);

	/* Flushed: the connection has failed already. */
	assert_true(wc.status == IBV_WC_SUCCESS ||
		    (ends_lossy() && wc.status == IBV_WC_WR_FLUSH_ERR));
}

static void bind_1(struct ends *e, struct place *p, uint32_t len)
{
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };

	if (len)
		bind.bind_info = (struct ibv_mw_bind_info){ p->windowed, at(p->memory), len,
							    IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(ibv_bind_mw(e->qp, p->mw, &bind), 0);
	assert_int_equal(rig_await(e->cq).status, IBV_WC_SUCCESS);
}

static void deregister(struct ends *e, struct place *p)
{
	(void)e;
	assert_int_equal(ibv_dereg_mr(p->mr), 0);
	p->mr = NULL;
}

static void deregister_import(struct ends *e, struct place *p)
{
	struct ibv_mr *same;

	p->imported.ctx = ibv_import_device(dup(e->r->ctx->cmd_fd));
	assert_non_null(p->imported.ctx);
	p->imported.pd = ibv_import_pd(p->imported.ctx, e->r->pd->handle);
	same = ibv_import_mr(p->imported.pd, p->mr->handle);
	assert_non_null(same);
	assert_int_equal(ibv_dereg_mr(same), 0);
	ibv_unimport_mr(p->mr);
	p->mr = NULL;
	ibv_unimport_pd(p->imported.pd);
	assert_int_equal(ibv_close_device(p->imported.ctx), 0);
}

static void take_rights(struct ends *e, struct place *p)
{
	(void)e;
	assert_int_equal(ibv_rereg_mr(p->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_READ),
			 0);
}

static void move(struct ends *e, struct place *p)
{
	(void)e;
	assert_int_equal(
		ibv_rereg_mr(p->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p->elsewhere, LEN, 0),
		0);
}

static void give_away(struct ends *e, struct place *p)
{
	(void)e;
	assert_int_equal(ibv_rereg_mr(p->mr, IBV_REREG_MR_CHANGE_PD, p->other, NULL, 0, 0), 0);
}

static void close_window(struct ends *e, struct place *p)
{
	bind_1(e, p, 0);
}

static void free_window(struct ends *e, struct place *p)
{
	(void)e;
	assert_int_equal(ibv_dealloc_mw(p->mw), 0);
	p->mw = NULL;
}

static void invalidate(struct ends *e, struct place *p)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = p->rkey };

	run_local(e, &wr);
}

static void modify_to(struct ends *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
}

static void break_off(struct ends *e, struct place *p)
{
	(void)p;
	modify_to(e, IBV_QPS_ERR);
}

static void reset(struct ends *e, struct place *p)
{
	(void)p;
	modify_to(e, IBV_QPS_RESET);
}

static void destroy(struct ends *e, struct place *p)
{
	(void)p;
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	e->qp = rig_qp(e->r, IBV_QPT_RC, e->cq, e->cq, NULL);
}

/* The buffer that the descriptor stands for ends. */
__attribute__((unused)) static void shorten(struct ends *e, struct place *p)
{
	(void)e;
	assert_int_equal(ftruncate(p->fd, 0), 0);
}

static const struct change changes[] = {
	{ deregister, REGION, false },
	{ deregister, ZERO_BASED, false },
	{ deregister_import, REGION, false },
	{ take_rights, REGION, false },
	{ move, REGION, false },
	{ give_away, ZERO_BASED, false },
	{ close_window, WINDOW_1, false },
	{ free_window, WINDOW_1, false },
	{ free_window, WINDOW_2, false },
	{ invalidate, WINDOW_2, false },
#ifndef __SANITIZE_THREAD__ /* it doesn't follow a copy that is abandoned */
	{ shorten, DESCRIPTOR, false },
#endif
	{ break_off, REGION, true },
	{ reset, REGION, true },
	{ destroy, REGION, true },
};
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

static void writer_near(struct ends *e)
{
	struct poller beside;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	poll_beside(e, &beside);
	memset(e->r->buffer, 'w', LEN);
	for (unsigned i = 0; i < CHANGES * ROUNDS; i++) {
		const struct change *c = &changes[i % CHANGES];
		enum ibv_wc_status status;

		if (c->gone)
			ends_hurry(e);
		else
			ends_hasten(e);
		ends_swap(e, (struct hello){ 0 });
		status = write_until_failure(e);
		if (c->gone)
			assert_int_equal(status, IBV_WC_RETRY_EXC_ERR);
		else
			ends_expect_refused(status, IBV_WC_REM_ACCESS_ERR);
		ends_meet(e);
		ends_again(e);
	}
	poll_no_more(&beside);
	ends_close(e);
}

static void open_region(struct ends *e, struct place *p, enum through through)
{
	p->addr = at(p->memory);
	if (through == ZERO_BASED) {
		p->addr = 0;
		p->mr = ibv_reg_mr(e->r->pd, p->memory, LEN,
				   RIG_ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	} else if (through == DESCRIPTOR) {
		assert_int_equal(ftruncate(p->fd, 2 * 4096), 0);
		p->mr = ibv_reg_dmabuf_mr(e->r->pd, p->addr % 4096, LEN, p->addr, p->fd,
					  RIG_ALL_ACCESS);
	} else {
		p->mr = ibv_reg_mr_iova2(e->r->pd, p->memory, LEN, p->addr, RIG_ALL_ACCESS);
	}
	assert_non_null(p->mr);
	p->rkey = p->mr->rkey;
}

static void bind_2(struct ends *e, struct place *p)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	p->rkey = ibv_inc_rkey(p->rkey);
	wr.bind_mw.mw = p->mw;
	wr.bind_mw.rkey = p->rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ p->windowed, at(p->memory), LEN,
							  IBV_ACCESS_REMOTE_WRITE };
	assert_int_equal(ends_run(e, &wr).status, IBV_WC_SUCCESS);
}

static void open_window(struct ends *e, struct place *p, enum ibv_mw_type type)
{
	p->mw = ibv_alloc_mw(e->r->pd, type);
	assert_non_null(p->mw);
	p->rkey = p->mw->rkey;
	if (type == IBV_MW_TYPE_2) {
		bind_2(e, p);
		return;
	}
	bind_1(e, p, LEN);
	p->rkey = p->mw->rkey;
}

static void open_place(struct ends *e, struct place *p, enum through through)
{
	p->memory = e->r->buffer + FAR_AT;
	p->elsewhere = e->r->buffer + 2 * FAR_AT;
	p->fd = memfd_create("buffer", MFD_CLOEXEC);
	p->windowed =
		ibv_reg_mr(e->r->pd, p->memory, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	p->other = ibv_alloc_pd(e->r->ctx);
	assert_non_null(p->windowed);
	open_region(e, p, through);
	if (through >= WINDOW_1)
		open_window(e, p, through == WINDOW_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	memset(p->memory, 0, LEN);
}

static void close_place(struct place *p)
{
	if (p->mw)
		assert_int_equal(ibv_dealloc_mw(p->mw), 0);
	if (p->mr)
		assert_int_equal(ibv_dereg_mr(p->mr), 0);
	assert_int_equal(ibv_dereg_mr(p->windowed), 0);
	assert_int_equal(ibv_dealloc_pd(p->other), 0);
	close(p->fd);
}

/* Is what the near end writes there? (The sanitizer is right: nobody says so but the memory.) */
__attribute__((no_sanitize("thread"))) static bool is_written(const struct place *p)
{
	return *(const volatile uint8_t *)p->memory == 'w';
}

static void changer_far(struct ends *e)
{
	struct poller beside;

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	poll_beside(e, &beside);
	for (unsigned i = 0; i < CHANGES * ROUNDS; i++) {
		const struct change *c = &changes[i % CHANGES];
		struct place p = { 0 };

		open_place(e, &p, c->through);
		ends_swap(e, (struct hello){ .addr = p.addr, .rkey = p.rkey });
		/* Before it begins, or in the middle of it. */
		while (i / CHANGES % 2 && c->through != DESCRIPTOR && !is_written(&p))
			sched_yield();
		for (unsigned spin = 0; spin < i / CHANGES * 3; spin++)
			rig_readable(e->sock, 0);
		c->act(e, &p);
		memset(p.memory, 0xee, LEN);
		ends_meet(e); /* the near end has seen the end of it */
		for (uint32_t k = 0; k < LEN; k++)
			if (p.memory[k] != 0xee)
				fail_msg("change %zu: byte %u was written afterwards",
					 (size_t)(c - changes), k);
		close_place(&p);
		ends_again(e);
	}
	poll_no_more(&beside);
	ends_close(e);
}

static void changed_under_writes(void **state)
{
	(void)state;
	ends_play(writer_near, changer_far);
}

/* Both take the window back at once: whoever comes second finds it free, and has what it wanted. */
static void both_near(struct ends *e)
{
	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	for (unsigned i = 0; i < 60; i++) {
		ends_swap(e, (struct hello){ 0 });
		assert_int_equal(ends_request(e, IBV_WR_SEND_WITH_INV, 8, 0, e->peer.rkey, 0),
				 IBV_WC_SUCCESS);
	}
	ends_hasten(e);
	ends_swap(e, (struct hello){ 0 });
	ends_expect_refused(ends_request_at(e, IBV_WR_RDMA_WRITE, 8, e->peer.addr, e->peer.rkey),
			    IBV_WC_REM_ACCESS_ERR);
	ends_close(e);
}

static void both_far(struct ends *e)
{
	struct place p = { 0 };

	ends_open(e, IBV_QPT_RC);
	ends_join(e, 0);
	open_place(e, &p, WINDOW_2);
	for (unsigned i = 0; i < 60; i++) {
		struct ibv_send_wr inv = { .wr_id = 1,
					   .opcode = IBV_WR_LOCAL_INV,
					   .send_flags = IBV_SEND_SIGNALED,
					   .invalidate_rkey = p.rkey },
				   *bad;
		unsigned seen = 0;

		assert_int_equal(rig_post_recv(e->r, e->qp, 0, 0, 64), 0);
		ends_swap(e, (struct hello){ .rkey = p.rkey, .addr = p.addr });
		for (unsigned spin = 0; spin < i; spin++)
			rig_readable(e->sock, 0);
		assert_int_equal(ibv_post_send(e->qp, &inv, &bad), 0);
		while (seen != 3) {
			struct ibv_wc wc = rig_await(e->cq);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			seen |= 1u << wc.wr_id;
		}
		bind_2(e, &p);
	}
	p.rkey--; /* the last but one */
	ends_swap(e, (struct hello){ .rkey = p.rkey, .addr = p.addr });
	ends_expect_event(e, IBV_EVENT_QP_ACCESS_ERR, e->qp);
	close_place(&p);
	ends_close(e);
}

static void taken_back_by_both(void **state)
{
	(void)state;
	ends_play(both_near, both_far);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(changed_under_writes),
		TEST(taken_back_by_both),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
