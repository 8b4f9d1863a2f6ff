/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets lie in buf one behind the other, and groups cover them without a gap: group g+1 starts
 * where g ends, and the last group ends at `used`. Only the last group can grow.
 */
#include "wire/outbox.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/icrc.h"
#include "wire/packet.h"

#define UDP_PAYLOAD_MAX_IPV4 (65535 - 20 - 8)
#define UDP_PAYLOAD_MAX_IPV6 (65535 - 8) /* the IPv6 payload length doesn't count its header */

int outbox_init(struct outbox *box, uint32_t capacity)
{
	memset(box, 0, sizeof(*box));
	box->buf = malloc(capacity);
	if (!box->buf)
		return -ENOMEM;
	box->capacity = capacity;
	return 0;
}

void outbox_destroy(struct outbox *box)
{
	free(box->buf);
	memset(box, 0, sizeof(*box));
}

uint8_t *outbox_reserve(struct outbox *box, const struct path *path, uint32_t max_len)
{
	if (box->n_groups == OUTBOX_GROUPS_MAX ||
	    box->capacity - box->used < (uint64_t)max_len + ICRC_LEN)
		return NULL;
	box->reserved = max_len + ICRC_LEN;
	box->path = *path;
	return box->buf + box->used;
}

/* size: of the packet with its ICRC. */
static bool group_takes(const struct outbox_group *g, const struct path *path, uint32_t size)
{
	uint32_t limit = gid_is_ipv4(&path->sgid) ? UDP_PAYLOAD_MAX_IPV4 : UDP_PAYLOAD_MAX_IPV6;

	return !g->closed && size <= g->seg_len && g->segments < OUTBOX_SEGMENTS_MAX &&
	       g->len + size <= limit && path_eq(&g->path, path);
}

static struct outbox_group *group_for(struct outbox *box, uint32_t size)
{
	struct outbox_group *g = &box->groups[box->n_groups];

	if (!outbox_empty(box) && group_takes(g - 1, &box->path, size))
		return g - 1;
	box->n_groups++;
	g->path = box->path;
	g->offset = box->used;
	g->len = 0;
	g->seg_len = (uint16_t)size;
	g->segments = 0;
	g->closed = false;
	g->damaged = false;
	return g;
}

void outbox_commit(struct outbox *box, uint32_t len)
{
	const uint32_t size = len + ICRC_LEN;
	uint8_t *packet = box->buf + box->used;
	struct outbox_group *g;

	assert(size <= box->reserved && len % 4 == 0 && len >= BTH_LEN);
	g = group_for(box, size);
	if (!box->no_icrc) {
		uint32_t icrc = htole32(icrc_compute(&g->path, g->segments, packet, len));

		memcpy(packet + len, &icrc, sizeof(icrc));
	}
	g->segments++;
	g->len += size;
	g->closed = size < g->seg_len;
	box->used += size;
	box->reserved = 0;
}

void outbox_close_group(struct outbox *box)
{
	if (!outbox_empty(box))
		box->groups[box->n_groups - 1].closed = true;
}

uint8_t *outbox_damage(struct outbox *box)
{
	struct outbox_group *g = &box->groups[box->n_groups - 1];

	assert(!outbox_empty(box) && g->segments == 1);
	g->closed = true;
	g->damaged = true;
	return box->buf + g->offset;
}

void outbox_sent(struct outbox *box, unsigned n)
{
	assert(n <= box->n_groups - box->first_group);
	box->first_group += n;
	if (outbox_empty(box)) {
		box->first_group = box->n_groups = 0;
		box->used = 0;
	}
}
