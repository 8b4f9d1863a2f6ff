/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions and access to them: keys, bounds, permissions, protection domains, scatter and
 * gather. Pure: no system calls but allocation; no locks. All calls run under the engine's lock, so
 * that a region that mem_remove() took out is in nobody's use when it returns.
 *
 * Keys: 32 bits, drawn from the random source the table was given; the upper 24 bits are unique in
 * the table, the low 8 are the tag that ibv_inc_rkey() changes (memory windows). L_Key and R_Key of
 * a region are equal.
 *
 * A region names addresses, not pages: what is mapped there when it is accessed is what is read and
 * written. Where nothing is mapped by then (or it was protected), the access ends with MEM_GONE.
 */
#ifndef ROCELINK_MEM_MEM_H
#define ROCELINK_MEM_MEM_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr {
	const void *pd; /* identity of the protection domain */
	uint64_t iova;	/* address by which the region is named on the wire and in SGEs */
	uint64_t length;
	uint8_t *host;	 /* where its first byte is in this process */
	unsigned access; /* enum ibv_access_flags */
	uint32_t key;	 /* set by mem_add */
	bool null;	 /* reads as zeros, what is written is lost; host isn't used */
	bool gone;	 /* an access found its memory not mapped, and that was told */
};

struct mem_table {
	struct mr **slots; /* open addressing on key >> 8, power of two, at most half full */
	uint32_t capacity;
	uint32_t used; /* live and tombstones */
	uint32_t live;
	uint64_t (*random)(void *arg);
	void *random_arg;
	/* Or NULL: the memory of a region is gone, at this address; once for each region. */
	void (*on_gone)(const struct mr *mr, const void *address);
};

enum mem_fault {
	MEM_OK,
	MEM_KEY,    /* no region has this key */
	MEM_PD,	    /* the region belongs to another protection domain */
	MEM_BOUNDS, /* not within the region, or the range wraps */
	MEM_ACCESS, /* the region doesn't allow this */
	MEM_GONE,   /* the region's memory was unmapped or protected after it was registered */
};
const char *mem_fault_text(enum mem_fault fault);

int mem_init(struct mem_table *t, uint64_t (*random)(void *arg), void *arg);
void mem_destroy(struct mem_table *t);
/* Enter the region under a new key. 0 or -ENOMEM. */
int mem_add(struct mem_table *t, struct mr *mr);
void mem_remove(struct mem_table *t, struct mr *mr);
struct mr *mem_find(const struct mem_table *t, uint32_t key);

/* May [va, va + len) be used with all of `access` (enum ibv_access_flags; 0: local read) under this
 * key and PD? Whether the memory is still there shows only when it is used. */
enum mem_fault mem_check(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
			 uint64_t len, unsigned access);
/* The same, and copy the bytes out or in. */
enum mem_fault mem_read(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
			uint32_t len, unsigned access, void *dst);
enum mem_fault mem_write(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
			 uint32_t len, unsigned access, const void *src);
/* The same, and run use(host, arg) on them; see mem_guard_use(). */
enum mem_fault mem_use(const struct mem_table *t, const void *pd, uint32_t key, uint64_t va,
		       uint32_t len, unsigned access, void (*use)(void *host, void *arg),
		       void *arg);

/* Copy bytes [offset, offset + len) of the message that the list describes to dst, or from src. A
 * part of the list that isn't touched isn't checked. mem_scatter: MEM_BOUNDS when the list is too
 * short. */
enum mem_fault mem_gather(const struct mem_table *t, const void *pd, const struct ibv_sge *sge,
			  unsigned n, uint64_t offset, uint8_t *dst, uint32_t len);
enum mem_fault mem_scatter(const struct mem_table *t, const void *pd, const struct ibv_sge *sge,
			   unsigned n, uint64_t offset, const uint8_t *src, uint32_t len);

/* Sum of the lengths. (SGE length 0 means 0 bytes here: the 2^31 rule is the face's business.) */
static inline uint64_t mem_sge_len(const struct ibv_sge *sge, unsigned n)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += sge[i].length;
	return sum;
}

#endif
