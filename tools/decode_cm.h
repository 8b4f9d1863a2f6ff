/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager's datagrams (IBA chapter 12), by which programs of librdmacm exchange
 * queue pairs: sent to QPN 1 of the other host, in the clear.
 */
#ifndef ROCELINK_TOOLS_DECODE_CM_H
#define ROCELINK_TOOLS_DECODE_CM_H

#include "tools/decode_exchange.h"
#include "tools/decode_frame.h"
#include "tools/decode_told.h"

#define CM_QPN	   1
#define CM_MAD_LEN 256

/* One connection that is being made: the active side sends the request. */
struct cm_conn {
	struct gid address[2]; /* active, passive */
	uint32_t id[2];	       /* communication IDs; the passive one is 0 until its first answer */
	struct exchange *exchange;
	struct cm_conn *next;
};

struct cm_table {
	struct cm_conn *newest;
};

void cm_table_destroy(struct cm_table *t);

/*
 * Read the datagram mad[0..CM_MAD_LEN) of frame f. False: not of the connection manager. Otherwise
 * *m is the message (to be destroyed), and *conn and *side tell whose it is; *conn is NULL when the
 * request isn't in the capture. from and to: the parties, of a new connection.
 */
bool cm_read(struct cm_table *t, struct registry *r, const struct frame *f, const uint8_t *mad,
	     struct party *from, struct party *to, struct message *m, struct cm_conn **conn,
	     unsigned *side);

#endif
