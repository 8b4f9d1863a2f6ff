/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/syncs.h"

#include <errno.h>
#include <stdio.h>

int syncs_say(struct sync_list *l, const char *name, bool failed, const char *text)
{
	struct sync_word *words, *w;

	if (l->count == SYNCS_MAX)
		return -ENOSPC;
	words = realloc(l->words, (l->count + 1) * sizeof(*words));
	if (!words)
		return -ENOMEM;
	l->words = words;
	w = &words[l->count++];
	snprintf(w->name, sizeof(w->name), "%s", name);
	snprintf(w->text, sizeof(w->text), "%s", text ? text : "");
	w->failed = failed;
	return 0;
}

static int find(const struct sync_list *l, const char *name)
{
	for (unsigned i = 0; i < l->count; i++)
		if (strcmp(l->words[i].name, name) == 0)
			return (int)i;
	return -1;
}

static struct sync_word take(struct sync_list *l, unsigned i)
{
	struct sync_word w = l->words[i];

	l->count--;
	memmove(&l->words[i], &l->words[i + 1], (l->count - i) * sizeof(w));
	return w;
}

int syncs_meet(struct syncs *s, const char *name, struct sync_word *mine, struct sync_word *peer)
{
	int m = find(&s->mine, name), p = find(&s->peers, name);

	if (m < 0)
		return -EINVAL;
	if (p < 0)
		return -EAGAIN;
	*mine = take(&s->mine, (unsigned)m);
	*peer = take(&s->peers, (unsigned)p);
	return 0;
}

void syncs_free(struct syncs *s)
{
	free(s->mine.words);
	free(s->peers.words);
	memset(s, 0, sizeof(*s));
}
