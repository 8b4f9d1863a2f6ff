/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The outbox: packets on their way out, in one contiguous buffer, cut into groups. A group is a run
 * of packets for one path that one UDP send with segmentation offload (UDP_SEGMENT) carries: all of
 * one size but for the last, which may be shorter, at most 64 of them and 65,507 bytes (IPv6:
 * 65,527). The kernel gives segment k of a group the IPv4 ID k (DF set, unconnected socket), so a
 * packet's ICRC is computed when it joins its group.
 *
 * The writer: p = outbox_reserve(box, path, max); writes BTH ... pad; outbox_commit(box, len).
 * The port takes groups from first_group on and calls outbox_sent(). Pure: no system calls.
 */
#ifndef ROCELINK_WIRE_OUTBOX_H
#define ROCELINK_WIRE_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/path.h"

#define OUTBOX_SEGMENTS_MAX 64
#define OUTBOX_GROUPS_MAX   128

struct outbox_group {
	struct path path;
	uint32_t offset;   /* of the first packet in buf */
	uint32_t len;	   /* bytes, ICRCs included */
	uint16_t seg_len;  /* bytes of each packet but the last, ICRC included */
	uint16_t segments; /* packets; 1: no segmentation */
	bool closed;	   /* nothing joins it any more: a shorter packet ended it */
	bool damaged;	   /* one packet, its ICRC is wrong on purpose: leave it so */
};

struct outbox {
	uint8_t *buf;
	uint32_t capacity;
	uint32_t used;
	bool no_icrc;	   /* same-host path: packets have the place for it only */
	uint32_t reserved; /* bytes that the open reservation may take; 0: none is open */
	struct path path;  /* of the open reservation */
	unsigned first_group, n_groups; /* groups[first_group .. n_groups) wait to be sent */
	struct outbox_group groups[OUTBOX_GROUPS_MAX];
};

/* capacity: bytes, at least 128 KiB is sensible. 0 or -ENOMEM. */
int outbox_init(struct outbox *box, uint32_t capacity);
void outbox_destroy(struct outbox *box);

static inline bool outbox_empty(const struct outbox *box)
{
	return box->first_group == box->n_groups;
}

/* Room for a packet of at most max_len bytes without the ICRC, or NULL: the outbox is full, send
 * first. */
uint8_t *outbox_reserve(struct outbox *box, const struct path *path, uint32_t max_len);

/* The reserved packet is len bytes (a multiple of 4, pad included); appends the ICRC and groups it.
 */
void outbox_commit(struct outbox *box, uint32_t len);

/* The next packet begins a group. */
void outbox_close_group(struct outbox *box);

/* For fault injection: the last packet, which began a group, is going to be damaged and stays alone.
 * Returns its bytes. */
uint8_t *outbox_damage(struct outbox *box);

/* The first n waiting groups are gone; when none is left the buffer is empty again. */
void outbox_sent(struct outbox *box, unsigned n);

#endif
