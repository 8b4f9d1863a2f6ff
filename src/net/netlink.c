/* SPDX-License-Identifier: BSD-2-Clause */
#include "net/netlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MAX (64 << 10)

struct request {
	struct nlmsghdr head;
	uint8_t body[128];
};

int netlink_open(uint32_t groups)
{
	struct sockaddr_nl local = { .nl_family = AF_NETLINK, .nl_groups = groups };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int ret;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&local, sizeof(local))) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

static int send_request(int fd, uint16_t type, uint16_t flags, const void *header,
			size_t header_len, uint16_t attr_type, const void *attr, size_t attr_len)
{
	struct request r = { .head = { .nlmsg_type = type,
				       .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags) } };
	size_t len = NLMSG_ALIGN(header_len);

	memcpy(r.body, header, header_len);
	if (attr) {
		struct rtattr a = { .rta_type = attr_type,
				    .rta_len = (unsigned short)RTA_LENGTH(attr_len) };

		memcpy(r.body + len, &a, sizeof(a));
		memcpy(r.body + len + RTA_LENGTH(0), attr, attr_len);
		len += RTA_SPACE(attr_len);
	}
	r.head.nlmsg_len = (uint32_t)NLMSG_LENGTH(len);
	return send(fd, &r, r.head.nlmsg_len, 0) < 0 ? -errno : 0;
}

/* One datagram of the answer. 1: more follows, 0: that was all, or -errno. */
static int read_answer(int fd, bool dump, netlink_handler handler, void *arg)
{
	_Alignas(struct nlmsghdr) uint8_t buf[ANSWER_MAX];
	ssize_t received = recv(fd, buf, sizeof(buf), 0);
	unsigned left;

	if (received < 0)
		return errno == EINTR ? 1 : -errno;
	left = (unsigned)received;
	for (struct nlmsghdr *m = (void *)buf; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
		struct nlmsgerr e;

		if (m->nlmsg_type == NLMSG_DONE)
			return 0;
		if (m->nlmsg_type == NLMSG_ERROR) {
			memcpy(&e, NLMSG_DATA(m), sizeof(e));
			return e.error;
		}
		handler(arg, m);
		if (!dump)
			return 0;
	}
	return 1;
}

int netlink_ask(uint16_t type, uint16_t flags, const void *header, size_t header_len,
		uint16_t attr_type, const void *attr, size_t attr_len, netlink_handler handler,
		void *arg)
{
	int fd = netlink_open(0);
	int ret;

	if (fd < 0)
		return fd;
	ret = send_request(fd, type, flags, header, header_len, attr_type, attr, attr_len);
	if (!ret)
		do
			ret = read_answer(fd, flags & NLM_F_DUMP, handler, arg);
		while (ret > 0);
	close(fd);
	return ret;
}

void netlink_attributes(const struct nlmsghdr *msg, size_t header_len, const struct rtattr **attrs,
			unsigned n_attrs)
{
	const struct rtattr *a =
		(const void *)((const uint8_t *)NLMSG_DATA(msg) + NLMSG_ALIGN(header_len));
	int left = (int)msg->nlmsg_len - (int)NLMSG_SPACE(header_len);

	memset(attrs, 0, n_attrs * sizeof(attrs[0]));
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type < n_attrs)
			attrs[a->rta_type] = a;
}

uint32_t netlink_u32(const struct rtattr *attr, uint32_t absent)
{
	uint32_t value;

	if (!attr || RTA_PAYLOAD(attr) < sizeof(value))
		return absent;
	memcpy(&value, RTA_DATA(attr), sizeof(value));
	return value;
}
