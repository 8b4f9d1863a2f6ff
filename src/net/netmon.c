/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/netdev.h"
#include "net/netlink.h"

struct netmon {
	int fd;
};

int netmon_open(struct netmon **out)
{
	struct netmon *mon = malloc(sizeof(*mon));
	int fd;

	if (!mon)
		return -ENOMEM;
	fd = netlink_open(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR);
	if (fd < 0) {
		free(mon);
		return fd;
	}
	mon->fd = fd;
	*out = mon;
	return 0;
}

int netmon_fd(const struct netmon *mon)
{
	return mon->fd;
}

bool netmon_drain(struct netmon *mon)
{
	bool changed = false;
	uint8_t buf[8192];

	for (;;) {
		/* What changed is read anew by netdev_refresh(): the messages themselves don't
		 * matter, nor does it when some were lost (ENOBUFS). */
		ssize_t n = recv(mon->fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != ENOBUFS)
			return changed;
		changed = true;
	}
}

void netmon_close(struct netmon *mon)
{
	close(mon->fd);
	free(mon);
}
