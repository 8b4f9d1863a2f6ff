/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From host and service to a connected TCP socket, without blocking:
 *
 *	RESOLVING -> TRYING (one address after the other, each with its share of the time) -> done
 *	                 ^ all refused, and told to retry: after a pause the same again
 *
 * The descriptors it waits for are put into the caller's epoll set and taken out again.
 */
#ifndef ROCELINK_LINK_DIALER_H
#define ROCELINK_LINK_DIALER_H

#include "link/resolver.h"

struct dialer {
	int epfd;
	char *host, *service;
	struct resolver *resolver;
	const struct addrinfo *list, *next;
	int fd; /* connecting */
	bool retry;
	uint64_t resolve_ns, connect_ns; /* lengths */
	uint64_t phase_deadline_ns;	 /* of resolving, then of all connecting */
	uint64_t step_deadline_ns;	 /* of this address, or the end of the pause */
	bool resolving;
	int last_errno;
	char last_address[64];
};

int dialer_start(struct dialer *d, int epfd, const char *host, const char *service,
		 uint64_t resolve_ns, uint64_t connect_ns, bool retry, uint64_t now,
		 struct rocelink_error *err);
/* OK with a connected, non-blocking socket in *fd (the caller's); AGAIN; or the failure. */
int dialer_drive(struct dialer *d, uint64_t now, int *fd, struct rocelink_error *err);
uint64_t dialer_next_deadline(const struct dialer *d);
void dialer_stop(struct dialer *d);

/* "192.0.2.1:4000", "[fe80::1]:4000", "unix socket". */
void sockaddr_text(const struct sockaddr_storage *ss, char *buf, size_t len);

#endif
