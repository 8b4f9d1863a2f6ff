/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ROCELINK_* environment variables, read once. `rocelink run` has an option of the same name
 * for each. An unknown or malformed variable is an error that names it and says what would be
 * right.
 */
#ifndef ROCELINK_BASE_SETTINGS_H
#define ROCELINK_BASE_SETTINGS_H

#include <stddef.h>

#include "base/fault_plan.h"
#include "base/log.h"

enum settings_path { PATH_AUTO, PATH_UDP, PATH_SHM };

struct settings {
	enum log_level log;	 /* ROCELINK_LOG=off|error|warn|info|debug|trace */
	enum settings_path path; /* ROCELINK_PATH=auto|udp|shm */
	const char *pcap;	 /* ROCELINK_PCAP=FILE, or NULL */
	struct fault_plan fault; /* ROCELINK_FAULT=KEY=VALUE,... */
};

/* Parse the environment `env` (NULL-terminated, as environ). 0, or -EINVAL with a sentence in
 * error. */
int settings_parse(struct settings *s, char *const *env, char *error, size_t error_len);

/*
 * The settings of this process, parsed at the first call (thread-safe); sets the log level. When
 * they are wrong, the sentence goes to stderr whatever the log level, and NULL is returned at every
 * call.
 */
const struct settings *settings_get(void);

#endif
