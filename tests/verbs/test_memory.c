/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory: every kind of region, and memory that goes away under one. */
#include "rig.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *map(size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

/* What is left where the memory was: no mapping; one that can't be accessed; one that can't be
 * written; a file that is shorter now. */
enum gone { UNMAPPED, PROTECTED, READ_ONLY, TRUNCATED };

static uint8_t *map_to_go(enum gone how, size_t len, int *fd)
{
	uint8_t *at;

	*fd = -1;
	if (how != TRUNCATED)
		return map(len);
	*fd = memfd_create("test", MFD_CLOEXEC);
	assert_true(*fd >= 0);
	assert_int_equal(ftruncate(*fd, (off_t)len), 0);
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

static void go(enum gone how, uint8_t *at, size_t len, int fd)
{
	switch (how) {
	case UNMAPPED:
		assert_int_equal(munmap(at, len), 0);
		break;
	case PROTECTED:
		assert_int_equal(mprotect(at, len, PROT_NONE), 0);
		break;
	case READ_ONLY:
		assert_int_equal(mprotect(at, len, PROT_READ), 0);
		break;
	case TRUNCATED:
		assert_int_equal(ftruncate(fd, 0), 0);
		break;
	}
}

static void clean(enum gone how, uint8_t *at, size_t len, int fd)
{
	if (how != UNMAPPED)
		assert_int_equal(munmap(at, len), 0);
	if (fd >= 0)
		close(fd);
}

/* Every operation on memory that has gone, here or there: an error of its own, and life goes on. */
static void test_gone(void **state)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		bool remote, writes;
		enum ibv_wc_status status;
	} cases[] = {
		{ IBV_WR_RDMA_WRITE, false, false, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_SEND, false, false, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_RDMA_READ, false, true, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, false, true, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_RDMA_WRITE, true, true, IBV_WC_REM_ACCESS_ERR },
		{ IBV_WR_RDMA_READ, true, false, IBV_WC_REM_ACCESS_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, true, true, IBV_WC_REM_ACCESS_ERR },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, true, true, IBV_WC_REM_ACCESS_ERR },
	};
	struct rig *r = *state;
	uint64_t here = (uintptr_t)r->buffer;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool atomic = cases[i].opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;
		uint32_t len = atomic ? 8 : 8192;

		for (enum gone how = UNMAPPED; how <= TRUNCATED; how++) {
			struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
			struct ibv_mr *mr;
			uint8_t *at;
			int fd;

			/* The pages of a mapping that can still be read are no obstacle to reading.
			 */
			if (how == READ_ONLY && !cases[i].writes) {
				rig_pair_free(&p);
				continue;
			}
			at = map_to_go(how, 16384, &fd);
			mr = ibv_reg_mr(r->pd, at, 16384, RIG_ALL_ACCESS);
			assert_non_null(mr);
			go(how, at, 16384, fd);
			assert_int_equal(cases[i].remote
						 ? rig_run(&p, cases[i].opcode, here, len,
							   r->mr->lkey, (uintptr_t)at, mr->rkey)
						 : rig_run(&p, cases[i].opcode, (uintptr_t)at, len,
							   mr->lkey, here, r->mr->rkey),
					 cases[i].status);
			assert_int_equal(ibv_dereg_mr(mr), 0);
			clean(how, at, 16384, fd);
			rig_pair_free(&p);
		}
	}
}

/* A receive whose memory has gone. */
static void test_gone_receive(void **state)
{
	struct rig *r = *state;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	uint8_t *at = map(4096);
	struct ibv_mr *mr = ibv_reg_mr(r->pd, at, 4096, RIG_ALL_ACCESS);
	struct ibv_sge sge = { (uintptr_t)at, 4096, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(ibv_post_recv(p.b, &wr, &bad), 0);
	assert_int_equal(munmap(at, 4096), 0);
	assert_int_equal(rig_post_send(r, p.a, 1, 0, 100, IBV_SEND_SIGNALED), 0);
	assert_int_equal(rig_await(p.cq_a).status, IBV_WC_REM_OP_ERR);
	assert_int_equal(rig_await(p.cq_b).status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	rig_pair_free(&p);
}

/* Memory mapped anew at the place of a region is the region's memory. */
static void test_remapped(void **state)
{
	struct rig *r = *state;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	uint8_t *at = map(4096);
	struct ibv_mr *mr = ibv_reg_mr(r->pd, at, 4096, RIG_ALL_ACCESS);

	assert_ptr_equal(mmap(at, 4096, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 at);
	at[5] = 77;
	assert_int_equal(rig_run(&p, IBV_WR_RDMA_READ, (uintptr_t)r->buffer, 16, r->mr->lkey,
				 (uintptr_t)at, mr->rkey),
			 IBV_WC_SUCCESS);
	assert_int_equal(r->buffer[5], 77);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(at, 4096);
	rig_pair_free(&p);
}

static volatile sig_atomic_t caught;
static sigjmp_buf back;
static struct sigaction ours;

static void count_and_leave(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
	caught++;
	siglongjmp(back, 1);
}

/* A fault of the program's own, at an address that the compiler doesn't know. */
static void touch_nothing(void)
{
	static volatile char *volatile nowhere = (char *)64;

	*nowhere = 0;
}

static void fault_here(void)
{
	if (sigsetjmp(back, 1) == 0)
		touch_nothing();
}

/* The program's handler from before gets the program's faults, again and again, and none of the
 * adapter's. */
static void test_own_handler(void **state)
{
	struct sigaction old, mine = { .sa_sigaction = count_and_leave, .sa_flags = SA_SIGINFO };
	struct rig *r = *state;
	struct ibv_mr *mr;

	assert_int_equal(sigaction(SIGSEGV, &mine, &old), 0);
	mr = ibv_reg_mr(r->pd, r->buffer, 64, 0);
	assert_non_null(mr);
	caught = 0;
	for (int i = 0; i < 3; i++)
		fault_here();
	assert_int_equal(caught, 3);
	test_gone_receive(state);
	assert_int_equal(caught, 3);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(sigaction(SIGSEGV, &old, NULL), 0);
}

static void chain(int sig, siginfo_t *info, void *context)
{
	ours.sa_sigaction(sig, info, context);
}

/* How a child that does this ends. */
static int end_of(struct rig *r, void (*what)(struct rig *r))
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		what(r);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void no_core(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	sigaction(SIGSEGV, &dfl, NULL);
}

/* In the child the parent's contexts are dead: one of its own installs the handlers anew. */
static void register_something(void)
{
	struct ibv_context *ctx = rig_open("lo");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	static char byte;

	if (!ibv_reg_mr(pd, &byte, 1, 0))
		_exit(1);
}

static void plain_fault(struct rig *r)
{
	(void)r;
	no_core();
	register_something();
	touch_nothing();
}

static void ring_fault(struct rig *r)
{
	struct sigaction mine = { .sa_sigaction = chain, .sa_flags = SA_SIGINFO };

	(void)r;
	no_core();
	register_something();
	sigaction(SIGSEGV, &mine, &ours);
	register_something();
	touch_nothing();
}

static void sent_signal(struct rig *r)
{
	(void)r;
	no_core();
	register_something();
	kill(getpid(), SIGSEGV);
}

/* A program that crashes crashes as without the adapter. */
static void test_crash(void **state)
{
	struct rig *r = *state;
	int status = end_of(r, plain_fault);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	status = end_of(r, ring_fault);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	status = end_of(r, sent_signal);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_gone, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_gone_receive, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_remapped, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_own_handler, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_crash, rig_setup, rig_teardown),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
