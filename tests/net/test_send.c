/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What leaves the port: over every address family, in one segmented send, packet by packet where
 * the kernel wants that, from another source port. And what the kernel then puts on the wire, seen
 * by a packet socket: the IPv4 identifications on which the ICRCs rest.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"
#include "wire/icrc.h"

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

static void check_payloads(const struct endpoint *e, uint32_t payload_len)
{
	for (unsigned i = 0; i < e->n_packets; i++) {
		size_t len;
		const uint8_t *p = endpoint_packet(e, i, NULL, &len);
		uint32_t psn = endpoint_psn(e, i);

		assert_int_equal(len, BTH_LEN + payload_len + packet_pad(payload_len) + ICRC_LEN);
		for (uint32_t k = 0; k < payload_len; k++)
			assert_int_equal(p[BTH_LEN + k], (uint8_t)(psn * 7 + k * 13 + (k >> 8)));
	}
}

/* Both ways over these addresses, one packet and a group of 15. */
static void exchange(const char *from, const char *to, unsigned ifindex)
{
	struct path path = path_of(from, to, port_sport(endpoint_qpn(&a, 0), endpoint_qpn(&b, 0)));
	const struct kept_burst *burst;

	path.ifindex = ifindex;
	endpoint_queue(&a, &path, endpoint_qpn(&b, 5), 0, 5);
	endpoint_send(&a);
	for (unsigned i = 0; i < 15; i++)
		endpoint_queue(&a, &path, endpoint_qpn(&b, 5), 1 + i, 1024);
	endpoint_send(&a);
	endpoints_await(both, 2, 16);
	assert_int_equal(b.n_packets, 16);
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(endpoint_psn(&b, i), i);
		endpoint_packet(&b, i, &burst, NULL);
		assert_true(gid_eq(&burst->path.sgid, &path.sgid));
		assert_true(gid_eq(&burst->path.dgid, &path.dgid));
		assert_int_equal(burst->path.sport, path.sport);
		assert_int_equal(burst->path.hop_limit, 64);
	}
	endpoint_check_icrcs(&b, true);
	assert_int_equal(port_stats(a.port)->sent, 16);
	assert_int_equal(port_stats(a.port)->send_failed, 0);
	assert_int_equal(port_stats(a.port)->icrc_rewritten, 0);
}

static void test_loopback_ipv4(void **state)
{
	(void)state;
	exchange("127.0.0.1", "127.0.0.1", 0);
}

static void test_loopback_ipv6(void **state)
{
	(void)state;
	exchange("::1", "::1", 0);
}

static void test_own_address_ipv4(void **state)
{
	(void)state;
	exchange("192.0.2.1", "192.0.2.1", if_nametoindex("d0"));
}

static void test_between_own_addresses(void **state)
{
	(void)state;
	exchange("192.0.2.1", "192.0.2.2", if_nametoindex("d0"));
}

static void test_loopback_to_own_address(void **state)
{
	(void)state;
	exchange("127.0.0.1", "192.0.2.1", if_nametoindex("lo"));
}

static void test_own_address_ipv6(void **state)
{
	(void)state;
	exchange("2001:db8::1", "2001:db8::1", if_nametoindex("d0"));
}

static void test_link_local(void **state)
{
	(void)state;
	exchange("fe80::1", "fe80::1", if_nametoindex("d0"));
}

static void test_group_round_trip(void **state)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xc123);

	(void)state;
	for (unsigned i = 0; i < 15; i++)
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 4096);
	assert_int_equal(a.box.n_groups, 1);
	endpoint_send(&a);
	endpoints_await(both, 2, 15);
	/* Loopback doesn't cut it: it arrives as it was sent. */
	assert_int_equal(b.n_bursts, 1);
	assert_int_equal(b.bursts[0].seg_len, 4112);
	endpoint_check_icrcs(&b, true);
	check_payloads(&b, 4096);
}

static void test_shorter_last_packet(void **state)
{
	struct path path = path_of("::1", "::1", 0xc123);

	(void)state;
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 0, 1000);
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 1, 1000);
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 2, 3);
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 3, 1000); /* a new group */
	assert_int_equal(a.box.n_groups, 2);
	endpoint_send(&a);
	endpoints_await(both, 2, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(endpoint_psn(&b, i), i);
	endpoint_check_icrcs(&b, true);
}

static void test_many_groups_and_ports(void **state)
{
	(void)state;
	/* More than one sendmmsg() takes, and source ports that alternate. */
	for (unsigned i = 0; i < 100; i++) {
		struct path path = path_of("127.0.0.1", "127.0.0.1", (uint16_t)(0xc200 + i / 40));

		path.traffic_class = (uint8_t)(i % 2 * 4); /* no two share a group */
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 8);
	}
	assert_int_equal(a.box.n_groups, 100);
	endpoint_send(&a);
	endpoints_await(both, 2, 100);
	assert_int_equal(b.n_packets, 100);
	endpoint_check_icrcs(&b, true);
}

static void check_fields(const char *address, uint8_t hop_limit, uint8_t traffic_class,
			 uint32_t flow_label)
{
	struct path path = path_of(address, address, 0xc300);
	const struct kept_burst *burst;

	path.hop_limit = hop_limit;
	path.traffic_class = traffic_class;
	path.flow_label = flow_label;
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 0, 8);
	endpoint_send(&a);
	endpoints_await(both, 2, 1);
	endpoint_packet(&b, 0, &burst, NULL);
	assert_int_equal(burst->path.hop_limit, hop_limit ? hop_limit : 64);
	assert_int_equal(burst->path.traffic_class, traffic_class);
	if (flow_label)
		assert_int_equal(burst->path.flow_label, flow_label);
	endpoint_clear(&b);
}

/* The first path sets the socket's values; the following ones differ from them. */
static void test_header_fields(void **state)
{
	static const char *const addresses[] = { "127.0.0.1", "::1" };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		check_fields(addresses[i], 7, 0x48, 0);
		check_fields(addresses[i], 255, 0, 0);
		check_fields(addresses[i], 1, 0xff, 0);
		check_fields(addresses[i], 0, 0x02, 0);
		check_fields(addresses[i], 7, 0x48, 0);
	}
	check_fields("::1", 7, 0x48, 0x12345);
	check_fields("::1", 9, 0, 0xfffff);
}

/* More segments than the kernel takes: one by one, each with identification 0. */
static void test_refused_segmentation(void **state)
{
	static const char *const addresses[] = { "127.0.0.1", "::1" };
	const unsigned count = 300;

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		struct path path = path_of(addresses[k], addresses[k], 0xc400);
		struct outbox_group *g = &a.box.groups[0];
		uint64_t before = port_stats(a.port)->sent_singly;

		for (unsigned i = 0; i < count; i++)
			endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 8);
		for (unsigned i = 1; i < a.box.n_groups; i++) {
			g->segments = (uint16_t)(g->segments + a.box.groups[i].segments);
			g->len += a.box.groups[i].len;
		}
		a.box.n_groups = 1;
		endpoint_send(&a);
		endpoints_await(both, 2, count);
		assert_int_equal(port_stats(a.port)->sent_singly - before, count);
		for (unsigned i = 0; i < count; i++)
			assert_int_equal(endpoint_psn(&b, i), i);
		endpoint_check_icrcs(&b, false);
		endpoint_clear(&b);
	}
}

/* A stranger sits on the source port: another is used, and the ICRC covers the one that is. */
static void test_taken_source_port(void **state)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xc501);
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(0xc501) };
	int stranger = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_int_equal(bind(stranger, (struct sockaddr *)&in, sizeof(in)), 0);
	for (unsigned i = 0; i < 3; i++)
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 100);
	endpoint_send(&a);
	endpoints_await(both, 2, 3);
	assert_int_not_equal(b.bursts[0].path.sport, 0xc501);
	assert_int_equal(port_stats(a.port)->icrc_rewritten, 3);
	endpoint_check_icrcs(&b, true);
	close(stranger);
}

/* More source ports than sockets: the rest share, and their ICRCs follow. */
static void test_many_source_ports(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 600; i++) {
		struct path path = path_of("127.0.0.1", "127.0.0.1", (uint16_t)(0xc600 + i));

		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 8);
		endpoint_send(&a);
		endpoints_await(both, 2, 1);
		assert_int_equal(endpoint_psn(&b, 0), i);
		endpoint_check_icrcs(&b, true);
		endpoint_clear(&b);
	}
	assert_in_range(port_stats(a.port)->icrc_rewritten, 300, 400);
}

static void test_unreachable_is_counted(void **state)
{
	struct path nowhere = path_of("192.0.2.1", "198.51.100.1", 0xc700);
	struct path not_mine = path_of("203.0.113.9", "192.0.2.2", 0xc700);
	struct path fine = path_of("192.0.2.1", "192.0.2.2", 0xc700);

	(void)state;
	endpoint_queue(&a, &nowhere, endpoint_qpn(&b, 1), 0, 64);
	endpoint_queue(&a, &nowhere, endpoint_qpn(&b, 1), 1, 64);
	endpoint_queue(&a, &not_mine, endpoint_qpn(&b, 1), 2, 64);
	endpoint_queue(&a, &fine, endpoint_qpn(&b, 1), 3, 64);
	endpoint_send(&a);
	endpoints_await(both, 2, 1);
	assert_int_equal(endpoint_psn(&b, 0), 3);
	assert_int_equal(port_stats(a.port)->send_failed, 3);
	assert_int_equal(port_stats(a.port)->sent, 1);
}

static void test_path_mtu_shrank(void **state)
{
	struct path path = path_of("192.0.2.1", "192.0.2.99", 0xc800);

	(void)state;
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 0, 4096);
	endpoint_send(&a);
	assert_int_equal(port_stats(a.port)->send_failed, 1);
	for (unsigned i = 0; i < 4; i++)
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 0, 4096);
	endpoint_send(&a);
	assert_int_equal(port_stats(a.port)->send_failed, 5);
	assert_int_equal(port_stats(a.port)->sent, 0);
}

static int packet_socket(void)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = (int)if_nametoindex("d0") };
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL));

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&ll, sizeof(ll)), 0);
	return fd;
}

/* The next IPv4 UDP packet to the RoCE port. */
static size_t next_packet(int fd, uint8_t *buf, size_t cap)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	for (;;) {
		ssize_t n;

		assert_int_equal(poll(&pfd, 1, 10000), 1);
		n = recv(fd, buf, cap, 0);
		assert_true(n > 0);
		if (n > 28 && buf[0] == 0x45 && buf[9] == IPPROTO_UDP &&
		    (buf[22] << 8 | buf[23]) == ROCE_UDP_PORT)
			return (size_t)n;
	}
}

/*
 * The claim on which IPv4 rests: unconnected, DF, segments of one send are numbered from 0. Checked
 * behind the kernel's own segmentation (the interface takes one segment at a time), against the
 * ICRC by the true header.
 */
static void test_identifications_on_the_wire(void **state)
{
	struct path path = path_of("192.0.2.1", "192.0.2.99", 0xc900);
	int fd = packet_socket();
	uint8_t buf[9000];

	(void)state;
	must_run("ip link set d0 gso_max_segs 1");
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 20; i++)
			endpoint_queue(&a, &path, 0x123456, i, 1024);
		assert_int_equal(a.box.n_groups, 1);
		endpoint_send(&a);
		for (unsigned i = 0; i < 20; i++) {
			size_t n = next_packet(fd, buf, sizeof(buf));
			uint32_t icrc;

			assert_int_equal(n, 28 + 1040);
			assert_int_equal(buf[4] << 8 | buf[5], i);
			assert_int_equal(buf[6] << 8 | buf[7], 0x4000);
			memcpy(&icrc, buf + n - 4, 4);
			assert_int_equal(le32toh(icrc),
					 icrc_compute(&path, (uint16_t)i, buf + 28, n - 32));
		}
	}
	must_run("ip link set d0 gso_max_segs 64");
	close(fd);
}

/* A queue that holds packets back fills the socket's buffer; the rest goes when there is room. */
static void test_full_buffer(void **state)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xca00);
	unsigned queued = 0;
	struct pollfd pfd;
	int ret = 0;

	(void)state;
	if (!try_run("tc qdisc add dev lo root tbf rate 80mbit burst 256k latency 5s")) {
		print_message("no token bucket filter in this kernel\n");
		skip();
	}
	while (ret == 0 && queued < 1000000) {
		for (unsigned i = 0; i < 15; i++)
			endpoint_queue(&a, &path, 0x123456, queued++, 4096);
		ret = port_send(a.port, &a.box);
	}
	assert_int_equal(ret, -EAGAIN);
	assert_false(outbox_empty(&a.box));
	port_want_write(a.port, true);
	while (ret == -EAGAIN) {
		pfd = (struct pollfd){ .fd = port_wait_fd(a.port), .events = POLLIN };
		assert_int_equal(poll(&pfd, 1, 10000), 1);
		port_receive(a.port, 64);
		port_receive(b.port, 64);
		ret = port_send(a.port, &a.box);
	}
	assert_int_equal(ret, 0);
	port_want_write(a.port, false);
	assert_int_equal(port_stats(a.port)->sent, queued);
	must_run("tc qdisc del dev lo root");
	for (unsigned i = 0; i < 10000; i++)
		port_receive(a.port, 64);
	/* Room in the buffer is no longer of interest. */
	pfd = (struct pollfd){ .fd = port_wait_fd(a.port), .events = POLLIN };
	assert_int_equal(poll(&pfd, 1, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_loopback_ipv4),
		TEST(test_loopback_ipv6),
		TEST(test_own_address_ipv4),
		TEST(test_between_own_addresses),
		TEST(test_loopback_to_own_address),
		TEST(test_own_address_ipv6),
		TEST(test_link_local),
		TEST(test_group_round_trip),
		TEST(test_shorter_last_packet),
		TEST(test_many_groups_and_ports),
		TEST(test_header_fields),
		TEST(test_refused_segmentation),
		TEST(test_taken_source_port),
		TEST(test_many_source_ports),
		TEST(test_unreachable_is_counted),
		TEST(test_path_mtu_shrank),
		TEST(test_identifications_on_the_wire),
		TEST(test_full_buffer),
	};

	if (!namespace_enter()) {
		print_message("no network namespace can be made here: skipped\n");
		return 0;
	}
	namespace_add_link();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
