/* SPDX-License-Identifier: BSD-2-Clause */
/* Garbage at the socket, fairness between sockets, and that an idle port stays quiet. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static struct endpoint a, b;
static struct endpoint *both[] = { &a, &b };

static int set_up(void **state)
{
	(void)state;
	endpoint_open(&a, NULL);
	endpoint_open(&b, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	endpoint_close(&a);
	endpoint_close(&b);
	return 0;
}

/* A stranger's datagram, cut into segments of seg_len where that isn't 0. */
static void send_raw(const void *data, size_t len, int seg_len)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(ROCE_UDP_PORT),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (seg_len)
		assert_int_equal(
			setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &seg_len, sizeof(seg_len)), 0);
	assert_int_equal(sendto(fd, data, len, 0, (struct sockaddr *)&in, sizeof(in)), len);
	close(fd);
	endpoints_settle(both, 2);
}

static unsigned short_drops(void)
{
	return a.drops[DROP_SHORT] + b.drops[DROP_SHORT];
}

static void test_short_packets(void **state)
{
	uint8_t data[4096] = { 0 };

	(void)state;
	send_raw(data, 0, 0);
	assert_int_equal(short_drops(), 1);
	send_raw(data, 1, 0);
	assert_int_equal(short_drops(), 2);
	send_raw(data, 15, 0);
	assert_int_equal(short_drops(), 3);
	assert_int_equal(a.n_packets + b.n_packets, 0);
	/* QPN 0: whoever gets it keeps it. */
	send_raw(data, 16, 0);
	assert_int_equal(short_drops(), 3);
	assert_int_equal(a.n_packets + b.n_packets, 1);
	/* Ten segments of 8 bytes, the last of 3. */
	send_raw(data, 75, 8);
	assert_int_equal(short_drops(), 13);
	/* Four good ones and a tail. */
	send_raw(data, 4 * 20 + 15, 20);
	assert_int_equal(short_drops(), 14);
	assert_int_equal(a.n_packets + b.n_packets, 5);
	/* A tail that is long enough. */
	send_raw(data, 4 * 20 + 16, 20);
	assert_int_equal(short_drops(), 14);
	assert_int_equal(a.n_packets + b.n_packets, 10);
}

static void test_longest_datagram(void **state)
{
	static uint8_t data[65507];

	(void)state;
	send_raw(data, sizeof(data), 0);
	assert_int_equal(a.n_packets + b.n_packets, 1);
	assert_int_equal(a.n_bursts ? a.bursts[0].len : b.bursts[0].len, sizeof(data));
}

/* The budget bounds a call; nothing is lost by it. */
static void test_budget(void **state)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xc111);
	struct pollfd pfd;
	unsigned calls = 0;

	(void)state;
	port_flow_get(b.port, &path);
	for (unsigned i = 0; i < 200; i++) {
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 64);
		endpoint_send(&a);
	}
	pfd = (struct pollfd){ .fd = port_wait_fd(b.port), .events = POLLIN };
	assert_int_equal(poll(&pfd, 1, 10000), 1);
	while (b.n_packets < 200 && calls++ < 1000) {
		unsigned before = b.n_packets;
		int bursts = port_receive(b.port, 8);

		assert_true(bursts <= 2 * 8);
		assert_int_equal(b.n_packets - before, bursts);
	}
	assert_int_equal(b.n_packets, 200);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(endpoint_psn(&b, i), i);
}

/* A flow that never runs dry doesn't hide the others. */
static void test_busy_flow_is_fair(void **state)
{
	struct path busy = path_of("127.0.0.1", "127.0.0.1", 0xc111);
	struct path quiet = path_of("127.0.0.1", "127.0.0.1", 0xc222);
	unsigned calls = 0;

	(void)state;
	port_flow_get(b.port, &busy);
	port_flow_get(b.port, &quiet);
	endpoint_queue(&a, &busy, endpoint_qpn(&b, 1), 0, 64);
	endpoint_send(&a);
	endpoints_await(both, 2, 1);
	endpoint_queue(&a, &quiet, endpoint_qpn(&b, 1), 0xabcdef, 64);
	endpoint_send(&a);
	for (;; calls++) {
		assert_true(calls < 20);
		endpoint_queue(&a, &busy, endpoint_qpn(&b, 1), calls, 64);
		endpoint_send(&a);
		port_receive(b.port, 4);
		if (endpoint_psn(&b, b.n_packets - 1) == 0xabcdef)
			break;
	}
}

static void test_idle_port_is_quiet(void **state)
{
	struct pollfd pfd = { .fd = port_wait_fd(a.port), .events = POLLIN };

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(port_receive(a.port, 16), 0);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	port_want_write(a.port, true); /* nothing is blocked */
	assert_int_equal(poll(&pfd, 1, 0), 0);
	port_want_write(a.port, false);
}

/* Bytes waiting in the socket bound to this port (the kernel's table). */
static unsigned waiting_bytes(unsigned udp_port)
{
	FILE *f = fopen("/proc/net/udp", "re");
	unsigned number, queued, found = ~0u;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, " %*d: %*x:%x %*x:%*x %*x %*x:%x", &number, &queued) == 2 &&
		    number == udp_port)
			found = queued;
	fclose(f);
	return found;
}

/* What was sent to a sending socket's own port costs no memory and wakes nobody. */
static void test_sending_sockets_are_deaf(void **state)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xc333);
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(0xc333),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct pollfd pfd;

	(void)state;
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 0, 64);
	endpoint_send(&a);
	endpoints_await(both, 2, 1);
	assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&in, sizeof(in)), 1);
	pfd = (struct pollfd){ .fd = port_wait_fd(a.port), .events = POLLIN };
	assert_int_equal(poll(&pfd, 1, 0), 0);
	assert_int_equal(port_receive(a.port, 16), 0);
	assert_int_equal(waiting_bytes(0xc333), 0);
	close(fd);
}

static void test_window(void **state)
{
	(void)state;
	assert_true(port_receive_window(a.port) >= 64 << 10);
}

/* A process that ends hands over what the kernel had put into its socket for another. */
static void test_closing_loses_nothing(void **state)
{
	struct endpoint *only_b[] = { &b };
	struct endpoint c;

	(void)state;
	endpoint_open(&c, NULL);
	for (unsigned i = 0; i < 40; i++) {
		struct path path = path_of("127.0.0.1", "127.0.0.1", (uint16_t)(0xc500 + i));

		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 64);
		path = path_of("::1", "::1", (uint16_t)(0xc600 + i));
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 64);
	}
	endpoint_send(&a);
	assert_true(poll(&(struct pollfd){ port_wait_fd(c.port), POLLIN, 0 }, 1, 0) == 1);
	endpoint_close(&c);
	endpoint_close(&a);
	endpoints_settle(only_b, 1);
	endpoint_open(&a, NULL); /* the teardown closes it */
	assert_int_equal(b.n_packets, 80);
}

/* A flow may be put from inside the handler, also that of the burst at hand. */
static void close_flow(void *arg, const struct burst *burst)
{
	struct endpoint *e = arg;

	e->n_packets++;
	port_flow_put(e->port, &burst->path);
}

static bool all_local(void *arg, uint32_t qpn)
{
	(void)arg;
	(void)qpn;
	return true;
}

static void test_flow_put_in_handler(void **state)
{
	struct port_config config = { .callbacks = { .receive = close_flow,
						     .is_local_qpn = all_local },
				      .arg = &b,
				      .udp_port = ROCE_UDP_PORT };
	char error[256];

	(void)state;
	port_close(b.port);
	assert_int_equal(port_open(&b.port, &config, error, sizeof(error)), 0);
	for (unsigned i = 0; i < 10; i++) {
		struct path path = path_of("127.0.0.1", "127.0.0.1", (uint16_t)(0xc400 + i));

		port_flow_get(b.port, &path);
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 64);
		endpoint_send(&a);
	}
	endpoints_await(both, 2, 10);
	assert_int_equal(b.n_packets, 10);
	assert_int_equal(port_stats(b.port)->flows, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_short_packets),
		TEST(test_longest_datagram),
		TEST(test_budget),
		TEST(test_busy_flow_is_fair),
		TEST(test_idle_port_is_quiet),
		TEST(test_sending_sockets_are_deaf),
		TEST(test_window),
		TEST(test_closing_loses_nothing),
		TEST(test_flow_put_in_handler),
	};

	if (!namespace_enter()) {
		print_message("no network namespace can be made here: skipped\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
