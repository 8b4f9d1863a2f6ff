/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Host name to addresses without blocking the caller: numeric ones at once, names in a thread of
 * their own, since getaddrinfo() has no deadline. A caller that gives up leaves the thread behind;
 * whoever lets go last frees the job.
 */
#ifndef ROCELINK_LINK_RESOLVER_H
#define ROCELINK_LINK_RESOLVER_H

#include <netdb.h>

#include "rocelink/rocelink.h"

struct resolver; /* a job that runs or has run */

/* `passive`: for listening; host "*" means all addresses then. service NULL: only the address counts. */
int resolver_start(const char *host, const char *service, bool passive, struct resolver **out,
		   struct rocelink_error *err);
/* Readable when done, or -1 when it was done at once. */
int resolver_fd(const struct resolver *r);
/* AGAIN while it runs. The addresses belong to the resolver. */
int resolver_result(struct resolver *r, const struct addrinfo **list, struct rocelink_error *err);
void resolver_drop(struct resolver *r);

/* Block until it is done or the deadline (link_now()'s time) has passed. */
int resolver_wait(struct resolver *r, uint64_t deadline_ns, const struct addrinfo **list,
		  struct rocelink_error *err);

#endif
