// SPDX-License-Identifier: BSD-2-Clause
/*
 * Loads that no stock program has, between a process and its child, for `./dev bench`:
 *
 *	bench_verbs DEVICE GID threads T N	T threads, each with its queue pair and CQ, write
 *						N messages of 64 KiB together; prints Gb/s
 *	bench_verbs DEVICE GID idle N		N idle connected RC queue pairs with queues of one
 *						work request; prints bytes of memory per queue pair
 *						and the percentage of one processor used
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "verbs_pair.h"

#define MESSAGE	    65536
#define DEPTH	    16
#define THREADS_MAX 16
#define IDLE_S	    2

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

struct writer {
	pthread_t thread;
	pthread_barrier_t *start;
	struct end *end;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint64_t offset; /* its part of the memory, on both sides */
	uint64_t n;
};

static void post_write(struct writer *w)
{
	struct ibv_sge sge = { .addr = (uintptr_t)w->end->memory + w->offset,
			       .length = MESSAGE,
			       .lkey = w->end->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = w->end->peer_addr + w->offset,
					       .rkey = w->end->peer_rkey } };
	struct ibv_send_wr *bad;

	if (ibv_post_send(w->qp, &wr, &bad))
		pair_die("ibv_post_send");
}

static void *write_all(void *arg)
{
	struct writer *w = arg;
	uint64_t posted = 0, done = 0;

	pthread_barrier_wait(w->start);
	while (done < w->n) {
		struct ibv_wc wc[DEPTH];
		int got;

		for (; posted < w->n && posted - done < DEPTH; posted++)
			post_write(w);
		got = ibv_poll_cq(w->cq, DEPTH, wc);
		for (int i = 0; i < got; i++)
			if (wc[i].status != IBV_WC_SUCCESS)
				pair_die(ibv_wc_status_str(wc[i].status));
		if (got < 0)
			pair_die("ibv_poll_cq");
		done += (uint64_t)got;
	}
	return NULL;
}

static void run_threads(struct end *end, bool parent, unsigned threads, uint64_t n)
{
	struct writer w[THREADS_MAX];
	pthread_barrier_t start;
	uint64_t took;

	pthread_barrier_init(&start, NULL, threads + 1);
	for (unsigned i = 0; i < threads; i++) {
		struct ibv_cq *cq = ibv_create_cq(end->ctx, DEPTH, NULL, NULL, 0);

		if (!cq)
			pair_die("ibv_create_cq");
		w[i] = (struct writer){ .start = &start,
					.end = end,
					.cq = cq,
					.qp = end_connect(end, cq, DEPTH),
					.offset = (uint64_t)i * MESSAGE,
					.n = n / threads };
		if (parent && pthread_create(&w[i].thread, NULL, write_all, &w[i]))
			pair_die("pthread_create");
	}
	if (parent) {
		took = now_ns(CLOCK_MONOTONIC);
		pthread_barrier_wait(&start);
		for (unsigned i = 0; i < threads; i++)
			pthread_join(w[i].thread, NULL);
		took = now_ns(CLOCK_MONOTONIC) - took;
		printf("%.6f\n", (double)(n / threads * threads) * MESSAGE * 8 / (double)took);
	}
	end_meet(end); /* the other end, which waits here, may go */
	for (unsigned i = 0; i < threads; i++) {
		ibv_destroy_qp(w[i].qp);
		ibv_destroy_cq(w[i].cq);
	}
	pthread_barrier_destroy(&start);
}

/* Private memory of this process that is in RAM, and what it shares with its peer. */
static double resident_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	double kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %lf", &kib) == 1)
			break;
	if (!f || kib < 0)
		pair_die("/proc/self/smaps_rollup");
	fclose(f);
	return kib * 1024;
}

static void run_idle(struct end *end, bool parent, unsigned n)
{
	struct ibv_cq *cq = ibv_create_cq(end->ctx, DEPTH, NULL, NULL, 0);
	struct ibv_qp **qps = calloc(n + 1, sizeof(*qps));
	double before, memory;
	uint64_t cpu, wall;

	if (!cq || !qps)
		pair_die("ibv_create_cq");
	memset(qps, 0xff, (n + 1) * sizeof(*qps)); /* in RAM before it is counted */
	qps[n] = end_connect(end, cq, 1);	   /* brings what all of them share */
	before = resident_bytes();
	for (unsigned i = 0; i < n; i++)
		qps[i] = end_connect(end, cq, 1);
	memory = (resident_bytes() - before) / n;
	sleep(1); /* what connecting left to do */
	end_meet(end);
	cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	wall = now_ns(CLOCK_MONOTONIC);
	sleep(IDLE_S);
	cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	wall = now_ns(CLOCK_MONOTONIC) - wall;
	if (parent)
		printf("%.0f %.5f\n", memory, 100.0 * (double)cpu / (double)wall);
	end_meet(end);
	for (unsigned i = 0; i <= n; i++)
		ibv_destroy_qp(qps[i]);
	ibv_destroy_cq(cq);
	free(qps);
}

static int usage(void)
{
	fprintf(stderr, "usage: bench_verbs DEVICE GID threads T N | idle N\n");
	return 2;
}

int main(int argc, char **argv)
{
	bool is_threads = argc == 6 && !strcmp(argv[3], "threads");
	unsigned count = argc >= 5 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
	uint64_t n = is_threads ? strtoull(argv[5], NULL, 10) : 1;
	struct end end;
	int fd[2], child, status = 0;

	if (!count || !n || (is_threads && (count > THREADS_MAX || n < count)) ||
	    (!is_threads && (argc != 5 || strcmp(argv[3], "idle"))))
		return usage();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		pair_die("socketpair");
	child = fork(); /* before the device is opened: an adapter isn't shared with children */
	if (child < 0)
		pair_die("fork");
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(fd[child ? 1 : 0]);
	end_open(&end, fd[child ? 0 : 1], argv[1], atoi(argv[2]), (size_t)THREADS_MAX * MESSAGE);
	if (is_threads)
		run_threads(&end, child != 0, count, n);
	else
		run_idle(&end, child != 0, count);
	end_close(&end);
	if (child && (waitpid(child, &status, 0) != child || status))
		pair_die("the other process failed");
	return 0;
}
