/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host's network interfaces as RDMA devices see them: which there are, their link state, MTU
 * and addresses, and what changes (rtnetlink through libnl). An interface is usable when it is up
 * and has an address; loopback comes last. Works with IPv4 only and IPv6 only. Tentative addresses
 * don't count.
 */
#ifndef ROCELINK_NET_NETDEV_H
#define ROCELINK_NET_NETDEV_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/path.h"

#define NETDEV_GIDS 64

/*
 * The GID table of one device. Index 0 the link-local IPv6 address where there is one, then
 * IPv4-mapped, then other IPv6. An address that goes leaves a hole (zero GID); one that comes takes
 * the first hole or the end, so that an index never changes its meaning while its address lives.
 */
struct netdev {
	char name[IFNAMSIZ];
	unsigned ifindex;
	unsigned mtu; /* bytes, as the kernel says */
	bool up;      /* administratively up and with carrier */
	bool loopback;
	uint8_t mac[6];	     /* zero on loopback */
	uint32_t speed_mbps; /* 0: unknown */
	unsigned n_gids;     /* entries in use, holes included */
	struct gid gids[NETDEV_GIDS];
};

/* All usable interfaces, in device order. *list is freed by the caller. 0 or -errno. */
int netdev_list(struct netdev **list, size_t *n);

/* Refresh *dev (found by ifindex) in place, keeping the indices of addresses that stayed. Returns a
 * set of enum netdev_change, or -errno; an interface that is gone is down without addresses. */
enum netdev_change {
	NETDEV_GIDS_CHANGED = 1 << 0,
	NETDEV_STATE_CHANGED = 1 << 1,
	NETDEV_MTU_CHANGED = 1 << 2,
};
int netdev_refresh(struct netdev *dev);

/* Is this an address of the host (any interface)? Uses the kernel's routing: right for 127/8 as
 * well. */
bool netdev_address_is_local(const struct gid *gid, unsigned ifindex);

/* A netlink socket that becomes readable when links or addresses change. */
struct netmon;
int netmon_open(struct netmon **mon);
int netmon_fd(const struct netmon *mon);
/* Drain what is there. True when something changed: call netdev_refresh() on the devices. */
bool netmon_drain(struct netmon *mon);
void netmon_close(struct netmon *mon);

#endif
