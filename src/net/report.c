/* SPDX-License-Identifier: BSD-2-Clause */
/* Ask another process for its counters, over the socket of a block it owns. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "net/port_internal.h"

/* Connected: only the owner can answer. Bound to a name the kernel makes up, so that it can. */
static int connect_block(int fd, unsigned block)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len;

	if (bind(fd, (struct sockaddr *)&un, sizeof(sa_family_t)))
		return -errno;
	len = block_address(&un, block);
	return connect(fd, (struct sockaddr *)&un, len) ? -errno : 0;
}

static int await_report(int fd, char *text, size_t cap, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct block_message head;
	struct iovec iov[2] = { { .iov_base = &head, .iov_len = sizeof(head) },
				{ .iov_base = text, .iov_len = cap - 1 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	ssize_t len;
	int ret = poll(&pfd, 1, timeout_ms);

	if (ret <= 0)
		return ret < 0 ? -errno : -ETIMEDOUT;
	len = recvmsg(fd, &msg, 0);
	if (len < 0)
		return -errno;
	if (block_message_kind(&head, (size_t)len) != BLOCK_REPORT)
		return -EPROTO;
	text[(size_t)len - sizeof(head)] = '\0';
	return 0;
}

int port_query_report(unsigned block, char *text, size_t cap, int timeout_ms)
{
	struct block_message question = block_message_make(BLOCK_QUERY);
	int fd, ret;

	if (block >= QPN_BLOCKS || cap == 0)
		return -EINVAL;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	ret = connect_block(fd, block);
	if (!ret && send(fd, &question, sizeof(question), 0) < 0)
		ret = -errno;
	if (!ret)
		ret = await_report(fd, text, cap, timeout_ms);
	close(fd);
	return ret;
}
