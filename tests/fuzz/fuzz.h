/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* The one function of a fuzz target; libFuzzer or replay.c calls it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Targets that deal in packets define it: the file that the packets of an input are to be written
 * to, or NULL. */
extern const char *fuzz_pcap;

#endif
