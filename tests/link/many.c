/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many connections: one server that serves in an event loop, and clients that come one after the
 * other, all at once, or with many queue pairs in one exchange. Each connection's queue pairs must
 * be in RTS; one line of JSON tells the times, and what descriptors and memory are left.
 *
 *	link_many serve PORT CONNECTIONS QPS [secret|stock]
 *	link_many sequential PORT CONNECTIONS QPS [secret|stock]
 *	link_many crowd PORT CONNECTIONS QPS [secret|stock]
 */
#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "rocelink/rocelink.h"

enum { WAIT_MS = 90000, PERCENT = 100, WARM = 10 };
/* For each phase: what is counted here are connections, not seconds, also on a busy machine. */
#define PATIENCE_US 60000000

static const char host[] = "127.0.0.1";
static const char *port;
static unsigned connections, qps;
static struct rocelink_security security = { .size = sizeof(security) };
static struct rocelink_options options = { .size = sizeof(options),
					   .security = &security,
					   .service_name = "many/1",
					   .connect_timeout_us = PATIENCE_US,
					   .secure_timeout_us = PATIENCE_US,
					   .hello_timeout_us = PATIENCE_US,
					   .ready_timeout_us = PATIENCE_US,
					   .close_timeout_us = PATIENCE_US,
					   .timeout_us = PATIENCE_US };
static struct rocelink_endpoint *base;
static struct rocelink_error err;

/* One connection with its queue pairs, and when it began. */
struct link {
	struct rocelink_conn *conn;
	struct rocelink_endpoint **ends;
	double started;
	bool said, closing;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "link_many: %s: %s\n", what, err.text);
	exit(1);
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static unsigned open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* What is free again doesn't count: how much that was at once depends on how many came at once. */
static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;

	malloc_trim(0);
	if (!f || fscanf(f, "%*d %ld", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * sysconf(_SC_PAGESIZE) / 1024;
}

static void make_queue_pairs(struct link *l)
{
	struct rocelink_endpoint_options o = {
		.size = sizeof(o), .shared = base, .cq = base->cq, .send_depth = 1, .recv_depth = 1
	};

	l->ends = calloc(qps, sizeof(struct rocelink_endpoint *));
	for (unsigned i = 0; l->ends && i < qps; i++)
		if (!(l->ends[i] = rocelink_endpoint_open(&o, &err)))
			die("rocelink_endpoint_open");
}

static void add_and_start(struct link *l)
{
	for (unsigned i = 0; i < qps; i++)
		if (rocelink_conn_add_qp(l->conn, l->ends[i]->qp, NULL, &err))
			die("rocelink_conn_add_qp");
	if (rocelink_conn_start(l->conn, &err))
		die("rocelink_conn_start");
}

static void check_states(const struct link *l)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (unsigned i = 0; i < qps; i++)
		if (ibv_query_qp(l->ends[i]->qp, &attr, IBV_QP_STATE, &init) ||
		    attr.qp_state != IBV_QPS_RTS) {
			fprintf(stderr, "link_many: queue pair %u isn't in RTS\n", i);
			exit(1);
		}
}

static void drop(struct link *l)
{
	rocelink_conn_free(l->conn);
	for (unsigned i = 0; l->ends && i < qps; i++)
		rocelink_endpoint_close(l->ends[i]);
	free(l->ends);
	*l = (struct link){ 0 };
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void report(double *us, unsigned n, double total_us, unsigned files, long kib)
{
	unsigned left = open_files();

	qsort(us, n, sizeof(*us), by_value);
	printf("{\"connections\":%u,\"queue_pairs\":%u,\"seconds\":%.6f,\"per_second\":%.1f,"
	       "\"min_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"files_left\":%d,"
	       "\"grown_kib\":%ld}\n",
	       connections, qps, total_us / 1e6, connections / (total_us / 1e6), us[0], us[n / 2],
	       us[n * 99 / PERCENT], (int)left - (int)files, kib ? resident_kib() - kib : 0);
}

/* From the call to an established connection; what comes before and after isn't measured. */
static void sequential(void)
{
	double *us = calloc(connections, sizeof(*us)), total = 0;
	unsigned files = open_files();
	long kib = 0;

	for (unsigned n = 0; us && n < connections; n++) {
		struct link l = { 0 };

		make_queue_pairs(&l);
		l.started = now_us();
		l.conn = rocelink_dial(host, port, &options, &err);
		if (!l.conn)
			die("rocelink_dial");
		for (unsigned i = 0; i < qps; i++)
			if (rocelink_conn_add_qp(l.conn, l.ends[i]->qp, NULL, &err))
				die("rocelink_conn_add_qp");
		if (rocelink_conn_wait(l.conn, ROCELINK_STATE_OPEN, &err) ||
		    rocelink_conn_establish(l.conn, &err))
			die("connection");
		us[n] = now_us() - l.started;
		total += us[n];
		check_states(&l);
		if (rocelink_conn_close(l.conn, &err))
			die("rocelink_conn_close");
		drop(&l);
		/* What the allocator keeps after the first ones is no growth. */
		if (n == WARM)
			kib = resident_kib();
	}
	report(us, connections, total, files, kib);
	free(us);
}

static void watch(int epfd, struct link *l)
{
	struct epoll_event ev = { .events = EPOLLIN, .data = { .ptr = l } };

	epoll_ctl(epfd, EPOLL_CTL_ADD, rocelink_conn_fd(l->conn), &ev);
}

/* One step of a link; true when it has ended. */
static bool advance(struct link *l, bool server)
{
	enum rocelink_state state;
	bool over;

	if (rocelink_conn_drive(l->conn, &err))
		die(server ? "serving" : "connecting");
	state = rocelink_conn_state(l->conn);
	if (state >= ROCELINK_STATE_ESTABLISHED && !l->said) {
		l->said = true;
		check_states(l);
	}
	/* The client ends; the stock exchange has no BYE to wait for. */
	over = server && !options.compat ? state == ROCELINK_STATE_CLOSING
					 : state == ROCELINK_STATE_ESTABLISHED;
	if (over && !l->closing) {
		l->closing = true;
		if (rocelink_conn_bye(l->conn, &err))
			die("rocelink_conn_bye");
		state = rocelink_conn_state(l->conn);
	}
	return state == ROCELINK_STATE_CLOSED;
}

static unsigned advance_client(struct link *l, double *us, unsigned *done, double started)
{
	bool before = l->said, ended = advance(l, false);

	if (!before && l->said)
		us[(*done)++] = now_us() - started;
	if (ended)
		drop(l);
	return ended;
}

/* All connect before the first is waited for. */
static void crowd(void)
{
	struct link *links = calloc(connections, sizeof(*links));
	double *us = calloc(connections, sizeof(*us)), started;
	unsigned files = open_files(), left = connections, done = 0;
	int epfd = epoll_create1(0);

	for (unsigned n = 0; n < connections; n++)
		make_queue_pairs(&links[n]);
	started = now_us();
	for (unsigned n = 0; n < connections; n++) {
		links[n].conn = rocelink_dial(host, port, &options, &err);
		if (!links[n].conn)
			die("rocelink_dial");
		add_and_start(&links[n]);
		watch(epfd, &links[n]);
		left -= advance_client(&links[n], us, &done, started);
	}
	while (left) {
		struct epoll_event events[64];
		int n = epoll_wait(epfd, events, 64, WAIT_MS);

		if (n <= 0)
			die("nothing happens");
		for (int i = 0; i < n; i++)
			left -= advance_client(events[i].data.ptr, us, &done, started);
	}
	close(epfd);
	report(us, connections, us[connections - 1], files, 0);
	free(us);
	free(links);
}

/* Those that ended at once too: a quick peer's whole conversation may be in already. */
static unsigned accept_all(int epfd, struct rocelink_listener *listener, struct link *links)
{
	struct rocelink_conn *conn;
	unsigned ended = 0;

	while ((conn = rocelink_listener_take(listener, &err))) {
		struct link *l = links;

		while (l->conn)
			l++;
		*l = (struct link){ .conn = conn };
		make_queue_pairs(l);
		add_and_start(l);
		watch(epfd, l);
		if (advance(l, true)) {
			drop(l);
			ended++;
		}
	}
	if (err.code != ROCELINK_AGAIN)
		die("rocelink_listener_take");
	return ended;
}

/* The clients have ended or will soon; the adapter's paths to them end with them. */
static void wait_for_the_last_client(unsigned files)
{
	for (unsigned ms = 0; open_files() > files && ms < WAIT_MS; ms += 10)
		poll(NULL, 0, 10);
}

static void serve(void)
{
	struct link *links = calloc(connections + 1, sizeof(*links));
	unsigned files = open_files(), left = connections;
	struct rocelink_listener *listener;
	struct epoll_event ev = { .events = EPOLLIN };
	int epfd = epoll_create1(0);
	long kib = 0;

	listener = rocelink_listen(host, port, ROCELINK_LISTEN(.conn = &options), &err);
	if (!listener)
		die("rocelink_listen");
	epoll_ctl(epfd, EPOLL_CTL_ADD, rocelink_listener_fd(listener), &ev);
	printf("port %u\n", rocelink_listener_port(listener));
	fflush(stdout);
	while (left) {
		struct epoll_event events[64];
		int n = epoll_wait(epfd, events, 64, WAIT_MS);

		if (n <= 0)
			die("nobody comes");
		for (int i = 0; i < n; i++) {
			struct link *l = events[i].data.ptr;

			if (!l) {
				left -= accept_all(epfd, listener, links);
			} else if (advance(l, true)) {
				drop(l);
				left--;
			}
			if (left + WARM == connections && !kib)
				kib = resident_kib();
		}
	}
	rocelink_listener_free(listener);
	close(epfd);
	free(links);
	wait_for_the_last_client(files);
	report((double[]){ 0 }, 1, 1, files, kib);
}

int main(int argc, char **argv)
{
	const char *how = argc > 5 ? argv[5] : "";

	if (argc < 5) {
		fputs("usage: link_many serve|sequential|crowd PORT CONNECTIONS QPS "
		      "[secret|stock]\n",
		      stderr);
		return 2;
	}
	port = argv[2];
	connections = (unsigned)atoi(argv[3]);
	qps = (unsigned)atoi(argv[4]);
	if (strcmp(how, "secret") == 0) {
		security.secret = "a secret of this test, not of the world";
		security.secret_len = strlen(security.secret);
	} else if (strcmp(how, "stock") == 0) {
		options.compat = ROCELINK_COMPAT_PINGPONG;
	}
	/* The device stays open, as in a program that has many peers. */
	base = rocelink_endpoint_open(ROCELINK_ENDPOINT(.host = host), &err);
	if (!base)
		die("rocelink_endpoint_open");
	if (strcmp(argv[1], "serve") == 0)
		serve();
	else if (strcmp(argv[1], "crowd") == 0)
		crowd();
	else
		sequential();
	rocelink_endpoint_close(base);
	return 0;
}
