/* SPDX-License-Identifier: BSD-2-Clause */
/* From a host name to linked queue pairs with receives posted: what each program that uses
 * librocelink does, plus the choices the command line offers. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/pingpong.h"

int pp_fail(struct rocelink_error *err, enum rocelink_code code, const char *format, ...)
{
	va_list args;

	memset(err, 0, sizeof(*err));
	err->code = code;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return (int)code;
}

static struct ibv_context *open_named(const char *name, struct rocelink_error *err)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i] && !context; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!context)
		pp_fail(err, ROCELINK_NO_DEVICE,
			"there is no device %s; `rocelink devices` lists them", name);
	return context;
}

/* -g says which GID; the device is -d's, or the one by which the peer is reached. */
static int find_gid(const struct pp_options *o, struct rocelink_gid *gid,
		    struct rocelink_error *err)
{
	struct ibv_context *context;
	int rc;

	context = o->device ? open_named(o->device, err) : rocelink_device_open(o->host, NULL, err);
	if (!context)
		return ROCELINK_NO_DEVICE;
	gid->size = sizeof(*gid);
	rc = rocelink_gid_get(context, o->ib_port, o->gid_index, gid, err);
	ibv_close_device(context);
	return rc;
}

static void fill_security(const struct pp_options *o, struct rocelink_security *s)
{
	*s = (struct rocelink_security){ .size = sizeof(*s), .secret_file = o->secret_file };
	if (o->secret_file)
		s->mode = ROCELINK_SECURITY_PSK;
	else if (o->plain || o->compat)
		s->mode = ROCELINK_SECURITY_PLAIN;
}

static void fill_options(const struct pp_options *o, struct rocelink_options *options,
			 struct rocelink_security *security)
{
	fill_security(o, security);
	*options = (struct rocelink_options){
		.size = sizeof(*options),
		.service_name = o->compat ? NULL : PP_SERVICE,
		.security = security,
		.trace = o->explain ? pp_explain_trace : NULL,
		.trace_arg = (void *)o,
		.compat = o->compat == PP_IBV	    ? ROCELINK_COMPAT_PINGPONG
			  : o->compat == PP_IBV_SRQ ? ROCELINK_COMPAT_SRQ_PINGPONG
						    : ROCELINK_COMPAT_NONE,
	};
}

static enum ibv_qp_type verbs_type(enum pp_type type)
{
	switch (type) {
	case PP_UC:
		return IBV_QPT_UC;
	case PP_UD:
		return IBV_QPT_UD;
	case PP_XRC:
		return IBV_QPT_XRC_SEND;
	case PP_RC:
	default:
		return IBV_QPT_RC;
	}
}

static unsigned wanted_ops(enum pp_op op)
{
	switch (op) {
	case PP_WRITE:
		return ROCELINK_OP_WRITE;
	case PP_READ:
		return ROCELINK_OP_READ;
	case PP_FETCH_ADD:
	case PP_CMP_SWAP:
		return ROCELINK_OP_ATOMIC;
	case PP_SEND:
	default:
		return ROCELINK_OP_SEND;
	}
}

static int open_endpoints(struct pp *pp)
{
	const struct pp_options *o = pp->o;
	struct rocelink_endpoint_options options = {
		.size = sizeof(options),
		.conn = pp->conn,
		.type = verbs_type(pp->plan.type),
		.send_depth = PP_MAX_DEPTH,
		/* The completion queue of the first serves them all. */
		.recv_depth = PP_MAX_DEPTH * (o->qps > 1 ? 8 : 1),
		.events = o->events,
	};

	if (pp->has_gid || o->device) {
		options.conn = NULL;
		options.device = pp->has_gid ? pp->gid.device : o->device;
	}
	for (pp->qps = 0; pp->qps < o->qps; pp->qps++) {
		struct rocelink_endpoint *ep = rocelink_endpoint_open(&options, &pp->err);

		if (!ep)
			return (int)pp->err.code;
		pp->ep[pp->qps] = ep;
		options.shared = pp->ep[0];
		options.cq = pp->ep[0]->cq;
		options.events = false;
	}
	return ROCELINK_OK;
}

static int add_queue_pair(struct pp *pp, unsigned i)
{
	struct rocelink_qp_options options = {
		.size = sizeof(options),
		.path_mtu = pp->o->mtu,
		.ops = wanted_ops(pp->plan.op),
	};
	int rc;

	if (pp->plan.act && !pp->client)
		options.min_rnr_delay_us = PP_DEMO_RNR_DELAY_US;
	if (pp->plan.act == PP_ACT_GIVES_UP)
		options.rnr_retry_count = PP_DEMO_RNR_RETRIES;
	rc = pp->plan.type == PP_XRC
		     ? pp_xrc_add(pp, &options)
		     : rocelink_conn_add_qp(pp->conn, pp->ep[i]->qp, &options, &pp->err);
	/* The demonstration is about receives that are not there in time. */
	if (pp->plan.act && !pp->client)
		return rc;
	for (unsigned n = 0; rc == ROCELINK_OK && n < pp->depth; n++)
		rc = pp_post_recv(pp, i, n);
	return rc;
}

static int offer_region(struct pp *pp)
{
	struct rocelink_region region = {
		.size = sizeof(region),
		.name = PP_REGION,
		.mr = pp->mr,
		.access =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};

	if (pp->o->compat || pp->plan.op == PP_SEND)
		return ROCELINK_OK;
	/* What READ is to find: message i in slot i. */
	if (pp->plan.op == PP_READ && !pp->client)
		for (unsigned i = 0; i < pp->depth; i++)
			pp_fill(pp, pp_recv_slot(pp, 0, i), i, false);
	return rocelink_conn_offer(pp->conn, &region, &pp->err);
}

static int check_datagram(struct pp *pp)
{
	unsigned mtu = pp->info[0].path_mtu;

	if (pp->plan.size <= mtu)
		return ROCELINK_OK;
	return pp_fail(&pp->err, ROCELINK_MISMATCH,
		       "a UD message must fit into one packet: %u bytes are more than the path "
		       "MTU, %u; use -s %u",
		       pp->plan.size, mtu, mtu);
}

static int link_both(struct pp *pp)
{
	int rc = open_endpoints(pp);

	if (rc == ROCELINK_OK && pp->plan.type == PP_XRC)
		rc = pp_xrc_open(pp);
	if (rc == ROCELINK_OK)
		rc = pp_memory_make(pp);
	for (unsigned i = 0; rc == ROCELINK_OK && i < pp->qps; i++)
		rc = add_queue_pair(pp, i);
	if (rc == ROCELINK_OK)
		rc = offer_region(pp);
	if (rc == ROCELINK_OK)
		rc = rocelink_conn_establish(pp->conn, &pp->err);
	for (unsigned i = 0; rc == ROCELINK_OK && i < pp->qps; i++) {
		pp->info[i].size = sizeof(pp->info[i]);
		/* The server's initiator comes second (pingpong_xrc.c). */
		rc = rocelink_conn_qp(pp->conn, i + (pp->plan.type == PP_XRC && !pp->client),
				      &pp->info[i]);
	}
	if (rc == ROCELINK_OK && pp->plan.type == PP_UD)
		rc = check_datagram(pp);
	pp->remote.size = sizeof(pp->remote);
	if (rc == ROCELINK_OK && !pp->o->compat && pp->plan.op != PP_SEND)
		rc = rocelink_conn_wait_region(pp->conn, PP_REGION, PP_STALL_US, &pp->remote,
					       &pp->err);
	return rc;
}

int pp_link_client(struct pp *pp)
{
	struct rocelink_security security;
	struct rocelink_options options;
	char plan[256];
	int rc = ROCELINK_OK;

	pp->has_gid = pp->o->gid_index >= 0;
	if (pp->has_gid)
		rc = find_gid(pp->o, &pp->gid, &pp->err);
	if (rc != ROCELINK_OK)
		return rc;
	fill_options(pp->o, &options, &security);
	if (pp->has_gid)
		options.gid = &pp->gid;
	if (!pp->o->compat) {
		pp_plan_write(&pp->plan, plan, sizeof(plan));
		options.private_data = plan;
		options.private_data_len = strlen(plan);
	}
	pp->conn = rocelink_dial(pp->o->host, pp->o->service, &options, &pp->err);
	if (!pp->conn)
		return (int)pp->err.code;
	rc = rocelink_conn_wait(pp->conn, ROCELINK_STATE_OPEN, &pp->err);
	return rc ? rc : link_both(pp);
}

static const char *listen_address(const struct pp_options *o)
{
	if (o->listen)
		return o->listen;
	return o->secret_file || o->plain || o->compat ? "*" : "localhost";
}

int pp_listen(const struct pp_options *o, struct rocelink_listener **l, struct rocelink_error *err)
{
	struct rocelink_security security;
	struct rocelink_options options;
	struct rocelink_listen_options listen = { .size = sizeof(listen), .conn = &options };
	struct rocelink_gid gid;
	int rc = o->gid_index >= 0 ? find_gid(o, &gid, err) : ROCELINK_OK;
	const char *address = listen_address(o);

	if (rc != ROCELINK_OK)
		return rc;
	fill_options(o, &options, &security);
	if (o->gid_index >= 0)
		options.gid = &gid;
	*l = rocelink_listen(address, o->service, &listen, err);
	if (!*l)
		return (int)err->code;
	fprintf(o->json ? stderr : stdout, "listening on %s, TCP port %u%s\n",
		strcmp(address, "*") == 0 ? "all addresses" : address, rocelink_listener_port(*l),
		strcmp(address, "localhost") == 0
			? " (for other machines: --secret-file FILE or --plain)"
			: "");
	fflush(stdout);
	return ROCELINK_OK;
}

int pp_link_server(struct pp *pp, struct rocelink_listener *l)
{
	int rc = ROCELINK_OK;

	pp->has_gid = pp->o->gid_index >= 0;
	if (pp->has_gid)
		rc = find_gid(pp->o, &pp->gid, &pp->err);
	if (rc != ROCELINK_OK)
		return rc;
	pp->conn = rocelink_listener_wait(l, ROCELINK_NO_DEADLINE, &pp->err);
	if (!pp->conn)
		return (int)pp->err.code;
	rc = pp_plan_accept(&pp->plan, pp->o, pp->conn, &pp->err);
	if (rc == ROCELINK_OK)
		rc = link_both(pp);
	if (rc != ROCELINK_OK && rocelink_conn_state(pp->conn) == ROCELINK_STATE_REQUESTED)
		rocelink_conn_refuse(pp->conn, ROCELINK_REASON_APPLICATION, 1, pp->err.text);
	return rc;
}

void pp_unlink(struct pp *pp)
{
	/* Address handles first, then what they hang on, in the order libibverbs asks for. */
	rocelink_conn_free(pp->conn);
	if (pp->mr)
		ibv_dereg_mr(pp->mr);
	pp_xrc_close(pp);
	while (pp->qps > 0)
		rocelink_endpoint_close(pp->ep[--pp->qps]);
	if (pp->buf)
		munmap(pp->buf, pp->buf_len);
	free(pp->samples);
}
