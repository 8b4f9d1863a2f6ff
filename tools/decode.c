/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `rocelink decode FILE`: tell what a capture holds. Frames go one by one from the capture through
 * the decoder to the sinks, so that memory doesn't grow with the file.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/decode_capture.h"
#include "tools/decode_decoder.h"
#include "tools/progress.h"

struct options {
	const char *file;
	const char *svg;
	bool json;
};

static void usage(FILE *out)
{
	fputs("usage: rocelink decode [--json] [--svg OUTPUT] FILE\n\n"
	      "Tells the conversation in a capture (pcap, pcapng; \"-\": standard input): what\n"
	      "the programs told each other over TCP, then each RoCE packet, which told value\n"
	      "its fields came from, what answers what, what was repeated and why, and whether\n"
	      "the ICRC is right.\n\n"
	      "  --json        one JSON object per packet and line\n"
	      "  --svg OUTPUT  draw the message sequence chart into this file\n"
	      "  --help        this text\n\n"
	      "Exit status: 0 done, 1 the file can't be read or is cut off, 2 wrong usage.\n"
	      "The manual: man rocelink-decode\n",
	      out);
}

/* 0, or the exit status + 1. */
static int parse_options(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "svg", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1)
		switch (c) {
		case 'j':
			o->json = true;
			break;
		case 's':
			o->svg = optarg;
			break;
		case 'h':
			usage(stdout);
			return EXIT_OK + 1;
		default:
			return EXIT_USAGE + 1;
		}
	if (argc - optind != 1) {
		usage(stderr);
		return EXIT_USAGE + 1;
	}
	o->file = argv[optind];
	return 0;
}

static int decode_frames(struct capture *c, const char *file, struct sink *const *sinks)
{
	struct decoder *d = malloc(sizeof(*d));
	/* On a terminal the text itself shows how far it is. */
	bool hidden = !isatty(STDOUT_FILENO);
	uint64_t frames = 0;
	struct frame f;
	int ret;

	if (!d)
		return -ENOMEM;
	decoder_init(d, sinks);
	while ((ret = capture_next(c, &f)) == 1) {
		decoder_frame(d, &f);
		if (hidden)
			progress_show("frames read", ++frames, 0);
	}
	progress_end();
	decoder_finish(d);
	decoder_destroy(d);
	free(d);
	if (ret < 0)
		fprintf(stderr, "rocelink decode: %s: %s\n", file, capture_error(c));
	return ret;
}

/* Whether everything reached the file. */
static int close_output(FILE *out, const char *name)
{
	bool failed = ferror(out);

	if (out == stdout ? fflush(out) : fclose(out))
		failed = true;
	if (failed)
		fprintf(stderr, "rocelink decode: %s: %s\n", name, strerror(errno));
	return failed ? -EIO : 0;
}

static int decode_capture(const struct options *o, struct capture *c)
{
	struct sink *sinks[3] = { 0 };
	unsigned n = 0;
	FILE *svg = NULL;
	int ret;

	if (o->svg) {
		svg = fopen(o->svg, "w");
		if (!svg) {
			fprintf(stderr, "rocelink decode: %s: %s\n", o->svg, strerror(errno));
			return -EIO;
		}
		sinks[n++] = svg_sink_create(svg, o->file);
	}
	if (o->json)
		sinks[n++] = json_sink_create(stdout);
	else if (!o->svg)
		sinks[n++] = text_sink_create(stdout);
	ret = decode_frames(c, o->file, sinks);
	for (unsigned i = 0; i < n; i++)
		sink_destroy(sinks[i]);
	if (svg && close_output(svg, o->svg) < 0)
		ret = -EIO;
	if (close_output(stdout, "standard output") < 0)
		ret = -EIO;
	return ret;
}

int command_decode(int argc, char **argv)
{
	struct options o = { 0 };
	char error[512];
	struct capture *c;
	int ret = parse_options(&o, argc, argv);

	if (ret)
		return ret - 1;
	c = capture_open(o.file, error, sizeof(error));
	if (!c) {
		fprintf(stderr, "rocelink decode: %s: %s\n", o.file, error);
		return EXIT_FAILED;
	}
	ret = decode_capture(&o, c);
	capture_close(c);
	return ret < 0 ? EXIT_FAILED : EXIT_OK;
}
