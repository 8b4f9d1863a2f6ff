/* SPDX-License-Identifier: BSD-2-Clause */
/* Grouping of outgoing packets, and the ICRC for the IPv4 identification each will get from the
 * kernel. */
#include "wire/outbox.h"

#include <errno.h>
#include <string.h>

#include "test.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#define CAPACITY (256 * 1024)

static struct path path_v4(uint8_t host)
{
	struct path p = { .sport = 50000 };

	memset(p.sgid.raw + 10, 0xff, 2);
	memset(p.dgid.raw + 10, 0xff, 2);
	p.sgid.raw[12] = p.dgid.raw[12] = 10;
	p.dgid.raw[15] = host;
	return p;
}

static struct path path_v6(uint8_t host)
{
	struct path p = { .sport = 50000 };

	p.sgid.raw[0] = p.dgid.raw[0] = 0xfd;
	p.dgid.raw[15] = host;
	return p;
}

static bool try_add(struct outbox *box, const struct path *path, uint32_t len)
{
	uint8_t *p = outbox_reserve(box, path, len);

	if (!p)
		return false;
	memset(p, (int)(box->used / 4), len);
	outbox_commit(box, len);
	return true;
}

static void add(struct outbox *box, const struct path *path, uint32_t len)
{
	assert_true(try_add(box, path, len));
}

/* Group g holds n packets, all of seg_len but for the last; each is valid with its number as ID. */
static void check_group(const struct outbox *box, unsigned g, unsigned n, uint32_t seg_len,
			uint32_t last_len)
{
	const struct outbox_group *group = &box->groups[box->first_group + g];

	assert_true(box->first_group + g < box->n_groups);
	assert_int_equal(group->segments, n);
	assert_int_equal(group->seg_len, seg_len);
	assert_int_equal(group->len, (n - 1) * seg_len + last_len);
	for (unsigned k = 0; k < n; k++) {
		const uint8_t *p = box->buf + group->offset + k * seg_len;
		uint32_t len = k == n - 1 ? last_len : seg_len;
		uint16_t id = (uint16_t)k;

		assert_true(icrc_check(&group->path, &id, p, len));
		assert_int_equal(id, k);
	}
}

static int setup(void **state)
{
	static struct outbox box;

	*state = &box;
	return outbox_init(&box, CAPACITY);
}

static int teardown(void **state)
{
	outbox_destroy(*state);
	return 0;
}

static void equal_sizes_share_a_group(void **state)
{
	struct outbox *box = *state;
	struct path path = path_v4(1);

	assert_true(outbox_empty(box));
	for (int i = 0; i < 10; i++)
		add(box, &path, 64);
	assert_false(outbox_empty(box));
	assert_int_equal(box->n_groups, 1);
	check_group(box, 0, 10, 68, 68);
	assert_false(box->groups[0].closed);
	assert_true(path_eq(&box->groups[0].path, &path));
}

static void shorter_packet_closes_the_group(void **state)
{
	struct outbox *box = *state;
	struct path path = path_v4(1);

	add(box, &path, 64);
	add(box, &path, 64);
	add(box, &path, 60);
	assert_true(box->groups[0].closed);
	add(box, &path, 60);
	add(box, &path, 64);
	assert_int_equal(box->n_groups, 3);
	check_group(box, 0, 3, 68, 64);
	check_group(box, 1, 1, 64, 64); /* not even an equal one joins a closed group */
	check_group(box, 2, 1, 68, 68); /* a longer one never joins */
}

static void group_ends_at_64_segments(void **state)
{
	struct outbox *box = *state;
	struct path path = path_v4(1);

	for (int i = 0; i < 65; i++)
		add(box, &path, 16);
	assert_int_equal(box->n_groups, 2);
	check_group(box, 0, 64, 20, 20);
	check_group(box, 1, 1, 20, 20);
}

/* 65,507 bytes of UDP payload fit in an IPv4 packet, 65,527 in an IPv6 one. */
static void group_ends_at_the_largest_datagram(void **state)
{
	struct outbox *box = *state;
	struct path v4 = path_v4(1), v6 = path_v6(1);

	for (int i = 0; i < 15; i++)
		add(box, &v4, 4096);
	add(box, &v4, 65507 / 4 * 4 - 15 * 4100 - 4);
	check_group(box, 0, 16, 4100, 65504 - 15 * 4100);
	outbox_sent(box, 1);
	for (int i = 0; i < 15; i++)
		add(box, &v4, 4096);
	add(box, &v4, 65508 - 15 * 4100 - 4);
	check_group(box, 0, 15, 4100, 4100);
	check_group(box, 1, 1, 65508 - 15 * 4100, 65508 - 15 * 4100);
	outbox_sent(box, 2);
	for (int i = 0; i < 15; i++)
		add(box, &v6, 4096);
	add(box, &v6, 65524 - 15 * 4100 - 4);
	check_group(box, 0, 16, 4100, 65524 - 15 * 4100);
	outbox_sent(box, 1);
	for (int i = 0; i < 15; i++)
		add(box, &v6, 4096);
	add(box, &v6, 65528 - 15 * 4100 - 4);
	assert_int_equal(box->n_groups, 2);
}

static void other_path_starts_a_group(void **state)
{
	struct outbox *box = *state;
	struct path a = path_v4(1), b = path_v4(2), c = path_v6(1);

	add(box, &a, 64);
	add(box, &b, 64);
	add(box, &a, 64);
	add(box, &c, 64);
	add(box, &c, 64);
	assert_int_equal(box->n_groups, 4);
	check_group(box, 0, 1, 68, 68);
	check_group(box, 1, 1, 68, 68);
	check_group(box, 2, 1, 68, 68);
	check_group(box, 3, 2, 68, 68);
	a.traffic_class = 9;
	add(box, &a, 64);
	a.sport++;
	add(box, &a, 64);
	assert_int_equal(box->n_groups, 6);
}

static void full_buffer_refuses(void **state)
{
	struct outbox *box = *state;
	struct path path = path_v4(1);
	uint32_t added = 0;

	while (try_add(box, &path, 4096))
		added++;
	assert_int_equal(added, CAPACITY / 4100);
	assert_true(box->used <= CAPACITY);
	/* What is left can be used to the last byte. */
	assert_null(outbox_reserve(box, &path, CAPACITY - box->used - ICRC_LEN + 1));
	add(box, &path, (CAPACITY - box->used - ICRC_LEN) / 4 * 4);
	assert_int_equal(CAPACITY - box->used, 0);
	assert_null(outbox_reserve(box, &path, BTH_LEN));
	assert_null(outbox_reserve(box, &path, UINT32_MAX));
}

static void full_of_groups_refuses(void **state)
{
	struct outbox *box = *state;
	struct path a = path_v4(1), b = path_v4(2);
	unsigned added = 0;

	while (try_add(box, added % 2 ? &a : &b, 16))
		added++;
	assert_int_equal(added, OUTBOX_GROUPS_MAX);
	outbox_sent(box, OUTBOX_GROUPS_MAX);
	add(box, &a, 16);
}

static void sent_groups_leave(void **state)
{
	struct outbox *box = *state;
	struct path a = path_v4(1), b = path_v4(2);

	add(box, &a, 16);
	add(box, &b, 16);
	add(box, &a, 16);
	outbox_sent(box, 2);
	assert_false(outbox_empty(box));
	add(box, &a, 16); /* joins the group that is still waiting */
	check_group(box, 0, 2, 20, 20);
	assert_int_equal(box->used, 80);
	outbox_sent(box, 1);
	assert_true(outbox_empty(box));
	assert_int_equal(box->used, 0);
	add(box, &a, 16);
	assert_int_equal(box->groups[0].offset, 0);
	check_group(box, 0, 1, 20, 20);
}

/* A reservation may be larger than the packet, and one that isn't committed leaves no trace. */
static void reservation_is_an_upper_bound(void **state)
{
	struct outbox *box = *state;
	struct path a = path_v4(1), b = path_v4(2);

	assert_non_null(outbox_reserve(box, &b, 4096));
	assert_true(outbox_empty(box));
	memset(outbox_reserve(box, &a, 4096), 0, 16);
	outbox_commit(box, 16);
	assert_int_equal(box->used, 20);
	check_group(box, 0, 1, 20, 20);
	assert_true(path_eq(&box->groups[0].path, &a));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(equal_sizes_share_a_group),     TEST(shorter_packet_closes_the_group),
		TEST(group_ends_at_64_segments),     TEST(group_ends_at_the_largest_datagram),
		TEST(other_path_starts_a_group),     TEST(full_buffer_refuses),
		TEST(full_of_groups_refuses),	     TEST(sent_groups_leave),
		TEST(reservation_is_an_upper_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
