/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device's GID table, live: the addresses of its interface, all of type RoCE v2; and what follows
 * from it: address vectors, and the events when addresses or the link change.
 */
#include <stdio.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/device.h"

/* What a sender gets who leaves the hop limit 0: such a packet could not leave the host. */
#define DEFAULT_HOP_LIMIT 64

int dev_gid_get(struct dev *dev, unsigned port, unsigned index, struct gid *gid)
{
	int rc = 0;

	if (port != DEV_PORT || index >= NETDEV_GIDS)
		return -EINVAL;
	pthread_mutex_lock(&dev->lock);
	if (index < dev->net.n_gids)
		*gid = dev->net.gids[index];
	else
		*gid = (struct gid){ 0 };
	pthread_mutex_unlock(&dev->lock);
	if (gid_is_zero(gid))
		rc = -ENODATA;
	return rc;
}

void dev_gid_refused(const char *call, unsigned port, int index)
{
	log_info("%s: port_num is %u, the device has port %u; index is %d, it must be 0 to %d",
		 call, port, DEV_PORT, index, NETDEV_GIDS - 1);
}

int dev_gid_find(struct dev *dev, const struct gid *gid)
{
	int index = -ENOENT;

	pthread_mutex_lock(&dev->lock);
	for (unsigned i = 0; i < dev->net.n_gids; i++) {
		if (gid_eq(&dev->net.gids[i], gid)) {
			index = (int)i;
			break;
		}
	}
	pthread_mutex_unlock(&dev->lock);
	return index;
}

int dev_gid_find_family(struct dev *dev, bool ipv4)
{
	int index = -ENOENT;

	pthread_mutex_lock(&dev->lock);
	for (unsigned i = 0; i < dev->net.n_gids; i++) {
		const struct gid *gid = &dev->net.gids[i];

		if (!gid_is_zero(gid) && gid_is_ipv4(gid) == ipv4) {
			index = (int)i;
			break;
		}
	}
	pthread_mutex_unlock(&dev->lock);
	return index;
}

static void fill(struct ibv_gid_entry *entry, const struct dev *dev, unsigned index)
{
	*entry = (struct ibv_gid_entry){
		.gid_index = index,
		.port_num = DEV_PORT,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = dev->net.ifindex,
	};
	memcpy(entry->gid.raw, dev->net.gids[index].raw, sizeof(entry->gid.raw));
}

/* A program built against another rdma-core may know a shorter or a longer entry. */
static void hand_over(void *to, size_t size, const struct ibv_gid_entry *entry)
{
	memset(to, 0, size);
	memcpy(to, entry, size < sizeof(*entry) ? size : sizeof(*entry));
}

int dev_query_gid_ex(struct dev_context *ctx, unsigned port, unsigned index,
		     struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry full;
	struct gid gid;
	int rc;

	if (flags) {
		log_info("query_gid_ex: flags 0x%x are not defined, 0 is", flags);
		return -EOPNOTSUPP;
	}
	rc = dev_gid_get(ctx->dev, port, index, &gid);
	if (rc == -EINVAL)
		dev_gid_refused("query_gid_ex", port, (int)index);
	if (rc)
		return rc;
	pthread_mutex_lock(&ctx->dev->lock);
	fill(&full, ctx->dev, index);
	pthread_mutex_unlock(&ctx->dev->lock);
	memcpy(full.gid.raw, gid.raw, sizeof(full.gid.raw));
	hand_over(entry, entry_size, &full);
	return 0;
}

ssize_t dev_query_gid_table(struct dev_context *ctx, struct ibv_gid_entry *entries, size_t max,
			    uint32_t flags, size_t entry_size)
{
	struct dev *dev = ctx->dev;
	char *to = (char *)entries;
	ssize_t n = 0;

	if (flags) {
		log_info("query_gid_table: flags 0x%x are not defined, 0 is", flags);
		return -EOPNOTSUPP;
	}
	pthread_mutex_lock(&dev->lock);
	for (unsigned i = 0; i < dev->net.n_gids; i++) {
		struct ibv_gid_entry full;

		if (gid_is_zero(&dev->net.gids[i]))
			continue;
		if ((size_t)n == max) {
			n = -EINVAL;
			break;
		}
		fill(&full, dev, i);
		hand_over(to + (size_t)n * entry_size, entry_size, &full);
		n++;
	}
	pthread_mutex_unlock(&dev->lock);
	if (n < 0)
		log_info("query_gid_table: max_entries is %zu, there are more GIDs", max);
	return n;
}

static void tell(struct dev *dev, enum ibv_event_type type)
{
	struct list *pos;

	list_for_each(pos, &dev->contexts)
		dev_async_post(container_of(pos, struct dev_context, link), type, NULL);
}

void dev_refresh(struct dev *dev)
{
	int changes;

	pthread_mutex_lock(&dev->lock);
	changes = netdev_refresh(&dev->net);
	if (changes > 0) {
		log_debug("%s: changed: %s%s%s", dev->ibv.name,
			  changes & NETDEV_GIDS_CHANGED ? "addresses " : "",
			  changes & NETDEV_STATE_CHANGED ? "link " : "",
			  changes & NETDEV_MTU_CHANGED ? "mtu" : "");
		if (changes & NETDEV_STATE_CHANGED && !dev->link_fault)
			tell(dev, dev->net.up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
		if (changes & NETDEV_GIDS_CHANGED)
			tell(dev, IBV_EVENT_GID_CHANGE);
	} else if (changes < 0) {
		log_warn("%s: can't refresh: %s", dev->ibv.name, strerror(-changes));
	}
	pthread_mutex_unlock(&dev->lock);
}

void dev_link_fault(struct dev *dev, bool down)
{
	pthread_mutex_lock(&dev->lock);
	if (dev->link_fault != down && dev->net.up)
		tell(dev, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
	dev->link_fault = down;
	pthread_mutex_unlock(&dev->lock);
}

void dev_fatal(struct dev *dev)
{
	pthread_mutex_lock(&dev->lock);
	tell(dev, IBV_EVENT_DEVICE_FATAL);
	pthread_mutex_unlock(&dev->lock);
}

#define refuse(...) (snprintf(why, why_len, __VA_ARGS__), -EINVAL)

int dev_path_resolve(struct dev *dev, const struct ibv_ah_attr *attr, struct path *path, char *why,
		     size_t why_len)
{
	const struct ibv_global_route *grh = &attr->grh;
	char text[GID_STRLEN], source[GID_STRLEN];
	struct path p = {
		.ifindex = dev->net.ifindex,
		.flow_label = grh->flow_label & 0xfffff,
		.traffic_class = grh->traffic_class,
		.hop_limit = grh->hop_limit ? grh->hop_limit : DEFAULT_HOP_LIMIT,
	};

	if (!attr->is_global)
		return refuse("ah_attr.is_global is 0: RoCE has no LIDs, set it to 1 and fill "
			      "ah_attr.grh");
	if (attr->port_num != DEV_PORT)
		return refuse("ah_attr.port_num is %u, the device has port %u", attr->port_num,
			      DEV_PORT);
	if (dev_gid_get(dev, DEV_PORT, grh->sgid_index, &p.sgid))
		return refuse("ah_attr.grh.sgid_index %u is empty in the GID table of %s",
			      grh->sgid_index, dev->ibv.name);
	memcpy(p.dgid.raw, grh->dgid.raw, sizeof(p.dgid.raw));
	if (gid_is_zero(&p.dgid))
		return refuse("ah_attr.grh.dgid is zero, it must be the peer's GID");
	if (gid_is_ipv4(&p.sgid) != gid_is_ipv4(&p.dgid))
		return refuse(
			"ah_attr.grh.dgid %s and the GID of sgid_index %u, %s, are of different "
			"families; choose a sgid_index of the peer's family",
			gid_format(&p.dgid, text), grh->sgid_index, gid_format(&p.sgid, source));
	p.local = netdev_address_is_local(&p.dgid, p.ifindex);
	if (!p.local && !gid_is_multicast(&p.dgid) && settings_get()->path == PATH_SHM)
		return refuse(
			"ROCELINK_PATH is shm, but %s is no address of this host: use auto or udp",
			gid_format(&p.dgid, text));
	*path = p;
	return 0;
}
