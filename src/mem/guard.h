/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Access to a program's memory that may be gone: the program can unmap or protect at any time what
 * it registered, as no page is pinned. Such an access runs guarded: whoever handles SIGSEGV and
 * SIGBUS for the process (device/mr_fault.c) asks mem_guard_fault(), which abandons it. Without a
 * handler the guard does nothing, at a cost of a few nanoseconds.
 *
 * The guard is the calling thread's own; accesses don't nest.
 */
#ifndef ROCELINK_MEM_GUARD_H
#define ROCELINK_MEM_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* False: the memory of one of the two could not be accessed; part of it may have been copied. */
bool mem_guard_copy(void *dst, const void *src, size_t len);
/* The same for any access: run use(host, arg), which must hold no lock and allocate nothing. */
bool mem_guard_use(void *host, void (*use)(void *host, void *arg), void *arg);
/* The address at which the last access of this thread failed. */
const void *mem_guard_address(void);

/* From a signal handler, about a fault at this address: returns only if it isn't ours. */
void mem_guard_fault(const void *address);

#endif
