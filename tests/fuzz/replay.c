/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a fuzz target over the files of directories, with any compiler: how corpora are part of the
 * tests. And for a finding, where the target deals in packets:
 *
 *	replay_TARGET --pcap CAPTURE INPUT
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

#pragma weak fuzz_pcap

static int replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *data;
	size_t n;

	if (!f || fstat(fileno(f), &st) != 0) {
		perror(path);
		return -1;
	}
	/* Exactly as long as the input, so that a read beyond it is noticed. */
	data = malloc((size_t)st.st_size + !st.st_size);
	n = data ? fread(data, 1, (size_t)st.st_size, f) : 0;
	fclose(f);
	LLVMFuzzerTestOneInput(data, n);
	free(data);
	return 0;
}

static int replay_dir(const char *path, int *count)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	if (!dir) {
		perror(path);
		return -1;
	}
	while ((e = readdir(dir))) {
		char file[4096];

		if (e->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		if (replay_file(file) != 0)
			return -1;
		(*count)++;
	}
	closedir(dir);
	return 0;
}

int main(int argc, char **argv)
{
	int count = 0;

	if (argc == 4 && strcmp(argv[1], "--pcap") == 0 && &fuzz_pcap) {
		fuzz_pcap = argv[2];
		return replay_file(argv[3]) != 0;
	}
	for (int i = 1; i < argc; i++)
		if (replay_dir(argv[i], &count) != 0)
			return 1;
	printf("%d inputs\n", count);
	return count == 0;
}
