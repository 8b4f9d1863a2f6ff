/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rocelink command: finds the subcommand in a table and hands it the rest of the line.
 */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "tools/commands.h"

struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *summary;
};

/* clang-format off */
static const struct command commands[] = {
	{ "run",      command_run,      "start any verbs program on the adapter" },
	{ "devices",  command_devices,  "the RDMA devices of this machine and their addresses" },
	{ "pingpong", command_pingpong, "connect two queue pairs and measure them" },
	{ "decode",   command_decode,   "tell what a capture file holds" },
	{ "doctor",   command_doctor,   "find out why it doesn't work" },
	{ "counters", command_counters, "packets sent, received and dropped, by reason" },
};
/* clang-format on */

static void usage(FILE *out)
{
	fputs("rocelink: RoCE v2 in user space, and queue pairs connected over a socket\n\n"
	      "usage: rocelink COMMAND [OPTIONS]      rocelink COMMAND --help\n\n",
	      out);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fputs("\n"
	      "  --help     this text\n"
	      "  --version  the version\n\n"
	      "Exit status: 0 done, 1 could not be done, 2 wrong usage; `rocelink run` exits\n"
	      "as the program does, or 125 wrong usage, 126 can't be started, 127 not found.\n"
	      "The manual: man rocelink\n",
	      out);
}

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

int main(int argc, char **argv)
{
	const struct command *command;
	char full_name[32];

	if (argc < 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		usage(stdout);
		return EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		puts("rocelink " ROCELINK_VERSION);
		return EXIT_OK;
	}
	command = command_find(argv[1]);
	if (!command) {
		fprintf(stderr, "rocelink: no command '%s'; `rocelink --help` lists them\n",
			argv[1]);
		return EXIT_USAGE;
	}
	/* getopt's messages begin with argv[0]. */
	snprintf(full_name, sizeof(full_name), "rocelink %s", command->name);
	argv[1] = full_name;
	return command->main(argc - 1, argv + 1);
}
