/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ibv_start_poll family of a CQ made by ibv_create_cq_ex: between start and end the poll lock
 * is held (unless the CQ is single-threaded), and `current` is the completion the readers speak of.
 */
#include "base/log.h"
#include "device/device.h"

static struct dev_cq *self(struct ibv_cq_ex *ibv)
{
	return (struct dev_cq *)ibv;
}

static void lock(struct dev_cq *cq)
{
	if (!cq->single_threaded)
		pthread_mutex_lock(&cq->poll_lock);
}

static void unlock(struct dev_cq *cq)
{
	if (!cq->single_threaded)
		pthread_mutex_unlock(&cq->poll_lock);
}

static int next_poll(struct ibv_cq_ex *ibv)
{
	struct dev_cq *cq = self(ibv);

	if (!dev_cq_pop(cq, &cq->current))
		return ENOENT;
	ibv->wr_id = cq->current.wc.wr_id;
	ibv->status = cq->current.wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibv, struct ibv_poll_cq_attr *attr)
{
	struct dev_cq *cq = self(ibv);

	if (attr && attr->comp_mask) {
		log_info("start_poll: comp_mask 0x%x, no bit of it is defined", attr->comp_mask);
		return EINVAL;
	}
	lock(cq);
	if (next_poll(ibv) == 0)
		return 0;
	unlock(cq);
	if (dev_forked(cq->ctx))
		return ENOENT;
	engine_poll(cq->ctx->engine);
	lock(cq);
	if (next_poll(ibv) == 0)
		return 0;
	unlock(cq);
	return ENOENT;
}

static void end_poll(struct ibv_cq_ex *ibv)
{
	unlock(self(ibv));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.src_qp;
}

static unsigned read_wc_flags(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.stamp_ns;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ibv)
{
	return self(ibv)->current.wall_ns;
}

void dev_cq_ex_init(struct dev_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ibv = &cq->ibv;

	cq->stamped = wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	cq->wall_stamped = wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	ibv->start_poll = start_poll;
	ibv->next_poll = next_poll;
	ibv->end_poll = end_poll;
	ibv->read_opcode = read_opcode;
	ibv->read_vendor_err = read_vendor_err;
	ibv->read_wc_flags = read_wc_flags;
	ibv->read_byte_len = read_byte_len;
	ibv->read_imm_data = read_imm_data;
	ibv->read_qp_num = read_qp_num;
	ibv->read_src_qp = read_src_qp;
	ibv->read_slid = read_slid;
	ibv->read_sl = read_sl;
	ibv->read_dlid_path_bits = read_dlid_path_bits;
	ibv->read_completion_ts = read_completion_ts;
	ibv->read_completion_wallclock_ns = read_completion_wallclock_ns;
}
