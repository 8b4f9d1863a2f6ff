/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who may reach whom: addresses without security, limits where TLS is wanted, a peer whose RDMA
 * address is another host's name. Over loopback sockets, all ends in this process.
 */
#include "check.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_verbs.h"
#include "link/conn.h"
#include "mem_channel.h"

static struct fake_device dev[2];
static struct fake_qp qps[2];
static struct rocelink_error err;
static struct rocelink_security security;
static struct rocelink_options options;

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		fake_device_init(&dev[i], i ? "fake1" : "fake0");
		fake_qp_init(&qps[i], &dev[i], IBV_QPT_RC, (uint32_t)(0x100 + i));
	}
	security = (struct rocelink_security){ .size = sizeof(security) };
	options = (struct rocelink_options){ .size = sizeof(options), .security = &security };
	return 0;
}

static void use_secret(void)
{
	security.secret = "0123456789abcdef";
	security.secret_len = 16;
}

static struct rocelink_listener *listen_on(const char *host, unsigned max_pending)
{
	return rocelink_listen(host, "0",
			       ROCELINK_LISTEN(.conn = &options, .max_pending = max_pending), &err);
}

/* Any address of this host that isn't loopback; false if there is none. */
static bool find_own_address(struct sockaddr_in *own)
{
	struct ifaddrs *list, *i;
	bool found = false;

	assert_int_equal(getifaddrs(&list), 0);
	for (i = list; i && !found; i = i->ifa_next) {
		const struct sockaddr_in *in = (void *)i->ifa_addr;

		found = in && in->sin_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 != 127;
		if (found)
			*own = (struct sockaddr_in){ .sin_family = AF_INET,
						     .sin_addr = in->sin_addr };
	}
	freeifaddrs(list);
	return found;
}

/* A socket connected to the listener, from `from` or anywhere. */
static int raw_client(struct rocelink_listener *l, const struct sockaddr_in *from)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(rocelink_listener_port(l)),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (from)
		assert_int_equal(bind(fd, (const struct sockaddr *)from, sizeof(*from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void drive_both(struct rocelink_conn *c, struct rocelink_listener *l)
{
	struct pollfd p[] = { { .fd = rocelink_conn_fd(c), .events = POLLIN },
			      { .fd = l ? rocelink_listener_fd(l) : -1, .events = POLLIN } };

	poll(p, 2, 5);
	if (l)
		assert_null(rocelink_listener_take(l, NULL));
	rocelink_conn_drive(c, NULL);
}

static const struct rocelink_error *drive_until_failed(struct rocelink_conn *c,
						       struct rocelink_listener *l)
{
	for (int i = 0; i < 100 && rocelink_conn_state(c) != ROCELINK_STATE_FAILED; i++)
		drive_both(c, l);
	assert_non_null(rocelink_conn_error(c));
	return rocelink_conn_error(c);
}

static void public_addresses_need_security(void **state)
{
	struct rocelink_listener *l;
	struct sockaddr_in own;
	char host[INET_ADDRSTRLEN];

	(void)state;
	assert_null(listen_on("*", 0));
	assert_int_equal(err.code, ROCELINK_SECURITY);
	assert_contains(err.text, "all addresses");
	assert_contains(err.text, "ROCELINK_SECURITY_PLAIN");
	assert_null(rocelink_dial_meet("0.0.0.0", "127.0.0.1", "0", &options, &err));
	assert_int_equal(err.code, ROCELINK_SECURITY);
	if (find_own_address(&own)) {
		inet_ntop(AF_INET, &own.sin_addr, host, sizeof(host));
		assert_null(listen_on(host, 0));
		assert_int_equal(err.code, ROCELINK_SECURITY);
		assert_contains(err.text, host);
	}
	/* Where it may: on loopback, with a secret, or when asked for by name. */
	l = listen_on("localhost", 0);
	assert_non_null(l);
	rocelink_listener_free(l);
	security.mode = ROCELINK_SECURITY_PLAIN;
	l = listen_on("*", 0);
	assert_non_null(l);
	rocelink_listener_free(l);
	security.mode = ROCELINK_SECURITY_AUTO;
	use_secret();
	l = listen_on("*", 0);
	assert_non_null(l);
	rocelink_listener_free(l);
}

/* The listener is on loopback, the peer's own address isn't. */
static void plain_text_from_elsewhere_is_refused(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", 0);
	struct rocelink_listener_counters n = { .size = sizeof(n) };
	struct sockaddr_in own;
	struct rocelink_conn *c;

	(void)state;
	assert_non_null(l);
	if (!find_own_address(&own)) {
		rocelink_listener_free(l);
		skip();
	}
	security.mode = ROCELINK_SECURITY_PLAIN;
	c = rocelink_dial_fd(raw_client(l, &own), ROCELINK_ACTIVE, &options, &err);
	assert_non_null(c);
	assert_int_equal(drive_until_failed(c, l)->reason, ROCELINK_REASON_AUTH);
	rocelink_listener_counters(l, &n);
	assert_int_equal(n.refused_auth, 1);
	rocelink_conn_free(c);
	/* This side refuses by itself when it isn't told to do without. */
	security.mode = ROCELINK_SECURITY_AUTO;
	assert_null(rocelink_dial_fd(raw_client(l, &own), ROCELINK_ACTIVE, &options, &err));
	assert_int_equal(err.code, ROCELINK_SECURITY);
	rocelink_listener_free(l);
}

/* Whether the client has begun its TLS or not, it learns why there will be none. */
static void busy_is_told_where_tls_is_wanted(void **state)
{
	struct rocelink_listener_counters n = { .size = sizeof(n) };
	const struct rocelink_error *e;
	struct rocelink_listener *l;
	struct rocelink_conn *c;
	char port[8];
	int silent;

	(void)state;
	use_secret();
	l = listen_on("127.0.0.1", 1);
	assert_non_null(l);
	snprintf(port, sizeof(port), "%u", rocelink_listener_port(l));
	silent = raw_client(l, NULL);
	for (int early = 0; early < 2; early++) {
		c = rocelink_dial("127.0.0.1", port, &options, &err);
		assert_non_null(c);
		for (int i = 0; i < 5 && early; i++)
			drive_both(c, NULL);
		e = drive_until_failed(c, l);
		assert_int_equal(e->code, ROCELINK_REFUSED);
		assert_int_equal(e->reason, ROCELINK_REASON_BUSY);
		assert_int_equal(e->phase, ROCELINK_PHASE_SECURE);
		assert_contains(e->text, "try again later");
		rocelink_conn_free(c);
	}
	rocelink_listener_counters(l, &n);
	assert_int_equal(n.refused_busy, 2);
	close(silent);
	rocelink_listener_free(l);
}

/* A stranger in the middle can end the attempt with plain text, and do no more than that. */
static void plain_text_instead_of_tls_leads_nowhere(void **state)
{
	static const char greeting[24] = "RLNK\1\1";
	struct rocelink_channel ch;
	struct mem_end ends[2];
	struct rocelink_conn *c;

	(void)state;
	use_secret();
	mem_pair(ends);
	ch = mem_channel(&ends[0]);
	c = rocelink_dial_channel(&ch, ROCELINK_ACTIVE, &options, &err);
	assert_non_null(c);
	buffer_put(&ends[1].sent, greeting, sizeof(greeting));
	rocelink_conn_drive(c, &err);
	assert_int_equal(rocelink_conn_state(c), ROCELINK_STATE_CONNECTING);
	/* More than any refusal has: frames that a receiver skips. */
	for (int i = 0; i < 100; i++)
		buffer_put(&ends[1].sent, "\x7f\0\0\0\0\0\0\0", 8);
	assert_int_equal(rocelink_conn_drive(c, &err), ROCELINK_SECURITY);
	assert_contains(err.text, "plain text");
	rocelink_conn_free(c);
	mem_free(ends);
}

/* The name stands for another address than the channel's, and its resolving blocks nobody. */
static void rdma_host_by_name(void **state)
{
	struct rocelink_qp_info info = { .size = sizeof(info) };
	struct rocelink_channel ch;
	struct mem_end ends[2];
	struct rocelink_conn *c;

	(void)state;
	security.mode = ROCELINK_SECURITY_PLAIN;
	mem_pair(ends);
	ch = mem_channel(&ends[0]);
	options.rdma_host = "localhost";
	fake_device_add_gid(&dev[0], "192.0.2.1", IBV_GID_TYPE_ROCE_V2);
	fake_device_add_gid(&dev[0], "::1", IBV_GID_TYPE_ROCE_V2);
	c = rocelink_dial_channel(&ch, ROCELINK_ACTIVE, &options, &err);
	assert_non_null(c);
	buffer_put(&ends[1].sent,
		   "RLNK\1\1\0\0"
		   "0123456789abcdef",
		   24);
	for (int i = 0; i < 400 && rocelink_conn_state(c) != ROCELINK_STATE_OPEN; i++)
		drive_both(c, NULL);
	assert_int_equal(rocelink_conn_state(c), ROCELINK_STATE_OPEN);
	assert_ok(rocelink_conn_add_qp(c, &qps[0].qp, NULL, &err), err);
	assert_int_equal(rocelink_conn_qp(c, 0, &info), ROCELINK_OK);
	/* 127.0.0.1 or ::1, as this host's "localhost" has it; not the global one. */
	assert_string_not_equal(info.gid.address, "192.0.2.1");
	assert_contains(info.gid.why, "this host reaches");
	rocelink_conn_free(c);
	mem_free(ends);
}

/* However early it is driven: nothing is chosen while the name isn't an address. */
static void rdma_host_is_waited_for(void **state)
{
	(void)state;
	security.mode = ROCELINK_SECURITY_PLAIN;
	options.rdma_host = "localhost";
	for (int round = 0; round < 50; round++) {
		struct rocelink_channel ch;
		struct mem_end ends[2];
		struct rocelink_conn *c;

		mem_pair(ends);
		ch = mem_channel(&ends[0]);
		buffer_put(&ends[1].sent,
			   "RLNK\1\1\0\0"
			   "0123456789abcdef",
			   24);
		c = rocelink_dial_channel(&ch, ROCELINK_ACTIVE, &options, &err);
		assert_non_null(c);
		rocelink_conn_drive(c, &err);
		while (rocelink_conn_state(c) != ROCELINK_STATE_OPEN)
			drive_both(c, NULL);
		assert_true(c->has_rdma_address);
		rocelink_conn_free(c);
		mem_free(ends);
	}
}

static void rdma_host_that_is_unknown(void **state)
{
	struct rocelink_listener *l;
	struct rocelink_conn *c;
	const struct rocelink_error *e;
	char port[8];

	(void)state;
	l = listen_on("127.0.0.1", 0);
	assert_non_null(l);
	snprintf(port, sizeof(port), "%u", rocelink_listener_port(l));
	options.rdma_host = "bad..name";
	c = rocelink_dial("127.0.0.1", port, &options, &err);
	assert_non_null(c);
	e = drive_until_failed(c, l);
	assert_int_equal(e->code, ROCELINK_RESOLVE);
	assert_int_equal(e->phase, ROCELINK_PHASE_RESOLVE);
	assert_contains(e->text, "bad..name");
	rocelink_conn_free(c);
	rocelink_listener_free(l);
	/* Tickets have no state machine: there the call itself waits. */
	assert_null(rocelink_by_ticket(&options, &err));
	assert_int_equal(err.code, ROCELINK_RESOLVE);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		T(public_addresses_need_security),
		T(plain_text_from_elsewhere_is_refused),
		T(busy_is_told_where_tls_is_wanted),
		T(plain_text_instead_of_tls_leads_nowhere),
		T(rdma_host_by_name),
		T(rdma_host_is_waited_for),
		T(rdma_host_that_is_unknown),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
