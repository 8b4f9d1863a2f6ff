/* SPDX-License-Identifier: BSD-2-Clause */
#include "namespace.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool by_root;

static bool write_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool become_root_of_own(void)
{
	char map[64];
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (!write_file("/proc/self/uid_map", map) || !write_file("/proc/self/setgroups", "deny"))
		return false;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return write_file("/proc/self/gid_map", map);
}

static bool loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &ifr) == 0;

	if (fd >= 0)
		close(fd);
	return ok;
}

bool namespace_enter(void)
{
	by_root = geteuid() == 0;
	if (by_root ? unshare(CLONE_NEWNET) != 0 : !become_root_of_own())
		return false;
	return loopback_up();
}

bool namespace_has_users(void)
{
	return by_root;
}

static int run(const char *suffix, const char *format, va_list args)
{
	char line[512];
	int len = vsnprintf(line, sizeof(line), format, args);

	snprintf(line + len, sizeof(line) - (size_t)len, "%s", suffix);
	return system(line);
}

void must_run(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (run("", format, args) != 0) {
		fprintf(stderr, "failed: %s\n", format);
		abort();
	}
	va_end(args);
}

bool try_run(const char *format, ...)
{
	va_list args;
	bool ok;

	va_start(args, format);
	ok = run(" >/dev/null 2>&1", format, args) == 0;
	va_end(args);
	return ok;
}

void namespace_add_link(void)
{
	must_run("ip link add d0 type veth peer name d1 && ip link set d0 addrgenmode none && "
		 "ip link set d1 addrgenmode none up && ip link set d0 up && "
		 "ip addr add 192.0.2.1/24 dev d0 && ip addr add 192.0.2.2/24 dev d0 && "
		 "ip neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev d0 nud permanent && "
		 "ip -6 addr add 2001:db8::1/64 dev d0 nodad && "
		 "ip -6 addr add 2001:db8::2/64 dev d0 nodad && "
		 "ip -6 addr add fe80::1/64 dev d0 nodad && "
		 "timeout 10 sh -c 'while ip -br link show d0 | grep -q NO-CARRIER; do :; done'");
	/* The kernel adds an IPv6 address's route when it comes to it. */
	must_run("for i in $(seq 100); do "
		 "[ $(ip -6 route show table local dev d0 | grep -c ^local) = 3 ] && exit 0; "
		 "sleep 0.1; done; exit 1");
}
