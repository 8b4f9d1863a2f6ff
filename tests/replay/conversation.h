/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RC connections of a capture file, each seen from one requester: its requests and the replies
 * to them in the order of the capture, and the responder's memory as it must have been at first.
 */
#ifndef ROCELINK_TESTS_CONVERSATION_H
#define ROCELINK_TESTS_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"
#include "wire/path.h"

struct seen {
	bool reply;
	unsigned frame; /* of the capture */
	struct packet pkt;
	uint8_t *bytes; /* what pkt.payload points into */
};

struct conversation {
	struct path path; /* of the requests */
	uint32_t responder_qpn, requester_qpn;
	uint32_t mtu; /* as long packets show it */
	struct seen *messages;
	size_t n_messages, n_requests;
	/* The part of the responder's memory that the requests name. */
	uint64_t va, length;
	uint8_t *image;
};

#define CONVERSATIONS_MAX 8

struct conversations {
	struct conversation list[CONVERSATIONS_MAX];
	size_t n;
};

/* Fails the test when the file can't be read or holds none. */
void conversations_read(struct conversations *all, const char *file);
void conversations_free(struct conversations *all);

#endif
