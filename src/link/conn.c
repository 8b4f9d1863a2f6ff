/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/units.h"
#include "link/compat.h"
#include "link/fail.h"

static uint64_t later(uint64_t now, uint64_t ns)
{
	return ns > TIME_NEVER - now ? TIME_NEVER : now + ns;
}

void conn_enter(struct rocelink_conn *conn, enum rocelink_phase phase, uint64_t ns, uint64_t now)
{
	conn->phase = phase;
	conn->phase_deadline_ns = later(now, ns);
}

struct rocelink_conn *conn_new(struct config *config, enum rocelink_role role,
			       struct rocelink_error *err)
{
	struct rocelink_conn *conn = calloc(1, sizeof(*conn));
	uint64_t now = link_now();

	if (!conn) {
		config_unref(config);
		link_no_memory(err);
		return NULL;
	}
	conn->config = config;
	conn->role = role;
	conn->state = ROCELINK_STATE_CONNECTING;
	conn->total_deadline_ns = later(now, config->total_ns);
	conn->phase_deadline_ns = TIME_NEVER;
	conn->peer_gid = NO_PEER_GID;
	message_init(&conn->hello, FRAME_HELLO);
	message_init(&conn->peer_hello, FRAME_HELLO);
	tracer_init(&conn->tracer, config->trace, config->trace_arg);
	conn->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (conn->epfd < 0 || getrandom(conn->nonce, NONCE_LEN, 0) != NONCE_LEN) {
		link_fail(err, ROCELINK_SYSTEM, ROCELINK_PHASE_NONE, errno,
			  "making a connection object");
		rocelink_conn_free(conn);
		return NULL;
	}
	for (unsigned i = 0; i < config->regions.count; i++)
		if (regions_add(&conn->regions, &config->regions.values[i]) != 0) {
			link_no_memory(err);
			rocelink_conn_free(conn);
			return NULL;
		}
	/* Who answers goes by the GIDs that the peer sends. */
	if (config->rdma_host && role != ROCELINK_PASSIVE && conn_rdma_start(conn, err)) {
		rocelink_conn_free(conn);
		return NULL;
	}
	return conn;
}

static struct rocelink_conn *new_from_options(const struct rocelink_options *options,
					      enum rocelink_role role, struct rocelink_error *err)
{
	struct config *config;

	link_log_init();
	if (config_new(options, &config, err))
		return NULL;
	return conn_new(config, role, err);
}

static struct rocelink_conn *or_free(struct rocelink_conn *conn, int rc)
{
	if (!rc)
		return conn;
	rocelink_conn_free(conn);
	return NULL;
}

struct rocelink_conn *rocelink_dial(const char *host, const char *service,
				    const struct rocelink_options *options,
				    struct rocelink_error *err)
{
	struct rocelink_conn *conn;
	int rc;

	if (!host || !service) {
		link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			  "host and service must be said");
		return NULL;
	}
	conn = new_from_options(options, ROCELINK_ACTIVE, err);
	if (!conn)
		return NULL;
	conn->host = strdup(host);
	if (!conn->host)
		return or_free(conn, link_no_memory(err));
	conn->dialing = true;
	conn_enter(conn, ROCELINK_PHASE_CONNECT, TIME_NEVER, 0);
	rc = dialer_start(&conn->dialer, conn->epfd, host, service, conn->config->resolve_ns,
			  conn->config->connect_ns, conn->config->retry_refused, link_now(), err);
	return or_free(conn, rc);
}

struct rocelink_conn *rocelink_dial_meet(const char *local_host, const char *host,
					 const char *service,
					 const struct rocelink_options *options,
					 struct rocelink_error *err)
{
	struct rocelink_conn *conn;

	if (!local_host || !host || !service) {
		link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			  "local_host, host and service must be said");
		return NULL;
	}
	conn = new_from_options(options, ROCELINK_PEER, err);
	if (!conn)
		return NULL;
	if (conn->config->compat)
		return or_free(conn,
			       link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
					 "the ibv_*_pingpong programs can't meet: dial or listen"));
	return or_free(conn, meet_start(conn, local_host, host, service, err));
}

int conn_adopt_fd(struct rocelink_conn *conn, int fd, bool outgoing, struct rocelink_error *err)
{
	line_init_fd(&conn->line, fd, conn->epfd);
	conn->line.outgoing = outgoing;
	conn->has_line = true;
	conn_enter(conn, ROCELINK_PHASE_SECURE, conn->config->secure_ns, link_now());
	return line_start(&conn->line, conn->config->security, outgoing, conn->host, conn->role,
			  conn->nonce, false, conn->config->compat, &conn->tracer, err);
}

static bool role_is_valid(enum rocelink_role role, struct rocelink_error *err)
{
	if (role >= ROCELINK_ACTIVE && role <= ROCELINK_PEER)
		return true;
	link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
		  "role %d is none of enum rocelink_role", role);
	return false;
}

struct rocelink_conn *rocelink_dial_fd(int fd, enum rocelink_role role,
				       const struct rocelink_options *options,
				       struct rocelink_error *err)
{
	struct rocelink_conn *conn;
	int flags = fcntl(fd, F_GETFL);

	conn = role_is_valid(role, err) ? new_from_options(options, role, err) : NULL;
	if (!conn || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
		if (conn)
			link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, errno,
				  "file descriptor %d", fd);
		rocelink_conn_free(conn);
		close(fd);
		return NULL;
	}
	return or_free(conn, conn_adopt_fd(conn, fd, role != ROCELINK_PASSIVE, err));
}

struct rocelink_conn *rocelink_dial_channel(const struct rocelink_channel *channel,
					    enum rocelink_role role,
					    const struct rocelink_options *options,
					    struct rocelink_error *err)
{
	struct rocelink_channel c;
	struct rocelink_conn *conn;

	if (link_check_size(channel->size, sizeof(c), "rocelink_channel", err) ||
	    !role_is_valid(role, err))
		return NULL;
	link_copy_options(&c, sizeof(c), channel, channel->size);
	if (!c.send || !c.recv) {
		link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			  "rocelink_channel needs send and recv");
		return NULL;
	}
	conn = new_from_options(options, role, err);
	if (!conn)
		return NULL;
	line_init_channel(&conn->line, &c, conn->epfd);
	conn->line.outgoing = role != ROCELINK_PASSIVE;
	conn->has_line = true;
	conn_enter(conn, ROCELINK_PHASE_SECURE, conn->config->secure_ns, link_now());
	return or_free(conn, line_start(&conn->line, conn->config->security, conn->line.outgoing,
					NULL, role, conn->nonce, false, conn->config->compat,
					&conn->tracer, err));
}

void rocelink_conn_free(struct rocelink_conn *conn)
{
	if (!conn)
		return;
	for (unsigned i = 0; i < conn->qp_count; i++)
		link_qp_undo(&conn->qps[i], false);
	if (conn->dialing)
		dialer_stop(&conn->dialer);
	conn_rdma_stop(conn);
	meet_free(conn);
	if (conn->has_line) {
		/* Unread bytes would make the kernel send a reset, which may overtake what we said.
		 */
		while (line_drive(&conn->line, &conn->tracer, NULL) == ROCELINK_OK &&
		       conn->line.session.dead)
			buffer_consume(&conn->line.session.in, conn->line.session.in.len);
		line_close(&conn->line);
	}
	message_free(&conn->hello);
	message_free(&conn->peer_hello);
	regions_free(&conn->regions);
	regions_free(&conn->peer_regions);
	syncs_free(&conn->syncs);
	if (conn->epfd >= 0)
		close(conn->epfd);
	config_unref(conn->config);
	free(conn->private_data);
	free(conn->host);
	free(conn->qps);
	free(conn);
}

int rocelink_conn_fd(const struct rocelink_conn *conn)
{
	return conn->epfd;
}

enum rocelink_state rocelink_conn_state(const struct rocelink_conn *conn)
{
	return conn->state;
}

const struct rocelink_error *rocelink_conn_error(const struct rocelink_conn *conn)
{
	return conn->state == ROCELINK_STATE_FAILED ? &conn->error : NULL;
}

static int check_can_add(const struct rocelink_conn *conn, struct ibv_qp *qp,
			 struct rocelink_error *err)
{
	if (!qp)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0, "qp is NULL");
	if (conn->started || conn->state > ROCELINK_STATE_REQUESTED)
		return link_fail(
			err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			"queue pairs are added before rocelink_conn_start(); this connection is %s",
			rocelink_state_name(conn->state));
	if (conn->qp_count == ROCELINK_MAX_QPS)
		return link_fail(err, ROCELINK_LIMIT, ROCELINK_PHASE_NONE, 0,
				 "more than %d queue pairs", ROCELINK_MAX_QPS);
	if (conn->qp_count && conn->qps[0].qp->context != qp->context)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "all queue pairs of a connection must be of one device context");
	if (conn->config->compat == ROCELINK_COMPAT_PINGPONG && conn->qp_count)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "ibv_rc_pingpong and its kin have one queue pair");
	return ROCELINK_OK;
}

int rocelink_conn_add_qp(struct rocelink_conn *conn, struct ibv_qp *qp,
			 const struct rocelink_qp_options *options, struct rocelink_error *err)
{
	struct link_qp *qps;
	int rc = check_can_add(conn, qp, err);

	if (!rc && options)
		rc = link_check_size(options->size, sizeof(*options), "rocelink_qp_options", err);
	if (rc)
		return rc;
	if (!options && conn->config->has_qp)
		options = &conn->config->qp;
	qps = realloc(conn->qps, (conn->qp_count + 1) * sizeof(*qps));
	if (!qps)
		return link_no_memory(err);
	conn->qps = qps;
	rc = link_qp_take(&qps[conn->qp_count], qp, options, conn->qp_count, err);
	if (rc)
		return rc;
	conn->qp_count++;
	if (conn->state == ROCELINK_STATE_CONNECTING)
		return ROCELINK_OK;
	rc = conn_choose_gids(conn, err);
	if (!rc)
		rc = conn_init_qps(conn, err);
	if (rc)
		link_qp_undo(&conn->qps[--conn->qp_count], true);
	return rc;
}

int rocelink_conn_set_private_data(struct rocelink_conn *conn, const void *data, size_t len,
				   struct rocelink_error *err)
{
	uint8_t *copy;

	if (conn->started || len > ROCELINK_MAX_PRIVATE_DATA)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "private data has at most %d bytes and is set before the start",
				 ROCELINK_MAX_PRIVATE_DATA);
	copy = malloc(len ? len : 1);
	if (!copy)
		return link_no_memory(err);
	if (len)
		memcpy(copy, data, len);
	free(conn->private_data);
	conn->private_data = copy;
	conn->private_data_len = len;
	return ROCELINK_OK;
}

int rocelink_conn_peer(const struct rocelink_conn *conn, struct rocelink_peer *peer)
{
	const struct message *hello = &conn->peer_hello;
	struct rocelink_peer p = { .version = conn->line.session.version };

	if (!hello->qp_count)
		return ROCELINK_AGAIN;
	if (conn->has_line && conn->line.peer.ss_family) {
		sockaddr_text(&conn->line.peer, p.address, sizeof(p.address));
		sockaddr_text(&conn->line.local, p.local_address, sizeof(p.local_address));
	} else {
		snprintf(p.address, sizeof(p.address), "%s",
			 conn->by_ticket	   ? "ticket"
			 : conn->line.channel.name ? conn->line.channel.name
						   : "channel");
	}
	if (conn->line.tls)
		tls_identity(conn->line.tls, p.identity, sizeof(p.identity));
	memcpy(p.service_name, hello->service_name, sizeof(p.service_name));
	memcpy(p.agent, hello->agent, sizeof(p.agent));
	p.qp_count = hello->qp_count;
	p.private_data = hello->private_data;
	p.private_data_len = hello->private_data_len;
	return link_store_result(peer, &p, sizeof(p));
}

static enum ibv_qp_type verbs_type(uint8_t wire)
{
	static const enum ibv_qp_type types[] = {
		[WIRE_RC] = IBV_QPT_RC,
		[WIRE_UC] = IBV_QPT_UC,
		[WIRE_UD] = IBV_QPT_UD,
		[WIRE_XRC_INI] = IBV_QPT_XRC_SEND,
		[WIRE_XRC_TGT] = IBV_QPT_XRC_RECV,
	};

	return types[wire];
}

static void fill_own(struct rocelink_qp_info *info, const struct rocelink_conn *conn,
		     const struct link_qp *q)
{
	const struct agreed *a = &q->agreed;

	info->qp = q->qp;
	info->type = q->qp->qp_type;
	info->qpn = q->qp->qp_num;
	info->psn = q->values.psn;
	info->qkey = q->values.qkey;
	info->ah = q->ah;
	info->gid = conn->gid;
	if (!a->type)
		return;
	info->path_mtu = rocelink_mtu_bytes((enum ibv_mtu)a->mtu);
	info->initiator_depth = a->initiator_depth;
	info->responder_depth = a->responder_depth;
	info->timeout_code = a->timeout;
	info->retry_count = a->retry;
	info->rnr_retry_count = a->rnr_retry;
	info->min_rnr_code = link_qp_min_rnr_code(q);
	info->hop_limit = a->hop_limit;
	info->traffic_class = a->traffic_class;
	info->service_level = a->service_level;
}

int rocelink_conn_qp(const struct rocelink_conn *conn, unsigned index,
		     struct rocelink_qp_info *info)
{
	const struct message *hello = &conn->peer_hello;
	struct rocelink_qp_info i = { 0 };

	if (index >= hello->qp_count && index >= conn->qp_count)
		return ROCELINK_NOT_FOUND;
	if (index < conn->qp_count)
		fill_own(&i, conn, &conn->qps[index]);
	if (index < hello->qp_count) {
		const struct qp_values *q = &hello->qps[index];

		i.remote_type = verbs_type(q->type);
		i.remote_qpn = q->qpn;
		i.remote_psn = q->psn;
		i.remote_qkey = q->qkey;
		i.remote_srqn = q->srqn;
		i.remote_ops = q->ops;
		memcpy(i.remote_gid.raw, conn->remote_gid.gid, sizeof(i.remote_gid.raw));
		i.remote_lid = conn->remote_gid.lid;
	}
	return link_store_result(info, &i, sizeof(i));
}
