/* SPDX-License-Identifier: BSD-2-Clause */
/* TLS with secrets and certificates, right and wrong, over memory; and plain text where it isn't
 * wanted. */
#include "check.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "certs.h"
#include "link/conn.h"
#include "pair.h"

static const char secret[] = "0123456789abcdef-secret";
static struct certs certs;
static struct pair p;
static struct rocelink_security sec[2];

static int group_setup(void **state)
{
	(void)state;
	certs_make(&certs);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	certs_remove(&certs);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	for (int i = 0; i < 2; i++) {
		sec[i] = (struct rocelink_security){ .size = sizeof(sec[i]) };
		p.side[i].options.security = &sec[i];
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pair_free(&p);
	return 0;
}

static void use_secret(int side, const char *text)
{
	sec[side].secret = text;
	sec[side].secret_len = strlen(text);
}

static void use_certs(void)
{
	sec[0].cert_file = certs.client;
	sec[0].key_file = certs.client_key;
	sec[1].cert_file = certs.server;
	sec[1].key_file = certs.server_key;
	sec[0].ca_file = sec[1].ca_file = certs.ca;
	sec[0].peer_name = "localhost";
}

static void go(void)
{
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
}

static void assert_established(const char *identity_of_passive)
{
	struct rocelink_peer peer = { .size = sizeof(peer) };

	for (int i = 0; i < 2; i++)
		if (rocelink_conn_state(p.side[i].conn) != ROCELINK_STATE_ESTABLISHED)
			fail_msg("side %d: %s", i, p.side[i].err.text);
	assert_int_equal(rocelink_conn_peer(p.side[0].conn, &peer), ROCELINK_OK);
	assert_contains(peer.identity, identity_of_passive);
	/* Nothing of the exchange was to be seen: not even the magic. */
	for (int i = 0; i < 2; i++)
		assert_null(memmem(p.ends[i].sent.data, p.ends[i].sent.len, "RLNK", 4));
}

static void assert_insecure(int side, const char *text)
{
	const struct rocelink_error *err = rocelink_conn_error(p.side[side].conn);

	assert_non_null(err);
	if (err->code != ROCELINK_SECURITY)
		fail_msg("%s: %s", rocelink_code_name(err->code), err->text);
	assert_int_equal(err->phase, ROCELINK_PHASE_SECURE);
	assert_contains(err->text, text);
	assert_int_not_equal(p.side[side].qps[0].state, IBV_QPS_RTS);
}

static void same_secret(void **state)
{
	struct rocelink_error *err = &p.side[0].err;

	(void)state;
	use_secret(0, secret);
	use_secret(1, secret);
	go();
	assert_established("shared secret");
	assert_ok(rocelink_conn_bye(p.side[0].conn, err), *err);
	pair_run(&p);
	assert_ok(rocelink_conn_bye(p.side[1].conn, err), *err);
	pair_run(&p);
	assert_int_equal(rocelink_conn_state(p.side[0].conn), ROCELINK_STATE_CLOSED);
	assert_int_equal(rocelink_conn_state(p.side[1].conn), ROCELINK_STATE_CLOSED);
}

static void same_secret_one_byte_at_a_time(void **state)
{
	(void)state;
	p.ends[0].chunk = p.ends[1].chunk = 1;
	use_secret(0, secret);
	use_secret(1, secret);
	go();
	assert_established("shared secret");
}

static void secret_from_file(void **state)
{
	char path[100];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/secret", certs.dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, secret, strlen(secret)), strlen(secret));
	assert_int_equal(write(fd, "\n", 1), 1);
	close(fd);
	sec[0].secret_file = path;
	use_secret(1, secret);
	go();
	unlink(path);
	assert_established("shared secret");
}

static void different_secrets(void **state)
{
	(void)state;
	use_secret(0, secret);
	use_secret(1, "0123456789abcdef-another");
	go();
	assert_insecure(0, "doesn't have this side's secret: give both sides the same");
	assert_insecure(1, "doesn't have this side's secret: give both sides the same");
}

static void certificates(void **state)
{
	struct rocelink_peer peer = { .size = sizeof(peer) };

	(void)state;
	use_certs();
	go();
	assert_established("CN=server");
	assert_int_equal(rocelink_conn_peer(p.side[1].conn, &peer), ROCELINK_OK);
	assert_contains(peer.identity, "CN=client");
}

static void server_of_another_ca(void **state)
{
	(void)state;
	use_certs();
	sec[1].cert_file = certs.stranger;
	sec[1].key_file = certs.stranger_key;
	go();
	assert_insecure(0, "the peer's certificate isn't accepted");
	assert_insecure(1, "its ca_file");
}

static void client_of_another_ca(void **state)
{
	(void)state;
	use_certs();
	sec[0].cert_file = certs.stranger;
	sec[0].key_file = certs.stranger_key;
	go();
	assert_insecure(1, "the peer's certificate isn't accepted");
	assert_insecure(0, "its ca_file");
}

static void server_of_another_name(void **state)
{
	(void)state;
	use_certs();
	sec[0].peer_name = "elsewhere.example";
	go();
	assert_insecure(0, "the peer's certificate isn't accepted");
	assert_contains(rocelink_conn_error(p.side[0].conn)->text, "ostname mismatch");
}

static void name_is_needed(void **state)
{
	struct rocelink_channel ch = mem_channel(&p.ends[0]);

	(void)state;
	use_certs();
	sec[0].peer_name = NULL;
	assert_null(
		rocelink_dial_channel(&ch, ROCELINK_ACTIVE, &p.side[0].options, &p.side[0].err));
	assert_contains(p.side[0].err.text, "peer_name");
}

static void secret_against_certificate(void **state)
{
	(void)state;
	use_certs();
	sec[0] = (struct rocelink_security){ .size = sizeof(sec[0]) };
	use_secret(0, secret);
	go();
	assert_insecure(0, "");
	assert_insecure(1, "");
}

static void certificate_against_secret(void **state)
{
	(void)state;
	use_certs();
	sec[1] = (struct rocelink_security){ .size = sizeof(sec[1]) };
	use_secret(1, secret);
	go();
	assert_insecure(0, "");
	assert_insecure(1, "");
}

static void tls_client_plain_server(void **state)
{
	(void)state;
	use_secret(0, secret);
	sec[1].mode = ROCELINK_SECURITY_PLAIN;
	go();
	assert_insecure(0, "the peer speaks plain text");
	assert_int_equal(rocelink_conn_error(p.side[1].conn)->code, ROCELINK_PROTOCOL);
	assert_contains(rocelink_conn_error(p.side[1].conn)->text, "speaks TLS");
}

static void plain_client_tls_server(void **state)
{
	const struct rocelink_error *err;

	(void)state;
	sec[0].mode = ROCELINK_SECURITY_PLAIN;
	use_secret(1, secret);
	go();
	assert_insecure(1, "the peer speaks plain text");
	err = rocelink_conn_error(p.side[0].conn);
	assert_non_null(err);
	assert_int_equal(err->code, ROCELINK_REFUSED);
	assert_int_equal(err->reason, ROCELINK_REASON_AUTH);
	assert_contains(err->text, "wants TLS");
}

static void plain_only_by_name(void **state)
{
	struct rocelink_channel ch = mem_channel(&p.ends[0]);

	(void)state;
	assert_null(
		rocelink_dial_channel(&ch, ROCELINK_ACTIVE, &p.side[0].options, &p.side[0].err));
	assert_int_equal(p.side[0].err.code, ROCELINK_SECURITY);
	assert_contains(p.side[0].err.text, "ROCELINK_SECURITY_PLAIN");
}

static void plain_on_a_unix_socket(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	for (int i = 0; i < 2; i++) {
		struct side *s = &p.side[i];

		s->conn = rocelink_dial_fd(fds[i], s->role, &s->options, &s->err);
		if (!s->conn)
			fail_msg("%s", s->err.text);
	}
	for (int n = 0; n < 4; n++)
		for (int i = 0; i < 2; i++)
			rocelink_conn_drive(p.side[i].conn, NULL);
	assert_int_equal(rocelink_conn_state(p.side[0].conn), ROCELINK_STATE_OPEN);
}

static void wrong_settings_are_explained(void **state)
{
	struct rocelink_channel ch = mem_channel(&p.ends[0]);
	struct rocelink_error *err = &p.side[0].err;
	const struct rocelink_options *o = &p.side[0].options;

	(void)state;
	use_secret(0, "short");
	assert_null(rocelink_dial_channel(&ch, ROCELINK_ACTIVE, o, err));
	assert_contains(err->text, "16");
	sec[0] =
		(struct rocelink_security){ .size = sizeof(sec[0]), .mode = ROCELINK_SECURITY_PSK };
	assert_null(rocelink_dial_channel(&ch, ROCELINK_ACTIVE, o, err));
	assert_contains(err->text, "secret_file");
	sec[0].secret_file = "/nonexistent/secret";
	assert_null(rocelink_dial_channel(&ch, ROCELINK_ACTIVE, o, err));
	assert_contains(err->text, "/nonexistent/secret");
	sec[0] = (struct rocelink_security){ .size = sizeof(sec[0]), .cert_file = certs.client };
	assert_null(rocelink_dial_channel(&ch, ROCELINK_ACTIVE, o, err));
	assert_contains(err->text, "all three");
	sec[0].key_file = certs.server_key;
	sec[0].ca_file = certs.ca;
	assert_null(rocelink_dial_channel(&ch, ROCELINK_ACTIVE, o, err));
	assert_contains(err->text, "key");
	sec[0] = (struct rocelink_security){ .size = 1 };
	assert_null(rocelink_dial_channel(&ch, ROCELINK_ACTIVE, o, err));
	assert_contains(err->text, "sizeof");
}

/* A handshake that stops at any byte ends with its deadline or the channel. */
static void tls_stops_at_every_byte(void **state)
{
	uint64_t late = link_now() + 100ull * 1000000000;
	size_t total;

	(void)state;
	use_secret(0, secret);
	use_secret(1, secret);
	go();
	total = p.ends[0].sent.len;
	for (size_t cut = 0; cut < total; cut += 7) {
		struct rocelink_options keep = p.side[0].options, keep1 = p.side[1].options;

		pair_free(&p);
		pair_init(&p);
		p.side[0].options = keep;
		p.side[1].options = keep1;
		p.ends[0].cut_after = cut;
		go();
		if (rocelink_conn_state(p.side[1].conn) != ROCELINK_STATE_FAILED)
			conn_drive_at(p.side[1].conn, late, &p.side[1].err);
		assert_int_equal(rocelink_conn_state(p.side[1].conn), ROCELINK_STATE_FAILED);
		assert_int_not_equal(p.side[1].qps[0].state, IBV_QPS_RTS);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(same_secret),
		T(same_secret_one_byte_at_a_time),
		T(secret_from_file),
		T(different_secrets),
		T(certificates),
		T(server_of_another_ca),
		T(client_of_another_ca),
		T(server_of_another_name),
		T(name_is_needed),
		T(secret_against_certificate),
		T(certificate_against_secret),
		T(tls_client_plain_server),
		T(plain_client_tls_server),
		T(plain_only_by_name),
		T(plain_on_a_unix_socket),
		T(wrong_settings_are_explained),
		T(tls_stops_at_every_byte),
	};
#undef T

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
