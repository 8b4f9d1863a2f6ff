/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine: drives all queue pairs of this process over the port. One per process, opened with
 * the first device context and closed with the last.
 *
 * Locks, outermost first: CQ poll lock, post lock, engine lock, device or context lock, channel and
 * event lock; the engine never takes the first two. The engine lock covers the transport, the memory table, the QP table and the
 * port; a step holds it throughout. Posting takes only the queue's post lock, then engine_kick().
 *
 * Who drives: a thread inside post_send or poll_cq drives the step itself when the lock is free; a
 * background thread sleeps in epoll and takes over when nobody polled for a while. While the lock
 * is taken, whoever holds it sees the kicked QP before letting go.
 */
#ifndef ROCELINK_DEVICE_ENGINE_H
#define ROCELINK_DEVICE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "mem/mem.h"
#include "transport/qp.h"

struct engine;

/* The engine's part of a QP; embed it (container_of leads to the device's object). */
struct engine_qp {
	struct qp qp;
	_Atomic int kicked;	       /* on the stack of the kicked, ... */
	struct engine_qp *next_kicked; /* ... where posters leave it who found the lock taken */
	bool ready;		       /* on the ready list, or parked (lanes.c) */
	struct engine_qp *next_ready;
	uint32_t timer_slot; /* index in the timer heap + 1; 0: none */
	uint64_t timer_ns;
	struct shm_link *link; /* of its lane; NULL: the sockets (lanes.c) */
	bool has_flow;	       /* announced to the port */
};

/* Get the process's engine, starting it at need. 0 or -errno with a sentence in error. */
int engine_get(struct engine **e, char *error, size_t error_len);
void engine_put(struct engine *e);

void engine_lock(struct engine *e);
/* Unlock, serving what was kicked meanwhile. */
void engine_unlock(struct engine *e);

struct mem_table *engine_mem(struct engine *e); /* under the lock */

/* Give the (initialised) QP a number and let packets in. 0 or -errno. Under the lock. */
int engine_add_qp(struct engine *e, struct engine_qp *eqp);
/* Take it out: no packet, timer or step touches it afterwards. Under the lock. */
void engine_remove_qp(struct engine *e, struct engine_qp *eqp);
/* Is the number in one of this process's blocks? Under the lock. */
bool engine_owns_qpn(const struct engine *e, uint32_t qpn);
struct engine_qp *engine_find_qp(struct engine *e, uint32_t qpn); /* under the lock */
/* The i-th block of numbers that this process owns, claimed at need; or -errno. Under the lock. */
int engine_own_block(struct engine *e, uint32_t i);

/*
 * Send a message to the process that owns a block, to xrc_relay_receive() there: in order, and at once or
 * when that process takes it, if that is within ENGINE_RELAY_WAIT_NS. 0, or -errno (-ECONNREFUSED: there
 * is none). Under the lock.
 */
#define ENGINE_RELAY_WAIT_NS (20 * NS_PER_SEC)
int engine_relay(struct engine *e, unsigned block, const void *data, size_t len);
/* Does one still wait? */
bool engine_relay_waits(const struct engine *e, unsigned block);

/* What is owed to peers leaves, before a QP comes to an end. Under the lock. */
void engine_pay_debts(struct engine *e);
/* RTR and beyond for a connected QP: tell the port which flow to expect; and take that back. Under
 * the lock. */
void engine_expect_peer(struct engine *e, struct engine_qp *eqp);
void engine_forget_peer(struct engine *e, struct engine_qp *eqp);

/* On one interface: groups, members of a group, members of all. */
#define ENGINE_MAX_GROUPS	 1024
#define ENGINE_MAX_GROUP_MEMBERS 1024
#define ENGINE_MAX_MEMBERS	 8192
/* Multicast membership of a UD QP. 0 or an errno (ENOSPC: a maximum is reached). Under the lock. */
int engine_attach_mcast(struct engine *e, struct engine_qp *eqp, const struct gid *group,
			unsigned ifindex);
int engine_detach_mcast(struct engine *e, struct engine_qp *eqp, const struct gid *group,
			unsigned ifindex);

/* Have this QP served by the step under way, or the next. Under the lock. */
void engine_make_ready(struct engine *e, struct engine_qp *eqp);
/* Something was posted to, or changed on, this QP: have it served. Without the lock or with it. */
void engine_kick(struct engine *e, struct engine_qp *eqp);

/* poll_cq found nothing: drive a step if the engine is free. Without the lock. */
void engine_poll(struct engine *e);

/*
 * Wait until fd (of a completion channel) is readable or ready(channel) says so, driving the engine
 * meanwhile, so that the waiting thread itself handles the packet. 0, or -errno (-EINTR). Without the lock.
 */
int engine_wait_fd(struct engine *e, int fd, bool (*ready)(void *channel), void *channel);
/* Is this step that of a thread which waits for this channel? Under the lock. */
bool engine_driver_waits_for(const struct engine *e, const void *channel);

uint64_t engine_now_ns(void); /* CLOCK_MONOTONIC */

/* A deadline of something that isn't a queue pair. Zeroed but for `ring`, which is called once, under
 * the lock, and may set alarms, later than now. All under the lock. */
struct engine_alarm {
	struct engine_alarm *next;
	uint64_t due_ns; /* 0: not set */
	void (*ring)(struct engine_alarm *a);
};
void engine_alarm_set(struct engine *e, struct engine_alarm *a, uint64_t due_ns);
void engine_alarm_cancel(struct engine *e, struct engine_alarm *a);

/* Call back under no lock when links or addresses change (netmon). One observer list for all
 * contexts. */
struct engine_observer {
	void (*netdev_changed)(struct engine_observer *o);
	void (*link_fault)(struct engine_observer *o, bool down); /* injected */
	void (*device_fatal)(struct engine_observer *o);	  /* injected */
	struct engine_observer *next;
};
void engine_observe(struct engine *e, struct engine_observer *o);
void engine_unobserve(struct engine *e, struct engine_observer *o);

/* Fault injection: the completion that is about to be written shall overrun its queue. Under the
 * lock. */
bool engine_fault_cq_overrun(struct engine *e);

/* The injected end of all devices of this process: nothing works until the last context is closed. */
bool engine_is_dead(const struct engine *e);

/* Packets dropped so far for this reason. Without the lock. */
uint64_t engine_drops(struct engine *e, enum drop reason);
/* Drops by reason and totals of this process, as text lines "name value". Returns the length. */
size_t engine_report(struct engine *e, char *text, size_t cap);

#endif
