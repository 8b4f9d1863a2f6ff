// SPDX-License-Identifier: BSD-2-Clause
/*
 * agent - runs commands in the guest for the host side of the interop tests.
 *
 * One TCP connection runs one command:
 *
 *   host  -> guest   script, NUL
 *   guest -> host    the script's output as it comes, then NUL, exit status in decimal, end of file
 *
 * The script is given to `sh -c` in a process group of its own. A connection that the host closes
 * early kills the group, so nothing a test started outlives it. A script ended by signal n reports
 * 128 + n, as a shell does.
 *
 * `agent listening PORT SECONDS` waits until a program in its network namespace listens there: what a
 * loop in the shell does too, with a dozen processes, which an emulated processor is slow to start.
 *
 * It listens on the management link only and is one of the two things init starts: there is
 * no authentication, the guest holds nothing but test programs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SCRIPT_MAX = 65536, BACKLOG = 64, LOOKS_PER_SECOND = 50 };

static int listen_on(const char *address, const char *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	if (fd < 0 || inet_pton(AF_INET, address, &sin.sin_addr) != 1)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) || listen(fd, BACKLOG))
		return -1;
	return fd;
}

static int read_script(int fd, char *script)
{
	size_t len = 0;

	while (len < SCRIPT_MAX) {
		ssize_t n = read(fd, script + len, SCRIPT_MAX - len);

		if (n <= 0)
			return -1;
		len += (size_t)n;
		if (script[len - 1] == '\0')
			return 0;
	}
	return -1;
}

static pid_t start(int fd, const char *script, const sigset_t *unblocked)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setpgid(0, 0);
	sigprocmask(SIG_SETMASK, unblocked, NULL);
	freopen("/dev/null", "r", stdin);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execl("/bin/sh", "sh", "-c", script, (char *)NULL);
	_exit(127);
}

/* Until the child ends (true) or the host hangs up (false). */
static int wait_for_end(int fd, int sigfd)
{
	struct pollfd polls[] = { { .fd = sigfd, .events = POLLIN },
				  { .fd = fd, .events = POLLIN } };
	char byte;

	for (;;) {
		if (poll(polls, 2, -1) < 0 && errno != EINTR)
			return 0;
		if (polls[0].revents)
			return 1;
		if (polls[1].revents && read(fd, &byte, 1) <= 0)
			return 0;
	}
}

static void serve(int fd)
{
	static char script[SCRIPT_MAX];
	sigset_t child, unblocked;
	int sigfd, status, ended;
	pid_t pid;

	if (read_script(fd, script))
		return;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &unblocked);
	sigfd = signalfd(-1, &child, SFD_CLOEXEC);
	pid = start(fd, script, &unblocked);
	if (pid < 0 || sigfd < 0)
		return;
	ended = wait_for_end(fd, sigfd);
	if (!ended)
		kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (ended)
		dprintf(fd, "%c%d", 0,
			WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	shutdown(fd, SHUT_RDWR);
}

static int is_listening(const char *table, int port)
{
	char line[512];
	FILE *file = fopen(table, "r");
	int found = 0;

	while (file && !found && fgets(line, sizeof(line), file)) {
		unsigned int local, state;

		found = sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &local, &state) ==
				2 &&
			(int)local == port && state == TCP_LISTEN;
	}
	if (file)
		fclose(file);
	return found;
}

static int wait_listening(int port, int seconds)
{
	for (int i = 0; i < seconds * LOOKS_PER_SECOND; i++) {
		if (is_listening("/proc/net/tcp", port) || is_listening("/proc/net/tcp6", port))
			return 0;
		usleep(1000000 / LOOKS_PER_SECOND);
	}
	return 1;
}

int main(int argc, char **argv)
{
	int lfd;

	if (argc == 4 && !strcmp(argv[1], "listening"))
		return wait_listening(atoi(argv[2]), atoi(argv[3]));
	lfd = argc == 3 ? listen_on(argv[1], argv[2]) : -1;
	if (lfd < 0) {
		fprintf(stderr, "agent: usage: agent ADDRESS PORT (%s)\n", strerror(errno));
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		if (fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			serve(fd);
			_exit(0);
		}
		close(fd);
	}
}
