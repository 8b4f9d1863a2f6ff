/* SPDX-License-Identifier: BSD-2-Clause */
/* QPN blocks between real processes, the port's owners, and questions for counters. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/units.h"
#include "endpoint.h"
#include "namespace.h"

#define PROCESSES	   3
#define BLOCKS_PER_PROCESS 100

static struct port_config idle_config(void)
{
	return (struct port_config){ .udp_port = ROCE_UDP_PORT };
}

/* A process that claims blocks, reports them and lives on until it is killed. */
static pid_t start_claimer(int report_fd)
{
	struct port_config config = idle_config();
	int blocks[BLOCKS_PER_PROCESS];
	struct port *port;
	char error[512];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (port_open(&port, &config, error, sizeof(error)))
		_exit(1);
	for (unsigned i = 0; i < BLOCKS_PER_PROCESS; i++)
		blocks[i] = port_claim_block(port);
	if (write(report_fd, blocks, sizeof(blocks)) != sizeof(blocks))
		_exit(1);
	for (;;)
		pause();
}

static unsigned listed_blocks(bool owned[QPN_BLOCKS])
{
	unsigned blocks[QPN_BLOCKS];
	int n = port_list_blocks(blocks, QPN_BLOCKS);

	assert_true(n >= 0);
	memset(owned, 0, QPN_BLOCKS * sizeof(owned[0]));
	for (int i = 0; i < n; i++)
		owned[blocks[i]] = true;
	return (unsigned)n;
}

static void test_unique_and_freed_by_death(void **state)
{
	int blocks[PROCESSES][BLOCKS_PER_PROCESS];
	bool claimed[QPN_BLOCKS] = { false };
	bool owned[QPN_BLOCKS];
	pid_t pids[PROCESSES];
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	for (unsigned p = 0; p < PROCESSES; p++) {
		pids[p] = start_claimer(fds[1]);
		assert_int_equal(read(fds[0], blocks[p], sizeof(blocks[p])), sizeof(blocks[p]));
		for (unsigned i = 0; i < BLOCKS_PER_PROCESS; i++) {
			assert_in_range(blocks[p][i], 1, QPN_BLOCKS - 2);
			assert_false(claimed[blocks[p][i]]);
			claimed[blocks[p][i]] = true;
		}
	}
	assert_int_equal(listed_blocks(owned), PROCESSES * BLOCKS_PER_PROCESS);
	assert_memory_equal(owned, claimed, sizeof(owned));
	for (unsigned p = 0; p < PROCESSES; p++) {
		kill(pids[p], SIGKILL);
		waitpid(pids[p], NULL, 0);
		for (unsigned i = 0; i < BLOCKS_PER_PROCESS; i++)
			claimed[blocks[p][i]] = false;
		assert_int_equal(listed_blocks(owned), (PROCESSES - 1 - p) * BLOCKS_PER_PROCESS);
		assert_memory_equal(owned, claimed, sizeof(owned));
	}
	close(fds[0]);
	close(fds[1]);
}

static void test_release(void **state)
{
	struct port_config config = idle_config();
	bool owned[QPN_BLOCKS];
	struct port *port;
	char error[512];
	int a, b;

	(void)state;
	assert_int_equal(port_open(&port, &config, error, sizeof(error)), 0);
	a = port_claim_block(port);
	b = port_claim_block(port);
	assert_int_equal(listed_blocks(owned), 2);
	port_release_block(port, (unsigned)a);
	assert_int_equal(listed_blocks(owned), 1);
	assert_true(owned[b]);
	port_close(port);
	assert_int_equal(listed_blocks(owned), 0);
}

static void test_all_taken(void **state)
{
	struct port_config config = idle_config();
	int fds[QPN_BLOCKS];
	struct rlimit limit;
	struct port *port;
	char error[512];

	(void)state;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (unsigned i = 0; i < QPN_BLOCKS; i++) {
		struct sockaddr_un un = { .sun_family = AF_UNIX };
		int len = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "rocelink/%u", i);

		fds[i] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (fds[i] < 0) {
			print_message("not enough descriptors\n");
			for (unsigned k = 0; k < i; k++)
				close(fds[k]);
			skip();
		}
		assert_int_equal(
			bind(fds[i], (struct sockaddr *)&un,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)),
			0);
	}
	assert_int_equal(port_open(&port, &config, error, sizeof(error)), 0);
	assert_int_equal(port_claim_block(port), -ENOSPC);
	close(fds[1234]);
	assert_int_equal(port_claim_block(port), 1234);
	port_close(port);
	for (unsigned i = 0; i < QPN_BLOCKS; i++)
		if (i != 1234)
			close(fds[i]);
}

static int bind_stranger(bool reuse, int family)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(ROCE_UDP_PORT) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(ROCE_UDP_PORT) };
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;

	if (reuse)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (family == AF_INET ? bind(fd, (struct sockaddr *)&in, sizeof(in))
			      : bind(fd, (struct sockaddr *)&in6, sizeof(in6))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void expect_in_use(const char *part, const char *other_part)
{
	struct port_config config = idle_config();
	struct port *port = NULL;
	char error[512] = "";

	assert_int_equal(port_open(&port, &config, error, sizeof(error)), -EADDRINUSE);
	assert_null(port);
	if (!strstr(error, "4791") || !strstr(error, part) || !strstr(error, other_part))
		fail_msg("the sentence was: %s", error);
}

static void test_in_use_by_a_process_that_does_not_share(void **state)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct port_config config = idle_config();
	struct port *port;
	char error[512], me[32];

	(void)state;
	snprintf(me, sizeof(me), "process %d (", getpid());
	for (unsigned i = 0; i < 2; i++) {
		int fd = bind_stranger(false, families[i]);

		assert_true(fd >= 0);
		expect_in_use(me, "end that process");
		close(fd);
	}
	assert_int_equal(port_open(&port, &config, error, sizeof(error)), 0);
	port_close(port);
}

static void test_in_use_by_another_user(void **state)
{
	int ready[2];
	char byte;
	pid_t pid;

	(void)state;
	if (!namespace_has_users())
		skip();
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		if (setuid(1) || bind_stranger(true, AF_INET) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	expect_in_use("of user daemon", "only programs of one user");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close(ready[1]);
}

static void test_report(void **state)
{
	struct endpoint e;
	char text[64], want[64], small[5];
	int result[2];
	pid_t pid;

	(void)state;
	endpoint_open(&e, NULL);
	assert_int_equal(pipe(result), 0);
	snprintf(want, sizeof(want), "block %u\n", e.block);
	pid = fork();
	if (pid == 0) {
		int ret = port_query_report(e.block, text, sizeof(text), 10000);

		if (ret == 0 && strcmp(text, want) == 0)
			ret = port_query_report(e.block, small, sizeof(small), 10000);
		else
			ret = -1;
		_exit(ret == 0 && strcmp(small, "bloc") == 0 ? 0 : 1);
	}
	for (int status;;) {
		struct pollfd pfd = { .fd = port_wait_fd(e.port), .events = POLLIN };

		if (waitpid(pid, &status, WNOHANG) == pid) {
			assert_true(WIFEXITED(status));
			assert_int_equal(WEXITSTATUS(status), 0);
			break;
		}
		if (poll(&pfd, 1, 10) > 0)
			port_receive(e.port, 16);
	}
	/* Nobody answers here, and nobody is there. */
	assert_int_equal(port_query_report(e.block, text, sizeof(text), 0), -ETIMEDOUT);
	assert_int_equal(port_query_report(e.block ^ 1, text, sizeof(text), 1000), -ECONNREFUSED);
	assert_int_equal(port_query_report(QPN_BLOCKS, text, sizeof(text), 1000), -EINVAL);
	endpoint_close(&e);
	close(result[0]);
	close(result[1]);
}

static void test_child_lets_go(void **state)
{
	struct port_config config = idle_config();
	bool owned[QPN_BLOCKS];
	struct port *port;
	int block, go[2], gone[2];
	char error[512], byte;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(gone), 0);
	assert_int_equal(port_open(&port, &config, error, sizeof(error)), 0);
	block = port_claim_block(port);
	pid = fork();
	if (pid == 0) {
		port_abandon(port);
		_exit(write(gone[1], "x", 1) == 1 && read(go[0], &byte, 1) == 1 ? 0 : 1);
	}
	assert_int_equal(read(gone[0], &byte, 1), 1);
	listed_blocks(owned);
	assert_true(owned[block]);
	port_close(port);
	/* The child is still there, but holds nothing. */
	assert_int_equal(listed_blocks(owned), 0);
	assert_int_equal(write(go[1], "x", 1), 1);
	waitpid(pid, NULL, 0);
	for (unsigned i = 0; i < 2; i++) {
		close(go[i]);
		close(gone[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unique_and_freed_by_death),
		cmocka_unit_test(test_release),
		cmocka_unit_test(test_all_taken),
		cmocka_unit_test(test_in_use_by_a_process_that_does_not_share),
		cmocka_unit_test(test_in_use_by_another_user),
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_child_lets_go),
	};

	if (!namespace_enter()) {
		print_message("no network namespace can be made here: skipped\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
