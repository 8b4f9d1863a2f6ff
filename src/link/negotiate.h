/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two HELLOs agree on (docs/protocol.md, section 7). Pure, and symmetric: negotiate(a, b) and
 * negotiate(b, a) give the two halves of one agreement.
 */
#ifndef ROCELINK_LINK_NEGOTIATE_H
#define ROCELINK_LINK_NEGOTIATE_H

#include "link/message.h"

enum {
	DEFAULT_TIMEOUT_CODE = 14,
	DEFAULT_RETRY = 7,
	DEFAULT_RNR_RETRY = 7,
	DEFAULT_HOP_LIMIT = 64,
};

struct agreed {
	uint8_t type;
	uint8_t mtu;
	uint8_t initiator_depth, responder_depth;
	uint8_t timeout, retry, rnr_retry, hop_limit, traffic_class, service_level;
	uint32_t psn, remote_qpn, remote_psn, remote_qkey, remote_srqn;
};

/*
 * Can the two sides work together at all? REASON_NONE, or why not with a sentence in `text` that
 * gives both sides' values and what to change.
 */
enum rocelink_reason negotiate_check(const struct message *mine, const struct message *peer,
				     char *text, size_t len);

/* For the index-th pair of two HELLOs that negotiate_check() accepted. */
void negotiate_pair(const struct qp_values *mine, const struct qp_values *peer,
		    struct agreed *agreed);

/* Do these two GIDs belong together: same kind, and same address family on RoCE? */
bool negotiate_gids_match(const struct gid_value *a, const struct gid_value *b);

#endif
