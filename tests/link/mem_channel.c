/* SPDX-License-Identifier: BSD-2-Clause */
#include "mem_channel.h"

#include <errno.h>

void mem_pair(struct mem_end ends[2])
{
	memset(ends, 0, 2 * sizeof(ends[0]));
	for (int i = 0; i < 2; i++) {
		ends[i].other = &ends[1 - i];
		ends[i].cut_after = SIZE_MAX;
	}
}

void mem_free(struct mem_end ends[2])
{
	buffer_free(&ends[0].sent);
	buffer_free(&ends[1].sent);
}

static ssize_t mem_send(void *arg, const void *data, size_t len)
{
	struct mem_end *e = arg;

	if (e->shut)
		return -EPIPE;
	if (e->chunk && len > e->chunk)
		len = e->chunk;
	buffer_put(&e->sent, data, len);
	return (ssize_t)len;
}

static ssize_t mem_recv(void *arg, void *data, size_t len)
{
	struct mem_end *e = arg;
	struct mem_end *from = e->other;
	size_t limit = from->sent.len < from->cut_after ? from->sent.len : from->cut_after;
	size_t there = limit - e->taken;

	if (!there)
		return from->shut || limit == from->cut_after ? 0 : -EAGAIN;
	if (len > there)
		len = there;
	if (e->chunk && len > e->chunk)
		len = e->chunk;
	memcpy(data, from->sent.data + e->taken, len);
	e->taken += len;
	return (ssize_t)len;
}

static void mem_shutdown(void *arg)
{
	((struct mem_end *)arg)->shut = true;
}

struct rocelink_channel mem_channel(struct mem_end *end)
{
	return (struct rocelink_channel){
		.size = sizeof(struct rocelink_channel),
		.arg = end,
		.send = mem_send,
		.recv = mem_recv,
		.shutdown = mem_shutdown,
		.fd = -1,
		.name = "memory",
	};
}
