/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/resolver.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/units.h"
#include "link/fail.h"
#include "link/trace.h"

struct resolver {
	atomic_int refs;
	atomic_bool done;
	int fd;
	char *host, *service;
	struct addrinfo hints;
	int error, sys_errno;
	struct addrinfo *list;
};

void resolver_drop(struct resolver *r)
{
	if (!r || atomic_fetch_sub(&r->refs, 1) != 1)
		return;
	if (r->list)
		freeaddrinfo(r->list);
	if (r->fd >= 0)
		close(r->fd);
	free(r->host);
	free(r->service);
	free(r);
}

static void *resolve(void *arg)
{
	struct resolver *r = arg;

	r->error = getaddrinfo(r->host, r->service, &r->hints, &r->list);
	r->sys_errno = r->error == EAI_SYSTEM ? errno : 0;
	atomic_store(&r->done, true);
	if (r->fd >= 0)
		eventfd_write(r->fd, 1);
	resolver_drop(r);
	return NULL;
}

/* The thread must not take the program's signals. */
static int start_thread(struct resolver *r)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, resolve, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}

int resolver_start(const char *host, const char *service, bool passive, struct resolver **out,
		   struct rocelink_error *err)
{
	struct resolver *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return link_no_memory(err);
	r->refs = 2;
	r->fd = -1;
	r->host = passive && strcmp(host, "*") == 0 ? NULL : strdup(host);
	r->service = service ? strdup(service) : NULL;
	r->hints = (struct addrinfo){
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | (passive ? AI_PASSIVE : 0),
	};
	rc = getaddrinfo(r->host, r->service, &r->hints, &r->list);
	if (rc == 0) {
		r->refs = 1;
		r->done = true;
		*out = r;
		return ROCELINK_OK;
	}
	r->hints.ai_flags &= ~AI_NUMERICHOST;
	r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = r->fd < 0 ? errno : start_thread(r);
	if (rc) {
		r->refs = 1;
		resolver_drop(r);
		return link_fail(err, ROCELINK_SYSTEM, ROCELINK_PHASE_RESOLVE, rc, "resolving %s",
				 host);
	}
	*out = r;
	return ROCELINK_OK;
}

int resolver_fd(const struct resolver *r)
{
	return r->fd;
}

/* gai_strerror() speaks of "name or service" where the service is known to be right. */
static const char *reason(int error)
{
	switch (error) {
	case EAI_NONAME:
		return "no such name";
	case EAI_AGAIN:
		return "the name server doesn't answer";
	default:
		return gai_strerror(error);
	}
}

int resolver_result(struct resolver *r, const struct addrinfo **list, struct rocelink_error *err)
{
	if (!atomic_load(&r->done))
		return link_again(err);
	if (r->error == EAI_SERVICE)
		return link_fail(err, ROCELINK_RESOLVE, ROCELINK_PHASE_RESOLVE, 0,
				 "the service \"%s\" is unknown: say a port number, or a name of "
				 "/etc/services",
				 r->service);
	if (r->error)
		return link_fail(
			err, ROCELINK_RESOLVE, ROCELINK_PHASE_RESOLVE, r->sys_errno,
			"the host \"%s\" is unknown (%s): check the name, or say an address",
			r->host ? r->host : "*", reason(r->error));
	*list = r->list;
	return ROCELINK_OK;
}

int resolver_wait(struct resolver *r, uint64_t deadline_ns, const struct addrinfo **list,
		  struct rocelink_error *err)
{
	for (;;) {
		uint64_t now = link_now();
		struct pollfd p = { .fd = r->fd, .events = POLLIN };
		int rc = resolver_result(r, list, err);

		if (rc != ROCELINK_AGAIN)
			return rc;
		if (now >= deadline_ns)
			return link_fail(
				err, ROCELINK_TIMEOUT, ROCELINK_PHASE_RESOLVE, 0,
				"resolving \"%s\" takes too long: is the name server reachable?",
				r->host);
		poll(&p, 1, (int)((deadline_ns - now) / NS_PER_MS + 1));
	}
}
