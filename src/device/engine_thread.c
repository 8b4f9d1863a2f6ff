/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The background thread: makes progress while the program computes or sleeps, and uses no CPU when
 * there is none to make. While a program polls in a loop (it drives the steps itself, without a
 * thread switch per packet) or sits in engine_wait_fd(), the thread leaves the sockets alone and
 * only looks now and then whether that is still so (engine_loop.h).
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "device/engine_internal.h"
#include "device/engine_loop.h"

#define TAKEN_CHECK_NS	(250 * NS_PER_US)
#define CROWDED_NS	(20 * NS_PER_US)
#define CROWDED_FOR_NS	(10 * NS_PER_MS)
#define CROWD_STEP	16 /* a long absence counts for that many short ones */
#define CROWDED		(3 * CROWD_STEP)
#define CROWD_MAX	(4 * CROWD_STEP)
#define LINGER_NS	(50 * NS_PER_US) /* awake for the next message */
#define LINGER_ROUNDS	8
#define WAITER_CHECK_NS NS_PER_MS
#define DEFER_WAITER_NS WAITER_CHECK_NS
#define PARK_AFTER_NS	(100 * NS_PER_MS)
#define SLICE_NS	(100 * NS_PER_US) /* the least there is */

/* Time until then as poll(2) and ppoll(2) take it; NULL: no limit. */
static struct timespec *time_until(uint64_t due_ns, struct timespec *t)
{
	uint64_t now = engine_now_ns();
	uint64_t left = due_ns > now ? due_ns - now : 0;

	if (due_ns == TIME_NEVER)
		return NULL;
	t->tv_sec = (time_t)(left / NS_PER_SEC);
	t->tv_nsec = (long)(left % NS_PER_SEC);
	return t;
}

static void tell_observers(struct engine *e)
{
	pthread_mutex_lock(&e->observers_lock);
	for (struct engine_observer *o = e->observers; o; o = o->next)
		o->netdev_changed(o);
	pthread_mutex_unlock(&e->observers_lock);
}

static void tell_link_fault(struct engine *e)
{
	bool down = atomic_load(&e->link_down);

	log_info("fault injection: the link is %s", down ? "down" : "up again");
	pthread_mutex_lock(&e->observers_lock);
	for (struct engine_observer *o = e->observers; o; o = o->next)
		o->link_fault(o, down);
	pthread_mutex_unlock(&e->observers_lock);
}

static void drain_wake(struct engine *e)
{
	uint64_t count;

	while (read(e->wake_fd, &count, sizeof(count)) > 0)
		;
}

/* Who else drives? */
struct watcher {
	struct loop_watch loop;
	uint32_t waits;		 /* engine_wait_fd calls that ended, as seen last ... */
	uint64_t waits_since_ns; /* ... and since when there were no more */
	uint64_t slack_ns;	 /* of this thread's sleeps; 0: the system's */
};

/* By how much later may the thread wake than it asks for? */
static void allow_slack(struct watcher *w, uint64_t ns)
{
	if (ns == w->slack_ns)
		return;
	w->slack_ns = ns;
	prctl(PR_SET_TIMERSLACK, (unsigned long)ns);
}

/* Somebody else drives: polls in a loop, or waits on the sockets himself. */
static bool others_drive(struct engine *e, struct watcher *w)
{
	uint64_t now = engine_now_ns();
	uint32_t waits = atomic_load_explicit(&e->waits, memory_order_relaxed);

	engine_loop_judge(e, &w->loop, now);
	if (waits != w->waits) {
		w->waits = waits;
		w->waits_since_ns = now;
	}
	return w->loop.spinning || atomic_load(&e->waiters);
}

/* Linux before 5.11, and valgrind, have no epoll_pwait2: one call more, the same precision. */
static int wait_events(int epoll_fd, struct epoll_event *events, int max, const struct timespec *t)
{
	static bool missing; /* only this thread asks */
	struct pollfd p = { .fd = epoll_fd, .events = POLLIN };

	if (!missing) {
		int n = epoll_pwait2(epoll_fd, events, max, t, NULL);

		if (n >= 0 || errno != ENOSYS)
			return n;
		missing = true;
	}
	return ppoll(&p, 1, t, NULL) > 0 ? epoll_wait(epoll_fd, events, max, 0) : 0;
}

/* Wait for the descriptors of this epoll, and serve them. */
static void handle_events(struct engine *e, int epoll_fd, uint64_t until_ns)
{
	struct epoll_event events[4];
	struct timespec t;
	int n = wait_events(epoll_fd, events, 4, time_until(until_ns, &t));

	for (int i = 0; i < n; i++) {
		if (events[i].data.fd == e->wake_fd)
			drain_wake(e);
		else if (e->netmon && events[i].data.fd == netmon_fd(e->netmon) &&
			 netmon_drain(e->netmon))
			tell_observers(e);
	}
	if (atomic_exchange(&e->link_changed, false))
		tell_link_fault(e);
	if (atomic_exchange(&e->died, false))
		engine_fault_die(e);
}

/*
 * Nothing is left to do, but something came a moment ago: what comes next is seen sooner, and costs
 * no wake-up, if we stay awake.
 */
static bool lingers(const struct engine *e)
{
	uint64_t now = engine_now_ns();

	return e->busy_ns && now - e->busy_ns < LINGER_NS &&
	       now >= atomic_load_explicit(&e->crowded_until_ns, memory_order_relaxed);
}

/*
 * Let others run. When they do for long, staying awake keeps nobody's wake-up away: a thread that
 * sleeps gets the processor sooner than one that gave it away. That takes several long absences
 * within some turns: a single one happens to everybody now and then.
 */
static void give_way(struct engine *e)
{
	uint64_t began = engine_now_ns(), ended;
	unsigned crowd = atomic_load_explicit(&e->crowd, memory_order_relaxed);

	sched_yield();
	ended = engine_now_ns();
	if (ended - began <= CROWDED_NS) {
		if (crowd)
			atomic_store_explicit(&e->crowd, crowd - 1, memory_order_relaxed);
		return;
	}
	if (crowd < CROWD_MAX)
		atomic_store_explicit(&e->crowd, crowd += CROWD_STEP, memory_order_relaxed);
	if (crowd >= CROWDED)
		atomic_store_explicit(&e->crowded_until_ns, ended + CROWDED_FOR_NS,
				      memory_order_relaxed);
}

/* One step. True: more is left. False: nothing is, *due_ns says when to look again. */
static bool drive(struct engine *e, struct watcher *w, uint64_t *due_ns)
{
	unsigned before;
	bool distrusted = engine_loop_distrusted(&w->loop);
	/* The program is about to answer what we find for it: its answer takes our reply along. */
	bool answers = distrusted || w->loop.stood_by;
	bool held, busy, lingering, linger = false;

	allow_slack(w, 0);
	/* Taken: its holder drives, or has the control path; either way he reminds us of what is
	 * left. Unless he isn't there when packets come, as we learnt. */
	if (distrusted) {
		engine_lock(e);
	} else if (pthread_mutex_trylock(&e->lock)) {
		handle_events(e, e->idle_epoll_fd, engine_now_ns() + TAKEN_CHECK_NS);
		return true;
	}
	e->dozing = false;
	atomic_store_explicit(&e->doze_wanted, false, memory_order_relaxed);
	lingering = !answers && lingers(e);
	before = e->bursts;
	held = e->held > 0;
	busy = engine_step(e, lingering, answers ? DEFER_SOON_NS : 0);
	engine_loop_stepped(e, &w->loop, held || e->bursts != before);
	busy = busy || w->loop.spinning;
	if (!busy && !lingering)
		engine_loop_learn_cost(e);
	if (!busy)
		busy = (linger = !answers && lingers(e)) || !lanes_sleep(e);
	*due_ns = e->wake_ns = busy ? 0 : engine_next_due_ns(e);
	if (!busy && engine_loop_is_alive(e, &w->loop) && e->wake_ns > e->now_ns + DEFER_SOON_NS)
		*due_ns = e->wake_ns = e->now_ns + DEFER_SOON_NS;
	engine_unlock(e);
	if (linger)
		give_way(e);
	return busy;
}

/*
 * Sleep while others drive, away from the sockets. Pollers serve the timers; a waiter may sleep
 * past a deadline that another thread's post has set, so then they are ours. A waiter that has been
 * waiting for long is left to wait: when he comes back he wakes us.
 */
static void stand_by(struct engine *e, struct watcher *w)
{
	uint64_t now = engine_now_ns();
	bool spinning = w->loop.spinning;
	uint64_t until = spinning ? engine_loop_stand_by(&w->loop, now) : now + WAITER_CHECK_NS;
	uint64_t due = TIME_NEVER;

	if (pthread_mutex_trylock(&e->lock) == 0) {
		due = engine_next_due_ns(e);
		if (spinning)
			engine_doze(e);
		else
			e->dozing = false;
		/* While we dozed, a poll may have read the byte that was to wake a waiter, and no
		 * peer sends another before it is told that we sleep. */
		if (!spinning && shm_woken(e->port) && !lanes_sleep(e))
			due = 0;
		if (!spinning && now - w->waits_since_ns > PARK_AFTER_NS) {
			until = TIME_NEVER;
			atomic_store(&e->parked, true);
		}
		if (!spinning)
			e->wake_ns = due < until ? due : until;
		engine_unlock(e);
	} else if (spinning) {
		atomic_store(&e->doze_wanted, true);
	}
	if (!spinning && due < until)
		until = due;
	/* He came back before he could see that we are parked. */
	if (!spinning && !atomic_load(&e->waiters))
		until = 0;
	allow_slack(w, spinning ? engine_loop_slack_ns(&w->loop) : 0);
	handle_events(e, e->idle_epoll_fd, until);
	atomic_store(&e->parked, false);
	if (!spinning && engine_now_ns() >= due)
		drive(e, w, &due);
}

/*
 * What wakes this thread is what a program waits for, and the program may spin meanwhile on the only
 * processor there is. Linux 6.12 and later let a thread that asks for short slices interrupt one with long ones when
 * it wakes; the share of the processor stays the same. Older ones ignore it.
 */
static void ask_for_short_slices(void)
{
	struct sched_attr_v0 {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { 0 };

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) || attr.policy != SCHED_OTHER)
		return;
	attr.runtime = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *run(void *arg)
{
	struct engine *e = arg;
	struct watcher watcher = { 0 };
	uint64_t due = 0;

	engine_loop_init(e, &watcher.loop);
	ask_for_short_slices();
	while (!atomic_load(&e->stopping)) {
		handle_events(e, e->epoll_fd, due);
		do {
			while (others_drive(e, &watcher) && !atomic_load(&e->stopping))
				stand_by(e, &watcher);
		} while (drive(e, &watcher, &due) && !atomic_load(&e->stopping));
	}
	return NULL;
}

void engine_thread_wake(struct engine *e)
{
	uint64_t one = 1;

	if (write(e->wake_fd, &one, sizeof(one)) < 0)
		log_debug("waking the background thread failed: errno %d", errno);
}

void engine_thread_remind(struct engine *e)
{
	uint64_t due = engine_next_due_ns(e);

	/* A program's poll read the byte that was to wake the thread, which sleeps on; and no peer
	 * sends another before it is told that we sleep. */
	if (e->wake_ns && shm_woken(e->port) && !lanes_sleep(e))
		due = 0;
	if (due >= e->wake_ns)
		return;
	e->wake_ns = due;
	engine_thread_wake(e);
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* A program's signals are for its own threads; but faults of memory accesses are this one's too. */
static int start_without_signals(struct engine *e)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = -pthread_create(&e->thread, NULL, run, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

static void close_fds(struct engine *e)
{
	if (e->netmon)
		netmon_close(e->netmon);
	if (e->wake_fd >= 0)
		close(e->wake_fd);
	if (e->epoll_fd >= 0)
		close(e->epoll_fd);
	if (e->idle_epoll_fd >= 0)
		close(e->idle_epoll_fd);
}

int engine_thread_start(struct engine *e)
{
	int ret;

	e->wake_ns = 0;
	e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	e->idle_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ret = e->wake_fd < 0 || e->epoll_fd < 0 || e->idle_epoll_fd < 0 ? -errno : 0;
	if (!ret)
		ret = watch(e->idle_epoll_fd, e->wake_fd);
	if (!ret)
		ret = watch(e->epoll_fd, e->wake_fd);
	if (!ret)
		ret = watch(e->epoll_fd, port_wait_fd(e->port));
	if (!ret && netmon_open(&e->netmon)) {
		log_warn("links and addresses that change won't be noticed: no netlink socket");
		e->netmon = NULL;
	}
	if (!ret && e->netmon)
		ret = watch(e->epoll_fd, netmon_fd(e->netmon));
	if (!ret && e->netmon)
		ret = watch(e->idle_epoll_fd, netmon_fd(e->netmon));
	if (!ret)
		ret = start_without_signals(e);
	if (ret)
		close_fds(e);
	return ret;
}

void engine_thread_stop(struct engine *e)
{
	atomic_store(&e->stopping, true);
	engine_thread_wake(e);
	pthread_join(e->thread, NULL);
	close_fds(e);
}

void engine_thread_abandon(struct engine *e)
{
	close_fds(e);
}

bool engine_driver_waits_for(const struct engine *e, const void *channel)
{
	return e->driver_waits_for == channel;
}

int engine_wait_fd(struct engine *e, int fd, bool (*ready)(void *channel), void *channel)
{
	struct pollfd fds[2] = {
		{ .fd = fd, .events = POLLIN },
		{ .fd = port_wait_fd(e->port), .events = POLLIN },
	};
	unsigned rounds = 0;
	int ret = 0;

	atomic_fetch_add(&e->waiters, 1);
	for (;;) {
		struct timespec t;
		bool linger = false;
		uint64_t due;
		int n;

		engine_lock(e);
		due = 0;
		e->driver_waits_for = channel;
		if (!engine_step(e, lingers(e), DEFER_WAITER_NS) && !(linger = lingers(e)) &&
		    lanes_sleep(e))
			due = engine_next_due_ns(e);
		e->driver_waits_for = NULL;
		engine_unlock(e);
		if (ready(channel))
			break;
		if (linger)
			give_way(e);
		/* Nothing came to us; another thread may have made the descriptor readable. */
		if (linger && ++rounds % LINGER_ROUNDS)
			continue;
		n = ppoll(fds, 2, time_until(due, &t), NULL);
		if (n < 0) {
			ret = -errno;
			break;
		}
		if (fds[0].revents)
			break;
	}
	atomic_fetch_sub(&e->waiters, 1);
	atomic_fetch_add_explicit(&e->waits, 1, memory_order_relaxed);
	if (atomic_exchange(&e->parked, false))
		engine_thread_wake(e);
	return ret;
}

void engine_observe(struct engine *e, struct engine_observer *o)
{
	pthread_mutex_lock(&e->observers_lock);
	o->next = e->observers;
	e->observers = o;
	pthread_mutex_unlock(&e->observers_lock);
}

void engine_unobserve(struct engine *e, struct engine_observer *o)
{
	struct engine_observer **link;

	pthread_mutex_lock(&e->observers_lock);
	for (link = &e->observers; *link; link = &(*link)->next) {
		if (*link == o) {
			*link = o->next;
			break;
		}
	}
	pthread_mutex_unlock(&e->observers_lock);
}
