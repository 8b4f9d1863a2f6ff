/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queue pair transitions against a second statement: the tables of ibv_modify_qp(3), written as
 * text, one letter an attribute. R...: must be given, O...: may be.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/units.h"
#include "transport/qp.h"
#include "transport/qp_attr.h"

static const struct {
	char letter;
	int bit;
} letters[] = {
	{ 'n', IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ 'a', IBV_QP_ACCESS_FLAGS },
	{ 'k', IBV_QP_PKEY_INDEX },
	{ 'p', IBV_QP_PORT },
	{ 'q', IBV_QP_QKEY },
	{ 'v', IBV_QP_AV },
	{ 'm', IBV_QP_PATH_MTU },
	{ 't', IBV_QP_TIMEOUT },
	{ 'c', IBV_QP_RETRY_CNT },
	{ 'r', IBV_QP_RNR_RETRY },
	{ 'e', IBV_QP_RQ_PSN },
	{ 'x', IBV_QP_MAX_QP_RD_ATOMIC },
	{ 'l', IBV_QP_ALT_PATH },
	{ 'i', IBV_QP_MIN_RNR_TIMER },
	{ 's', IBV_QP_SQ_PSN },
	{ 'y', IBV_QP_MAX_DEST_RD_ATOMIC },
	{ 'g', IBV_QP_PATH_MIG_STATE },
	{ 'd', IBV_QP_DEST_QPN },
};

static const struct {
	const char *type, *from, *to, *required, *optional;
} legal[] = {
	{ "RC", "RESET", "INIT", "kpa", "" },
	{ "UC", "RESET", "INIT", "kpa", "" },
	{ "UD", "RESET", "INIT", "kpq", "" },
	{ "RC", "INIT", "INIT", "", "kpa" },
	{ "UC", "INIT", "INIT", "", "kpa" },
	{ "UD", "INIT", "INIT", "", "kpq" },
	{ "RC", "INIT", "RTR", "vmdeyi", "lak" },
	{ "UC", "INIT", "RTR", "vmde", "lak" },
	{ "UD", "INIT", "RTR", "", "kq" },
	{ "RC", "RTR", "RTS", "stcrx", "laig" },
	{ "UC", "RTR", "RTS", "s", "lag" },
	{ "UD", "RTR", "RTS", "s", "q" },
	{ "RC", "RTS", "RTS", "", "alig" },
	{ "UC", "RTS", "RTS", "", "alg" },
	{ "UD", "RTS", "RTS", "", "q" },
	{ "RC", "RTS", "SQD", "", "n" },
	{ "UC", "RTS", "SQD", "", "n" },
	{ "UD", "RTS", "SQD", "", "n" },
	{ "RC", "SQD", "RTS", "", "alig" },
	{ "UC", "SQD", "RTS", "", "alg" },
	{ "UD", "SQD", "RTS", "", "q" },
	{ "RC", "SQD", "SQD", "", "vtcrxykplaig" },
	{ "UC", "SQD", "SQD", "", "vkplag" },
	{ "UD", "SQD", "SQD", "", "kq" },
	{ "XRC_SEND", "RESET", "INIT", "kpa", "" },
	{ "XRC_RECV", "RESET", "INIT", "kpa", "" },
	{ "XRC_SEND", "INIT", "INIT", "", "kpa" },
	{ "XRC_RECV", "INIT", "INIT", "", "kpa" },
	{ "XRC_SEND", "INIT", "RTR", "vmde", "lak" },
	{ "XRC_RECV", "INIT", "RTR", "vmdeyi", "lak" },
	{ "XRC_SEND", "RTR", "RTS", "stcrx", "lag" },
	{ "XRC_RECV", "RTR", "RTS", "st", "laig" },
	{ "XRC_SEND", "RTS", "RTS", "", "alg" },
	{ "XRC_RECV", "RTS", "RTS", "", "alig" },
	{ "XRC_SEND", "RTS", "SQD", "", "n" },
	{ "XRC_RECV", "RTS", "SQD", "", "n" },
	{ "XRC_SEND", "SQD", "RTS", "", "alg" },
	{ "XRC_RECV", "SQD", "RTS", "", "alig" },
	{ "XRC_SEND", "SQD", "SQD", "", "vtcrxkplag" },
	{ "XRC_RECV", "SQD", "SQD", "", "vtykplaig" },
	{ "UC", "SQE", "RTS", "", "a" },
	{ "UD", "SQE", "RTS", "", "q" },
};

static int bits(const char *text)
{
	int mask = 0;

	for (; *text; text++)
		for (size_t i = 0; i < ARRAY_LEN(letters); i++)
			if (letters[i].letter == *text)
				mask |= letters[i].bit;
	return mask;
}

/* 0: not legal; 1: legal, with *required and *optional. */
static int expected(enum ibv_qp_type type, int from, int to, int *required, int *optional)
{
	*required = *optional = 0;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return 1;
	for (size_t i = 0; i < ARRAY_LEN(legal); i++) {
		if (strcmp(legal[i].type, qp_type_name(type)) ||
		    strcmp(legal[i].from, qp_state_name((enum ibv_qp_state)from)) ||
		    strcmp(legal[i].to, qp_state_name((enum ibv_qp_state)to)))
			continue;
		*required = bits(legal[i].required);
		*optional = bits(legal[i].optional);
		return 1;
	}
	return 0;
}

static int check(enum ibv_qp_type type, int from, int to, int mask)
{
	char why[512] = "";
	int ret = qp_attr_check_transition(type, (enum ibv_qp_state)from, (enum ibv_qp_state)to,
					   mask | IBV_QP_STATE, why, sizeof(why));

	assert_true(ret == 0 || (ret == EINVAL && strlen(why) > 10));
	return ret;
}

static void test_transitions(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						  IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV };

	(void)state;
	for (unsigned n = 0; n < ARRAY_LEN(types) * 7 * 7; n++) {
		enum ibv_qp_type type = types[n / 49];
		int from = (int)(n / 7 % 7), to = (int)(n % 7), required, optional;

		if (!expected(type, from, to, &required, &optional)) {
			assert_int_equal(check(type, from, to, 0), EINVAL);
			continue;
		}
		assert_int_equal(check(type, from, to, required), 0);
		assert_int_equal(check(type, from, to, required | optional | IBV_QP_CUR_STATE), 0);
		for (size_t i = 0; i < ARRAY_LEN(letters); i++) {
			int bit = letters[i].bit;

			if (required & bit)
				assert_int_equal(check(type, from, to, required & ~bit), EINVAL);
			else
				assert_int_equal(check(type, from, to, required | bit),
						 optional & bit ? 0 : EINVAL);
		}
	}
}

struct value_case {
	int bit;
	struct ibv_qp_attr right, wrong;
	const char *word; /* in the refusal */
};

static void test_values(void **state)
{
	static const struct value_case cases[] = {
		{ IBV_QP_PORT, { .port_num = 1 }, { .port_num = 2 }, "port_num" },
		{ IBV_QP_PORT, { .port_num = 1 }, { .port_num = 0 }, "port_num" },
		{ IBV_QP_PKEY_INDEX, { .pkey_index = 0 }, { .pkey_index = 1 }, "pkey_index" },
		{ IBV_QP_TIMEOUT, { .timeout = 31 }, { .timeout = 32 }, "timeout" },
		{ IBV_QP_RETRY_CNT, { .retry_cnt = 7 }, { .retry_cnt = 8 }, "retry_cnt" },
		{ IBV_QP_RNR_RETRY, { .rnr_retry = 7 }, { .rnr_retry = 8 }, "rnr_retry" },
		{ IBV_QP_MIN_RNR_TIMER,
		  { .min_rnr_timer = 31 },
		  { .min_rnr_timer = 32 },
		  "min_rnr" },
		{ IBV_QP_DEST_QPN,
		  { .dest_qp_num = 0xffffff },
		  { .dest_qp_num = 0x1000000 },
		  "dest_qp" },
		{ IBV_QP_PATH_MTU,
		  { .path_mtu = IBV_MTU_1024 },
		  { .path_mtu = IBV_MTU_2048 },
		  "path_mtu" },
		{ IBV_QP_PATH_MTU, { .path_mtu = IBV_MTU_256 }, { .path_mtu = 0 }, "path_mtu" },
		{ IBV_QP_MAX_QP_RD_ATOMIC,
		  { .max_rd_atomic = 128 },
		  { .max_rd_atomic = 129 },
		  "max_rd" },
		{ IBV_QP_MAX_DEST_RD_ATOMIC,
		  { .max_dest_rd_atomic = 128 },
		  { .max_dest_rd_atomic = 129 },
		  "max_dest_rd" },
	};
	char why[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct value_case *c = &cases[i];

		assert_int_equal(
			qp_attr_check_values(&c->right, c->bit, NULL, 1024, why, sizeof(why)), 0);
		assert_int_equal(
			qp_attr_check_values(&c->wrong, c->bit, NULL, 1024, why, sizeof(why)),
			EINVAL);
		assert_non_null(strstr(why, c->word));
	}
}

/* An alternate path isn't accepted to be ignored. */
static void test_no_migration(void **state)
{
	struct ibv_qp_attr attr = { .path_mig_state = IBV_MIG_MIGRATED, .alt_port_num = 1 };
	char why[512] = "";

	(void)state;
	assert_int_equal(
		qp_attr_check_values(&attr, IBV_QP_PATH_MIG_STATE, NULL, 1024, why, sizeof(why)),
		0);
	assert_int_equal(qp_attr_check_values(&attr, IBV_QP_ALT_PATH, NULL, 1024, why, sizeof(why)),
			 EOPNOTSUPP);
	assert_non_null(strstr(why, "migration"));
	attr.path_mig_state = IBV_MIG_REARM;
	assert_int_equal(
		qp_attr_check_values(&attr, IBV_QP_PATH_MIG_STATE, NULL, 1024, why, sizeof(why)),
		EOPNOTSUPP);
}

/* The commonest mistake on RoCE: no GRH. The refusal says what to set. */
static void test_missing_grh(void **state)
{
	struct ibv_qp_attr attr = { 0 };
	struct path path = { .hop_limit = 1 };
	char why[512];

	(void)state;
	assert_int_equal(qp_attr_check_values(&attr, IBV_QP_AV, NULL, 1024, why, sizeof(why)),
			 EINVAL);
	assert_non_null(strstr(why, "is_global"));
	assert_int_equal(qp_attr_check_values(&attr, IBV_QP_AV, &path, 1024, why, sizeof(why)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transitions),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_missing_grh),
		cmocka_unit_test(test_no_migration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
