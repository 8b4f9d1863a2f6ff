/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Too little of everything: each allocation of a device's life fails once, then each descriptor is
 * one too many. Every call says so or does without; nothing crashes, and afterwards all works, within
 * the process and to another one, which loses nothing by it. ROCELINK_PATH says by which way.
 */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIVES_MAX 2000
#define EXPORTED  __attribute__((visibility("default")))

/* glibc's own names: those below stand in front of them for the libraries too. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

/* Of this thread: which allocation fails when it reaches 0; negative: none. */
static _Thread_local long countdown __attribute__((tls_model("initial-exec"))) = -1;

static bool fails(void)
{
	if (countdown < 0 || countdown-- > 0)
		return false;
	errno = ENOMEM;
	return true;
}

EXPORTED void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

EXPORTED void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

EXPORTED void *realloc(void *p, size_t size)
{
	return fails() ? NULL : __libc_realloc(p, size);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : __libc_memalign(alignment, size);
}

/* Of the same-host path. */
EXPORTED void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return fails() ? MAP_FAILED : (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
}

EXPORTED int memfd_create(const char *name, unsigned flags)
{
	return fails() ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", ".." and its own */
}

/* What the other process is asked for, and what it says. */
enum question { NEW_QP, CONNECT, DESCRIPTORS };

struct asked {
	enum question question;
	uint32_t qpn; /* of the queue pair to connect to */
};

struct answer {
	uint32_t qpn, rkey;
	uint64_t addr;
	int descriptors;
};

static int far; /* a socket to it */
static int far_descriptors;

struct life {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_qp *qp, *ud, *far;
	struct ibv_ah *ah;
	struct answer peer; /* of far */
};

static char memory[4096];

static struct ibv_context *open_loopback(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rl_lo"))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static struct ibv_ah *make_ah(struct life *l)
{
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1 };

	if (ibv_query_gid(l->ctx, 1, 0, &attr.grh.dgid))
		return NULL;
	return ibv_create_ah(l->pd, &attr);
}

static struct answer ask(enum question question, uint32_t qpn)
{
	struct asked asked = { question, qpn };
	struct answer answer;

	assert_int_equal(write(far, &asked, sizeof(asked)), sizeof(asked));
	assert_int_equal(recv(far, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	return answer;
}

/* As far as it goes. True: to the end. */
static bool live(struct life *l)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 64 } };

	*l = (struct life){ .ctx = open_loopback() };
	if (!l->ctx)
		return false;
	if (!(l->pd = ibv_alloc_pd(l->ctx)) || !(l->channel = ibv_create_comp_channel(l->ctx)) ||
	    !(l->cq = ibv_create_cq(l->ctx, 64, NULL, l->channel, 0)) ||
	    !(l->srq = ibv_create_srq(l->pd, &srq)) ||
	    !(l->mr = ibv_reg_mr(l->pd, memory, sizeof(memory),
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) ||
	    !(l->ah = make_ah(l)))
		return false;
	init.send_cq = init.recv_cq = l->cq;
	if (!(l->qp = ibv_create_qp(l->pd, &init)))
		return false;
	init.qp_type = IBV_QPT_UD;
	init.srq = l->srq;
	if (!(l->ud = ibv_create_qp(l->pd, &init)))
		return false;
	init.qp_type = IBV_QPT_RC;
	init.srq = NULL;
	if (!(l->far = ibv_create_qp(l->pd, &init)))
		return false;
	l->peer = ask(NEW_QP, 0);
	return !rig_to_init(l->qp) && !rig_to_rtr(l->qp, l->qp->qp_num) && !rig_to_rts(l->qp) &&
	       !rig_to_init(l->far) && !rig_to_rtr(l->far, l->peer.qpn) && !rig_to_rts(l->far) &&
	       !ibv_resize_cq(l->cq, 256);
}

/* What there is goes, and every destroyer succeeds. */
static void die(struct life *l)
{
	if (l->far)
		assert_int_equal(ibv_destroy_qp(l->far), 0);
	if (l->ud)
		assert_int_equal(ibv_destroy_qp(l->ud), 0);
	if (l->qp)
		assert_int_equal(ibv_destroy_qp(l->qp), 0);
	if (l->ah)
		assert_int_equal(ibv_destroy_ah(l->ah), 0);
	if (l->mr)
		assert_int_equal(ibv_dereg_mr(l->mr), 0);
	if (l->srq)
		assert_int_equal(ibv_destroy_srq(l->srq), 0);
	if (l->cq)
		assert_int_equal(ibv_destroy_cq(l->cq), 0);
	if (l->channel)
		assert_int_equal(ibv_destroy_comp_channel(l->channel), 0);
	if (l->pd)
		assert_int_equal(ibv_dealloc_pd(l->pd), 0);
	if (l->ctx)
		assert_int_equal(ibv_close_device(l->ctx), 0);
}

static void write_to(struct life *l, struct ibv_qp *qp, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, l->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	rig_await_n(l->cq, 1);
}

static void all_works(struct life *l)
{
	write_to(l, l->qp, (uintptr_t)memory + 1024, l->mr->rkey);
	ask(CONNECT, l->far->qp_num);
	write_to(l, l->far, l->peer.addr, l->peer.rkey);
}

static void allocations(void **state)
{
	const int used = open_descriptors();
	long n, failed = 0;

	(void)state;
	for (n = 0; n < LIVES_MAX; n++) {
		struct life l;
		bool whole, struck;

		countdown = n;
		errno = 0;
		whole = live(&l);
		struck = countdown < 0;
		countdown = -1;
		if (whole)
			all_works(&l);
		else
			failed++;
		if (!whole && errno != ENOMEM)
			fail_msg("allocation %ld: errno %d", n, errno);
		die(&l);
		assert_int_equal(open_descriptors(), used);
		if (!struck)
			break;
	}
	assert_in_range(n, 15, LIVES_MAX - 1);
	assert_in_range(failed, 15, n);
}

static void descriptors(void **state)
{
	struct rlimit before, limit;
	int used = open_descriptors(), extra;
	struct life l;
	bool whole = false;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	for (extra = 0; extra < 64 && !whole; extra++) {
		limit.rlim_cur = (rlim_t)(used + extra);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		whole = live(&l);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		if (whole)
			all_works(&l);
		die(&l);
		assert_int_equal(open_descriptors(), used);
	}
	assert_true(whole);
	assert_in_range(extra, 8, 40);
}

/* Dead connections are cleared away when their end is noticed; but on UDP a process keeps a socket for
 * each source port that it sent from, up to 256. */
static void nothing_piles_up(void **state)
{
	const char *path = getenv("ROCELINK_PATH");
	struct answer now;
	unsigned tries = 0;

	(void)state;
	if (path && !strcmp(path, "udp"))
		far_descriptors += 256;
	do {
		now = ask(DESCRIPTORS, 0);
		usleep(10000);
	} while (now.descriptors > far_descriptors && ++tries < 500);
	assert_in_range(now.descriptors, 1, far_descriptors);
}

/* The other process: a queue pair at a time. */
static void answer_all(int sock)
{
	struct asked asked;
	void *rig;
	struct rig *r;
	struct ibv_cq *cq;
	struct ibv_qp *qp = NULL;

	assert_int_equal(rig_setup(&rig), 0);
	r = rig;
	cq = rig_cq(r, 16, NULL);
	while (recv(sock, &asked, sizeof(asked), MSG_WAITALL) == sizeof(asked)) {
		struct answer answer = { .rkey = r->mr->rkey, .addr = (uintptr_t)r->buffer };

		if (asked.question == NEW_QP) {
			if (qp)
				assert_int_equal(ibv_destroy_qp(qp), 0);
			qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
			assert_int_equal(rig_to_init(qp), 0);
			answer.qpn = qp->qp_num;
		} else if (asked.question == CONNECT) {
			assert_int_equal(rig_to_rtr(qp, asked.qpn), 0);
			assert_int_equal(rig_to_rts(qp), 0);
		} else {
			answer.descriptors = open_descriptors();
		}
		assert_int_equal(write(sock, &answer, sizeof(answer)), sizeof(answer));
	}
}

static pid_t start_far(void)
{
	int socks[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
		exit(1);
	far = socks[0];
	child = fork();
	if (child == 0) {
		close(socks[0]);
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		answer_all(socks[1]);
		_exit(0);
	}
	close(socks[1]);
	ask(NEW_QP, 0);
	far_descriptors = ask(DESCRIPTORS, 0).descriptors;
	return child;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(allocations),
		cmocka_unit_test(descriptors),
		cmocka_unit_test(nothing_piles_up),
	};
	int failed, status;
	pid_t child;

	rig_isolate();
	child = start_far();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	close(far);
	waitpid(child, &status, 0);
	return failed || status;
}
