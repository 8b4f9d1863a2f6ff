/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `rocelink run`: start a program with the adapter in front of its libibverbs. Everything is passed
 * in the environment (ROCELINK_*, LD_PRELOAD), so the program's children are on the adapter too;
 * then the program takes this process's place, and its exit status is ours by nature.
 *
 * The library is looked for beside the command (build folder), then where the installation put it,
 * always relative to the command's own file: a moved or second installation finds its own library.
 */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "base/units.h"
#include "tools/commands.h"

/* As env(1), nice(1) and the shells have it: the program's own statuses lie below. */
enum { EXIT_RUN_USAGE = 125, EXIT_CANNOT_START = 126, EXIT_NOT_FOUND = 127 };

struct place {
	const char *subdir; /* relative to the folder of the command */
	const char *file;
};

static const struct place preload_places[] = {
	{ ".", "librocelink-verbs.so.1" },
	{ ROCELINK_BIN_TO_LIB, "librocelink-verbs.so.1" },
};

static const struct place paths_places[] = {
	{ ".", "librocelink-paths.so.1" },
	{ ROCELINK_BIN_TO_LIB, "librocelink-paths.so.1" },
};

static const struct place dropin_places[] = {
	{ "dropin", "libibverbs.so.1" },
	{ ROCELINK_BIN_TO_LIB "/rocelink", "libibverbs.so.1" },
};

static void usage(FILE *out)
{
	fputs("usage: rocelink run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n\n"
	      "Starts PROGRAM, written for RDMA hardware (libibverbs), on the adapter.\n\n"
	      "  --path auto|udp|shm  how packets travel: udp is real RoCE v2 on UDP port 4791;\n"
	      "                       shm is memory shared with processes of this host; auto,\n"
	      "                       the default, takes shm where it can, udp with --pcap\n"
	      "  --pcap FILE          write every packet sent and received to FILE; no root\n"
	      "  --log LEVEL          off (the default), error, warn, info, debug or trace, to\n"
	      "                       stderr; info says why a call was refused, what is right\n"
	      "  --fault FAULTS       such as loss=1%,reorder=0.5%,delay=2ms,dup=0.1%,seed=42;\n"
	      "                       rocelink-run(1) lists them all\n"
	      "  --dropin             also for programs that dlopen() libibverbs, as NCCL does\n"
	      "  --help               this text\n\n"
	      "Each sets ROCELINK_PATH, _PCAP, _LOG or _FAULT, which may be set instead.\n"
	      "Exit status: the program's; 125 wrong usage, 126 PROGRAM cannot be started,\n"
	      "127 not found.\n\n"
	      "Example, in two terminals:\n"
	      "  rocelink run -- ibv_rc_pingpong -g 0\n"
	      "  rocelink run --pcap packets.pcap -- ibv_rc_pingpong -g 0 localhost\n",
	      out);
}

static int command_dir(char dir[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", dir, PATH_MAX - 1);
	char *slash;

	if (n < 0)
		return -errno;
	dir[n] = '\0';
	slash = strrchr(dir, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

/* The first of these places where the file is, as an absolute path without symbolic links. */
static int find_library(const struct place *places, size_t n, char path[PATH_MAX])
{
	char dir[PATH_MAX], candidate[2 * PATH_MAX], resolved[PATH_MAX];
	int ret = command_dir(dir);

	if (ret < 0)
		return ret;
	for (size_t i = 0; i < n; i++) {
		snprintf(candidate, sizeof(candidate), "%s/%s", dir, places[i].subdir);
		/* The folder is resolved, the file not: its name is the soname that counts. */
		if (!realpath(candidate, resolved))
			continue;
		ret = snprintf(path, PATH_MAX, "%s/%s", resolved, places[i].file);
		if (ret < PATH_MAX && access(path, R_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

/* Put value in front of (first) or behind a list such as LD_PRELOAD or LD_LIBRARY_PATH. */
static void env_list_add(const char *name, const char *value, bool first)
{
	const char *old = getenv(name);
	char *list;

	if (!old || !*old) {
		setenv(name, value, 1);
		return;
	}
	if (asprintf(&list, "%s:%s", first ? value : old, first ? old : value) < 0)
		return;
	setenv(name, list, 1);
	free(list);
}

static int complain(const char *option, const char *value, const char *right)
{
	fprintf(stderr, "rocelink run: %s %s: %s\n", option, value, right);
	return EXIT_RUN_USAGE;
}

static int set_path(const char *value)
{
	if (strcmp(value, "auto") != 0 && strcmp(value, "udp") != 0 && strcmp(value, "shm") != 0)
		return complain("--path", value, "unknown; auto, udp and shm are the choices");
	setenv("ROCELINK_PATH", value, 1);
	return 0;
}

static int set_fault(const char *value)
{
	struct fault_plan plan;
	char error[256];

	if (fault_plan_parse(&plan, value, error, sizeof(error)) < 0)
		return complain("--fault", value, error);
	setenv("ROCELINK_FAULT", value, 1);
	return 0;
}

static int set_log(const char *value)
{
	if (log_level_parse(value) < 0)
		return complain("--log", value,
				"unknown; off, error, warn, info, debug and trace are the choices");
	setenv("ROCELINK_LOG", value, 1);
	return 0;
}

/* Made absolute: the program may change its folder before it opens a device. */
static int set_pcap(const char *value)
{
	char cwd[PATH_MAX], absolute[2 * PATH_MAX];

	if (!*value)
		return complain("--pcap", "''", "a file name is needed");
	if (*value == '/') {
		setenv("ROCELINK_PCAP", value, 1);
		return 0;
	}
	if (!getcwd(cwd, sizeof(cwd)))
		return complain("--pcap", value, strerror(errno));
	snprintf(absolute, sizeof(absolute), "%s/%s", cwd, value);
	setenv("ROCELINK_PCAP", absolute, 1);
	return 0;
}

/*
 * A program built with gcc's -fsanitize=address refuses to start behind libraries that are preloaded. It
 * works there all the same. Its user's own options come later in the list, and win.
 */
static void admit_sanitized_programs(void)
{
	env_list_add("ASAN_OPTIONS", "verify_asan_link_order=0", true);
}

/* In a build with a sanitizer, its runtime insists on being in front of everything. */
static void preload_sanitizer(void)
{
	static const char *const entries[] = { "__asan_init", "__tsan_init" };
	Dl_info info;

	for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
		void *entry = dlsym(RTLD_DEFAULT, entries[i]);

		if (entry && dladdr(entry, &info) && info.dli_fname)
			env_list_add("LD_PRELOAD", info.dli_fname, true);
	}
}

static int preload(const struct place *places, size_t n)
{
	char path[PATH_MAX];

	if (find_library(places, n, path) < 0)
		return complain("library", places[0].file,
				"not found beside the command, nor where it would be installed");
	if (strpbrk(path, " :"))
		return complain("library", path,
				"the dynamic linker can't preload from a folder with a space or "
				"colon in its name; move it");
	env_list_add("LD_PRELOAD", path, false);
	return 0;
}

static int set_preload(void)
{
	int ret = preload(preload_places, ARRAY_LEN(preload_places));

	if (ret == 0)
		ret = preload(paths_places, ARRAY_LEN(paths_places));
	preload_sanitizer();
	admit_sanitized_programs();
	return ret;
}

static int set_dropin(void)
{
	char path[PATH_MAX];

	if (find_library(dropin_places, ARRAY_LEN(dropin_places), path) < 0)
		return complain("--dropin", dropin_places[0].file,
				"not found beside the command, nor where it would be installed");
	*strrchr(path, '/') = '\0';
	env_list_add("LD_LIBRARY_PATH", path, true);
	return 0;
}

/* The variables the caller brought, too, are refused here rather than in the program. */
static int check_settings(void)
{
	struct settings settings;
	char error[256];

	if (settings_parse(&settings, environ, error, sizeof(error)) < 0) {
		fprintf(stderr, "rocelink run: %s\n", error);
		return EXIT_RUN_USAGE;
	}
	return 0;
}

static int start(char **argv)
{
	execvp(argv[0], argv);
	fprintf(stderr, "rocelink run: %s: %s\n", argv[0], strerror(errno));
	return errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_START;
}

int command_run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "path", required_argument, NULL, 'p' },
		{ "pcap", required_argument, NULL, 'c' },
		{ "log", required_argument, NULL, 'l' },
		{ "dropin", no_argument, NULL, 'd' },
		{ "fault", required_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool dropin = false;
	int c, ret = 0;

	while (ret == 0 && (c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (c) {
		case 'p':
			ret = set_path(optarg);
			break;
		case 'c':
			ret = set_pcap(optarg);
			break;
		case 'l':
			ret = set_log(optarg);
			break;
		case 'f':
			ret = set_fault(optarg);
			break;
		case 'd':
			dropin = true;
			break;
		case 'h':
			usage(stdout);
			return EXIT_OK;
		default:
			fputs("`rocelink run --help` lists the options\n", stderr);
			return EXIT_RUN_USAGE;
		}
	}
	if (ret == 0 && optind == argc) {
		fputs("rocelink run: no program given; `rocelink run --help` shows how\n", stderr);
		return EXIT_RUN_USAGE;
	}
	if (ret == 0)
		ret = check_settings();
	if (ret == 0 && dropin)
		ret = set_dropin();
	if (ret == 0)
		ret = set_preload();
	return ret == 0 ? start(argv + optind) : ret;
}
