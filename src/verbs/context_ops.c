/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The operation tables of a context: what <infiniband/verbs.h> calls inline. What isn't there says
 * so in the log and fails with EOPNOTSUPP, as on a device without the feature.
 */
#include "base/log.h"
#include "verbs/symbols.h"

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
		      size_t attr_len)
{
	struct ibv_port_attr full;
	int rc = dev_query_port(dev_context_of(ctx), port, &full);

	if (rc)
		return -rc;
	memset(attr, 0, attr_len);
	memcpy(attr, &full, attr_len < sizeof(full) ? attr_len : sizeof(full));
	return 0;
}

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	if (input && input->comp_mask) {
		log_info("query_device_ex: comp_mask 0x%x, no bit of it is defined",
			 input->comp_mask);
		return EINVAL;
	}
	return -dev_query_device_ex(dev_context_of(ctx), attr, attr_size);
}

static int query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values)
{
	(void)ctx;
	return -dev_query_rt_values(values);
}

#define WC_FLAGS                                                       \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define CQ_FLAGS (IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr)
{
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct dev_cq *cq = NULL;
	int rc;

	if (attr->wc_flags & ~(uint64_t)WC_FLAGS || flags & ~(uint32_t)CQ_FLAGS ||
	    attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) {
		log_info("create_cq_ex: wc_flags 0x%llx (0x%x are there), flags 0x%x (0x%x), "
			 "comp_mask 0x%x",
			 (unsigned long long)attr->wc_flags, WC_FLAGS, flags, CQ_FLAGS,
			 attr->comp_mask);
		errno = EOPNOTSUPP;
		return NULL;
	}
	rc = dev_cq_create(dev_context_of(ctx), attr, &cq);
	if (rc)
		return CREATED(rc, NULL);
	cq->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->ignore_overrun = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	dev_cq_ex_init(cq, attr->wc_flags);
	return &cq->ibv;
}

static int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	if (attr->attr_mask != IBV_CQ_ATTR_MODERATE) {
		log_info("modify_cq: attr_mask 0x%x, 0x%x is there", attr->attr_mask,
			 IBV_CQ_ATTR_MODERATE);
		return EINVAL;
	}
	return -dev_cq_moderate(cq, attr->moderate.cq_count, attr->moderate.cq_period);
}

static struct ibv_qp *create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	struct dev_qp *qp = NULL;
	int rc = dev_qp_create(dev_context_of(ctx), attr, &qp);

	return CREATED(rc, &qp->ibv.qp_base);
}

static struct ibv_srq *create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq = NULL;
	int rc;

	bool xrc = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_XRC;

	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && !xrc &&
	    attr->srq_type != IBV_SRQT_BASIC) {
		log_info("create_srq_ex: srq_type %d isn't there, IBV_SRQT_BASIC and _XRC are",
			 attr->srq_type);
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (xrc && (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) ||
		    !(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->xrcd || !attr->cq ||
		    attr->xrcd->context != ctx || attr->cq->context != ctx)) {
		log_info("create_srq_ex: an XRC SRQ needs xrcd and cq, of this context, and their "
			 "bits in comp_mask");
		errno = EINVAL;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != ctx) {
		log_info("create_srq_ex: pd must be given, of this context, and "
			 "IBV_SRQ_INIT_ATTR_PD set");
		errno = EINVAL;
		return NULL;
	}
	rc = dev_srq_create(attr->pd, attr->srq_context, &attr->attr,
			    xrc ? (struct dev_xrcd *)attr->xrcd : NULL,
			    xrc ? (struct dev_cq *)attr->cq : NULL, &srq);
	return CREATED(rc, srq);
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = NULL;
	int rc = dev_mw_create(pd, type, &mw);

	return CREATED(rc, mw);
}

static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return dev_mw_bind(qp, mw, bind);
}

static int dealloc_mw(struct ibv_mw *mw)
{
	return -dev_mw_destroy(mw);
}

static int get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	return -dev_srq_num(srq, num);
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *ctx, struct ibv_xrcd_init_attr *attr)
{
	struct ibv_xrcd *xrcd = NULL;
	int rc = dev_xrcd_open(dev_context_of(ctx), attr, &xrcd);

	return CREATED(rc, xrcd);
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	return -dev_xrcd_close(xrcd);
}

static struct ibv_qp *open_qp(struct ibv_context *ctx, struct ibv_qp_open_attr *attr)
{
	struct dev_qp *qp = NULL;
	int rc = dev_xrc_target_open(dev_context_of(ctx), attr, &qp);

	return CREATED(rc, &qp->ibv.qp_base);
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *ctx,
					  struct ibv_parent_domain_init_attr *attr)
{
	struct ibv_pd *pd = NULL;
	int rc = dev_parent_domain_create(dev_context_of(ctx), attr, &pd);

	return CREATED(rc, pd);
}

static struct ibv_td *alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *attr)
{
	struct ibv_td *td = NULL;
	int rc = dev_td_create(dev_context_of(ctx), attr, &td);

	return CREATED(rc, td);
}

static int dealloc_td(struct ibv_td *td)
{
	return -dev_td_destroy(td);
}

static struct ibv_dm *alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr)
{
	struct ibv_dm *dm = NULL;
	int rc = dev_dm_create(dev_context_of(ctx), attr, &dm);

	return CREATED(rc, dm);
}

static int free_dm(struct ibv_dm *dm)
{
	return -dev_dm_destroy(dm);
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset,
				size_t length, unsigned access)
{
	struct ibv_mr *mr = NULL;
	int rc = dev_mr_create_dm(pd, dm, offset, length, access, &mr);

	return CREATED(rc, mr);
}

static struct ibv_mr *alloc_null_mr(struct ibv_pd *pd)
{
	struct ibv_mr *mr = NULL;
	int rc = dev_mr_create_null(pd, &mr);

	return CREATED(rc, mr);
}

static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		     struct ibv_sge *list, uint32_t n)
{
	return -dev_mr_advise(pd, advice, flags, list, n);
}

/* The rest takes its arguments only to refuse. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSE_INT(op, ...)                   \
	static int no_##op(__VA_ARGS__)       \
	{                                     \
		log_info(#op " isn't there"); \
		return EOPNOTSUPP;            \
	}
#define REFUSE_OBJECT(type, op, ...)          \
	static type *no_##op(__VA_ARGS__)     \
	{                                     \
		log_info(#op " isn't there"); \
		errno = EOPNOTSUPP;           \
		return NULL;                  \
	}

// clang-format off
REFUSE_INT(modify_qp_rate_limit, struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
REFUSE_OBJECT(struct ibv_counters, create_counters, struct ibv_context *ctx,
	      struct ibv_counters_init_attr *attr)
REFUSE_INT(destroy_counters, struct ibv_counters *counters)
REFUSE_INT(read_counters, struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags)
REFUSE_INT(attach_counters, struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,
	   struct ibv_flow *flow)
REFUSE_OBJECT(struct ibv_flow, create_flow, struct ibv_qp *qp, struct ibv_flow_attr *attr)
REFUSE_INT(destroy_flow, struct ibv_flow *flow)
REFUSE_OBJECT(struct ibv_flow_action, create_flow_action, struct ibv_context *ctx,
	      struct ibv_flow_action_esp_attr *attr)
REFUSE_INT(modify_flow_action, struct ibv_flow_action *action, struct ibv_flow_action_esp_attr *attr)
REFUSE_INT(destroy_flow_action, struct ibv_flow_action *action)
REFUSE_OBJECT(struct ibv_wq, create_wq, struct ibv_context *ctx, struct ibv_wq_init_attr *attr)
REFUSE_INT(modify_wq, struct ibv_wq *wq, struct ibv_wq_attr *attr)
REFUSE_INT(destroy_wq, struct ibv_wq *wq)
REFUSE_OBJECT(struct ibv_rwq_ind_table, create_rwq_ind_table, struct ibv_context *ctx,
	      struct ibv_rwq_ind_table_init_attr *attr)
REFUSE_INT(destroy_rwq_ind_table, struct ibv_rwq_ind_table *table)
// clang-format on

static int no_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	*bad = op;
	log_info("post_srq_ops isn't there");
	return EOPNOTSUPP;
}
#pragma GCC diagnostic pop

void context_ops_init(struct verbs_context *v)
{
	struct ibv_context_ops *ops = &v->context.ops;

	ops->poll_cq = dev_cq_poll;
	ops->req_notify_cq = dev_cq_req_notify;
	ops->post_send = dev_qp_post_send;
	ops->post_recv = dev_qp_post_recv;
	ops->post_srq_recv = dev_srq_post;
	ops->alloc_mw = alloc_mw;
	ops->bind_mw = bind_mw;
	ops->dealloc_mw = dealloc_mw;

	v->query_port = query_port;
	v->query_device_ex = query_device_ex;
	v->query_rt_values = query_rt_values;
	v->create_cq_ex = create_cq_ex;
	v->create_qp_ex = create_qp_ex;
	v->create_srq_ex = create_srq_ex;
	v->get_srq_num = get_srq_num;
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
	v->open_qp = open_qp;
	v->alloc_parent_domain = alloc_parent_domain;
	v->alloc_td = alloc_td;
	v->dealloc_td = dealloc_td;

	v->modify_cq = modify_cq;
	v->modify_qp_rate_limit = no_modify_qp_rate_limit;
	v->alloc_dm = alloc_dm;
	v->free_dm = free_dm;
	v->reg_dm_mr = reg_dm_mr;
	v->alloc_null_mr = alloc_null_mr;
	v->advise_mr = advise_mr;
	v->create_counters = no_create_counters;
	v->destroy_counters = no_destroy_counters;
	v->read_counters = no_read_counters;
	v->attach_counters_point_flow = no_attach_counters;
	v->ibv_create_flow = no_create_flow;
	v->ibv_destroy_flow = no_destroy_flow;
	v->create_flow_action_esp = no_create_flow_action;
	v->modify_flow_action_esp = no_modify_flow_action;
	v->destroy_flow_action = no_destroy_flow_action;
	v->create_wq = no_create_wq;
	v->modify_wq = no_modify_wq;
	v->destroy_wq = no_destroy_wq;
	v->create_rwq_ind_table = no_create_rwq_ind_table;
	v->destroy_rwq_ind_table = no_destroy_rwq_ind_table;
	v->post_srq_ops = no_post_srq_ops;
}
