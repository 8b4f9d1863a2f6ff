/* SPDX-License-Identifier: BSD-2-Clause */
/* --explain: each step as librocelink and the measurement tell it, with the attributes written into
 * the queue pair below their ibv_modify_qp. */
#include <stdarg.h>
#include <string.h>

#include "base/units.h"
#include "tools/pingpong.h"

enum { TEXT_LEN = 4096 };

/* When the present connection's clock began, so that our own steps show the same time. */
static uint64_t origin_ns;

static FILE *output(const struct pp_options *o)
{
	return o->json ? stderr : stdout;
}

/* The time in front of the first line, the others below it. */
static void print_step(FILE *out, uint64_t us, const char *text)
{
	fprintf(out, "%4llu.%06llu  ", (unsigned long long)us / 1000000,
		(unsigned long long)us % 1000000);
	for (; *text; text++) {
		if (*text == '\n' && !text[1])
			break;
		fputc(*text, out);
		if (*text == '\n')
			fputs("             ", out);
	}
	fputc('\n', out);
	fflush(out);
}

static void print_attributes(FILE *out, const struct rocelink_trace *trace)
{
	char text[TEXT_LEN], *rest = text;

	rocelink_attr_text(trace->attr, trace->attr_mask, text, sizeof(text));
	for (char *line; (line = strsep(&rest, "\n"));)
		if (*line)
			fprintf(out, "                 %s\n", line);
	fflush(out);
}

void pp_explain_trace(void *arg, const struct rocelink_trace *trace)
{
	FILE *out = output(arg);

	origin_ns = pp_now() - trace->elapsed_us * NS_PER_US;
	print_step(out, trace->elapsed_us, trace->text);
	if (trace->step == ROCELINK_STEP_QP_MODIFIED && trace->attr)
		print_attributes(out, trace);
}

void pp_explain(const struct pp *pp, const char *format, ...)
{
	char text[TEXT_LEN];
	va_list args;

	if (!pp->o->explain)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	print_step(output(pp->o), (pp_now() - origin_ns) / NS_PER_US, text);
}
