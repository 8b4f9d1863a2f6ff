/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast: every process that joined gets its own copy, nobody else does, and none is forwarded.
 */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>

#include "endpoint.h"
#include "namespace.h"

static struct endpoint a, b, c;
static struct endpoint *all[] = { &a, &b, &c };

static int set_up(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		endpoint_open(all[i], NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		endpoint_close(all[i]);
	return 0;
}

static void send_one(const char *from, const char *group, uint32_t psn)
{
	struct path path = path_of(from, group, 0xc777);

	path.ifindex = if_nametoindex("d0");
	path.hop_limit = 3;
	endpoint_queue(&c, &path, QPN_MULTICAST, psn, 200);
	endpoint_send(&c);
	endpoints_settle(all, 3);
}

static void two_members(const char *from, const char *group)
{
	struct gid gid = gid_of(group);
	unsigned ifindex = if_nametoindex("d0");

	send_one(from, group, 0);
	assert_int_equal(a.n_packets + b.n_packets + c.n_packets, 0);

	assert_int_equal(port_multicast_join(a.port, &gid, ifindex), 0);
	assert_int_equal(port_multicast_join(b.port, &gid, ifindex), 0);
	assert_int_equal(port_multicast_join(b.port, &gid, ifindex), 0);
	send_one(from, group, 1);
	assert_int_equal(a.n_packets, 1);
	assert_int_equal(b.n_packets, 1);
	assert_int_equal(c.n_packets, 0);
	endpoint_check_icrcs(&a, true);
	endpoint_check_icrcs(&b, true);
	assert_true(gid_eq(&a.bursts[0].path.dgid, &gid));
	assert_int_equal(a.bursts[0].path.hop_limit, 3);
	assert_int_equal(a.bursts[0].path.ifindex, ifindex);

	assert_int_equal(port_multicast_leave(b.port, &gid, ifindex), 0);
	assert_int_equal(port_multicast_leave(a.port, &gid, ifindex), 0);
	send_one(from, group, 2);
	assert_int_equal(a.n_packets, 1);
	assert_int_equal(b.n_packets, 2);

	assert_int_equal(port_multicast_leave(b.port, &gid, ifindex), 0);
	send_one(from, group, 3);
	assert_int_equal(b.n_packets, 2);
	assert_int_equal(port_multicast_leave(b.port, &gid, ifindex), -ENOENT);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(port_stats(all[i]->port)->forwarded, 0);
		assert_int_equal(all[i]->drops[DROP_FORWARD], 0);
	}
}

static void test_ipv4(void **state)
{
	(void)state;
	two_members("192.0.2.1", "239.1.2.3");
}

static void test_ipv6(void **state)
{
	(void)state;
	two_members("2001:db8::1", "ff05::1:2:3");
}

static void test_link_local_scope(void **state)
{
	(void)state;
	two_members("fe80::1", "ff02::1:2:3");
}

static void test_refused(void **state)
{
	struct gid unicast = gid_of("192.0.2.1"), group = gid_of("239.1.2.3");

	(void)state;
	assert_int_equal(port_multicast_join(a.port, &unicast, 1), -EINVAL);
	assert_int_equal(port_multicast_join(a.port, &group, 12345), -ENODEV);
	assert_int_equal(port_multicast_leave(a.port, &group, 12345), -ENOENT);
}

enum { MANY = 600 }; /* more than one socket may join, of either family */

static struct gid nth(const char *format, int n)
{
	char text[64];

	snprintf(text, sizeof(text), format, n / 250 + 1, n % 250 + 1);
	return gid_of(text);
}

static void many(const char *from, const char *format)
{
	static const int some[] = { 0, 19, 20, 21, 300, MANY - 1 };
	unsigned ifindex = if_nametoindex("d0");
	char text[64];
	struct gid gid;

	for (int i = 0; i < MANY; i++) {
		gid = nth(format, i);
		assert_int_equal(port_multicast_join(a.port, &gid, ifindex), 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		snprintf(text, sizeof(text), format, some[i] / 250 + 1, some[i] % 250 + 1);
		send_one(from, text, i);
		assert_int_equal(a.n_packets, i + 1);
		gid = nth(format, some[i]);
		assert_true(gid_eq(&a.bursts[i].path.dgid, &gid));
	}
	assert_int_equal(b.n_packets + c.n_packets, 0);
	for (int i = 0; i < MANY; i++) {
		gid = nth(format, i);
		assert_int_equal(port_multicast_leave(a.port, &gid, ifindex), 0);
	}
	send_one(from, text, 6);
	assert_int_equal(a.n_packets, 6);
}

static void test_many_ipv4(void **state)
{
	(void)state;
	many("192.0.2.1", "239.9.%d.%d");
}

/* Where the namespace has a limit of its own on what a socket's options take, it is made the small one of older
 * kernels: a few hundred groups. */
static void test_many_ipv6(void **state)
{
	(void)state;
	if (!try_run("(echo 20480 > /proc/sys/net/core/optmem_max)"))
		print_message("one socket may join as many groups here as are joined\n");
	many("2001:db8::1", "ff05::%d:%d");
}

/* Multicast with a QPN of somebody else's block isn't passed on either: he got his own copy. */
static void test_not_forwarded_by_number(void **state)
{
	struct gid gid = gid_of("239.1.2.3");
	unsigned ifindex = if_nametoindex("d0");
	struct path path = path_of("192.0.2.1", "239.1.2.3", 0xc777);

	(void)state;
	path.ifindex = ifindex;
	assert_int_equal(port_multicast_join(a.port, &gid, ifindex), 0);
	endpoint_queue(&c, &path, endpoint_qpn(&b, 1), 0, 200);
	endpoint_send(&c);
	endpoints_settle(all, 3);
	assert_int_equal(a.n_packets, 1);
	assert_int_equal(b.n_packets, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_ipv4),
		TEST(test_ipv6),
		TEST(test_link_local_scope),
		TEST(test_refused),
		TEST(test_many_ipv4),
		TEST(test_many_ipv6),
		TEST(test_not_forwarded_by_number),
	};

	if (!namespace_enter()) {
		print_message("no network namespace can be made here: skipped\n");
		return 0;
	}
	namespace_add_link();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
