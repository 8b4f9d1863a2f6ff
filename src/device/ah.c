/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles, and how to answer whoever a UD completion came from. */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

int dev_ah_create(struct ibv_pd *ibv_pd, const struct ibv_ah_attr *attr, struct ibv_ah **out)
{
	struct dev_context *ctx = dev_context_of(ibv_pd->context);
	char why[256];
	struct dev_ah *ah;
	int rc;

	rc = dev_pd_check(ibv_pd, "create_ah");
	if (rc)
		return rc;
	rc = dev_limit_take(ctx->dev, DEV_AH);
	if (rc)
		return rc;
	ah = dev_zalloc(sizeof(*ah));
	if (!ah) {
		dev_limit_give(ctx->dev, DEV_AH);
		return -ENOMEM;
	}
	ah->ibv.context = ibv_pd->context;
	rc = dev_path_resolve(ctx->dev, attr, &ah->path, why, sizeof(why));
	if (rc) {
		log_info("create_ah: %s", why);
		dev_ah_release(ah);
		return rc;
	}
	ah->pd = ((struct dev_pd *)ibv_pd)->object;
	ah->ibv.pd = ibv_pd;
	dev_object_add(ctx, DEV_AH, &ah->link, (int *[]){ DEV_PD_USERS(ibv_pd) }, 2);
	*out = &ah->ibv;
	return 0;
}

void dev_ah_release(struct dev_ah *ah)
{
	dev_limit_give(dev_context_of(ah->ibv.context)->dev, DEV_AH);
	free(ah);
}

int dev_ah_destroy(struct ibv_ah *ibv)
{
	struct dev_ah *ah = (struct dev_ah *)ibv;
	struct dev_context *ctx = dev_context_of(ibv->context);

	if (dev_forked(ctx))
		return 0;
	dev_object_remove(ctx, &ah->link, NULL, (int *[]){ DEV_PD_USERS(ibv->pd) }, 2);
	dev_ah_release(ah);
	return 0;
}

/* The IPv4 header in the last 20 bytes of the GRH area (annex A17, 17.4.5.2). */
static void addresses_ipv4(const uint8_t *ip, struct gid *from, struct gid *to,
			   struct ibv_ah_attr *attr)
{
	*from = *to = (struct gid){ .raw = { [10] = 0xff, [11] = 0xff } };
	memcpy(from->raw + 12, ip + 12, 4);
	memcpy(to->raw + 12, ip + 16, 4);
	attr->grh.traffic_class = ip[1];
}

static void addresses_ipv6(const struct ibv_grh *grh, struct gid *from, struct gid *to,
			   struct ibv_ah_attr *attr)
{
	uint32_t first = be32toh(grh->version_tclass_flow);

	memcpy(from->raw, grh->sgid.raw, sizeof(from->raw));
	memcpy(to->raw, grh->dgid.raw, sizeof(to->raw));
	attr->grh.traffic_class = (uint8_t)(first >> 20);
	attr->grh.flow_label = first & 0xfffff;
}

/* An IPv6 header fills the area from its start; in front of an IPv4 header there is nothing. */
static bool holds_ipv6(const struct ibv_grh *grh)
{
	return be32toh(grh->version_tclass_flow) >> 28 == 6;
}

int dev_ah_init_from_wc(struct dev_context *ctx, unsigned port, const struct ibv_wc *wc,
			const struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	char text[GID_STRLEN];
	struct gid from, to;
	int index;

	memset(attr, 0, sizeof(*attr));
	if (port != DEV_PORT) {
		log_info("init_ah_from_wc: port_num is %u, the device has port %u", port, DEV_PORT);
		return -EINVAL;
	}
	if (!(wc->wc_flags & IBV_WC_GRH)) {
		log_info("init_ah_from_wc: the completion has no IBV_WC_GRH: it isn't of a UD "
			 "receive");
		return -EINVAL;
	}
	if (holds_ipv6(grh))
		addresses_ipv6(grh, &from, &to, attr);
	else
		addresses_ipv4((const uint8_t *)grh + 20, &from, &to, attr);
	/* A multicast packet is answered from whichever address of the device suits. */
	index = dev_gid_find(ctx->dev, &to);
	if (index < 0 && gid_is_multicast(&to))
		index = dev_gid_find_family(ctx->dev, gid_is_ipv4(&to));
	if (index < 0) {
		log_info("init_ah_from_wc: %s is not in the GID table (any more)",
			 gid_format(&to, text));
		return -ENOENT;
	}
	attr->is_global = 1;
	attr->port_num = (uint8_t)port;
	attr->sl = wc->sl;
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.hop_limit = 255;
	memcpy(attr->grh.dgid.raw, from.raw, sizeof(from.raw));
	return 0;
}
