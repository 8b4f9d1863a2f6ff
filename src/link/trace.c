/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/trace.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/units.h"

uint64_t link_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

void tracer_init(struct tracer *t, rocelink_trace_fn fn, void *arg)
{
	*t = (struct tracer){
		.fn = fn,
		.arg = arg,
		.start_ns = link_now(),
		.off = !fn && log_level_now < LOG_DEBUG,
	};
}

static void deliver(const struct tracer *t, struct rocelink_trace *trace)
{
	trace->size = sizeof(*trace);
	trace->elapsed_us = (link_now() - t->start_ns) / NS_PER_US;
	log_debug("link: %s", trace->text);
	if (t->fn)
		t->fn(t->arg, trace);
}

void tracer_say(const struct tracer *t, enum rocelink_step step, const char *format, ...)
{
	struct rocelink_trace trace = { .step = step };
	char text[4096];
	va_list args;

	if (t->off)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	trace.text = text;
	deliver(t, &trace);
}

void tracer_modified(const struct tracer *t, struct rocelink_trace *trace, const char *text)
{
	if (t->off)
		return;
	trace->step = ROCELINK_STEP_QP_MODIFIED;
	trace->text = text;
	deliver(t, trace);
}

static void log_init(void)
{
	const char *name = getenv("ROCELINK_LOG");
	int level = name ? log_level_parse(name) : -1;

	if (level >= 0)
		log_set_level((enum log_level)level);
}

void link_log_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, log_init);
}
