/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Does the program drive the engine by polling in a loop? The background thread, whose state this is,
 * asks before it takes the sockets.
 */
#ifndef ROCELINK_DEVICE_ENGINE_LOOP_H
#define ROCELINK_DEVICE_ENGINE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct engine;

struct loop_watch {
	bool spinning; /* it does */
	/* The window of time that is judged. */
	uint64_t since_ns;
	uint32_t polls;
	/* Polling loops that let packets wait: how often lately, and until when we believe in none. */
	bool stood_by; /* for a polling loop, since the last step of ours */
	unsigned doubts;
	uint64_t doubt_ns, no_loop_until_ns, no_loop_ns;
	uint32_t alive_polls;
	uint64_t check_ns; /* how long to stand by before the next look */
	unsigned looks;	   /* in a row that found a loop, at the longest distance */
};

void engine_loop_init(struct engine *e, struct loop_watch *w);
/* Judge anew where it is time to; w->spinning is the answer. */
void engine_loop_judge(struct engine *e, struct loop_watch *w, uint64_t now);
/* The thread leaves the sockets alone: until when? */
uint64_t engine_loop_stand_by(struct loop_watch *w, uint64_t now);
/* And by how much later will it do? For a loop that has been one for long, till the next tick of the
 * system's clock: a wake-up at a time of its own costs the loop much more than one at a tick. */
uint64_t engine_loop_slack_ns(const struct loop_watch *w);
/*
 * The thread did a step itself, and it found something that had waited, or not. w->spinning: the loop is
 * trusted once more.
 */
void engine_loop_stepped(const struct engine *e, struct loop_watch *w, bool found);
/* A program that watches memory was found out: no polls of it are believed to be a loop. */
bool engine_loop_distrusted(const struct loop_watch *w);
/* Such a program polled since the last look: its polls may leave replies to us if we come soon. */
bool engine_loop_is_alive(const struct engine *e, struct loop_watch *w);
/* After a step that found nothing. */
void engine_loop_learn_cost(struct engine *e);

/* Under the lock, by the program's poll: before its step, and after it. */
void engine_loop_poll_begins(struct engine *e);
void engine_loop_poll_ends(struct engine *e);

#endif
