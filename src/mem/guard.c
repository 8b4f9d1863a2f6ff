/* SPDX-License-Identifier: BSD-2-Clause */
#include "mem/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>

/* Initial-exec: the signal handler must not be the first to touch it, which could allocate. */
static _Thread_local struct {
	sigjmp_buf before;
	const void *volatile address;
	volatile sig_atomic_t on;
} guard __attribute__((tls_model("initial-exec")));

/* Address 0 may be what the program registered: memcpy() of it is a fault like any other, not a mistake
 * of ours. */
#define MAY_BE_NULL __attribute__((no_sanitize("undefined")))

/* The signal mask needn't be saved: the handler runs with SA_NODEFER and blocks nothing. */
MAY_BE_NULL bool mem_guard_copy(void *dst, const void *src, size_t len)
{
	if (sigsetjmp(guard.before, 0))
		return false;
	guard.on = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memcpy(dst, src, len);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	guard.on = 0;
	return true;
}

MAY_BE_NULL bool mem_guard_use(void *host, void (*use)(void *host, void *arg), void *arg)
{
	if (sigsetjmp(guard.before, 0))
		return false;
	guard.on = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	use(host, arg);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	guard.on = 0;
	return true;
}

const void *mem_guard_address(void)
{
	return guard.address;
}

void mem_guard_fault(const void *address)
{
	if (!guard.on)
		return;
	guard.on = 0;
	guard.address = address;
	siglongjmp(guard.before, 1);
}
