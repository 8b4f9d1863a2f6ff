/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same-host path: links to other processes of this user in this network namespace, each two
 * rings (one per direction) in a sealed memfd and a socket pair. Whoever first wants to talk to a
 * QPN block offers a link to its owner over the block's unix socket, memory and socket as
 * descriptors with it; the owner accepts by a byte on the new socket. Later such bytes wake a
 * sleeping process, and the end of the socket tells that the peer died. An owner that refuses (its
 * setting says udp), that doesn't know links or doesn't answer in time is left to UDP.
 *
 * A process writes the blocks it owns into the shared memory, so that one link carries them all. A
 * process's link to itself has a ring too, in its own memory.
 *
 * Threads: the caller serialises all calls, as for the port, whose part this is.
 */
#ifndef ROCELINK_NET_SHM_H
#define ROCELINK_NET_SHM_H

#include <stdbool.h>
#include <stdint.h>

#include "net/port.h"
#include "net/pring.h"
#include "wire/outbox.h"

#define SHM_LINKS_MAX	  128
#define SHM_OFFER_WAIT_NS (250 * UINT64_C(1000000))

enum shm_state {
	SHM_NONE,    /* not over shared memory: use UDP */
	SHM_PENDING, /* offered: ask again when told to (shm_changed) or due (shm_next_due) */
	SHM_READY,
	SHM_DEAD, /* the peer is gone: what is sent is lost */
};

struct shm_link;

/* The link to the owner of this block of a host address, offering one at need. SHM_NONE: *link is
 * NULL. */
enum shm_state shm_find(struct port *port, unsigned block, uint64_t now_ns, struct shm_link **link);
/* As it is now; a pending one whose time is up becomes SHM_NONE. */
enum shm_state shm_state(struct port *port, struct shm_link *link, uint64_t now_ns);
/* Keep the link valid, though perhaps dead; and no longer. */
void shm_hold(struct shm_link *link);
void shm_release(struct shm_link *link);
/* 0 ... SHM_LINKS_MAX - 1 */
unsigned shm_index(const struct port *port, const struct shm_link *link);

/* The outbox of a ready link, or NULL: its ring is full. */
struct outbox *shm_outbox(struct port *port, struct shm_link *link);
/* Of the link with this index: is it worth asking shm_outbox() again? */
bool shm_has_room(struct port *port, unsigned index);
/* What was written to it is the peer's now. */
void shm_publish(struct port *port, struct shm_link *link);

/* Bursts from all links, at most about `budget`, to port_callbacks.receive. Returns how many.
 */
int shm_receive(struct port *port, int budget);
/* Is there something in any ring? */
bool shm_has_input(const struct port *port);
/* Is there something from this process to itself? */
bool shm_waits_for_us(struct port *port);
/* There are links, and none is being made: the sockets need less looking at. */
bool shm_busy(const struct port *port);

/* Going to sleep on port_wait_fd(): true, all links know it; or false: something is there. Those
 * marked in `full` wait for room. */
bool shm_sleep(struct port *port, const bool full[SHM_LINKS_MAX]);
/* Somebody polls now: wake-ups aren't needed. */
void shm_awake(struct port *port);
/* Was what wakes a sleeper read since shm_sleep()? The peers send no more of it until the next. */
bool shm_woken(const struct port *port);

/* True, once: a link became ready or dead since the last call. */
bool shm_changed(struct port *port);
/* When the next pending offer's time is up; TIME_NEVER: none is pending. */
uint64_t shm_next_due(const struct port *port);
void shm_expire(struct port *port, uint64_t now_ns);

#endif
