/* SPDX-License-Identifier: BSD-2-Clause */
/* Asking the kernel by connecting a datagram socket: no packet is sent, no privilege is needed. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "link/gid.h"

enum { ANY_PORT = 4791 };

static socklen_t to_sockaddr(const struct address *a, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (address_is_ipv4(a)) {
		struct sockaddr_in *in = (void *)ss;

		in->sin_family = AF_INET;
		in->sin_port = htons(ANY_PORT);
		memcpy(&in->sin_addr, a->ip + 12, 4);
		return sizeof(*in);
	}
	struct sockaddr_in6 *in6 = (void *)ss;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(ANY_PORT);
	in6->sin6_scope_id = a->scope;
	memcpy(&in6->sin6_addr, a->ip, sizeof(a->ip));
	return sizeof(*in6);
}

void route_find(struct route *r, const struct address *to)
{
	struct sockaddr_storage ss;
	socklen_t len = to_sockaddr(to, &ss);
	int fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memset(r, 0, sizeof(*r));
	r->to = *to;
	if (fd < 0) {
		r->error = errno;
		return;
	}
	if (connect(fd, (struct sockaddr *)&ss, len) != 0) {
		r->error = errno;
	} else {
		len = sizeof(ss);
		r->known = getsockname(fd, (struct sockaddr *)&ss, &len) == 0 &&
			   address_from_sockaddr(&r->source, (struct sockaddr *)&ss);
	}
	close(fd);
}
