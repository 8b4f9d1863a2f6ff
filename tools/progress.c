/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"

static const uint64_t first_ns = NS_PER_SEC / 2, interval_ns = NS_PER_SEC / 5;

/* Of the present line; a process has one terminal. */
static enum { UNKNOWN, TERMINAL, NOWHERE } output;
static const char *present;
static uint64_t next_ns;
static bool shown;

static uint64_t now(void)
{
	struct timespec ts;

	/* Good to some milliseconds, and ten times cheaper. */
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

void progress_show(const char *what, uint64_t done, uint64_t total)
{
	uint64_t at;

	if (output == UNKNOWN)
		output = isatty(STDERR_FILENO) ? TERMINAL : NOWHERE;
	if (output == NOWHERE)
		return;
	at = now();
	if (present != what) {
		present = what;
		next_ns = at + first_ns;
	}
	if (at < next_ns)
		return;
	next_ns = at + interval_ns;
	shown = true;
	if (total)
		fprintf(stderr, "\r%s: %llu of %llu, %llu%%\033[K", what, (unsigned long long)done,
			(unsigned long long)total, (unsigned long long)(100 * done / total));
	else
		fprintf(stderr, "\r%s: %llu\033[K", what, (unsigned long long)done);
}

void progress_end(void)
{
	if (shown)
		fputs("\r\033[K", stderr);
	shown = false;
	present = NULL;
}
