/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

enum log_level log_level_now = LOG_OFF;

static const char *const level_names[] = {
	[LOG_OFF] = "off",   [LOG_ERROR] = "error", [LOG_WARN] = "warn",
	[LOG_INFO] = "info", [LOG_DEBUG] = "debug", [LOG_TRACE] = "trace",
};

void log_set_level(enum log_level level)
{
	log_level_now = level;
}

int log_level_parse(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(level_names); i++)
		if (strcmp(name, level_names[i]) == 0)
			return (int)i;
	return -1;
}

void log_write(enum log_level level, const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* One call, so that lines of several threads don't mix. */
	fprintf(stderr, "rocelink: %s: %s\n", level_names[level], line);
}
