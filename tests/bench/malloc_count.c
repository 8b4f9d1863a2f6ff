// SPDX-License-Identifier: BSD-2-Clause
/*
 * Counts the allocations of a program (LD_PRELOAD), in all its threads and libraries. At the end it
 * writes the count to the file that MALLOC_COUNT names with ".<pid>" after it.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* glibc's own names: no dlsym, which allocates itself. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

#define EXPORT __attribute__((visibility("default")))

static _Atomic unsigned long count;

EXPORT void *malloc(size_t size)
{
	count++;
	return __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	count++;
	return __libc_calloc(n, size);
}

EXPORT void *realloc(void *p, size_t size)
{
	count++;
	return __libc_realloc(p, size);
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	count++;
	return __libc_memalign(align, size);
}

EXPORT int posix_memalign(void **p, size_t align, size_t size)
{
	count++;
	*p = __libc_memalign(align, size);
	return *p ? 0 : 12; /* ENOMEM */
}

__attribute__((destructor)) static void tell(void)
{
	const char *prefix = getenv("MALLOC_COUNT");
	unsigned long counted = count;
	char name[4096];
	FILE *f;

	if (!prefix)
		return;
	snprintf(name, sizeof(name), "%s.%d", prefix, getpid());
	f = fopen(name, "w");
	if (!f || fprintf(f, "%lu\n", counted) < 0 || fclose(f))
		perror(name);
}
