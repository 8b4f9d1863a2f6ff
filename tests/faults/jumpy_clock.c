/* SPDX-License-Identifier: BSD-2-Clause */
/* Put in front of a program: the wall clock is an hour fast, then an hour slow, with every look. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define JUMP_S	 3600
#define EXPORTED __attribute__((visibility("default")))

static time_t jump(void)
{
	static _Atomic unsigned looks;
	static _Thread_local unsigned seed;

	/* So that programs that look once differ too. */
	if (!seed)
		seed = (unsigned)getpid();
	return (seed + atomic_fetch_add(&looks, 1)) % 2 ? JUMP_S : -JUMP_S;
}

EXPORTED int clock_gettime(clockid_t clock, struct timespec *t)
{
	int ret = (int)syscall(SYS_clock_gettime, clock, t);

	if (!ret && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		t->tv_sec += jump();
	return ret;
}

EXPORTED int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	int ret = (int)syscall(SYS_gettimeofday, tv, zone);

	if (!ret)
		tv->tv_sec += jump();
	return ret;
}

EXPORTED time_t time(time_t *out)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (out)
		*out = t.tv_sec;
	return t.tv_sec;
}
