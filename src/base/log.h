/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log: one line per message on stderr, "rocelink: LEVEL: text". Off until log_set_level();
 * the settings module sets it from ROCELINK_LOG. Safe from any thread. The message is not
 * formatted when its level is off.
 */
#ifndef ROCELINK_BASE_LOG_H
#define ROCELINK_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_OFF, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

extern enum log_level log_level_now;

void log_set_level(enum log_level level);
/* Level of this name ("off", "error", "warn", "info", "debug", "trace"), or -1. */
int log_level_parse(const char *name);
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_at(level, ...)                               \
	do {                                             \
		if ((level) <= log_level_now)            \
			log_write((level), __VA_ARGS__); \
	} while (0)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_trace(...) log_at(LOG_TRACE, __VA_ARGS__)

#endif
