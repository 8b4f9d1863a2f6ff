/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions by name and barriers, for the time the connection lives. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "link/conn.h"
#include "link/fail.h"

static int hear_regions(struct rocelink_conn *conn, const struct message *m,
			struct rocelink_error *err)
{
	for (unsigned i = 0; i < m->region_count; i++) {
		int rc = regions_add(&conn->peer_regions, &m->regions[i]);

		if (rc == -ENOMEM)
			return link_no_memory(err);
		if (rc)
			return link_fail(
				err, ROCELINK_PROTOCOL, ROCELINK_PHASE_OPEN, 0,
				rc == -EEXIST
					? "the peer offers region \"%s\" twice"
					: "the peer offers more regions than allowed (\"%s\")",
				m->regions[i].name);
	}
	return ROCELINK_OK;
}

int conn_hear_shared(struct rocelink_conn *conn, const struct message *m,
		     struct rocelink_error *err)
{
	int rc;

	if (m->type == FRAME_REGION)
		return hear_regions(conn, m, err);
	if (m->type == FRAME_WITHDRAW) {
		regions_remove(&conn->peer_regions, m->name); /* unknown: it is gone already */
		return ROCELINK_OK;
	}
	rc = syncs_say(&conn->syncs.peers, m->name, m->reason != ROCELINK_REASON_NONE, m->text);
	if (rc == -ENOSPC)
		return link_fail(err, ROCELINK_PROTOCOL, ROCELINK_PHASE_OPEN, 0,
				 "the peer is %d syncs ahead", SYNCS_MAX);
	return rc ? link_no_memory(err) : ROCELINK_OK;
}

/* Is there a channel on which something can be said now? */
static int check_open(const struct rocelink_conn *conn, const char *what,
		      struct rocelink_error *err)
{
	if (conn->state == ROCELINK_STATE_FAILED) {
		if (err)
			*err = conn->error;
		return (int)conn->error.code;
	}
	if (conn->by_ticket || conn->config->compat)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_OPEN, 0,
				 "%s needs a channel of this protocol", what);
	if (conn->state == ROCELINK_STATE_CLOSED || conn->line.session.said_bye ||
	    conn->line.session.heard_bye)
		return link_fail(err, ROCELINK_CLOSED, ROCELINK_PHASE_OPEN, 0,
				 "%s: the connection has been closed by %s side", what,
				 conn->line.session.said_bye ? "this" : "the other");
	return ROCELINK_OK;
}

int rocelink_conn_offer(struct rocelink_conn *conn, const struct rocelink_region *region,
			struct rocelink_error *err)
{
	struct region_value value;
	struct message m;
	int rc = config_region(region, &value, err);

	if (rc)
		return rc;
	if (conn->by_ticket ? conn->state != ROCELINK_STATE_OPEN : false)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_OPEN, 0,
				 "regions go into a ticket before it is written");
	if (!conn->by_ticket && conn->state > ROCELINK_STATE_REQUESTED) {
		rc = check_open(conn, "offering a region", err);
		if (rc)
			return rc;
	}
	rc = regions_add(&conn->regions, &value);
	if (rc == -EEXIST)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_OPEN, 0,
				 "region \"%s\" is offered already: withdraw it first", value.name);
	if (rc == -ENOSPC)
		return link_fail(err, ROCELINK_LIMIT, ROCELINK_PHASE_OPEN, 0,
				 "more than %d regions", ROCELINK_MAX_REGIONS);
	if (rc)
		return link_no_memory(err);
	if (!conn->line.session.said_hello)
		return ROCELINK_OK; /* it goes with HELLO */
	message_init(&m, FRAME_REGION);
	rc = message_add_region(&m, &value) ? conn_say(conn, &m, err) : link_no_memory(err);
	message_free(&m);
	if (rc) {
		regions_remove(&conn->regions, value.name);
		return rc;
	}
	return line_flush(&conn->line, err);
}

int rocelink_conn_withdraw(struct rocelink_conn *conn, const char *name, struct rocelink_error *err)
{
	struct message m;
	int rc = config_check_name("region", name, err);

	if (rc)
		return rc;
	if (conn->line.session.said_hello) {
		rc = check_open(conn, "withdrawing a region", err);
		if (rc)
			return rc;
	}
	if (regions_remove(&conn->regions, name) != 0)
		return link_fail(err, ROCELINK_NOT_FOUND, ROCELINK_PHASE_OPEN, 0,
				 "this side offers no region \"%s\"", name);
	if (!conn->line.session.said_hello)
		return ROCELINK_OK;
	message_init(&m, FRAME_WITHDRAW);
	message_set_name(&m, name);
	rc = conn_say(conn, &m, err);
	return rc ? rc : line_flush(&conn->line, err);
}

static int give_region(const struct region_value *v, struct rocelink_remote_region *region)
{
	struct rocelink_remote_region r = {
		.addr = v->addr,
		.length = v->length,
		.rkey = v->rkey,
		.access = v->access,
	};

	memcpy(r.name, v->name, sizeof(r.name));
	return link_store_result(region, &r, sizeof(r));
}

int rocelink_conn_find(const struct rocelink_conn *conn, const char *name,
		       struct rocelink_remote_region *region)
{
	const struct region_value *v = name ? regions_find(&conn->peer_regions, name) : NULL;

	return v ? give_region(v, region) : ROCELINK_NOT_FOUND;
}

int rocelink_conn_region(const struct rocelink_conn *conn, unsigned n,
			 struct rocelink_remote_region *region)
{
	return n < conn->peer_regions.count ? give_region(&conn->peer_regions.values[n], region)
					    : ROCELINK_NOT_FOUND;
}

int rocelink_conn_sync_say(struct rocelink_conn *conn, const char *name, const char *failure,
			   struct rocelink_error *err)
{
	struct message m;
	int rc = config_check_name("sync", name, err);

	if (!rc)
		rc = check_open(conn, "a sync", err);
	if (rc)
		return rc;
	if (conn->state != ROCELINK_STATE_ESTABLISHED)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_OPEN, 0,
				 "a sync needs an established connection, this one is %s",
				 rocelink_state_name(conn->state));
	rc = syncs_say(&conn->syncs.mine, name, failure != NULL, failure);
	if (rc)
		return link_fail(err, rc == -ENOSPC ? ROCELINK_LIMIT : ROCELINK_SYSTEM,
				 ROCELINK_PHASE_OPEN, -rc, "saying sync \"%s\": %d unmet at most",
				 name, SYNCS_MAX);
	message_init(&m, FRAME_SYNC);
	message_set_name(&m, name);
	message_set_status(&m, failure ? ROCELINK_REASON_APPLICATION : ROCELINK_REASON_NONE, 0,
			   NO_QP_INDEX, failure);
	rc = conn_say(conn, &m, err);
	return rc ? rc : line_flush(&conn->line, err);
}

int rocelink_conn_sync_test(struct rocelink_conn *conn, const char *name,
			    struct rocelink_error *err)
{
	struct sync_word mine, peer;
	int rc = name ? syncs_meet(&conn->syncs, name, &mine, &peer) : -EINVAL;

	if (rc == -EINVAL)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_OPEN, 0,
				 "sync \"%s\" was not said by this side (or is met already)",
				 name ? name : "");
	if (rc == 0 && peer.failed) {
		link_fail(err, ROCELINK_PEER_FAILED, ROCELINK_PHASE_OPEN, 0,
			  "the peer failed at sync \"%s\"%s%s", name, *peer.text ? ": " : "",
			  peer.text);
		if (err)
			err->reason = ROCELINK_REASON_APPLICATION;
		return ROCELINK_PEER_FAILED;
	}
	if (rc == 0)
		return ROCELINK_OK;
	/* What was said before the end still counts; what wasn't never will be. */
	rc = check_open(conn, "a sync", err);
	return rc ? rc : link_again(err);
}
