/* SPDX-License-Identifier: BSD-2-Clause */
/* Stands in for the libibverbs of a machine with one real device: enough of it to see who was
 * called. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NAME   "real0"

static struct ibv_device device = { .node_type = IBV_NODE_CA, .name = NAME };
static int lists_held, contexts_open;

EXPORT int fake_lists_held(void);
EXPORT int fake_contexts_open(void);

int fake_lists_held(void)
{
	return lists_held;
}

int fake_contexts_open(void)
{
	return contexts_open;
}

EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof(struct ibv_device *));

	list[0] = &device;
	*n = 1;
	lists_held++;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	lists_held--;
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *d)
{
	return d == &device ? 4711 : 0;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct ibv_context *ctx = calloc(1, sizeof(*ctx));

	ctx->device = d;
	contexts_open++;
	return ctx;
}

/* As rdma-core's: it asks for the list by its public name, which may be somebody else's function, and takes
 * the devices for its own. */
EXPORT struct ibv_context *ibv_import_device(int fd)
{
	void *get = dlsym(RTLD_DEFAULT, "ibv_get_device_list");
	void *let_go = dlsym(RTLD_DEFAULT, "ibv_free_device_list");
	int n = 0;
	struct ibv_device **list = ((struct ibv_device * *(*)(int *)) get)(&n);
	bool own = n == 1 && list[0] == &device;

	(void)fd;
	((void (*)(struct ibv_device **))let_go)(list);
	return own ? ibv_open_device(&device) : NULL;
}

EXPORT int ibv_close_device(struct ibv_context *ctx)
{
	free(ctx);
	contexts_open--;
	return 0;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = ctx;
	pd->handle = 99;
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}
