/* SPDX-License-Identifier: BSD-2-Clause */
/* `rocelink devices`: every device, its ports and GIDs, and which of them leads to a host. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/devices.h"

struct options {
	bool verbose, json;
	const char *to;
};

static void usage(FILE *out)
{
	fputs("usage: rocelink devices [-v] [--json] [--to HOST]\n\n"
	      "The RDMA devices of this machine, real ones and the adapter's, with their\n"
	      "ports and GIDs and the interface and address behind each GID.\n\n"
	      "  -v, --verbose  limits, GUIDs and the GIDs themselves too\n"
	      "  --to HOST      which GID leads to this host, and why; it is marked with ->\n"
	      "  --json         everything, as one JSON object\n"
	      "  --help         this text\n\n"
	      "Exit status: 0 done, 1 no device, or none that leads to HOST, 2 wrong usage.\n"
	      "The manual: man rocelink-devices\n",
	      out);
}

/* 0, or the exit status + 1. */
static int parse_options(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "verbose", no_argument, NULL, 'v' },
		{ "json", no_argument, NULL, 'j' },
		{ "to", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	optind = 1;
	while ((c = getopt_long(argc, argv, "vh", longs, NULL)) != -1)
		switch (c) {
		case 'v':
			o->verbose = true;
			break;
		case 'j':
			o->json = true;
			break;
		case 't':
			o->to = optarg;
			break;
		case 'h':
			usage(stdout);
			return EXIT_OK + 1;
		default:
			return EXIT_USAGE + 1;
		}
	if (optind != argc) {
		fprintf(stderr, "rocelink devices: %s: unexpected; --to HOST names a host\n",
			argv[optind]);
		return EXIT_USAGE + 1;
	}
	return 0;
}

int command_devices(int argc, char **argv)
{
	struct options o = { 0 };
	struct device_choice choice = { .gid = { .size = sizeof(choice.gid) } };
	struct device_info *list;
	int n, status = parse_options(&o, argc, argv);

	if (status)
		return status - 1;
	list = devices_collect(&n);
	/* The adapter has said on standard error which setting it is. */
	if (n == 0 && errno == EINVAL)
		fputs("rocelink devices: a ROCELINK_ setting in the environment is wrong, so the "
		      "adapter doesn't start; `rocelink doctor` lists the settings\n",
		      stderr);
	else if (n == 0 && errno)
		fprintf(stderr, "rocelink devices: %s; `rocelink doctor` finds out why\n",
			strerror(errno));
	else if (n == 0)
		fputs("rocelink devices: there is none: no interface is up and has an address\n",
		      stderr);
	choice.host = o.to;
	if (o.to)
		choice.found = rocelink_gid_choose(NULL, o.to, &choice.gid, &choice.err) == 0;
	if (o.json)
		devices_print_json(list, n, &choice);
	else
		devices_print_text(list, n, &choice, o.verbose);
	fflush(stdout);
	if (o.to && !choice.found)
		fprintf(stderr, "rocelink devices: to %s: %s\n", o.to, choice.err.text);
	devices_free(list, n);
	return n == 0 || (o.to && !choice.found) ? EXIT_FAILED : EXIT_OK;
}
