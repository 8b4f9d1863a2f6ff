/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How far long work has come: one line on standard error that replaces itself, where that is a
 * terminal; nothing in a pipe or a file. Work that is over within a moment shows none.
 */
#ifndef ROCELINK_TOOLS_PROGRESS_H
#define ROCELINK_TOOLS_PROGRESS_H

#include <stdint.h>

/* Cheap enough for every message; total 0: not known. */
void progress_show(const char *what, uint64_t done, uint64_t total);
/* Take the line away, before anything else is printed. */
void progress_end(void);

#endif
