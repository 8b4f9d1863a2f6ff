/* SPDX-License-Identifier: BSD-2-Clause */
/* Injected faults that aren't the fate of a packet: of queue pairs, completion queues, the link. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/engine_internal.h"

int engine_fault_open(struct engine *e, const struct fault_plan *plan)
{
	/* Whoever left the setting in a script shall not hunt for faults that he ordered. */
	log_warn("faults are injected: ROCELINK_FAULT is set");
	e->stages = calloc(SHM_LINKS_MAX, sizeof(*e->stages));
	if (!e->stages || fault_create(&e->fault, plan, engine_now_ns()))
		return -ENOMEM;
	fault_set_ring(e->fault, lanes_put, e);
	return 0;
}

void engine_fault_close(struct engine *e)
{
	if (e->fault) {
		fault_send_held(e->fault);
		port_send(e->port, fault_outbox(e->fault));
		lanes_publish(e);
	}
	fault_destroy(e->fault);
	e->fault = NULL;
	for (unsigned i = 0; e->stages && i < SHM_LINKS_MAX; i++)
		outbox_destroy(&e->stages[i]);
	free(e->stages);
	e->stages = NULL;
}

void engine_fault_packet(struct engine *e, struct engine_qp *eqp, const struct packet *pkt)
{
	struct qp *qp = &eqp->qp;

	/* A fault that nothing asked for within this packet doesn't wait for another. */
	qp->resp.starved = false;
	if (fault_device_fatal(e->fault)) {
		log_info("fault injection: the device is in the fatal state");
		atomic_store(&e->dead, true);
		atomic_store(&e->died, true);
		engine_thread_wake(e);
		return;
	}
	if (fault_qp_error(e->fault)) {
		log_info("fault injection: queue pair 0x%06x fails", qp->qpn);
		qp_fatal(qp, IBV_EVENT_QP_FATAL);
		return;
	}
	if (qp->cfg.type == IBV_QPT_RC && pkt->op->flags & OPF_RECV_WR && !qp->resp.recv_taken)
		qp->resp.starved = fault_rnr(e->fault);
}

bool engine_is_dead(const struct engine *e)
{
	return atomic_load_explicit(&e->dead, memory_order_relaxed);
}

/* The device's event comes first, then those of its queue pairs. */
void engine_fault_die(struct engine *e)
{
	pthread_mutex_lock(&e->observers_lock);
	for (struct engine_observer *o = e->observers; o; o = o->next)
		o->device_fatal(o);
	pthread_mutex_unlock(&e->observers_lock);
	engine_lock(e);
	for (uint32_t i = 0; i < e->qps.n_owned * QPNS_PER_BLOCK; i++) {
		uint32_t block = e->qps.owned[i / QPNS_PER_BLOCK];
		struct engine_qp *eqp = e->qps.blocks[block][i % QPNS_PER_BLOCK];

		if (!eqp || atomic_load(&eqp->qp.state) == IBV_QPS_RESET)
			continue;
		qp_fatal(&eqp->qp, IBV_EVENT_QP_FATAL);
		engine_make_ready(e, eqp);
	}
	engine_unlock(e);
}

bool engine_fault_cq_overrun(struct engine *e)
{
	return e->fault && fault_cq_overrun(e->fault);
}

bool engine_fault_link(struct engine *e)
{
	bool down = fault_link_down(e->fault, e->now_ns);

	if (atomic_exchange(&e->link_down, down) == down)
		return false;
	atomic_store(&e->link_changed, true);
	return true;
}

size_t engine_fault_report(const struct engine *e, char *text, size_t cap, size_t at)
{
	static const char *const names[] = { [FAULT_OUT] = "out", [FAULT_IN] = "in" };

	for (int d = 0; d < FAULT_DIRECTIONS; d++) {
		const struct fault_stats *s = fault_stats(e->fault, (enum fault_direction)d);
		const struct {
			const char *name;
			uint64_t value;
		} lines[] = {
			{ "packets", s->seen },	       { "lost", s->lost },
			{ "reordered", s->reordered }, { "duplicated", s->duplicated },
			{ "corrupted", s->corrupted }, { "delayed", s->delayed },
			{ "link_down", s->link_down }, { "overflow", s->overflow },
		};

		for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
			char name[64];

			snprintf(name, sizeof(name), "fault_%s_%s", names[d], lines[i].name);
			at = engine_report_line(text, cap, at, name, lines[i].value);
		}
	}
	return at;
}
