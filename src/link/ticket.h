/* SPDX-License-Identifier: BSD-2-Clause */
/* A HELLO as one line of text and back (docs/protocol.md, section 10). Pure. */
#ifndef ROCELINK_LINK_TICKET_H
#define ROCELINK_LINK_TICKET_H

#include "link/message.h"

enum { TICKET_MAX_QPS = 16, TICKET_MAX_REGIONS = 16 };

/* 0; -ENOSPC when text is too small; -E2BIG when there are more queue pairs or regions than fit;
 * -ENOMEM. */
int ticket_encode(const struct message *hello, char *text, size_t len);

/* 0; -EINVAL with a sentence in why; -ENOMEM. *hello is to be freed by message_free() in any case.
 */
int ticket_decode(const char *text, struct message *hello, char *why, size_t why_len);

#endif
