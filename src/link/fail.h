/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How this part reports failure: a code, the phase, and a sentence for a person. One function fills
 * a rocelink_error, so that every failure has all of them.
 */
#ifndef ROCELINK_LINK_FAIL_H
#define ROCELINK_LINK_FAIL_H

#include "rocelink/rocelink.h"

/* Fill *err (may be NULL) and return code. sys_errno 0: none; otherwise ": strerror" is appended.
 */
int link_fail(struct rocelink_error *err, enum rocelink_code code, enum rocelink_phase phase,
	      int sys_errno, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* "Not yet": only the code is set. */
int link_again(struct rocelink_error *err);

/* Out of memory, in the same form. */
int link_no_memory(struct rocelink_error *err);

/* Copy at most size - 1 bytes of text from the other side, with control characters replaced. */
void link_clean_text(char *to, size_t size, const void *from, size_t len);

/*
 * Check an option structure's size member against the smallest valid one; `name` is for the text.
 * Members beyond what the caller knows are zero: copy with link_copy_options().
 */
int link_check_size(size_t size, size_t smallest, const char *name, struct rocelink_error *err);
/* Copy an option structure of the caller's size into ours of `size` bytes. */
void link_copy_options(void *to, size_t size, const void *from, size_t from_size);
/*
 * Store a result into a caller's structure, whose size member says how much of it the caller knows.
 * ROCELINK_INVALID when that is less than the structure ever was.
 */
int link_store_result(void *to, const void *from, size_t size);

#endif
