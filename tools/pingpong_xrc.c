/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --type xrc: the endpoint's queue pair is the initiator that sends; beside it a target, and an SRQ
 * that the peer's requests name. The client links initiator and target in this order, the server
 * the other way round, so that each meets its half.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tools/pingpong.h"

static int refused(struct pp *pp, const struct ibv_context *context, const char *call)
{
	return pp_fail(&pp->err, ROCELINK_VERBS,
		       "the device %s refuses XRC (%s: %s); use --type rc",
		       ibv_get_device_name(context->device), call, strerror(errno));
}

int pp_xrc_open(struct pp *pp)
{
	const struct rocelink_endpoint *ep = pp->ep[0];
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = PP_MAX_DEPTH, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = ep->pd,
		.cq = ep->cq,
	};
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};

	pp->xrcd = ibv_open_xrcd(ep->context, &domain);
	if (!pp->xrcd)
		return refused(pp, ep->context, "ibv_open_xrcd");
	srq.xrcd = target.xrcd = pp->xrcd;
	pp->srq = ibv_create_srq_ex(ep->context, &srq);
	if (!pp->srq)
		return refused(pp, ep->context, "ibv_create_srq_ex");
	pp->target = ibv_create_qp_ex(ep->context, &target);
	return pp->target ? ROCELINK_OK : refused(pp, ep->context, "ibv_create_qp_ex");
}

int pp_xrc_add(struct pp *pp, const struct rocelink_qp_options *options)
{
	struct rocelink_qp_options of_target = *options;
	int rc = ROCELINK_OK;

	of_target.srq = pp->srq;
	if (pp->client)
		rc = rocelink_conn_add_qp(pp->conn, pp->ep[0]->qp, options, &pp->err);
	if (rc == ROCELINK_OK)
		rc = rocelink_conn_add_qp(pp->conn, pp->target, &of_target, &pp->err);
	if (rc == ROCELINK_OK && !pp->client)
		rc = rocelink_conn_add_qp(pp->conn, pp->ep[0]->qp, options, &pp->err);
	return rc;
}

void pp_xrc_close(struct pp *pp)
{
	if (pp->target)
		ibv_destroy_qp(pp->target);
	if (pp->srq)
		ibv_destroy_srq(pp->srq);
	if (pp->xrcd)
		ibv_close_xrcd(pp->xrcd);
}
