/* SPDX-License-Identifier: BSD-2-Clause */
/* PSN arithmetic against a model that counts in 64 bits and never wraps. */
#include "wire/psn.h"

#include "prng.h"
#include "test.h"

#define HALF (INT64_C(1) << 23)

static void psn_matches_64_bit_model(void **state)
{
	struct prng r = { .state = 1 };

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint64_t a = prng_u64(&r) >> 8;
		int64_t distance = (int64_t)prng_below(&r, 2 * HALF) - HALF;
		uint64_t b = a + (uint64_t)distance;
		struct psn pa = psn_make((uint32_t)a), pb = psn_make((uint32_t)b);

		assert_int_equal(psn_diff(pb, pa), distance);
		assert_int_equal(psn_add(pa, (uint32_t)distance).v, b & 0xffffff);
		assert_int_equal(psn_sub(pb, (uint32_t)distance).v, a & 0xffffff);
		assert_true(psn_eq(psn_add(pa, (uint32_t)distance), pb));
		assert_int_equal(psn_eq(pa, pb), distance == 0);
	}
}

static void psn_wraps_at_24_bits(void **state)
{
	(void)state;
	assert_int_equal(psn_add(psn_make(0xffffff), 1).v, 0);
	assert_int_equal(psn_sub(psn_make(0), 1).v, 0xffffff);
	assert_int_equal(psn_diff(psn_make(2), psn_make(0xfffffe)), 4);
	assert_int_equal(psn_diff(psn_make(0xfffffe), psn_make(2)), -4);
	assert_int_equal(psn_make(0xab123456).v, 0x123456);
}

static void psn_farthest_distance_is_behind(void **state)
{
	(void)state;
	assert_int_equal(psn_diff(psn_make(0x7fffff), psn_make(0)), HALF - 1);
	assert_int_equal(psn_diff(psn_make(0x800000), psn_make(0)), -HALF);
	assert_int_equal(psn_diff(psn_make(0), psn_make(0x800000)), -HALF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(psn_matches_64_bit_model),
		cmocka_unit_test(psn_wraps_at_24_bits),
		cmocka_unit_test(psn_farthest_distance_is_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
