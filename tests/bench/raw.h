/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of bench_raw share. All of it ends the program on any error: a measurement that
 * went wrong has no result. */
#ifndef ROCELINK_BENCH_RAW_H
#define ROCELINK_BENCH_RAW_H

#include <stddef.h>
#include <stdint.h>

uint64_t raw_now_ns(void);
_Noreturn void raw_die(const char *what);
/* The child's exit status must be 0. */
void raw_join(int pid);
void *raw_shared_memory(size_t len);

/* Gb/s of payload between two processes: UDP over loopback, segmented and coalesced by the kernel,
 * the ICRC of each packet computed and checked, until `messages` of `size` bytes have arrived. */
double raw_ceiling(size_t size, uint64_t messages);

#endif
