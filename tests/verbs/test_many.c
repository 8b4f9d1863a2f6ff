/* SPDX-License-Identifier: BSD-2-Clause */
/* As many objects as are promised, what an idle queue pair costs, the largest queues, lists and messages. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MANY	  4096 /* their shadow memory is larger than what they watch */
#define MEASURING false
#else
#define MANY	  65536
#define MEASURING true
#endif

static size_t resident(void)
{
	unsigned long total, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu %lu", &total, &pages), 2);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void regions(void **state)
{
	struct rig *r = *state;
	struct ibv_mr **mr = calloc(MANY, sizeof(struct ibv_mr *));

	for (int i = 0; i < MANY; i++) {
		mr[i] = ibv_reg_mr(r->pd, r->buffer + i % 1024, 64, IBV_ACCESS_LOCAL_WRITE);
		assert_non_null(mr[i]);
	}
	for (int i = 0; i < MANY; i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	free(mr);
}

static void completion_queues(void **state)
{
	struct rig *r = *state;
	struct ibv_cq **cq = calloc(MANY, sizeof(struct ibv_cq *));

	for (int i = 0; i < MANY; i++)
		cq[i] = rig_cq(r, 1, NULL);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
	free(cq);
}

/* Connected and idle: 4 KiB besides the queues, which are of one entry here. */
static void queue_pairs(void **state)
{
	struct rig *r = *state;
	struct ibv_qp **qp = calloc(MANY, sizeof(struct ibv_qp *));
	struct ibv_cq *cq = rig_cq(r, 1, NULL);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 }
	};
	size_t before = resident();

	for (int i = 0; i < MANY; i++) {
		qp[i] = ibv_create_qp(r->pd, &attr);
		assert_non_null(qp[i]);
		rig_connect_self(qp[i]);
	}
	if (MEASURING)
		assert_true((resident() - before) / MANY <= 4096);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	free(qp);
}

static void largest_queues(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 2 * 16384, NULL);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { 16384, 16384, 1, 1, 1024 },
	};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &attr);

	assert_non_null(qp);
	rig_connect_self(qp);
	for (uint64_t i = 0; i < 16384; i++)
		assert_int_equal(rig_post_recv(r, qp, i, 4096, 1024), 0);
	assert_int_equal(rig_post_recv(r, qp, 0, 4096, 1024), ENOMEM);
	for (uint64_t i = 0; i < 16384; i++)
		assert_int_equal(
			rig_post_send(r, qp, i, 0, 1024, IBV_SEND_INLINE | IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2 * 16384);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* Scattered and gathered in as many pieces as may be, of different lengths. */
static void most_entries(void **state)
{
	enum { N = 30, ROOM = 1024 };
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 8, NULL);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, N, N, 0 }
	};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &attr);
	struct ibv_sge from[N + 1], to[N];
	struct ibv_send_wr wr = { .sg_list = from,
				  .num_sge = N,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_recv_wr recv = { .sg_list = to, .num_sge = N }, *bad_recv;
	uint32_t total = 0;

	assert_non_null(qp);
	rig_connect_self(qp);
	for (uint32_t i = 0; i < N; i++) {
		from[i] =
			(struct ibv_sge){ (uintptr_t)r->buffer + i * ROOM, 7 * i + 1, r->mr->lkey };
		to[i] = (struct ibv_sge){ (uintptr_t)r->buffer + 32768 + i * ROOM, 7 * (N - i),
					  r->mr->lkey };
		memset(r->buffer + i * ROOM, (int)i + 1, ROOM);
		total += from[i].length;
	}
	from[N] = from[0];
	assert_int_equal(ibv_post_recv(qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	rig_await_n(cq, 2);
	/* Byte by byte, as the lists say. */
	for (uint32_t i = 0, a = 0, at = 0, b = 0, bt = 0; i < total; i++) {
		const uint8_t *x = (uint8_t *)(uintptr_t)from[a].addr + at;
		const uint8_t *y = (uint8_t *)(uintptr_t)to[b].addr + bt;

		assert_int_equal(*y, *x);
		if (++at == from[a].length) {
			a++;
			at = 0;
		}
		if (++bt == to[b].length) {
			b++;
			bt = 0;
		}
	}
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = (uintptr_t)r->buffer + 32768;
	wr.wr.rdma.rkey = r->mr->rkey;
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	rig_await_n(cq, 1);
	wr.num_sge = N + 1;
	assert_int_equal(ibv_post_send(qp, &wr, &bad), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* As many READs at once as may be asked for. */
static void deepest_reads(void **state)
{
	enum { N = 128 };
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, N, NULL);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { N, 1, 1, 1, 0 }
	};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD,
				    .max_rd_atomic = N,
				    .max_dest_rd_atomic = N };

	rig_connect_self(qp);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(
		ibv_modify_qp(qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC), 0);
	for (unsigned i = 0; i < N; i++)
		r->buffer[32768 + i] = (uint8_t)i;
	for (unsigned i = 0; i < N; i++) {
		struct ibv_sge sge = { (uintptr_t)r->buffer + i, 1, r->mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_RDMA_READ,
					  .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		wr.wr.rdma.remote_addr = (uintptr_t)r->buffer + 32768 + i;
		wr.wr.rdma.rkey = r->mr->rkey;
		assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	}
	/* They wait for RTS, and so leave together. */
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	for (uint64_t i = 0; i < N; i++)
		assert_int_equal(rig_await(cq).wr_id, i);
	assert_memory_equal(r->buffer, r->buffer + 32768, N);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* 2 GiB of addresses on `piece` bytes of memory. */
static uint8_t *mapped_again_and_again(size_t len, size_t piece)
{
	int fd = memfd_create("piece", MFD_CLOEXEC);
	uint8_t *at =
		mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_int_equal(ftruncate(fd, (off_t)piece), 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	for (size_t i = 0; i < len; i += piece)
		assert_ptr_equal(mmap(at + i, piece, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0),
				 at + i);
	close(fd);
	return at;
}

static void longest_message(void **state)
{
	const size_t len = (size_t)1 << 31, piece = (size_t)256 << 10;
	struct rig *r = *state;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	uint8_t *from = mapped_again_and_again(len, piece),
		*to = mapped_again_and_again(len, piece);
	struct ibv_mr *from_mr = ibv_reg_mr(r->pd, from, len, 0);
	struct ibv_mr *to_mr =
		ibv_reg_mr(r->pd, to, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge sge[2] = { { (uintptr_t)from, (uint32_t)len, from_mr->lkey },
				  { (uintptr_t)from, 1, from_mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sge,
				  .num_sge = 2,
				  .opcode = IBV_WR_RDMA_WRITE_WITH_IMM };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	for (size_t i = 0; i < piece; i++)
		from[i] = (uint8_t)(i * 2654435761u >> 24);
	wr.wr.rdma.remote_addr = (uintptr_t)to;
	wr.wr.rdma.rkey = to_mr->rkey;
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	assert_int_equal(rig_post_recv(r, p.b, 1, 0, 8), 0);
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), 0);
	/* As long as it takes. */
	while (ibv_poll_cq(p.cq_b, 1, &wc) == 0)
		;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, len);
	assert_int_equal(memcmp(from, to, piece), 0);
	rig_pair_free(&p);
	assert_int_equal(ibv_dereg_mr(from_mr), 0);
	assert_int_equal(ibv_dereg_mr(to_mr), 0);
	munmap(from, len);
	munmap(to, len);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(regions),
		TEST(completion_queues),
		TEST(queue_pairs),
		TEST(largest_queues),
		TEST(most_entries),
		TEST(deepest_reads),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		TEST(longest_message),
#endif
	};

	(void)longest_message; /* the sanitizers' builds */
	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
