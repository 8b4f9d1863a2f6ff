/* SPDX-License-Identifier: BSD-2-Clause */
/* Who has a UDP port that can't be bound, and what to do about it, in words. */
#ifndef ROCELINK_NET_IN_USE_H
#define ROCELINK_NET_IN_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is the kernel's Soft-RoCE driver loaded? */
bool in_use_rxe_loaded(void);

/* A sentence such as "UDP port 4791 is used by ...: ...". */
void in_use_explain(uint16_t udp_port, char *text, size_t len);

#endif
