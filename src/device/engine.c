/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine's step: receive, timers, send. engine.h says who drives it; engine_thread.c has the
 * background thread, engine_receive.c what comes in, engine_instance.c the beginning and the end.
 *
 * Invariants: an engine_qp is at most once on the ready list (its `ready` flag), and at most once on
 * the stack of the kicked (`kicked`); a QP in the table has a number in a block that this process
 * owns; the outbox is empty between steps unless the socket was full.
 */
#include "device/engine_internal.h"
#include "device/engine_loop.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define BUDGET_GROWS_AFTER 4096 /* steps without loss */
#define TRANSMIT_VISITS	   64	/* QPs served between two looks at the socket */
/* Empty polls in a row, counted as the time they take: one of the sockets is 16 of the rings alone. */
#define POLLS_BEFORE_YIELD 1024
#define POLLS_PER_YIELD	   128
#define POLL_OF_SOCKETS	   16
#define HELD_MAX	   32
#define HELD_LOCAL_MAX	   15  /* of a queue pair on the same-host path ... */
#define HELD_LOCAL_LEN	   512 /* ... messages of at most so many bytes */
#define CONTENDED_POLLS	   256
#define POSTS_PER_LOOK	   64
#define SELF_ROUNDS	   4
#define SOCKET_STEPS	   512
#define SOCKETS_HOT	   64
#define WINDOW_MIN	   (64u << 10)
#define WINDOW_MAX	   (1024u << 10)

uint64_t engine_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec;
}

void engine_make_ready(struct engine *e, struct engine_qp *eqp)
{
	if (eqp->ready)
		return;
	eqp->ready = true;
	eqp->next_ready = NULL;
	if (e->ready_first)
		e->ready_last->next_ready = eqp;
	else
		e->ready_first = eqp;
	e->ready_last = eqp;
}

/* Without the lock. */
static void push_kicked(struct engine *e, struct engine_qp *eqp)
{
	struct engine_qp *top;

	if (atomic_exchange(&eqp->kicked, 1))
		return;
	top = atomic_load(&e->kicked);
	do
		eqp->next_kicked = top;
	while (!atomic_compare_exchange_weak(&e->kicked, &top, eqp));
}

static void collect_kicked(struct engine *e)
{
	struct engine_qp *eqp, *next;

	if (!atomic_load(&e->kicked))
		return;
	for (eqp = atomic_exchange(&e->kicked, NULL); eqp; eqp = next) {
		next = eqp->next_kicked;
		/* Before it is served: a post from now on pushes it anew. The exchange sees all that was
		 * posted by those who found it pushed. */
		atomic_exchange(&eqp->kicked, 0);
		engine_make_ready(e, eqp);
	}
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
		lanes_publish(e);
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
	e->held = 0;
	for (unsigned visits = 0; e->ready_first && visits < TRANSMIT_VISITS; visits++) {
		struct engine_qp *eqp = e->ready_first;
		struct outbox *box;
		bool more;

		e->ready_first = eqp->next_ready;
		e->visits++;
		eqp->ready = false;
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
void engine_transmit(struct engine *e)
{
	send_ready(e);
	for (unsigned i = 0; i < SELF_ROUNDS && shm_waits_for_us(e->port); i++) {
		shm_receive(e->port, RECEIVE_BUDGET);
		lanes_unpark(e);
		send_ready(e);
	}
}

/*
 * A datagram that finds no receive is lost, and a program posts its receives anew between two steps:
 * what a step takes at once must not be more than it posts. The rest waits in the socket.
 */
static void adapt_receive_budget(struct engine *e)
{
	if (e->drops[DROP_NO_RECEIVE] != e->no_receives) {
		e->no_receives = e->drops[DROP_NO_RECEIVE];
		e->receive_budget = e->receive_budget > 1 ? e->receive_budget / 2 : 1;
		e->without_loss = 0;
	} else if (e->receive_budget < RECEIVE_BUDGET && ++e->without_loss >= BUDGET_GROWS_AFTER) {
		e->receive_budget++;
		e->without_loss = 0;
	}
}

/*
 * From the rings and from the sockets. While a program polls and has same-host links, the sockets,
 * a system call each time, are looked at less often unless something comes from there.
 */
static int receive(struct engine *e, bool polled)
{
	int bursts = shm_receive(e->port, RECEIVE_BUDGET), from_sockets;

	if (polled && shm_busy(e->port) && !e->sockets_hot && e->steps % SOCKET_STEPS)
		return bursts;
	e->looked = true;
	from_sockets = port_receive(e->port, e->receive_budget);
	if (from_sockets) {
		adapt_receive_budget(e);
		e->sockets_hot = SOCKETS_HOT;
	} else if (e->sockets_hot) {
		e->sockets_hot--;
	}
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

static bool step(struct engine *e, bool polled, uint64_t defer_ns)
{
	int bursts;

	e->now_ns = engine_now_ns();
	bursts = receive(e, polled);
	e->bursts += (unsigned)bursts;
	if (bursts)
		e->busy_ns = e->now_ns;
	shm_expire(e->port, e->now_ns);
	lanes_unpark(e);
	if (e->fault) {
		fault_receive(e->fault, NULL, e->now_ns, engine_deliver_burst, e);
		if (engine_fault_link(e))
			engine_thread_wake(e);
	}
	collect_kicked(e);
	e->held = 0;
	run_timers(e);
	/*
	 * What came in is for a program that is about to answer: it gets its completions first. The
	 * answer, posted next, takes the acknowledgement with it in one send; or else the next step
	 * sends it.
	 */
	e->deferred = defer_ns && bursts > 0 && !e->deferred;
	e->defer_until_ns = e->now_ns + defer_ns;
	if (!e->deferred && (!e->blocked || flush(e)))
		engine_transmit(e);
	return bursts > 0 || (e->ready_first && !e->blocked);
}

bool engine_step(struct engine *e, bool quick, uint64_t defer_ns)
{
	return (!quick || !nothing_new(e)) && step(e, quick, defer_ns);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t engine_next_due_ns(const struct engine *e)
{
	uint64_t due;

	if (e->ready_first && !e->blocked && !e->deferred && !e->held)
		return 0;
	if (shm_waits_for_us(e->port))
		return 0;
	due = earlier(timers_next(&e->timers), shm_next_due(e->port));
	if (e->ready_first && e->deferred)
		due = earlier(due, e->defer_until_ns);
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

/*
 * A program that polls posts one work request after the other while earlier ones are on their way:
 * sent one by one, each small packet costs a system call here, and one for its acknowledgement there;
 * on the same-host path it costs a cache line that the other processor has. They wait for its next
 * poll, or until there are some.
 */
static bool may_wait(const struct engine_qp *eqp)
{
	if (!qp_is_reliable(&eqp->qp))
		return !eqp->link;
	if (eqp->link && !qp_unsent_within(&eqp->qp, HELD_LOCAL_MAX, HELD_LOCAL_LEN))
		return false;
	return qp_outstanding(&eqp->qp);
}

static bool hold(const struct engine *e, const struct engine_qp *eqp)
{
	return e->dozing && e->held < HELD_MAX && (e->held || !e->ready_first) && !e->fault &&
	       may_wait(eqp);
}

/* Under the lock, before it is let go: those that are ready, unless they wait for the program's next call. */
static void serve_ready(struct engine *e)
{
	if (atomic_load(&e->kicked)) {
		e->held = 0;
		e->deferred = false;
		collect_kicked(e);
	}
	if (!e->dozing)
		e->held = 0;
	if (e->ready_first && !e->blocked && !e->deferred && !e->held) {
		e->now_ns = engine_now_ns();
		engine_transmit(e);
	}
}

void engine_doze(struct engine *e)
{
	atomic_store_explicit(&e->doze_wanted, false, memory_order_relaxed);
	/* A waiter asleep counts on being woken. */
	if (!e->dozing && !atomic_load(&e->waiters))
		shm_awake(e->port);
	e->dozing = true;
	e->wake_ns = 0;
}

/*
 * Whoever kicks while the lock is taken leaves it to the holder: he looks before letting go, and after,
 * since a kick may have come in between. True: one has, and the lock is taken again.
 */
static bool let_go_of_lock(struct engine *e)
{
	pthread_mutex_unlock(&e->lock);
	return __builtin_expect(atomic_load(&e->kicked) != NULL, 0) &&
	       pthread_mutex_trylock(&e->lock) == 0;
}

void engine_unlock(struct engine *e)
{
	if (__builtin_expect(atomic_load_explicit(&e->doze_wanted, memory_order_relaxed), 0))
		engine_doze(e);
	do {
		serve_ready(e);
		engine_thread_remind(e);
	} while (let_go_of_lock(e));
}

void engine_kick(struct engine *e, struct engine_qp *eqp)
{
	bool reliable = qp_is_reliable(&eqp->qp);

	/* What UD and UC send is done at once: a program that sends one after the other need not poll
	 * in between, and is in a loop all the same. */
	if (!reliable)
		atomic_fetch_add_explicit(&e->polls, 1, memory_order_relaxed);
	if (pthread_mutex_trylock(&e->lock)) {
		push_kicked(e, eqp);
		/* The holder may have looked for the last time before that. */
		if (pthread_mutex_trylock(&e->lock) == 0)
			engine_unlock(e);
		return;
	}
	/* Nothing comes back that the thread would wake for to see that. */
	if (!reliable && !e->dozing && ++e->unseen % POSTS_PER_LOOK == 0)
		engine_thread_wake(e);
	e->held = hold(e, eqp) ? e->held + 1 : 0;
	engine_make_ready(e, eqp);
	/* This is the answer that replies waited for. */
	e->deferred = false;
	engine_unlock(e);
}

/* For how long may replies to what a poll finds wait? Until the thread looks, if that is soon. */
static uint64_t poll_defers_ns(const struct engine *e)
{
	if (e->dozing)
		return DEFER_POLLING_NS;
	return e->wake_ns <= e->now_ns + DEFER_SOON_NS ? DEFER_SOON_NS : 0;
}

/*
 * Another thread drives. What this one waits for comes through that one, through the peer, or was
 * posted by a third: each may need this processor.
 */
static void leave_to_another(struct engine *e)
{
	atomic_store_explicit(&e->contended, CONTENDED_POLLS, memory_order_relaxed);
	sched_yield();
}

/* Did several threads poll a moment ago? */
static bool is_contended(struct engine *e)
{
	unsigned left = atomic_load_explicit(&e->contended, memory_order_relaxed);

	if (!left)
		return false;
	atomic_store_explicit(&e->contended, left - 1, memory_order_relaxed);
	return true;
}

/* After so many empty polls in a row, or when threads contend: give the processor away? */
static bool yields(struct engine *e, unsigned cost)
{
	e->empty_polls += cost;
	return (e->empty_polls >= POLLS_BEFORE_YIELD && e->empty_polls % POLLS_PER_YIELD < cost) ||
	       (e->empty_polls > cost && is_contended(e));
}

void engine_poll(struct engine *e)
{
	bool yield;

	if (pthread_mutex_trylock(&e->lock)) {
		atomic_fetch_add_explicit(&e->polls, 1, memory_order_relaxed);
		leave_to_another(e);
		return;
	}
	/* Cheaper than an addition in one; that one of another thread may get lost is no matter. */
	atomic_store_explicit(&e->polls, atomic_load_explicit(&e->polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	if (nothing_new(e)) {
		yield = yields(e, 1);
		if (let_go_of_lock(e))
			engine_unlock(e);
	} else {
		engine_loop_poll_begins(e);
		if (step(e, true, poll_defers_ns(e)))
			e->empty_polls = 0;
		engine_loop_poll_ends(e);
		yield = yields(e, e->looked ? POLL_OF_SOCKETS : 1);
		engine_unlock(e);
	}
	/* With more runnable threads than cores, the peer that this program waits for may need this
	 * core. */
	if (yield)
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
	return qp_table_add(&e->qps, e->port, eqp, engine_random(NULL));
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
 * A program destroys its queue pair, resets it or moves it to ERR, right after the last completion:
 * the acknowledgement that engine_step() held back for it must leave, or the peer runs out of retries.
 */
void engine_pay_debts(struct engine *e)
{
	e->now_ns = engine_now_ns();
	e->deferred = false;
	collect_kicked(e);
	if (!e->blocked || flush(e))
		engine_transmit(e);
}

void engine_remove_qp(struct engine *e, struct engine_qp *eqp)
{
	engine_pay_debts(e);
	engine_mcast_forget(e, eqp);
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

int engine_own_block(struct engine *e, uint32_t i)
{
	return qp_table_block(&e->qps, e->port, i, engine_random(NULL));
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
	engine_pay_debts(e);
	lanes_detach(e, eqp);
}
