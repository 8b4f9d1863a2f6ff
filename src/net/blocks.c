/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QPN blocks. Owning block N is being bound to the abstract unix socket "rocelink/N"; its datagrams
 * are bursts that reached another process, messages of engines (relay.c), and questions for the counters. The kernel tells the
 * sender's uid: only this user may forward (nobody else can share the port), and root may ask.
 *
 * Any user can bind such a name. Whoever does so can keep blocks from others and gets packets
 * addressed to queue pairs that nobody has; it can't get those of a block that is owned.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "net/port_internal.h"

#define NAME_PREFIX "rocelink/"

/* Block 0 holds QPNs 0 and 1, the last one the multicast QPN. */
#define BLOCK_FIRST 1
#define BLOCK_LAST  (QPN_BLOCKS - 2)

socklen_t block_address(struct sockaddr_un *un, unsigned block)
{
	int len;

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	len = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, NAME_PREFIX "%u", block);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

struct block_message block_message_make(enum block_message_kind kind)
{
	return (struct block_message){ .magic = { 'r', 'l', 'k' },
				       .version = BLOCK_VERSION,
				       .kind = kind };
}

unsigned block_message_kind(const void *data, size_t len)
{
	const struct block_message want = block_message_make(BLOCK_FORWARD);
	struct block_message head;

	if (len < sizeof(head))
		return 0;
	memcpy(&head, data, sizeof(head));
	if (memcmp(head.magic, want.magic, sizeof(head.magic)) != 0 || head.version != want.version)
		return 0;
	return head.kind;
}

static struct rx_block *find_place(struct port *port)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		if (port->blocks[i].rx.fd < 0)
			return &port->blocks[i];
	return NULL;
}

/* From a random start upwards, so that numbers aren't soon used again. Returns the block or -errno.
 */
static int bind_free(int fd)
{
	const unsigned count = BLOCK_LAST - BLOCK_FIRST + 1;
	uint32_t start;

	if (getrandom(&start, sizeof(start), 0) != sizeof(start))
		return -EIO;
	start %= count;
	for (unsigned i = 0; i < count; i++) {
		unsigned block = BLOCK_FIRST + (start + i) % count;
		struct sockaddr_un un;
		socklen_t len = block_address(&un, block);

		if (bind(fd, (struct sockaddr *)&un, len) == 0)
			return (int)block;
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -ENOSPC;
}

int port_claim_block(struct port *port)
{
	struct rx_block *b = find_place(port);
	int fd, ret;

	if (!b)
		return -ENOSPC;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	b->rx = (struct rx){ .fd = fd, .kind = RX_BLOCK };
	ret = socket_set(fd, SOL_SOCKET, SO_PASSCRED, 1);
	if (!ret)
		ret = port_watch(port, &b->rx);
	if (!ret)
		ret = bind_free(fd);
	if (ret < 0) {
		close(fd);
		b->rx.fd = -1;
		return ret;
	}
	b->number = (unsigned)ret;
	shm_block_changed(port, b->number, true);
	return ret;
}

void port_release_block(struct port *port, unsigned block)
{
	if (port->local_block == block)
		port->local_block = QPN_BLOCKS;
	shm_block_changed(port, block, false);
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		if (port->blocks[i].rx.fd >= 0 && port->blocks[i].number == block)
			port_unwatch_close(port, &port->blocks[i].rx);
}

/* What came beside the bytes. */
struct attached {
	uid_t uid;
	bool has_uid;
	int fds[2];
	unsigned n_fds;
};

static void take_fds(struct attached *a, const struct cmsghdr *c)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
		if (a->n_fds < ARRAY_LEN(a->fds))
			a->fds[a->n_fds++] = fd;
		else
			close(fd);
	}
}

static struct attached take_attached(struct msghdr *msg)
{
	struct attached a = { .n_fds = 0 };

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		struct ucred credentials;

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS)
			take_fds(&a, c);
		if (c->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&credentials, CMSG_DATA(c), sizeof(credentials));
		a.uid = credentials.uid;
		a.has_uid = true;
	}
	return a;
}

static void answer_query(struct port *port, int fd, const struct msghdr *msg)
{
	struct block_message head = block_message_make(BLOCK_REPORT);
	size_t room = BLOCK_MESSAGE_MAX - sizeof(head), len;

	/* The question has been read: its buffer takes the answer. */
	memcpy(port->block_buffer, &head, sizeof(head));
	len = port->callbacks.report(port->arg, (char *)port->block_buffer + sizeof(head), room);
	if (sendto(fd, port->block_buffer, sizeof(head) + len, 0, msg->msg_name, msg->msg_namelen) <
	    0)
		log_debug("a report didn't reach who asked: %s", strerror(errno));
}

static void refuse(struct port *port, const char *why, uid_t uid)
{
	if (port->stats.forward_refused++ == 0)
		log_warn("refused a datagram of uid %u to a QPN block: %s", uid, why);
}

static void close_fds(struct attached *a)
{
	while (a->n_fds)
		close(a->fds[--a->n_fds]);
}

/* len: of the datagram in the block buffer; 0: it was cut. */
static void serve(struct port *port, int fd, const struct msghdr *msg, size_t len,
		  struct attached *a)
{
	const size_t head = sizeof(struct block_message);
	unsigned kind = block_message_kind(port->block_buffer, len);

	if (!a->has_uid)
		refuse(port, "no credentials", (uid_t)-1);
	else if (a->uid != geteuid() && !(a->uid == 0 && kind == BLOCK_QUERY))
		refuse(port, "another user's", a->uid);
	else if (kind == BLOCK_FORWARD)
		forward_receive(port, port->block_buffer, len);
	else if (kind == BLOCK_RELAY && port->callbacks.relayed)
		port->callbacks.relayed(port->arg, port->block_buffer + head, len - head);
	else if (kind == BLOCK_QUERY)
		answer_query(port, fd, msg);
	else if (kind == BLOCK_OFFER && a->n_fds == 2) {
		a->n_fds = 0;
		shm_offered(port, a->fds[0], a->fds[1]);
	} else
		refuse(port, "malformed, or of another version", a->uid);
}

bool block_receive(struct port *port, struct rx *rx)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(struct ucred)) + 64];
	struct sockaddr_un from;
	struct iovec iov = { .iov_base = port->block_buffer, .iov_len = BLOCK_MESSAGE_MAX };
	struct msghdr msg = { .msg_name = &from,
			      .msg_namelen = sizeof(from),
			      .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	ssize_t len = recvmsg(rx->fd, &msg, MSG_CMSG_CLOEXEC);
	struct attached attached;

	if (len < 0)
		return false;
	attached = take_attached(&msg);
	serve(port, rx->fd, &msg, msg.msg_flags & MSG_TRUNC ? 0 : (size_t)len, &attached);
	close_fds(&attached);
	return true;
}

int port_list_blocks(unsigned *blocks, size_t cap)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	size_t n = 0;

	if (!f)
		return -errno;
	while (n < cap && fgets(line, sizeof(line), f)) {
		const char *name = strstr(line, " @" NAME_PREFIX);
		char *end;
		unsigned long block;

		if (!name)
			continue;
		name += strlen(" @" NAME_PREFIX);
		block = strtoul(name, &end, 10);
		if (end != name && *end == '\n' && block < QPN_BLOCKS)
			blocks[n++] = (unsigned)block;
	}
	fclose(f);
	return (int)n;
}
