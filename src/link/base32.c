/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/base32.h"

#include <ctype.h>
#include <errno.h>

static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

uint32_t crc24(const uint8_t *data, size_t len)
{
	uint32_t crc = 0xb704ce;

	for (size_t i = 0; i < len; i++) {
		crc ^= (uint32_t)data[i] << 16;
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc & 0x800000 ? crc << 1 ^ 0x1864cfb : crc << 1;
	}
	return crc & 0xffffff;
}

int base32_encode(char *text, size_t size, const uint8_t *data, size_t len)
{
	size_t chars = (len * 8 + 4) / 5, at = 0, bit = 0;

	if (chars + chars / 4 + 1 > size)
		return -ENOSPC;
	for (size_t i = 0; i < chars; i++, bit += 5) {
		/* Five bits from a window of two bytes; zeros behind the end. */
		unsigned window = (unsigned)data[bit / 8] << 8;

		if (bit / 8 + 1 < len)
			window |= data[bit / 8 + 1];
		if (i && i % 4 == 0)
			text[at++] = '-';
		text[at++] = digits[window >> (11 - bit % 8) & 0x1f];
	}
	text[at] = '\0';
	return 0;
}

static int digit_value(char c)
{
	c = (char)toupper((unsigned char)c);
	if (c == 'O')
		return 0;
	if (c == 'I' || c == 'L')
		return 1;
	for (int i = 0; i < 32; i++)
		if (digits[i] == c)
			return i;
	return -1;
}

int base32_decode(struct buffer *out, const char *text)
{
	uint32_t window = 0;
	unsigned bits = 0;

	for (; *text; text++) {
		int value;

		if (*text == '-' || isspace((unsigned char)*text))
			continue;
		value = digit_value(*text);
		if (value < 0)
			return -EINVAL;
		window = window << 5 | (uint32_t)value;
		bits += 5;
		if (bits >= 8) {
			bits -= 8;
			buffer_put_uint(out, window >> bits & 0xff, 1);
		}
	}
	/* What is left over of the last character is padding; anything else is a character too
	 * many. */
	if (bits >= 5 || window & ((1u << bits) - 1))
		return -EBADMSG;
	return out->failed ? -ENOMEM : 0;
}
