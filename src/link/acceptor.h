/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening sockets: one for each address that a host name stands for. */
#ifndef ROCELINK_LINK_ACCEPTOR_H
#define ROCELINK_LINK_ACCEPTOR_H

#include "rocelink/rocelink.h"

enum { ACCEPTOR_MAX = 8 };

struct acceptor {
	int fds[ACCEPTOR_MAX];
	unsigned count;
	uint16_t port;
};

/* Listen, and put the sockets into epfd. Resolving a name blocks for at most 5 s. */
int acceptor_open(struct acceptor *a, int epfd, const char *host, const char *service, int backlog,
		  bool reuse_port, struct rocelink_error *err);
/* The next connection, non-blocking; -1 with errno (EAGAIN: none). */
int acceptor_take(struct acceptor *a);
/* Only this machine can connect: all its addresses are loopback ones. */
bool acceptor_is_loopback(const struct acceptor *a);
void acceptor_close(struct acceptor *a);

#endif
