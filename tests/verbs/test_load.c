/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that do much at once: 16 threads on queues of their own and on shared ones, 10,000 queue
 * pairs that all have traffic, a program that forks and executes while its traffic goes on and its
 * child has some too. Every completion comes once, and every byte is what it should be.
 */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS	 16
#define MESSAGES 400  /* of each thread */
#define DEPTH	 4    /* of each thread, on the way at once */
#define SIZE	 1500 /* two packets */
#define ROUNDS	 3    /* of traffic on each of many queue pairs */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MANY 1000 /* their shadow memory is larger than what they watch */
#else
#define MANY 10000
#endif

static const char *program;

/* Memory of a test's own: the threads' messages lie apart. */
struct area {
	uint8_t *from, *to;
	struct ibv_mr *from_mr, *to_mr;
	size_t len;
};

static struct area area_make(struct rig *r, size_t len)
{
	struct area a = { .from = malloc(len), .to = calloc(1, len), .len = len };

	for (size_t i = 0; i < len; i++)
		a.from[i] = (uint8_t)(i * 2654435761u >> 13);
	a.from_mr = ibv_reg_mr(r->pd, a.from, len, RIG_ALL_ACCESS);
	a.to_mr = ibv_reg_mr(r->pd, a.to, len, RIG_ALL_ACCESS);
	assert_non_null(a.from_mr);
	assert_non_null(a.to_mr);
	return a;
}

static void area_free(struct area *a)
{
	assert_int_equal(ibv_dereg_mr(a->from_mr), 0);
	assert_int_equal(ibv_dereg_mr(a->to_mr), 0);
	free(a->from);
	free(a->to);
}

static int post_write(const struct area *a, struct ibv_qp *qp, uint64_t id, size_t offset,
		      uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)a->from + offset, len, a->from_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)a->to + offset;
	wr.wr.rdma.rkey = a->to_mr->rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static struct ibv_qp *self_connected(struct rig *r, struct ibv_cq *cq, uint32_t depth)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { depth, depth, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(r->pd, &attr);

	assert_non_null(qp);
	rig_connect_self(qp);
	return qp;
}

struct crowd;

struct worker {
	pthread_t thread;
	struct crowd *crowd;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	unsigned first; /* of its messages */
	_Atomic unsigned done;
	unsigned bad; /* completions that are wrong, or calls that failed */
};

struct crowd {
	struct area area;
	struct worker workers[THREADS];
	_Atomic unsigned seen[THREADS * MESSAGES]; /* completions of each message */
	pthread_barrier_t start;
};

/* Whose thread polls a completion is open where the CQ is shared. */
static void poll_some(struct worker *w)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(w->cq, 4, wc);

	w->bad += n < 0;
	for (int i = 0; i < n; i++) {
		if (wc[i].status || wc[i].wr_id >= THREADS * MESSAGES) {
			w->bad++;
			continue;
		}
		w->crowd->seen[wc[i].wr_id]++;
		w->crowd->workers[wc[i].wr_id / MESSAGES].done++;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned posted = 0;

	pthread_barrier_wait(&w->crowd->start);
	while (w->done < MESSAGES && !w->bad) {
		if (posted < MESSAGES && posted - w->done < DEPTH) {
			unsigned id = w->first + posted;
			int ret = post_write(&w->crowd->area, w->qp, id, (size_t)id * SIZE, SIZE);

			posted += !ret;
			w->bad += ret != 0;
		}
		poll_some(w);
	}
	return NULL;
}

/* 16 threads: on `queues` completion queues, each with a queue pair. */
static void crowd_works(struct rig *r, unsigned queues)
{
	struct crowd *c = calloc(1, sizeof(*c));
	struct ibv_cq *cq[THREADS];
	struct ibv_qp *qp[THREADS];

	c->area = area_make(r, (size_t)THREADS * MESSAGES * SIZE);
	pthread_barrier_init(&c->start, NULL, THREADS);
	for (unsigned i = 0; i < queues; i++) {
		cq[i] = rig_cq(r, THREADS * DEPTH, NULL);
		qp[i] = self_connected(r, cq[i], THREADS * DEPTH);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		struct worker *w = &c->workers[i];

		w->crowd = c;
		w->qp = qp[i % queues];
		w->cq = cq[i % queues];
		w->first = i * MESSAGES;
		assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(c->workers[i].thread, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(c->workers[i].bad, 0);
	for (unsigned i = 0; i < THREADS * MESSAGES; i++)
		assert_int_equal(c->seen[i], 1);
	assert_memory_equal(c->area.from, c->area.to, c->area.len);
	for (unsigned i = 0; i < queues; i++) {
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	}
	area_free(&c->area);
	pthread_barrier_destroy(&c->start);
	free(c);
}

static void threads_apart(void **state)
{
	crowd_works(*state, THREADS);
}

static void threads_share_all(void **state)
{
	crowd_works(*state, 1);
}

static void threads_share_some(void **state)
{
	crowd_works(*state, 4);
}

/* Ten thousand at once on a busy machine: a second for each of eight tries. */
static void patient_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .sq_psn = 7,
				    .max_rd_atomic = 1,
				    .timeout = 18,
				    .retry_cnt = 7 };

	assert_int_equal(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
					       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY),
			 0);
}

/* All are on their way at once; a CQ for every hundred. */
static void many_queue_pairs(void **state)
{
	const unsigned per_cq = 100, size = 64;
	struct rig *r = *state;
	struct area area = area_make(r, (size_t)MANY * size);
	struct ibv_cq **cq = calloc(MANY / per_cq, sizeof(struct ibv_cq *));
	struct ibv_qp **qp = calloc(MANY, sizeof(struct ibv_qp *));
	uint8_t *seen = calloc(MANY, 1);

	for (unsigned i = 0; i < MANY / per_cq; i++)
		cq[i] = rig_cq(r, (int)per_cq, NULL);
	/* To the one beside it: each is the source of traffic and the destination of other. */
	for (unsigned i = 0; i < MANY; i++) {
		struct ibv_qp_init_attr attr = { .send_cq = cq[i / per_cq],
						 .recv_cq = cq[i / per_cq],
						 .qp_type = IBV_QPT_RC,
						 .cap = { 1, 1, 1, 1, 0 } };

		qp[i] = ibv_create_qp(r->pd, &attr);
		assert_non_null(qp[i]);
		assert_int_equal(rig_to_init(qp[i]), 0);
	}
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(rig_to_rtr(qp[i], qp[i ^ 1]->qp_num), 0);
		patient_rts(qp[i]);
	}
	for (unsigned round = 1; round <= ROUNDS; round++) {
		memset(area.to, 0, area.len);
		for (unsigned i = 0; i < MANY; i++)
			assert_int_equal(post_write(&area, qp[i], i, (size_t)i * size, size), 0);
		for (unsigned i = 0; i < MANY; i++) {
			struct ibv_wc wc = rig_await(cq[i / per_cq]);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(++seen[wc.wr_id], round);
		}
		assert_memory_equal(area.from, area.to, area.len);
	}
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	for (unsigned i = 0; i < MANY / per_cq; i++)
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	area_free(&area);
	free(seen);
	free(qp);
	free(cq);
}

/* The thread sanitizer doesn't follow a program of several threads that forks. */
#ifndef __SANITIZE_THREAD__
/* A thread whose traffic never rests until it is told to stop. */
struct traffic {
	pthread_t thread;
	struct rig *rig;
	struct area area;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	_Atomic bool stop;
	_Atomic unsigned done, bad;
};

static void *never_rest(void *arg)
{
	struct traffic *t = arg;
	const size_t slots = t->area.len / SIZE;

	while (!t->stop && !t->bad) {
		size_t at = t->done % slots * SIZE;
		struct ibv_wc wc;
		int n;

		memset(t->area.to + at, 0, SIZE);
		t->bad += post_write(&t->area, t->qp, t->done, at, SIZE) != 0;
		while ((n = ibv_poll_cq(t->cq, 1, &wc)) == 0)
			;
		t->bad += n < 0 || wc.status || wc.wr_id != t->done ||
			  memcmp(t->area.to + at, t->area.from + at, SIZE) != 0;
		t->done++;
	}
	return NULL;
}

static struct traffic *traffic_start(struct rig *r)
{
	struct traffic *t = calloc(1, sizeof(*t));

	t->rig = r;
	t->area = area_make(r, 64 * SIZE);
	t->cq = rig_cq(r, 4, NULL);
	t->qp = self_connected(r, t->cq, 4);
	assert_int_equal(pthread_create(&t->thread, NULL, never_rest, t), 0);
	return t;
}

static void traffic_goes_on(struct traffic *t)
{
	unsigned before = t->done;

	while (t->done < before + 100 && !t->bad)
		sched_yield();
	assert_int_equal(t->bad, 0);
}

static void traffic_end(struct traffic *t)
{
	t->stop = true;
	assert_int_equal(pthread_join(t->thread, NULL), 0);
	assert_int_equal(t->bad, 0);
	assert_int_equal(ibv_destroy_qp(t->qp), 0);
	assert_int_equal(ibv_destroy_cq(t->cq), 0);
	area_free(&t->area);
	free(t);
}

/* In a child: a device, queue pair and messages of its own. Its exit status. */
static int child_traffic(void)
{
	void *rig;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	rig_setup(&rig);
	cq = rig_cq(rig, 64, NULL);
	qp = self_connected(rig, cq, 4);
	for (unsigned i = 0; i < 200; i++) {
		struct rig *r = rig;

		memset(r->buffer, (int)i, 4000);
		if (rig_post_recv(r, qp, i, 8192, 4096) ||
		    rig_post_send(r, qp, i, 0, 4000, IBV_SEND_SIGNALED))
			return 1;
		rig_await_n(cq, 2);
		if (memcmp(r->buffer, r->buffer + 8192, 4000) != 0)
			return 2;
	}
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
	rig_teardown(&rig);
	return 0;
}

static void expect_success(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Forked while another thread is within the adapter, again and again. */
static void forks(void **state)
{
	struct traffic *t = traffic_start(*state);

	for (unsigned i = 0; i < 10; i++) {
		pid_t pid;

		traffic_goes_on(t);
		pid = fork();
		if (pid == 0)
			_exit(child_traffic());
		traffic_goes_on(t);
		expect_success(pid);
	}
	traffic_end(t);
}

/* What an executed program finds open is what every program does. */
static int executed(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *d;
	int inherited = 0;

	while ((d = readdir(dir)))
		inherited += atoi(d->d_name) > 2 && atoi(d->d_name) != dirfd(dir);
	closedir(dir);
	return inherited ? 3 : child_traffic();
}

static void executes(void **state)
{
	struct traffic *t = traffic_start(*state);

	for (unsigned i = 0; i < 10; i++) {
		pid_t pid;

		traffic_goes_on(t);
		pid = fork();
		if (pid == 0) {
			execl("/proc/self/exe", program, "executed", NULL);
			_exit(127);
		}
		traffic_goes_on(t);
		expect_success(pid);
	}
	traffic_end(t);
}

#endif

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(threads_apart),
		TEST(threads_share_all),
		TEST(threads_share_some),
		TEST(many_queue_pairs),
#ifndef __SANITIZE_THREAD__
		TEST(forks),
		TEST(executes),
#endif
	};

	(void)argc;
	program = argv[0];
#ifndef __SANITIZE_THREAD__
	if (argc > 1)
		return executed();
#endif
	/* Whatever the starter left open isn't ours. */
	close_range(3, ~0u, 0);
	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
