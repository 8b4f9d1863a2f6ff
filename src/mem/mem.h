/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions and access to them: keys, bounds, permissions, protection domains, scatter and
 * gather. Pure: no system calls but allocation; no locks. All calls run under the engine's lock, so
 * that a region that mem_remove() took out is in nobody's use when it returns.
 *
 * An entry is a region or a memory window (window.c).
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
	uint8_t *host;	  /* where its first byte is in this process */
	unsigned access;  /* enum ibv_access_flags */
	uint32_t key;	  /* set by mem_add */
	bool null;	  /* reads as zeros, what is written is lost; host isn't used */
	bool gone;	  /* an access found its memory not mapped, and that was told */
	uint32_t windows; /* bound to this region */
	/* A window: enum ibv_mw_type (0: a region), its protection domain, and the region it is bound
	 * to or NULL. */
	unsigned window;
	const void *home;
	struct mr *region;
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
	MEM_WINDOW, /* a type 2 window is bound already, or was to be bound to nothing */
	MEM_GONE,   /* the region's memory was unmapped or protected after it was registered */
};
const char *mem_fault_text(enum mem_fault fault);

int mem_init(struct mem_table *t, uint64_t (*random)(void *arg), void *arg);
void mem_destroy(struct mem_table *t);
/* Enter the region under a new key. 0 or -ENOMEM. */
int mem_add(struct mem_table *t, struct mr *mr);
void mem_remove(struct mem_table *t, struct mr *mr);
struct mr *mem_find(const struct mem_table *t, uint32_t key);
/* By the upper 24 bits. */
struct mr *mem_find_any_tag(const struct mem_table *t, uint32_t key);

struct mem_bind {
	uint32_t window_key; /* any tag */
	uint32_t new_key;    /* which the window has from now on: another tag */
	uint32_t region_key;
	unsigned access; /* of the window */
	uint64_t addr;	 /* as the region is addressed */
	uint64_t length; /* 0: of a type 1 window, unbind it */
};
/* By a queue pair of this protection domain. Nothing has changed when a fault is returned. */
enum mem_fault mem_bind(const struct mem_table *t, const void *pd, const void *qp,
			const struct mem_bind *bind);
/* Free a type 2 window, for its queue pair. */
enum mem_fault mem_invalidate(const struct mem_table *t, const void *pd, const void *qp,
			      uint32_t key);
/* What to pass as `pd` below when a peer of this queue pair names the key. */
const void *mem_domain(const struct mem_table *t, const void *pd, const void *qp, uint32_t key);
/* All windows bound to the region, or bound by the queue pair, become free. */
void mem_unbind_region(const struct mem_table *t, const struct mr *region);
void mem_unbind_qp(const struct mem_table *t, const void *qp);
void mem_remove_window(struct mem_table *t, struct mr *window);

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
