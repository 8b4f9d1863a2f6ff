/* SPDX-License-Identifier: BSD-2-Clause */
/* Misuse of the API is refused as libibverbs documents, each time with the errno a program looks
 * for. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void null_objects(void **state)
{
	(void)state;
	assert_null(ibv_open_device(NULL));
	assert_int_equal(ibv_close_device(NULL), EINVAL);
	errno = 0;
	assert_null(ibv_alloc_pd(NULL));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(NULL), EINVAL);
	assert_int_equal(ibv_dereg_mr(NULL), EINVAL);
	assert_null(ibv_create_cq(NULL, 1, NULL, NULL, 0));
	assert_int_equal(ibv_destroy_cq(NULL), EINVAL);
	assert_int_equal(ibv_destroy_qp(NULL), EINVAL);
	assert_int_equal(ibv_modify_qp(NULL, NULL, 0), EINVAL);
	assert_int_equal(ibv_destroy_srq(NULL), EINVAL);
	assert_int_equal(ibv_destroy_ah(NULL), EINVAL);
	assert_int_equal(ibv_destroy_comp_channel(NULL), EINVAL);
	assert_int_equal(ibv_get_cq_event(NULL, NULL, NULL), -1);
	ibv_free_device_list(NULL);
}

static void busy_objects(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_cq *cq = rig_cq(r, 1, channel);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_pd *pd = ibv_alloc_pd(r->ctx);
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, srq);

	assert_non_null(srq);
	assert_int_equal(ibv_dealloc_pd(r->pd), EBUSY); /* its region and queue pair */
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);	/* its SRQ */
	assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* The device's limits and one above. */
static void limits(void **state)
{
	struct rig *r = *state;
	struct ibv_device_attr dev;
	struct ibv_cq *cq = rig_cq(r, 1, NULL);
	struct ibv_qp_init_attr attr;
	struct ibv_qp *qp;

	assert_int_equal(ibv_query_device(r->ctx, &dev), 0);
	for (int over = 0; over < 4; over++) {
		attr = (struct ibv_qp_init_attr){ .send_cq = cq,
						  .recv_cq = cq,
						  .qp_type = IBV_QPT_RC };
		attr.cap.max_send_wr = (uint32_t)dev.max_qp_wr + (over == 1);
		attr.cap.max_recv_wr = (uint32_t)dev.max_qp_wr + (over == 2);
		attr.cap.max_send_sge = (uint32_t)dev.max_sge + (over == 3);
		attr.cap.max_recv_sge = 1;
		qp = ibv_create_qp(r->pd, &attr);
		if (over) {
			assert_null(qp);
			assert_int_equal(errno, EINVAL);
		} else {
			assert_non_null(qp);
			assert_int_equal(ibv_destroy_qp(qp), 0);
		}
	}
	assert_null(ibv_create_cq(r->ctx, dev.max_cqe + 1, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq(r->ctx, 0, NULL, NULL, 0));
	assert_null(ibv_create_cq(r->ctx, 1, NULL, NULL, r->ctx->num_comp_vectors));
	assert_int_equal(ibv_resize_cq(cq, dev.max_cqe + 1), EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void queue_pair_types(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 1, NULL);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 } };

	attr.qp_type = (enum ibv_qp_type)42;
	assert_null(ibv_create_qp(r->pd, &attr));
	assert_int_equal(errno, EINVAL);
	attr.qp_type = IBV_QPT_RAW_PACKET;
	assert_null(ibv_create_qp(r->pd, &attr));
	assert_int_equal(errno, EOPNOTSUPP);
	attr.qp_type = IBV_QPT_RC;
	attr.send_cq = NULL;
	assert_null(ibv_create_qp(r->pd, &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void posting_in_the_wrong_state(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 16, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);

	assert_int_equal(rig_post_recv(r, qp, 1, 0, 8), EINVAL);
	assert_int_equal(rig_post_send(r, qp, 1, 0, 8, 0), EINVAL);
	assert_int_equal(rig_to_rtr(qp, 1), EINVAL);
	assert_int_equal(rig_to_rts(qp), EINVAL);
	assert_int_equal(rig_to_init(qp), 0);
	assert_int_equal(rig_post_recv(r, qp, 1, 0, 8), 0);
	assert_int_equal(rig_post_send(r, qp, 1, 0, 8, 0), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* The chain up to the first that doesn't fit is posted, and bad_wr is that one. */
static void full_queues(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey };
	struct ibv_recv_wr recv[20], *bad_recv = NULL;
	struct ibv_send_wr send[20], *bad_send = NULL;

	for (int i = 0; i < 20; i++) {
		recv[i] = (struct ibv_recv_wr){ .sg_list = &sge, .num_sge = 1 };
		send[i] = (struct ibv_send_wr){ .sg_list = &sge,
						.num_sge = 1,
						.opcode = IBV_WR_SEND };
		if (i) {
			recv[i - 1].next = &recv[i];
			send[i - 1].next = &send[i];
		}
	}
	assert_int_equal(rig_to_init(qp), 0);
	assert_int_equal(ibv_post_recv(qp, recv, &bad_recv), ENOMEM);
	assert_ptr_equal(bad_recv, &recv[16]);
	/* Nobody answers at this number, so that the send queue stays full. */
	assert_int_equal(rig_to_rtr(qp, 0xfffff0), 0);
	assert_int_equal(rig_to_rts(qp), 0);
	assert_int_equal(ibv_post_send(qp, send, &bad_send), ENOMEM);
	assert_ptr_equal(bad_send, &send[16]);
	/* Too many SGEs, and too much inline. */
	recv[0].num_sge = 5;
	send[0].num_sge = 5;
	send[0].next = NULL;
	assert_int_equal(ibv_post_send(qp, send, &bad_send), EINVAL);
	assert_ptr_equal(bad_send, &send[0]);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 65, IBV_SEND_INLINE), EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void reg_fails(struct rig *r, void *addr, size_t len, int access, int error)
{
	errno = 0;
	assert_null(ibv_reg_mr(r->pd, addr, len, access));
	assert_int_equal(errno, error);
}

static void reg_works(struct rig *r, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(r->pd, addr, len, access);

	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* Small ranges and ranges beyond what is faulted in are checked in different ways. */
static void unmapped_memory(struct rig *r, size_t pages)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = pages * page;
	uint8_t *mem = mmap(NULL, len + 2 * page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(mem, MAP_FAILED);
	/* A page of no access in front, a hole behind. */
	assert_int_equal(mprotect(mem, page, PROT_NONE), 0);
	assert_int_equal(munmap(mem + page + len, page), 0);
	reg_works(r, mem + page, len, IBV_ACCESS_LOCAL_WRITE);
	reg_fails(r, mem + page, len + 1, 0, EFAULT);
	reg_fails(r, mem + page - 1, len, 0, EFAULT);
	reg_fails(r, mem, page, 0, EFAULT);
	assert_int_equal(mprotect(mem + len, page, PROT_READ), 0);
	reg_works(r, mem + page, len, IBV_ACCESS_REMOTE_READ);
	reg_fails(r, mem + page, len, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	/* A hole in the middle. */
	if (pages > 2) {
		assert_int_equal(munmap(mem + page * (pages / 2), page), 0);
		reg_fails(r, mem + page, len, 0, EFAULT);
	}
	munmap(mem, len + page);
}

static void registration(void **state)
{
	struct rig *r = *state;

	unmapped_memory(r, 1);
	unmapped_memory(r, 16);
	unmapped_memory(r, 1 << 14);
	reg_fails(r, NULL, 4096, 0, EFAULT);
	reg_fails(r, (void *)(uintptr_t)-4096, 8192, 0, EFAULT);
	reg_fails(r, r->buffer, 0, 0, EINVAL);
	reg_fails(r, r->buffer, 8, IBV_ACCESS_REMOTE_WRITE, EINVAL);
	reg_fails(r, r->buffer, 8, IBV_ACCESS_REMOTE_ATOMIC, EINVAL);
	reg_fails(r, r->buffer, 8, 1 << 15, EINVAL);
	reg_works(r, r->buffer, 8, IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_REMOTE_READ);
	assert_null(ibv_reg_mr_iova(r->pd, r->buffer, 4096, UINT64_MAX - 100, 0));
}

static void reregistration(void **state)
{
	struct rig *r = *state;
	struct ibv_pd *other = ibv_alloc_pd(r->ctx);
	struct ibv_mr *mr = ibv_reg_mr(r->pd, r->buffer, 4096, 0);
	uint32_t key = mr->rkey;

	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 4096, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(mr->rkey, key);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION,
				      other, r->buffer + 4096, 8192, 0),
			 0);
	assert_ptr_equal(mr->pd, other);
	assert_int_equal(mr->length, 8192);
	assert_int_not_equal(mr->rkey, key);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

static void address_handles(void **state)
{
	struct rig *r = *state;
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	union ibv_gid ipv6 = { .raw = { [0] = 0xfd, [15] = 1 } };
	struct ibv_ah *ah;

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid), 0);
	ah = ibv_create_ah(r->pd, &attr);
	assert_non_null(ah);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	attr.is_global = 0;
	assert_null(ibv_create_ah(r->pd, &attr));
	assert_int_equal(errno, EINVAL);
	attr.is_global = 1;
	attr.port_num = 2;
	assert_null(ibv_create_ah(r->pd, &attr));
	attr.port_num = 1;
	attr.grh.sgid_index = 63;
	assert_null(ibv_create_ah(r->pd, &attr));
	attr.grh.sgid_index = 0;
	attr.grh.dgid = ipv6;
	assert_null(ibv_create_ah(r->pd, &attr));
	attr.grh.dgid = (union ibv_gid){ 0 };
	assert_null(ibv_create_ah(r->pd, &attr));
}

static void queries(void **state)
{
	struct rig *r = *state;
	struct ibv_gid_entry entry, table[64];
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	assert_int_equal(ibv_query_port(r->ctx, 2, &port), EINVAL);
	assert_int_equal(ibv_query_port(r->ctx, 1, &port), 0);
	assert_int_equal(port.lid, 0);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
	assert_int_equal(port.max_msg_sz, 0x80000000);
	assert_int_equal(ibv_query_gid(r->ctx, 1, port.gid_tbl_len, &gid), -1);
	assert_int_equal(ibv_query_gid(r->ctx, 1, -1, &gid), -1);
	assert_int_equal(ibv_query_gid(r->ctx, 2, 0, &gid), -1);
	/* An empty entry reads as zero in the old call, is ENODATA in the new one. */
	assert_int_equal(ibv_query_gid(r->ctx, 1, port.gid_tbl_len - 1, &gid), 0);
	assert_int_equal(gid.global.interface_id, 0);
	assert_int_equal(ibv_query_gid_ex(r->ctx, 1, (uint32_t)port.gid_tbl_len - 1, &entry, 0),
			 ENODATA);
	assert_int_equal(ibv_query_gid_ex(r->ctx, 1, 0, &entry, 0), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(entry.ndev_ifindex, 1);
	assert_true(ibv_query_gid_table(r->ctx, table, 64, 0) >= 1);
	assert_int_equal(ibv_query_gid_table(r->ctx, table, 0, 0), -EINVAL);
	assert_int_equal(ibv_query_pkey(r->ctx, 1, 0, &pkey), 0);
	assert_int_equal(pkey, 0xffff);
	assert_int_equal(ibv_query_pkey(r->ctx, 1, 1, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(r->ctx, 1, pkey), 0);
	assert_int_equal(ibv_get_pkey_index(r->ctx, 1, 0x8001), -1);
	assert_int_not_equal(ibv_get_device_guid(r->ctx->device), 0);
}

/* Closed with everything left: nothing of it stays (the sanitizers watch), and the next one works.
 */
static void closed_with_objects(void **state)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct rig r = { 0 };
	struct ibv_cq *cq;

	(void)state;
	r.ctx = rig_open("lo");
	r.pd = ibv_alloc_pd(r.ctx);
	cq = rig_cq(&r, 4, ibv_create_comp_channel(r.ctx));
	rig_qp(&r, IBV_QPT_UD, cq, cq, ibv_create_srq(r.pd, &srq_attr));
	assert_non_null(ibv_reg_mr(r.pd, &r, sizeof(r), 0));
	assert_int_equal(ibv_close_device(r.ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(null_objects),
		cmocka_unit_test_setup_teardown(busy_objects, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(limits, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(queue_pair_types, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(posting_in_the_wrong_state, rig_setup,
						rig_teardown),
		cmocka_unit_test_setup_teardown(full_queues, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(registration, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(reregistration, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(address_handles, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(queries, rig_setup, rig_teardown),
		cmocka_unit_test(closed_with_objects),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
