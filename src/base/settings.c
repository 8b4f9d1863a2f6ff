/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One row per setting: its name behind ROCELINK_, what a good value looks like, and the function
 * that takes a value. Every variable of the environment that begins with ROCELINK_ must have a row.
 */
#include "base/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"

#define PREFIX "ROCELINK_"

static bool take_log(struct settings *s, const char *value)
{
	int level = log_level_parse(value);

	if (level < 0)
		return false;
	s->log = (enum log_level)level;
	return true;
}

static bool take_fault(struct settings *s, const char *value)
{
	char error[1];

	return fault_plan_parse(&s->fault, value, error, sizeof(error)) == 0;
}

static void explain_fault(const char *value, char *error, size_t error_len)
{
	struct fault_plan plan;

	fault_plan_parse(&plan, value, error, error_len);
}

static bool take_path(struct settings *s, const char *value)
{
	static const char *const names[] = {
		[PATH_AUTO] = "auto",
		[PATH_UDP] = "udp",
		[PATH_SHM] = "shm",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (strcmp(value, names[i]) == 0) {
			s->path = (enum settings_path)i;
			return true;
		}
	}
	return false;
}

static bool take_pcap(struct settings *s, const char *value)
{
	s->pcap = value;
	return *value != '\0';
}

static const struct setting {
	const char *name;
	const char *values; /* completes "it must be ..." */
	bool (*take)(struct settings *s, const char *value);
	/* For values with an inside, instead of `values`: what exactly is wrong. */
	void (*explain)(const char *value, char *error, size_t error_len);
} table[] = {
	{ PREFIX "FAULT", NULL, take_fault, explain_fault },
	{ PREFIX "LOG", "off, error, warn, info, debug or trace", take_log, NULL },
	{ PREFIX "PATH", "auto, udp or shm", take_path, NULL },
	{ PREFIX "PCAP", "the name of a file to write", take_pcap, NULL },
};

static const struct setting *find(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
			return &table[i];
	return NULL;
}

static void say_unknown(const char *name, size_t len, char *error, size_t error_len)
{
	size_t used;

	used = (size_t)snprintf(error, error_len, "unknown setting %.*s; there are", (int)len,
				name);
	for (size_t i = 0; i < ARRAY_LEN(table) && used < error_len; i++)
		used += (size_t)snprintf(error + used, error_len - used, "%s %s", i ? "," : "",
					 table[i].name);
}

static void say_wrong(const struct setting *setting, const char *value, char *error,
		      size_t error_len)
{
	int used;

	if (!setting->explain) {
		snprintf(error, error_len, "%s is \"%s\"; it must be %s", setting->name, value,
			 setting->values);
		return;
	}
	used = snprintf(error, error_len, "%s is \"%s\": ", setting->name, value);
	if (used > 0 && (size_t)used < error_len)
		setting->explain(value, error + used, error_len - (size_t)used);
}

int settings_parse(struct settings *s, char *const *env, char *error, size_t error_len)
{
	*s = (struct settings){ .log = LOG_OFF, .path = PATH_AUTO };
	for (; *env; env++) {
		size_t len = strcspn(*env, "=");
		const struct setting *setting;

		if (strncmp(*env, PREFIX, strlen(PREFIX)) != 0 || (*env)[len] != '=')
			continue;
		setting = find(*env, len);
		if (!setting) {
			say_unknown(*env, len, error, error_len);
			return -EINVAL;
		}
		if (!setting->take(s, *env + len + 1)) {
			say_wrong(setting, *env + len + 1, error, error_len);
			return -EINVAL;
		}
	}
	return 0;
}

static struct settings settings_now;
static bool settings_ok;

static void parse_environment(void)
{
	char error[512];

	if (settings_parse(&settings_now, environ, error, sizeof(error)) != 0) {
		fprintf(stderr, "rocelink: error: %s\n", error);
		return;
	}
	log_set_level(settings_now.log);
	settings_ok = true;
}

const struct settings *settings_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, parse_environment);
	return settings_ok ? &settings_now : NULL;
}
