/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../net/namespace.h"

#define PATIENCE_S 30
#define BECOMES_MS 10000

void rig_isolate(void)
{
	if (namespace_enter())
		return;
	fprintf(stderr, "network namespaces are not allowed here: skipped\n");
	exit(77);
}

struct ibv_context *rig_open(const char *interface)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	char name[64];
	int n;

	snprintf(name, sizeof(name), "rl_%s", interface);
	list = ibv_get_device_list(&n);
	assert_non_null(list);
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

int rig_setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->ctx = rig_open("lo");
	r->pd = ibv_alloc_pd(r->ctx);
	assert_non_null(r->pd);
	r->buffer = calloc(1, RIG_BUFFER);
	assert_non_null(r->buffer);
	r->mr = ibv_reg_mr(r->pd, r->buffer, RIG_BUFFER, RIG_ALL_ACCESS);
	assert_non_null(r->mr);
	*state = r;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *r = *state;

	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	assert_int_equal(ibv_dealloc_pd(r->pd), 0);
	assert_int_equal(ibv_close_device(r->ctx), 0);
	free(r->buffer);
	free(r);
	return 0;
}

struct ibv_cq *rig_cq(struct rig *r, int cqe, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(r->ctx, cqe, r, channel, 0);

	assert_non_null(cq);
	assert_true(cq->cqe >= cqe);
	return cq;
}

struct ibv_qp *rig_qp(struct rig *r, enum ibv_qp_type type, struct ibv_cq *send,
		      struct ibv_cq *recv, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = send,
		.recv_cq = recv,
		.srq = srq,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(r->pd, &attr);

	assert_non_null(qp);
	return qp;
}

static bool is_reliable(const struct ibv_qp *qp)
{
	return qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD;
}

int rig_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = RIG_ALL_ACCESS,
		.qkey = 0x1234,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (qp->qp_type == IBV_QPT_UC)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	return ibv_modify_qp(qp, &attr, mask);
}

int rig_to_rtr(struct ibv_qp *qp, uint32_t dest_qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest_qpn,
		.rq_psn = 7,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
	};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (is_reliable(qp))
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	assert_int_equal(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid), 0);
	return ibv_modify_qp(qp, &attr, mask);
}

int rig_to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 7,
		.max_rd_atomic = 4,
		.timeout = 12,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (is_reliable(qp))
		mask |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY;
	return ibv_modify_qp(qp, &attr, mask);
}

void rig_connect(struct ibv_qp *a, struct ibv_qp *b)
{
	assert_int_equal(rig_to_init(a), 0);
	assert_int_equal(rig_to_init(b), 0);
	assert_int_equal(rig_to_rtr(a, b->qp_num), 0);
	assert_int_equal(rig_to_rtr(b, a->qp_num), 0);
	assert_int_equal(rig_to_rts(a), 0);
	assert_int_equal(rig_to_rts(b), 0);
}

void rig_connect_self(struct ibv_qp *qp)
{
	assert_int_equal(rig_to_init(qp), 0);
	assert_int_equal(rig_to_rtr(qp, qp->qp_num), 0);
	assert_int_equal(rig_to_rts(qp), 0);
}

int rig_post_recv(struct rig *r, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + offset, len, r->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int rc = ibv_post_recv(qp, &wr, &bad);

	if (rc)
		assert_ptr_equal(bad, &wr);
	return rc;
}

int rig_post_send(struct rig *r, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset, uint32_t len,
		  unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + offset, len, r->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = flags,
	};
	struct ibv_send_wr *bad = NULL;
	int rc = ibv_post_send(qp, &wr, &bad);

	if (rc)
		assert_ptr_equal(bad, &wr);
	return rc;
}

static time_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

struct ibv_wc rig_await(struct ibv_cq *cq)
{
	time_t end = now_s() + PATIENCE_S;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		if (now_s() > end)
			fail_msg("no completion came");
	assert_int_equal(n, 1);
	return wc;
}

void rig_await_n(struct ibv_cq *cq, int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(rig_await(cq).status, IBV_WC_SUCCESS);
}

struct rig_pair rig_pair_make(struct rig *r, enum ibv_qp_type type)
{
	struct rig_pair p = { .cq_a = rig_cq(r, 64, NULL), .cq_b = rig_cq(r, 64, NULL) };

	p.a = rig_qp(r, type, p.cq_a, p.cq_a, NULL);
	p.b = rig_qp(r, type, p.cq_b, p.cq_b, NULL);
	rig_connect(p.a, p.b);
	return p;
}

void rig_pair_free(struct rig_pair *p)
{
	assert_int_equal(ibv_destroy_qp(p->a), 0);
	assert_int_equal(ibv_destroy_qp(p->b), 0);
	assert_int_equal(ibv_destroy_cq(p->cq_a), 0);
	assert_int_equal(ibv_destroy_cq(p->cq_b), 0);
}

enum ibv_wc_status rig_run(struct rig_pair *p, enum ibv_wr_opcode opcode, uint64_t local,
			   uint32_t len, uint32_t lkey, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { local, len, lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED
	};
	struct ibv_send_wr *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	assert_int_equal(ibv_post_send(p->a, &wr, &bad), 0);
	return rig_await(p->cq_a).status;
}

struct ibv_async_event rig_await_event(struct ibv_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event event;

	for (;;) {
		if (!rig_readable(ctx->async_fd, PATIENCE_S * 1000))
			fail_msg("event %s didn't come", ibv_event_type_str(type));
		assert_int_equal(ibv_get_async_event(ctx, &event), 0);
		if (event.event_type == type)
			return event;
		ibv_ack_async_event(&event);
	}
}

/* Programs that watch memory do so unsynchronised. */
__attribute__((no_sanitize("thread"))) bool rig_becomes(const volatile uint8_t *byte, uint8_t value)
{
	for (int ms = 0; ms < BECOMES_MS; ms++) {
		if (*byte == value)
			return true;
		usleep(1000);
	}
	return false;
}

bool rig_readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}
