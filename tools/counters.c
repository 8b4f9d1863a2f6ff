/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `rocelink counters`: ask the adapter of every process on this host (in this network namespace)
 * for its counters and print them. The adapters are found by the queue pair number blocks they own;
 * each answers from its own socket, so nothing is shared and nothing stays behind.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "net/port.h"
#include "tools/commands.h"

enum { ANSWER_TIMEOUT_MS = 2000 };

static void usage(FILE *out)
{
	fputs("usage: rocelink counters\n\n"
	      "For every process of yours that runs on the adapter: packets sent and received, "
	      "what was\n"
	      "retransmitted, and what was dropped, by reason. Counters that are zero are left "
	      "out.\n"
	      "Processes of another user don't answer.\n\n"
	      "Exit status: 0 done (also when no process runs), 1 a process did not answer.\n",
	      out);
}

static int print_report(unsigned block)
{
	char text[8192];
	int ret = port_query_report(block, text, sizeof(text), ANSWER_TIMEOUT_MS);

	if (ret == -ENOENT || ret == -ECONNREFUSED)
		return 0; /* ended since the list was made */
	if (ret < 0) {
		fprintf(stderr, "rocelink counters: block %u: no answer: %s\n", block,
			strerror(-ret));
		return -1;
	}
	fputs(text, stdout);
	return 0;
}

int command_counters(int argc, char **argv)
{
	unsigned blocks[QPN_BLOCKS];
	int n, failed = 0;

	if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		usage(stdout);
		return EXIT_OK;
	}
	if (argc > 1) {
		fprintf(stderr, "rocelink counters: %s: no such option; `--help` says more\n",
			argv[1]);
		return EXIT_USAGE;
	}
	n = port_list_blocks(blocks, ARRAY_LEN(blocks));
	if (n < 0) {
		fprintf(stderr, "rocelink counters: /proc/net/unix: %s\n", strerror(-n));
		return EXIT_FAILED;
	}
	if (n == 0)
		puts("no process runs on the adapter in this network namespace");
	for (int i = 0; i < n && i < (int)ARRAY_LEN(blocks); i++)
		if (print_report(blocks[i]) < 0)
			failed++;
	return failed ? EXIT_FAILED : EXIT_OK;
}
