/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for the decoder: zeroed, and never NULL. Without memory the command ends with a message.
 */
#ifndef ROCELINK_TOOLS_DECODE_ALLOC_H
#define ROCELINK_TOOLS_DECODE_ALLOC_H

#include <stdio.h>
#include <stdlib.h>

static inline void *decode_check(void *p)
{
	if (!p) {
		fputs("rocelink decode: out of memory\n", stderr);
		exit(1);
	}
	return p;
}

static inline void *decode_alloc(size_t len)
{
	return decode_check(calloc(1, len));
}

static inline void *decode_realloc(void *p, size_t len)
{
	return decode_check(realloc(p, len));
}

#endif
