/* SPDX-License-Identifier: BSD-2-Clause */
/* Which programs are believed to poll in a loop, and how often the thread looks whether they still do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/units.h"
#include "device/engine_internal.h"
#include "device/engine_loop.h"

#define START	    NS_PER_SEC
#define WINDOW	    NS_PER_MS
#define FORGIVEN    (50 * NS_PER_MS) /* nobody is distrusted for longer */
#define LONG_ENOUGH 50		     /* looks */

struct scene {
	struct engine e;
	struct loop_watch w;
	uint64_t now;
};

static int setup(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));

	engine_loop_init(&s->e, &s->w);
	s->now = START;
	engine_loop_judge(&s->e, &s->w, s->now);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* A window of so many polls; is it a loop's? */
static bool polled(struct scene *s, uint32_t polls)
{
	s->now += WINDOW;
	s->e.now_ns = s->now;
	atomic_fetch_add(&s->e.polls, polls);
	engine_loop_judge(&s->e, &s->w, s->now);
	return s->w.spinning;
}

/* The thread stood by, then did a step that found something, or not. */
static void stepped(struct scene *s, bool found)
{
	s->now = engine_loop_stand_by(&s->w, s->now);
	s->e.now_ns = s->now;
	engine_loop_stepped(&s->e, &s->w, found);
}

static void many_polls_are_a_loop(void **state)
{
	struct scene *s = *state;

	assert_true(polled(s, 10));
	assert_false(polled(s, 9));
	assert_true(polled(s, 1000));
	assert_false(polled(s, 0));
}

/* 250 us, 500 us, then 1 ms; only a loop that has been one for long is looked at less exactly. */
static void a_steady_loop_is_left_alone(void **state)
{
	struct scene *s = *state;
	uint64_t first = engine_loop_stand_by(&s->w, 0);

	assert_true(first <= NS_PER_MS / 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_true(engine_loop_stand_by(&s->w, 0) <= NS_PER_MS);
		assert_int_equal(engine_loop_slack_ns(&s->w), 0);
	}
	for (unsigned i = 0; i < LONG_ENOUGH; i++)
		assert_int_equal(engine_loop_stand_by(&s->w, 0), NS_PER_MS);
	assert_true(engine_loop_slack_ns(&s->w) > 0);
	stepped(s, false);
	assert_int_equal(engine_loop_slack_ns(&s->w), 0);
	assert_int_equal(engine_loop_stand_by(&s->w, 0), first);
}

static void one_doubt_is_forgiven_three_are_not(void **state)
{
	struct scene *s = *state;

	assert_true(polled(s, 100));
	stepped(s, true);
	assert_true(s->w.spinning);
	stepped(s, true);
	assert_true(s->w.spinning);
	stepped(s, true);
	assert_false(s->w.spinning);
	assert_false(polled(s, 100));
}

static void doubts_far_apart_do_not_add_up(void **state)
{
	struct scene *s = *state;

	for (unsigned i = 0; i < 10; i++) {
		stepped(s, true);
		assert_true(s->w.spinning);
		s->now += 20 * NS_PER_MS;
	}
}

/* Each time for longer, but never for long: a loop that is one again must not pay for it. */
static void nobody_is_distrusted_for_long(void **state)
{
	struct scene *s = *state;

	for (unsigned round = 0; round < 10; round++) {
		uint64_t began;

		for (unsigned i = 0; i < 3; i++)
			stepped(s, true);
		began = s->now;
		while (!polled(s, 100))
			assert_true(s->now - began <= FORGIVEN + WINDOW);
		assert_true(s->now - began > 5 * NS_PER_MS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(many_polls_are_a_loop),
		T(a_steady_loop_is_left_alone),
		T(one_doubt_is_forgiven_three_are_not),
		T(doubts_far_apart_do_not_add_up),
		T(nobody_is_distrusted_for_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
