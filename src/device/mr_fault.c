/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handlers are installed in front of the program's, which are remembered. A program that installs
 * its own later and keeps ours to call it from there is chained in a ring when we get in front of
 * it again; a fault that comes round takes its default course. It is known by its siginfo, handed
 * on, in a deeper frame: a program's handler may also have left by longjmp.
 *
 * The handlers run with SA_NODEFER and an empty mask, since they may not return, and on the
 * program's alternate stack where it has one: its stack may be what overflowed.
 */
#include "device/mr_fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "mem/guard.h"

static const int watched[] = { SIGSEGV, SIGBUS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before[ARRAY_LEN(watched)]; /* written before the handler is installed */
static _Thread_local struct {
	const siginfo_t *info;
	uintptr_t frame;
} passed_on __attribute__((tls_model("initial-exec")));

/* On return the instruction is tried again, now without a handler; a signal that was sent by
 * somebody is sent again. */
static void take_default(int sig, const siginfo_t *info)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	sigaction(sig, &dfl, NULL);
	if (info->si_code <= 0)
		raise(sig);
}

static bool is_function(const struct sigaction *old)
{
	return old->sa_flags & SA_SIGINFO ||
	       (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN);
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *old = &before[sig == SIGBUS];
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	sigset_t mask;

	if (!is_function(old) || (passed_on.info == info && frame < passed_on.frame)) {
		take_default(sig, info);
		return;
	}
	passed_on.info = info;
	passed_on.frame = frame;
	pthread_sigmask(SIG_BLOCK, &old->sa_mask, &mask);
	if (old->sa_flags & SA_SIGINFO)
		old->sa_sigaction(sig, info, context);
	else
		old->sa_handler(sig);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	passed_on.info = NULL;
}

static void handler(int sig, siginfo_t *info, void *context)
{
	if (info->si_code > 0)
		mem_guard_fault(info->si_addr);
	pass_on(sig, info, context);
}

static void watch(size_t i)
{
	struct sigaction now, ours = { .sa_sigaction = handler,
				       .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };

	if (sigaction(watched[i], NULL, &now))
		return;
	if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == handler)
		return;
	before[i] = now;
	if (sigaction(watched[i], &ours, NULL))
		log_warn("can't handle signal %d: memory that is unmapped while it is registered "
			 "ends the program",
			 watched[i]);
}

void mr_fault_watch(void)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ARRAY_LEN(watched); i++)
		watch(i);
	pthread_mutex_unlock(&lock);
}

void mr_fault_fork_lock(bool take)
{
	if (take)
		pthread_mutex_lock(&lock);
	else
		pthread_mutex_unlock(&lock);
}
