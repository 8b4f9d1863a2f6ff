/* SPDX-License-Identifier: BSD-2-Clause */
/* The plan that travels as text, the command line, and that --verify finds what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/pingpong.h"

static struct pp_options parse(char *line)
{
	struct pp_options o;
	char *argv[16] = { "pingpong" };
	int argc = 1;

	for (char *word; (word = strsep(&line, " "));)
		argv[argc++] = word;
	assert_int_equal(pp_options_parse(&o, argc, argv), 0);
	return o;
}

#define PARSE(text) parse((char[]){ text })

static int parse_status(char *line)
{
	struct pp_options o;
	char *argv[16] = { "pingpong" };
	int argc = 1;

	for (char *word; (word = strsep(&line, " "));)
		argv[argc++] = word;
	return pp_options_parse(&o, argc, argv);
}

#define REFUSED(text) assert_int_equal(parse_status((char[]){ text }), 3)

static void defaults_depend_on_type_and_operation(void **state)
{
	struct pp_options o = PARSE("host");

	(void)state;
	assert_string_equal(o.host, "host");
	assert_int_equal(o.plan.type, PP_RC);
	assert_int_equal(o.plan.op, PP_SEND);
	assert_int_equal(o.plan.size, 4096);
	assert_int_equal(o.plan.iters, 1000);
	assert_int_equal(o.qps, 1);
	assert_int_equal(PARSE("-t ud host").plan.size, 1024);
	assert_int_equal(PARSE("--op fetch-add host").plan.size, 8);
	assert_true(PARSE("-e --op write host").plan.immediate);
	assert_false(PARSE("--op write host").plan.immediate);
	assert_int_equal(PARSE("--compat ibv-srq host").qps, 16);
}

static void wrong_usage_is_refused(void **state)
{
	(void)state;
	REFUSED("--type dc");
	REFUSED("--op push");
	REFUSED("-t ud --op write");
	REFUSED("-t uc --op read");
	REFUSED("--op cmp-swap -s 16");
	REFUSED("-s 0");
	REFUSED("-s -1");
	REFUSED("-s 5x");
	REFUSED("-s 99999999999999999999");
	REFUSED("-m 1000");
	REFUSED("-p 65536");
	REFUSED("-n 0");
	REFUSED("--compat perftest");
	REFUSED("--compat ibv --op read");
	REFUSED("--compat ibv --secret-file x");
	REFUSED("--compat ibv-srq -t uc");
	REFUSED("--rnr-demo --op write");
	REFUSED("one two");
	REFUSED("--nonsense");
}

static void a_plan_survives_the_way(void **state)
{
	const struct pp_plan plans[] = {
		{ .type = PP_RC, .op = PP_SEND, .size = 1, .iters = 1 },
		{ .type = PP_UC,
		  .op = PP_WRITE,
		  .size = PP_MAX_SIZE,
		  .iters = PP_MAX_ITERS,
		  .verify = true,
		  .immediate = true },
		{ .type = PP_RC, .op = PP_CMP_SWAP, .size = 8, .iters = 7, .act = PP_ACT_SYNCED },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		struct pp_plan got = { .size = 0 };
		char text[256];

		pp_plan_write(&plans[i], text, sizeof(text));
		assert_true(pp_plan_read(&got, text, strlen(text)));
		assert_int_equal(got.type, plans[i].type);
		assert_int_equal(got.op, plans[i].op);
		assert_int_equal(got.size, plans[i].size);
		assert_int_equal(got.iters, plans[i].iters);
		assert_int_equal(got.verify, plans[i].verify);
		assert_int_equal(got.immediate, plans[i].immediate);
		assert_int_equal(got.act, plans[i].act);
	}
}

static void a_hostile_plan_is_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"type=rc",
		"type=rc op=send size=0 iters=1 verify=0 immediate=0 act=0",
		"type=rc op=send size=268435457 iters=1 verify=0 immediate=0 act=0",
		"type=rc op=send size=4294967297 iters=1 verify=0 immediate=0 act=0",
		"type=rc op=send size=-1 iters=1 verify=0 immediate=0 act=0",
		"type=rc op=send size=8 iters=10000001 verify=0 immediate=0 act=0",
		"type=rc op=send size=8 iters=1 verify=0 immediate=0 act=4",
		"type=rc op=send size=8 iters=1 verify=0 immediate=0 act=0 more",
		"type=ud op=read size=8 iters=1 verify=0 immediate=0 act=0",
		"type=rc op=cmp-swap size=16 iters=1 verify=0 immediate=0 act=0",
		"type=xx op=send size=8 iters=1 verify=0 immediate=0 act=0",
	};
	static const char with_nul[] = "type=rc op=send size=8 iters=1 verify=0 immediate=0 act=0";
	char long_text[1000];
	struct pp_plan plan;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_false(pp_plan_read(&plan, texts[i], strlen(texts[i])));
	assert_true(pp_plan_read(&plan, with_nul, sizeof(with_nul) - 1));
	assert_false(pp_plan_read(&plan, with_nul, sizeof(with_nul)));
	memset(long_text, 'a', sizeof(long_text));
	assert_false(pp_plan_read(&plan, long_text, sizeof(long_text)));
}

static struct pp make(const struct pp_options *o, enum pp_op op, uint32_t size)
{
	return (struct pp){
		.o = o,
		.plan = { .op = op, .size = size, .verify = true },
		.depth = 2,
	};
}

static void verify_finds_each_wrong_byte(void **state)
{
	static const uint32_t sizes[] = { 1, 7, 8, 9, 33, 4096 };
	const struct pp_options o = { .host = "h" };

	(void)state;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct pp pp = make(&o, PP_SEND, sizes[s]);
		uint8_t *data = malloc(sizes[s]);

		pp_fill(&pp, data, 5, true);
		assert_int_equal(pp_check(&pp, data, 5, true), ROCELINK_OK);
		assert_int_equal(pp.verified, 1);
		for (uint32_t i = 0; i < sizes[s]; i += 1 + sizes[s] / 50) {
			data[i] ^= 0x10;
			assert_int_equal(pp_check(&pp, data, 5, true), ROCELINK_PROTOCOL);
			data[i] ^= 0x10;
		}
		free(data);
	}
}

static void verify_knows_messages_and_directions_apart(void **state)
{
	const struct pp_options o = { .host = "h" };
	struct pp pp = make(&o, PP_SEND, 64);
	uint8_t data[64];

	(void)state;
	pp_fill(&pp, data, 5, true);
	assert_int_equal(pp_check(&pp, data, 6, true), ROCELINK_PROTOCOL);
	assert_int_equal(pp_check(&pp, data, 5, false), ROCELINK_PROTOCOL);
	assert_int_equal(pp_check(&pp, data, 7, true), ROCELINK_PROTOCOL);
}

static void verify_takes_what_the_stock_programs_send(void **state)
{
	const struct pp_options o = { .host = "h", .compat = PP_IBV };
	struct pp pp = make(&o, PP_SEND, 5000);
	uint8_t data[5000];

	(void)state;
	memset(data, 0x7b, sizeof(data));
	assert_int_equal(pp_check(&pp, data, 0, true), ROCELINK_OK);
	data[0] = data[4096] = 0; /* with -c */
	assert_int_equal(pp_check(&pp, data, 0, true), ROCELINK_OK);
	data[17] = 0;
	assert_int_equal(pp_check(&pp, data, 0, true), ROCELINK_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_depend_on_type_and_operation),
		cmocka_unit_test(wrong_usage_is_refused),
		cmocka_unit_test(a_plan_survives_the_way),
		cmocka_unit_test(a_hostile_plan_is_refused),
		cmocka_unit_test(verify_finds_each_wrong_byte),
		cmocka_unit_test(verify_knows_messages_and_directions_apart),
		cmocka_unit_test(verify_takes_what_the_stock_programs_send),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
