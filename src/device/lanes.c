/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which way a queue pair's packets take: the port's sockets (the engine's outbox), or the lane of a
 * same-host link (the outbox of its ring). A connected QP is attached to a lane on its way to RTR,
 * before its first packet, and stays with it; a UD QP chooses for each datagram.
 *
 * A QP whose lane is full, or not ready yet, is parked: it is not on the ready list, but counts as
 * ready, until the lane has room. Everything here runs under the engine lock.
 */
#include <string.h>

#include "base/log.h"
#include "device/engine_internal.h"

#define LOCAL_WINDOW 128 /* packets; the ring bounds the bytes */

static void use_sockets(struct engine *e, struct engine_qp *eqp)
{
	struct path flow = engine_peer_flow(eqp);

	port_flow_get(e->port, &flow);
	eqp->has_flow = true;
}

static void let_go(struct engine_qp *eqp)
{
	shm_release(eqp->link);
	eqp->link = NULL;
}

void lanes_attach(struct engine *e, struct engine_qp *eqp)
{
	struct qp *qp = &eqp->qp;
	struct shm_link *link = NULL;
	/* Later than that, messages are on their way that were cut for the other path. */
	bool early = qp->local_mtu || atomic_load(&qp->state) == IBV_QPS_RTR;

	if (early && qp->path.local)
		shm_find(e->port, qpn_block(qp->attr.dest_qp_num), engine_now_ns(), &link);
	if (!link) {
		if (qp->local_mtu)
			qp_set_local(qp, 0, 0);
		use_sockets(e, eqp);
		return;
	}
	shm_hold(link);
	eqp->link = link;
}

static bool unpark_qp(struct engine *e, const struct engine_qp *eqp)
{
	for (unsigned i = 0; e->n_parked && i < SHM_LINKS_MAX; i++) {
		struct engine_qp **link = &e->lane_parked[i];

		while (*link && *link != eqp)
			link = &(*link)->next_ready;
		if (!*link)
			continue;
		*link = eqp->next_ready;
		e->n_parked--;
		return true;
	}
	return false;
}

void lanes_remove(struct engine *e, struct engine_qp *eqp)
{
	unpark_qp(e, eqp);
}

void lanes_detach(struct engine *e, struct engine_qp *eqp)
{
	struct path flow = engine_peer_flow(eqp);

	if (eqp->has_flow)
		port_flow_put(e->port, &flow);
	eqp->has_flow = false;
	if (!eqp->link)
		return;
	let_go(eqp);
	if (unpark_qp(e, eqp)) {
		eqp->ready = false;
		engine_make_ready(e, eqp);
	}
}

/* What is sent to a peer that died goes nowhere, as on a network. */
static struct outbox *nowhere(struct engine *e)
{
	outbox_sent(&e->nowhere, e->nowhere.n_groups - e->nowhere.first_group);
	return &e->nowhere;
}

static void mark_dirty(struct engine *e, struct shm_link *link)
{
	if (e->dirty[shm_index(e->port, link)])
		return;
	e->dirty[shm_index(e->port, link)] = true;
	e->dirty_links[e->n_dirty++] = link;
}

/* What is written here meets its faults in lanes_publish(). Never more than the ring has room for. */
static struct outbox *stage(struct engine *e, struct shm_link *link, const struct outbox *ring)
{
	struct outbox *box = &e->stages[shm_index(e->port, link)];

	if (!box->buf && outbox_init(box, RING_DATA))
		return nowhere(e);
	box->no_icrc = true;
	if (outbox_empty(box))
		box->capacity = ring->capacity;
	return box;
}

static struct outbox *ready_lane(struct engine *e, struct shm_link *link)
{
	struct outbox *box = shm_outbox(e->port, link);

	if (!box && shm_state(e->port, link, e->now_ns) == SHM_DEAD)
		return nowhere(e);
	if (!box) {
		e->stuck = link;
		return NULL;
	}
	mark_dirty(e, link);
	return e->fault ? stage(e, link, box) : box;
}

/* The link is looked up anew: the packet may have been held for long. */
bool lanes_put(void *arg, const struct path *path, const uint8_t *data, uint32_t len)
{
	struct engine *e = arg;
	uint32_t qpn = (uint32_t)data[5] << 16 | (uint32_t)data[6] << 8 | data[7];
	struct outbox *box = NULL;
	struct shm_link *link;
	uint8_t *packet;

	switch (shm_find(e->port, qpn_block(qpn), e->now_ns, &link)) {
	case SHM_PENDING:
		return false;
	case SHM_NONE:
	case SHM_DEAD:
		return true;
	case SHM_READY:
		box = shm_outbox(e->port, link);
		break;
	}
	packet = box ? outbox_reserve(box, path, len) : NULL;
	if (!packet && box) {
		shm_publish(e->port, link);
		box = shm_outbox(e->port, link);
		packet = box ? outbox_reserve(box, path, len) : NULL;
	}
	if (!packet)
		return shm_state(e->port, link, e->now_ns) != SHM_READY;
	memcpy(packet, data, len);
	outbox_commit(box, len);
	mark_dirty(e, link);
	return true;
}

struct outbox *lanes_outbox(struct engine *e, struct engine_qp *eqp)
{
	if (!eqp->link)
		return &e->outbox;
	switch (shm_state(e->port, eqp->link, e->now_ns)) {
	case SHM_NONE:
		let_go(eqp);
		use_sockets(e, eqp);
		return &e->outbox;
	case SHM_PENDING:
		e->stuck = eqp->link;
		return NULL;
	case SHM_DEAD:
		return nowhere(e);
	case SHM_READY:
		break;
	}
	if (!eqp->qp.local_mtu)
		qp_set_local(&eqp->qp, RING_MTU, LOCAL_WINDOW);
	return ready_lane(e, eqp->link);
}

struct outbox *lanes_choose(void *arg, const struct path *path, uint32_t dest_qpn)
{
	struct engine *e = arg;
	struct shm_link *link;

	if (!path->local)
		return &e->outbox;
	switch (shm_find(e->port, qpn_block(dest_qpn), e->now_ns, &link)) {
	case SHM_NONE:
		break;
	case SHM_PENDING:
		e->stuck = link;
		return NULL;
	case SHM_DEAD:
		return nowhere(e);
	case SHM_READY:
		return ready_lane(e, link);
	}
	return &e->outbox;
}

void lanes_publish(struct engine *e)
{
	while (e->n_dirty) {
		struct shm_link *link = e->dirty_links[--e->n_dirty];

		e->dirty[shm_index(e->port, link)] = false;
		if (e->fault && e->stages[shm_index(e->port, link)].buf)
			fault_send(e->fault, &e->stages[shm_index(e->port, link)], e->now_ns);
		if (shm_state(e->port, link, e->now_ns) == SHM_READY)
			shm_publish(e->port, link);
	}
}

bool lanes_park(struct engine *e, struct engine_qp *eqp)
{
	unsigned i;

	if (!e->stuck)
		return false;
	i = shm_index(e->port, e->stuck);
	e->stuck = NULL;
	if (eqp->ready)
		return true;
	eqp->ready = true;
	eqp->next_ready = e->lane_parked[i];
	e->lane_parked[i] = eqp;
	e->n_parked++;
	return true;
}

void lanes_unpark(struct engine *e)
{
	bool changed = shm_changed(e->port);

	for (unsigned i = 0; e->n_parked && i < SHM_LINKS_MAX; i++) {
		struct engine_qp *eqp = e->lane_parked[i], *next;

		if (!eqp || (!changed && !shm_has_room(e->port, i)))
			continue;
		e->lane_parked[i] = NULL;
		/* The peer is emptying its ring: there will be room again in a moment. */
		e->busy_ns = e->now_ns;
		for (; eqp; eqp = next) {
			next = eqp->next_ready;
			e->n_parked--;
			eqp->ready = false;
			engine_make_ready(e, eqp);
		}
	}
}

bool lanes_sleep(struct engine *e)
{
	bool full[SHM_LINKS_MAX];

	for (unsigned i = 0; i < SHM_LINKS_MAX; i++)
		full[i] = e->lane_parked[i];
	return shm_sleep(e->port, full);
}
