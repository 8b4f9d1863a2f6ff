/* SPDX-License-Identifier: BSD-2-Clause */
#include "check.h"

#include "base/units.h"

/* IBA table 45 once more, in microseconds. */
static const uint64_t rnr_us[32] = {
	655360, 10,    20,    30,    40,    60,	    80,	    120,    160,    240,    320,
	480,	640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
	20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
};

static void rnr_codes_round_up(void **state)
{
	(void)state;
	for (uint8_t code = 0; code < 32; code++)
		assert_int_equal(rocelink_rnr_delay_us(code), rnr_us[code]);
	for (uint8_t code = 1; code < 31; code++) {
		assert_int_equal(rocelink_rnr_delay_code(rnr_us[code]), code);
		assert_int_equal(rocelink_rnr_delay_code(rnr_us[code] + 1), code + 1);
	}
	assert_int_equal(rocelink_rnr_delay_code(1), 1);
	assert_int_equal(rocelink_rnr_delay_code(491521), 0);
	/* "As fast as possible" must not become the slowest. */
	assert_int_equal(rocelink_rnr_delay_code(0), 1);
	assert_int_equal(rocelink_rnr_delay_code(ROCELINK_RNR_DELAY_655MS), 0);
}

static void ack_timeouts_round_up(void **state)
{
	(void)state;
	for (uint8_t code = 1; code < 32; code++) {
		uint64_t ns = UINT64_C(4096) << code;

		assert_int_equal(rocelink_ack_timeout_us(code), (ns + 999) / 1000);
		assert_int_equal(rocelink_ack_timeout_code(ns / 1000), code);
	}
	assert_int_equal(rocelink_ack_timeout_code(67109), 14);
	assert_int_equal(rocelink_ack_timeout_code(67110), 15);
	assert_int_equal(rocelink_ack_timeout_code(0), 1);
	assert_int_equal(rocelink_ack_timeout_code(UINT64_MAX - 1), 31);
	/* For ever only by name. */
	assert_int_equal(rocelink_ack_timeout_code(ROCELINK_NEVER), 0);
	assert_true(rocelink_ack_timeout_us(0) == ROCELINK_NEVER);
}

static void mtus(void **state)
{
	(void)state;
	assert_int_equal(rocelink_mtu_code(256), IBV_MTU_256);
	assert_int_equal(rocelink_mtu_code(4096), IBV_MTU_4096);
	assert_int_equal(rocelink_mtu_code(1500), 0);
	assert_int_equal(rocelink_mtu_code(0), 0);
	assert_int_equal(rocelink_mtu_bytes(IBV_MTU_1024), 1024);
	assert_int_equal(rocelink_mtu_bytes((enum ibv_mtu)6), 0);
}

static void names(void **state)
{
	(void)state;
	assert_string_equal(rocelink_code_name(ROCELINK_SYSTEM), "system");
	assert_string_equal(rocelink_code_name((enum rocelink_code)99), "unknown");
	assert_string_equal(rocelink_phase_name(ROCELINK_PHASE_CLOSE), "close");
	assert_string_equal(rocelink_reason_name(ROCELINK_REASON_LOCAL), "local failure");
	assert_string_equal(rocelink_state_name(ROCELINK_STATE_FAILED), "failed");
	for (int i = 0; i <= ROCELINK_SYSTEM; i++)
		assert_string_not_equal(rocelink_code_name((enum rocelink_code)i), "unknown");
	for (int i = 0; i <= ROCELINK_REASON_LOCAL; i++)
		assert_string_not_equal(rocelink_reason_name((enum rocelink_reason)i), "unknown");
	for (int i = 0; i <= ROCELINK_PHASE_CLOSE; i++)
		assert_string_not_equal(rocelink_phase_name((enum rocelink_phase)i), "unknown");
}

static void attributes_as_text(void **state)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .rnr_retry = 7, .sq_psn = 0xabc
	};
	char buf[400], small[8];
	size_t len;

	(void)state;
	len = rocelink_attr_text(&attr,
				 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN,
				 buf, sizeof(buf));
	assert_int_equal(len, strlen(buf));
	assert_contains(buf, "qp_state: RTS");
	assert_contains(buf, "timeout: code 14 (67.109 ms)");
	assert_contains(buf, "rnr_retry: 7 (for ever)");
	assert_contains(buf, "sq_psn: 0x000abc");
	assert_int_equal(
		rocelink_attr_text(&attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN,
				   small, sizeof(small)),
		len);
	assert_int_equal(strlen(small), sizeof(small) - 1);
	assert_int_equal(rocelink_attr_text(&attr, IBV_QP_STATE, NULL, 0), strlen("qp_state: RTS"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rnr_codes_round_up),
		cmocka_unit_test(ack_timeouts_round_up),
		cmocka_unit_test(mtus),
		cmocka_unit_test(names),
		cmocka_unit_test(attributes_as_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
