/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and rates are those of the system's library, value by value. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <infiniband/verbs.h>

static void *theirs(const char *name)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void *symbol;

	assert_non_null(library);
	/* Not another copy of ours. */
	assert_null(dlsym(library, "rocelink_adapter"));
	symbol = dlsym(library, name);
	assert_non_null(symbol);
	return symbol;
}

static void same_names(const char *name, const char *(*ours)(int), int from, int to)
{
	const char *(*their)(int) = (const char *(*)(int))theirs(name);

	for (int i = from; i <= to; i++)
		assert_string_equal(ours(i), their(i));
}

static const char *node_type(int i)
{
	return ibv_node_type_str((enum ibv_node_type)i);
}

static const char *port_state(int i)
{
	return ibv_port_state_str((enum ibv_port_state)i);
}

static const char *event_type(int i)
{
	return ibv_event_type_str((enum ibv_event_type)i);
}

static const char *wc_status(int i)
{
	return ibv_wc_status_str((enum ibv_wc_status)i);
}

static void names(void **state)
{
	(void)state;
	same_names("ibv_node_type_str", node_type, -1, 12);
	same_names("ibv_port_state_str", port_state, 0, 12);
	same_names("ibv_event_type_str", event_type, 0, 40);
	same_names("ibv_wc_status_str", wc_status, 0, 40);
}

static void rates(void **state)
{
	int (*to_mult)(int) = (int (*)(int))theirs("ibv_rate_to_mult");
	int (*to_mbps)(int) = (int (*)(int))theirs("ibv_rate_to_mbps");
	int (*from_mult)(int) = (int (*)(int))theirs("mult_to_ibv_rate");
	int (*from_mbps)(int) = (int (*)(int))theirs("mbps_to_ibv_rate");

	(void)state;
	for (int i = -1; i < 40; i++) {
		assert_int_equal(ibv_rate_to_mult((enum ibv_rate)i), to_mult(i));
		assert_int_equal(ibv_rate_to_mbps((enum ibv_rate)i), to_mbps(i));
		assert_int_equal(mbps_to_ibv_rate(to_mbps(i)), from_mbps(to_mbps(i)));
	}
	for (int i = -1; i < 600; i++)
		assert_int_equal(mult_to_ibv_rate(i), from_mult(i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(rates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
