/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `rocelink counters`: ask the adapter of every process on this host (in this network namespace)
 * for its counters and print them. The adapters are found by the queue pair number blocks they own;
 * each answers from its own socket, so nothing is shared and nothing stays behind.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "net/port.h"
#include "tools/commands.h"

enum { ANSWER_TIMEOUT_MS = 2000 };

struct seen {
	unsigned long long pids[QPN_BLOCKS];
	size_t n;
};

static void usage(FILE *out)
{
	fputs("usage: rocelink counters\n\n"
	      "For every process of yours that runs on the adapter: packets sent and\n"
	      "received, what was retransmitted, and what was dropped, by reason. Counters\n"
	      "that are zero are left out.\n"
	      "Processes of another user don't answer.\n\n"
	      "Exit status: 0 done (also when no process runs), 1 a process did not answer.\n",
	      out);
}

static const char *explanation(const char *drop)
{
	for (int d = DROP_NONE + 1; d < DROP_COUNT; d++)
		if (strcmp(drop, drop_name((enum drop)d)) == 0)
			return drop_explanation((enum drop)d);
	return "";
}

static void print_process(unsigned long long pid)
{
	char path[64], comm[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%llu/comm", pid);
	file = fopen(path, "r");
	if (file) {
		if (fgets(comm, sizeof(comm), file))
			comm[strcspn(comm, "\n")] = '\0';
		fclose(file);
	}
	printf("process %llu %s\n", pid, comm);
}

/* The text is "name value" lines, the first names the process; drops are "drop_REASON". */
static void print_report(char *text)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long long value;
		char name[64];

		if (sscanf(line, "%63s %llu", name, &value) != 2 || value == 0)
			continue;
		if (strcmp(name, "pid") == 0)
			print_process(value);
		else if (strncmp(name, "drop_", 5) == 0)
			printf("  dropped %-12s %12llu  %s\n", name + 5, value,
			       explanation(name + 5));
		else
			printf("  %-20s %12llu\n", name, value);
	}
}

/* A process that owns several blocks gives the same answer for each. */
static bool seen_before(struct seen *seen, const char *text)
{
	unsigned long long pid;

	if (sscanf(text, "pid %llu", &pid) != 1)
		return false;
	for (size_t i = 0; i < seen->n; i++)
		if (seen->pids[i] == pid)
			return true;
	if (seen->n < ARRAY_LEN(seen->pids))
		seen->pids[seen->n++] = pid;
	return false;
}

static int report_block(unsigned block, struct seen *seen)
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
	if (!seen_before(seen, text))
		print_report(text);
	return 0;
}

int command_counters(int argc, char **argv)
{
	unsigned blocks[QPN_BLOCKS];
	struct seen seen = { .n = 0 };
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
		if (report_block(blocks[i], &seen) < 0)
			failed++;
	return failed ? EXIT_FAILED : EXIT_OK;
}
