/* SPDX-License-Identifier: BSD-2-Clause */
/* Crockford's base 32 and the CRC-24 of tickets (docs/protocol.md, section 10). Pure. */
#ifndef ROCELINK_LINK_BASE32_H
#define ROCELINK_LINK_BASE32_H

#include <stddef.h>
#include <stdint.h>

#include "link/buffer.h"

uint32_t crc24(const uint8_t *data, size_t len);

/* Groups of four joined by '-', NUL-terminated. -ENOSPC if it doesn't fit. */
int base32_encode(char *text, size_t size, const uint8_t *data, size_t len);

/*
 * Spaces and dashes are skipped, O, I, L read as digits. -EINVAL at any other character, -EBADMSG
 * when the text can't be a whole number of bytes, -ENOMEM.
 */
int base32_decode(struct buffer *out, const char *text);

#endif
