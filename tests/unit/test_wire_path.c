/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/path.h"

#include <arpa/inet.h>

#include "base/units.h"
#include "test.h"

static struct gid gid_of(const char *text)
{
	struct gid g;

	assert_int_equal(inet_pton(AF_INET6, text, g.raw), 1);
	return g;
}

static void gid_text_is_the_address(void **state)
{
	static const char *const texts[] = {
		"::ffff:192.0.2.1",
		"fe80::1",
		"2001:db8::dead:beef",
		"::",
		"2001:db8:1111:2222:3333:4444:5555:6666",
	};
	char buf[GID_STRLEN];
	struct gid g;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		g = gid_of(texts[i]);
		assert_ptr_equal(gid_format(&g, buf), buf);
		assert_string_equal(buf, texts[i]);
	}
}

static void gid_classes(void **state)
{
	static const struct {
		const char *text;
		bool ipv4, multicast, link_local, zero;
	} rows[] = {
		{ "::ffff:10.0.0.1", true, false, false, false },
		{ "::ffff:223.255.255.255", true, false, false, false },
		{ "::ffff:224.0.0.1", true, true, false, false },
		{ "::ffff:239.255.255.255", true, true, false, false },
		{ "::ffff:240.0.0.1", true, false, false, false },
		{ "::fffe:224.0.0.1", false, false, false, false },
		{ "fe80::1", false, false, true, false },
		{ "febf::1", false, false, true, false },
		{ "fec0::1", false, false, false, false },
		{ "ff02::1", false, true, false, false },
		{ "2001:db8::1", false, false, false, false },
		{ "::", false, false, false, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct gid g = gid_of(rows[i].text);

		assert_int_equal(gid_is_ipv4(&g), rows[i].ipv4);
		assert_int_equal(gid_is_multicast(&g), rows[i].multicast);
		assert_int_equal(gid_is_link_local(&g), rows[i].link_local);
		assert_int_equal(gid_is_zero(&g), rows[i].zero);
	}
}

static void path_differs_in_any_field(void **state)
{
	const struct path base = { .sgid = gid_of("fe80::1"), .dgid = gid_of("fe80::2") };
	struct path other;

	(void)state;
	assert_true(path_eq(&base, &base));
#define DIFFERS(change)                               \
	do {                                          \
		other = base;                         \
		other.change;                         \
		assert_false(path_eq(&base, &other)); \
	} while (0)
	DIFFERS(sgid.raw[15] = 9);
	DIFFERS(dgid.raw[0] = 9);
	DIFFERS(ifindex = 1);
	DIFFERS(flow_label = 1);
	DIFFERS(sport = 1);
	DIFFERS(traffic_class = 1);
	DIFFERS(hop_limit = 1);
#undef DIFFERS
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gid_text_is_the_address),
		cmocka_unit_test(gid_classes),
		cmocka_unit_test(path_differs_in_any_field),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
