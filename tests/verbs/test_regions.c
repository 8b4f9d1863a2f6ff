/* SPDX-License-Identifier: BSD-2-Clause */
/* Every kind of memory region, by its right use, at its limits and by its wrong uses. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static uint64_t at(const void *p)
{
	return (uintptr_t)p;
}

/* READ of 16 bytes by the pair's `a` from there into the rig's buffer. */
static enum ibv_wc_status read16(struct rig *r, struct rig_pair *p, uint64_t remote, uint32_t rkey)
{
	return rig_run(p, IBV_WR_RDMA_READ, at(r->buffer), 16, r->mr->lkey, remote, rkey);
}

static enum ibv_wc_status write16(struct rig *r, struct rig_pair *p, uint64_t remote, uint32_t rkey)
{
	return rig_run(p, IBV_WR_RDMA_WRITE, at(r->buffer), 16, r->mr->lkey, remote, rkey);
}

/* A request on queue pairs of its own: an error ends a pair. */
static enum ibv_wc_status once(struct rig *r,
			       enum ibv_wc_status (*op)(struct rig *, struct rig_pair *, uint64_t,
							uint32_t),
			       uint64_t remote, uint32_t rkey)
{
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	enum ibv_wc_status status = op(r, &p, remote, rkey);

	rig_pair_free(&p);
	return status;
}

/* All seven combinations: what was asked has changed, what wasn't hasn't. */
static void test_rereg(void **state)
{
	struct rig *r = *state;
	struct ibv_pd *other = ibv_alloc_pd(r->ctx);
	static uint8_t old_place[64], new_place[128];

	old_place[0] = 1;
	new_place[0] = 2;
	for (int flags = 1; flags <= IBV_REREG_MR_FLAGS_SUPPORTED; flags++) {
		struct ibv_mr *mr = ibv_reg_mr(r->pd, old_place, sizeof(old_place), RIG_ALL_ACCESS);
		bool moved = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
		bool other_pd = flags & IBV_REREG_MR_CHANGE_PD;
		bool read_only = flags & IBV_REREG_MR_CHANGE_ACCESS;
		const uint8_t *place = moved ? new_place : old_place;

		assert_non_null(mr);
		assert_int_equal(ibv_rereg_mr(mr, flags, other_pd ? other : NULL,
					      moved ? new_place : NULL,
					      moved ? sizeof(new_place) : 0,
					      read_only ? IBV_ACCESS_REMOTE_READ : 0),
				 0);
		assert_ptr_equal(mr->addr, place);
		assert_int_equal(mr->length, moved ? sizeof(new_place) : sizeof(old_place));
		assert_ptr_equal(mr->pd, other_pd ? other : r->pd);
		assert_int_equal(once(r, read16, at(place), mr->rkey),
				 other_pd ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
		if (!other_pd)
			assert_int_equal(r->buffer[0], place[0]);
		assert_int_equal(once(r, write16, at(place) + 16, mr->rkey),
				 other_pd || read_only ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
		assert_int_equal(once(r, read16, at(place) + 112, mr->rkey),
				 moved && !other_pd ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	/* Nobody is left in it. */
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void test_rereg_refused(void **state)
{
	struct rig *r = *state;
	static uint8_t place[64];
	struct ibv_mr *mr = ibv_reg_mr(r->pd, place, 64, IBV_ACCESS_REMOTE_READ);

	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 64, 0),
			 IBV_REREG_MR_ERR_INPUT);
	/* The old region is valid. */
	assert_int_equal(once(r, read16, at(place), mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* Named on the wire and in SGEs by another address than the memory's, or from 0; page offsets
 * don't matter; flags of the optional range are accepted. */
static void test_iova(void **state)
{
	struct rig *r = *state;
	uint8_t *place = r->buffer + 1000;
	struct ibv_mr *mrs[] = {
		ibv_reg_mr_iova(r->pd, place, 100, 0x123456789a, RIG_ALL_ACCESS),
		ibv_reg_mr_iova2(r->pd, place, 100, 77,
				 RIG_ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING),
		ibv_reg_mr_iova(r->pd, place, 100, 0, RIG_ALL_ACCESS),
		ibv_reg_mr(r->pd, place, 100, RIG_ALL_ACCESS | IBV_ACCESS_ZERO_BASED),
		/* Up to the last byte of the address space. */
		ibv_reg_mr_iova(r->pd, place, 100, UINT64_MAX - 100, RIG_ALL_ACCESS),
	};
	const uint64_t iovas[] = { 0x123456789a, 77, 0, 0, UINT64_MAX - 100 };

	for (size_t i = 0; i < sizeof(mrs) / sizeof(mrs[0]); i++) {
		assert_non_null(mrs[i]);
		place[84] = (uint8_t)(i + 1);
		assert_int_equal(once(r, read16, iovas[i] + 84, mrs[i]->rkey), IBV_WC_SUCCESS);
		assert_int_equal(r->buffer[0], i + 1);
		assert_int_equal(once(r, read16, iovas[i] + 85, mrs[i]->rkey),
				 IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(once(r, read16, iovas[i] - 1, mrs[i]->rkey),
				 IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(ibv_dereg_mr(mrs[i]), 0);
	}
	errno = 0;
	assert_null(ibv_reg_mr_iova(r->pd, place, 100, UINT64_MAX - 98, RIG_ALL_ACCESS));
	assert_int_equal(errno, EINVAL);
	/* Flags nobody knows, inside of the optional range and outside. */
	mrs[0] = ibv_reg_mr_iova2(r->pd, place, 100, 0,
				  IBV_ACCESS_OPTIONAL_FIRST << 3 | IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mrs[0]);
	assert_int_equal(ibv_dereg_mr(mrs[0]), 0);
	assert_null(ibv_reg_mr_iova2(r->pd, place, 100, 0, 1u << 19));
	assert_int_equal(errno, EINVAL);
}

/* A region of no memory: zeros come out, what goes in is gone; and only its owner may use it. */
static void test_null(void **state)
{
	struct rig *r = *state;
	struct ibv_mr *mr = ibv_alloc_null_mr(r->pd);
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_non_null(mr);
	memset(r->buffer, 0xaa, 64);
	assert_int_equal(
		rig_run(&p, IBV_WR_RDMA_WRITE, 0x1000, 32, mr->lkey, at(r->buffer), r->mr->rkey),
		IBV_WC_SUCCESS);
	assert_int_equal(r->buffer[0], 0);
	assert_int_equal(r->buffer[31], 0);
	assert_int_equal(r->buffer[32], 0xaa);
	assert_int_equal(rig_run(&p, IBV_WR_RDMA_READ, UINT64_MAX - 32, 32, mr->lkey, at(r->buffer),
				 r->mr->rkey),
			 IBV_WC_SUCCESS);
	sge = (struct ibv_sge){ 0, 4096, mr->lkey };
	assert_int_equal(ibv_post_recv(p.b, &wr, &bad), 0);
	assert_int_equal(rig_post_send(r, p.a, 1, 0, 4096, IBV_SEND_SIGNALED), 0);
	assert_int_equal(rig_await(p.cq_a).status, IBV_WC_SUCCESS);
	assert_int_equal(rig_await(p.cq_b).byte_len, 4096);
	rig_pair_free(&p);
	assert_int_equal(once(r, read16, 0, mr->lkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(once(r, write16, 0, mr->lkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* On-demand paging, explicit: the memory comes after the region, goes, and comes again. */
static void test_on_demand(void **state)
{
	struct rig *r = *state;
	const unsigned access = RIG_ALL_ACCESS | IBV_ACCESS_ON_DEMAND;
	uint8_t *place = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	assert_null(ibv_reg_mr(r->pd, place, PAGE, RIG_ALL_ACCESS));
	mr = ibv_reg_mr(r->pd, place, PAGE, access);
	assert_non_null(mr);
	assert_int_equal(once(r, read16, at(place), mr->rkey), IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mprotect(place, PAGE, PROT_READ | PROT_WRITE), 0);
		place[0] = 5;
		assert_int_equal(once(r, read16, at(place), mr->rkey), IBV_WC_SUCCESS);
		assert_int_equal(r->buffer[0], 5);
		r->buffer[0] = 6;
		assert_int_equal(once(r, write16, at(place), mr->rkey), IBV_WC_SUCCESS);
		assert_int_equal(place[0], 6);
		assert_int_equal(mprotect(place, PAGE, PROT_NONE), 0);
		assert_int_equal(once(r, write16, at(place), mr->rkey), IBV_WC_REM_ACCESS_ERR);
	}
	assert_null(ibv_reg_mr(r->pd, place, SIZE_MAX, access));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(place, PAGE);
}

/* Implicit: one region for all memory there is and will be. */
static void test_on_demand_implicit(void **state)
{
	struct rig *r = *state;
	struct ibv_mr *mr =
		ibv_reg_mr(r->pd, NULL, SIZE_MAX, RIG_ALL_ACCESS | IBV_ACCESS_ON_DEMAND);
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	uint64_t *later = malloc(64);

	assert_non_null(mr);
	*later = 41;
	assert_int_equal(rig_run(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, at(r->buffer), 8, mr->lkey,
				 at(later), mr->rkey),
			 IBV_WC_SUCCESS);
	assert_int_equal(*later, 42);
	assert_int_equal(*(uint64_t *)(void *)r->buffer, 41);
	rig_pair_free(&p);
	assert_int_equal(once(r, read16, 0, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(once(r, read16, UINT64_MAX - 16, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	free(later);
}

static void test_advise(void **state)
{
	struct rig *r = *state;
	uint8_t *place =
		mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr =
		ibv_reg_mr(r->pd, place, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *readable = ibv_reg_mr(r->pd, place, PAGE, IBV_ACCESS_ON_DEMAND);
	struct ibv_pd *other = ibv_alloc_pd(r->ctx);
	struct ibv_sge list[2] = { { at(place), PAGE, mr->lkey },
				   { at(place) + 2 * PAGE + 1, 2, mr->lkey } };
	unsigned char resident[4];

	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, list, 2),
			 0);
	assert_int_equal(mincore(place, 4 * PAGE, resident), 0);
	assert_int_equal(resident[0] & 1, 0);
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				       IBV_ADVISE_MR_FLAG_FLUSH, list, 2),
			 0);
	assert_int_equal(mincore(place, 4 * PAGE, resident), 0);
	assert_int_equal(resident[0] & 1, 1);
	assert_int_equal(resident[1] & 1, 0);
	assert_int_equal(resident[2] & 1, 1);
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1), 0);

	assert_int_equal(ibv_advise_mr(r->pd, 9, 0, list, 1), EOPNOTSUPP);
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, list, 1), EINVAL);
	assert_int_equal(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1), EPERM);
	list[0].length = 5 * PAGE;
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1), EFAULT);
	list[0] = (struct ibv_sge){ at(place), PAGE, readable->lkey };
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, list, 1),
			 EPERM);
	list[0].lkey = r->mr->lkey;
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1), EINVAL);
	list[0].lkey = mr->lkey ^ 0x100;
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1), ENOENT);
	munmap(place, 4 * PAGE);
	list[0].lkey = mr->lkey;
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1), EFAULT);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(readable), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void test_device_memory(void **state)
{
	struct rig *r = *state;
	struct ibv_alloc_dm_attr attr = { .length = 1000, .log_align_req = 12 };
	struct ibv_dm *dm = ibv_alloc_dm(r->ctx, &attr);
	const unsigned access = RIG_ALL_ACCESS | IBV_ACCESS_ZERO_BASED;
	struct ibv_mr *mr, *none;
	uint8_t back[100];

	assert_non_null(dm);
	assert_int_equal(dm->comp_mask, IBV_DM_MASK_HANDLE);
	mr = ibv_reg_dm_mr(r->pd, dm, 100, 900, access);
	assert_non_null(mr);
	memset(r->buffer, 9, 16);
	assert_int_equal(once(r, write16, 4, mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(ibv_memcpy_from_dm(back, dm, 100, 24), 0);
	assert_int_equal(back[3], 0);
	assert_int_equal(back[4], 9);
	assert_int_equal(back[19], 9);
	assert_int_equal(back[20], 0);
	memset(back, 3, sizeof(back));
	assert_int_equal(ibv_memcpy_to_dm(dm, 900, back, 100), 0);
	assert_int_equal(once(r, read16, 884, mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(r->buffer[15], 3);
	assert_int_equal(once(r, read16, 885, mr->rkey), IBV_WC_REM_ACCESS_ERR);

	assert_int_equal(ibv_memcpy_to_dm(dm, 904, back, 100), EFAULT);
	assert_int_equal(ibv_memcpy_from_dm(back, dm, UINT64_MAX - 3, 8), EFAULT);
	assert_int_equal(ibv_memcpy_to_dm(dm, 2, back, 4), EINVAL);
	assert_int_equal(ibv_memcpy_from_dm(back, dm, 4, 6), EINVAL);
	assert_null(ibv_reg_dm_mr(r->pd, dm, 0, 100, RIG_ALL_ACCESS));
	none = ibv_reg_dm_mr(r->pd, dm, 1000, 0, access);
	assert_non_null(none);
	assert_int_equal(ibv_dereg_mr(none), 0);
	assert_null(ibv_reg_dm_mr(r->pd, dm, 1, 1000, access));
	assert_null(ibv_reg_dm_mr(r->pd, dm, 0, 100, access | IBV_ACCESS_MW_BIND));
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
}

/* A child may have some of its own, and lets the parent's be. */
static void test_device_memory_in_a_child(void **state)
{
	struct rig *r = *state;
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *ours = ibv_alloc_dm(r->ctx, &attr), *childs;
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		childs = ibv_alloc_dm(r->ctx, &attr);
		_exit(!childs || ibv_memcpy_to_dm(childs, 0, r->buffer, 64) ||
		      ibv_free_dm(childs) || ibv_free_dm(ours));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(ibv_memcpy_to_dm(ours, 0, r->buffer, 64), 0);
	assert_int_equal(ibv_free_dm(ours), 0);
}

/* As much as the device says there is, not a byte more, and all of it again. */
static void test_device_memory_limits(void **state)
{
	struct rig *r = *state;
	struct ibv_alloc_dm_attr attr = { .length = 1 };
	struct ibv_device_attr_ex device;
	struct ibv_dm *dm, *all;

	assert_int_equal(ibv_query_device_ex(r->ctx, NULL, &device), 0);
	assert_true(device.max_dm_size > 0);
	dm = ibv_alloc_dm(r->ctx, &attr);
	assert_non_null(dm);
	attr.length = device.max_dm_size;
	assert_null(ibv_alloc_dm(r->ctx, &attr));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_free_dm(dm), 0);
	all = ibv_alloc_dm(r->ctx, &attr);
	assert_non_null(all);
	assert_int_equal(ibv_free_dm(all), 0);
	attr.length = 0;
	assert_null(ibv_alloc_dm(r->ctx, &attr));
	attr = (struct ibv_alloc_dm_attr){ .length = 1, .comp_mask = 1 };
	assert_null(ibv_alloc_dm(r->ctx, &attr));
	attr = (struct ibv_alloc_dm_attr){ .length = 1, .log_align_req = 40 };
	assert_null(ibv_alloc_dm(r->ctx, &attr));
}

/* A memfd stands for a dma-buf: what matters is that the descriptor can be mapped. */
static void test_dmabuf(void **state)
{
	struct rig *r = *state;
	int fd = memfd_create("buffer", MFD_CLOEXEC);
	struct ibv_mr *mr;
	uint8_t byte = 0;

	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	mr = ibv_reg_dmabuf_mr(r->pd, 100, PAGE, 0x7000064, fd, RIG_ALL_ACCESS);
	assert_non_null(mr);
	memset(r->buffer, 0x5a, 16);
	assert_int_equal(once(r, write16, 0x7000064, mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(pread(fd, &byte, 1, 100), 1);
	assert_int_equal(byte, 0x5a);
	byte = 0x66;
	assert_int_equal(pwrite(fd, &byte, 1, 100 + PAGE - 1), 1);
	assert_int_equal(once(r, read16, 0x7000064 + PAGE - 16, mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(r->buffer[15], 0x66);
	assert_int_equal(once(r, read16, 0x7000064 + PAGE - 15, mr->rkey), IBV_WC_REM_ACCESS_ERR);

	assert_null(ibv_reg_dmabuf_mr(r->pd, 100, PAGE, 0x7000065, fd, RIG_ALL_ACCESS));
	assert_null(ibv_reg_dmabuf_mr(r->pd, 0, 2 * PAGE + 1, 0, fd, RIG_ALL_ACCESS));
	assert_null(ibv_reg_dmabuf_mr(r->pd, 0, 0, 0, fd, RIG_ALL_ACCESS));
	assert_null(ibv_reg_dmabuf_mr(r->pd, 0, PAGE, 0, fd, IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_dmabuf_mr(r->pd, 0, PAGE, 0, -1, RIG_ALL_ACCESS));
	assert_int_equal(errno, EBADF);
	assert_null(ibv_reg_dmabuf_mr(r->pd, 0, PAGE, 0, r->ctx->async_fd, RIG_ALL_ACCESS));
	/* The buffer ends while it is registered. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(once(r, read16, 0x7000064, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rereg, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_rereg_refused, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_iova, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_null, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_on_demand, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_on_demand_implicit, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_advise, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_device_memory, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_device_memory_in_a_child, rig_setup,
						rig_teardown),
		cmocka_unit_test_setup_teardown(test_device_memory_limits, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_dmabuf, rig_setup, rig_teardown),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
