/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is a range of memory mapped, with the permissions a region needs? The kernel answers without
 * anything being written: for small ranges by faulting the pages in (an adapter would pin them
 * anyway), for large ones, which may be sparse, by its list of mappings. Nothing is locked: no
 * limit on locked memory matters.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define POPULATE_MAX (UINT64_C(16) << 20)

/* 1: readable (writable); 0: not; -1: the kernel can't say (old, or a mapping of a device). */
static int populate(uint64_t start, uint64_t end, bool writable)
{
	if (madvise((void *)start, end - start,
		    writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
		return 1;
	return errno == ENOMEM || errno == EFAULT ? 0 : -1;
}

/* The mappings in ascending order, until the range is covered or a hole in it is found. */
static bool covered(FILE *maps, uint64_t start, uint64_t end, bool writable)
{
	uint64_t from, to;
	char line[512], perms[5];

	while (start < end && fgets(line, sizeof(line), maps)) {
		if (!strchr(line, '\n')) {
			/* A long path: the rest of the line is of no interest. */
			int c;

			do
				c = getc(maps);
			while (c != '\n' && c != EOF);
		}
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, perms) != 3)
			return false;
		if (to <= start)
			continue;
		if (from > start || perms[0] != 'r' || (writable && perms[1] != 'w'))
			return false;
		start = to;
	}
	return start >= end;
}

int dev_probe_populate(const void *addr, size_t length, bool writable)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = (uintptr_t)addr & ~(page - 1), end;
	int known;

	if (__builtin_add_overflow((uintptr_t)addr, length, &end) || end > UINT64_MAX - page)
		return -EFAULT;
	end = (end + page - 1) & ~(page - 1);
	if (start == end)
		return 0;
	known = populate(start, end, writable);
	return known < 0 ? dev_probe_memory(addr, length, writable) : known ? 0 : -EFAULT;
}

int dev_probe_memory(const void *addr, size_t length, bool writable)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = (uintptr_t)addr & ~(page - 1), end;
	bool ok;
	FILE *maps;

	if (__builtin_add_overflow((uintptr_t)addr, length, &end) || end > UINT64_MAX - page)
		return -EFAULT;
	end = (end + page - 1) & ~(page - 1);
	if (end - start <= POPULATE_MAX) {
		int known = populate(start, end, writable);

		if (known >= 0)
			return known ? 0 : -EFAULT;
	}
	maps = fopen("/proc/self/maps", "re");
	/* Without /proc at least holes are found: msync fails on them. */
	if (!maps)
		return msync((void *)start, end - start, MS_ASYNC) ? -EFAULT : 0;
	ok = covered(maps, start, end, writable);
	fclose(maps);
	return ok ? 0 : -EFAULT;
}
