/* SPDX-License-Identifier: BSD-2-Clause */
/* Telling the program's observer, and the log, what happens. */
#ifndef ROCELINK_LINK_TRACE_H
#define ROCELINK_LINK_TRACE_H

#include "rocelink/rocelink.h"

struct tracer {
	rocelink_trace_fn fn;
	void *arg;
	uint64_t start_ns;
	bool off; /* no observer and no log: don't make texts */
};

/* Monotonic time. The one place of this part that reads a clock. */
uint64_t link_now(void);

void tracer_init(struct tracer *t, rocelink_trace_fn fn, void *arg);
void tracer_say(const struct tracer *t, enum rocelink_step step, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* One ibv_modify_qp: `trace` has its members from qp_index on. */
void tracer_modified(const struct tracer *t, struct rocelink_trace *trace, const char *text);

/* Sets the log level from ROCELINK_LOG, once in a process. */
void link_log_init(void);

#endif
