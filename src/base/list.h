/* SPDX-License-Identifier: BSD-2-Clause */
/* Intrusive circular doubly linked list; a removed node points to itself, so removal is idempotent.
 */
#ifndef ROCELINK_BASE_LIST_H
#define ROCELINK_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define list_for_each(pos, head) for (pos = (head)->next; pos != (head); pos = pos->next)

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_remove(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* The first of a list that isn't empty, removed from it. */
static inline struct list *list_pop(struct list *head)
{
	struct list *n = head->next;

	head->next = n->next;
	n->next->prev = head;
	list_init(n);
	return n;
}

static inline void list_append(struct list *head, struct list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

#endif
