/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated network: packets on their way, sorted by arrival, and what happens to them: lost,
 * queued, delayed, overtaken, doubled, damaged, replayed.
 */
#ifndef ROCELINK_TESTS_SIM_LINK_H
#define ROCELINK_TESTS_SIM_LINK_H

#include "sim.h"

/* Exactly as long as it is, so that a read beyond it is noticed. */
struct sim_packet {
	struct sim_packet *next;
	uint64_t at_ns;
	unsigned to;
	uint16_t ipv4_id;
	struct path path;
	uint32_t len;
	uint8_t data[];
};

/* A copy of len bytes from the BTH to the ICRC. */
struct sim_packet *sim_packet_new(unsigned to, const struct path *path, const uint8_t *data,
				  uint32_t len);
/* The packet is the link's from now on. */
void sim_link_put(struct sim *s, struct sim_packet *p);
uint64_t sim_first_arrival(const struct sim *s); /* TIME_NEVER: none */
/* The first, if it has arrived; it is the caller's to free. */
struct sim_packet *sim_link_take(struct sim *s);
void sim_link_clear(struct sim *s);

#endif
