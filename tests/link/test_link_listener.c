/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Listener, dialer and meeting over loopback sockets, all ends in this process and driven in turn.
 * Nothing waits for a time to pass: what must not happen is asked for with deadlines that are
 * given.
 */
#include "check.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_verbs.h"
#include "link/conn.h"
#include "link/gate.h"

enum { MANY = 50 };

static struct fake_device dev[2];
static struct fake_qp qps[2 * MANY + 2];
static struct rocelink_error err;
static struct rocelink_options options;

static int setup(void **state)
{
	(void)state;
	fake_device_init(&dev[0], "fake0");
	fake_device_init(&dev[1], "fake1");
	for (int i = 0; i < 2 * MANY + 2; i++)
		fake_qp_init(&qps[i], &dev[i % 2], IBV_QPT_RC, (uint32_t)(0x100 + i));
	memset(&options, 0, sizeof(options));
	options.size = sizeof(options);
	return 0;
}

static struct rocelink_listener *listen_on(const char *host,
					   const struct rocelink_listen_options *o)
{
	struct rocelink_listener *l = rocelink_listen(host, "0", o, &err);

	if (!l)
		fail_msg("%s", err.text);
	return l;
}

static struct rocelink_conn *dial(const char *host, struct rocelink_listener *l)
{
	struct rocelink_conn *c;
	char port[8];

	snprintf(port, sizeof(port), "%u", rocelink_listener_port(l));
	c = rocelink_dial(host, port, &options, &err);
	if (!c)
		fail_msg("%s", err.text);
	return c;
}

static void add_and_start(struct rocelink_conn *c, struct fake_qp *qp)
{
	assert_ok(rocelink_conn_add_qp(c, &qp->qp, NULL, &err), err);
	assert_ok(rocelink_conn_start(c, &err), err);
}

/* Loopback is prompt, but the kernel may need a moment: poll on the descriptor, as programs do. */
static void drive_some(struct rocelink_conn *c, int timeout_ms)
{
	struct pollfd p = { .fd = rocelink_conn_fd(c), .events = POLLIN };

	poll(&p, 1, timeout_ms);
	rocelink_conn_drive(c, &err);
}

static struct rocelink_conn *take(struct rocelink_listener *l, struct rocelink_conn *client)
{
	struct rocelink_conn *c = NULL;

	for (int i = 0; i < 200 && !c; i++) {
		struct pollfd p = { .fd = rocelink_listener_fd(l), .events = POLLIN };

		if (client)
			drive_some(client, 0);
		poll(&p, 1, 10);
		c = rocelink_listener_take(l, &err);
		if (!c)
			assert_int_equal(err.code, ROCELINK_AGAIN);
	}
	assert_non_null(c);
	return c;
}

static void establish_both(struct rocelink_conn *a, struct rocelink_conn *b)
{
	for (int i = 0; i < 200 && (rocelink_conn_state(a) < ROCELINK_STATE_ESTABLISHED ||
				    rocelink_conn_state(b) < ROCELINK_STATE_ESTABLISHED);
	     i++) {
		drive_some(a, 5);
		drive_some(b, 5);
	}
	if (rocelink_conn_state(a) != ROCELINK_STATE_ESTABLISHED)
		fail_msg("%s: %s", rocelink_state_name(rocelink_conn_state(a)), err.text);
	assert_int_equal(rocelink_conn_state(b), ROCELINK_STATE_ESTABLISHED);
}

static void one_client(const char *listen_host, const char *host)
{
	struct rocelink_listener *l = listen_on(listen_host, ROCELINK_LISTEN(.conn = &options));
	struct rocelink_conn *c = dial(host, l), *s;
	struct rocelink_peer peer = { .size = sizeof(peer) };
	struct rocelink_listener_counters n = { .size = sizeof(n) };

	assert_ok(rocelink_conn_add_qp(c, &qps[0].qp, NULL, &err), err);
	assert_ok(rocelink_conn_start(c, &err), err);
	s = take(l, c);
	assert_int_equal(rocelink_conn_state(s), ROCELINK_STATE_REQUESTED);
	assert_int_equal(rocelink_conn_peer(s, &peer), ROCELINK_OK);
	assert_non_null(strchr(peer.address, ':'));
	add_and_start(s, &qps[1]);
	establish_both(c, s);
	rocelink_listener_counters(l, &n);
	assert_int_equal(n.accepted, 1);
	assert_int_equal(n.requested, 1);
	/* The listener may go; connections stay. */
	rocelink_listener_free(l);
	assert_ok(rocelink_conn_sync_say(c, "x", NULL, &err), err);
	assert_ok(rocelink_conn_sync_say(s, "x", NULL, &err), err);
	assert_ok(rocelink_conn_sync(c, "y", NULL, 0, &err) == ROCELINK_TIMEOUT ? 0 : 1, err);
	rocelink_conn_free(c);
	rocelink_conn_free(s);
}

/* Waiting for the end: the peer's BYE is answered, and nothing is left to wait for. */
static void waiting_for_the_end(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", NULL);
	struct rocelink_conn *c = dial("127.0.0.1", l), *s;

	(void)state;
	add_and_start(c, &qps[0]);
	s = take(l, c);
	add_and_start(s, &qps[1]);
	establish_both(c, s);
	assert_ok(rocelink_conn_bye(c, &err), err);
	assert_ok(rocelink_conn_wait(s, ROCELINK_STATE_CLOSED, &err), err);
	assert_ok(rocelink_conn_wait(c, ROCELINK_STATE_CLOSED, &err), err);
	assert_int_equal(rocelink_conn_wait(c, ROCELINK_STATE_ESTABLISHED, &err), ROCELINK_CLOSED);
	rocelink_conn_free(c);
	rocelink_conn_free(s);
	rocelink_listener_free(l);
}

static void over_ipv4(void **state)
{
	(void)state;
	one_client("127.0.0.1", "127.0.0.1");
}

static void over_a_name(void **state)
{
	(void)state;
	one_client("localhost", "localhost");
}

static void over_all_addresses(void **state)
{
	(void)state;
	options.security = ROCELINK_SECURITY(.mode = ROCELINK_SECURITY_PLAIN);
	one_client("*", "127.0.0.1");
}

static void over_ipv6(void **state)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	(void)state;
	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) != 0) {
		close(fd);
		skip();
	}
	close(fd);
	fake_device_add_gid(&dev[0], "::1", IBV_GID_TYPE_ROCE_V2);
	fake_device_add_gid(&dev[1], "::1", IBV_GID_TYPE_ROCE_V2);
	one_client("::1", "::1");
	assert_int_equal(fake_qp_step(&qps[0], IBV_QPS_RTR)->attr.ah_attr.grh.sgid_index, 1);
}

static void many_clients_of_one_listener(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", NULL);
	struct rocelink_conn *c[MANY], *s[MANY];

	(void)state;
	for (int i = 0; i < MANY; i++) {
		c[i] = dial("127.0.0.1", l);
		add_and_start(c[i], &qps[2 * i]);
	}
	for (int round = 0, i = 0; i < MANY; round++) {
		struct pollfd p = { .fd = rocelink_listener_fd(l), .events = POLLIN };

		assert_in_range(round, 0, 2000);
		for (int k = 0; k < MANY; k++)
			drive_some(c[k], 0);
		poll(&p, 1, 1);
		while (i < MANY && (s[i] = rocelink_listener_take(l, &err)) != NULL) {
			add_and_start(s[i], &qps[2 * i + 1]);
			i++;
		}
	}
	for (int i = 0; i < MANY; i++) {
		struct rocelink_qp_info info = { .size = sizeof(info) };

		/* The order of arrival is the kernel's: find each one's peer by its number. */
		assert_int_equal(rocelink_conn_qp(s[i], 0, &info), ROCELINK_OK);
		establish_both(c[(info.remote_qpn - 0x100) / 2], s[i]);
	}
	for (int i = 0; i < MANY; i++) {
		rocelink_conn_free(c[i]);
		rocelink_conn_free(s[i]);
	}
	rocelink_listener_free(l);
}

static int raw_client(struct rocelink_listener *l)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(rocelink_listener_port(l)),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void settle(struct rocelink_listener *l)
{
	for (int i = 0; i < 20; i++) {
		struct pollfd p = { .fd = rocelink_listener_fd(l), .events = POLLIN };

		poll(&p, 1, 1);
		assert_null(rocelink_listener_take(l, &err));
	}
}

static void strangers_are_limited(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", ROCELINK_LISTEN(.max_pending = 4));
	struct rocelink_listener_counters n = { .size = sizeof(n) };
	struct rocelink_conn *c, *s;
	char answer[256];
	int fds[6];
	ssize_t len;

	(void)state;
	for (int i = 0; i < 6; i++)
		fds[i] = raw_client(l);
	settle(l);
	rocelink_listener_counters(l, &n);
	assert_int_equal(n.accepted, 6);
	assert_int_equal(n.refused_busy, 2);
	/* The turned away have been told. */
	len = recv(fds[5], answer, sizeof(answer), 0);
	assert_true(len > 24);
	assert_non_null(memmem(answer, (size_t)len, "try again later", 15));
	/* When they go there is room again. */
	for (int i = 0; i < 6; i++)
		close(fds[i]);
	settle(l);
	c = dial("127.0.0.1", l);
	add_and_start(c, &qps[0]);
	s = take(l, c);
	rocelink_listener_counters(l, &n);
	assert_int_equal(n.gone, 4);
	rocelink_conn_free(c);
	rocelink_conn_free(s);
	rocelink_listener_free(l);
}

static void garbage_is_counted_and_harms_nobody(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", NULL);
	struct rocelink_listener_counters n = { .size = sizeof(n) };
	struct rocelink_conn *c = dial("127.0.0.1", l), *s;
	int fd = raw_client(l);

	(void)state;
	assert_int_equal(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, 0), 18);
	add_and_start(c, &qps[0]);
	s = take(l, c);
	settle(l);
	rocelink_listener_counters(l, &n);
	assert_int_equal(n.garbage, 1);
	add_and_start(s, &qps[1]);
	establish_both(c, s);
	close(fd);
	rocelink_conn_free(c);
	rocelink_conn_free(s);
	rocelink_listener_free(l);
}

static void the_gate(void **state)
{
	struct gate g;
	uint64_t s = 1000000000;

	(void)state;
	gate_init(&g, 64, 16, 10, 0);
	assert_false(gate_admit(&g, 64, 0, false, 0));
	assert_false(gate_admit(&g, 20, 16, false, 0));
	for (int i = 0; i < 20; i++)
		assert_true(gate_admit(&g, 20, 16, true, 0));
	assert_false(gate_admit(&g, 64, 0, true, 0));
	for (int i = 0; i < 10; i++)
		assert_true(gate_admit(&g, 0, 0, false, 0));
	/* Ten in this second: the next tenth brings one more. */
	assert_false(gate_admit(&g, 0, 0, false, s / 20));
	assert_true(gate_admit(&g, 0, 0, false, s / 9));
	assert_false(gate_admit(&g, 0, 0, false, s / 9));
	/* A long rest doesn't save up more than one second's worth. */
	for (int i = 0; i < 10; i++)
		assert_true(gate_admit(&g, 0, 0, false, 100 * s));
	assert_false(gate_admit(&g, 0, 0, false, 100 * s));
}

static void the_address_must_be_said(void **state)
{
	(void)state;
	assert_null(rocelink_listen(NULL, "0", NULL, &err));
	assert_int_equal(err.code, ROCELINK_INVALID);
	assert_contains(err.text, "\"*\"");
	assert_null(rocelink_listen("192.0.2.254", "0", NULL, &err));
	assert_int_equal(err.code, ROCELINK_NETWORK);
	assert_contains(err.text, "doesn't have that address");
}

static void a_port_in_use_is_named(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", NULL);
	char port[8];

	(void)state;
	snprintf(port, sizeof(port), "%u", rocelink_listener_port(l));
	assert_null(rocelink_listen("127.0.0.1", port, NULL, &err));
	assert_int_equal(err.sys_errno, EADDRINUSE);
	assert_contains(err.text, "ss -ltnp");
	rocelink_listener_free(l);
}

static void nobody_listens(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", NULL);
	struct rocelink_conn *c;
	char port[8];

	(void)state;
	snprintf(port, sizeof(port), "%u", rocelink_listener_port(l));
	rocelink_listener_free(l);
	assert_null(rocelink_connect("127.0.0.1", port, &qps[0].qp, NULL, &err));
	assert_int_equal(err.code, ROCELINK_NETWORK);
	assert_int_equal(err.phase, ROCELINK_PHASE_CONNECT);
	assert_int_equal(err.sys_errno, ECONNREFUSED);
	assert_contains(err.text, "nobody listens");
	/* Told to retry it waits, with a deadline. */
	options.retry_refused = true;
	c = rocelink_dial("127.0.0.1", port, &options, &err);
	assert_non_null(c);
	for (int i = 0; i < 3; i++)
		drive_some(c, 1);
	assert_int_equal(rocelink_conn_state(c), ROCELINK_STATE_CONNECTING);
	assert_in_range(rocelink_conn_next_deadline(c), 0, 100000);
	assert_int_equal(conn_drive_at(c, link_now() + 31ull * 1000000000, &err), ROCELINK_NETWORK);
	rocelink_conn_free(c);
}

static void unknown_names(void **state)
{
	struct rocelink_gid gid = { .size = sizeof(gid) };

	(void)state;
	assert_null(rocelink_connect("host.invalid", "7471", &qps[0].qp, NULL, &err));
	/* Without a name server that answers, the deadline of this phase ends it. */
	assert_int_equal(err.phase, ROCELINK_PHASE_RESOLVE);
	assert_contains(err.text, "host.invalid");
	assert_null(strstr(err.text, "7471"));
	assert_null(rocelink_connect("127.0.0.1", "no-such-service", &qps[0].qp, NULL, &err));
	assert_int_equal(err.code, ROCELINK_RESOLVE);
	assert_contains(err.text, "service \"no-such-service\"");
	/* Text about what was asked for, not about how it is asked. */
	fake_set_devices((struct fake_device *[]){ &dev[0] }, 1);
	assert_int_equal(rocelink_gid_choose(NULL, "bad..name", &gid, &err), ROCELINK_RESOLVE);
	assert_contains(err.text, "host \"bad..name\"");
	assert_null(strstr(err.text, "ervice"));
}

/* A peer that never says anything: the deadline of HELLO ends it, given here instead of waited for.
 */
static void silent_peers(void **state)
{
	struct rocelink_listener *l = listen_on("127.0.0.1", NULL);
	struct rocelink_conn *c = dial("127.0.0.1", l);

	(void)state;
	add_and_start(c, &qps[0]);
	for (int i = 0; i < 5; i++)
		drive_some(c, 1);
	/* Nobody takes it out of the listener's queue. */
	assert_int_equal(conn_drive_at(c, link_now() + 11ull * 1000000000, &err), ROCELINK_TIMEOUT);
	assert_int_equal(err.phase, ROCELINK_PHASE_HELLO);
	assert_int_equal(qps[0].state, IBV_QPS_RESET);
	rocelink_conn_free(c);
	rocelink_listener_free(l);
}

static void meeting(const char *here, const char *there, const char *port, bool second_late)
{
	struct rocelink_conn *a, *b = NULL;
	struct rocelink_error err_b;
	int actives;

	a = rocelink_dial_meet(here, there, port, &options, &err);
	if (!a)
		fail_msg("%s", err.text);
	assert_ok(rocelink_conn_add_qp(a, &qps[0].qp, NULL, &err), err);
	assert_ok(rocelink_conn_start(a, &err), err);
	for (int i = 0; i < (second_late ? 10 : 0); i++)
		drive_some(a, 1);
	b = rocelink_dial_meet(there, here, port, &options, &err_b);
	if (!b)
		fail_msg("%s", err_b.text);
	assert_ok(rocelink_conn_add_qp(b, &qps[1].qp, NULL, &err_b), err_b);
	assert_ok(rocelink_conn_start(b, &err_b), err_b);
	establish_both(a, b);
	assert_int_equal(qps[0].state, IBV_QPS_RTS);
	assert_int_equal(qps[1].state, IBV_QPS_RTS);
	assert_int_equal(fake_qp_step(&qps[0], IBV_QPS_RTR)->attr.dest_qp_num, qps[1].qp.qp_num);
	/* One is active, the other passive, and they are one connection. */
	actives = (a->role == ROCELINK_ACTIVE) + (b->role == ROCELINK_ACTIVE);
	assert_int_equal(actives, 1);
	assert_ok(rocelink_conn_sync_say(a, "x", NULL, &err), err);
	assert_ok(rocelink_conn_sync_say(b, "x", NULL, &err), err);
	for (int i = 0; i < 20; i++) {
		drive_some(a, 1);
		drive_some(b, 1);
	}
	assert_int_equal(rocelink_conn_sync_test(a, "x", &err), ROCELINK_OK);
	assert_int_equal(rocelink_conn_sync_test(b, "x", &err), ROCELINK_OK);
	rocelink_conn_free(a);
	rocelink_conn_free(b);
}

static void both_connect_at_once(void **state)
{
	/* The nonces are random: twenty rounds see both orders and all crossings. */
	for (int i = 0; i < 20; i++) {
		char port[8];
		struct rocelink_listener *l = listen_on("127.0.0.1", NULL);

		snprintf(port, sizeof(port), "%u", rocelink_listener_port(l));
		rocelink_listener_free(l);
		setup(state);
		meeting("127.0.0.1", "127.0.0.2", port, i % 2);
	}
}

static void meeting_with_a_secret(void **state)
{
	struct rocelink_security sec = { .size = sizeof(sec),
					 .secret = "0123456789abcdef",
					 .secret_len = 16 };
	struct rocelink_listener *l = listen_on("127.0.0.1", NULL);
	char port[8];

	(void)state;
	snprintf(port, sizeof(port), "%u", rocelink_listener_port(l));
	rocelink_listener_free(l);
	options.security = &sec;
	meeting("127.0.0.1", "127.0.0.2", port, false);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, setup)
	const struct CMUnitTest tests[] = {
		T(waiting_for_the_end),
		T(over_ipv4),
		T(over_a_name),
		T(over_all_addresses),
		T(over_ipv6),
		T(many_clients_of_one_listener),
		T(strangers_are_limited),
		T(garbage_is_counted_and_harms_nobody),
		T(the_gate),
		T(the_address_must_be_said),
		T(a_port_in_use_is_named),
		T(nobody_listens),
		T(unknown_names),
		T(silent_peers),
		T(both_connect_at_once),
		T(meeting_with_a_secret),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
