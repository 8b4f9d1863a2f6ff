/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A loop is recognised by its polls: so often on the average, over a window of time, that nothing waits
 * for long. A poll that moves much data takes long itself: its time counts as so many polls.
 *
 * One thing looks like a loop and isn't: a program that waits for a WRITE watches its memory, and polls
 * only for its own completions: often enough, but not when it matters. Packets that waited tell.
 *
 * Polls may also be few because the loop, with more runnable threads than processors, isn't running. It
 * would be one again in a moment, but where others compete the help of a second thread is worth more
 * than what the two cost each other (64 KiB WRITE beside two other loads: 2.3 against 1.4 GB/s).
 */
#include "device/engine_loop.h"

#include "device/engine_internal.h"

#define CHECK_MIN_NS	 (250 * NS_PER_US)
#define CHECK_MAX_NS	 (1 * NS_PER_MS)
#define STEADY_LOOKS	 16
#define STEADY_SLACK_NS	 (3 * NS_PER_MS)
#define WINDOW_NS	 (2 * SPIN_INTERVAL_NS)
#define SPIN_INTERVAL_NS (100 * NS_PER_US) /* polls that often on the average are a polling loop */
#define SPIN_STEPS	 4		   /* and so are polls this many steps apart */
#define LONG_STEP	 4		   /* queue pairs served: worth a look at the clock */
#define DOUBTS		 3
#define DOUBT_WITHIN_NS	 (10 * NS_PER_MS)
#define NO_LOOP_MIN_NS	 (10 * NS_PER_MS)
#define NO_LOOP_MAX_NS	 (50 * NS_PER_MS)

void engine_loop_init(struct engine *e, struct loop_watch *w)
{
	*w = (struct loop_watch){ .check_ns = CHECK_MIN_NS };
	e->spin_interval_ns = SPIN_INTERVAL_NS;
}

static bool is_trusted(const struct loop_watch *w, uint64_t now)
{
	return now >= w->no_loop_until_ns;
}

void engine_loop_judge(struct engine *e, struct loop_watch *w, uint64_t now)
{
	uint32_t polls = atomic_load_explicit(&e->polls, memory_order_relaxed);

	if (now - w->since_ns < WINDOW_NS)
		return;
	w->spinning = is_trusted(w, now) &&
		      (uint64_t)(polls - w->polls) * e->spin_interval_ns >= now - w->since_ns;
	w->since_ns = now;
	w->polls = polls;
}

uint64_t engine_loop_stand_by(struct loop_watch *w, uint64_t now)
{
	uint64_t until = now + w->check_ns;

	w->stood_by = true;
	if (w->check_ns < CHECK_MAX_NS)
		w->check_ns *= 2;
	else
		w->looks++;
	return until;
}

uint64_t engine_loop_slack_ns(const struct loop_watch *w)
{
	return w->looks > STEADY_LOOKS ? STEADY_SLACK_NS : 0;
}

static void distrust(struct loop_watch *w, uint64_t now)
{
	w->doubts = now - w->doubt_ns < DOUBT_WITHIN_NS ? w->doubts + 1 : 1;
	w->doubt_ns = now;
	if (w->doubts < DOUBTS)
		return;
	w->doubts = 0;
	w->no_loop_ns =
		now < w->no_loop_until_ns + w->no_loop_ns ? w->no_loop_ns * 2 : NO_LOOP_MIN_NS;
	if (w->no_loop_ns > NO_LOOP_MAX_NS)
		w->no_loop_ns = NO_LOOP_MAX_NS;
	w->no_loop_until_ns = now + w->no_loop_ns;
}

void engine_loop_stepped(const struct engine *e, struct loop_watch *w, bool found)
{
	if (w->stood_by && found) {
		distrust(w, e->now_ns);
		/* It lost its processor, perhaps, and goes on polling if we keep out of its way. */
		w->spinning = is_trusted(w, e->now_ns);
		w->since_ns = e->now_ns;
		w->polls = atomic_load_explicit(&e->polls, memory_order_relaxed);
	}
	w->stood_by = false;
	w->check_ns = CHECK_MIN_NS;
	w->looks = 0;
}

bool engine_loop_distrusted(const struct loop_watch *w)
{
	return w->no_loop_until_ns && engine_now_ns() < w->no_loop_until_ns;
}

bool engine_loop_is_alive(const struct engine *e, struct loop_watch *w)
{
	uint32_t polls = atomic_load_explicit(&e->polls, memory_order_relaxed);
	bool alive = engine_loop_distrusted(w) && polls != w->alive_polls;

	w->alive_polls = polls;
	return alive;
}

/*
 * Where a step is slow (an emulated processor, a sanitizer), a polling loop polls less often. The
 * cost that is remembered is nearly the least one seen: a thread that lost its processor measures
 * too much.
 */
void engine_loop_learn_cost(struct engine *e)
{
	uint64_t cost = engine_now_ns() - e->now_ns;

	if (cost > e->step_cost_ns)
		cost = e->step_cost_ns + e->step_cost_ns / 16 + 1;
	e->step_cost_ns = cost;
	e->spin_interval_ns = SPIN_STEPS * cost;
	if (e->spin_interval_ns < SPIN_INTERVAL_NS)
		e->spin_interval_ns = SPIN_INTERVAL_NS;
}

void engine_loop_poll_begins(struct engine *e)
{
	e->looked = false;
	e->visits = 0;
}

void engine_loop_poll_ends(struct engine *e)
{
	uint64_t took;

	if (!e->looked && e->visits < LONG_STEP)
		return;
	took = engine_now_ns() - e->now_ns;
	if (took >= SPIN_INTERVAL_NS)
		atomic_fetch_add_explicit(&e->polls, (uint32_t)(took / SPIN_INTERVAL_NS),
					  memory_order_relaxed);
}
