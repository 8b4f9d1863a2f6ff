/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ICRC of a captured packet (IBA annex A17.3.3). The adapter's own check (wire/icrc.h) has to
 * guess the IP header that its socket hides; a capture holds it, so this one takes it as it stands,
 * identification, fragment bits and options included, and leaves nothing to be solved for.
 */
#ifndef ROCELINK_TOOLS_DECODE_ICRC_H
#define ROCELINK_TOOLS_DECODE_ICRC_H

#include "tools/decode_frame.h"

/*
 * The right ICRC of the RoCE packet data[0..len), whose last four bytes are the ICRC, in the UDP
 * datagram f. The packet is segment number `segment` of `segments` in the datagram: what the kernel
 * hands out before segmentation offload has one header for all. len >= 16.
 */
uint32_t frame_icrc(const struct frame *f, unsigned segment, unsigned segments, const uint8_t *data,
		    size_t len);

/* The ICRC that ends data[0..len). */
uint32_t frame_icrc_stored(const uint8_t *data, size_t len);

/*
 * The length of the first of several packets in the datagram, found by its ICRC; 0 when it is not
 * made of several.
 */
size_t frame_icrc_segment_len(const struct frame *f);

#endif
