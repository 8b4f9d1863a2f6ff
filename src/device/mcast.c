/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups of UD queue pairs: IP multicast, joined on the device's interface. */
#include "base/log.h"
#include "device/device.h"

static int check(const struct ibv_qp *ibv, const union ibv_gid *gid, const char *call,
		 struct gid *group)
{
	char text[GID_STRLEN];

	memcpy(group->raw, gid->raw, sizeof(group->raw));
	if (ibv->qp_type != IBV_QPT_UD) {
		log_info("%s: the queue pair's type is %d, must be IBV_QPT_UD", call, ibv->qp_type);
		return -EINVAL;
	}
	if (!gid_is_multicast(group)) {
		log_info("%s: gid %s is not a multicast address (ff00::/8 or ::ffff:224.0.0.0/100)",
			 call, gid_format(group, text));
		return -EINVAL;
	}
	return 0;
}

int dev_mcast_attach(struct ibv_qp *ibv, const union ibv_gid *gid)
{
	struct dev_qp *qp = (struct dev_qp *)ibv;
	struct gid group;
	int rc = dev_refuse_forked(qp->ctx) ? -EPERM : check(ibv, gid, "attach_mcast", &group);

	if (rc)
		return rc;
	engine_lock(qp->engine);
	rc = engine_attach_mcast(qp->engine, &qp->eqp, &group, qp->ctx->dev->net.ifindex);
	engine_unlock(qp->engine);
	if (rc)
		log_info("attach_mcast: %s", strerror(rc));
	return -rc;
}

int dev_mcast_detach(struct ibv_qp *ibv, const union ibv_gid *gid)
{
	struct dev_qp *qp = (struct dev_qp *)ibv;
	struct gid group;
	int rc = dev_refuse_forked(qp->ctx) ? -EPERM : check(ibv, gid, "detach_mcast", &group);

	if (rc)
		return rc;
	engine_lock(qp->engine);
	rc = engine_detach_mcast(qp->engine, &qp->eqp, &group, qp->ctx->dev->net.ifindex);
	engine_unlock(qp->engine);
	if (rc)
		log_info("detach_mcast: %s", strerror(rc));
	return -rc;
}
