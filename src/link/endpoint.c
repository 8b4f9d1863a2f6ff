/* SPDX-License-Identifier: BSD-2-Clause */
/* The usual verbs objects in one call, and waiting for a completion. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/units.h"
#include "link/conn.h"
#include "link/device.h"
#include "link/fail.h"

enum { DEFAULT_DEPTH = 64 };

struct endpoint {
	struct rocelink_endpoint e; /* first: the program has a pointer to it */
	bool own_context, own_cq;
};

void rocelink_endpoint_close(struct rocelink_endpoint *endpoint)
{
	struct endpoint *own = (struct endpoint *)endpoint;

	if (!own)
		return;
	if (own->e.qp)
		ibv_destroy_qp(own->e.qp);
	if (own->e.cq && own->own_cq)
		ibv_destroy_cq(own->e.cq);
	if (own->e.channel)
		ibv_destroy_comp_channel(own->e.channel);
	if (own->e.pd && own->own_context)
		ibv_dealloc_pd(own->e.pd);
	if (own->e.context && own->own_context)
		ibv_close_device(own->e.context);
	free(own);
}

/* The device by which the connection's peer is reached, by its GIDs if they are known already. */
static struct ibv_context *open_for_conn(const struct rocelink_conn *conn,
					 struct rocelink_error *err)
{
	const struct message *hello = &conn->peer_hello;
	struct rocelink_error why;
	char host[INET6_ADDRSTRLEN + 20];
	struct address a = { 0 };

	if (conn->config->has_gid)
		return link_device_open_named(conn->config->gid.device, err);
	for (unsigned i = 0; i < hello->gid_count; i++) {
		struct ibv_context *context;

		memcpy(a.ip, hello->gids[i].gid, sizeof(a.ip));
		address_text(&a, host, sizeof(host));
		if (address_is_link_local(&a) && conn->line.peer.ss_family == AF_INET6)
			snprintf(host + strlen(host), sizeof(host) - strlen(host), "%%%u",
				 ((const struct sockaddr_in6 *)&conn->line.peer)->sin6_scope_id);
		context = rocelink_device_open(host, NULL, &why);
		if (context)
			return context;
	}
	if (conn->has_rdma_address)
		a = conn->rdma_address;
	else if (!address_from_sockaddr(&a, (const struct sockaddr *)&conn->line.peer))
		return rocelink_device_open(NULL, NULL, err);
	address_text(&a, host, sizeof(host));
	if (a.scope)
		snprintf(host + strlen(host), sizeof(host) - strlen(host), "%%%u", a.scope);
	return rocelink_device_open(host, NULL, err);
}

static struct ibv_context *open_context(const struct rocelink_endpoint_options *o,
					struct rocelink_error *err)
{
	if (o->device)
		return link_device_open_named(o->device, err);
	if (o->conn)
		return open_for_conn(o->conn, err);
	return rocelink_device_open(o->host, NULL, err);
}

static int made(const void *object, const char *call, struct rocelink_error *err)
{
	return object ? ROCELINK_OK
		      : link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_NONE, errno, "%s", call);
}

static int make_queue_pair(struct endpoint *own, const struct rocelink_endpoint_options *o,
			   struct rocelink_error *err)
{
	/* An XRC initiator receives nothing. */
	bool receives = !o->srq && o->type != IBV_QPT_XRC_SEND;
	struct ibv_qp_init_attr attr = {
		.send_cq = own->e.cq,
		.recv_cq = own->e.cq,
		.srq = o->srq,
		.cap = {
			.max_send_wr = o->send_depth,
			.max_recv_wr = receives ? o->recv_depth : 0,
			.max_send_sge = o->send_sge ? o->send_sge : 1,
			.max_recv_sge = o->recv_sge ? o->recv_sge : 1,
			.max_inline_data = o->inline_bytes,
		},
		.qp_type = o->type ? o->type : IBV_QPT_RC,
		.sq_sig_all = o->sq_sig_all,
	};

	own->e.qp = ibv_create_qp(own->e.pd, &attr);
	if (own->e.qp)
		return ROCELINK_OK;
	return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_NONE, errno,
			 "ibv_create_qp with send_depth %u, recv_depth %u, send_sge %u, recv_sge "
			 "%u, inline_bytes %u",
			 o->send_depth, attr.cap.max_recv_wr, attr.cap.max_send_sge,
			 attr.cap.max_recv_sge, o->inline_bytes);
}

static int make_all(struct endpoint *own, struct rocelink_endpoint_options *o,
		    struct rocelink_error *err)
{
	int rc = ROCELINK_OK;

	o->send_depth = o->send_depth ? o->send_depth : DEFAULT_DEPTH;
	o->recv_depth = o->recv_depth ? o->recv_depth : DEFAULT_DEPTH;
	if (o->shared) {
		own->e.context = o->shared->context;
		own->e.pd = o->shared->pd;
	} else {
		own->own_context = true;
		own->e.context = open_context(o, err);
		if (!own->e.context)
			return ROCELINK_NO_DEVICE;
		own->e.pd = ibv_alloc_pd(own->e.context);
		rc = made(own->e.pd, "ibv_alloc_pd", err);
	}
	if (!rc && o->events) {
		own->e.channel = ibv_create_comp_channel(own->e.context);
		rc = made(own->e.channel, "ibv_create_comp_channel", err);
	}
	if (rc)
		return rc;
	own->own_cq = !o->cq;
	own->e.cq = o->cq ? o->cq
			  : ibv_create_cq(own->e.context, (int)(o->send_depth + o->recv_depth),
					  NULL, own->e.channel, 0);
	if (!own->e.cq)
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_NONE, errno,
				 "ibv_create_cq with send_depth %u + recv_depth %u entries",
				 o->send_depth, o->recv_depth);
	return make_queue_pair(own, o, err);
}

struct rocelink_endpoint *rocelink_endpoint_open(const struct rocelink_endpoint_options *options,
						 struct rocelink_error *err)
{
	struct rocelink_endpoint_options o = { 0 };
	struct endpoint *own;

	if (options) {
		if (link_check_size(options->size, sizeof(o), "rocelink_endpoint_options", err))
			return NULL;
		link_copy_options(&o, sizeof(o), options, options->size);
	}
	if (o.type == IBV_QPT_XRC_RECV) {
		link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			  "an XRC target belongs to an XRC domain: make it with ibv_create_qp_ex, "
			  "on the context of an endpoint of type IBV_QPT_XRC_SEND");
		return NULL;
	}
	own = calloc(1, sizeof(*own));
	if (!own) {
		link_no_memory(err);
		return NULL;
	}
	if (make_all(own, &o, err)) {
		rocelink_endpoint_close(&own->e);
		return NULL;
	}
	return &own->e;
}

/* What a bad completion usually means. */
static const char *advice(enum ibv_wc_status status)
{
	switch ((int)status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "the peer didn't acknowledge: it is gone, its queue pair isn't in RTR or "
		       "RTS, or UDP port 4791 is "
		       "dropped on the way";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer had no receive posted, for too long: post receives before READY "
		       "or a sync";
	case IBV_WC_REM_ACCESS_ERR:
		return "R_Key, address, length or access rights don't fit the peer's region, or "
		       "its queue pair doesn't "
		       "allow this";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the peer can't take this request: its receive buffer is too small, or the "
		       "path MTUs differ";
	case IBV_WC_REM_OP_ERR:
		return "the peer failed while carrying it out, for example a receive buffer that "
		       "is not registered";
	case IBV_WC_LOC_PROT_ERR:
		return "a local buffer isn't within its mr, the L_Key is of another protection "
		       "domain, or LOCAL_WRITE is "
		       "missing";
	case IBV_WC_LOC_LEN_ERR:
		return "the message is longer than the receive buffer (for UD: 40 bytes more are "
		       "needed), or than the MTU";
	case IBV_WC_LOC_QP_OP_ERR:
		return "the queue pair can't do this operation, or it is beyond max_rd_atomic or "
		       "the work request is wrong";
	case IBV_WC_WR_FLUSH_ERR:
		return "the queue pair went to the error state before: the first bad completion "
		       "has the cause";
	default:
		return "see ibv_poll_cq(3)";
	}
}

static int judge(const struct ibv_wc *wc, struct rocelink_error *err)
{
	if (wc->status == IBV_WC_SUCCESS)
		return ROCELINK_OK;
	return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_OPEN, 0,
			 "work request %llu on QPN 0x%06x completed with \"%s\" (%d): %s",
			 (unsigned long long)wc->wr_id, wc->qp_num, ibv_wc_status_str(wc->status),
			 wc->status, advice(wc->status));
}

/* Armed and still nothing there: sleep until the channel tells, or the time is over. */
static int sleep_on(struct ibv_cq *cq, struct ibv_comp_channel *channel, uint64_t until,
		    struct rocelink_error *err)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	uint64_t now = link_now();
	struct timespec ts;
	struct ibv_cq *event_cq;
	void *context;

	if (now >= until)
		return ROCELINK_OK;
	ts = (struct timespec){ .tv_sec = (time_t)((until - now) / NS_PER_SEC),
				.tv_nsec = (long)((until - now) % NS_PER_SEC) };
	if (ppoll(&p, 1, until == TIME_NEVER ? NULL : &ts, NULL) <= 0)
		return ROCELINK_OK;
	if (ibv_get_cq_event(channel, &event_cq, &context))
		return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_OPEN, errno,
				 "ibv_get_cq_event");
	ibv_ack_cq_events(event_cq, 1);
	if (event_cq != cq)
		return link_fail(
			err, ROCELINK_INVALID, ROCELINK_PHASE_OPEN, 0,
			"the completion channel belongs to several queues; this call is for one");
	return ROCELINK_OK;
}

int rocelink_wait_completion(struct ibv_cq *cq, struct ibv_comp_channel *channel,
			     uint64_t timeout_us, struct ibv_wc *wc, struct rocelink_error *err)
{
	uint64_t start = link_now(), ns = config_ns(timeout_us);
	uint64_t until = ns > TIME_NEVER - start ? TIME_NEVER : start + ns;
	bool armed = false;

	for (unsigned spins = 0;; spins++) {
		int n = ibv_poll_cq(cq, 1, wc), rc;

		if (n > 0)
			return judge(wc, err);
		if (n < 0)
			return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_OPEN, 0,
					 "ibv_poll_cq: %d", n);
		if (link_now() >= until)
			return link_fail(err, ROCELINK_TIMEOUT, ROCELINK_PHASE_OPEN, 0,
					 "no completion within %.3f s",
					 (double)ns / (double)NS_PER_SEC);
		if (channel && armed) {
			rc = sleep_on(cq, channel, until, err);
			if (rc)
				return rc;
			armed = false;
		} else if (channel) {
			/* Look once more after arming: a completion may have come in between. */
			rc = ibv_req_notify_cq(cq, 0);
			if (rc)
				return link_fail(err, ROCELINK_VERBS, ROCELINK_PHASE_OPEN, rc,
						 "ibv_req_notify_cq");
			armed = true;
		} else if (spins % 1024 == 1023) {
			sched_yield();
		}
	}
}
