/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts, protection domains, regions and device memory under several names (ibv_import_*): right use,
 * wrong uses, the order in which names go, another process, threads. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error)                      \
	do {                                    \
		errno = 0;                      \
		assert_null(call);              \
		assert_int_equal(errno, error); \
	} while (0)

static struct ibv_context *import_device(const struct rig *r)
{
	struct ibv_context *ctx = ibv_import_device(dup(r->ctx->cmd_fd));

	assert_non_null(ctx);
	return ctx;
}

/* The same domain and region in a context of their own, as a rig. */
static struct rig import_all(const struct rig *r)
{
	struct rig other = { .ctx = import_device(r), .buffer = r->buffer };

	other.pd = ibv_import_pd(other.ctx, r->pd->handle);
	assert_non_null(other.pd);
	other.mr = ibv_import_mr(other.pd, r->mr->handle);
	assert_non_null(other.mr);
	return other;
}

static void unimport_all(struct rig *other)
{
	ibv_unimport_mr(other->mr);
	ibv_unimport_pd(other->pd);
	assert_int_equal(ibv_close_device(other->ctx), 0);
}

/* A context of another file, with a domain of its own, as a rig. */
static struct rig stranger(const struct rig *r)
{
	struct rig s = { .ctx = rig_open("lo"), .buffer = r->buffer };

	s.pd = ibv_alloc_pd(s.ctx);
	s.mr = ibv_reg_mr(s.pd, s.buffer, RIG_BUFFER, RIG_ALL_ACCESS);
	assert_non_null(s.mr);
	return s;
}

static void stranger_close(struct rig *s)
{
	assert_int_equal(ibv_dereg_mr(s->mr), 0);
	assert_int_equal(ibv_dealloc_pd(s->pd), 0);
	assert_int_equal(ibv_close_device(s->ctx), 0);
}

/* WRITE by a stranger's queue pair to one of `to`, to this key. */
static enum ibv_wc_status write_to(struct rig *s, struct rig *to, uint32_t rkey)
{
	struct rig_pair p = { .cq_a = rig_cq(s, 8, NULL), .cq_b = rig_cq(to, 8, NULL) };
	enum ibv_wc_status status;

	p.a = rig_qp(s, IBV_QPT_RC, p.cq_a, p.cq_a, NULL);
	p.b = rig_qp(to, IBV_QPT_RC, p.cq_b, p.cq_b, NULL);
	rig_connect(p.a, p.b);
	status = rig_run(&p, IBV_WR_RDMA_WRITE, (uintptr_t)s->buffer, 64, s->mr->lkey,
			 (uintptr_t)to->buffer + 4096, rkey);
	rig_pair_free(&p);
	return status;
}

/* Queue pairs of the imported domain use what was registered in the original, as a peer's target and
 * as their own memory; and what is registered under the new name is the original's. */
static void used(void **state)
{
	struct rig *r = *state, other = import_all(r), s = stranger(r);
	struct ibv_pd *apart = ibv_alloc_pd(other.ctx);
	struct rig_pair p = rig_pair_make(&other, IBV_QPT_RC);
	struct ibv_mr *later;

	assert_ptr_equal(other.ctx->device, r->ctx->device);
	assert_int_not_equal(other.ctx->async_fd, r->ctx->async_fd);
	assert_ptr_equal(other.pd->context, other.ctx);
	assert_int_equal(other.pd->handle, r->pd->handle);
	assert_ptr_equal(other.mr->context, other.ctx);
	assert_ptr_equal(other.mr->pd, other.pd);
	assert_null(other.mr->addr);
	assert_int_equal(other.mr->length, r->mr->length);
	assert_int_equal(other.mr->handle, r->mr->handle);
	assert_int_equal(other.mr->lkey, r->mr->lkey);
	assert_int_equal(other.mr->rkey, r->mr->rkey);

	memset(r->buffer, 0x31, 64);
	assert_int_equal(write_to(&s, &other, r->mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(r->buffer[4096 + 63], 0x31);
	assert_int_equal(rig_run(&p, IBV_WR_RDMA_READ, (uintptr_t)r->buffer + 8192, 64,
				 other.mr->lkey, (uintptr_t)r->buffer, other.mr->rkey),
			 IBV_WC_SUCCESS);
	assert_int_equal(r->buffer[8192], 0x31);
	rig_pair_free(&p);

	later = ibv_reg_mr(other.pd, r->buffer, 8192, RIG_ALL_ACCESS);
	assert_non_null(later);
	assert_int_equal(write_to(&s, r, later->rkey), IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(later), 0);

	/* Another domain of the same context doesn't. */
	{
		struct rig elsewhere = other;

		elsewhere.pd = apart;
		assert_int_equal(write_to(&s, &elsewhere, r->mr->rkey), IBV_WC_REM_ACCESS_ERR);
	}
	assert_int_equal(ibv_dealloc_pd(apart), 0);
	stranger_close(&s);
	unimport_all(&other);
}

/* Destroyed under the new name: the old ones can only be given up. */
static void destroyed_elsewhere(void **state)
{
	struct rig *r = *state, one = stranger(r), other = import_all(&one), s = stranger(r);
	struct ibv_parent_domain_init_attr parent = { .pd = one.pd };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_sge sge = { 0, 8, one.mr->lkey };
	uint32_t pd_handle = one.pd->handle, mr_handle = one.mr->handle;
	struct ibv_cq *cq = rig_cq(&one, 4, NULL);
	struct ibv_qp_init_attr qp = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };

	assert_int_equal(ibv_query_gid(one.ctx, 1, 0, &ah.grh.dgid), 0);
	assert_int_equal(ibv_dealloc_pd(one.pd), EBUSY);
	assert_int_equal(ibv_dealloc_pd(other.pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(other.mr), 0);
	assert_int_equal(write_to(&s, &other, one.mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(one.mr), ENOENT);
	assert_int_equal(
		ibv_rereg_mr(one.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIG_ALL_ACCESS),
		IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, ENOENT);
	FAILS(ibv_import_mr(other.pd, mr_handle), ENOENT);

	assert_int_equal(ibv_dealloc_pd(other.pd), 0);
	assert_int_equal(ibv_dealloc_pd(one.pd), ENOENT);
	FAILS(ibv_import_pd(other.ctx, pd_handle), ENOENT);
	FAILS(ibv_reg_mr(one.pd, r->buffer, 64, 0), ENOENT);
	FAILS(ibv_alloc_null_mr(one.pd), ENOENT);
	FAILS(ibv_reg_dmabuf_mr(one.pd, 0, 64, 0, one.ctx->cmd_fd, 0), ENOENT);
	FAILS(ibv_import_mr(one.pd, mr_handle), ENOENT);
	FAILS(ibv_create_ah(one.pd, &ah), ENOENT);
	FAILS(ibv_create_srq(one.pd, &srq), ENOENT);
	FAILS(ibv_create_qp(one.pd, &qp), ENOENT);
	FAILS(ibv_alloc_mw(one.pd, IBV_MW_TYPE_1), ENOENT);
	FAILS(ibv_alloc_parent_domain(one.ctx, &parent), ENOENT);
	assert_int_equal(ibv_advise_mr(one.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	ibv_unimport_mr(one.mr);
	ibv_unimport_pd(one.pd);
	assert_int_equal(ibv_close_device(one.ctx), 0);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	stranger_close(&s);
}

/* Each kind of object that is made under one name keeps the domain busy under all. */
static void busy(void **state)
{
	struct rig *r = *state, one = stranger(r), other = import_all(&one);
	struct ibv_parent_domain_init_attr parent = { .pd = other.pd };
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_cq *cq = rig_cq(&other, 4, NULL);
	struct ibv_pd *domain;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	ibv_unimport_mr(other.mr);
	assert_int_equal(ibv_dereg_mr(one.mr), 0);
	assert_int_equal(ibv_query_gid(one.ctx, 1, 0, &ah_attr.grh.dgid), 0);

	mr = ibv_reg_mr(other.pd, r->buffer, 64, 0);
	assert_int_equal(ibv_dealloc_pd(one.pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	ah = ibv_create_ah(other.pd, &ah_attr);
	assert_int_equal(ibv_dealloc_pd(one.pd), EBUSY);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	mw = ibv_alloc_mw(other.pd, IBV_MW_TYPE_2);
	assert_int_equal(ibv_dealloc_pd(one.pd), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	srq = ibv_create_srq(other.pd, &srq_attr);
	assert_int_equal(ibv_dealloc_pd(one.pd), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	qp = rig_qp(&other, IBV_QPT_UD, cq, cq, NULL);
	assert_int_equal(ibv_dealloc_pd(one.pd), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	domain = ibv_alloc_parent_domain(other.ctx, &parent);
	assert_int_equal(ibv_dealloc_pd(one.pd), EBUSY);
	assert_int_equal(ibv_dealloc_pd(domain), 0);

	/* What a context leaves behind when it is closed keeps nothing busy, but for regions. */
	assert_non_null(ibv_create_ah(other.pd, &ah_attr));
	assert_non_null(ibv_alloc_mw(other.pd, IBV_MW_TYPE_1));
	assert_non_null(ibv_create_srq(other.pd, &srq_attr));
	assert_non_null(ibv_alloc_parent_domain(other.ctx, &parent));
	rig_qp(&other, IBV_QPT_RC, cq, cq, NULL);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	assert_int_equal(ibv_dealloc_pd(one.pd), 0);
	assert_int_equal(ibv_close_device(one.ctx), 0);
}

static void wrong_handles(void **state)
{
	struct rig *r = *state, other = import_all(r), s = stranger(r);
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(r->ctx, &attr);
	struct ibv_pd *extra[8];

	FAILS(ibv_import_pd(other.ctx, 0), ENOENT);
	FAILS(ibv_import_pd(other.ctx, UINT32_MAX), ENOENT);
	/* Handles of another kind. */
	FAILS(ibv_import_pd(other.ctx, r->mr->handle), ENOENT);
	FAILS(ibv_import_mr(other.pd, r->pd->handle), ENOENT);
	FAILS(ibv_import_mr(other.pd, r->mr->lkey), ENOENT);
	FAILS(ibv_import_dm(other.ctx, r->mr->handle), ENOENT);
	/* Of another file. */
	for (int i = 0; i < 8; i++)
		extra[i] = ibv_alloc_pd(r->ctx);
	FAILS(ibv_import_pd(s.ctx, extra[7]->handle), ENOENT);
	FAILS(ibv_import_dm(s.ctx, dm->handle), ENOENT);
	for (int i = 0; i < 8; i++)
		assert_int_equal(ibv_dealloc_pd(extra[i]), 0);
	/* What isn't an object. */
	FAILS(ibv_import_pd(NULL, 1), EINVAL);
	FAILS(ibv_import_mr(NULL, 1), EINVAL);
	FAILS(ibv_import_dm(NULL, 1), EINVAL);
	ibv_unimport_pd(NULL);
	ibv_unimport_mr(NULL);
	ibv_unimport_dm(NULL);
	/* A parent domain isn't imported, and stays. */
	{
		struct ibv_parent_domain_init_attr parent = { .pd = r->pd };
		struct ibv_pd *domain = ibv_alloc_parent_domain(r->ctx, &parent);

		ibv_unimport_pd(domain);
		assert_int_equal(ibv_dealloc_pd(domain), 0);
	}
	assert_int_equal(ibv_free_dm(dm), 0);
	stranger_close(&s);
	unimport_all(&other);
}

static void wrong_descriptors(void **state)
{
	struct rig *r = *state, s = stranger(r);
	int null = open("/dev/null", O_RDWR), fd = memfd_create("rocelink", 0), pipes[2];

	assert_int_equal(pipe(pipes), 0);
	assert_null(ibv_import_device(-1));
	assert_null(ibv_import_device(null));
	assert_null(ibv_import_device(fd));
	assert_null(ibv_import_device(pipes[0]));
	assert_null(ibv_import_device(r->ctx->async_fd));
	/* They are the caller's still. */
	assert_int_equal(close(null), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(pipes[0]), 0);
	assert_int_equal(close(pipes[1]), 0);
	/* Two contexts would close it. */
	FAILS(ibv_import_device(r->ctx->cmd_fd), EINVAL);
	/* All its contexts are closed. */
	fd = dup(s.ctx->cmd_fd);
	stranger_close(&s);
	FAILS(ibv_import_device(fd), EOPNOTSUPP);
	assert_int_equal(close(fd), 0);
	/* Closing an imported context closes its descriptor. */
	fd = dup(r->ctx->cmd_fd);
	assert_int_equal(ibv_close_device(ibv_import_device(fd)), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* The context that made them goes first, with its names; the rest goes on, and is found by a third. */
static void original_closed(void **state)
{
	struct rig *r = *state, one = stranger(r), other = import_all(&one), s = stranger(r);
	uint32_t mr_handle = one.mr->handle, pd_handle = one.pd->handle;
	struct rig third = { .buffer = r->buffer };

	assert_int_equal(ibv_close_device(one.ctx), 0);
	assert_int_equal(write_to(&s, &other, other.mr->rkey), IBV_WC_SUCCESS);
	third.ctx = import_device(&other);
	/* Without a name for a moment. */
	ibv_unimport_mr(other.mr);
	ibv_unimport_pd(other.pd);
	third.pd = ibv_import_pd(third.ctx, pd_handle);
	third.mr = ibv_import_mr(third.pd, mr_handle);
	assert_non_null(third.mr);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	assert_int_equal(write_to(&s, &third, third.mr->rkey), IBV_WC_SUCCESS);
	/* Its memory is known, though nobody here gave the address. */
	assert_int_equal(ibv_rereg_mr(third.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_READ),
			 0);
	assert_null(third.mr->addr);
	assert_int_equal(write_to(&s, &third, third.mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(third.mr), 0);
	assert_int_equal(ibv_dealloc_pd(third.pd), 0);
	assert_int_equal(ibv_close_device(third.ctx), 0);
	stranger_close(&s);
}

/* The domain is given up while a name of a region, a queue pair and an address handle stand on it. */
static void given_up_early(void **state)
{
	struct rig *r = *state, other = import_all(r), s = stranger(r);
	struct ibv_cq *cq = rig_cq(&other, 4, NULL);
	struct ibv_qp *qp = rig_qp(&other, IBV_QPT_RC, cq, cq, NULL);

	ibv_unimport_pd(other.pd);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	ibv_unimport_mr(other.mr);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	assert_int_equal(write_to(&s, r, r->mr->rkey), IBV_WC_SUCCESS);
	stranger_close(&s);
}

/* A region moves to another domain under its new name: the keys that the old name tells are void. */
static void reregistered(void **state)
{
	struct rig *r = *state, one = stranger(r), other = import_all(&one), s = stranger(r);
	struct ibv_pd *second = ibv_alloc_pd(other.ctx);
	uint32_t old = other.mr->rkey;
	struct rig there = other;

	there.pd = second;
	assert_int_equal(ibv_rereg_mr(other.mr, IBV_REREG_MR_CHANGE_PD, second, NULL, 0, 0), 0);
	assert_int_not_equal(other.mr->rkey, old);
	assert_int_equal(write_to(&s, &there, other.mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(write_to(&s, &there, old), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(write_to(&s, &one, other.mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_pd(second), EBUSY);
	/* The first domain has nobody left; the region's old name finds the region where it is now. */
	assert_int_equal(ibv_dereg_mr(one.mr), 0);
	assert_int_equal(ibv_dealloc_pd(one.pd), 0);
	ibv_unimport_mr(other.mr);
	ibv_unimport_pd(other.pd);
	assert_int_equal(ibv_dealloc_pd(second), 0);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	assert_int_equal(ibv_close_device(one.ctx), 0);
	stranger_close(&s);
}

static void device_memory(void **state)
{
	struct rig *r = *state, other = import_all(r), s = stranger(r);
	struct ibv_alloc_dm_attr attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(r->ctx, &attr), *same;
	struct ibv_device_attr_ex device;
	struct ibv_mr *mr;
	uint8_t back[64];

	same = ibv_import_dm(other.ctx, dm->handle);
	assert_non_null(same);
	assert_ptr_equal(same->context, other.ctx);
	assert_int_equal(same->comp_mask, IBV_DM_MASK_HANDLE);
	assert_int_equal(same->handle, dm->handle);
	memset(r->buffer, 0x77, 64);
	assert_int_equal(ibv_memcpy_to_dm(dm, 64, r->buffer, 64), 0);
	assert_int_equal(ibv_memcpy_from_dm(back, same, 64, 64), 0);
	assert_memory_equal(back, r->buffer, 64);
	assert_int_equal(ibv_memcpy_from_dm(back, same, 4096, 4), EFAULT);

	/* Registered under one name, written by a peer, read under the other. */
	mr = ibv_reg_dm_mr(other.pd, same, 0, 4096, RIG_ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	assert_non_null(mr);
	{
		struct rig to = other;

		memset(s.buffer, 0x12, 64);
		to.buffer = (uint8_t *)(uintptr_t)(128 - 4096); /* write_to() adds 4096 */
		assert_int_equal(write_to(&s, &to, mr->rkey), IBV_WC_SUCCESS);
	}
	assert_int_equal(ibv_memcpy_from_dm(back, dm, 128, 64), 0);
	assert_int_equal(back[63], 0x12);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	assert_int_equal(ibv_free_dm(same), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);

	assert_int_equal(ibv_free_dm(same), 0);
	assert_int_equal(ibv_free_dm(dm), ENOENT);
	assert_int_equal(ibv_memcpy_from_dm(back, dm, 0, 64), ENOENT);
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, back, 64), ENOENT);
	FAILS(ibv_reg_dm_mr(r->pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED), ENOENT);
	FAILS(ibv_import_dm(other.ctx, dm->handle), ENOENT);
	ibv_unimport_dm(dm);
	/* What is given up without being freed is the device's again when the last context goes. */
	dm = ibv_alloc_dm(s.ctx, &attr);
	ibv_unimport_dm(dm);
	stranger_close(&s);
	assert_int_equal(ibv_query_device_ex(r->ctx, NULL, &device), 0);
	attr.length = device.max_dm_size;
	dm = ibv_alloc_dm(r->ctx, &attr);
	assert_non_null(dm);
	assert_int_equal(ibv_free_dm(dm), 0);
	unimport_all(&other);
}

/* Each context hears of its own objects. */
static void events(void **state)
{
	struct rig *r = *state, other = import_all(r);
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(other.pd, &attr);
	struct ibv_srq_attr limit = { .srq_limit = 4 };
	struct ibv_async_event event;

	assert_int_equal(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	event = rig_await_event(other.ctx, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, srq);
	ibv_ack_async_event(&event);
	assert_false(rig_readable(r->ctx->async_fd, 0));
	assert_int_equal(ibv_destroy_srq(srq), 0);
	/* Objects of one context are no other's, imported or not. */
	{
		struct ibv_cq *cq = rig_cq(r, 1, NULL);
		struct ibv_qp_init_attr qp = { .send_cq = cq,
					       .recv_cq = cq,
					       .qp_type = IBV_QPT_RC };

		FAILS(ibv_create_qp(other.pd, &qp), EINVAL);
		assert_int_equal(ibv_destroy_cq(cq), 0);
	}
	unimport_all(&other);
}

static void send_descriptor(int socket, int fd)
{
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	assert_int_equal(sendmsg(socket, &msg, 0), 1);
}

/* The other process: what comes over standard input is imported. */
static int import_what_comes(void)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = room,
			      .msg_controllen = sizeof(room) };
	int fd;

	if (recvmsg(STDIN_FILENO, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return 1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	errno = 0;
	return ibv_import_device(fd) || errno != EOPNOTSUPP || fcntl(fd, F_GETFD) < 0;
}

/* Handed to another program over a socket: refused, and the log says whose it is. */
static void other_program(void **state)
{
	struct rig *r = *state;
	int sockets[2], log[2], status = 0;
	char text[4096], expected[64];
	size_t got = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	assert_int_equal(pipe2(log, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		dup2(sockets[1], STDIN_FILENO);
		dup2(log[1], STDERR_FILENO);
		setenv("ROCELINK_LOG", "info", 1);
		execl("/proc/self/exe", "test_import", "other", (char *)NULL);
		_exit(127);
	}
	close(log[1]);
	send_descriptor(sockets[0], r->ctx->cmd_fd);
	while (got < sizeof(text) - 1 && (n = read(log[0], text + got, sizeof(text) - 1 - got)) > 0)
		got += (size_t)n;
	text[got] = '\0';
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	snprintf(expected, sizeof(expected), "is of a context of process %d, this is %d",
		 (int)getpid(), (int)pid);
	if (!strstr(text, expected))
		fail_msg("\"%s\" isn't in \"%s\"", expected, text);
	close(log[0]);
	close(sockets[0]);
	close(sockets[1]);
}

#ifndef __SANITIZE_THREAD__ /* which doesn't know threads of a forked child */
/* A child can't have the parent's, nor use what was imported before. */
static void child(void **state)
{
	struct rig *r = *state, other = import_all(r);
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		bool refused = !ibv_import_device(dup(r->ctx->cmd_fd)) && errno == EOPNOTSUPP &&
			       !ibv_import_pd(other.ctx, r->pd->handle) && errno == EPERM &&
			       !ibv_import_mr(other.pd, r->mr->handle) && errno == EPERM &&
			       !ibv_import_dm(other.ctx, 1) && errno == EPERM;
		struct ibv_context *own;

		ibv_unimport_mr(other.mr);
		ibv_unimport_pd(other.pd);
		/* What it opens itself it can. */
		own = rig_open("lo");
		_exit(!refused || !ibv_import_device(dup(own->cmd_fd)));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	unimport_all(&other);
}
#endif

enum { THREADS = 4, ROUNDS = 200 };

static void *come_and_go(void *arg)
{
	struct rig *r = arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct rig other = import_all(r);
		struct ibv_mr *mr = ibv_reg_mr(other.pd, r->buffer, 64, IBV_ACCESS_LOCAL_WRITE);
		/* Known to all: somebody else's is met while it is registered, or is gone. */
		struct ibv_mr *some = ibv_import_mr(other.pd, mr->handle - 1);

		if (some)
			ibv_unimport_mr(some);
		if (ibv_dereg_mr(mr))
			return "dereg_mr";
		unimport_all(&other);
	}
	return NULL;
}

/* Threads import, register and close at once, while requests run on the shared region. */
static void threads(void **state)
{
	struct rig *r = *state, s = stranger(r);
	pthread_t thread[THREADS];
	void *wrong;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, r), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(write_to(&s, r, r->mr->rkey), IBV_WC_SUCCESS);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(thread[i], &wrong), 0);
		assert_null(wrong);
	}
	stranger_close(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(used),	      TEST(destroyed_elsewhere), TEST(busy),
		TEST(wrong_handles),  TEST(wrong_descriptors),	 TEST(original_closed),
		TEST(given_up_early), TEST(reregistered),	 TEST(device_memory),
		TEST(events),	      TEST(other_program),	 TEST(threads),
#ifndef __SANITIZE_THREAD__
		TEST(child),
#endif
	};

	(void)argv;
	if (argc > 1)
		return import_what_comes();
	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
