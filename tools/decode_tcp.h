/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TCP connections, put together as far as needed to read an exchange: retransmitted and reordered
 * segments are handled; a hole that isn't filled is skipped after a while and the rest shown as
 * bytes.
 */
#ifndef ROCELINK_TOOLS_DECODE_TCP_H
#define ROCELINK_TOOLS_DECODE_TCP_H

#include "tools/decode_exchange.h"
#include "tools/decode_frame.h"

struct tcp_segment;

struct tcp_half {
	struct exchange_half exchange;
	struct gid address;
	uint16_t port;
	bool closed;   /* its FIN was seen */
	bool synced;   /* next is valid */
	uint32_t next; /* sequence number expected */
	uint8_t *buf;  /* in order, not yet consumed */
	size_t len, cap;
	struct tcp_segment *early; /* beyond a hole, by sequence number */
	size_t early_len;
};

struct tcp_conn {
	struct tcp_half half[2]; /* 0: the client's bytes, 1: the server's */
	struct exchange *exchange;
	struct tcp_conn *next_hash, *next;
};

#define TCP_BUCKETS 1024

struct tcp_table {
	struct tcp_conn *buckets[TCP_BUCKETS];
	struct tcp_conn *all;
};

void tcp_table_destroy(struct tcp_table *t);

/*
 * Enter the segment. *side: which half sent it. *new: it began the connection. After that,
 * tcp_next_message() gives the messages that it completed.
 */
struct tcp_conn *tcp_input(struct tcp_table *t, const struct frame *f, unsigned *side, bool *new);
bool tcp_next_message(struct tcp_conn *c, unsigned side, struct message *m);

#endif
