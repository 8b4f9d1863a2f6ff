/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/xrc_remote.h"

#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "net/port.h"

#define CALL_TRIES   40000 /* of 50 us and more */
#define WATCH_NS     NS_PER_SEC
#define CALLS_QUEUED 64 /* by one target */

enum call { OPEN = 1, MODIFY, QUERY, CLOSE };

struct remote_message {
	uint32_t kind; /* XRC_CALL ... */
	uint32_t call;
	uint32_t qpn;	 /* the target */
	uint32_t opener; /* a number of the opener's process */
	uint64_t handle; /* the opener's */
	uint64_t serial; /* of the call */
	struct xrc_name domain;
	int32_t rc;    /* RETURN */
	uint32_t what; /* MODIFY: mask; EVENT: type */
	struct ibv_qp_attr attr;
};

/* The opener's side. */

/* A call that awaits its return. */
struct waiter {
	struct list link;
	uint64_t serial;
	bool done;
	struct remote_message answer;
};

/* Under the engine lock. */
static struct list waiters = { &waiters, &waiters };
static struct list handles = { &handles, &handles }; /* dev_qp.handle_link */
static uint64_t last_serial;

static int make_message(const struct dev_qp *handle, enum call call, struct remote_message *m)
{
	int block = engine_own_block(handle->engine, 0);

	if (block < 0)
		return block;
	m->kind = XRC_CALL;
	m->call = call;
	m->qpn = handle->ibv.qp_base.qp_num;
	m->opener = (uint32_t)block << QPN_BLOCK_BITS;
	m->handle = handle->remote_id;
	m->serial = ++last_serial;
	m->domain = handle->xrcd->domain->name;
	return 0;
}

/* Until it returns, or the time is up. */
static bool await_return(struct engine *e, const struct waiter *w)
{
	const struct timespec pause = { .tv_nsec = 50000 };
	bool done = false;

	for (unsigned i = 0; !done && i < CALL_TRIES; i++) {
		engine_poll(e);
		engine_lock(e);
		done = w->done;
		engine_unlock(e);
		if (!done)
			nanosleep(&pause, NULL);
	}
	return done;
}

/* m: what and attr of the call, then the answer. */
static int call_target(struct dev_qp *handle, enum call call, struct remote_message *m)
{
	struct engine *e = handle->engine;
	struct waiter w = { .done = false };
	int rc;

	engine_lock(e);
	rc = make_message(handle, call, m);
	w.serial = m->serial;
	list_append(&waiters, &w.link);
	if (!rc)
		rc = engine_relay(e, qpn_block(m->qpn), m, sizeof(*m));
	engine_unlock(e);
	if (!rc && !await_return(e, &w))
		rc = -ETIMEDOUT;
	engine_lock(e);
	list_remove(&w.link);
	engine_unlock(e);
	if (rc)
		return rc;
	*m = w.answer;
	return m->rc;
}

int xrc_remote_open(struct dev_qp *handle, uint32_t qpn)
{
	struct remote_message m = { .rc = 0 };
	int rc;

	handle->ibv.qp_base.handle = handle->ibv.qp_base.qp_num = handle->eqp.qp.qpn = qpn;
	handle->remote_id = xrc_random();
	/* Events may come before the return does. */
	engine_lock(handle->engine);
	list_append(&handles, &handle->handle_link);
	engine_unlock(handle->engine);
	rc = call_target(handle, OPEN, &m);
	if (rc) {
		log_info("open_qp: target 0x%06x isn't this process's, and %s", qpn,
			 rc == -ECONNREFUSED ? "nobody's"
			 : rc == -EINVAL     ? "none of the domain"
					     : strerror(-rc));
		xrc_remote_close(handle);
		return rc == -ECONNREFUSED ? -EINVAL : rc;
	}
	handle->ibv.qp_base.state = m.attr.qp_state;
	return 0;
}

void xrc_remote_close(struct dev_qp *handle)
{
	struct remote_message m = { .rc = 0 };

	engine_lock(handle->engine);
	list_remove(&handle->handle_link);
	list_init(&handle->handle_link);
	if (!make_message(handle, CLOSE, &m) &&
	    engine_relay(handle->engine, qpn_block(m.qpn), &m, sizeof(m)))
		log_debug("destroy_qp 0x%06x: the target's process is gone", m.qpn);
	engine_unlock(handle->engine);
}

/* The process that had the target is gone, or has it no more: so is the target. */
static int explain(const char *call, const struct dev_qp *handle, int rc)
{
	if (rc == -ECONNREFUSED || rc == -ENOENT) {
		log_info("%s 0x%06x: the target went with the context that created it, in another "
			 "process",
			 call, handle->ibv.qp_base.qp_num);
		return -EIO;
	}
	if (rc)
		log_info("%s 0x%06x, in another process: %s", call, handle->ibv.qp_base.qp_num,
			 strerror(-rc));
	return rc;
}

int xrc_remote_modify(struct dev_qp *handle, const struct ibv_qp_attr *attr, int mask)
{
	struct remote_message m = { .what = (uint32_t)mask, .attr = *attr };
	int rc = explain("modify_qp", handle, call_target(handle, MODIFY, &m));

	if (!rc)
		handle->ibv.qp_base.state = m.attr.qp_state;
	return rc;
}

int xrc_remote_query(struct dev_qp *handle, struct ibv_qp_attr *attr)
{
	struct remote_message m = { .rc = 0 };
	int rc = explain("query_qp", handle, call_target(handle, QUERY, &m));

	if (!rc)
		*attr = m.attr;
	return rc;
}

static void take_return(const struct remote_message *m)
{
	struct list *pos;

	list_for_each(pos, &waiters)
	{
		struct waiter *w = container_of(pos, struct waiter, link);

		if (w->serial != m->serial)
			continue;
		w->answer = *m;
		w->done = true;
		return;
	}
}

static void take_event(const struct remote_message *m)
{
	const enum ibv_event_type type = (enum ibv_event_type)m->what;
	struct list *pos;

	if (!dev_async_is_of_qp(type))
		return;
	list_for_each(pos, &handles)
	{
		struct dev_qp *handle = container_of(pos, struct dev_qp, handle_link);

		if (handle->remote_id == m->handle && handle->ibv.qp_base.qp_num == m->qpn)
			dev_async_post(handle->ctx, type, handle);
	}
}

/* The target's side. */

struct opener {
	struct list link;
	uint32_t number; /* of its process */
	uint64_t handle;
};

/* A call that waits for the step's next part: it may do what can't be done amid receiving. */
struct queued {
	struct list link;
	struct remote_message m;
};

static struct opener *find_opener(const struct xrc_target *t, const struct remote_message *m)
{
	struct list *pos;

	list_for_each(pos, &t->openers)
	{
		struct opener *o = container_of(pos, struct opener, link);

		if (o->handle == m->handle && qpn_block(o->number) == qpn_block(m->opener))
			return o;
	}
	return NULL;
}

static void drop_opener(struct opener *o)
{
	list_remove(&o->link);
	free(o);
}

static void give_back(struct engine *e, struct remote_message *m, int rc)
{
	m->kind = XRC_RETURN;
	m->rc = rc;
	if (m->call != CLOSE && engine_relay(e, qpn_block(m->opener), m, sizeof(*m)))
		log_debug("open_qp: who called for target 0x%06x is gone", m->qpn);
}

static int add_opener(struct xrc_target *t, const struct remote_message *m)
{
	struct opener *o = dev_zalloc(sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->number = m->opener;
	o->handle = m->handle;
	list_append(&t->openers, &o->link);
	return 0;
}

static int execute(struct xrc_target *t, struct remote_message *m)
{
	struct opener *o = find_opener(t, m);
	int rc = 0;

	if (m->call == OPEN)
		rc = add_opener(t, m);
	else if (!o)
		rc = -ENOENT;
	else if (m->call == MODIFY)
		rc = dev_qp_modify_target(t, &m->attr, (int)m->what);
	else if (m->call == CLOSE)
		drop_opener(o);
	qp_query(&t->eqp.qp, &m->attr);
	return rc;
}

static void execute_queued(struct xrc_target *t)
{
	while (!list_empty(&t->calls)) {
		struct queued *q = container_of(list_pop(&t->calls), struct queued, link);

		t->n_calls--;
		give_back(t->engine, &q->m, execute(t, &q->m));
		free(q);
	}
}

static void look_after_openers(struct xrc_target *t)
{
	const uint32_t hello = XRC_HELLO;
	struct list *pos, *next;

	for (pos = t->openers.next; pos != &t->openers; pos = next) {
		struct opener *o = container_of(pos, struct opener, link);

		next = pos->next; // NOLINT(clang-analyzer-unix.Malloc): what was freed is on no list
		if (engine_relay(t->engine, qpn_block(o->number), &hello, sizeof(hello)) ==
		    -ECONNREFUSED)
			drop_opener(o);
	}
}

static void ring(struct engine_alarm *a)
{
	struct xrc_target *t = container_of(a, struct xrc_target, watch);

	execute_queued(t);
	if (!list_empty(&t->handles))
		return;
	look_after_openers(t);
	if (list_empty(&t->openers))
		xrc_target_end(t);
	else
		engine_alarm_set(t->engine, a, engine_now_ns() + WATCH_NS);
}

void xrc_openers_init(struct xrc_target *t)
{
	list_init(&t->openers);
	list_init(&t->calls);
	t->watch.ring = ring;
}

void xrc_openers_end(struct xrc_target *t)
{
	engine_alarm_cancel(t->engine, &t->watch);
	while (!list_empty(&t->calls)) {
		struct queued *q = container_of(list_pop(&t->calls), struct queued, link);

		give_back(t->engine, &q->m, -ENOENT);
		free(q);
	}
	while (!list_empty(&t->openers))
		free(container_of(list_pop(&t->openers), struct opener, link));
}

bool xrc_openers_keep(struct xrc_target *t)
{
	if (list_empty(&t->openers))
		return false;
	if (!t->watch.due_ns)
		engine_alarm_set(t->engine, &t->watch, engine_now_ns() + WATCH_NS);
	return true;
}

void xrc_openers_event(struct xrc_target *t, enum ibv_event_type type)
{
	struct remote_message m = { .kind = XRC_EVENT, .qpn = t->eqp.qp.qpn, .what = type };
	struct list *pos;

	list_for_each(pos, &t->openers)
	{
		struct opener *o = container_of(pos, struct opener, link);

		m.handle = o->handle;
		if (engine_relay(t->engine, qpn_block(o->number), &m, sizeof(m)))
			log_debug("event of target 0x%06x: an opener is gone", m.qpn);
	}
}

static void take_call(struct engine *e, struct remote_message *m)
{
	struct xrc_target *t = xrc_target_find(e, m->qpn, &m->domain);
	struct queued *q = t && t->n_calls < CALLS_QUEUED ? malloc(sizeof(*q)) : NULL;

	if (!q) {
		give_back(e, m, t ? -ENOMEM : m->call == OPEN ? -EINVAL : -ENOENT);
		return;
	}
	q->m = *m;
	list_append(&t->calls, &q->link);
	t->n_calls++;
	engine_alarm_set(e, &t->watch, engine_now_ns());
}

void xrc_remote_receive(struct engine *e, const uint8_t *data, size_t len)
{
	struct remote_message m;

	if (len != sizeof(m))
		return;
	memcpy(&m, data, sizeof(m));
	if (qpn_block(m.opener) >= QPN_BLOCKS || qpn_block(m.qpn) >= QPN_BLOCKS)
		return;
	if (m.kind == XRC_CALL)
		take_call(e, &m);
	else if (m.kind == XRC_RETURN)
		take_return(&m);
	else
		take_event(&m);
}

void xrc_remote_abandon(void)
{
	list_init(&waiters);
	list_init(&handles);
}
