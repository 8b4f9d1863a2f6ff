/* SPDX-License-Identifier: BSD-2-Clause */
/* A capture of what a simulation put on its wire, in virtual time: pcap, link type "raw IP". */
#ifndef ROCELINK_TESTS_SIM_PCAP_H
#define ROCELINK_TESTS_SIM_PCAP_H

#include <stdint.h>
#include <stdio.h>

#include "wire/path.h"

/* NULL with errno when the file can't be made. */
FILE *sim_pcap_open(const char *file);
/* An IPv4 packet of this path; data: from the BTH to the ICRC. */
void sim_pcap_write(FILE *f, uint64_t now_ns, const struct path *path, uint16_t ipv4_id,
		    const uint8_t *data, uint32_t len);

#endif
