/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/xrc_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define NAME_LEN     100
#define LOCK_WAIT_MS 5000
#define CLAIMS_MAX   10000 /* processes with one domain: more than there are */

/* All claims on this domain begin with this. */
static void prefix(const struct xrc_name *n, char out[NAME_LEN])
{
	snprintf(out, NAME_LEN, "rocelink-xrcd/%u/%u/%" PRIx64 ":%" PRIx64 "/", geteuid(),
		 n->ifindex, n->file_dev, n->file_ino);
}

static int bind_name(int fd, const char *start, const char *end)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int len = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "%s%s", start, end);
	socklen_t un_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);

	return bind(fd, (struct sockaddr *)&un, un_len) ? -errno : 0;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

/* Held by whoever looks and claims; for a moment, or until its end. */
static int take_lock(const char *start)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	int fd = new_socket(), rc = fd;

	for (int tries = 0; fd >= 0; tries++) {
		rc = bind_name(fd, start, "lock");
		if (!rc)
			return fd;
		if (rc != -EADDRINUSE || tries == LOCK_WAIT_MS)
			break;
		nanosleep(&ms, NULL);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Does any process hold a claim? */
static bool is_claimed(const char *start)
{
	char want[NAME_LEN + 8], line[512];
	bool found = false;
	FILE *f = fopen("/proc/thread-self/net/unix", "re");

	if (!f) {
		log_info("open_xrcd: whether another process has the domain open can't be seen: "
			 "/proc/thread-self/net/unix: %s",
			 strerror(errno));
		return false;
	}
	snprintf(want, sizeof(want), " @%s", start);
	while (!found && fgets(line, sizeof(line), f)) {
		const char *name = strstr(line, want);

		found = name && strncmp(name + strlen(want), "lock\n", 5) != 0;
	}
	fclose(f);
	return found;
}

/* Under the lock nobody else takes a name that was free. */
static int claim(const char *start)
{
	int fd = new_socket(), rc = fd;

	for (unsigned i = 0; fd >= 0 && i < CLAIMS_MAX; i++) {
		char end[16];

		snprintf(end, sizeof(end), "%u", i);
		rc = bind_name(fd, start, end);
		if (!rc)
			return fd;
		if (rc != -EADDRINUSE)
			break;
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

int xrc_claim(const struct xrc_name *name, int oflags)
{
	char start[NAME_LEN];
	bool claimed;
	int lock, fd;

	prefix(name, start);
	lock = take_lock(start);
	if (lock < 0) {
		log_info("open_xrcd: the domain's lock isn't to be had: %s", strerror(-lock));
		return lock;
	}
	claimed = is_claimed(start);
	if (claimed && (oflags & O_EXCL)) {
		log_info("open_xrcd: O_EXCL, but another process has the file's domain open");
		fd = -EINVAL;
	} else if (!claimed && !(oflags & O_CREAT)) {
		log_info("open_xrcd: no process has the file's domain open, and O_CREAT isn't "
			 "given");
		fd = -EAGAIN;
	} else {
		fd = claim(start);
		if (fd < 0)
			log_info("open_xrcd: no claim to be had: %s", strerror(-fd));
	}
	close(lock);
	return fd;
}
