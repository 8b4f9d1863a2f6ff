/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device's table is filled from two questions to rtnetlink, its link and all addresses. Nothing
 * is kept between calls but the table itself: refreshing compares the fresh state with it.
 */
#include "net/netdev.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "net/netlink.h"

#define LINKS_MAX 4096

struct links {
	struct netdev *devs;
	size_t n, cap;
	int error;
};

/* An address: rank orders a table that is filled for the first time. */
struct address_sink {
	struct netdev *devs;
	size_t n;
};

static uint32_t link_speed_mbps(const char *name)
{
	struct ethtool_cmd cmd = { .cmd = ETHTOOL_GSET };
	struct ifreq ifr = { .ifr_data = (void *)&cmd };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint32_t speed = 0;

	if (fd < 0)
		fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	memcpy(ifr.ifr_name, name, IFNAMSIZ);
	if (ioctl(fd, SIOCETHTOOL, &ifr) == 0)
		/* Not ethtool_cmd_speed(): it shifts into the sign bit. */
		speed = (uint32_t)cmd.speed_hi << 16 | cmd.speed;
	close(fd);
	return speed == (uint32_t)SPEED_UNKNOWN ? 0 : speed;
}

static void read_link(const struct nlmsghdr *msg, struct netdev *dev)
{
	const struct rtattr *attrs[IFLA_CARRIER + 1];
	const struct ifinfomsg *info = NLMSG_DATA(msg);

	netlink_attributes(msg, sizeof(*info), attrs, IFLA_CARRIER + 1);
	memset(dev, 0, sizeof(*dev));
	dev->ifindex = (unsigned)info->ifi_index;
	if (attrs[IFLA_IFNAME])
		strncpy(dev->name, RTA_DATA(attrs[IFLA_IFNAME]), IFNAMSIZ - 1);
	dev->mtu = netlink_u32(attrs[IFLA_MTU], 0);
	dev->up = (info->ifi_flags & IFF_UP) && (info->ifi_flags & IFF_RUNNING);
	dev->loopback = info->ifi_flags & IFF_LOOPBACK;
	if (attrs[IFLA_ADDRESS] && RTA_PAYLOAD(attrs[IFLA_ADDRESS]) == 6)
		memcpy(dev->mac, RTA_DATA(attrs[IFLA_ADDRESS]), 6);
}

static void collect_link(void *arg, const struct nlmsghdr *msg)
{
	struct links *links = arg;

	if (msg->nlmsg_type != RTM_NEWLINK || links->error)
		return;
	if (links->n == links->cap) {
		size_t cap = links->cap ? links->cap * 2 : 8;
		struct netdev *grown =
			cap > LINKS_MAX ? NULL : realloc(links->devs, cap * sizeof(*grown));

		if (!grown) {
			links->error = -ENOMEM;
			return;
		}
		links->devs = grown;
		links->cap = cap;
	}
	read_link(msg, &links->devs[links->n++]);
}

/* Link-local IPv6 first, then IPv4, then the rest. */
static int rank(const struct gid *gid)
{
	return gid_is_link_local(gid) ? 0 : gid_is_ipv4(gid) ? 1 : 2;
}

static void insert_ranked(struct netdev *dev, const struct gid *gid)
{
	unsigned at = dev->n_gids;

	if (dev->n_gids == NETDEV_GIDS) {
		log_info("%s has more than %u addresses: the rest is left out", dev->name,
			 NETDEV_GIDS);
		return;
	}
	/* One link-local address leads; others stand with the rest of IPv6. */
	while (at > 0 && rank(&dev->gids[at - 1]) > rank(gid))
		at--;
	memmove(&dev->gids[at + 1], &dev->gids[at], (dev->n_gids - at) * sizeof(*gid));
	dev->gids[at] = *gid;
	dev->n_gids++;
}

/* False: no address that packets may be sent from now. */
static bool read_address(const struct nlmsghdr *msg, struct gid *gid)
{
	const struct rtattr *attrs[IFA_FLAGS + 1];
	const struct ifaddrmsg *info = NLMSG_DATA(msg);
	const struct rtattr *address;
	uint32_t flags;

	netlink_attributes(msg, sizeof(*info), attrs, IFA_FLAGS + 1);
	flags = netlink_u32(attrs[IFA_FLAGS], info->ifa_flags);
	if (flags & IFA_F_DADFAILED || ((flags & IFA_F_TENTATIVE) && !(flags & IFA_F_OPTIMISTIC)))
		return false;
	/* On point-to-point links IFA_ADDRESS is the peer's. */
	address = attrs[IFA_LOCAL] ? attrs[IFA_LOCAL] : attrs[IFA_ADDRESS];
	memset(gid, 0, sizeof(*gid));
	if (info->ifa_family == AF_INET6 && address && RTA_PAYLOAD(address) == 16) {
		memcpy(gid->raw, RTA_DATA(address), 16);
		return true;
	}
	if (info->ifa_family != AF_INET || !address || RTA_PAYLOAD(address) != 4)
		return false;
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, RTA_DATA(address), 4);
	return true;
}

static void collect_address(void *arg, const struct nlmsghdr *msg)
{
	const struct ifaddrmsg *info = NLMSG_DATA(msg);
	struct address_sink *sink = arg;
	struct gid gid;

	if (msg->nlmsg_type != RTM_NEWADDR)
		return;
	for (size_t i = 0; i < sink->n; i++)
		if (sink->devs[i].ifindex == info->ifa_index && read_address(msg, &gid))
			insert_ranked(&sink->devs[i], &gid);
}

static int read_addresses(struct netdev *devs, size_t n)
{
	struct address_sink sink = { .devs = devs, .n = n };
	struct ifaddrmsg all = { .ifa_family = AF_UNSPEC };

	return netlink_ask(RTM_GETADDR, NLM_F_DUMP, &all, sizeof(all), 0, NULL, 0, collect_address,
			   &sink);
}

static int by_order(const void *a, const void *b)
{
	const struct netdev *x = a, *y = b;

	if (x->loopback != y->loopback)
		return x->loopback - y->loopback;
	return x->ifindex < y->ifindex ? -1 : x->ifindex > y->ifindex;
}

int netdev_list(struct netdev **list, size_t *n)
{
	struct ifinfomsg all = { .ifi_family = AF_UNSPEC };
	struct links links = { 0 };
	size_t usable = 0;
	int ret;

	ret = netlink_ask(RTM_GETLINK, NLM_F_DUMP, &all, sizeof(all), 0, NULL, 0, collect_link,
			  &links);
	if (!ret)
		ret = links.error;
	if (!ret)
		ret = read_addresses(links.devs, links.n);
	if (ret) {
		free(links.devs);
		return ret;
	}
	for (size_t i = 0; i < links.n; i++) {
		if (!links.devs[i].up || links.devs[i].n_gids == 0)
			continue;
		links.devs[usable] = links.devs[i];
		links.devs[usable].speed_mbps = link_speed_mbps(links.devs[usable].name);
		usable++;
	}
	if (usable)
		qsort(links.devs, usable, sizeof(links.devs[0]), by_order);
	*list = links.devs;
	*n = usable;
	return 0;
}

static bool has_gid(const struct netdev *dev, const struct gid *gid)
{
	for (unsigned i = 0; i < dev->n_gids; i++)
		if (gid_eq(&dev->gids[i], gid))
			return true;
	return false;
}

static void add_gid(struct netdev *dev, const struct gid *gid)
{
	unsigned i = 0;

	while (i < dev->n_gids && !gid_is_zero(&dev->gids[i]))
		i++;
	if (i == NETDEV_GIDS)
		return;
	dev->gids[i] = *gid;
	if (i == dev->n_gids)
		dev->n_gids++;
}

/* Let the table have just the addresses of fresh, without moving one that stays. */
static bool merge_gids(struct netdev *dev, const struct netdev *fresh)
{
	bool changed = false;

	for (unsigned i = 0; i < dev->n_gids; i++) {
		if (gid_is_zero(&dev->gids[i]) || has_gid(fresh, &dev->gids[i]))
			continue;
		memset(&dev->gids[i], 0, sizeof(dev->gids[i]));
		changed = true;
	}
	for (unsigned i = 0; i < fresh->n_gids; i++) {
		if (has_gid(dev, &fresh->gids[i]))
			continue;
		add_gid(dev, &fresh->gids[i]);
		changed = true;
	}
	while (dev->n_gids && gid_is_zero(&dev->gids[dev->n_gids - 1]))
		dev->n_gids--;
	return changed;
}

int netdev_refresh(struct netdev *dev)
{
	struct ifinfomsg one = { .ifi_family = AF_UNSPEC, .ifi_index = (int)dev->ifindex };
	struct links links = { 0 };
	struct netdev gone = { .ifindex = dev->ifindex, .mtu = dev->mtu };
	struct netdev *fresh = &gone;
	int changes = 0;
	int ret;

	ret = netlink_ask(RTM_GETLINK, 0, &one, sizeof(one), 0, NULL, 0, collect_link, &links);
	/* Without memory for the answer the link is not gone. */
	if (!ret)
		ret = links.error;
	if (!ret && links.n) {
		fresh = links.devs;
		ret = read_addresses(fresh, 1);
	} else if (ret == -ENODEV) {
		ret = 0;
	}
	if (ret) {
		free(links.devs);
		return ret;
	}
	if (merge_gids(dev, fresh))
		changes |= NETDEV_GIDS_CHANGED;
	if (dev->up != fresh->up)
		changes |= NETDEV_STATE_CHANGED;
	if (dev->mtu != fresh->mtu)
		changes |= NETDEV_MTU_CHANGED;
	dev->up = fresh->up;
	dev->mtu = fresh->mtu;
	if (fresh != &gone) {
		memcpy(dev->mac, fresh->mac, sizeof(dev->mac));
		dev->speed_mbps = link_speed_mbps(fresh->name);
	}
	free(links.devs);
	return changes;
}

static void read_route(void *arg, const struct nlmsghdr *msg)
{
	const struct rtmsg *route = NLMSG_DATA(msg);

	if (msg->nlmsg_type == RTM_NEWROUTE)
		*(bool *)arg = route->rtm_type == RTN_LOCAL;
}

bool netdev_address_is_local(const struct gid *gid, unsigned ifindex)
{
	const bool ipv4 = gid_is_ipv4(gid);
	struct {
		struct rtmsg route;
		struct rtattr oif_head;
		uint32_t oif;
	} question = {
		.route = { .rtm_family = ipv4 ? AF_INET : AF_INET6,
			   .rtm_dst_len = ipv4 ? 32 : 128 },
		.oif_head = { .rta_type = RTA_OIF, .rta_len = RTA_LENGTH(sizeof(uint32_t)) },
		.oif = ifindex,
	};
	bool local = false;

	/* Elsewhere an interface would exclude addresses of the others. */
	netlink_ask(RTM_GETROUTE, 0, &question,
		    gid_is_link_local(gid) ? sizeof(question) : sizeof(question.route), RTA_DST,
		    gid->raw + (ipv4 ? 12 : 0), ipv4 ? 4 : 16, read_route, &local);
	return local;
}
