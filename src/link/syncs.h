/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Barriers by name. The n-th time this side says a name belongs with the n-th time the peer says
 * it. Two lists of what was said and not yet met by the other; both bounded.
 */
#ifndef ROCELINK_LINK_SYNCS_H
#define ROCELINK_LINK_SYNCS_H

#include "link/message.h"

enum { SYNCS_MAX = 64 };

struct sync_word {
	char name[ROCELINK_MAX_NAME + 1];
	bool failed;
	char text[ROCELINK_MAX_REASON + 1];
};

struct sync_list {
	struct sync_word *words;
	unsigned count;
};

struct syncs {
	struct sync_list mine, peers;
};

/* Something was said. 0, -ENOSPC when SYNCS_MAX are unmet, -ENOMEM. */
int syncs_say(struct sync_list *l, const char *name, bool failed, const char *text);

/*
 * Has this name been said on both sides? Then the oldest pair is taken out: 0, *peer and *mine hold
 * it. -EAGAIN when the peer hasn't said it, -EINVAL when this side hasn't.
 */
int syncs_meet(struct syncs *s, const char *name, struct sync_word *mine, struct sync_word *peer);
void syncs_free(struct syncs *s);

#endif
