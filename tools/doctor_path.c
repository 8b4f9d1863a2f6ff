/* SPDX-License-Identifier: BSD-2-Clause */
/* The way to a host: the GID and MTU that the route gives, then real packets. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor.h"

enum { SYNC_US = 20000000 };

/* The kernel's idea of the path MTU to the host, in bytes of IP; 0: not known. */
static int route_mtu(const char *host)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
	struct addrinfo *list;
	int mtu = 0, fd;

	if (getaddrinfo(host, "4791", &hints, &list))
		return 0;
	fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0) {
		bool v6 = list->ai_family == AF_INET6;
		socklen_t len = sizeof(mtu);

		if (getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu,
			       &len))
			mtu = 0;
	}
	if (fd >= 0)
		close(fd);
	freeaddrinfo(list);
	return mtu;
}

void doctor_check_route(struct doctor *d, const struct doctor_options *o)
{
	struct rocelink_gid gid = { .size = sizeof(gid) };
	struct rocelink_error err;
	int mtu;

	if (rocelink_gid_choose(NULL, o->host, &gid, &err)) {
		doctor_find(d, BAD, "route",
			    "both ends need an address of the same family, and a route", "%s",
			    err.text);
		return;
	}
	doctor_find(d, WELL, "route", NULL, "to %s: %s GID %d (%s): %s", o->host, gid.device,
		    gid.index, gid.address, gid.why);
	mtu = route_mtu(o->host);
	if (mtu)
		doctor_find(d, WELL, "route", NULL, "the kernel believes that %d bytes pass", mtu);
}

/* One direction, and whether its small packets arrived: then the port is open. */
struct way {
	const char *word, *where, *firewall;
	bool open;
};

static void judge(struct doctor *d, const struct doctor_options *o, struct way *way, uint32_t size,
		  unsigned n)
{
	char advice[160];

	if (n == PROBES)
		snprintf(advice, sizeof(advice), "%s", "");
	else if (n)
		snprintf(advice, sizeof(advice), "the path loses packets");
	else if (size == PROBE_SMALL)
		snprintf(advice, sizeof(advice), "%s", way->firewall);
	else if (!way->open)
		snprintf(advice, sizeof(advice), "nothing arrives, small or large: see above");
	else
		snprintf(advice, sizeof(advice),
			 "a link on the way has a smaller MTU: lower that of both interfaces, or "
			 "use -m %u or less",
			 size / 2);
	doctor_find(d,
		    n == PROBES ? WELL
		    : n		? NOTE
				: BAD,
		    "packets", *advice ? advice : NULL, "of %u bytes %s %s: %u of %u arrived%s",
		    size, way->word, o->host, n, PROBES, n == PROBES ? "" : way->where);
	way->open |= n > 0;
}

/* Ours first, then the peer's; the peer says by its sync how many of ours it has. */
static int probe_round(struct doctor *d, const struct doctor_options *o, struct way ways[2],
		       struct probe *p, struct rocelink_conn *conn, uint32_t size,
		       struct rocelink_error *err)
{
	unsigned there = PROBES;
	int here, rc = probe_send(p, size, err);

	if (rc == ROCELINK_OK)
		rc = rocelink_conn_sync(conn, "sent", NULL, SYNC_US, err);
	if (rc == ROCELINK_OK)
		rc = rocelink_conn_sync(conn, "counted", NULL, SYNC_US, err);
	if (rc == ROCELINK_PEER_FAILED) {
		const char *at = strstr(err->text, "arrived: ");

		if (!at || sscanf(at, "arrived: %u", &there) != 1 || there > PROBES)
			return rc;
		rc = ROCELINK_OK;
	}
	if (rc)
		return rc;
	here = probe_count(p, err);
	if (here < 0)
		return ROCELINK_VERBS;
	judge(d, o, &ways[0], size, there);
	judge(d, o, &ways[1], size, (unsigned)here);
	return ROCELINK_OK;
}

static int probe_linked(struct doctor *d, const struct doctor_options *o, struct probe *p,
			struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct way ways[] = {
		{ .word = "to",
		  .where = " there",
		  .firewall = "let UDP port 4791 in at that host's firewall, out of this "
			      "machine's, and through those on the way" },
		{ .word = "from",
		  .where = " here",
		  .firewall = "let UDP port 4791 in at this machine's firewall: it is no answer to "
			      "an outgoing connection, so it needs a rule of its own" },
	};
	int rc = probe_link(p, conn, err);

	if (rc == ROCELINK_OK)
		rc = probe_round(d, o, ways, p, conn, PROBE_SMALL, err);
	if (rc == ROCELINK_OK)
		rc = probe_round(d, o, ways, p, conn, probe_mtu(p), err);
	if (rc == ROCELINK_OK)
		rocelink_conn_close(conn, NULL);
	return rc;
}

/* The connection ends here in every case: before the probe, whose objects it refers to. */
static int probe_by(struct doctor *d, const struct doctor_options *o, struct rocelink_conn *conn,
		    struct rocelink_error *err)
{
	int rc = rocelink_conn_wait(conn, ROCELINK_STATE_OPEN, err);
	struct probe *p = rc ? NULL : probe_open(conn, err);

	if (p)
		rc = probe_linked(d, o, p, conn, err);
	else if (rc == ROCELINK_OK)
		rc = ROCELINK_VERBS;
	rocelink_conn_free(conn);
	probe_close(p);
	return rc;
}

void doctor_check_probe(struct doctor *d, const struct doctor_options *o)
{
	struct rocelink_error err = { 0 };
	struct rocelink_conn *conn;

	/* Nothing in this exchange gives access to memory: no region is offered. */
	conn = rocelink_dial(
		o->host, o->service,
		ROCELINK_OPTIONS(.service_name = DOCTOR_SERVICE,
				 .security = ROCELINK_SECURITY(.mode = ROCELINK_SECURITY_PLAIN)),
		&err);
	if (conn && probe_by(d, o, conn, &err) == ROCELINK_OK)
		return;
	doctor_find(d, BAD, "probe",
		    err.phase == ROCELINK_PHASE_CONNECT
			    ? "start `rocelink doctor --serve` there, and let its TCP port (18516, "
			      "or -p) through"
			    : NULL,
		    "%s", err.text);
}
