/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/qp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/units.h"
#include "link/compat.h"
#include "link/fail.h"

enum {
	UINT24_MAX = 0xffffff,
	DEFAULT_DEPTH = 16,
	DEFAULT_RNR_US = 120,
	NO_DEPTH = ROCELINK_NO_ATOMIC_DEPTH,
};

/* The attributes of each transition (IBA 11.2.4.2, table 91 and following). */
#define INIT_CONNECTED (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_CONNECTED  (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RTR_RESPONDER  (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_ANY	       (IBV_QP_STATE | IBV_QP_SQ_PSN)
#define RTS_REQUESTER \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define REMOTE_ALL (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* clang-format off */
static const struct service {
	enum ibv_qp_type verbs;
	unsigned access; /* remote rights a queue pair of this type can grant */
	bool depths;
	int init, rtr, rts;
} services[] = {
	[WIRE_RC]      = { IBV_QPT_RC,       REMOTE_ALL, true,  INIT_CONNECTED, RTR_CONNECTED | RTR_RESPONDER, RTS_ANY | RTS_REQUESTER },
	[WIRE_UC]      = { IBV_QPT_UC,       IBV_ACCESS_REMOTE_WRITE, false, INIT_CONNECTED, RTR_CONNECTED, RTS_ANY },
	[WIRE_UD]      = { IBV_QPT_UD,       0,          false, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, IBV_QP_STATE, RTS_ANY },
	[WIRE_XRC_INI] = { IBV_QPT_XRC_SEND, 0,          true,  INIT_CONNECTED, RTR_CONNECTED, RTS_ANY | RTS_REQUESTER },
	[WIRE_XRC_TGT] = { IBV_QPT_XRC_RECV, REMOTE_ALL, true,  INIT_CONNECTED, RTR_CONNECTED | RTR_RESPONDER, RTS_ANY | IBV_QP_TIMEOUT },
};
/* clang-format on */

static const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < ARRAY_LEN(names) ? names[state] : "unknown";
}

static int invalid_option(struct rocelink_error *err, const char *name, unsigned long value,
			  const char *valid)
{
	return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			 "rocelink_qp_options.%s is %lu: it must be %s", name, value, valid);
}

static int check_options(const struct rocelink_qp_options *o, struct rocelink_error *err)
{
	if (o->path_mtu && !rocelink_mtu_code(o->path_mtu))
		return invalid_option(err, "path_mtu", o->path_mtu, "256, 512, 1024, 2048 or 4096");
	if (o->min_path_mtu && !rocelink_mtu_code(o->min_path_mtu))
		return invalid_option(err, "min_path_mtu", o->min_path_mtu,
				      "256, 512, 1024, 2048 or 4096");
	if (o->psn && !(o->psn & 0x80000000u))
		return invalid_option(err, "psn", o->psn, "ROCELINK_PSN(n), or 0 for a random one");
	if ((o->psn & 0x7fffffffu) > UINT24_MAX)
		return invalid_option(err, "psn", o->psn & 0x7fffffffu, "a number of 24 bits");
	if (o->retry_count > 7 && o->retry_count != ROCELINK_NO_RETRY)
		return invalid_option(err, "retry_count", o->retry_count,
				      "1 to 7 (a field of 3 bits), or ROCELINK_NO_RETRY");
	if (o->rnr_retry_count > 7 && o->rnr_retry_count != ROCELINK_NO_RETRY)
		return invalid_option(err, "rnr_retry_count", o->rnr_retry_count,
				      "1 to 7 (a field of 3 bits), or ROCELINK_NO_RETRY");
	if (o->service_level > 15)
		return invalid_option(err, "service_level", o->service_level, "0 to 15");
	if (o->flow_label > 0xfffff)
		return invalid_option(err, "flow_label", o->flow_label, "a number of 20 bits");
	if (o->initiator_depth > 255)
		return invalid_option(err, "initiator_depth", o->initiator_depth, "at most 254");
	if (o->responder_depth > 255)
		return invalid_option(err, "responder_depth", o->responder_depth, "at most 254");
	return ROCELINK_OK;
}

static uint8_t wire_type(enum ibv_qp_type type)
{
	for (unsigned i = WIRE_RC; i <= WIRE_XRC_TGT; i++)
		if (services[i].verbs == type)
			return (uint8_t)i;
	return 0;
}

int link_qp_take(struct link_qp *q, struct ibv_qp *qp, const struct rocelink_qp_options *options,
		 unsigned index, struct rocelink_error *err)
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	int rc;

	memset(q, 0, sizeof(*q));
	q->qp = qp;
	q->index = index;
	if (options)
		link_copy_options(&q->options, sizeof(q->options), options, options->size);
	rc = check_options(&q->options, err);
	if (rc)
		return rc;
	q->values.type = wire_type(qp->qp_type);
	if (!q->values.type)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "queue pair %u has type %d: only RC, UC, UD and XRC can be linked",
				 index, qp->qp_type);
	rc = ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY, &init_attr);
	if (rc)
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_NONE, rc,
				 "ibv_query_qp of queue pair %u (QPN 0x%06x)", index, qp->qp_num);
	if (attr.qp_state != IBV_QPS_RESET && attr.qp_state != IBV_QPS_INIT)
		return link_fail(
			err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			"queue pair %u (QPN 0x%06x) is in state %s: it must be in RESET or INIT; "
			"modify it to RESET first if it was used before",
			index, qp->qp_num, state_name(attr.qp_state));
	q->was_reset = attr.qp_state == IBV_QPS_RESET;
	q->in_init = !q->was_reset;
	q->port = q->in_init ? attr.port_num : 0;
	if (q->in_init && q->values.type == WIRE_UD && !q->options.qkey)
		q->options.qkey = attr.qkey;
	return ROCELINK_OK;
}

/* What usually is behind an errno of ibv_modify_qp. */
static const char *hint(enum ibv_qp_state to, int error)
{
	if (to == IBV_QPS_INIT && error == EINVAL)
		return "; port, P_Key index or access flags don't exist on this device";
	if (to == IBV_QPS_RTR && error == EINVAL)
		return "; usual causes: the GID of that index is gone or of another family than "
		       "dgid, "
		       "path_mtu is above the port's active MTU, or depths above the device's";
	if (to == IBV_QPS_RTR && (error == ENETUNREACH || error == EHOSTUNREACH))
		return "; this host has no route to dgid: check the peer's address with `ip route "
		       "get`";
	if (to == IBV_QPS_RTR && (error == ETIMEDOUT || error == EAGAIN))
		return "; dgid didn't answer ARP or neighbour discovery: is it on this network?";
	if (to == IBV_QPS_RTS && error == EINVAL)
		return "; timeout, retry counts or max_rd_atomic are beyond what the device has";
	if (error == EOPNOTSUPP)
		return "; the device doesn't have this";
	return "";
}

static int modify(struct link_qp *q, struct ibv_qp_attr *attr, int mask, enum ibv_qp_state from,
		  const struct tracer *t, struct rocelink_error *err)
{
	static const enum rocelink_phase phases[] = {
		[IBV_QPS_INIT] = ROCELINK_PHASE_INIT,
		[IBV_QPS_RTR] = ROCELINK_PHASE_RTR,
		[IBV_QPS_RTS] = ROCELINK_PHASE_RTS,
	};
	struct rocelink_trace trace = {
		.qp_index = q->index,
		.qp = q->qp,
		.from = from,
		.to = attr->qp_state,
		.attr = attr,
		.attr_mask = mask,
	};
	enum ibv_qp_state to = attr->qp_state;
	char text[160], attrs[700];

	trace.result = ibv_modify_qp(q->qp, attr, mask);
	snprintf(text, sizeof(text), "ibv_modify_qp QPN 0x%06x %s -> %s%s%s", q->qp->qp_num,
		 state_name(from), state_name(to), trace.result ? " FAILED: " : "",
		 trace.result ? strerrordesc_np(trace.result) : "");
	tracer_modified(t, &trace, text);
	if (!trace.result)
		return ROCELINK_OK;
	rocelink_attr_text(attr, mask & ~IBV_QP_STATE, attrs, sizeof(attrs));
	for (char *p = attrs; (p = strchr(p, '\n'));)
		*p = ';';
	return link_fail(
		err, ROCELINK_VERBS, phases[to], 0,
		"queue pair %u (QPN 0x%06x, %s) refused %s -> %s: %s (errno %d)%s. Written: %s",
		q->index, q->qp->qp_num, wire_qp_type_name(q->values.type), state_name(from),
		state_name(to), strerrordesc_np(trace.result) ?: "unknown error", trace.result,
		hint(to, trace.result), attrs);
}

static uint32_t random32(void)
{
	uint32_t value = 0;

	while (getrandom(&value, sizeof(value), 0) != sizeof(value))
		;
	return value;
}

static uint8_t depth(unsigned wanted, int device_max, unsigned *too_much)
{
	unsigned max = device_max < 0 ? 0 : device_max > 254 ? 254 : (unsigned)device_max;

	if (wanted == NO_DEPTH)
		return 0;
	if (wanted > max)
		*too_much = max;
	if (wanted)
		return (uint8_t)(wanted < max ? wanted : max);
	return (uint8_t)(max < DEFAULT_DEPTH ? max : DEFAULT_DEPTH);
}

static int fill_depths(struct link_qp *q, const struct ibv_device_attr *dev,
		       struct rocelink_error *err)
{
	const struct rocelink_qp_options *o = &q->options;
	unsigned none = UINT32_MAX, too_much = none;

	q->values.initiator_depth = depth(o->initiator_depth, dev->max_qp_init_rd_atom, &too_much);
	if (too_much != none)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_INIT, 0,
				 "rocelink_qp_options.initiator_depth is %u: the device has %u",
				 o->initiator_depth, too_much);
	q->values.responder_depth = depth(o->responder_depth, dev->max_qp_rd_atom, &too_much);
	if (too_much != none)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_INIT, 0,
				 "rocelink_qp_options.responder_depth is %u: the device has %u",
				 o->responder_depth, too_much);
	return ROCELINK_OK;
}

static uint8_t retry_value(uint8_t option)
{
	return option == ROCELINK_NO_RETRY ? 0 : option;
}

static void fill_wishes(struct link_qp *q)
{
	const struct rocelink_qp_options *o = &q->options;
	struct qp_values *v = &q->values;

	v->wishes = (uint8_t)((o->ack_timeout_us ? WISH_TIMEOUT : 0) |
			      (o->retry_count ? WISH_RETRY : 0) |
			      (o->rnr_retry_count ? WISH_RNR_RETRY : 0) |
			      (o->hop_limit ? WISH_HOP_LIMIT : 0) |
			      (o->traffic_class ? WISH_TRAFFIC_CLASS : 0) |
			      (o->service_level ? WISH_SERVICE_LEVEL : 0));
	v->timeout = o->ack_timeout_us ? rocelink_ack_timeout_code(o->ack_timeout_us) : 0;
	v->retry = retry_value(o->retry_count);
	v->rnr_retry = retry_value(o->rnr_retry_count);
	v->hop_limit = o->hop_limit;
	v->traffic_class = o->traffic_class;
	v->service_level = o->service_level;
}

static void fill_mtu(struct link_qp *q, const struct ibv_port_attr *port,
		     enum rocelink_compat compat)
{
	enum ibv_mtu most = rocelink_mtu_code(q->options.path_mtu);

	/* The stock programs exchange no MTU: 1024 is their default. A UD packet's length is bounded
	 * by the port alone. */
	if (!most && compat && q->values.type != WIRE_UD)
		most = IBV_MTU_1024;
	q->values.mtu = (uint8_t)(most && most < port->active_mtu ? most : port->active_mtu);
}

static int fill_srqn(struct link_qp *q, struct rocelink_error *err)
{
	if (q->values.type != WIRE_XRC_TGT || !q->options.srq)
		return ROCELINK_OK;
	if (ibv_get_srq_num(q->options.srq, &q->values.srqn))
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_INIT, errno,
				 "ibv_get_srq_num of queue pair %u's SRQ: is it an XRC SRQ?",
				 q->index);
	return ROCELINK_OK;
}

static int fill_values(struct link_qp *q, uint8_t port_num, enum rocelink_compat compat,
		       unsigned *access, struct rocelink_error *err)
{
	const struct service *service = &services[q->values.type];
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	int rc;

	rc = ibv_query_port(q->qp->context, port_num, &port);
	if (rc)
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_INIT, rc,
				 "ibv_query_port of port %u", port_num);
	rc = ibv_query_device(q->qp->context, &dev);
	if (rc)
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_INIT, rc, "ibv_query_device");
	fill_mtu(q, &port, compat);
	if (service->depths)
		rc = fill_depths(q, &dev, err);
	if (!rc)
		rc = fill_srqn(q, err);
	if (rc)
		return rc;
	fill_wishes(q);
	q->values.qpn = q->qp->qp_num;
	q->values.psn = (q->options.psn ? q->options.psn : random32()) & UINT24_MAX;
	q->values.ops = (uint8_t)q->options.ops;
	if (q->values.type == WIRE_UD) {
		q->values.qkey = q->options.qkey ? q->options.qkey : random32() & 0x7fffffff;
		if (compat)
			q->values.qkey = COMPAT_QKEY;
	}
	*access = q->options.access ? q->options.access & ~ROCELINK_ACCESS_NONE : service->access;
	if (!q->options.access && dev.atomic_cap == IBV_ATOMIC_NONE)
		*access &= ~(unsigned)IBV_ACCESS_REMOTE_ATOMIC;
	return ROCELINK_OK;
}

int link_qp_init(struct link_qp *q, const struct rocelink_gid *gid, enum rocelink_compat compat,
		 const struct tracer *t, struct rocelink_error *err)
{
	unsigned access = 0;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = q->options.pkey_index,
		.port_num = gid->port,
	};
	int rc;

	if (q->port && q->port != gid->port)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_INIT, 0,
				 "queue pair %u is in INIT on port %u, the chosen GID on port %u: "
				 "leave it in "
				 "RESET or choose a GID of its port",
				 q->index, q->port, gid->port);
	rc = fill_values(q, gid->port, compat, &access, err);
	if (rc || q->in_init)
		return rc;
	attr.qp_access_flags = access;
	attr.qkey = q->values.qkey;
	rc = modify(q, &attr, services[q->values.type].init, IBV_QPS_RESET, t, err);
	q->in_init = rc == ROCELINK_OK;
	return rc;
}

/* RoCE routes by GID alone (IBA annex A17): without a GRH there is no address. */
static void fill_ah(struct ibv_ah_attr *ah, const struct link_qp *q, const struct rocelink_gid *gid,
		    const struct gid_value *remote)
{
	bool roce = gid->type != ROCELINK_GID_IB;

	* ah = (struct ibv_ah_attr){
		.dlid = roce ? 0 : remote->lid,
		.sl = q->agreed.service_level,
		.port_num = gid->port,
		.is_global = roce || memcmp(remote->gid, gid->gid.raw, 8) != 0,
		.grh = {
			.sgid_index = (uint8_t)gid->index,
			.hop_limit = q->agreed.hop_limit,
			.traffic_class = q->agreed.traffic_class,
			.flow_label = q->options.flow_label,
		},
	};
	memcpy(ah->grh.dgid.raw, remote->gid, sizeof(ah->grh.dgid.raw));
}

static int make_ah(struct link_qp *q, struct ibv_ah_attr *attr, const struct tracer *t,
		   struct rocelink_error *err)
{
	struct ibv_qp_attr whole = { .ah_attr = *attr };
	char text[300];

	rocelink_attr_text(&whole, IBV_QP_AV, text, sizeof(text));
	q->ah = ibv_create_ah(q->qp->pd, attr);
	if (!q->ah)
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_RTS, errno,
				 "ibv_create_ah with %s", text);
	tracer_say(t, ROCELINK_STEP_AH_CREATED, "ibv_create_ah %s; remote QPN 0x%06x, Q_Key 0x%08x",
		   text, q->agreed.remote_qpn, q->agreed.remote_qkey);
	return ROCELINK_OK;
}

uint8_t link_qp_min_rnr_code(const struct link_qp *q)
{
	uint64_t us = q->options.min_rnr_delay_us;

	return rocelink_rnr_delay_code(us ? us : DEFAULT_RNR_US);
}

int link_qp_connect(struct link_qp *q, const struct rocelink_gid *gid,
		    const struct gid_value *remote, const struct tracer *t,
		    struct rocelink_error *err)
{
	const struct service *service = &services[q->values.type];
	const struct agreed *a = &q->agreed;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)a->mtu,
		.dest_qp_num = a->remote_qpn,
		.rq_psn = a->remote_psn,
		.max_dest_rd_atomic = a->responder_depth,
		.min_rnr_timer = link_qp_min_rnr_code(q),
		.sq_psn = a->psn,
		.timeout = a->timeout,
		.retry_cnt = a->retry,
		.rnr_retry = a->rnr_retry,
		.max_rd_atomic = a->initiator_depth,
	};
	int rc;

	fill_ah(&attr.ah_attr, q, gid, remote);
	rc = modify(q, &attr, service->rtr, IBV_QPS_INIT, t, err);
	if (rc)
		return rc;
	attr.qp_state = IBV_QPS_RTS;
	rc = modify(q, &attr, service->rts, IBV_QPS_RTR, t, err);
	if (rc || q->values.type != WIRE_UD)
		return rc;
	return make_ah(q, &attr.ah_attr, t, err);
}

void link_qp_undo(struct link_qp *q, bool reset)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	if (q->ah)
		ibv_destroy_ah(q->ah);
	q->ah = NULL;
	if (reset && q->was_reset && q->in_init) {
		ibv_modify_qp(q->qp, &attr, IBV_QP_STATE);
		q->in_init = false;
	}
}
