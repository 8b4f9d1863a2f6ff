/* SPDX-License-Identifier: BSD-2-Clause */
/* overflow DEVICE [overflow]: opens the device and registers memory; then writes behind it. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 1000

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (struct ibv_device **d = list; d && *d && !ctx; d++)
		if (strcmp(ibv_get_device_name(*d), name) == 0)
			ctx = ibv_open_device(*d);
	ibv_free_device_list(list);
	return ctx;
}

int main(int argc, char **argv)
{
	struct ibv_context *ctx = argc > 1 ? open_device(argv[1]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	char *memory = malloc(SIZE);
	struct ibv_mr *mr =
		pd && memory ? ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE) : NULL;
	volatile int at = argc > 2 ? SIZE : 0;

	if (!mr)
		return 1;
	memory[at] = 1;
	printf("registered\n");
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	ibv_close_device(ctx);
	free(memory);
	return 0;
}
