/* SPDX-License-Identifier: BSD-2-Clause */
/* The files of a device that has no kernel driver, as programs look at them: linked to the library that
 * `rocelink run` puts in front of a program. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs/symbols.h"

#define LO "/sys/class/infiniband/rl_lo/"

/* What open() is in programs built with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);

static void expect(const char *path, const char *text)
{
	char got[100];
	FILE *f = fopen(path, "r");

	if (!f)
		fail_msg("%s: %m", path);
	assert_non_null(fgets(got, sizeof(got), f));
	assert_string_equal(got, text);
	assert_null(fgets(got, sizeof(got), f));
	fclose(f);
}

static void test_files(void **state)
{
	char text[100] = "";
	int fd;

	(void)state;
	expect(LO "node_type", "1: CA\n");
	expect(LO "ports/1/link_layer", "Ethernet\n");
	expect(LO "ports/1/state", "4: ACTIVE\n");
	expect(LO "ports/1/pkeys/0", "0xffff\n");
	expect(LO "ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
	expect(LO "ports/1/gids/63", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	expect(LO "ports/1/gid_attrs/types/0", "RoCE v2\n");
	expect(LO "ports/1/gid_attrs/ndevs/0", "lo\n");
	fd = open(LO "ports/1/gid_attrs/types/0", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), 8);
	close(fd);
	fd = __open_2(LO "ports/1/gid_attrs/types/0", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), 8);
	close(fd);
	assert_int_equal(ibv_read_sysfs_file("/sys/class/infiniband/rl_lo",
					     "ports/1/gid_attrs/types/0", text, sizeof(text)),
			 7);
	assert_string_equal(text, "RoCE v2");
}

static void no_file(const char *path, int flags, int error)
{
	errno = 0;
	assert_int_equal((open)(path, flags), -1);
	assert_int_equal(errno, error);
	errno = 0;
	assert_int_equal(__open_2(path, flags), -1);
	assert_int_equal(errno, error);
	errno = 0;
	assert_int_equal(__open64_2(path, flags), -1);
	assert_int_equal(errno, error);
}

static void test_not_there(void **state)
{
	(void)state;
	/* An entry that isn't used: what NCCL meets at each. */
	no_file(LO "ports/1/gid_attrs/types/63", O_RDONLY, EINVAL);
	no_file(LO "ports/1/gid_attrs/types/64", O_RDONLY, ENOENT);
	no_file(LO "ports/1/gid_attrs/types/x", O_RDONLY, ENOENT);
	no_file(LO "ports/1/gid_attrs/types/", O_RDONLY, ENOENT);
	no_file(LO "ports/2/link_layer", O_RDONLY, ENOENT);
	no_file(LO "node_type", O_RDWR, EACCES);
	no_file("/sys/class/infiniband/rl_none/node_type", O_RDONLY, ENOENT);
	no_file("/sys/class/infiniband/rl_lo", O_RDONLY, ENOENT);
	assert_null(fopen(LO "ports/1/gid_attrs/types/63", "r"));
}

/* A device's node exists and can be opened; other files are the system's. */
static void test_node(void **state)
{
	char name[] = "/tmp/paths.XXXXXX";
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(stat("/dev/infiniband/rl_lo", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(access("/dev/infiniband/rl_lo", R_OK | W_OK), 0);
	assert_int_equal(stat("/dev/infiniband/no_device", &st), -1);
	assert_int_equal(access("/nowhere", R_OK), -1);
	fd = mkstemp(name);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(stat(name, &st), 0);
	unlink(name);
	/* The third argument goes on. */
	fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0640);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777 & ~0640u, 0);
	assert_int_equal(st.st_mode & 0600, 0600);
	close(fd);
	unlink(name);
}

/* What is said on stderr while the connection manager's node is opened so often. */
static void open_cm(unsigned times, char *said, size_t cap)
{
	int keep = dup(STDERR_FILENO), fds[2];
	ssize_t n;

	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	fflush(stderr);
	dup2(fds[1], STDERR_FILENO);
	for (unsigned i = 0; i < times; i++)
		no_file("/dev/infiniband/rdma_cm", O_RDWR, ENOENT);
	fflush(stderr);
	dup2(keep, STDERR_FILENO);
	n = read(fds[0], said, cap - 1);
	said[n > 0 ? n : 0] = '\0';
	close(keep);
	close(fds[0]);
	close(fds[1]);
}

/* A program of librdmacm learns once why it fails. */
static void test_no_connection_manager(void **state)
{
	char said[1000];

	(void)state;
	if (access("/dev/infiniband/rdma_cm", F_OK) == 0)
		skip(); /* a machine that has one */
	open_cm(2, said, sizeof(said));
	assert_non_null(strstr(said, "librdmacm"));
	assert_non_null(strstr(said, "TCP"));
	assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
	open_cm(1, said, sizeof(said));
	assert_string_equal(said, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_not_there),
		cmocka_unit_test(test_node),
		cmocka_unit_test(test_no_connection_manager),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
