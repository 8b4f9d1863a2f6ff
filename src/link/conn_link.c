/* SPDX-License-Identifier: BSD-2-Clause */
/* From two HELLOs to queue pairs in RTS. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "link/conn.h"
#include "link/fail.h"

#define AGENT "rocelink " ROCELINK_VERSION

int conn_say(struct rocelink_conn *conn, const struct message *m, struct rocelink_error *err)
{
	int rc = session_say(&conn->line.session, m, err);
	char text[2048];

	if (rc == ROCELINK_OK && !conn->tracer.off) {
		message_describe(m, text, sizeof(text));
		tracer_say(&conn->tracer, ROCELINK_STEP_SENT, "sent %s", text);
	}
	return rc;
}

/* Where the peer's RDMA address is looked for: said by the program, else the channel's other end.
 */
static bool peer_address(const struct rocelink_conn *conn, struct address *a)
{
	if (!conn->has_rdma_address)
		return conn->has_line &&
		       address_from_sockaddr(a, (const struct sockaddr *)&conn->line.peer);
	*a = conn->rdma_address;
	return true;
}

struct candidate {
	struct rocelink_gid gid;
	unsigned score;
};

static int better_first(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->gid.index - y->gid.index;
}

/* The best few of the port that the best of all is on: the queue pair can be on one port only. */
static int rank_gids(struct rocelink_conn *conn, const struct gid_table *t,
		     const struct route *route, struct rocelink_error *err)
{
	char why[256];
	int best = gid_choose(t, route, why, sizeof(why), err);
	struct candidate *list;
	unsigned n = 0;

	if (best < 0)
		return ROCELINK_NO_DEVICE;
	list = calloc(t->count, sizeof(*list));
	if (!list)
		return link_no_memory(err);
	for (unsigned i = 0; i < t->count; i++) {
		unsigned score = gid_score(&t->gids[i], route);

		if (!score || t->gids[i].port != t->gids[best].port)
			continue;
		list[n++] = (struct candidate){ t->gids[i], (int)i == best ? UINT32_MAX : score };
	}
	qsort(list, n, sizeof(*list), better_first);
	conn->offered_count = n < MAX_GIDS ? n : MAX_GIDS;
	for (unsigned i = 0; i < conn->offered_count; i++)
		conn->offered[i] = list[i].gid;
	free(list);
	snprintf(conn->offered[0].why, sizeof(conn->offered[0].why), "%s", why);
	return ROCELINK_OK;
}

static int read_table(struct rocelink_conn *conn, struct gid_table *t, struct rocelink_error *err)
{
	uint8_t port = 0;
	int rc;

	for (unsigned i = 0; i < conn->qp_count && !port; i++)
		port = conn->qps[i].port;
	rc = gid_table_add(t, conn->qps[0].qp->context, port, err);
	if (rc)
		gid_table_free(t);
	return rc;
}

static int choose_active(struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct gid_table t = { 0 };
	struct address to;
	struct route route;
	bool known = peer_address(conn, &to);
	int rc = read_table(conn, &t, err);

	if (rc)
		return rc;
	if (known)
		route_find(&route, &to);
	rc = rank_gids(conn, &t, known ? &route : NULL, err);
	gid_table_free(&t);
	return rc;
}

/* The pair of one of ours and one of the peer's that goes together best. */
static int pair_gids(struct rocelink_conn *conn, const struct gid_table *t, char *why, size_t len)
{
	const struct message *hello = &conn->peer_hello;
	unsigned best = 0;
	int found = -1;

	for (unsigned p = 0; p < hello->gid_count; p++) {
		struct address to = { 0 };
		struct route route;

		memcpy(to.ip, hello->gids[p].gid, sizeof(to.ip));
		if (address_is_link_local(&to) && conn->line.peer.ss_family == AF_INET6)
			to.scope = ((const struct sockaddr_in6 *)&conn->line.peer)->sin6_scope_id;
		route_find(&route, &to);
		for (unsigned i = 0; i < t->count; i++) {
			struct gid_value own;
			unsigned score = gid_score(&t->gids[i], &route);

			gid_to_value(&own, &t->gids[i]);
			if (score <= best || !negotiate_gids_match(&own, &hello->gids[p]))
				continue;
			best = score;
			found = (int)i;
			conn->peer_gid = (uint8_t)p;
			/* Explained for this route alone, as if nothing else were there. */
			gid_choose(&(struct gid_table){ .gids = &t->gids[i], .count = 1 }, &route,
				   why, len, NULL);
		}
	}
	return found;
}

static void list_peer_gids(const struct message *hello, char *buf, size_t len)
{
	size_t used = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < hello->gid_count && used + 64 < len; i++) {
		char text[INET6_ADDRSTRLEN];
		struct address a = { 0 };

		memcpy(a.ip, hello->gids[i].gid, sizeof(a.ip));
		address_text(&a, text, sizeof(text));
		used += (size_t)snprintf(buf + used, len - used, "%s%s", i ? ", " : "", text);
	}
}

static int no_pair(struct rocelink_conn *conn, const char *ours, struct rocelink_error *err)
{
	char peers[400];

	list_peer_gids(&conn->peer_hello, peers, sizeof(peers));
	link_fail(err, ROCELINK_MISMATCH, ROCELINK_PHASE_NEGOTIATE, 0,
		  "no two GIDs go together: the other side has %s, this side (%s) %s; both need an "
		  "address of the "
		  "same family on their devices",
		  peers, ibv_get_device_name(conn->qps[0].qp->context->device), ours);
	if (err)
		err->reason = ROCELINK_REASON_GID;
	return ROCELINK_MISMATCH;
}

static int choose_passive(struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct gid_table t = { 0 };
	char why[256], ours[400] = "none";
	int rc = read_table(conn, &t, err), i;

	if (rc)
		return rc;
	i = pair_gids(conn, &t, why, sizeof(why));
	if (i >= 0) {
		conn->offered[0] = t.gids[i];
		conn->offered_count = 1;
		snprintf(conn->offered[0].why, sizeof(conn->offered[0].why), "%s", why);
	} else {
		if (t.count)
			snprintf(ours, sizeof(ours), "%s%s", t.gids[0].address,
				 t.count > 1 ? " and others" : "");
		rc = no_pair(conn, ours, err);
	}
	gid_table_free(&t);
	return rc;
}

/* The program's own choice: with the first of the peer's that goes with it. */
static int choose_given(struct rocelink_conn *conn, struct rocelink_error *err)
{
	const struct message *hello = &conn->peer_hello;
	struct gid_value own;

	conn->offered[0] = conn->config->gid;
	conn->offered_count = 1;
	snprintf(conn->offered[0].why, sizeof(conn->offered[0].why), "the program chose it");
	if (!hello->gid_count || conn->role != ROCELINK_PASSIVE)
		return ROCELINK_OK;
	gid_to_value(&own, &conn->offered[0]);
	for (unsigned p = 0; p < hello->gid_count; p++)
		if (negotiate_gids_match(&own, &hello->gids[p])) {
			conn->peer_gid = (uint8_t)p;
			return ROCELINK_OK;
		}
	return no_pair(conn, conn->offered[0].address, err);
}

int conn_choose_gids(struct rocelink_conn *conn, struct rocelink_error *err)
{
	int rc;

	if (conn->has_gid)
		return ROCELINK_OK;
	if (conn->config->has_gid)
		rc = choose_given(conn, err);
	else if (conn->role == ROCELINK_PASSIVE && conn->peer_hello.gid_count)
		rc = choose_passive(conn, err);
	else
		rc = choose_active(conn, err);
	if (rc)
		return rc;
	conn->gid = conn->offered[0];
	conn->has_gid = true;
	tracer_say(&conn->tracer, ROCELINK_STEP_GID_CHOSEN, "GID %s (%s port %u index %d): %s",
		   conn->gid.address, conn->gid.device, conn->gid.port, conn->gid.index,
		   conn->gid.why);
	return ROCELINK_OK;
}

int conn_init_qps(struct rocelink_conn *conn, struct rocelink_error *err)
{
	for (unsigned i = 0; i < conn->qp_count; i++) {
		int rc;

		if (conn->qps[i].values.qpn)
			continue; /* its values are filled */
		rc = link_qp_init(&conn->qps[i], &conn->gid, conn->config->compat, &conn->tracer,
				  err);
		if (rc)
			return rc;
	}
	return ROCELINK_OK;
}

int conn_prepare(struct rocelink_conn *conn, struct rocelink_error *err)
{
	int rc;

	if (conn->prepared || !conn->config->prepare)
		return ROCELINK_OK;
	conn->prepared = true;
	rc = conn->config->prepare(conn->config->prepare_arg, conn);
	if (conn->state == ROCELINK_STATE_FAILED) {
		/* It has refused with its own words. */
		if (err)
			*err = conn->error;
		return (int)conn->error.code;
	}
	if (!rc)
		return ROCELINK_OK;
	link_fail(err, ROCELINK_CLOSED, ROCELINK_PHASE_INIT, 0,
		  "options.prepare refused the connection (%d)", rc);
	if (err) {
		err->reason = ROCELINK_REASON_APPLICATION;
		err->app_reason = (uint32_t)rc;
	}
	return ROCELINK_CLOSED;
}

int conn_make_hello(struct rocelink_conn *conn, struct rocelink_error *err)
{
	const struct config *c = conn->config;
	const uint8_t *data = conn->private_data ? conn->private_data : c->private_data;
	size_t len = conn->private_data ? conn->private_data_len : c->private_data_len;
	struct message *m = &conn->hello;
	bool ok = true;

	message_free(m);
	message_init(m, FRAME_HELLO);
	snprintf(m->agent, sizeof(m->agent), "%s", AGENT);
	m->has |= 1u << FIELD_AGENT | 1u << FIELD_GID;
	if (*c->service_name) {
		memcpy(m->service_name, c->service_name, sizeof(m->service_name));
		m->has |= 1u << FIELD_SERVICE_NAME;
	}
	for (unsigned i = 0; i < conn->offered_count; i++)
		gid_to_value(&m->gids[m->gid_count++], &conn->offered[i]);
	for (unsigned i = 0; i < conn->qp_count; i++)
		ok = ok && message_add_qp(m, &conn->qps[i].values);
	for (unsigned i = 0; i < conn->regions.count; i++)
		ok = ok && message_add_region(m, &conn->regions.values[i]);
	if (len)
		ok = ok && message_set_private_data(m, data, len);
	if (conn->role == ROCELINK_PASSIVE && conn->has_line) {
		message_set_echo(m, conn->line.session.peer_nonce);
		if (conn->peer_gid != NO_PEER_GID) {
			m->peer_gid = conn->peer_gid;
			m->has |= 1u << FIELD_PEER_GID;
		}
	}
	return ok ? ROCELINK_OK : link_no_memory(err);
}

int conn_hear_hello(struct rocelink_conn *conn, struct message *m, struct rocelink_error *err)
{
	message_free(&conn->peer_hello);
	conn->peer_hello = *m;
	message_init(m, FRAME_HELLO); /* what it owned is ours now */
	for (unsigned i = 0; i < conn->peer_hello.region_count; i++)
		if (regions_add(&conn->peer_regions, &conn->peer_hello.regions[i]) != 0)
			return link_fail(err, ROCELINK_PROTOCOL, ROCELINK_PHASE_HELLO, 0,
					 "the peer's HELLO offers \"%s\" twice",
					 conn->peer_hello.regions[i].name);
	return ROCELINK_OK;
}

/* Which GID of ours and of the peer's: section 5 of the protocol. */
static int settle_gids(struct rocelink_conn *conn, struct rocelink_error *err)
{
	const struct message *hello = &conn->peer_hello;
	struct gid_value own;

	if (conn->role == ROCELINK_PASSIVE) {
		conn->remote_gid = hello->gids[conn->peer_gid == NO_PEER_GID ? 0 : conn->peer_gid];
	} else {
		conn->remote_gid = hello->gids[0];
		if (message_has(hello, FIELD_PEER_GID)) {
			if (hello->peer_gid >= conn->offered_count)
				return link_fail(err, ROCELINK_PROTOCOL, ROCELINK_PHASE_NEGOTIATE,
						 0, "the peer chose GID %u of our %u",
						 hello->peer_gid, conn->offered_count);
			if (hello->peer_gid > 0) {
				conn->gid = conn->offered[hello->peer_gid];
				snprintf(conn->gid.why, sizeof(conn->gid.why),
					 "the peer chose it among the %u offered",
					 conn->offered_count);
			}
		}
	}
	gid_to_value(&own, &conn->gid);
	if (!negotiate_gids_match(&own, &conn->remote_gid))
		return no_pair(conn, conn->gid.address, err);
	return ROCELINK_OK;
}

static void tell_agreement(struct rocelink_conn *conn, const struct link_qp *q)
{
	const struct agreed *a = &q->agreed;
	char remote[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, conn->remote_gid.gid, remote, sizeof(remote));
	if (a->type == WIRE_UD)
		tracer_say(&conn->tracer, ROCELINK_STEP_NEGOTIATED,
			   "agreed: queue pair %u UD, QPN 0x%06x, peer QPN 0x%06x at %s, its Q_Key "
			   "0x%08x",
			   q->index, q->values.qpn, a->remote_qpn, remote, a->remote_qkey);
	else
		tracer_say(&conn->tracer, ROCELINK_STEP_NEGOTIATED,
			   "agreed: queue pair %u %s, QPN 0x%06x PSN 0x%06x, peer QPN 0x%06x PSN "
			   "0x%06x at %s, "
			   "path MTU %u, depths %u out %u in, timeout code %u, retries %u, RNR "
			   "retries %u",
			   q->index, wire_qp_type_name(a->type), q->values.qpn, a->psn,
			   a->remote_qpn, a->remote_psn, remote,
			   rocelink_mtu_bytes((enum ibv_mtu)a->mtu), a->initiator_depth,
			   a->responder_depth, a->timeout, a->retry, a->rnr_retry);
}

static int check_mtu(const struct link_qp *q, const struct qp_values *peer,
		     struct rocelink_error *err)
{
	unsigned least = q->options.min_path_mtu;

	if (rocelink_mtu_bytes((enum ibv_mtu)q->agreed.mtu) >= least)
		return ROCELINK_OK;
	link_fail(err, ROCELINK_MISMATCH, ROCELINK_PHASE_NEGOTIATE, 0,
		  "queue pair %u: one side wants a path MTU of %u or more; it has up to %u, the "
		  "other up to %u; use "
		  "interfaces with a larger MTU, or want less",
		  q->index, least, rocelink_mtu_bytes((enum ibv_mtu)q->values.mtu),
		  rocelink_mtu_bytes((enum ibv_mtu)peer->mtu));
	if (err)
		err->reason = ROCELINK_REASON_MTU;
	return ROCELINK_MISMATCH;
}

int conn_accept_hello(struct rocelink_conn *conn, struct rocelink_error *err)
{
	char text[400];
	enum rocelink_reason reason =
		negotiate_check(&conn->hello, &conn->peer_hello, text, sizeof(text));
	int rc;

	if (reason) {
		link_fail(err, ROCELINK_MISMATCH, ROCELINK_PHASE_NEGOTIATE, 0, "%s", text);
		if (err)
			err->reason = reason;
		return ROCELINK_MISMATCH;
	}
	rc = settle_gids(conn, err);
	if (rc)
		return rc;
	for (unsigned i = 0; i < conn->qp_count; i++) {
		negotiate_pair(&conn->qps[i].values, &conn->peer_hello.qps[i],
			       &conn->qps[i].agreed);
		rc = check_mtu(&conn->qps[i], &conn->peer_hello.qps[i], err);
		if (rc)
			return rc;
		tell_agreement(conn, &conn->qps[i]);
	}
	return ROCELINK_OK;
}

int conn_link_qps(struct rocelink_conn *conn, struct rocelink_error *err)
{
	for (unsigned i = 0; i < conn->qp_count; i++) {
		int rc = link_qp_connect(&conn->qps[i], &conn->gid, &conn->remote_gid,
					 &conn->tracer, err);

		if (rc)
			return rc;
	}
	return ROCELINK_OK;
}
