/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of a channel in memory. Each end's bytes are kept, so that a test can replay or look at
 * them; it can be cut after so many bytes, or deliver in small pieces.
 */
#ifndef TESTS_LINK_MEM_CHANNEL_H
#define TESTS_LINK_MEM_CHANNEL_H

#include "link/buffer.h"
#include "rocelink/rocelink.h"

struct mem_end {
	struct mem_end *other;
	struct buffer sent; /* all bytes from this end */
	size_t taken;	    /* of the other's, by this end */
	size_t chunk;	    /* at most so many at a time; 0: any */
	size_t cut_after;   /* the other sees the end of the stream after so many bytes; SIZE_MAX:
			       never */
	bool shut;
};

void mem_pair(struct mem_end ends[2]);
void mem_free(struct mem_end ends[2]);
struct rocelink_channel mem_channel(struct mem_end *end);

#endif
