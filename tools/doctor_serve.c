/* SPDX-License-Identifier: BSD-2-Clause */
/* The other end of the probe, one peer after the other. */
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/doctor.h"

enum { SYNC_US = 20000000 };

static int serve_round(struct probe *p, struct rocelink_conn *conn, uint32_t size,
		       struct rocelink_error *err)
{
	char text[64];
	int n, rc = rocelink_conn_sync(conn, "sent", NULL, SYNC_US, err);

	if (rc)
		return rc;
	n = probe_count(p, err);
	if (n < 0)
		return ROCELINK_VERBS;
	printf("  %d of %d packets of %u bytes arrived; sending as many\n", n, PROBES, size);
	rc = probe_send(p, size, err);
	if (rc)
		return rc;
	snprintf(text, sizeof(text), "arrived: %d", n);
	return rocelink_conn_sync(conn, "counted", n < PROBES ? text : NULL, SYNC_US, err);
}

static int serve_rounds(struct probe *p, struct rocelink_conn *conn, struct rocelink_error *err)
{
	int rc = probe_link(p, conn, err);

	if (rc)
		return rc;
	printf("  by %s, path MTU %u\n", probe_gid(p), probe_mtu(p));
	rc = serve_round(p, conn, PROBE_SMALL, err);
	if (rc == ROCELINK_OK)
		rc = serve_round(p, conn, probe_mtu(p), err);
	return rc ? rc : rocelink_conn_close(conn, err);
}

static void serve_peer(struct rocelink_conn *conn)
{
	struct rocelink_peer peer = { .size = sizeof(peer) };
	struct rocelink_error err = { 0 };
	struct probe *p = probe_open(conn, &err);

	rocelink_conn_peer(conn, &peer);
	printf("probe from %s\n", peer.address);
	if (!p)
		rocelink_conn_refuse(conn, ROCELINK_REASON_LOCAL, 0, err.text);
	if (!p || serve_rounds(p, conn, &err))
		printf("  failed: %s\n", err.text);
	fflush(stdout);
	rocelink_conn_free(conn);
	probe_close(p);
}

int doctor_serve(const struct doctor_options *o)
{
	const struct rocelink_security *plain = ROCELINK_SECURITY(.mode = ROCELINK_SECURITY_PLAIN);
	const struct rocelink_options *options =
		ROCELINK_OPTIONS(.service_name = DOCTOR_SERVICE, .security = plain);
	struct rocelink_error err;
	struct rocelink_listener *l =
		rocelink_listen(o->listen, o->service, ROCELINK_LISTEN(.conn = options), &err);

	if (!l) {
		fprintf(stderr, "rocelink doctor: %s\n", err.text);
		return EXIT_FAILED;
	}
	printf("serving probes on %s, TCP port %u; stop with Ctrl-C\n",
	       strcmp(o->listen, "*") == 0 ? "all addresses" : o->listen,
	       rocelink_listener_port(l));
	fflush(stdout);
	for (;;) {
		struct rocelink_conn *conn = rocelink_listener_wait(l, ROCELINK_NO_DEADLINE, &err);

		if (!conn)
			break;
		serve_peer(conn);
	}
	fprintf(stderr, "rocelink doctor: %s\n", err.text);
	rocelink_listener_free(l);
	return EXIT_FAILED;
}
