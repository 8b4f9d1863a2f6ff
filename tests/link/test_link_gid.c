/* SPDX-License-Identifier: BSD-2-Clause */
/* The rules by which a GID is chosen, on tables made up here: no network is asked. */
#include "check.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "fake_verbs.h"
#include "link/gid.h"

static struct rocelink_gid table[16];
static struct gid_table t;
static char why[256];
static struct rocelink_error err;

static struct address addr(const char *text, unsigned scope)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_scope_id = scope };
	struct address a;

	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		assert_true(address_from_sockaddr(&a, (struct sockaddr *)&in));
	else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1)
		assert_true(address_from_sockaddr(&a, (struct sockaddr *)&in6));
	else
		fail_msg("%s", text);
	return a;
}

static void clear(void)
{
	memset(table, 0, sizeof(table));
	t = (struct gid_table){ .gids = table };
}

static struct rocelink_gid *add(const char *device, const char *text, enum rocelink_gid_type type,
				unsigned ifindex)
{
	struct rocelink_gid *g = &table[t.count];
	struct address a = addr(text, 0);

	g->index = (int)t.count++;
	g->port = 1;
	g->type = type;
	g->ifindex = ifindex;
	g->present = true;
	memcpy(g->gid.raw, a.ip, 16);
	snprintf(g->device, sizeof(g->device), "%s", device);
	snprintf(g->ifname, sizeof(g->ifname), "if%u", ifindex);
	snprintf(g->address, sizeof(g->address), "%s", text);
	return g;
}

static int choose(const char *to, const char *source, unsigned scope)
{
	struct route r = { .to = addr(to, scope), .known = source != NULL };

	if (source)
		r.source = addr(source, scope);
	return gid_choose(&t, &r, why, sizeof(why), &err);
}

/* The common mistake is index 0; here it is the link-local one, as on most devices. */
static void usual(void)
{
	clear();
	add("d0", "fe80::1", ROCELINK_GID_ROCE_V1, 2);
	add("d0", "fe80::1", ROCELINK_GID_ROCE_V2, 2);
	add("d0", "192.0.2.1", ROCELINK_GID_ROCE_V1, 2);
	add("d0", "192.0.2.1", ROCELINK_GID_ROCE_V2, 2);
	add("d0", "2001:db8::1", ROCELINK_GID_ROCE_V1, 2);
	add("d0", "2001:db8::1", ROCELINK_GID_ROCE_V2, 2);
}

static void the_source_of_the_route(void **state)
{
	(void)state;
	usual();
	assert_int_equal(choose("192.0.2.9", "192.0.2.1", 0), 3);
	assert_contains(why, "192.0.2.9");
	assert_contains(why, "192.0.2.1");
	assert_contains(why, "if2");
	assert_int_equal(choose("2001:db8::9", "2001:db8::1", 0), 5);
	assert_int_equal(choose("fe80::9", "fe80::1", 2), 1);
}

static void another_device_when_the_route_goes_there(void **state)
{
	(void)state;
	usual();
	add("d1", "198.51.100.1", ROCELINK_GID_ROCE_V2, 3);
	assert_int_equal(choose("198.51.100.7", "198.51.100.1", 0), 6);
	/* The route leaves by an address that is no GID (a management network): same family. */
	assert_int_equal(choose("10.0.0.7", "10.0.0.1", 0), 3);
	assert_contains(why, "is no GID here");
	assert_int_equal(choose("10.0.0.7", NULL, 0), 3);
	assert_contains(why, "no route");
}

static void link_local_only_when_asked_for_or_nothing_else(void **state)
{
	(void)state;
	usual();
	assert_int_not_equal(choose("203.0.113.5", "203.0.113.1", 0), 1);
	clear();
	add("d0", "fe80::1", ROCELINK_GID_ROCE_V2, 2);
	assert_int_equal(choose("203.0.113.5", "203.0.113.1", 0), 0);
	assert_contains(why, "nothing but");
	/* A global GID can't reach a link-local peer. */
	clear();
	add("d0", "192.0.2.1", ROCELINK_GID_ROCE_V2, 2);
	assert_int_equal(choose("fe80::9", "fe80::1", 2), -1);
}

static void link_local_of_the_right_interface(void **state)
{
	(void)state;
	clear();
	add("d0", "fe80::1", ROCELINK_GID_ROCE_V2, 2);
	add("d1", "fe80::1", ROCELINK_GID_ROCE_V2, 3);
	assert_int_equal(choose("fe80::9", "fe80::1", 3), 1);
	assert_int_equal(choose("fe80::9", "fe80::1", 2), 0);
}

static void other_family_is_no_substitute(void **state)
{
	(void)state;
	clear();
	add("d0", "192.0.2.1", ROCELINK_GID_ROCE_V2, 2);
	assert_int_equal(choose("2001:db8::9", "2001:db8::1", 0), -1);
	assert_int_equal(err.code, ROCELINK_NO_DEVICE);
	assert_contains(err.text, "2001:db8::9");
	assert_contains(err.text, "192.0.2.1");
}

static void loopback_keeps_to_itself(void **state)
{
	(void)state;
	clear();
	add("lo", "127.0.0.1", ROCELINK_GID_ROCE_V2, 1);
	add("lo", "::1", ROCELINK_GID_ROCE_V2, 1);
	add("d0", "192.0.2.1", ROCELINK_GID_ROCE_V2, 2);
	assert_int_equal(choose("127.0.0.1", "127.0.0.1", 0), 0);
	assert_int_equal(choose("::1", "::1", 0), 1);
	assert_int_equal(choose("10.1.1.1", "10.0.0.1", 0), 2);
	assert_int_equal(choose("192.0.2.1", "192.0.2.1", 0), 2);
	clear();
	add("lo", "127.0.0.1", ROCELINK_GID_ROCE_V2, 1);
	assert_int_equal(choose("192.0.2.7", "192.0.2.1", 0), -1);
}

static void addresses_that_are_gone_are_not_used(void **state)
{
	(void)state;
	usual();
	table[3].present = table[2].present = false;
	assert_int_equal(choose("192.0.2.9", "192.0.2.1", 0), 1);
	assert_contains(why, "nothing but");
	clear();
	add("d0", "192.0.2.1", ROCELINK_GID_ROCE_V2, 2)->present = false;
	assert_int_equal(choose("192.0.2.9", "192.0.2.1", 0), -1);
	assert_contains(err.text, "(gone)");
}

static void without_a_peer_the_first_global_one(void **state)
{
	(void)state;
	usual();
	assert_int_equal(gid_choose(&t, NULL, why, sizeof(why), &err), 3);
	clear();
	add("lo", "127.0.0.1", ROCELINK_GID_ROCE_V2, 1);
	assert_int_equal(gid_choose(&t, NULL, why, sizeof(why), &err), 0);
	assert_contains(why, "loopback");
	clear();
	assert_int_equal(gid_choose(&t, NULL, why, sizeof(why), &err), -1);
	assert_contains(err.text, "nothing");
}

static void infiniband_goes_by_lid(void **state)
{
	(void)state;
	clear();
	add("mlx", "fe80::2:3", ROCELINK_GID_IB, 0);
	assert_int_equal(choose("10.0.0.1", "10.0.0.2", 0), 0);
	assert_contains(why, "InfiniBand");
}

static void the_kernel_knows_the_route_to_loopback(void **state)
{
	struct address to = addr("127.0.0.1", 0);
	struct route r;

	(void)state;
	route_find(&r, &to);
	assert_true(r.known);
	assert_true(address_is_loopback(&r.source));
	assert_true(address_is_ipv4(&r.source));
}

/* The first opened and the last closed start and stop a whole adapter: none is opened twice, and none
 * but the chosen one stays open. */
static void each_device_is_opened_once(void **state)
{
	struct fake_device up, down, away, *all[] = { &down, &away, &up };
	struct rocelink_gid gid = { .size = sizeof(gid) };

	(void)state;
	for (int i = 0; i < 3; i++)
		fake_device_init(all[i], (const char *[]){ "down0", "away0", "up0" }[i]);
	down.port.state = IBV_PORT_DOWN;
	away.gid_count = 0;
	fake_device_add_gid(&away, "192.0.2.1", IBV_GID_TYPE_ROCE_V2);
	fake_set_devices(all, 3);
	assert_ptr_equal(rocelink_device_open("127.0.0.1", &gid, &err), &up.context);
	assert_string_equal(gid.device, "up0");
	assert_string_equal(gid.address, "127.0.0.1");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(all[i]->opened, 1);
		assert_int_equal(all[i]->open, all[i] == &up);
	}
	assert_int_equal(rocelink_gid_choose(NULL, "127.0.0.1", &gid, &err), ROCELINK_OK);
	assert_null(rocelink_device_open("2001:db8::1", NULL, &err));
	assert_int_equal(err.code, ROCELINK_NO_DEVICE);
	gid.size = 1;
	assert_null(rocelink_device_open("127.0.0.1", &gid, &err));
	assert_contains(err.text, "rocelink_gid.size is 1");
	for (int i = 0; i < 3; i++)
		assert_int_equal(all[i]->open, all[i] == &up);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_source_of_the_route),
		cmocka_unit_test(another_device_when_the_route_goes_there),
		cmocka_unit_test(link_local_only_when_asked_for_or_nothing_else),
		cmocka_unit_test(link_local_of_the_right_interface),
		cmocka_unit_test(other_family_is_no_substitute),
		cmocka_unit_test(loopback_keeps_to_itself),
		cmocka_unit_test(addresses_that_are_gone_are_not_used),
		cmocka_unit_test(without_a_peer_the_first_global_one),
		cmocka_unit_test(infiniband_goes_by_lid),
		cmocka_unit_test(the_kernel_knows_the_route_to_loopback),
		cmocka_unit_test(each_device_is_opened_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
