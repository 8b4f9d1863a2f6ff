/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of one process's engine to another's, whole and in order, over the sockets of QPN blocks. */
#include <errno.h>

#include "base/units.h"
#include "net/port_internal.h"

#define RELAY_BUFFER_MAX (4 << 20)

_Static_assert(sizeof(struct block_message) + PORT_RELAY_MAX <= BLOCK_MESSAGE_MAX, "it fits");

int relay_init(struct port *port)
{
	port->relay_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (port->relay_fd < 0)
		return -errno;
	/* Apart from what is forwarded: neither waits for whom the other has filled its buffer for. */
	socket_raise_buffer(port->relay_fd, SO_SNDBUF, RELAY_BUFFER_MAX);
	return 0;
}

int port_relay(struct port *port, unsigned block, const void *data, size_t len)
{
	struct block_message head = block_message_make(BLOCK_RELAY);
	struct iovec iov[] = { { &head, sizeof(head) }, { (void *)(uintptr_t)data, len } };
	struct sockaddr_un un;
	struct msghdr msg = { .msg_name = &un, .msg_iov = iov, .msg_iovlen = ARRAY_LEN(iov) };

	msg.msg_namelen = block_address(&un, block);
	return sendmsg(port->relay_fd, &msg, 0) < 0 ? -errno : 0;
}
