/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The exchanges over TCP by which programs tell each other their queue pairs: recognised by their
 * first bytes on any port, and cut into messages. What is not recognised is shown as bytes.
 */
#ifndef ROCELINK_TOOLS_DECODE_EXCHANGE_H
#define ROCELINK_TOOLS_DECODE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/decode_told.h"

enum exchange_protocol {
	EXCHANGE_UNKNOWN, /* nothing was said yet */
	EXCHANGE_IBV,	  /* ibv_rc_pingpong and its kin */
	EXCHANGE_PERFTEST,
	EXCHANGE_ROCELINK,
	EXCHANGE_TLS,
	EXCHANGE_CM, /* datagrams of the connection manager, see decode_cm.h */
	EXCHANGE_BYTES,
};

struct message {
	enum exchange_protocol protocol;
	const char *name; /* "record", "HELLO" ..., "bytes" */
	char text[320];	  /* what it says, for people; its values excepted */
	struct told *told;
	unsigned n_told;
	bool repeated;	/* told, all of it, before */
	uint8_t *bytes; /* a copy; messages that are not taken apart */
	size_t n_bytes;
};

void message_destroy(struct message *m);
struct told *message_add_told(struct message *m);

/* One direction of a connection. */
struct exchange_half {
	enum exchange_protocol protocol;
	unsigned messages; /* taken so far */
};

const char *exchange_name(enum exchange_protocol protocol);

/*
 * Take one message off the front of data[0..len). Returns the bytes it took, at least 1, with *m
 * filled (to be destroyed by the caller), or 0: the message isn't complete. other: the other
 * direction.
 */
size_t exchange_next(struct exchange_half *half, const struct exchange_half *other,
		     const uint8_t *data, size_t len, struct message *m);

/* Bytes are missing here: nothing in this direction can be recognised any more. */
void exchange_lost(struct exchange_half *half);

/* decode_rlnk.c: the same for the rocelink protocol. */
size_t rlnk_next(struct exchange_half *half, const uint8_t *data, size_t len, struct message *m);

#endif
