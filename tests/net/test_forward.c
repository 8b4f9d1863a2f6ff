/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that reach the wrong process, and the flow sockets that keep them from doing so. The
 * kernel spreads flows over processes by a secret hash, so the tests use many flows: all 64 falling
 * to one of three processes is as likely as 3^-63.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"
#include "wire/icrc.h"

#define FLOWS 64

static struct endpoint a, b, c;
static struct endpoint *all[] = { &a, &b, &c };

static int set_up(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		endpoint_open(all[i], NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		endpoint_close(all[i]);
	return 0;
}

static struct path flow(unsigned i)
{
	return path_of("127.0.0.1", "127.0.0.1", (uint16_t)(0xc000 + i));
}

static uint64_t forwarded(void)
{
	return port_stats(a.port)->forwarded + port_stats(b.port)->forwarded +
	       port_stats(c.port)->forwarded;
}

static void test_owner_gets_everything(void **state)
{
	(void)state;
	for (unsigned i = 0; i < FLOWS; i++) {
		struct path path = flow(i);

		for (unsigned k = 0; k < 3; k++)
			endpoint_queue(&a, &path, endpoint_qpn(&b, i), i * 3 + k, 100 + i);
		endpoint_send(&a);
		endpoints_settle(all, 3);
	}
	endpoints_await(all, 3, 3 * FLOWS);
	assert_int_equal(b.n_packets, 3 * FLOWS);
	for (unsigned i = 0; i < 3 * FLOWS; i++)
		assert_int_equal(endpoint_psn(&b, i), i);
	endpoint_check_icrcs(&b, true);
	for (unsigned i = 0; i < b.n_bursts; i++) {
		struct path path = flow(i);

		assert_int_equal(b.bursts[i].path.sport, path.sport);
		assert_true(gid_eq(&b.bursts[i].path.sgid, &path.sgid));
		assert_true(gid_eq(&b.bursts[i].path.dgid, &path.dgid));
		assert_int_equal(b.bursts[i].path.hop_limit, 64);
	}
	assert_true(forwarded() > 0);
	assert_int_equal(port_stats(b.port)->received_forwarded, forwarded());
	assert_int_equal(port_stats(b.port)->forwarded, 0);
}

static void test_announced_flows_come_directly(void **state)
{
	(void)state;
	for (unsigned i = 0; i < FLOWS; i++) {
		struct path path = flow(i);

		port_flow_get(b.port, &path);
	}
	assert_int_equal(port_stats(b.port)->flows, FLOWS);
	for (unsigned i = 0; i < FLOWS; i++) {
		struct path path = flow(i);

		endpoint_queue(&a, &path, endpoint_qpn(&b, i), i, 100);
		endpoint_send(&a);
	}
	endpoints_await(all, 3, FLOWS);
	assert_int_equal(b.n_packets, FLOWS);
	assert_int_equal(forwarded(), 0);
}

static void check_direct(const char *peer, const char *local, uint32_t ifindex)
{
	uint64_t before = forwarded();

	for (unsigned i = 0; i < 20; i++) {
		struct path path = path_of(peer, local, (uint16_t)(0xd000 + i));

		path.ifindex = ifindex;
		port_flow_get(b.port, &path);
		endpoint_queue(&a, &path, endpoint_qpn(&b, i), i, 100);
		endpoint_send(&a);
		endpoints_await(all, 3, 1);
		assert_int_equal(b.n_packets, 1);
		assert_int_equal(forwarded(), before);
		endpoint_clear(&b);
		port_flow_put(b.port, &path);
		assert_int_equal(port_stats(b.port)->flows, 0);
	}
}

static void test_flows_of_every_family(void **state)
{
	(void)state;
	check_direct("::1", "::1", 0);
	check_direct("192.0.2.1", "192.0.2.1", 0);
	check_direct("fe80::1", "fe80::1", if_nametoindex("d0"));
	/* Not the local address that the route to the peer would choose. */
	check_direct("192.0.2.1", "192.0.2.2", 0);
	check_direct("2001:db8::1", "2001:db8::2", 0);
}

static void test_flows_are_counted(void **state)
{
	struct path one = flow(1), two = flow(2);

	(void)state;
	port_flow_get(b.port, &one);
	port_flow_get(b.port, &one);
	port_flow_get(b.port, &two);
	assert_int_equal(port_stats(b.port)->flows, 2);
	port_flow_put(b.port, &one);
	assert_int_equal(port_stats(b.port)->flows, 2);
	port_flow_put(b.port, &one);
	assert_int_equal(port_stats(b.port)->flows, 1);
	port_flow_put(b.port, &one); /* one too many */
	port_flow_put(b.port, &two);
	assert_int_equal(port_stats(b.port)->flows, 0);
}

static void test_more_flows_than_sockets(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		struct path path = flow(i);

		port_flow_get(b.port, &path);
		endpoint_queue(&a, &path, endpoint_qpn(&b, i), i, 100);
	}
	assert_int_equal(port_stats(b.port)->flows, 64);
	endpoint_send(&a);
	endpoints_await(all, 3, 100);
	assert_int_equal(b.n_packets, 100);
	for (unsigned i = 0; i < 100; i++) {
		struct path path = flow(i);

		port_flow_put(b.port, &path);
	}
	assert_int_equal(port_stats(b.port)->flows, 0);
}

/* A flow that takes the detour again and again gets a socket, and stays in order. */
static void test_flows_are_learned(void **state)
{
	unsigned learned = 0;

	(void)state;
	for (unsigned i = 0; i < FLOWS && learned < 5; i++) {
		struct path path = flow(i);
		uint64_t before = forwarded();

		for (unsigned k = 0; k < 20; k++) {
			endpoint_queue(&a, &path, endpoint_qpn(&b, 1), k, 100);
			endpoint_send(&a);
			endpoints_settle(all, 3);
		}
		assert_int_equal(b.n_packets, 20);
		for (unsigned k = 0; k < 20; k++)
			assert_int_equal(endpoint_psn(&b, k), k);
		endpoint_clear(&b);
		if (forwarded() == before)
			continue; /* it came to b anyway */
		assert_int_equal(forwarded() - before, 4);
		learned++;
		assert_int_equal(port_stats(b.port)->flows, learned);
	}
	assert_int_equal(learned, 5);
}

/* Learned flows give way to announced ones; a handful of single packets teaches nothing. */
static void test_strangers_cost_no_sockets(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		struct path path = flow(i);

		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 100);
		endpoint_send(&a);
		endpoints_settle(all, 3);
	}
	assert_int_equal(b.n_packets, 200);
	assert_true(forwarded() > 20);
	assert_int_equal(port_stats(b.port)->flows, 0);
}

/* One burst with packets for three processes and for nobody. */
static void test_mixed_burst(void **state)
{
	const uint32_t owners[] = { endpoint_qpn(&a, 1), endpoint_qpn(&b, 1), endpoint_qpn(&b, 2),
				    endpoint_qpn(&c, 1), endpoint_qpn(&a, 2), endpoint_qpn(&a, 3) };
	struct path path = flow(7);

	(void)state;
	for (unsigned i = 0; i < 24; i++)
		endpoint_queue(&a, &path, owners[i % 6], i, 512);
	assert_int_equal(a.box.n_groups, 1);
	endpoint_send(&a);
	endpoints_await(all, 3, 24);
	assert_int_equal(a.n_packets, 12);
	assert_int_equal(b.n_packets, 8);
	assert_int_equal(c.n_packets, 4);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned k = 0; k < all[i]->n_packets; k++) {
			const struct kept_burst *burst;
			size_t len;
			const uint8_t *p = endpoint_packet(all[i], k, &burst, &len);
			uint32_t psn = endpoint_psn(all[i], k);
			uint16_t id = (uint16_t)psn;

			if (k)
				assert_true(psn > endpoint_psn(all[i], k - 1));
			assert_true(icrc_check(&burst->path, &id, p, len));
			assert_int_equal(id, psn);
		}
	}
}

static void test_nobody_owns_it(void **state)
{
	unsigned block = 1;

	(void)state;
	while (block == a.block || block == b.block || block == c.block)
		block++;
	for (unsigned i = 0; i < 10; i++) {
		struct path path = flow(i);

		endpoint_queue(&a, &path, block << QPN_BLOCK_BITS, i, 64);
	}
	endpoint_send(&a);
	endpoints_settle(all, 3);
	assert_int_equal(a.drops[DROP_FORWARD] + b.drops[DROP_FORWARD] + c.drops[DROP_FORWARD], 10);
	assert_int_equal(a.n_packets + b.n_packets + c.n_packets, 0);
}

/* QPNs 0, 1 and multicast belong to whoever gets them, but not so their neighbours. */
static void test_special_numbers_stay(void **state)
{
	static const uint32_t numbers[] = { 0, 1, QPN_MULTICAST };
	static const uint32_t neighbours[] = { 2, 4095, QPN_MULTICAST - 1 };

	(void)state;
	for (unsigned i = 0; i < 30; i++) {
		struct path path = flow(i);

		endpoint_queue(&a, &path, numbers[i % 3], i, 64);
		endpoint_queue(&a, &path, neighbours[i % 3], i, 64);
	}
	endpoint_send(&a);
	endpoints_await(all, 3, 30);
	endpoints_settle(all, 3);
	assert_int_equal(forwarded(), 0);
	assert_int_equal(a.drops[DROP_FORWARD] + b.drops[DROP_FORWARD] + c.drops[DROP_FORWARD], 30);
}

/* The owner is late: far more than its queue holds waits for it, and nothing is lost. */
static void test_owner_is_late(void **state)
{
	(void)state;
	for (unsigned i = 0; i < FLOWS; i++) {
		struct path path = flow(i);

		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 1000);
		endpoint_send(&a);
		for (unsigned k = 0; k < 20; k++) {
			port_receive(a.port, 16);
			port_receive(c.port, 16);
		}
	}
	endpoints_settle(all, 3);
	assert_int_equal(a.drops[DROP_FORWARD] + c.drops[DROP_FORWARD], 0);
	assert_int_equal(b.n_packets, FLOWS);
}

/* The owner doesn't read: what doesn't fit is counted, and nobody waits for ever. */
static void test_owner_is_stuck(void **state)
{
	struct endpoint *awake[] = { &a, &c };
	unsigned lost;

	(void)state;
	for (unsigned i = 0; i < FLOWS; i++) {
		struct path path = flow(i);

		for (unsigned k = 0; k < 10; k++)
			endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 1000);
		endpoint_send(&a);
		endpoints_settle(awake, 2);
	}
	lost = a.drops[DROP_FORWARD] + c.drops[DROP_FORWARD];
	assert_true(lost > 0);
	endpoints_await(all, 3, 10 * FLOWS - lost);
	assert_int_equal(b.n_packets, 10 * FLOWS - lost);
}

static void send_to_block(unsigned block, const void *data, size_t len)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "rocelink/%u", block);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (sendto(fd, data, len, 0, (struct sockaddr *)&un,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) != (ssize_t)len)
		abort();
	close(fd);
}

/* A datagram as forward.c makes it, with these lengths in the record. */
static size_t forged(uint8_t *out, uint32_t len, uint32_t seg_len, size_t data)
{
	static const uint8_t head[8] = { 'r', 'l', 'k', 1, 1, 0, 0, 0 };
	struct path path = flow(0);

	memset(out, 0, 8 + sizeof(path) + 8 + data);
	memcpy(out, head, 8);
	memcpy(out + 8, &path, sizeof(path));
	memcpy(out + 8 + sizeof(path), &len, 4);
	memcpy(out + 12 + sizeof(path), &seg_len, 4);
	out[8 + sizeof(path) + 8 + 5] = (uint8_t)(b.block >> 4);
	out[8 + sizeof(path) + 8 + 6] = (uint8_t)(b.block << 4);
	return 8 + sizeof(path) + 8 + data;
}

static void test_malformed_datagrams(void **state)
{
	static const struct {
		uint32_t len, seg_len;
		size_t data;
	} rows[] = {
		{ 0, 64, 64 },		{ 64, 0, 64 },		{ 65, 64, 64 },
		{ 0xffffffff, 64, 64 }, { 0xfffffff9, 64, 64 }, { 64, 64, 56 },
		{ 70000, 70000, 64 },
	};
	uint8_t data[4096];
	uint64_t refused = 0;

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		send_to_block(b.block, data,
			      forged(data, rows[i].len, rows[i].seg_len, rows[i].data));
		endpoints_settle(all, 3);
		assert_int_equal(port_stats(b.port)->forward_refused, ++refused);
	}
	send_to_block(b.block, "", 0);
	send_to_block(b.block, "rlk", 3);
	send_to_block(b.block, "rlk\2\1\0\0\0", 8); /* another version */
	send_to_block(b.block, "rlk\1\7\0\0\0", 8); /* unknown kind */
	send_to_block(b.block, data, sizeof(data) - forged(data, 64, 64, 64) % 8);
	endpoints_settle(all, 3);
	assert_int_equal(port_stats(b.port)->forward_refused, refused + 5);
	endpoint_clear(&b);
	/* The well-formed one arrives, so the others were refused for their faults. */
	send_to_block(b.block, data, forged(data, 64, 64, 64));
	endpoints_await(all, 3, 1);
	assert_int_equal(b.n_packets, 1);
	/* A longer segment than the burst is one packet. A block that isn't ours goes no further.
	 */
	send_to_block(b.block, data, forged(data, 8, 8, 8));
	endpoints_settle(all, 3);
	assert_int_equal(b.drops[DROP_SHORT], 1);
	forged(data, 64, 64, 64);
	data[8 + sizeof(struct path) + 8 + 5] = (uint8_t)(c.block >> 4);
	data[8 + sizeof(struct path) + 8 + 6] = (uint8_t)(c.block << 4);
	send_to_block(b.block, data, 8 + sizeof(struct path) + 8 + 64);
	endpoints_settle(all, 3);
	assert_int_equal(b.drops[DROP_FORWARD], 1);
	assert_int_equal(c.n_packets, 0);
}

/* Messages of engines: whole, in order, up to the longest; and how it is told that they can't be taken. */
static void test_messages_of_engines(void **state)
{
	static uint8_t message[PORT_RELAY_MAX];
	unsigned sent = 0, nobody = b.block;
	int ret = 0;

	(void)state;
	assert_int_equal(port_relay(a.port, b.block, message, sizeof(message)), 0);
	endpoints_settle(all, 3);
	assert_int_equal(b.n_relayed, 1);
	assert_int_equal(b.relayed_len[0], sizeof(message));
	while (ret == 0 && sent < 2000) {
		message[0] = (uint8_t)++sent;
		ret = port_relay(a.port, b.block, message, 100 + sent);
	}
	assert_int_equal(ret, -EAGAIN);
	endpoints_settle(all, 3);
	assert_int_equal(b.n_relayed, sent);
	for (unsigned i = sent > 200 ? sent - 200 : 1; i < sent; i++) {
		assert_int_equal(b.relayed[i % 256], (uint8_t)i);
		assert_int_equal(b.relayed_len[i % 256], 100 + i);
	}
	assert_int_equal(port_relay(a.port, b.block, message, 1), 0);
	while (nobody == a.block || nobody == b.block || nobody == c.block)
		nobody = nobody % (QPN_BLOCKS - 2) + 1;
	assert_int_equal(port_relay(a.port, nobody, message, 1), -ECONNREFUSED);
	assert_int_equal(a.n_relayed + c.n_relayed, 0);
	assert_int_equal(port_stats(b.port)->forward_refused, 0);
}

static void test_other_users_are_refused(void **state)
{
	uint8_t data[512];
	int status;
	pid_t pid;

	(void)state;
	if (!namespace_has_users())
		skip();
	pid = fork();
	if (pid == 0) {
		if (setuid(1))
			_exit(1);
		send_to_block(b.block, data, forged(data, 64, 64, 64));
		send_to_block(b.block, "rlk\1\2\0\0\0", 8); /* a question */
		send_to_block(b.block, "rlk\1\5\0\0\0message", 15);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	endpoints_settle(all, 3);
	assert_int_equal(port_stats(b.port)->forward_refused, 3);
	assert_int_equal(b.n_packets, 0);
	assert_int_equal(b.n_relayed, 0);
	send_to_block(b.block, "rlk\1\5\0\0\0message", 15);
	endpoints_settle(all, 3);
	assert_int_equal(b.n_relayed, 1);
	assert_int_equal(b.relayed[0], 'm');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_owner_gets_everything),
		TEST(test_announced_flows_come_directly),
		TEST(test_flows_of_every_family),
		TEST(test_flows_are_counted),
		TEST(test_more_flows_than_sockets),
		TEST(test_flows_are_learned),
		TEST(test_strangers_cost_no_sockets),
		TEST(test_mixed_burst),
		TEST(test_nobody_owns_it),
		TEST(test_special_numbers_stay),
		TEST(test_owner_is_late),
		TEST(test_owner_is_stuck),
		TEST(test_malformed_datagrams),
		TEST(test_messages_of_engines),
		TEST(test_other_users_are_refused),
	};

	if (!namespace_enter()) {
		print_message("no network namespace can be made here: skipped\n");
		return 0;
	}
	namespace_add_link();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
