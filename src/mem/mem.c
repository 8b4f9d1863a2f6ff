/* SPDX-License-Identifier: BSD-2-Clause */
#include "mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mem/guard.h"

#define CAPACITY_MIN  64
#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define INDEX(key)    ((key) >> 8)

static struct mr tombstone;

const char *mem_fault_text(enum mem_fault fault)
{
	switch (fault) {
	case MEM_OK:
		return "ok";
	case MEM_KEY:
		return "no memory region has this key";
	case MEM_PD:
		return "the memory region belongs to another protection domain";
	case MEM_BOUNDS:
		return "the range lies outside the memory region";
	case MEM_ACCESS:
		return "the memory region doesn't allow this access";
	case MEM_WINDOW:
		return "the memory window is bound already, or was to be bound to nothing";
	case MEM_GONE:
		return "the memory was unmapped or protected while it was registered";
	}
	return "unknown";
}

int mem_init(struct mem_table *t, uint64_t (*random)(void *arg), void *arg)
{
	*t = (struct mem_table){ .capacity = CAPACITY_MIN, .random = random, .random_arg = arg };
	t->slots = calloc(t->capacity, sizeof(*t->slots));
	return t->slots ? 0 : -ENOMEM;
}

void mem_destroy(struct mem_table *t)
{
	free(t->slots);
	t->slots = NULL;
}

/* Keys are random: their index bits are the hash. */
static uint32_t slot_start(const struct mem_table *t, uint32_t key)
{
	return INDEX(key) & (t->capacity - 1);
}

static struct mr **find_slot(const struct mem_table *t, uint32_t index)
{
	uint32_t mask = t->capacity - 1;

	for (uint32_t i = index & mask; t->slots[i]; i = (i + 1) & mask)
		if (t->slots[i] != &tombstone && INDEX(t->slots[i]->key) == index)
			return &t->slots[i];
	return NULL;
}

static void insert(struct mem_table *t, struct mr *mr)
{
	uint32_t mask = t->capacity - 1;
	uint32_t i = slot_start(t, mr->key);

	while (t->slots[i] && t->slots[i] != &tombstone)
		i = (i + 1) & mask;
	if (!t->slots[i])
		t->used++;
	t->slots[i] = mr;
	t->live++;
}

/* Grow when live entries fill half; a table full of tombstones is only rewritten. */
static int make_room(struct mem_table *t)
{
	struct mr **old = t->slots;
	uint32_t old_capacity = t->capacity;
	uint32_t capacity = t->capacity;

	if (t->used + 1 <= t->capacity / 2)
		return 0;
	if (t->live + 1 > t->capacity / 4)
		capacity *= 2;
	t->slots = calloc(capacity, sizeof(*t->slots));
	if (!t->slots) {
		t->slots = old;
		return -ENOMEM;
	}
	t->capacity = capacity;
	t->used = t->live = 0;
	for (uint32_t i = 0; i < old_capacity; i++)
		if (old[i] && old[i] != &tombstone)
			insert(t, old[i]);
	free(old);
	return 0;
}

int mem_add(struct mem_table *t, struct mr *mr)
{
	int ret;

	/* 24 index bits: keep them sparse enough to find a free one, and guessing one unlikely. */
	if (t->live >= 1u << 22)
		return -ENOMEM;
	ret = make_room(t);
	if (ret)
		return ret;
	do
		mr->key = (uint32_t)t->random(t->random_arg);
	while (INDEX(mr->key) == 0 || find_slot(t, INDEX(mr->key)));
	insert(t, mr);
	return 0;
}

void mem_remove(struct mem_table *t, struct mr *mr)
{
	struct mr **slot = find_slot(t, INDEX(mr->key));

	if (!slot || *slot != mr)
		return;
	if (mr->windows)
		mem_unbind_region(t, mr);
	*slot = &tombstone;
	t->live--;
}

struct mr *mem_find(const struct mem_table *t, uint32_t key)
{
	struct mr **slot = find_slot(t, INDEX(key));

	return slot && (*slot)->key == key ? *slot : NULL;
}

struct mr *mem_find_any_tag(const struct mem_table *t, uint32_t key)
{
	struct mr **slot = find_slot(t, INDEX(key));

	return slot ? *slot : NULL;
}

static enum mem_fault look_up(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
			      uint64_t len, unsigned access, struct mr **found)
{
	struct mr *mr = mem_find(t, key);

	/* A window is for peers alone, and while it is bound. */
	if (!mr || (mr->window && (!mr->region || !(access & REMOTE_ACCESS))))
		return MEM_KEY;
	if (mr->pd != pd)
		return MEM_PD;
	/* Written so that nothing wraps: va + len may. */
	if (va < mr->iova || va - mr->iova > mr->length || len > mr->length - (va - mr->iova))
		return MEM_BOUNDS;
	if ((mr->access & access) != access)
		return MEM_ACCESS;
	*found = mr;
	return MEM_OK;
}

/* In integers: the region of all memory begins at NULL. */
static void *host_of(const struct mr *mr, uint64_t va)
{
	return (void *)((uintptr_t)mr->host + (uintptr_t)(va - mr->iova));
}

static enum mem_fault gone(const struct mem_table *t, struct mr *mr)
{
	if (!mr->gone && t->on_gone)
		t->on_gone(mr, mem_guard_address());
	mr->gone = true;
	return MEM_GONE;
}

enum mem_fault mem_check(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
			 uint64_t len, unsigned access)
{
	struct mr *mr;

	return look_up(t, pd, key, va, len, access, &mr);
}

enum mem_fault mem_read(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
			uint32_t len, unsigned access, void *dst)
{
	struct mr *mr;
	enum mem_fault fault = look_up(t, pd, key, va, len, access, &mr);

	if (fault)
		return fault;
	if (__builtin_expect(mr->null, 0)) {
		memset(dst, 0, len);
		return MEM_OK;
	}
	return mem_guard_copy(dst, host_of(mr, va), len) ? MEM_OK : gone(t, mr);
}

enum mem_fault mem_write(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
			 uint32_t len, unsigned access, const void *src)
{
	struct mr *mr;
	enum mem_fault fault = look_up(t, pd, key, va, len, access, &mr);

	if (fault || mr->null)
		return fault;
	return mem_guard_copy(host_of(mr, va), src, len) ? MEM_OK : gone(t, mr);
}

enum mem_fault mem_use(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
		       uint32_t len, unsigned access, void (*use)(void *host, void *arg), void *arg)
{
	struct mr *mr;
	enum mem_fault fault = look_up(t, pd, key, va, len, access, &mr);

	if (fault)
		return fault;
	return mem_guard_use(host_of(mr, va), use, arg) ? MEM_OK : gone(t, mr);
}

enum mem_fault mem_gather(const struct mem_table *t, const void *pd, const struct ibv_sge *sge,
			  unsigned n, uint64_t offset, uint8_t *dst, uint32_t len)
{
	for (unsigned i = 0; i < n && len; i++) {
		uint64_t chunk = sge[i].length;
		enum mem_fault fault;

		if (offset >= chunk) {
			offset -= chunk;
			continue;
		}
		chunk -= offset;
		if (chunk > len)
			chunk = len;
		fault = mem_read(t, pd, sge[i].lkey, sge[i].addr + offset, (uint32_t)chunk, 0, dst);
		if (fault)
			return fault;
		dst += chunk;
		len -= (uint32_t)chunk;
		offset = 0;
	}
	return len ? MEM_BOUNDS : MEM_OK;
}

enum mem_fault mem_scatter(const struct mem_table *t, const void *pd, const struct ibv_sge *sge,
			   unsigned n, uint64_t offset, const uint8_t *src, uint32_t len)
{
	for (unsigned i = 0; i < n && len; i++) {
		uint64_t chunk = sge[i].length;
		enum mem_fault fault;

		if (offset >= chunk) {
			offset -= chunk;
			continue;
		}
		chunk -= offset;
		if (chunk > len)
			chunk = len;
		fault = mem_write(t, pd, sge[i].lkey, sge[i].addr + offset, (uint32_t)chunk,
				  IBV_ACCESS_LOCAL_WRITE, src);
		if (fault)
			return fault;
		src += chunk;
		len -= (uint32_t)chunk;
		offset = 0;
	}
	return len ? MEM_BOUNDS : MEM_OK;
}
