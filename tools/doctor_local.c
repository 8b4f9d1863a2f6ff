/* SPDX-License-Identifier: BSD-2-Clause */
/* The checks that look at this machine alone. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/settings.h"
#include "tools/doctor.h"

bool doctor_check_settings(struct doctor *d)
{
	struct settings settings;
	char error[256];

	if (settings_parse(&settings, environ, error, sizeof(error)) < 0) {
		doctor_find(d, BAD, "settings",
			    "unset or correct it: the adapter refuses to start, and the devices "
			    "can't be checked",
			    "%s", error);
		return false;
	}
	doctor_find(d, WELL, "settings", NULL, "every ROCELINK_* variable is valid");
	return true;
}

static bool is_active(const struct device_info *dev)
{
	for (int i = 0; i < dev->attr.phys_port_cnt; i++)
		if (dev->ports[i].queried && dev->ports[i].attr.state == IBV_PORT_ACTIVE)
			return true;
	return false;
}

void doctor_check_devices(struct doctor *d)
{
	unsigned active = 0;

	for (int i = 0; i < d->n_devices; i++) {
		const struct device_info *dev = &d->devices[i];
		const char *kind = dev->adapter ? "rocelink's adapter" : "device of the kernel";

		if (dev->open_errno)
			doctor_find(
				d, dev->adapter ? BAD : NOTE, "device",
				dev->open_errno == EACCES || dev->open_errno == EPERM
					? "access to /dev/infiniband/uverbs* is missing"
					: "`rocelink run --log info -- ibv_devinfo` may say more",
				"%s (%s) cannot be opened: %s", dev->name, kind,
				strerror(dev->open_errno));
		else if (!is_active(dev))
			doctor_find(d, NOTE, "device",
				    "bring its interface up, or connect the cable",
				    "%s (%s) has no active port", dev->name, kind);
		else
			doctor_find(d, WELL, "device", NULL, "%s (%s) is active", dev->name, kind);
		active += !dev->open_errno && is_active(dev);
	}
	if (!active)
		doctor_find(d, BAD, "devices",
			    "bring an interface up and give it an address (ip address add ...)",
			    "no device has an active port");
}

static bool module_loaded(const char *name)
{
	char line[512];
	FILE *file = fopen("/proc/modules", "r");
	size_t len = strlen(name);
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = strncmp(line, name, len) == 0 && line[len] == ' ';
	if (file)
		fclose(file);
	return found;
}

void doctor_check_kernel(struct doctor *d)
{
	if (access("/sys/class/infiniband", F_OK) != 0)
		doctor_find(d, WELL, "kernel RDMA", NULL,
			    "not there, and not needed: the adapter works without");
	else if (module_loaded("rdma_rxe"))
		doctor_find(d, NOTE, "kernel RDMA",
			    "only one of both can have UDP port 4791; see the port below",
			    "the kernel's Soft-RoCE driver (rdma_rxe) is loaded");
	else
		doctor_find(d, WELL, "kernel RDMA", NULL,
			    "there; its devices appear beside the adapter's");
}

void doctor_check_memory_limit(struct doctor *d)
{
	struct rlimit limit;
	bool kernel_device = false;

	for (int i = 0; i < d->n_devices; i++)
		kernel_device |= !d->devices[i].adapter;
	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	if (limit.rlim_cur == RLIM_INFINITY)
		doctor_find(d, WELL, "locked memory", NULL, "unlimited");
	else if (!kernel_device)
		doctor_find(d, WELL, "locked memory", NULL,
			    "limit %llu KiB; the adapter locks nothing, so it doesn't matter",
			    (unsigned long long)limit.rlim_cur / 1024);
	else
		doctor_find(d, limit.rlim_cur < (64u << 20) ? NOTE : WELL, "locked memory",
			    limit.rlim_cur < (64u << 20)
				    ? "raise it (ulimit -l, limits.conf, LimitMEMLOCK=, --ulimit "
				      "memlock=-1) if ibv_reg_mr fails with ENOMEM"
				    : NULL,
			    "limit %llu KiB; a device of the kernel locks what is registered",
			    (unsigned long long)limit.rlim_cur / 1024);
}

struct families {
	unsigned ipv4, ipv6, link_local, loopback, gone;
};

static void count_gid(struct doctor *d, const struct rocelink_gid *g, struct families *f)
{
	const struct in6_addr *a = (const struct in6_addr *)(const void *)&g->gid;

	if (g->type == ROCELINK_GID_IB)
		return;
	if (!g->present) {
		f->gone++;
		doctor_find(d, BAD, "GID",
			    "a queue pair that uses it can't be reached: give the address back to "
			    "the interface, or choose another index (rocelink devices)",
			    "%s index %d is %s, which %s doesn't have any more", g->device,
			    g->index, g->address, *g->ifname ? g->ifname : "its interface");
	} else if (IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127)) {
		f->loopback++;
	} else if (IN6_IS_ADDR_V4MAPPED(a)) {
		f->ipv4++;
	} else if (IN6_IS_ADDR_LINKLOCAL(a)) {
		f->link_local++;
	} else {
		f->ipv6++;
	}
}

void doctor_check_gids(struct doctor *d)
{
	struct families f = { 0 };

	for (int i = 0; i < d->n_devices; i++)
		for (int p = 0; p < d->devices[i].attr.phys_port_cnt; p++)
			for (int g = 0; g < d->devices[i].ports[p].n_gids; g++)
				count_gid(d, &d->devices[i].ports[p].gids[g], &f);
	if (!f.gone && d->n_devices)
		doctor_find(d, WELL, "GIDs", NULL, "every RoCE GID is an address of its interface");
	if (f.ipv4 || f.ipv6)
		doctor_find(d, WELL, "families", NULL,
			    "IPv4 GIDs %u, IPv6 %u, IPv6 link-local %u; both ends need one of the "
			    "same family",
			    f.ipv4, f.ipv6, f.link_local);
	else
		doctor_find(d, NOTE, "families",
			    "give an interface an IPv4 or a global IPv6 address to reach other "
			    "networks",
			    "there are only loopback (%u) and link-local (%u) GIDs", f.loopback,
			    f.link_local);
}

static unsigned interface_mtu(const char *name)
{
	struct ifreq req = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	if (fd < 0)
		return 0;
	if (ioctl(fd, SIOCGIFMTU, &req))
		req.ifr_mtu = 0;
	close(fd);
	return (unsigned)req.ifr_mtu;
}

static void check_port_mtu(struct doctor *d, const char *device, const struct device_port *p)
{
	unsigned mtu = rocelink_mtu_bytes(p->attr.active_mtu);
	const char *ifname = p->n_gids ? p->gids[0].ifname : "";

	if (!p->queried || p->attr.state != IBV_PORT_ACTIVE || !*ifname)
		return;
	doctor_find(d, mtu < 1024 ? NOTE : WELL, "MTU",
		    mtu < 1024 ? "raise the interface's MTU to 1500 or more (ip link set ... mtu); "
				 "many programs ask for a path MTU of 1024"
			       : NULL,
		    "%s: path MTU %u (interface MTU %u)%s", device, mtu, interface_mtu(ifname),
		    mtu >= 1024 && mtu < 4096 ? "; 4096 would need 4200, here and all the way"
					      : "");
}

void doctor_check_mtu(struct doctor *d)
{
	for (int i = 0; i < d->n_devices; i++)
		for (int p = 0; p < d->devices[i].attr.phys_port_cnt; p++)
			check_port_mtu(d, d->devices[i].name, &d->devices[i].ports[p]);
}
