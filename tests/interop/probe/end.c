// SPDX-License-Identifier: BSD-2-Clause
/* One end: its verbs objects, its TCP connection to the other end, and the small calls scenes use.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

void die(const char *what)
{
	printf("broken=%s errno=%d (%s)\n", what, errno, strerror(errno));
	exit(2);
}

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static int listen_and_accept(const struct addrinfo *ai)
{
	int lfd = socket(ai->ai_family, ai->ai_socktype, 0);
	int one = 1;
	int fd;

	setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(lfd, ai->ai_addr, ai->ai_addrlen) || listen(lfd, 1))
		die("listen");
	fd = accept(lfd, NULL, NULL);
	close(lfd);
	return fd;
}

static int dial(const struct addrinfo *ai)
{
	/* The server may still be starting. */
	for (int i = 0; i < 100; i++) {
		int fd = socket(ai->ai_family, ai->ai_socktype, 0);

		if (!connect(fd, ai->ai_addr, ai->ai_addrlen))
			return fd;
		close(fd);
		usleep(50000);
	}
	return -1;
}

static void meet(struct end *e)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	struct addrinfo *ai;

	hints.ai_flags = e->host ? 0 : AI_PASSIVE;
	if (getaddrinfo(e->host, e->port, &hints, &ai))
		die("resolve");
	e->sock = e->host ? dial(ai) : listen_and_accept(ai);
	freeaddrinfo(ai);
	if (e->sock < 0)
		die("connect");
}

static void read_full(int fd, void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, (char *)buf + got, len - got);

		if (n <= 0)
			die("peer_gone");
		got += (size_t)n;
	}
}

static void exchange(struct end *e)
{
	/* Both ends run the same binary on the same architecture: the struct is the message. */
	if (write(e->sock, &e->mine, sizeof(e->mine)) != sizeof(e->mine))
		die("exchange");
	read_full(e->sock, &e->peer, sizeof(e->peer));
}

void end_barrier(struct end *e)
{
	char byte = 'b';

	if (write(e->sock, &byte, 1) != 1)
		die("barrier");
	read_full(e->sock, &byte, 1);
}

void end_hang_up(struct end *e)
{
	close(e->sock);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	}
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static void make_objects(struct end *e, const struct knobs *k)
{
	struct ibv_qp_init_attr init = {
		.qp_type = k->type,
		.sq_sig_all = 1,
		.cap = { DEPTH, DEPTH, 1, 1, 0 },
	};
	struct ibv_port_attr port;

	e->ctx = open_device(e->device);
	if (!e->ctx)
		die("open_device");
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, 2 * DEPTH, NULL, NULL, 0);
	if (posix_memalign((void **)&e->buf, 4096, 2 * REGION))
		die("memory");
	memset(e->buf, 0, 2 * REGION);
	e->mr = e->pd ? ibv_reg_mr(e->pd, e->buf, REGION, (int)k->mr_access) : NULL;
	init.send_cq = init.recv_cq = e->cq;
	e->qp = e->mr && e->cq ? ibv_create_qp(e->pd, &init) : NULL;
	if (!e->qp || ibv_query_port(e->ctx, 1, &port))
		die("make_objects");
	e->mtu = port.active_mtu;
	if (ibv_query_gid(e->ctx, 1, e->gid_index, &e->mine.gid))
		die("query_gid");
	e->mine.qpn = e->qp->qp_num;
	e->mine.psn = (unsigned int)(now_us() ^ (uint64_t)getpid() << 8) & 0xffffff;
	e->mine.rkey = e->mr->rkey;
	e->mine.va = (uintptr_t)e->buf;
}

static void to_init(struct end *e, const struct knobs *k)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = k->qp_access,
	};
	int last = k->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	if (ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last))
		die("to_init");
}

static void to_rts(struct end *e, const struct knobs *k)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = e->mtu,
		.dest_qp_num = e->peer.qpn,
		.rq_psn = e->peer.psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = k->min_rnr_timer,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = e->peer.gid,
				      .sgid_index = (uint8_t)e->gid_index,
				      .hop_limit = 64 } },
	};
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (k->type != IBV_QPT_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	else if (!(e->ah = ibv_create_ah(e->pd, &attr.ah_attr)))
		die("create_ah");
	if (k->type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	}
	if (ibv_modify_qp(e->qp, &attr, rtr))
		die("to_rtr");
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = e->mine.psn;
	attr.timeout = k->timeout;
	attr.retry_cnt = k->retry_cnt;
	attr.rnr_retry = k->rnr_retry;
	attr.max_rd_atomic = 16;
	if (ibv_modify_qp(e->qp, &attr, rts))
		die("to_rts");
}

void end_open(struct end *e, const struct knobs *knobs)
{
	make_objects(e, knobs);
	to_init(e, knobs);
	meet(e);
	exchange(e);
	to_rts(e, knobs);
}

void end_close(struct end *e)
{
	if (e->ah && ibv_destroy_ah(e->ah))
		die("destroy_ah");
	if (ibv_destroy_qp(e->qp) || ibv_dereg_mr(e->mr) || ibv_destroy_cq(e->cq) ||
	    ibv_dealloc_pd(e->pd) || ibv_close_device(e->ctx))
		die("destroy");
	free(e->buf);
}

void post_receive(struct end *e, uint64_t wr_id, size_t offset, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + offset, len, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (ibv_post_recv(e->qp, &wr, &bad))
		die("post_recv");
}

void post_wr(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	errno = ibv_post_send(e->qp, wr, &bad);
	if (errno)
		die("post_send");
}

void post(struct end *e, uint64_t wr_id, enum ibv_wr_opcode op, size_t offset, uint32_t len,
	  size_t remote_offset)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + offset, len, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .opcode = op, .sg_list = &sge, .num_sge = 1 };

	wr.imm_data = (uint32_t)wr_id;
	if (e->ah) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = e->peer.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else {
		wr.wr.rdma.remote_addr = e->peer.va + remote_offset;
		wr.wr.rdma.rkey = e->peer.rkey;
	}
	post_wr(e, &wr);
}

bool next_wc(struct end *e, struct ibv_wc *wc, int timeout_ms)
{
	uint64_t until = now_us() + (uint64_t)timeout_ms * 1000;
	int n;

	while (!(n = ibv_poll_cq(e->cq, 1, wc)) && now_us() < until)
		usleep(100); /* an emulated processor is better spent on the driver */
	if (n < 0)
		die("poll_cq");
	return n == 1;
}

/* clang-format off */
static const char *const wc_names[] = {
	[IBV_WC_SUCCESS]            = "SUCCESS",
	[IBV_WC_LOC_LEN_ERR]        = "LOC_LEN_ERR",
	[IBV_WC_LOC_QP_OP_ERR]      = "LOC_QP_OP_ERR",
	[IBV_WC_LOC_PROT_ERR]       = "LOC_PROT_ERR",
	[IBV_WC_WR_FLUSH_ERR]       = "WR_FLUSH_ERR",
	[IBV_WC_LOC_ACCESS_ERR]     = "LOC_ACCESS_ERR",
	[IBV_WC_REM_INV_REQ_ERR]    = "REM_INV_REQ_ERR",
	[IBV_WC_REM_ACCESS_ERR]     = "REM_ACCESS_ERR",
	[IBV_WC_REM_OP_ERR]         = "REM_OP_ERR",
	[IBV_WC_RETRY_EXC_ERR]      = "RETRY_EXC_ERR",
	[IBV_WC_RNR_RETRY_EXC_ERR]  = "RNR_RETRY_EXC_ERR",
};
/* clang-format on */

const char *wc_name(enum ibv_wc_status status)
{
	if (status < sizeof(wc_names) / sizeof(wc_names[0]) && wc_names[status])
		return wc_names[status];
	return "other";
}

enum ibv_qp_state qp_state(struct end *e)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init))
		die("query_qp");
	return attr.qp_state;
}

const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < 7 ? names[state] : "unknown";
}

const char *next_event(struct end *e)
{
	struct pollfd polled = { .fd = e->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	enum ibv_event_type type;

	while (poll(&polled, 1, QUIET_MS) == 1) {
		if (ibv_get_async_event(e->ctx, &event))
			die("get_async_event");
		type = event.event_type;
		ibv_ack_async_event(&event);
		switch ((int)type) {
		case IBV_EVENT_QP_FATAL:
			return "QP_FATAL";
		case IBV_EVENT_QP_REQ_ERR:
			return "QP_REQ_ERR";
		case IBV_EVENT_QP_ACCESS_ERR:
			return "QP_ACCESS_ERR";
		case IBV_EVENT_COMM_EST:
		default: /* port and GID events are not this QP's */
			break;
		}
	}
	return "none";
}
