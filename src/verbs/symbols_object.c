/* SPDX-License-Identifier: BSD-2-Clause */
/* Exported: objects of a context. Each is ours when its context is; a NULL object is refused. */
#include "verbs/symbols.h"

static int unsupported(const char *call)
{
	log_info("%s isn't there", call);
	return EOPNOTSUPP;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = NULL;
	int rc;

	if (IS_NULL(ctx))
		return null_refused();
	if (!is_ours(ctx))
		PASS_ON(NULL, ibv_alloc_pd, "IBVERBS_1.1", ctx);
	rc = dev_pd_create(dev_context_of(ctx), &pd);
	return CREATED(rc, pd);
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (IS_NULL(pd))
		return EINVAL;
	if (!is_ours(pd->context))
		PASS_ON(ENOSYS, ibv_dealloc_pd, "IBVERBS_1.1", pd);
	return -dev_pd_destroy(pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			     unsigned access)
{
	struct ibv_mr *mr = NULL;
	int rc = dev_mr_create(pd, addr, length, iova, access, &mr);

	return CREATED(rc, mr);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (IS_NULL(pd))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_reg_mr, "IBVERBS_1.1", pd, addr, length, access);
	return reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      int access)
{
	if (IS_NULL(pd))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_reg_mr_iova, "IBVERBS_1.7", pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned access)
{
	if (IS_NULL(pd))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_reg_mr_iova2, "IBVERBS_1.8", pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	struct ibv_mr *mr = NULL;
	int rc;

	if (IS_NULL(pd))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_reg_dmabuf_mr, "IBVERBS_1.12", pd, offset, length, iova, fd,
			access);
	rc = dev_mr_create_dmabuf(pd, offset, length, iova, fd, (unsigned)access, &mr);
	return CREATED(rc, mr);
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
			int access)
{
	if (IS_NULL(mr)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (!is_ours(mr->context))
		PASS_ON(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr, "IBVERBS_1.1", mr, flags, pd, addr,
			length, access);
	return dev_mr_rereg(mr, flags, pd, addr, length, (unsigned)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (IS_NULL(mr))
		return EINVAL;
	if (!is_ours(mr->context))
		PASS_ON(ENOSYS, ibv_dereg_mr, "IBVERBS_1.1", mr);
	return -dev_mr_destroy(mr);
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct ibv_comp_channel *channel = NULL;
	int rc;

	if (IS_NULL(ctx))
		return null_refused();
	if (!is_ours(ctx))
		PASS_ON(NULL, ibv_create_comp_channel, "IBVERBS_1.0", ctx);
	rc = dev_channel_create(dev_context_of(ctx), &channel);
	return CREATED(rc, channel);
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (IS_NULL(channel))
		return EINVAL;
	if (!is_ours(channel->context))
		PASS_ON(ENOSYS, ibv_destroy_comp_channel, "IBVERBS_1.0", channel);
	return -dev_channel_destroy(channel);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe < 0 ? 0 : (uint32_t)cqe,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)comp_vector,
	};
	struct dev_cq *cq = NULL;
	int rc;

	if (IS_NULL(ctx))
		return null_refused();
	if (!is_ours(ctx))
		PASS_ON(NULL, ibv_create_cq, "IBVERBS_1.1", ctx, cqe, cq_context, channel,
			comp_vector);
	rc = dev_cq_create(dev_context_of(ctx), &attr, &cq);
	return CREATED(rc, ibv_cq_ex_to_cq(&cq->ibv));
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (IS_NULL(cq))
		return EINVAL;
	if (!is_ours(cq->context))
		PASS_ON(ENOSYS, ibv_resize_cq, "IBVERBS_1.1", cq, cqe);
	return -dev_cq_resize(cq, cqe);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (IS_NULL(cq))
		return EINVAL;
	if (!is_ours(cq->context))
		PASS_ON(ENOSYS, ibv_destroy_cq, "IBVERBS_1.1", cq);
	return -dev_cq_destroy(cq);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	if (IS_NULL(channel) || IS_NULL(cq) || IS_NULL(cq_context))
		return minus_one(-EINVAL);
	if (!is_ours(channel->context))
		PASS_ON(-1, ibv_get_cq_event, "IBVERBS_1.1", channel, cq, cq_context);
	return minus_one(dev_channel_get_event(channel, cq, cq_context));
}

/* Ours or not: the count is in the public structure. */
EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned nevents)
{
	if (cq)
		dev_cq_ack_events(cq, nevents);
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = NULL;
	int rc;

	if (IS_NULL(pd) || IS_NULL(attr))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_create_srq, "IBVERBS_1.1", pd, attr);
	rc = dev_srq_create(pd, attr->srq_context, &attr->attr, NULL, NULL, &srq);
	return CREATED(rc, srq);
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	if (IS_NULL(srq) || IS_NULL(attr))
		return EINVAL;
	if (!is_ours(srq->context))
		PASS_ON(ENOSYS, ibv_modify_srq, "IBVERBS_1.1", srq, attr, mask);
	return -dev_srq_modify(srq, attr, mask);
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	if (IS_NULL(srq) || IS_NULL(attr))
		return EINVAL;
	if (!is_ours(srq->context))
		PASS_ON(ENOSYS, ibv_query_srq, "IBVERBS_1.1", srq, attr);
	return -dev_srq_query(srq, attr);
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	if (IS_NULL(srq))
		return EINVAL;
	if (!is_ours(srq->context))
		PASS_ON(ENOSYS, ibv_destroy_srq, "IBVERBS_1.1", srq);
	return -dev_srq_destroy(srq);
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = { 0 };
	struct dev_qp *qp = NULL;
	int rc;

	if (IS_NULL(pd) || IS_NULL(attr))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_create_qp, "IBVERBS_1.1", pd, attr);
	/* The extended attributes begin like these; their first own field lies in these' padding.
	 */
	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;
	rc = dev_qp_create(dev_context_of(pd->context), &ex, &qp);
	if (!rc)
		attr->cap = ex.cap;
	return CREATED(rc, &qp->ibv.qp_base);
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	if (IS_NULL(qp))
		return null_refused();
	if (!is_ours(qp->context))
		PASS_ON(NULL, ibv_qp_to_qp_ex, "IBVERBS_1.6", qp);
	return ((struct dev_qp *)qp)->builder ? (struct ibv_qp_ex *)qp : NULL;
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init_attr)
{
	if (IS_NULL(qp) || IS_NULL(attr) || IS_NULL(init_attr))
		return EINVAL;
	if (!is_ours(qp->context))
		PASS_ON(ENOSYS, ibv_query_qp, "IBVERBS_1.1", qp, attr, mask, init_attr);
	return -dev_qp_query(qp, attr, init_attr);
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (IS_NULL(qp) || IS_NULL(attr))
		return EINVAL;
	if (!is_ours(qp->context))
		PASS_ON(ENOSYS, ibv_modify_qp, "IBVERBS_1.1", qp, attr, mask);
	return -dev_qp_modify(qp, attr, mask);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (IS_NULL(qp))
		return EINVAL;
	if (!is_ours(qp->context))
		PASS_ON(ENOSYS, ibv_destroy_qp, "IBVERBS_1.1", qp);
	return -dev_qp_destroy(qp);
}

/* Data of one message is placed in order, but nothing is promised about flags in it: no. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	if (!qp || is_ours(qp->context))
		return 0;
	PASS_ON(0, ibv_query_qp_data_in_order, "IBVERBS_1.14", qp, op, flags);
}

/* Enhanced connection establishment is between adapters of one vendor; without it this is the
 * answer. */
EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (IS_NULL(qp) || IS_NULL(ece))
		return EINVAL;
	if (!is_ours(qp->context))
		PASS_ON(ENOSYS, ibv_set_ece, "IBVERBS_1.10", qp, ece);
	return unsupported("set_ece");
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (IS_NULL(qp) || IS_NULL(ece))
		return EINVAL;
	if (!is_ours(qp->context))
		PASS_ON(ENOSYS, ibv_query_ece, "IBVERBS_1.10", qp, ece);
	*ece = (struct ibv_ece){ 0 };
	return unsupported("query_ece");
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = NULL;
	int rc;

	if (IS_NULL(pd) || IS_NULL(attr))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_create_ah, "IBVERBS_1.1", pd, attr);
	rc = dev_ah_create(pd, attr, &ah);
	return CREATED(rc, ah);
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
			       struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	if (IS_NULL(ctx) || IS_NULL(wc) || IS_NULL(grh) || IS_NULL(attr))
		return minus_one(-EINVAL);
	if (!is_ours(ctx))
		PASS_ON(-1, ibv_init_ah_from_wc, "IBVERBS_1.1", ctx, port, wc, grh, attr);
	return minus_one(dev_ah_init_from_wc(dev_context_of(ctx), port, wc, grh, attr));
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					    struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (IS_NULL(pd) || IS_NULL(wc) || IS_NULL(grh))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_create_ah_from_wc, "IBVERBS_1.1", pd, wc, grh, port);
	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (IS_NULL(ah))
		return EINVAL;
	if (!is_ours(ah->context))
		PASS_ON(ENOSYS, ibv_destroy_ah, "IBVERBS_1.1", ah);
	return -dev_ah_destroy(ah);
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (IS_NULL(qp) || IS_NULL(gid))
		return EINVAL;
	if (!is_ours(qp->context))
		PASS_ON(ENOSYS, ibv_attach_mcast, "IBVERBS_1.1", qp, gid, lid);
	return -dev_mcast_attach(qp, gid);
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (IS_NULL(qp) || IS_NULL(gid))
		return EINVAL;
	if (!is_ours(qp->context))
		PASS_ON(ENOSYS, ibv_detach_mcast, "IBVERBS_1.1", qp, gid, lid);
	return -dev_mcast_detach(qp, gid);
}

/* The kernel resolves neighbours for our sockets: nobody here has to know MAC and VLAN. */
EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *ctx, struct ibv_ah_attr *attr,
				       uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	if (IS_NULL(ctx) || IS_NULL(attr))
		return EINVAL;
	if (!is_ours(ctx))
		PASS_ON(ENOSYS, ibv_resolve_eth_l2_from_gid, "IBVERBS_1.1", ctx, attr, eth_mac,
			vid);
	return unsupported("resolve_eth_l2_from_gid");
}

/* Of a file that several contexts of this process are on (device/file.h). */
EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *ctx, uint32_t handle)
{
	struct ibv_pd *pd = NULL;
	int rc;

	if (IS_NULL(ctx))
		return null_refused();
	if (!is_ours(ctx))
		PASS_ON(NULL, ibv_import_pd, "IBVERBS_1.10", ctx, handle);
	rc = dev_pd_import(dev_context_of(ctx), handle, &pd);
	return CREATED(rc, pd);
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct ibv_mr *mr = NULL;
	int rc;

	if (IS_NULL(pd))
		return null_refused();
	if (!is_ours(pd->context))
		PASS_ON(NULL, ibv_import_mr, "IBVERBS_1.10", pd, handle);
	rc = dev_mr_import(pd, handle, &mr);
	return CREATED(rc, mr);
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *ctx, uint32_t handle)
{
	struct ibv_dm *dm = NULL;
	int rc;

	if (IS_NULL(ctx))
		return null_refused();
	if (!is_ours(ctx))
		PASS_ON(NULL, ibv_import_dm, "IBVERBS_1.13", ctx, handle);
	rc = dev_dm_import(dev_context_of(ctx), handle, &dm);
	return CREATED(rc, dm);
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (IS_NULL(pd))
		return;
	if (!is_ours(pd->context))
		PASS_ON(, ibv_unimport_pd, "IBVERBS_1.10", pd);
	dev_pd_unimport(pd);
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (IS_NULL(mr))
		return;
	if (!is_ours(mr->context))
		PASS_ON(, ibv_unimport_mr, "IBVERBS_1.10", mr);
	dev_mr_unimport(mr);
}

EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (IS_NULL(dm))
		return;
	if (!is_ours(dm->context))
		PASS_ON(, ibv_unimport_dm, "IBVERBS_1.13", dm);
	dev_dm_unimport(dm);
}
