/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine's life and its step: receive, timers, send. engine.h says who drives it;
 * engine_thread.c has the background thread.
 *
 * Invariants: an engine_qp is at most once on the ready list or the stack of the kicked (its
 * `queued` flag); a QP in the table has a number in a block that this process owns; the outbox is
 * empty between steps unless the socket was full.
 */
#include "device/engine_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/log.h"
#include "base/settings.h"

#define OUTBOX_BYTES	   (512u << 10)
#define RECEIVE_BUDGET	   16 /* bursts in one step */
#define TRANSMIT_VISITS	   64 /* QPs served between two looks at the socket */
#define POLLS_BEFORE_YIELD 64 /* empty ones in a row */
#define POLLS_PER_YIELD	   8
#define SELF_ROUNDS	   4
#define SOCKET_STEPS	   64
#define SOCKETS_HOT	   64
#define WINDOW_MIN	   (64u << 10)
#define WINDOW_MAX	   (512u << 10)

uint64_t engine_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

static uint64_t random_u64(void *arg)
{
	uint64_t v = 0;

	(void)arg;
	if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		v = engine_now_ns() * UINT64_C(0x9e3779b97f4a7c15);
	return v;
}

static void ready_append(struct engine *e, struct engine_qp *eqp)
{
	eqp->next_ready = NULL;
	if (e->ready_first)
		e->ready_last->next_ready = eqp;
	else
		e->ready_first = eqp;
	e->ready_last = eqp;
}

void engine_make_ready(struct engine *e, struct engine_qp *eqp)
{
	if (!atomic_exchange(&eqp->queued, 1))
		ready_append(e, eqp);
}

static void push_kicked(struct engine *e, struct engine_qp *eqp)
{
	struct engine_qp *top;

	if (atomic_exchange(&eqp->queued, 1))
		return;
	top = atomic_load(&e->kicked);
	do
		eqp->next_queued = top;
	while (!atomic_compare_exchange_weak(&e->kicked, &top, eqp));
}

static void collect_kicked(struct engine *e)
{
	struct engine_qp *eqp, *next;

	if (!atomic_load(&e->kicked))
		return;
	for (eqp = atomic_exchange(&e->kicked, NULL); eqp; eqp = next) {
		next = eqp->next_queued;
		ready_append(e, eqp);
	}
}

static enum drop deliver_multicast(struct engine *e, const struct packet *pkt,
				   const struct path *path)
{
	enum drop drop = DROP_MULTICAST;

	for (struct mcast_member *m = e->members; m; m = m->next)
		if (gid_eq(&m->group, &path->dgid))
			drop = qp_rx(&m->eqp->qp, pkt, path, e->now_ns);
	return drop;
}

/* From the network. */
static enum drop parse_checked(struct packet *pkt, const uint8_t *data, size_t len,
			       const struct path *path, uint16_t *ipv4_id)
{
	enum drop drop = packet_parse(pkt, data, len);

	if (!drop && !icrc_check(path, ipv4_id, data, len))
		drop = DROP_ICRC;
	return drop;
}

/* From a ring: shared with a process that may still write to it. */
static enum drop parse_local(struct packet *pkt, const uint8_t *data, size_t len)
{
	uint8_t head[PACKET_HEADER_MAX];

	memcpy(head, data, len < sizeof(head) ? len : sizeof(head));
	return packet_parse_local(pkt, head, data, len, RING_MTU);
}

static enum drop deliver(struct engine *e, const uint8_t *data, size_t len, const struct path *path,
			 uint16_t *ipv4_id)
{
	struct engine_qp *eqp;
	struct packet pkt;
	enum drop drop = path->local ? parse_local(&pkt, data, len)
				     : parse_checked(&pkt, data, len, path, ipv4_id);

	if (drop)
		return drop;
	if (pkt.op->kind == OP_CNP)
		return DROP_CNP;
	if (pkt.dest_qpn == QPN_MULTICAST)
		return deliver_multicast(e, &pkt, path);
	eqp = qp_table_find(&e->qps, pkt.dest_qpn);
	if (!eqp)
		return DROP_QPN;
	if (e->fault)
		engine_fault_packet(e, eqp, &pkt);
	drop = qp_rx(&eqp->qp, &pkt, path, e->now_ns);
	engine_make_ready(e, eqp);
	return drop;
}

static void deliver_burst(void *arg, const struct burst *burst)
{
	struct engine *e = arg;
	uint16_t ipv4_id = 0;

	for (size_t at = 0; at < burst->len; at += burst->seg_len) {
		size_t left = burst->len - at;

		e->drops[deliver(e, burst->data + at, left < burst->seg_len ? left : burst->seg_len,
				 &burst->path, &ipv4_id)]++;
		/* Segments of one send are numbered 0, 1, 2 ...; other senders count up too. */
		ipv4_id++;
	}
}

static bool is_local_qpn(void *arg, uint32_t qpn)
{
	const struct engine *e = arg;

	return qpn <= 1 || qpn == QPN_MULTICAST || qp_table_owns(&e->qps, qpn);
}

static void receive_burst(void *arg, const struct burst *burst)
{
	struct engine *e = arg;

	if (e->fault)
		fault_receive(e->fault, burst, e->now_ns, deliver_burst, e);
	else
		deliver_burst(e, burst);
}

static void port_dropped(void *arg, enum drop reason, unsigned packets)
{
	struct engine *e = arg;

	e->drops[reason] += packets;
}

static size_t report(void *arg, char *text, size_t cap)
{
	return engine_report(arg, text, cap);
}

static void run_timers(struct engine *e)
{
	struct engine_qp *eqp;

	while ((eqp = timers_pop(&e->timers, e->now_ns))) {
		qp_tick(&eqp->qp, e->now_ns);
		timers_set(&e->timers, eqp, qp_next_deadline(&eqp->qp));
		engine_make_ready(e, eqp);
	}
	if (__builtin_expect(e->alarms != NULL, 0))
		engine_alarms_ring(e);
}

/* True: all sent. */
static bool flush(struct engine *e)
{
	bool was_blocked = e->blocked;
	struct outbox *box = &e->outbox;

	if (e->fault) {
		fault_send(e->fault, box, e->now_ns);
		box = fault_outbox(e->fault);
	}
	e->blocked = !outbox_empty(box) && port_send(e->port, box) == -EAGAIN;
	if (e->blocked != was_blocked)
		port_want_write(e->port, e->blocked);
	return !e->blocked;
}

/* Let the ready QPs send, in turn. */
static void send_ready(struct engine *e)
{
	for (unsigned visits = 0; e->ready_first && visits < TRANSMIT_VISITS; visits++) {
		struct engine_qp *eqp = e->ready_first;
		struct outbox *box;
		bool more;

		e->ready_first = eqp->next_ready;
		/* Cleared before it is served: a post from now on queues it anew. */
		atomic_store(&eqp->queued, 0);
		box = lanes_outbox(e, eqp);
		more = !box || qp_tx(&eqp->qp, box, e->now_ns);
		timers_set(&e->timers, eqp, qp_next_deadline(&eqp->qp));
		if (!more)
			continue;
		if (!lanes_park(e, eqp))
			engine_make_ready(e, eqp);
		lanes_publish(e);
		if (!flush(e))
			return;
	}
	lanes_publish(e);
	flush(e);
}

/* Send, and take at once what this process sent to itself. */
static void transmit(struct engine *e)
{
	send_ready(e);
	for (unsigned i = 0; i < SELF_ROUNDS && shm_waits_for_us(e->port); i++) {
		shm_receive(e->port, RECEIVE_BUDGET);
		lanes_unpark(e);
		send_ready(e);
	}
}

/*
 * From the rings and from the sockets. While a program polls and has same-host links, the sockets,
 * a system call each time, are looked at less often unless something comes from there.
 */
static int receive(struct engine *e, bool polled)
{
	int bursts = shm_receive(e->port, RECEIVE_BUDGET), from_sockets;

	if (bursts)
		e->ring_ns = e->now_ns;

	if (polled && shm_busy(e->port) && !e->sockets_hot && e->steps % SOCKET_STEPS)
		return bursts;
	from_sockets = port_receive(e->port, RECEIVE_BUDGET);
	if (from_sockets)
		e->sockets_hot = SOCKETS_HOT;
	else if (e->sockets_hot)
		e->sockets_hot--;
	return bursts + from_sockets;
}

/*
 * A program polls, and there is nothing in the rings or to be sent: the common case, and what a
 * message waits for. Sockets and timers, a system call and the clock, have their turn every few
 * polls.
 */
static bool nothing_new(struct engine *e)
{
	return shm_busy(e->port) && !e->sockets_hot && ++e->steps % SOCKET_STEPS &&
	       !shm_has_input(e->port) && !e->ready_first && !atomic_load(&e->kicked) &&
	       !e->n_parked && !e->fault;
}

bool engine_step(struct engine *e, bool may_defer)
{
	int bursts;

	if (may_defer && nothing_new(e))
		return false;
	e->now_ns = engine_now_ns();
	bursts = receive(e, may_defer);
	shm_expire(e->port, e->now_ns);
	lanes_unpark(e);
	if (e->fault) {
		fault_receive(e->fault, NULL, e->now_ns, deliver_burst, e);
		if (engine_fault_link(e))
			engine_thread_wake(e);
	}
	collect_kicked(e);
	run_timers(e);
	/*
	 * What came in is for a program that polls: it gets its completions first. Its answer,
	 * posted next, takes the acknowledgement with it in one send; or else its next poll sends
	 * it.
	 */
	e->deferred = may_defer && bursts > 0 && e->dozing && !e->deferred;
	if (!e->deferred && (!e->blocked || flush(e)))
		transmit(e);
	return bursts > 0 || (e->ready_first && !e->blocked);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t engine_next_due_ns(const struct engine *e)
{
	uint64_t due;

	if (e->ready_first && !e->blocked && !e->deferred)
		return 0;
	if (shm_waits_for_us(e->port))
		return 0;
	due = earlier(timers_next(&e->timers), shm_next_due(e->port));
	if (e->fault && !e->blocked)
		due = earlier(due, fault_next_due_ns(e->fault, e->now_ns));
	if (e->alarms)
		due = earlier(due, engine_alarms_next(e));
	return due;
}

void engine_lock(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
}

static void serve_kicked(struct engine *e)
{
	if (atomic_load(&e->kicked))
		e->deferred = false;
	collect_kicked(e);
	if (e->ready_first && !e->blocked && !e->deferred) {
		e->now_ns = engine_now_ns();
		transmit(e);
	}
}

void engine_unlock(struct engine *e)
{
	/*
	 * Whoever kicks while the lock is taken leaves it to the holder: look before letting go,
	 * and after, since a kick may have come in between.
	 */
	do {
		serve_kicked(e);
		engine_thread_remind(e);
		pthread_mutex_unlock(&e->lock);
	} while (atomic_load(&e->kicked) && pthread_mutex_trylock(&e->lock) == 0);
}

void engine_kick(struct engine *e, struct engine_qp *eqp)
{
	push_kicked(e, eqp);
	if (pthread_mutex_trylock(&e->lock) == 0)
		engine_unlock(e);
}

void engine_poll(struct engine *e)
{
	bool busy;

	atomic_fetch_add_explicit(&e->polls, 1, memory_order_relaxed);
	if (pthread_mutex_trylock(&e->lock))
		return;
	busy = engine_step(e, true);
	e->empty_polls = busy ? 0 : e->empty_polls + 1;
	busy = e->empty_polls < POLLS_BEFORE_YIELD || e->empty_polls % POLLS_PER_YIELD;
	engine_unlock(e);
	/* With more runnable threads than cores, the peer that this program waits for may need this
	 * core. */
	if (!busy)
		sched_yield();
}

struct mem_table *engine_mem(struct engine *e)
{
	return &e->mem;
}

int engine_add_qp(struct engine *e, struct engine_qp *eqp)
{
	size_t window = port_receive_window(e->port) / 4;
	int ret = timers_reserve(&e->timers, e->qps.live + 1);

	if (ret)
		return ret;
	if (window < WINDOW_MIN)
		window = WINDOW_MIN;
	if (window > WINDOW_MAX)
		window = WINDOW_MAX;
	eqp->qp.cfg.window_bytes = (uint32_t)window;
	eqp->qp.cfg.sport = port_sport;
	eqp->qp.cfg.choose_box = lanes_choose;
	eqp->qp.cfg.choose_arg = e;
	return qp_table_add(&e->qps, e->port, eqp, random_u64(NULL));
}

static void unqueue(struct engine *e, struct engine_qp *eqp)
{
	struct engine_qp **link = &e->ready_first;

	collect_kicked(e);
	e->ready_last = NULL;
	while (*link) {
		if (*link == eqp) {
			*link = eqp->next_ready;
			continue;
		}
		e->ready_last = *link;
		link = &(*link)->next_ready;
	}
}

/*
 * A program destroys its queue pair, or resets it, right after the last completion: the
 * acknowledgement that engine_step() held back for it must leave, or the peer runs out of retries.
 */
static void pay_debts(struct engine *e)
{
	e->now_ns = engine_now_ns();
	e->deferred = false;
	if (!e->blocked || flush(e))
		transmit(e);
}

void engine_remove_qp(struct engine *e, struct engine_qp *eqp)
{
	struct mcast_member *m, *next;

	pay_debts(e);
	for (m = e->members; m; m = next) {
		next = m->next;
		if (m->eqp == eqp)
			engine_detach_mcast(e, eqp, &m->group, m->ifindex);
	}
	unqueue(e, eqp);
	lanes_remove(e, eqp);
	timers_remove(&e->timers, eqp);
	qp_table_remove(&e->qps, eqp);
	qp_counters_add(&e->gone, &eqp->qp.counters);
}

bool engine_owns_qpn(const struct engine *e, uint32_t qpn)
{
	return qp_table_owns(&e->qps, qpn);
}

struct engine_qp *engine_find_qp(struct engine *e, uint32_t qpn)
{
	return qp_table_find(&e->qps, qpn);
}

/* The peer computes its port likewise. */
struct path engine_peer_flow(const struct engine_qp *eqp)
{
	struct path flow = eqp->qp.path;

	flow.sgid = eqp->qp.path.dgid;
	flow.dgid = eqp->qp.path.sgid;
	flow.sport = port_sport(eqp->qp.attr.dest_qp_num, eqp->qp.qpn);
	return flow;
}

void engine_expect_peer(struct engine *e, struct engine_qp *eqp)
{
	lanes_attach(e, eqp);
}

void engine_forget_peer(struct engine *e, struct engine_qp *eqp)
{
	pay_debts(e);
	lanes_detach(e, eqp);
}

/* Whatever the log level: only this tells which memory it was. */
static void memory_gone(const struct mr *mr, const void *address)
{
	fprintf(stderr,
		"rocelink: at %p, in the memory region of %llu bytes at %p (key 0x%x), nothing is "
		"mapped any more, or it was protected: the work request ends with an error. "
		"Deregister a region before its memory is unmapped.\n",
		address, (unsigned long long)mr->length, (void *)mr->host, mr->key);
}

static void engine_free(struct engine *e)
{
	qp_table_destroy(&e->qps, e->port);
	timers_destroy(&e->timers);
	mem_destroy(&e->mem);
	engine_fault_close(e);
	outbox_destroy(&e->outbox);
	outbox_destroy(&e->nowhere);
	port_close(e->port);
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->observers_lock);
	free(e);
}

static int engine_new(struct engine **out, char *error, size_t error_len)
{
	const struct settings *settings = settings_get();
	struct port_config config = {
		.callbacks = { .receive = receive_burst,
			       .is_local_qpn = is_local_qpn,
			       .report = report,
			       .dropped = port_dropped },
		.udp_port = ROCE_UDP_PORT,
	};
	struct engine *e;
	int ret;

	if (!settings) {
		snprintf(error, error_len, "a ROCELINK_* setting is wrong");
		return -EINVAL;
	}
	if (settings->path == PATH_SHM && (settings->pcap || settings->fault.active)) {
		snprintf(error, error_len,
			 "path shm has no packets to capture or to lose: use path auto or udp with "
			 "pcap or fault");
		return -EINVAL;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	pthread_mutex_init(&e->lock, NULL);
	pthread_mutex_init(&e->observers_lock, NULL);
	config.arg = e;
	config.pcap = settings->pcap;
	/* Packets that are to be seen must be real ones. */
	config.shm = settings->path == PATH_SHM ||
		     (settings->path == PATH_AUTO && !settings->pcap && !settings->fault.active);
	ret = port_open(&e->port, &config, error, error_len);
	if (ret) {
		free(e);
		return ret;
	}
	ret = outbox_init(&e->outbox, OUTBOX_BYTES);
	if (!ret)
		ret = outbox_init(&e->nowhere, OUTBOX_BYTES);
	e->nowhere.no_icrc = true;
	if (!ret)
		ret = mem_init(&e->mem, random_u64, NULL);
	e->mem.on_gone = memory_gone;
	if (!ret && settings->fault.active)
		ret = engine_fault_open(e, &settings->fault);
	if (!ret)
		ret = engine_thread_start(e);
	if (ret) {
		snprintf(error, error_len, "starting the adapter: %s", strerror(-ret));
		engine_free(e);
		return ret;
	}
	*out = e;
	return 0;
}

/* The one engine of the process. */
static pthread_mutex_t instance_lock = PTHREAD_MUTEX_INITIALIZER;
static struct engine *instance;
static unsigned instance_users;

static void before_fork(void)
{
	pthread_mutex_lock(&instance_lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&instance_lock);
}

/*
 * Sockets, numbers and the thread are the parent's; the contexts that the child inherited are dead
 * (the device sees to that), and one opened from now on gets an engine of its own. Descriptors are
 * closed at once: else packets would go to the child's copies, and blocks outlive the parent.
 */
static void after_fork_in_child(void)
{
	if (instance) {
		port_abandon(instance->port);
		engine_thread_abandon(instance);
	}
	instance = NULL;
	instance_users = 0;
	pthread_mutex_init(&instance_lock, NULL);
}

/* The program exits without closing: what is owed to its peers leaves. */
static void __attribute__((destructor)) leave(void)
{
	struct engine *e = instance;

	if (!e || pthread_mutex_trylock(&e->lock))
		return;
	e->deferred = false;
	if (!e->blocked)
		transmit(e);
	engine_fault_close(e);
	pthread_mutex_unlock(&e->lock);
}

int engine_get(struct engine **e, char *error, size_t error_len)
{
	static bool hooked;
	int ret = 0;

	pthread_mutex_lock(&instance_lock);
	if (!hooked)
		hooked =
			pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
	if (!instance)
		ret = engine_new(&instance, error, error_len);
	if (!ret) {
		instance_users++;
		*e = instance;
	}
	pthread_mutex_unlock(&instance_lock);
	return ret;
}

void engine_put(struct engine *e)
{
	pthread_mutex_lock(&instance_lock);
	if (--instance_users == 0) {
		instance = NULL;
		engine_thread_stop(e);
		engine_free(e);
	}
	pthread_mutex_unlock(&instance_lock);
}
