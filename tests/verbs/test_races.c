/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program changes while its peers use it: regions registered anew, windows invalidated, queues
 * drained and resized, one completion queue polled in both ways. Whatever the moment, a call that returned
 * holds from then on, and every completion comes once.
 */
#include "rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LEN 4096 /* of a place that moves */

static void reconnect(struct rig_pair *p)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	assert_int_equal(ibv_modify_qp(p->a, &reset, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(p->b, &reset, IBV_QP_STATE), 0);
	rig_connect(p->a, p->b);
}

static bool all_are(const uint8_t *at, size_t len, uint8_t value)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != value)
			return false;
	return true;
}

struct mover {
	struct rig *r;
	struct ibv_pd *other;
	uint8_t *place[2];
	struct ibv_mr *mr;
	_Atomic uint64_t where; /* the number of its place << 32, and its key */
	_Atomic bool stop;
	_Atomic unsigned done;
};

static const char *move(struct mover *m, int flags)
{
	int from = m->mr->addr == m->place[1], to = from;
	struct ibv_pd *pd = m->mr->pd == m->other ? m->r->pd : m->other;

	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		to = !from;
	if (ibv_rereg_mr(m->mr, flags, pd, m->place[to], LEN,
			 flags & IBV_REREG_MR_CHANGE_ACCESS && m->done % 3 == 0
				 ? IBV_ACCESS_REMOTE_READ
				 : RIG_ALL_ACCESS))
		return "rereg_mr";
	/* Nobody writes where the region isn't any more, whatever was on its way. */
	if (to != from) {
		memset(m->place[from], 0xee, LEN);
		for (int i = 0; i < 20; i++)
			rig_readable(0, 0);
		if (!all_are(m->place[from], LEN, 0xee))
			return "written after it moved";
	}
	m->where = (uint64_t)to << 32 | m->mr->rkey;
	m->done++;
	return NULL;
}

static void *keep_moving(void *arg)
{
	struct mover *m = arg;
	const char *wrong = NULL;

	for (int flags = 1; !m->stop && !wrong; flags = flags % 7 + 1)
		wrong = move(m, flags);
	return (void *)(uintptr_t)wrong;
}

/* All combinations, one after the other, while a peer writes to the region with the key it was last told, and
 * the owner's own requests read from it. */
static void region_registered_anew(void **state)
{
	struct rig *r = *state;
	struct mover m = { .r = r, .other = ibv_alloc_pd(r->ctx) };
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	unsigned good = 0, bad = 0;
	pthread_t thread;
	void *wrong;

	for (int i = 0; i < 2; i++)
		m.place[i] = calloc(1, LEN);
	m.mr = ibv_reg_mr(r->pd, m.place[0], LEN, RIG_ALL_ACCESS);
	m.where = m.mr->rkey;
	memset(r->buffer, 'w', LEN);
	assert_int_equal(pthread_create(&thread, NULL, keep_moving, &m), 0);
	for (unsigned i = 0; i < 600 || m.done < 70 || !good || !bad; i++) {
		uint64_t where = m.where, at = (uintptr_t)m.place[where >> 32];
		struct ibv_sge sge = { (uintptr_t)r->buffer, LEN, r->mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_RDMA_WRITE,
					  .send_flags = IBV_SEND_SIGNALED },
				   *none;
		enum ibv_wc_status status;

		wr.wr.rdma.remote_addr = at;
		wr.wr.rdma.rkey = (uint32_t)where;
		if (i % 4 == 3) { /* as local memory */
			sge = (struct ibv_sge){ at, LEN, (uint32_t)where };
			wr.wr.rdma.remote_addr = (uintptr_t)r->buffer + 8192;
			wr.wr.rdma.rkey = r->mr->rkey;
		}
		assert_int_equal(ibv_post_send(p.a, &wr, &none), 0);
		status = rig_await(p.cq_a).status;
		good += status == IBV_WC_SUCCESS;
		if (status == IBV_WC_SUCCESS)
			continue;
		bad++;
		assert_int_equal(status, i % 4 == 3 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		reconnect(&p);
	}
	m.stop = true;
	assert_int_equal(pthread_join(thread, &wrong), 0);
	if (wrong)
		fail_msg("%s", (const char *)wrong);
	rig_pair_free(&p);
	assert_int_equal(ibv_dereg_mr(m.mr), 0);
	assert_int_equal(ibv_dealloc_pd(m.other), 0);
	free(m.place[0]);
	free(m.place[1]);
}

static int post_write(struct rig *r, struct ibv_qp *qp, uint64_t id, uint64_t to, uint32_t rkey,
		      uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer, len, r->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp, &wr, &bad);
}

struct writer {
	struct rig *r;
	struct rig_pair *p;
	uint32_t rkey;
	_Atomic bool started;
};

static void *write_16(void *arg)
{
	struct writer *w = arg;

	for (uint64_t i = 0; i < 16; i++) {
		if (post_write(w->r, w->p->a, i, (uintptr_t)w->r->buffer + 32768, w->rkey, 3000))
			return "post_send";
		w->started = true;
	}
	for (uint64_t i = 0; i < 16; i++) {
		struct ibv_wc wc = rig_await(w->p->cq_a);

		if (wc.wr_id != i ||
		    (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_REM_ACCESS_ERR &&
		     wc.status != IBV_WC_WR_FLUSH_ERR))
			return "a completion";
	}
	return NULL;
}

static struct ibv_wc run_local(struct rig_pair *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags = IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(p->b, wr, &bad), 0);
	return rig_await(p->cq_b);
}

/* A type 2 window is invalidated in the middle of a peer's WRITEs: once that is done none of them lands. */
static void window_invalidated(void **state)
{
	struct rig *r = *state;
	struct ibv_mw *mw = ibv_alloc_mw(r->pd, IBV_MW_TYPE_2);
	struct ibv_mr *mr = ibv_reg_mr(r->pd, r->buffer + 32768, 4096,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);

	assert_non_null(mw);
	assert_non_null(mr);
	for (unsigned i = 0; i < 100; i++) {
		struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
		struct writer w = { .r = r, .p = &p };
		struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW },
				   inv = { .opcode = IBV_WR_LOCAL_INV };
		struct ibv_wc wc;
		pthread_t thread;
		void *wrong;

		bind.bind_mw.mw = mw;
		bind.bind_mw.rkey = w.rkey = mw->rkey = ibv_inc_rkey(mw->rkey);
		bind.bind_mw.bind_info =
			(struct ibv_mw_bind_info){ mr, (uintptr_t)r->buffer + 32768, 4096,
						   IBV_ACCESS_REMOTE_WRITE };
		inv.invalidate_rkey = w.rkey;
		memset(r->buffer, 'w', 3000);
		assert_int_equal(run_local(&p, &bind).status, IBV_WC_SUCCESS);
		assert_int_equal(pthread_create(&thread, NULL, write_16, &w), 0);
		while (!w.started)
			;
		for (unsigned spin = 0; spin < i % 10; spin++)
			rig_readable(0, 0);
		wc = run_local(&p, &inv);
		/* Flushed: a WRITE was refused before, which ends both. Never: another window's key. */
		assert_true(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
		if (wc.status == IBV_WC_SUCCESS)
			memset(r->buffer + 32768, 0xee, 4096);
		assert_int_equal(pthread_join(thread, &wrong), 0);
		assert_null(wrong);
		if (wc.status == IBV_WC_SUCCESS)
			assert_true(all_are(r->buffer + 32768, 4096, 0xee));
		rig_pair_free(&p);
	}
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

enum { POSTERS = 4, POLLERS = 3, EACH = 3000, DEPTH = 8 };

/* Queue pairs that share one completion queue, each with a thread that posts; threads that poll. */
struct crowd {
	struct rig *r;
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex; /* polled the other way as well, or NULL */
	struct ibv_qp *qp[POSTERS];
	_Atomic int room[POSTERS];
	_Atomic unsigned seen[POSTERS * EACH];
	_Atomic unsigned taken, bad;
	_Atomic unsigned posters, pollers; /* that have started */
};

static void *post_all(void *arg)
{
	struct crowd *c = arg;
	unsigned me = c->posters++;

	for (unsigned i = 0; i < EACH; i++) {
		int rc;

		while (c->room[me] == 0 && !c->bad)
			rig_readable(0, 0);
		c->room[me]--;
		do
			rc = post_write(c->r, c->qp[me], me * EACH + i,
					(uintptr_t)c->r->buffer + 8192, c->r->mr->rkey, 64);
		while (rc == ENOMEM);
		if (rc || c->bad) {
			c->bad++;
			break;
		}
	}
	return NULL;
}

static void took(struct crowd *c, uint64_t id, enum ibv_wc_status status)
{
	if (id >= POSTERS * EACH || status != IBV_WC_SUCCESS || c->seen[id]++) {
		c->bad++;
		return;
	}
	c->room[id / EACH]++;
	c->taken++;
}

static void poll_plain(struct crowd *c)
{
	struct ibv_wc wc[5];
	int n = ibv_poll_cq(c->cq, 5, wc);

	c->bad += n < 0;
	for (int i = 0; i < n; i++)
		took(c, wc[i].wr_id, wc[i].status);
}

static void poll_extended(struct crowd *c)
{
	struct ibv_poll_cq_attr attr = { 0 };

	if (ibv_start_poll(c->ex, &attr))
		return;
	do
		took(c, c->ex->wr_id, c->ex->status);
	while (ibv_next_poll(c->ex) == 0);
	ibv_end_poll(c->ex);
}

static void *poll_all(void *arg)
{
	struct crowd *c = arg;
	bool extended = c->ex && c->pollers++ % 2;

	while (c->taken < POSTERS * EACH && !c->bad) {
		if (extended)
			poll_extended(c);
		else
			poll_plain(c);
	}
	return NULL;
}

/* `meanwhile` runs here until all has come. */
static void run_crowd(struct crowd *c, void (*meanwhile)(struct crowd *c))
{
	pthread_t posters[POSTERS], pollers[POLLERS];

	for (int i = 0; i < POSTERS; i++) {
		c->qp[i] = rig_qp(c->r, IBV_QPT_RC, c->cq, c->cq, NULL);
		c->room[i] = DEPTH;
		rig_connect_self(c->qp[i]);
	}
	for (int i = 0; i < POSTERS; i++)
		assert_int_equal(pthread_create(&posters[i], NULL, post_all, c), 0);
	for (int i = 0; i < POLLERS; i++)
		assert_int_equal(pthread_create(&pollers[i], NULL, poll_all, c), 0);
	while (c->taken < POSTERS * EACH && !c->bad)
		meanwhile(c);
	for (int i = 0; i < POSTERS; i++)
		assert_int_equal(pthread_join(posters[i], NULL), 0);
	for (int i = 0; i < POLLERS; i++)
		assert_int_equal(pthread_join(pollers[i], NULL), 0);
	assert_int_equal(c->bad, 0);
	for (int i = 0; i < POSTERS * EACH; i++)
		assert_int_equal(c->seen[i], 1);
	for (int i = 0; i < POSTERS; i++)
		assert_int_equal(ibv_destroy_qp(c->qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(c->cq), 0);
}

/* At least as large as what may be waiting. */
static void resize(struct crowd *c)
{
	for (int size = POSTERS * DEPTH; size <= 8192; size *= 4)
		if (ibv_resize_cq(c->cq, size) || c->cq->cqe < size)
			c->bad++;
}

static void queue_resized(void **state)
{
	struct crowd *c = calloc(1, sizeof(*c));

	c->r = *state;
	c->cq = rig_cq(c->r, POSTERS * DEPTH, NULL);
	run_crowd(c, resize);
	free(c);
}

static void polled_both_ways(void **state)
{
	struct crowd *c = calloc(1, sizeof(*c));
	struct ibv_cq_init_attr_ex attr = { .cqe = POSTERS * DEPTH,
					    .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };

	c->r = *state;
	c->ex = ibv_create_cq_ex(c->r->ctx, &attr);
	assert_non_null(c->ex);
	c->cq = ibv_cq_ex_to_cq(c->ex);
	run_crowd(c, resize);
	free(c);
}

struct stream {
	struct rig *r;
	struct ibv_qp *qp;
	_Atomic uint64_t allowed; /* it isn't over before it was drained a few times */
};

enum { STREAM = 4000 };

static void *post_stream(void *arg)
{
	struct stream *s = arg;

	for (uint64_t i = 0; i < STREAM; i++) {
		int rc;

		while (i >= s->allowed)
			rig_readable(0, 0);
		do
			rc = post_write(s->r, s->qp, i, (uintptr_t)s->r->buffer + 8192,
					s->r->mr->rkey, 2000);
		while (rc == ENOMEM);
		if (rc)
			return "post_send";
	}
	return NULL;
}

static uint64_t take(struct ibv_cq *cq, uint64_t next)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(cq, 8, wc);

	for (int i = 0; i < n; i++) {
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(wc[i].wr_id, next++);
	}
	return next;
}

/* Drained again and again while another thread posts: after the event nothing more is done until RTS, and then
 * all that was posted meanwhile, in order. */
static void drained_amid_traffic(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, STREAM, NULL); /* nobody polls while it drains */
	struct stream s = { .r = r, .qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL) };
	struct ibv_async_event event;
	uint64_t next = 0, until;
	pthread_t thread;
	unsigned drains = 0;
	void *wrong;

	rig_connect_self(s.qp);
	assert_int_equal(pthread_create(&thread, NULL, post_stream, &s), 0);
	while (next < STREAM) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
		struct ibv_qp_init_attr init;

		s.allowed = next + 200;
		for (until = next + 37; next < until && next < STREAM;)
			next = take(cq, next);
		assert_int_equal(
			ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
		event = rig_await_event(r->ctx, IBV_EVENT_SQ_DRAINED);
		assert_ptr_equal(event.element.qp, s.qp);
		ibv_ack_async_event(&event);
		assert_int_equal(ibv_query_qp(s.qp, &attr, IBV_QP_STATE, &init), 0);
		assert_int_equal(attr.qp_state, IBV_QPS_SQD);
		assert_int_equal(attr.sq_draining, 0);
		do {
			until = next;
			next = take(cq, next);
		} while (next > until);
		memset(r->buffer + 8192, 0xee, 2000);
		attr.timeout = (uint8_t)(12 + drains % 3);
		assert_int_equal(ibv_modify_qp(s.qp, &attr, IBV_QP_TIMEOUT), 0);
		for (int i = 0; i < 200; i++)
			assert_int_equal(take(cq, next), next);
		assert_true(all_are(r->buffer + 8192, 2000, 0xee));
		attr.qp_state = IBV_QPS_RTS;
		assert_int_equal(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE), 0);
		drains++;
	}
	assert_int_equal(pthread_join(thread, &wrong), 0);
	assert_null(wrong);
	assert_true(drains > 10);
	assert_int_equal(ibv_destroy_qp(s.qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(region_registered_anew), TEST(window_invalidated),	  TEST(queue_resized),
		TEST(polled_both_ways),	      TEST(drained_amid_traffic),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
