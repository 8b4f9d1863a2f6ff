/* SPDX-License-Identifier: BSD-2-Clause */
/* Interfaces and their addresses as they come and go. */
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "namespace.h"
#include "net/netdev.h"

static struct netdev find(const char *name, bool *there)
{
	struct netdev *list, found = { .mtu = 0 };
	size_t n;

	*there = false;
	assert_int_equal(netdev_list(&list, &n), 0);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(list[i].name, name) != 0)
			continue;
		found = list[i];
		*there = true;
	}
	free(list);
	return found;
}

static struct netdev device(const char *name)
{
	bool there;
	struct netdev dev = find(name, &there);

	assert_true(there);
	return dev;
}

static bool listed(const char *name)
{
	bool there;

	find(name, &there);
	return there;
}

static void expect_gids(const struct netdev *dev, const char *const *texts, unsigned n)
{
	assert_int_equal(dev->n_gids, n);
	for (unsigned i = 0; i < n; i++) {
		struct gid want = { { 0 } };

		if (texts[i])
			want = gid_of(texts[i]);
		if (!gid_eq(&dev->gids[i], &want)) {
			char got[GID_STRLEN];

			fail_msg("GID %u is %s, not %s", i, gid_format(&dev->gids[i], got),
				 texts[i] ? texts[i] : "a hole");
		}
	}
}
#define EXPECT_GIDS(dev, ...)                                  \
	expect_gids(dev, (const char *const[]){ __VA_ARGS__ }, \
		    sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

static int set_up(void **state)
{
	(void)state;
	namespace_add_link();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	must_run("ip link del d0 2>/dev/null || true");
	return 0;
}

static void test_list(void **state)
{
	struct netdev *list, d0, lo;
	size_t n;

	(void)state;
	must_run("ip link set d0 mtu 4200 address 02:11:22:33:44:55");
	assert_int_equal(netdev_list(&list, &n), 0);
	/* d1 is up but has no address. */
	assert_int_equal(n, 2);
	d0 = list[0];
	lo = list[1];
	free(list);
	assert_string_equal(d0.name, "d0");
	assert_int_equal(d0.ifindex, if_nametoindex("d0"));
	assert_int_equal(d0.mtu, 4200);
	assert_true(d0.up);
	assert_false(d0.loopback);
	assert_memory_equal(d0.mac, "\x02\x11\x22\x33\x44\x55", 6);
	assert_int_equal(d0.speed_mbps, 10000); /* what veth says */
	/* Link-local, IPv4, other IPv6. The kernel lists IPv6 addresses newest first. */
	EXPECT_GIDS(&d0, "fe80::1", "192.0.2.1", "192.0.2.2", "2001:db8::2", "2001:db8::1");
	assert_string_equal(lo.name, "lo");
	assert_true(lo.loopback);
	assert_memory_equal(lo.mac, "\0\0\0\0\0\0", 6);
	assert_int_equal(lo.speed_mbps, 0);
	EXPECT_GIDS(&lo, "127.0.0.1", "::1");
}

static void test_one_family_only(void **state)
{
	struct netdev d0;

	(void)state;
	must_run("ip -4 addr flush dev d0");
	d0 = device("d0");
	EXPECT_GIDS(&d0, "fe80::1", "2001:db8::2", "2001:db8::1");
	must_run("ip -6 addr flush dev d0 && ip addr add 192.0.2.7/24 dev d0");
	d0 = device("d0");
	EXPECT_GIDS(&d0, "192.0.2.7");
	must_run("ip addr flush dev d0");
	assert_false(listed("d0"));
}

/* The kernel tells d0 of its other end a moment later, from a work queue. */
static void set_other_end(const char *state)
{
	must_run("ip link set d1 %s && timeout 10 sh -c 'until ip -br link show d0 | %s; do :; "
		 "done'",
		 state, strcmp(state, "up") ? "grep -q NO-CARRIER" : "grep -qv NO-CARRIER");
}

static void test_down_and_without_carrier(void **state)
{
	struct netdev d0 = device("d0");

	(void)state;
	set_other_end("down");
	assert_false(listed("d0"));
	assert_int_equal(netdev_refresh(&d0), NETDEV_STATE_CHANGED);
	assert_false(d0.up);
	set_other_end("up");
	assert_int_equal(netdev_refresh(&d0), NETDEV_STATE_CHANGED);
	assert_true(d0.up);
	must_run("ip link set d0 down");
	/* IPv6 addresses go with it, IPv4 ones stay; no entry moves. */
	assert_int_equal(netdev_refresh(&d0), NETDEV_STATE_CHANGED | NETDEV_GIDS_CHANGED);
	EXPECT_GIDS(&d0, NULL, "192.0.2.1", "192.0.2.2");
}

static void test_tentative_addresses_wait(void **state)
{
	struct netdev d0;

	(void)state;
	/* With the other end down no duplicate address detection can end. */
	must_run(
		"ip addr flush dev d0 && ip link set d1 down && ip addr add 192.0.2.1/24 dev d0 && "
		"ip -6 addr add 2001:db8::5/64 dev d0");
	must_run("ip link set d1 up && sysctl -qw net.ipv6.conf.d0.dad_transmits=1000");
	must_run("ip -6 addr add 2001:db8::6/64 dev d0");
	d0 = device("d0");
	for (unsigned i = 0; i < d0.n_gids; i++) {
		struct gid six = gid_of("2001:db8::6");

		assert_false(gid_eq(&d0.gids[i], &six));
	}
}

static void test_indices_are_stable(void **state)
{
	struct netdev d0 = device("d0");

	(void)state;
	assert_int_equal(netdev_refresh(&d0), 0);
	EXPECT_GIDS(&d0, "fe80::1", "192.0.2.1", "192.0.2.2", "2001:db8::2", "2001:db8::1");
	must_run("ip addr del 192.0.2.2/24 dev d0");
	assert_int_equal(netdev_refresh(&d0), NETDEV_GIDS_CHANGED);
	EXPECT_GIDS(&d0, "fe80::1", "192.0.2.1", NULL, "2001:db8::2", "2001:db8::1");
	must_run("ip addr del fe80::1/64 dev d0");
	assert_int_equal(netdev_refresh(&d0), NETDEV_GIDS_CHANGED);
	EXPECT_GIDS(&d0, NULL, "192.0.2.1", NULL, "2001:db8::2", "2001:db8::1");
	/* The first hole, then the second, then the end. */
	must_run("ip addr add 192.0.2.3/24 dev d0");
	assert_int_equal(netdev_refresh(&d0), NETDEV_GIDS_CHANGED);
	EXPECT_GIDS(&d0, "192.0.2.3", "192.0.2.1", NULL, "2001:db8::2", "2001:db8::1");
	must_run("ip addr add 192.0.2.4/24 dev d0");
	assert_int_equal(netdev_refresh(&d0), NETDEV_GIDS_CHANGED);
	must_run("ip addr add 192.0.2.5/24 dev d0");
	assert_int_equal(netdev_refresh(&d0), NETDEV_GIDS_CHANGED);
	EXPECT_GIDS(&d0, "192.0.2.3", "192.0.2.1", "192.0.2.4", "2001:db8::2", "2001:db8::1",
		    "192.0.2.5");
	must_run("ip link set d0 mtu 1400");
	assert_int_equal(netdev_refresh(&d0), NETDEV_MTU_CHANGED);
	assert_int_equal(d0.mtu, 1400);
	must_run("ip link del d0");
	assert_int_equal(netdev_refresh(&d0), NETDEV_GIDS_CHANGED | NETDEV_STATE_CHANGED);
	assert_int_equal(d0.n_gids, 0);
	assert_false(d0.up);
	assert_int_equal(netdev_refresh(&d0), 0);
}

static void test_more_addresses_than_entries(void **state)
{
	struct netdev d0;

	(void)state;
	must_run("for i in $(seq 10 109); do echo addr add 192.0.2.$i/24 dev d0; done | ip -batch "
		 "-");
	d0 = device("d0");
	assert_int_equal(d0.n_gids, NETDEV_GIDS);
	assert_false(netdev_refresh(&d0) & NETDEV_STATE_CHANGED);
	assert_int_equal(d0.n_gids, NETDEV_GIDS);
}

static void test_local_addresses(void **state)
{
	static const struct {
		const char *address;
		bool local;
	} rows[] = {
		{ "127.0.0.1", true },	 { "127.8.9.10", true },    { "192.0.2.1", true },
		{ "192.0.2.99", false }, { "198.51.100.1", false }, { "::1", true },
		{ "2001:db8::1", true }, { "2001:db8::77", false }, { "2001:dead::1", false },
		{ "fe80::1", true },	 { "fe80::99", false },	    { "239.1.2.3", false },
	};
	unsigned ifindex = if_nametoindex("d0");

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct gid gid = gid_of(rows[i].address);

		if (netdev_address_is_local(&gid, ifindex) != rows[i].local)
			fail_msg("%s is %slocal", rows[i].address, rows[i].local ? "" : "not ");
	}
}

static void expect_event(struct netmon *mon, const char *command)
{
	struct pollfd pfd = { .fd = netmon_fd(mon), .events = POLLIN };

	must_run("%s", command);
	assert_int_equal(poll(&pfd, 1, 10000), 1);
	assert_true(netmon_drain(mon));
	assert_false(netmon_drain(mon));
}

static void test_monitor(void **state)
{
	struct netmon *mon;
	struct pollfd pfd;

	(void)state;
	assert_int_equal(netmon_open(&mon), 0);
	pfd = (struct pollfd){ .fd = netmon_fd(mon), .events = POLLIN };
	assert_int_equal(poll(&pfd, 1, 0), 0);
	assert_false(netmon_drain(mon));
	expect_event(mon, "ip addr add 192.0.2.50/24 dev d0");
	expect_event(mon, "ip addr del 192.0.2.50/24 dev d0");
	expect_event(mon, "ip -6 addr add 2001:db8::50/64 dev d0 nodad");
	expect_event(mon, "ip link set d0 mtu 1300");
	/* More than the socket's buffer holds: something was lost, so something changed. */
	must_run(
		"for i in $(seq 1 400); do echo link set d0 mtu $((1300 + i)); done | ip -batch -");
	assert_true(netmon_drain(mon));
	netmon_close(mon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_list),
		TEST(test_one_family_only),
		TEST(test_down_and_without_carrier),
		TEST(test_tentative_addresses_wait),
		TEST(test_indices_are_stable),
		TEST(test_more_addresses_than_entries),
		TEST(test_local_addresses),
		TEST(test_monitor),
	};

	if (!namespace_enter()) {
		print_message("no network namespace can be made here: skipped\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
