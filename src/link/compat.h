/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The exchange of ibv_rc_pingpong and its kin (docs/protocol.md, section 11) behind the session's
 * interface: records become a HELLO, `done` becomes a READY, and the other way round.
 */
#ifndef ROCELINK_LINK_COMPAT_H
#define ROCELINK_LINK_COMPAT_H

#include "link/session.h"

enum {
	COMPAT_RECORD_LEN = 52, /* with its NUL */
	COMPAT_SRQ_RECORDS = 256,
	COMPAT_QKEY = 0x11111111,
};

void compat_init(struct session *s, enum rocelink_compat mode);
/*
 * The records don't say what type they are of: the program's own queue pairs tell. `heard`, unless
 * NULL, is a HELLO that was made from records before the program had added any.
 */
void compat_set_type(struct session *s, uint8_t wire_qp_type, struct message *heard);
int compat_next(struct session *s, struct message *m, struct rocelink_error *err);
void compat_say(struct session *s, const struct message *m);
bool compat_may_end(const struct session *s);

#endif
