// SPDX-License-Identifier: BSD-2-Clause
#include "verbs_pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void pair_die(const char *what)
{
	fprintf(stderr, "bench_verbs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void exchange(struct end *end, const void *ours, void *theirs, size_t len)
{
	if (write(end->fd, ours, len) != (ssize_t)len || read(end->fd, theirs, len) != (ssize_t)len)
		pair_die("the other process");
}

void end_meet(struct end *end)
{
	char ours = 1, theirs;

	exchange(end, &ours, &theirs, 1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!ctx && !strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		pair_die(name);
	ibv_free_device_list(list);
	return ctx;
}

void end_open(struct end *end, int fd, const char *device, int gid_index, size_t len)
{
	struct memory {
		uint64_t addr;
		uint32_t rkey;
		uint32_t unused;
	} ours = { 0 }, theirs;

	*end = (struct end){ .fd = fd, .len = len, .gid_index = gid_index };
	end->ctx = open_device(device);
	end->pd = ibv_alloc_pd(end->ctx);
	end->memory = aligned_alloc(4096, len);
	if (!end->pd || !end->memory || ibv_query_gid(end->ctx, 1, gid_index, &end->gid))
		pair_die("opening");
	memset(end->memory, 1, len);
	end->mr = ibv_reg_mr(end->pd, end->memory, len,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!end->mr)
		pair_die("ibv_reg_mr");
	ours.addr = (uintptr_t)end->memory;
	ours.rkey = end->mr->rkey;
	exchange(end, &ours, &theirs, sizeof(ours));
	end->peer_addr = theirs.addr;
	end->peer_rkey = theirs.rkey;
}

void end_close(struct end *end)
{
	ibv_dereg_mr(end->mr);
	ibv_dealloc_pd(end->pd);
	ibv_close_device(end->ctx);
	free(end->memory);
}

static void to_rts(struct end *end, struct ibv_qp *qp, uint32_t peer_qpn)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer_qpn,
		.min_rnr_timer = 12,
		.max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = end->gid,
				      .sgid_index = (uint8_t)end->gid_index,
				      .hop_limit = 64 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	if (ibv_modify_qp(qp, &init,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ||
	    ibv_modify_qp(qp, &rtr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER) ||
	    ibv_modify_qp(qp, &rts,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		pair_die("ibv_modify_qp");
}

struct ibv_qp *end_connect(struct end *end, struct ibv_cq *cq, unsigned depth)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &attr);
	uint32_t peer_qpn;

	if (!qp)
		pair_die("ibv_create_qp");
	exchange(end, &qp->qp_num, &peer_qpn, sizeof(peer_qpn));
	to_rts(end, qp, peer_qpn);
	end_meet(end); /* no packet comes before both are ready */
	return qp;
}
