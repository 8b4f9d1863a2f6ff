/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine's state, shared by the files that make it up; nobody else includes this. */
#ifndef ROCELINK_DEVICE_ENGINE_INTERNAL_H
#define ROCELINK_DEVICE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/engine.h"
#include "device/qp_table.h"
#include "device/timers.h"
#include "mem/mem.h"
#include "net/fault.h"
#include "net/netdev.h"
#include "net/port.h"
#include "net/shm.h"
#include "wire/icrc.h"
#include "wire/outbox.h"

#define RECEIVE_BUDGET 16 /* bursts in one step, at most */

struct mcast_member {
	struct mcast_member *next;
	struct engine_qp *eqp;
};

struct mcast_group {
	struct mcast_group *next;
	struct gid gid;
	unsigned ifindex;
	struct mcast_member *members;
	unsigned n_members;
};

struct engine { // NOLINT(clang-analyzer-optin.performance.Padding): by subject
	pthread_mutex_t lock;
	struct port *port;
	struct outbox outbox;
	struct mem_table mem;
	struct qp_table qps;
	struct timers timers;
	struct engine_alarm *alarms;
	struct relay_message *relay_messages; /* that wait; engine_relay.c */
	struct engine_alarm relay_alarm;
	uint64_t relay_pause_ns;
	struct mcast_group *groups;
	uint64_t now_ns;	    /* of the step under way */
	uint32_t empty_polls;	    /* in a row */
	bool blocked;		    /* the socket was full: the outbox waits */
	unsigned steps;		    /* of polling programs */
	uint64_t busy_ns;	    /* when something came in last, or a full ring had room again */
	unsigned bursts;	    /* that came in, running */
	_Atomic unsigned contended; /* empty polls that still give way to other threads */
	unsigned held;		    /* posts that wait for the program's next call */
	int receive_budget;	    /* bursts from the sockets in one step */
	unsigned without_loss;	    /* steps */
	uint64_t no_receives;	    /* drops for lack of a receive, as of the last step */
	unsigned unseen;	    /* posts to UC and UD while the thread isn't aware of a loop */
	unsigned visits;	    /* to queue pairs that send, in this step */
	bool looked;		    /* the step looked at the sockets */
	unsigned sockets_hot;	    /* looks at the sockets before they are looked at less often */
	struct engine_qp *ready_first, *ready_last;
	/* lanes.c */
	struct engine_qp *lane_parked[SHM_LINKS_MAX]; /* by link */
	unsigned n_parked;
	bool dirty[SHM_LINKS_MAX]; /* written to, not yet published */
	struct shm_link *dirty_links[SHM_LINKS_MAX];
	unsigned n_dirty;
	struct shm_link *stuck; /* what the QP being served waits for */
	struct outbox nowhere;
	struct outbox
		*stages; /* by link, with faults: what they are done to on the way to a ring */

	struct engine_qp *_Atomic kicked; /* pushed by posters without the lock */
	uint64_t drops[DROP_COUNT];
	struct fault_injector *fault; /* injected faults, or NULL */
	_Atomic bool link_down;	      /* by one of them */
	_Atomic bool link_changed;    /* and the observers don't know yet */
	_Atomic bool dead, died;      /* the device, by another; and they don't know yet */
	struct qp_counters gone;      /* counters of QPs already destroyed */

	/* The background thread. */
	pthread_t thread;
	int wake_fd;	       /* eventfd */
	int epoll_fd;	       /* wake_fd, the port, netmon */
	int idle_epoll_fd;     /* the same without the port */
	struct netmon *netmon; /* or NULL: changes aren't followed */
	uint64_t wake_ns;      /* under the lock: when the thread wakes by itself */
	uint64_t step_cost_ns; /* of one that finds nothing; only the thread writes it */
	_Atomic uint64_t crowded_until_ns; /* until then, staying awake is no use ... */
	_Atomic unsigned crowd;		   /* ... since others had the processor for long, lately */
	uint64_t spin_interval_ns;	   /* polls that often are a polling loop */
	bool dozing;   /* under the lock: it only looks now and then whether pollers still poll */
	bool deferred; /* under the lock: replies wait for the program's next call ... */
	uint64_t defer_until_ns;      /* ... till then */
	_Atomic bool doze_wanted;     /* by the thread, which found the lock taken */
	_Atomic uint32_t polls;	      /* how often a program's poll drove a step */
	const void *driver_waits_for; /* under the lock: its channel */
	_Atomic uint32_t waiters;     /* threads in engine_wait_fd */
	_Atomic uint32_t waits;	      /* calls of it that ended */
	_Atomic bool parked; /* the thread sleeps until a waiter that comes back wakes it */
	_Atomic bool stopping;

	pthread_mutex_t observers_lock;
	struct engine_observer *observers;
};

/* Under the lock; NULL: the group has no member. */
struct mcast_group *engine_mcast_find(const struct engine *e, const struct gid *gid,
				      unsigned ifindex);
/* The queue pair goes. */
void engine_mcast_forget(struct engine *e, const struct engine_qp *eqp);

uint64_t engine_random(void *unused);
/* Under the lock: let the ready QPs send. */
void engine_transmit(struct engine *e);
/* engine_receive.c; arg is the engine. */
extern const struct port_callbacks engine_port_callbacks;
void engine_deliver_burst(void *arg, const struct burst *burst);
/* For how long replies may wait for the program's answer, which takes them along. */
#define DEFER_SOON_NS	 (100 * NS_PER_US) /* a program that watches memory, or polls now and then */
#define DEFER_POLLING_NS NS_PER_MS	   /* a loop: its next poll sends them */
/*
 * Under the lock. True: something was received or is left to do. quick: this is one of many, the
 * sockets and timers can wait. defer_ns: how long replies to what is received may wait, 0 not at all;
 * the caller sees to it that somebody drives by then.
 */
bool engine_step(struct engine *e, bool quick, uint64_t defer_ns);
/* Under the lock: what the background thread must be up for. */
uint64_t engine_next_due_ns(const struct engine *e);

/* engine_fault.c; only with e->fault, under the lock. */
int engine_fault_open(struct engine *e, const struct fault_plan *plan);
void engine_fault_close(struct engine *e);
/* Before this packet reaches the queue pair. */
void engine_fault_packet(struct engine *e, struct engine_qp *eqp, const struct packet *pkt);
/* The link went down or came up: tell later, from the thread. True: it did. */
bool engine_fault_link(struct engine *e);
/* The device died: tell, then fail all queue pairs. Without the lock, from the thread. */
void engine_fault_die(struct engine *e);
size_t engine_fault_report(const struct engine *e, char *text, size_t cap, size_t at);
size_t engine_report_line(char *text, size_t cap, size_t at, const char *name, uint64_t value);

/* Under the lock: the program drives, the thread looks now and then whether it still does. */
void engine_doze(struct engine *e);
/* Have the thread look around. */
void engine_thread_wake(struct engine *e);

/* Under the lock. */
uint64_t engine_alarms_next(const struct engine *e);
void engine_alarms_ring(struct engine *e);
/* Under the lock: the flow on which the peer's packets come in, if the peer is one of us. */
struct path engine_peer_flow(const struct engine_qp *eqp);

/* lanes.c. A connected QP has an address now, or no longer. */
void lanes_attach(struct engine *e, struct engine_qp *eqp);
void lanes_detach(struct engine *e, struct engine_qp *eqp);
/* It is destroyed. */
void lanes_remove(struct engine *e, struct engine_qp *eqp);
/* Where the QP's packets go now. NULL: park it. */
struct outbox *lanes_outbox(struct engine *e, struct engine_qp *eqp);
/* qp_config.choose_box */
struct outbox *lanes_choose(void *engine, const struct path *path, uint32_t dest_qpn);
/* Set the QP aside if a lane stopped it. */
bool lanes_park(struct engine *e, struct engine_qp *eqp);
void lanes_unpark(struct engine *e);
/* fault_ring_put */
bool lanes_put(void *engine, const struct path *path, const uint8_t *data, uint32_t len);
/* Hand over what was written to the lanes. */
void lanes_publish(struct engine *e);
/* Before sleeping: false, there is something to do. */
bool lanes_sleep(struct engine *e);

void engine_relay_close(struct engine *e);

int engine_thread_start(struct engine *e);
void engine_thread_stop(struct engine *e);
/* In the child of a fork, where the thread doesn't exist. */
void engine_thread_abandon(struct engine *e);
/* Under the lock, before letting go: wake the thread if it would sleep past something due. */
void engine_thread_remind(struct engine *e);

#endif
