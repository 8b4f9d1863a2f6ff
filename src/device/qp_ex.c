/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ibv_wr_* family: requests are built between wr_start and wr_complete, and posted all or none.
 * The send lock is held in between. What is built is kept in growing buffers, so that in the steady
 * state nothing is allocated; SGEs and inline data are remembered by position, since the buffers
 * may move.
 *
 * A misuse inside a batch (too many requests, a setter without a request) is reported by
 * wr_complete.
 */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

struct built {
	struct ibv_send_wr wr;
	size_t first_sge, inline_at;
};

struct buffer {
	void *data;
	size_t used, room; /* bytes */
};

struct qp_builder {
	struct buffer requests; /* struct built */
	struct buffer sges;	/* struct ibv_sge */
	struct buffer bytes;	/* inline data */
	int error;
};

/* Room for n more bytes at the end, or NULL. */
static void *extend(struct buffer *b, size_t n)
{
	size_t room = b->room ? b->room : 256;
	void *data;

	while (room - b->used < n)
		room *= 2;
	if (room != b->room) {
		data = realloc(b->data, room);
		if (!data)
			return NULL;
		b->data = data;
		b->room = room;
	}
	b->used += n;
	return (char *)b->data + b->used - n;
}

static struct dev_qp *self(struct ibv_qp_ex *ibv)
{
	return (struct dev_qp *)ibv;
}

static struct built *add(struct ibv_qp_ex *ibv, enum ibv_wr_opcode opcode)
{
	struct qp_builder *b = self(ibv)->builder;
	struct built *r = b->error ? NULL : extend(&b->requests, sizeof(*r));

	if (!r) {
		if (!b->error) {
			b->error = ENOMEM;
			log_info("ibv_wr_*: out of memory for another work request");
		}
		return NULL;
	}
	*r = (struct built){
		.wr = { .wr_id = ibv->wr_id, .opcode = opcode, .send_flags = ibv->wr_flags },
	};
	return r;
}

static struct built *last(struct ibv_qp_ex *ibv)
{
	struct qp_builder *b = self(ibv)->builder;

	if (b->error)
		return NULL;
	if (b->requests.used)
		return (struct built *)((char *)b->requests.data + b->requests.used) - 1;
	log_info(
		"ibv_wr_set_*: there is no request to set it on, call an ibv_wr_* operation first");
	b->error = EINVAL;
	return NULL;
}

static void wr_rdma(struct ibv_qp_ex *ibv, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr,
		    __be32 imm)
{
	struct built *r = add(ibv, opcode);

	if (!r)
		return;
	r->wr.imm_data = imm;
	r->wr.wr.rdma.remote_addr = addr;
	r->wr.wr.rdma.rkey = rkey;
}

static void wr_rdma_read(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ibv, IBV_WR_RDMA_READ, rkey, addr, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ibv, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t addr, __be32 imm)
{
	wr_rdma(ibv, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void wr_atomic(struct ibv_qp_ex *ibv, enum ibv_wr_opcode opcode, uint32_t rkey,
		      uint64_t addr, uint64_t compare_add, uint64_t swap)
{
	struct built *r = add(ibv, opcode);

	if (!r)
		return;
	r->wr.wr.atomic.remote_addr = addr;
	r->wr.wr.atomic.rkey = rkey;
	r->wr.wr.atomic.compare_add = compare_add;
	r->wr.wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t addr, uint64_t compare,
			      uint64_t swap)
{
	wr_atomic(ibv, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t addr, uint64_t value)
{
	wr_atomic(ibv, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, value, 0);
}

static void wr_send(struct ibv_qp_ex *ibv)
{
	add(ibv, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ibv, __be32 imm)
{
	struct built *r = add(ibv, IBV_WR_SEND_WITH_IMM);

	if (r)
		r->wr.imm_data = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ibv, uint32_t rkey)
{
	struct built *r = add(ibv, IBV_WR_SEND_WITH_INV);

	if (r)
		r->wr.invalidate_rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ibv, uint32_t rkey)
{
	struct built *r = add(ibv, IBV_WR_LOCAL_INV);

	if (r)
		r->wr.invalidate_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ibv, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct built *r = add(ibv, IBV_WR_BIND_MW);

	if (!r)
		return;
	r->wr.bind_mw.mw = mw;
	r->wr.bind_mw.rkey = rkey;
	r->wr.bind_mw.bind_info = *info;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ibv, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct built *r = last(ibv);

	if (!r)
		return;
	r->wr.wr.ud.ah = ah;
	r->wr.wr.ud.remote_qpn = qpn;
	r->wr.wr.ud.remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ibv, uint32_t srqn)
{
	struct built *r = last(ibv);

	if (r)
		r->wr.qp_type.xrc.remote_srqn = srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ibv, size_t n, const struct ibv_sge *list)
{
	struct built *r = last(ibv);
	struct qp_builder *b = self(ibv)->builder;
	void *to;

	if (!r)
		return;
	to = n <= QP_MAX_SGE ? extend(&b->sges, n * sizeof(*list)) : NULL;
	if (!to) {
		b->error = n <= QP_MAX_SGE ? ENOMEM : EINVAL;
		log_info("ibv_wr_set_sge_list: %zu entries, at most %d", n, QP_MAX_SGE);
		return;
	}
	memcpy(to, list, n * sizeof(*list));
	r->first_sge = b->sges.used / sizeof(*list) - n;
	r->wr.num_sge = (int)n;
	r->wr.send_flags &= ~(unsigned)IBV_SEND_INLINE;
}

static void wr_set_sge(struct ibv_qp_ex *ibv, uint32_t lkey, uint64_t addr, uint32_t length)
{
	/* As libibverbs' providers do: an empty SGE stands for no data. */
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ibv, length != 0, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ibv, size_t n,
				    const struct ibv_data_buf *list)
{
	struct built *r = last(ibv);
	struct qp_builder *b = self(ibv)->builder;
	size_t total = 0;
	char *to;

	if (!r)
		return;
	for (size_t i = 0; i < n; i++)
		total += list[i].length;
	to = total <= QP_MAX_INLINE ? extend(&b->bytes, total) : NULL;
	if (!to) {
		b->error = total <= QP_MAX_INLINE ? ENOMEM : EINVAL;
		log_info("ibv_wr_set_inline_data: %zu bytes, at most %d", total, QP_MAX_INLINE);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(to, list[i].addr, list[i].length);
		to += list[i].length;
	}
	r->inline_at = b->bytes.used - total;
	r->wr.send_flags |= IBV_SEND_INLINE;
	wr_set_sge_list(ibv, 1, &(struct ibv_sge){ .length = (uint32_t)total });
	r->wr.send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ibv, void *addr, size_t length)
{
	wr_set_inline_data_list(ibv, 1, &(struct ibv_data_buf){ .addr = addr, .length = length });
}

/* The data comes with the call. */
static void wr_atomic_write(struct ibv_qp_ex *ibv, uint32_t rkey, uint64_t addr, const void *data)
{
	struct ibv_data_buf buf = { .addr = (void *)(uintptr_t)data, .length = sizeof(uint64_t) };

	wr_rdma(ibv, IBV_WR_ATOMIC_WRITE, rkey, addr, 0);
	wr_set_inline_data_list(ibv, 1, &buf);
}

static void wr_start(struct ibv_qp_ex *ibv)
{
	struct dev_qp *qp = self(ibv);
	struct qp_builder *b = qp->builder;

	pthread_mutex_lock(&qp->send_lock);
	b->requests.used = b->sges.used = b->bytes.used = 0;
	b->error = 0;
}

/* Positions become pointers. */
static struct ibv_send_wr *finish(struct qp_builder *b, size_t i)
{
	struct built *r = (struct built *)b->requests.data + i;

	if (r->wr.num_sge)
		r->wr.sg_list = (struct ibv_sge *)b->sges.data + r->first_sge;
	if (r->wr.send_flags & IBV_SEND_INLINE && r->wr.num_sge)
		r->wr.sg_list->addr = (uintptr_t)b->bytes.data + r->inline_at;
	return &r->wr;
}

static int post_all(struct dev_qp *qp)
{
	struct qp_builder *b = qp->builder;
	size_t n = b->requests.used / sizeof(struct built);
	struct ring *sq = &qp->eqp.qp.sq;
	int rc;

	if (n > sq->max - ring_count(sq)) {
		log_info("wr_complete on queue pair 0x%06x: %zu work requests don't fit: %u of "
			 "max_send_wr, %u, are in the queue",
			 qp->ibv.qp_base.qp_num, n, ring_count(sq), sq->max);
		return ENOMEM;
	}
	/* Of what can still be wrong, all but the data's length shows at the first. */
	for (size_t i = 0; i < n; i++) {
		rc = dev_qp_post_one(qp, finish(b, i));
		if (rc)
			return rc;
	}
	return 0;
}

static int wr_complete(struct ibv_qp_ex *ibv)
{
	struct dev_qp *qp = self(ibv);
	int rc = qp->builder->error;

	if (!rc)
		rc = dev_refuse_forked(qp->ctx) ? EPERM : post_all(qp);
	pthread_mutex_unlock(&qp->send_lock);
	engine_kick(qp->engine, &qp->eqp);
	return rc;
}

static void wr_abort(struct ibv_qp_ex *ibv)
{
	pthread_mutex_unlock(&self(ibv)->send_lock);
}

static uint64_t supported(enum ibv_qp_type type)
{
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type != IBV_QPT_UD)
		ops |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
		       IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
		ops |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
		       IBV_QP_EX_WITH_ATOMIC_WRITE;
	return ops;
}

int dev_qp_builder_create(struct dev_qp *qp, enum ibv_qp_type type, uint64_t send_ops)
{
	struct ibv_qp_ex *ibv = &qp->ibv;

	if (send_ops & ~supported(type)) {
		log_info("create_qp: send_ops_flags 0x%llx: for this type of queue pair 0x%llx are "
			 "there",
			 (unsigned long long)send_ops, (unsigned long long)supported(type));
		return -EOPNOTSUPP;
	}
	qp->builder = dev_zalloc(sizeof(*qp->builder));
	if (!qp->builder)
		return -ENOMEM;
	ibv->wr_rdma_read = wr_rdma_read;
	ibv->wr_rdma_write = wr_rdma_write;
	ibv->wr_rdma_write_imm = wr_rdma_write_imm;
	ibv->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ibv->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ibv->wr_send = wr_send;
	ibv->wr_send_imm = wr_send_imm;
	ibv->wr_send_inv = wr_send_inv;
	ibv->wr_local_inv = wr_local_inv;
	ibv->wr_bind_mw = wr_bind_mw;
	ibv->wr_atomic_write = wr_atomic_write;
	ibv->wr_set_ud_addr = wr_set_ud_addr;
	ibv->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ibv->wr_set_sge = wr_set_sge;
	ibv->wr_set_sge_list = wr_set_sge_list;
	ibv->wr_set_inline_data = wr_set_inline_data;
	ibv->wr_set_inline_data_list = wr_set_inline_data_list;
	ibv->wr_start = wr_start;
	ibv->wr_complete = wr_complete;
	ibv->wr_abort = wr_abort;
	return 0;
}

void dev_qp_builder_destroy(struct dev_qp *qp)
{
	struct qp_builder *b = qp->builder;

	if (!b)
		return;
	free(b->requests.data);
	free(b->sges.data);
	free(b->bytes.data);
	free(b);
}
