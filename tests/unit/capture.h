/* SPDX-License-Identifier: BSD-2-Clause */
/* The RoCE v2 packets of a capture file of Ethernet frames, taken apart by hand. */
#ifndef ROCELINK_TESTS_CAPTURE_H
#define ROCELINK_TESTS_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/path.h"

struct capture_packet {
	unsigned frame; /* number in the file, from 1, as in Wireshark */
	struct path path;
	uint16_t ipv4_id;
	bool dont_fragment;
	const uint8_t *data; /* from the BTH up to and including the ICRC */
	size_t len;
};

/* Call visit for each RoCE packet; returns how many there were, or -1 if the file can't be read. */
int capture_each(const char *file, void (*visit)(const struct capture_packet *p, void *arg),
		 void *arg);

#endif
