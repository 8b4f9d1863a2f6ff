/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding the system's libibverbs. In the preload form it is usually loaded already, as the next
 * library in line; in the drop-in form this library bears its name, and so it is looked for by
 * path. Whichever is found must not be another copy of this one: they export a mark.
 */
#include "verbs/system.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

#define LIBRARY "libibverbs.so.1"

/* The mark: exported by both forms. */
extern const char rocelink_adapter[];
__attribute__((visibility("default"))) const char rocelink_adapter[] = "rocelink " ROCELINK_VERSION;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;

static void *open_checked(const char *name)
{
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (handle && dlsym(handle, "rocelink_adapter")) {
		dlclose(handle);
		return NULL;
	}
	return handle;
}

/* The directories the dynamic linker searches for this library's own dependencies. */
static void *open_in_search_path(void)
{
	Dl_serinfo size, *info;
	void *self = NULL, *found = NULL;
	Dl_info own;

	if (dladdr(rocelink_adapter, &own))
		self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!self || dlinfo(self, RTLD_DI_SERINFOSIZE, &size))
		return NULL;
	info = malloc(size.dls_size);
	if (!info)
		return NULL;
	info->dls_size = size.dls_size;
	info->dls_cnt = size.dls_cnt;
	if (dlinfo(self, RTLD_DI_SERINFO, info) == 0) {
		for (unsigned i = 0; i < info->dls_cnt && !found; i++) {
			char path[4096];

			snprintf(path, sizeof(path), "%s/" LIBRARY, info->dls_serpath[i].dls_name);
			if (access(path, R_OK) == 0)
				found = open_checked(path);
		}
	}
	free(info);
	dlclose(self);
	return found;
}

static void find_library(void)
{
	library = open_checked(LIBRARY);
	if (!library)
		library = open_in_search_path();
	if (!library)
		log_debug("no other " LIBRARY ": only the adapter's own devices are seen");
}

void *system_symbol(_Atomic(void *) *cache, const char *name, const char *version)
{
	void *symbol = *cache;

	if (symbol)
		return symbol;
	pthread_once(&once, find_library);
	if (!library)
		return NULL;
	symbol = dlvsym(library, name, version);
	if (!symbol)
		log_info("the system's " LIBRARY " has no %s of %s", name, version);
	*cache = symbol;
	return symbol;
}
