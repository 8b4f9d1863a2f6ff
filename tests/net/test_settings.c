/* SPDX-License-Identifier: BSD-2-Clause */
/* The settings: every good value, and every way to be wrong with what the sentence must name. */
#include <errno.h>
#include <string.h>

#include "base/settings.h"
#include "base/units.h"
#include "endpoint.h"

static int parse(struct settings *s, const char *a, const char *b, char *error, size_t len)
{
	char *env[] = { (char *)(uintptr_t) "HOME=/", (char *)(uintptr_t)a, (char *)(uintptr_t)b,
			NULL };

	*error = '\0';
	return settings_parse(s, env, error, len);
}

static void test_defaults(void **state)
{
	struct settings s;
	char error[256];

	(void)state;
	assert_int_equal(parse(&s, NULL, NULL, error, sizeof(error)), 0);
	assert_int_equal(s.log, LOG_OFF);
	assert_int_equal(s.path, PATH_AUTO);
	assert_null(s.pcap);
}

static void test_good_values(void **state)
{
	static const struct {
		const char *text;
		enum log_level log;
		enum settings_path path;
		const char *pcap;
	} rows[] = {
		{ "ROCELINK_LOG=off", LOG_OFF, PATH_AUTO, NULL },
		{ "ROCELINK_LOG=error", LOG_ERROR, PATH_AUTO, NULL },
		{ "ROCELINK_LOG=warn", LOG_WARN, PATH_AUTO, NULL },
		{ "ROCELINK_LOG=info", LOG_INFO, PATH_AUTO, NULL },
		{ "ROCELINK_LOG=debug", LOG_DEBUG, PATH_AUTO, NULL },
		{ "ROCELINK_LOG=trace", LOG_TRACE, PATH_AUTO, NULL },
		{ "ROCELINK_PATH=auto", LOG_OFF, PATH_AUTO, NULL },
		{ "ROCELINK_PATH=udp", LOG_OFF, PATH_UDP, NULL },
		{ "ROCELINK_PATH=shm", LOG_OFF, PATH_SHM, NULL },
		{ "ROCELINK_PCAP=a=b.pcap", LOG_OFF, PATH_AUTO, "a=b.pcap" },
		{ "ROCELINKS=1", LOG_OFF, PATH_AUTO, NULL },
		{ "NOT_ROCELINK_LOG=x", LOG_OFF, PATH_AUTO, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct settings s;
		char error[256];

		assert_int_equal(parse(&s, rows[i].text, NULL, error, sizeof(error)), 0);
		assert_int_equal(s.log, rows[i].log);
		assert_int_equal(s.path, rows[i].path);
		if (rows[i].pcap)
			assert_string_equal(s.pcap, rows[i].pcap);
		else
			assert_null(s.pcap);
	}
}

static void test_fault(void **state)
{
	struct settings s;
	char error[256];

	(void)state;
	assert_int_equal(parse(&s, NULL, NULL, error, sizeof(error)), 0);
	assert_false(s.fault.active);
	assert_int_equal(parse(&s, "ROCELINK_FAULT=qp-error=7", NULL, error, sizeof(error)), 0);
	assert_true(s.fault.active);
	assert_int_equal(s.fault.qp_error, 7);
}

static void test_wrong_values(void **state)
{
	static const struct {
		const char *text;
		const char *named; /* what the sentence contains */
		const char *right;
	} rows[] = {
		{ "ROCELINK_LOG=loud", "ROCELINK_LOG is \"loud\"", "debug" },
		{ "ROCELINK_LOG=", "ROCELINK_LOG is \"\"", "trace" },
		{ "ROCELINK_LOG=INFO", "ROCELINK_LOG is \"INFO\"", "info" },
		{ "ROCELINK_LOG=info ", "ROCELINK_LOG is \"info \"", "info" },
		{ "ROCELINK_PATH=tcp", "ROCELINK_PATH is \"tcp\"", "auto, udp or shm" },
		{ "ROCELINK_PATH=", "ROCELINK_PATH is \"\"", "auto, udp or shm" },
		{ "ROCELINK_PCAP=", "ROCELINK_PCAP is \"\"", "file" },
		{ "ROCELINK_FAULT=", "ROCELINK_FAULT is \"\"", "loss=1%" },
		{ "ROCELINK_FAULT=loss=1", "ROCELINK_FAULT is \"loss=1\": loss is", "1%" },
		{ "ROCELINK_PCAPS=x", "ROCELINK_PCAPS", "ROCELINK_PCAP" },
		{ "ROCELINK_=x", "ROCELINK_;", "ROCELINK_LOG" },
		{ "ROCELINK_log=info", "ROCELINK_log", "ROCELINK_LOG" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct settings s;
		char error[256];

		assert_int_equal(parse(&s, "ROCELINK_LOG=off", rows[i].text, error, sizeof(error)),
				 -EINVAL);
		if (!strstr(error, rows[i].named) || !strstr(error, rows[i].right))
			fail_msg("%s: \"%s\"", rows[i].text, error);
	}
}

static void test_long_value_is_cut(void **state)
{
	char text[2048] = "ROCELINK_", error[64];
	struct settings s;

	(void)state;
	memset(text + 9, 'X', 1000);
	strcpy(text + 1009, "=1");
	assert_int_equal(parse(&s, text, NULL, error, sizeof(error)), -EINVAL);
	assert_true(strlen(error) < sizeof(error));
	strcpy(text, "ROCELINK_LOG=");
	memset(text + strlen(text), 'y', 1000);
	assert_int_equal(parse(&s, text, NULL, error, sizeof(error)), -EINVAL);
	assert_true(strlen(error) < sizeof(error));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_good_values),
		cmocka_unit_test(test_fault),
		cmocka_unit_test(test_wrong_values),
		cmocka_unit_test(test_long_value_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
