/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One conversation of the protocol (docs/protocol.md, sections 2 to 8), pure: bytes in, messages
 * out; messages in, bytes out. No clock, no socket, no verbs. It knows what may be said when, and
 * holds the peer to it.
 *
 * The state is the set of what was said and heard; each flag is set once and never cleared:
 *
 *	greeted -> heard_hello / said_hello -> heard_ready / said_ready -> heard_bye / said_bye ->
 * heard_end dead: a DECLINE was said or heard, or the peer broke the protocol; only `out` still
 * matters.
 *
 * Invariants
 *  1. out holds whole frames; a message is said at most once.
 *  2. After said_bye or dead nothing is added to out.
 *  3. in holds less than one frame and its header.
 */
#ifndef ROCELINK_LINK_SESSION_H
#define ROCELINK_LINK_SESSION_H

#include "link/message.h"

enum {
	GREETING_LEN = 24,
	GREETING_MEET = 1,
	VERSION_MIN = 1,
	VERSION_MAX = 1,
	/* What a peer that doesn't read can make us hold, besides one HELLO. */
	SESSION_MAX_OUT = 1 << 20,
};

/* The stock programs' exchange instead of ours; see compat.c. */
struct compat {
	enum rocelink_compat mode;
	unsigned records_heard; /* in complete ones */
	unsigned records_total;
	uint8_t type; /* of our queue pairs, enum wire_qp_type: the records don't say */
};

struct session {
	enum rocelink_role role;
	uint8_t nonce[NONCE_LEN], peer_nonce[NONCE_LEN];
	bool meet, peer_meet;
	unsigned version;
	struct buffer in, out;

	bool greeted;
	bool said_hello, heard_hello;
	bool said_ready, heard_ready; /* with success */
	bool said_bye, heard_bye;
	bool heard_end;
	bool dead;

	struct compat compat;
};

/* Says the greeting. */
void session_init(struct session *s, enum rocelink_role role, const uint8_t nonce[NONCE_LEN],
		  bool meet, enum rocelink_compat compat);
void session_free(struct session *s);

/* Take bytes from the channel. False: out of memory. */
bool session_receive(struct session *s, const void *data, size_t len);
/* The channel's end of stream. 0; or an error if the peer must not end here. */
int session_end(struct session *s, struct rocelink_error *err);

/* Only the greeting: OK when it was heard, AGAIN, or the failure. */
int session_greet(struct session *s, struct rocelink_error *err);

/*
 * The next message. ROCELINK_OK with *m, to be freed by the caller; ROCELINK_AGAIN when there is no
 * whole one; otherwise the peer broke the protocol or declined: *err says so and the session is
 * dead.
 */
int session_next(struct session *s, struct message *m, struct rocelink_error *err);

/*
 * Say something. HELLO, READY and BYE must come in their order; the caller's mistakes are its own
 * (asserted). ROCELINK_LIMIT when the peer doesn't read and too much is waiting.
 */
int session_say(struct session *s, const struct message *m, struct rocelink_error *err);
/* Say DECLINE (or READY with a reason, if HELLO was heard and said) and be dead. */
void session_decline(struct session *s, enum rocelink_reason reason, uint32_t app_reason,
		     const char *text);

/*
 * Bytes that came where the peer's TLS was expected, from their beginning. AGAIN, or the failure: a
 * DECLINE in plain text, or a peer that speaks plain text altogether.
 */
int session_plain_refusal(const void *data, size_t len, struct rocelink_error *err);

/* After greeted, with MEET on both sides: >0 we keep (are active), <0 the peer does, 0 it is
 * ourselves. */
int session_compare_nonces(const struct session *s);

/* True if the first bytes can't be the beginning of a greeting. */
bool session_is_foreign(const uint8_t *first, size_t len);

#endif
