/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROCELINK_TOOLS_JSON_TEXT_H
#define ROCELINK_TOOLS_JSON_TEXT_H

#include <stdio.h>

/* The text as a JSON string, quotes included. Bytes outside ASCII become '?': what is written
 * comes from devices, interfaces and error texts, where they have no meaning. */
static inline void json_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c < 0x7f ? c : '?', out);
	}
	fputc('"', out);
}

#endif
