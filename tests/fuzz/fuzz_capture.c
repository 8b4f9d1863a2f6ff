/* SPDX-License-Identifier: BSD-2-Clause */
/* `rocelink decode` on any bytes that pass for a capture, with all its outputs. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "tools/decode_capture.h"
#include "tools/decode_decoder.h"

#define OUTPUTS 3

static void decode(struct capture *c, struct sink **sinks)
{
	struct decoder d;
	struct frame f;

	decoder_init(&d, sinks);
	while (capture_next(c, &f) == 1)
		decoder_frame(&d, &f);
	decoder_finish(&d);
	decoder_destroy(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *in = size ? fmemopen((void *)(uintptr_t)data, size, "rb") : NULL, *out[OUTPUTS];
	struct sink *sinks[OUTPUTS + 1] = { NULL };
	struct capture *c;
	char error[256], *text[OUTPUTS];
	size_t len[OUTPUTS];

	if (!in)
		return 0;
	c = capture_open_stream(in, error, sizeof(error));
	if (!c)
		return 0;
	for (int i = 0; i < OUTPUTS; i++)
		out[i] = open_memstream(&text[i], &len[i]);
	sinks[0] = text_sink_create(out[0]);
	sinks[1] = json_sink_create(out[1]);
	sinks[2] = svg_sink_create(out[2], "<&\">");
	decode(c, sinks);
	capture_close(c);
	for (int i = 0; i < OUTPUTS; i++) {
		sink_destroy(sinks[i]);
		fclose(out[i]);
		free(text[i]);
	}
	return 0;
}
