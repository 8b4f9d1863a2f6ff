/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection object: owns a line (or what will become one), the queue pairs to link, and the
 * directories; crosses between the pure parts and the system.
 *
 *	conn.c         make, free, what is known
 *	conn_drive.c   the state machine: one step after the other, never blocking
 *	conn_link.c    HELLO out, HELLO in, GIDs, queue pairs to RTS
 *	conn_rdma.c    options.rdma_host to an address
 *	conn_block.c   the blocking calls, loops around the same drive
 *	conn_shared.c  regions and syncs
 *	meet.c         several lines until one is left
 *
 * Invariants
 *  1. state only moves forward in the order of enum rocelink_state (and OPEN or REQUESTED, never
 * both).
 *  2. In FAILED, `error` is set and never changes; queue pairs that weren't established are back in
 * RESET.
 *  3. has_line is true from the moment the channel is connected; with a ticket it never is.
 */
#ifndef ROCELINK_LINK_CONN_H
#define ROCELINK_LINK_CONN_H

#include "link/config.h"
#include "link/dialer.h"
#include "link/gid.h"
#include "link/line.h"
#include "link/qp.h"
#include "link/syncs.h"
#include "link/trace.h"

struct meet;
struct resolver;

struct rocelink_conn {
	struct config *config;
	struct tracer tracer;
	int epfd;
	enum rocelink_state state;
	struct rocelink_error error;
	enum rocelink_role role;
	uint8_t nonce[NONCE_LEN];

	bool dialing, has_line, by_ticket;
	struct dialer dialer;
	struct line line;
	struct meet *meet;
	char *host; /* connected to; for certificates and texts */

	struct resolver *rdma; /* of options.rdma_host, while it runs */
	uint64_t rdma_deadline_ns;
	struct address rdma_address;
	bool has_rdma_address;

	bool started, prepared;
	struct link_qp *qps;
	unsigned qp_count;
	unsigned offered_count;
	struct rocelink_gid offered[MAX_GIDS]; /* ours, the first in use until the peer chose */
	struct rocelink_gid gid;
	bool has_gid;
	struct gid_value remote_gid;
	uint8_t peer_gid; /* index of remote_gid in the peer's list (passive) */
	uint8_t *private_data;
	size_t private_data_len;
	struct message hello, peer_hello;

	struct regions regions, peer_regions;
	struct syncs syncs;

	enum rocelink_phase phase;
	uint64_t phase_deadline_ns, total_deadline_ns;
};

/* A connection in CONNECTING without anything to connect yet. Takes the reference to config. */
struct rocelink_conn *conn_new(struct config *config, enum rocelink_role role,
			       struct rocelink_error *err);

/* Give it a channel, started. The line goes into conn->line. */
int conn_adopt_fd(struct rocelink_conn *conn, int fd, bool outgoing, struct rocelink_error *err);

/* Enter a phase, which has so long. */
void conn_enter(struct rocelink_conn *conn, enum rocelink_phase phase, uint64_t ns, uint64_t now);

/* conn_drive.c */
int conn_drive_at(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err);
uint64_t conn_deadline(const struct rocelink_conn *conn);
/* End in FAILED: tell the peer, undo the queue pairs. Returns why->code. */
int conn_fail(struct rocelink_conn *conn, const struct rocelink_error *why);

/* conn_link.c */
int conn_choose_gids(struct rocelink_conn *conn, struct rocelink_error *err);
int conn_init_qps(struct rocelink_conn *conn, struct rocelink_error *err);
int conn_prepare(struct rocelink_conn *conn, struct rocelink_error *err);
int conn_make_hello(struct rocelink_conn *conn, struct rocelink_error *err);
int conn_accept_hello(struct rocelink_conn *conn, struct rocelink_error *err);
int conn_link_qps(struct rocelink_conn *conn, struct rocelink_error *err);
/* Take a message over as the peer's HELLO. */
int conn_hear_hello(struct rocelink_conn *conn, struct message *m, struct rocelink_error *err);
int conn_say(struct rocelink_conn *conn, const struct message *m, struct rocelink_error *err);

/* conn_rdma.c */
int conn_rdma_start(struct rocelink_conn *conn, struct rocelink_error *err);
/* OK when the address is known or none is asked for; AGAIN; or why it never will be. */
int conn_rdma_drive(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err);
/* The same, blocking. */
int conn_rdma_wait(struct rocelink_conn *conn, struct rocelink_error *err);
void conn_rdma_stop(struct rocelink_conn *conn);

/* conn_shared.c: a message about regions or syncs. */
int conn_hear_shared(struct rocelink_conn *conn, const struct message *m,
		     struct rocelink_error *err);

/* meet.c */
int meet_start(struct rocelink_conn *conn, const char *local_host, const char *host,
	       const char *service, struct rocelink_error *err);
/* OK when conn->line is the one that is left; AGAIN. */
int meet_drive(struct rocelink_conn *conn, uint64_t now, struct rocelink_error *err);
void meet_free(struct rocelink_conn *conn);

#endif
