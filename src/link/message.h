/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames and their fields (docs/protocol.md, sections 4 to 6). Pure: bytes to structure and back.
 *
 * Decoding is total: any bytes give either a message in which every value is in its range, or a
 * refusal with a sentence. Encoding takes only such messages.
 */
#ifndef ROCELINK_LINK_MESSAGE_H
#define ROCELINK_LINK_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "link/buffer.h"
#include "rocelink/rocelink.h"

enum {
	FRAME_HEADER_LEN = 8,
	FRAME_MAX_LEN = 65536,
	NONCE_LEN = 16,
	MAX_GIDS = 8,
	NO_QP_INDEX = 0xffff,
	NO_PEER_GID = 0xff,
};

enum frame_type {
	FRAME_HELLO = 1,
	FRAME_DECLINE = 2,
	FRAME_READY = 3,
	FRAME_SYNC = 4,
	FRAME_REGION = 5,
	FRAME_WITHDRAW = 6,
	FRAME_BYE = 7,
	FRAME_TYPES,
};

enum field_type {
	FIELD_SERVICE_NAME = 1,
	FIELD_AGENT = 2,
	FIELD_PRIVATE_DATA = 3,
	FIELD_GID = 4,
	FIELD_PEER_GID = 5,
	FIELD_QP = 6,
	FIELD_REGION = 7,
	FIELD_ECHO = 8,
	FIELD_STATUS = 9,
	FIELD_TEXT = 10,
	FIELD_NAME = 11,
	FIELD_TYPES,
};

enum wire_qp_type {
	WIRE_RC = 1,
	WIRE_UC = 2,
	WIRE_UD = 3,
	WIRE_XRC_INI = 4,
	WIRE_XRC_TGT = 5,
};

/* Bits of qp_values.wishes, in the order of the values. */
enum {
	WISH_TIMEOUT = 1 << 0,
	WISH_RETRY = 1 << 1,
	WISH_RNR_RETRY = 1 << 2,
	WISH_HOP_LIMIT = 1 << 3,
	WISH_TRAFFIC_CLASS = 1 << 4,
	WISH_SERVICE_LEVEL = 1 << 5,
	WISH_ALL = 0x3f,
};

struct qp_values {
	uint8_t type; /* enum wire_qp_type */
	uint8_t mtu;  /* enum ibv_mtu */
	uint8_t initiator_depth, responder_depth;
	uint32_t qpn, psn, qkey, srqn;
	uint8_t ops, wishes;
	uint8_t timeout, retry, rnr_retry, hop_limit, traffic_class, service_level;
};

struct gid_value {
	uint8_t kind; /* enum rocelink_gid_type */
	uint16_t lid;
	uint8_t gid[16];
};

struct region_value {
	uint64_t addr, length;
	uint32_t rkey, access;
	char name[ROCELINK_MAX_NAME + 1];
};

struct message {
	uint16_t type; /* enum frame_type */
	uint32_t has;  /* bit for each field type that is in it */

	char service_name[ROCELINK_MAX_NAME + 1];
	char agent[ROCELINK_MAX_NAME + 1];
	char name[ROCELINK_MAX_NAME + 1];
	char text[ROCELINK_MAX_REASON + 1];
	uint8_t echo[NONCE_LEN];
	uint8_t peer_gid;
	uint16_t reason; /* enum rocelink_reason */
	uint16_t qp_index;
	uint32_t app_reason;
	unsigned gid_count;
	struct gid_value gids[MAX_GIDS];

	/* Owned; see message_free(). */
	unsigned qp_count, region_count;
	struct qp_values *qps;
	struct region_value *regions;
	uint8_t *private_data;
	size_t private_data_len;
};

static inline bool message_has(const struct message *m, enum field_type field)
{
	return m->has >> field & 1;
}

void message_init(struct message *m, enum frame_type type);
void message_free(struct message *m);

/* Add to the repeated and owned fields; false when out of memory or over the limit. */
bool message_add_qp(struct message *m, const struct qp_values *qp);
bool message_add_region(struct message *m, const struct region_value *region);
bool message_set_private_data(struct message *m, const void *data, size_t len);
/* Texts are cut to their limit. */
void message_set_name(struct message *m, const char *name);
void message_set_status(struct message *m, enum rocelink_reason reason, uint32_t app_reason,
			unsigned qp_index, const char *text);
void message_set_echo(struct message *m, const uint8_t nonce[NONCE_LEN]);

/* Append the frame. */
void message_encode(struct buffer *out, const struct message *m);

/*
 * Decode a frame's payload. 0; 1 for a frame to ignore (unknown, not critical); -EPROTO with a
 * sentence in why; -ENOMEM. *m is initialised in any case and must be freed by message_free().
 */
int message_decode(struct message *m, uint16_t type, uint16_t flags, const uint8_t *payload,
		   size_t len, char *why, size_t why_len);

const char *frame_name(unsigned type);
const char *wire_qp_type_name(unsigned type);

/* Fields of a message in one line for a person. */
void message_describe(const struct message *m, char *buf, size_t len);

#endif
