/* SPDX-License-Identifier: BSD-2-Clause */
/* Each refusal writes one line to the log, which names what was wrong. (That it is refused, and with which
 * errno, is also looked at here; what works instead is in the other tests.) */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int real_stderr, captured;

static void capture_begin(void)
{
	fflush(stderr);
	assert_int_equal(ftruncate(captured, 0), 0);
	assert_true(lseek(captured, 0, SEEK_SET) == 0);
	assert_true(dup2(captured, 2) == 2);
	errno = 0;
}

/* NULL, or what is wrong with what was written. */
static const char *capture_end(const char *word)
{
	static char text[4096];
	ssize_t n;
	char *end;

	fflush(stderr);
	dup2(real_stderr, 2);
	n = pread(captured, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	end = strchr(text, '\n');
	if (!end)
		return "nothing in the log";
	if (end[1] || strncmp(text, "rocelink: info: ", 16) != 0 || !strstr(text, word))
		return text;
	return NULL;
}

/* The expression is true, and one line with the word appeared. */
#define SAYS(word, expression)                                                          \
	do {                                                                            \
		const char *wrong_;                                                     \
		bool refused_;                                                          \
                                                                                        \
		capture_begin();                                                        \
		refused_ = (expression);                                                \
		wrong_ = capture_end(word);                                             \
		if (!refused_)                                                          \
			fail_msg("not refused as expected: %s", #expression);           \
		if (wrong_)                                                             \
			fail_msg("%s, expected '%s': %s", #expression, (word), wrong_); \
	} while (0)
#define NO_OBJECT(call, error) (!(call) && errno == (error))

static void null_objects(void **state)
{
	struct rig *r = *state;
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_async_event event;
	union ibv_gid gid;
	struct ibv_cq *cq;
	__be16 pkey;
	void *context;

	SAYS("device", NO_OBJECT(ibv_open_device(NULL), EINVAL));
	SAYS("ctx", ibv_close_device(NULL) == EINVAL);
	SAYS("ctx", ibv_query_device(NULL, NULL) == EINVAL);
	SAYS("attr", ibv_query_device(r->ctx, NULL) == EINVAL);
	SAYS("ctx", ibv_query_gid(NULL, 1, 0, &gid) == -1 && errno == EINVAL);
	SAYS("gid", ibv_query_gid(r->ctx, 1, 0, NULL) == -1 && errno == EINVAL);
	SAYS("ctx", ibv_query_pkey(NULL, 1, 0, &pkey) == -1);
	SAYS("ctx", ibv_get_pkey_index(NULL, 1, 0) == -1);
	SAYS("ctx", ibv_get_async_event(NULL, &event) == -1);
	SAYS("event", ibv_get_async_event(r->ctx, NULL) == -1);
	SAYS("ctx", NO_OBJECT(ibv_alloc_pd(NULL), EINVAL));
	SAYS("pd", ibv_dealloc_pd(NULL) == EINVAL);
	SAYS("pd", NO_OBJECT((ibv_reg_mr)(NULL, r->buffer, 8, 0), EINVAL));
	SAYS("pd", NO_OBJECT(ibv_reg_mr_iova2(NULL, r->buffer, 8, 0, 0), EINVAL));
	SAYS("pd", NO_OBJECT(ibv_reg_dmabuf_mr(NULL, 0, 8, 0, 0, 0), EINVAL));
	SAYS("mr", ibv_rereg_mr(NULL, 1, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	SAYS("mr", ibv_dereg_mr(NULL) == EINVAL);
	SAYS("ctx", NO_OBJECT(ibv_create_comp_channel(NULL), EINVAL));
	SAYS("channel", ibv_destroy_comp_channel(NULL) == EINVAL);
	SAYS("channel", ibv_get_cq_event(NULL, &cq, &context) == -1);
	SAYS("ctx", NO_OBJECT(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL));
	SAYS("cq", ibv_resize_cq(NULL, 1) == EINVAL);
	SAYS("cq", ibv_destroy_cq(NULL) == EINVAL);
	SAYS("pd", NO_OBJECT(ibv_create_srq(NULL, NULL), EINVAL));
	SAYS("attr", NO_OBJECT(ibv_create_srq(r->pd, NULL), EINVAL));
	SAYS("srq", ibv_modify_srq(NULL, NULL, 0) == EINVAL);
	SAYS("srq", ibv_query_srq(NULL, NULL) == EINVAL);
	SAYS("srq", ibv_destroy_srq(NULL) == EINVAL);
	SAYS("pd", NO_OBJECT(ibv_create_qp(NULL, &init), EINVAL));
	SAYS("attr", NO_OBJECT(ibv_create_qp(r->pd, NULL), EINVAL));
	SAYS("send_cq", NO_OBJECT(ibv_create_qp(r->pd, &init), EINVAL));
	SAYS("qp", NO_OBJECT(ibv_qp_to_qp_ex(NULL), EINVAL));
	SAYS("qp", ibv_modify_qp(NULL, &attr, 0) == EINVAL);
	SAYS("qp", ibv_query_qp(NULL, &attr, 0, &init) == EINVAL);
	SAYS("qp", ibv_destroy_qp(NULL) == EINVAL);
	SAYS("qp", ibv_set_ece(NULL, NULL) == EINVAL);
	SAYS("qp", ibv_query_ece(NULL, NULL) == EINVAL);
	SAYS("qp", ibv_attach_mcast(NULL, &gid, 0) == EINVAL);
	SAYS("qp", ibv_detach_mcast(NULL, &gid, 0) == EINVAL);
	SAYS("pd", NO_OBJECT(ibv_create_ah(NULL, NULL), EINVAL));
	SAYS("attr", NO_OBJECT(ibv_create_ah(r->pd, NULL), EINVAL));
	SAYS("ah", ibv_destroy_ah(NULL) == EINVAL);
	SAYS("wc", NO_OBJECT(ibv_create_ah_from_wc(r->pd, NULL, NULL, 1), EINVAL));
	SAYS("wc", ibv_init_ah_from_wc(r->ctx, 1, NULL, NULL, NULL) == -1);
}

static void questions(void **state)
{
	struct rig *r = *state;
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	struct ibv_ah_attr ah;
	struct ibv_wc wc = { 0 };
	struct ibv_grh grh = { 0 };
	union ibv_gid gid;
	__be16 pkey;

	SAYS("port_num", ibv_query_port(r->ctx, 2, &port) == EINVAL);
	SAYS("port_num", ibv_query_gid(r->ctx, 2, 0, &gid) == -1);
	SAYS("index", ibv_query_gid(r->ctx, 1, -1, &gid) == -1);
	SAYS("index", ibv_query_gid_ex(r->ctx, 1, 1000, &entry, 0) == EINVAL);
	SAYS("flags", ibv_query_gid_ex(r->ctx, 1, 0, &entry, 1) == EOPNOTSUPP);
	SAYS("max_entries", ibv_query_gid_table(r->ctx, &entry, 0, 0) == -EINVAL);
	SAYS("index", ibv_query_pkey(r->ctx, 1, 1, &pkey) == -1);
	SAYS("pkey", ibv_get_pkey_index(r->ctx, 1, 0x8001) == -1);
	SAYS("port_num", ibv_init_ah_from_wc(r->ctx, 2, &wc, &grh, &ah) == -1);
	SAYS("IBV_WC_GRH", ibv_init_ah_from_wc(r->ctx, 1, &wc, &grh, &ah) == -1);
}

static struct ibv_qp *make_qp(struct rig *r, struct ibv_qp_init_attr attr, struct ibv_cq *cq)
{
	attr.send_cq = attr.recv_cq = cq;
	return ibv_create_qp(r->pd, &attr);
}

static void creation(void **state)
{
	struct rig *r = *state, other = { .ctx = rig_open("lo") };
	struct ibv_cq *cq = rig_cq(r, 4, NULL), *foreign = rig_cq(&other, 4, NULL);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(other.ctx);
	struct ibv_cq_init_attr_ex cq_ex = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_CVLAN };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16385, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex srq_ex = { .comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
					       .srq_type = IBV_SRQT_TM };
	struct ibv_parent_domain_init_attr parent = { 0 };
	struct ibv_td_init_attr td = { .comp_mask = 1 };
	struct ibv_ah_attr ah = { .port_num = 1 };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD };
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_open_attr open_attr = { 0 };

	SAYS("cqe", NO_OBJECT(ibv_create_cq(r->ctx, 0, NULL, NULL, 0), EINVAL));
	SAYS("comp_vector", NO_OBJECT(ibv_create_cq(r->ctx, 1, NULL, NULL, 10000), EINVAL));
	SAYS("channel", NO_OBJECT(ibv_create_cq(r->ctx, 1, NULL, channel, 0), EINVAL));
	SAYS("wc_flags", NO_OBJECT(ibv_create_cq_ex(r->ctx, &cq_ex), EOPNOTSUPP));
	SAYS("max_wr", NO_OBJECT(ibv_create_srq(r->pd, &srq), EINVAL));
	srq.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = 31 };
	SAYS("max_sge", NO_OBJECT(ibv_create_srq(r->pd, &srq), EINVAL));
	SAYS("srq_type", NO_OBJECT(ibv_create_srq_ex(r->ctx, &srq_ex), EOPNOTSUPP));
	srq_ex.srq_type = IBV_SRQT_XRC;
	SAYS("xrcd", NO_OBJECT(ibv_create_srq_ex(r->ctx, &srq_ex), EINVAL));
	srq_ex.srq_type = IBV_SRQT_BASIC;
	SAYS("pd", NO_OBJECT(ibv_create_srq_ex(r->ctx, &srq_ex), EINVAL));
	SAYS("qp_type", !make_qp(r, (struct ibv_qp_init_attr){ .qp_type = 42 }, cq));
	SAYS("qp_type",
	     !make_qp(r, (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RAW_PACKET }, cq));
	SAYS("send_cq", !make_qp(r, (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC }, foreign));
	SAYS("16384", !make_qp(r,
			       (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC,
							  .cap = { .max_send_wr = 16385 } },
			       cq));
	SAYS("comp_mask", NO_OBJECT(ibv_create_qp_ex(r->ctx, &ex), EINVAL));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH;
	SAYS("comp_mask", NO_OBJECT(ibv_create_qp_ex(r->ctx, &ex), EOPNOTSUPP));
	ex = (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.pd = r->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_TSO,
	};
	SAYS("send_ops_flags", NO_OBJECT(ibv_create_qp_ex(r->ctx, &ex), EOPNOTSUPP));
	ex.qp_type = IBV_QPT_XRC_RECV;
	ex.comp_mask = 0;
	SAYS("xrcd", NO_OBJECT(ibv_create_qp_ex(r->ctx, &ex), EINVAL));
	SAYS("comp_mask", NO_OBJECT(ibv_open_qp(r->ctx, &open_attr), EINVAL));
	SAYS("comp_mask", NO_OBJECT(ibv_open_xrcd(r->ctx, &xrcd), EINVAL));
	SAYS("pd", NO_OBJECT(ibv_alloc_parent_domain(r->ctx, &parent), EINVAL));
	SAYS("comp_mask", NO_OBJECT(ibv_alloc_td(r->ctx, &td), EOPNOTSUPP));
	SAYS("is_global", NO_OBJECT(ibv_create_ah(r->pd, &ah), EINVAL));
	ah.is_global = 1;
	SAYS("dgid", NO_OBJECT(ibv_create_ah(r->pd, &ah), EINVAL));
	ah.grh.sgid_index = 63;
	SAYS("sgid_index", NO_OBJECT(ibv_create_ah(r->pd, &ah), EINVAL));
	assert_int_equal(ibv_destroy_cq(foreign), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
	assert_int_equal(ibv_close_device(other.ctx), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void memory(void **state)
{
	struct rig *r = *state;
	struct ibv_alloc_dm_attr dm_attr = { .length = SIZE_MAX / 2 };
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey };
	struct ibv_dm *dm;
	void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	SAYS("length", NO_OBJECT(ibv_reg_mr(r->pd, r->buffer, 0, 0), EINVAL));
	SAYS("mapped", NO_OBJECT(ibv_reg_mr(r->pd, hole, 4096, 0), EFAULT));
	SAYS("access", NO_OBJECT(ibv_reg_mr(r->pd, r->buffer, 8, 1 << 15), EINVAL));
	SAYS("IBV_ACCESS_LOCAL_WRITE",
	     NO_OBJECT(ibv_reg_mr(r->pd, r->buffer, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL));
	SAYS("iova", NO_OBJECT(ibv_reg_mr_iova(r->pd, r->buffer, 4096, UINT64_MAX - 1, 0), EINVAL));
	SAYS("flags", ibv_rereg_mr(r->mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	SAYS("pd", ibv_rereg_mr(r->mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) ==
			   IBV_REREG_MR_ERR_INPUT);
	SAYS("descriptor", NO_OBJECT(ibv_reg_dmabuf_mr(r->pd, 0, 4096, 0, 9999, 0), EBADF));
	SAYS("length", NO_OBJECT(ibv_reg_dmabuf_mr(r->pd, 0, 0, 0, captured, 0), EINVAL));
	SAYS("page", NO_OBJECT(ibv_reg_dmabuf_mr(r->pd, 0, 8, 1, captured, 0), EINVAL));
	SAYS("advice",
	     ibv_advise_mr(r->pd, (enum ibv_advise_mr_advice)9, 0, &sge, 1) == EOPNOTSUPP);
	SAYS("ranges", ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0) == EINVAL);
	SAYS("lkey", ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EINVAL);
	SAYS("alloc_dm", NO_OBJECT(ibv_alloc_dm(r->ctx, &dm_attr), ENOMEM));
	dm_attr.length = 0;
	SAYS("length", NO_OBJECT(ibv_alloc_dm(r->ctx, &dm_attr), EINVAL));
	dm_attr.length = 64;
	dm = ibv_alloc_dm(r->ctx, &dm_attr);
	assert_non_null(dm);
	SAYS("multiples", ibv_memcpy_to_dm(dm, 1, r->buffer, 8) == EINVAL);
	SAYS("beyond", ibv_memcpy_from_dm(r->buffer, dm, 64, 8) == EFAULT);
	SAYS("IBV_ACCESS_ZERO_BASED", NO_OBJECT(ibv_reg_dm_mr(r->pd, dm, 0, 64, 0), EINVAL));
	assert_int_equal(ibv_free_dm(dm), 0);
	SAYS("type", NO_OBJECT(ibv_alloc_mw(r->pd, (enum ibv_mw_type)9), EINVAL));
	munmap(hole, 4096);
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	return ibv_modify_qp(qp, &attr, mask);
}

static void transitions(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	SAYS("RESET to RTS", rig_to_rts(qp) == EINVAL);
	SAYS("qp_access_flags",
	     modify(qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) == EINVAL);
	attr.port_num = 2;
	SAYS("port_num", modify(qp, attr,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS) == EINVAL);
	assert_int_equal(rig_to_init(qp), 0);
	SAYS("cur_qp_state", modify(qp, (struct ibv_qp_attr){ .cur_qp_state = IBV_QPS_RTS },
				    IBV_QP_CUR_STATE) == EINVAL);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	SAYS("is_global", modify(qp, attr, rtr) == EINVAL);
	attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1 };
	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.ah_attr.grh.dgid), 0);
	attr.path_mtu = 9;
	SAYS("path_mtu", modify(qp, attr, rtr) == EINVAL);
	attr.path_mtu = IBV_MTU_1024;
	attr.max_dest_rd_atomic = 129;
	SAYS("max_dest_rd_atomic", modify(qp, attr, rtr) == EINVAL);
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 32;
	SAYS("min_rnr_timer", modify(qp, attr, rtr) == EINVAL);
	SAYS("min_rnr_timer", modify(qp, attr, rtr & ~IBV_QP_MIN_RNR_TIMER) == EINVAL);
	SAYS("timeout", modify(qp, attr, rtr | IBV_QP_TIMEOUT) == EINVAL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static int post(struct ibv_qp *qp, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad = NULL;
	int rc;

	wr.next = NULL;
	rc = ibv_post_send(qp, &wr, &bad);
	return bad == &wr ? rc : -1;
}

static void posting(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 64, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp *ud = rig_qp(r, IBV_QPT_UD, cq, cq, NULL);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &srq_attr);
	struct ibv_qp *sharing = rig_qp(r, IBV_QPT_RC, cq, cq, srq);
	struct ibv_sge sge[5] = { { (uintptr_t)r->buffer, 4, r->mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 1 };
	struct ibv_recv_wr recv = { .sg_list = sge, .num_sge = 5 }, *bad;
	struct ibv_wc wc;

	SAYS("RESET", rig_post_recv(r, qp, 1, 0, 8) == EINVAL);
	SAYS("RTS", rig_post_send(r, qp, 1, 0, 8, 0) == EINVAL);
	/* Nobody answers at this number, so that the send queue stays full. */
	assert_int_equal(rig_to_init(qp), 0);
	assert_int_equal(rig_to_rtr(qp, 0xfffff0), 0);
	assert_int_equal(rig_to_rts(qp), 0);
	rig_connect_self(ud);
	wr.opcode = IBV_WR_TSO;
	SAYS("opcode", post(qp, wr) == EINVAL);
	wr.opcode = IBV_WR_RDMA_READ;
	SAYS("opcode", post(ud, wr) == EINVAL);
	wr.send_flags = IBV_SEND_INLINE;
	SAYS("inline", post(qp, wr) == EINVAL);
	wr.send_flags = 0;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	SAYS("8 bytes", post(qp, wr) == EINVAL);
	wr.opcode = IBV_WR_BIND_MW;
	SAYS("bind_mw.mw", post(qp, wr) == EINVAL);
	wr.opcode = IBV_WR_SEND;
	SAYS("wr.ud.ah", post(ud, wr) == EINVAL);
	wr.num_sge = 5;
	SAYS("scatter/gather", post(qp, wr) == EINVAL);
	SAYS("inline data", rig_post_send(r, qp, 1, 0, 1000, IBV_SEND_INLINE) == EINVAL);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(rig_post_send(r, qp, 1, 0, 8, 0), 0);
		assert_int_equal(rig_post_recv(r, qp, 1, 0, 8), 0);
	}
	SAYS("full", rig_post_send(r, qp, 1, 0, 8, 0) == ENOMEM);
	SAYS("at most 16", rig_post_recv(r, qp, 1, 0, 8) == ENOMEM);
	SAYS("SGEs", ibv_post_recv(qp, &recv, &bad) == EINVAL && bad == &recv);
	assert_int_equal(rig_to_init(sharing), 0);
	SAYS("SRQ", rig_post_recv(r, sharing, 1, 0, 8) == EINVAL);
	SAYS("SGEs", ibv_post_srq_recv(srq, &recv, &bad) == EINVAL && bad == &recv);
	SAYS("num_entries", ibv_poll_cq(cq, -1, &wc) == -1);
	SAYS("channel", ibv_req_notify_cq(cq, 0) == EINVAL);
	assert_int_equal(ibv_destroy_qp(sharing), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_qp(ud), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* Batches of the ibv_wr_* family, and polls of the ibv_start_poll family. */
static void builders(void **state)
{
	struct rig *r = *state;
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4 };
	struct ibv_cq_ex *cq_ex = ibv_create_cq_ex(r->ctx, &cq_attr);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(cq_ex);
	struct ibv_poll_cq_attr poll_attr = { .comp_mask = 1 };
	struct ibv_modify_cq_attr modify_attr = { .attr_mask = 2 };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.pd = r->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(r->ctx, &attr);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_sge list[31] = { 0 };
	static uint8_t data[2000];

	assert_non_null(ex);
	rig_connect_self(qp);
	SAYS("comp_mask", ibv_start_poll(cq_ex, &poll_attr) == EINVAL);
	SAYS("attr_mask", ibv_modify_cq(cq, &modify_attr) == EINVAL);
	ibv_wr_start(ex);
	SAYS("no request", (ibv_wr_set_sge(ex, 1, 1, 1), true));
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	SAYS("31 entries", (ibv_wr_set_sge_list(ex, 31, list), true));
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	SAYS("2000 bytes", (ibv_wr_set_inline_data(ex, data, sizeof(data)), true));
	assert_int_equal(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_send(ex);
	SAYS("max_send_wr", ibv_wr_complete(ex) == ENOMEM);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void shared_queues(void **state)
{
	struct rig *r = *state;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_srq_attr attr = { .max_wr = 0, .srq_limit = 5 };
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	uint32_t n;

	SAYS("srq_attr_mask", ibv_modify_srq(srq, &attr, 8) == EINVAL);
	SAYS("max_wr", ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL);
	SAYS("srq_limit", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == EINVAL);
	SAYS("XRC", ibv_get_srq_num(srq, &n) == EINVAL);
	SAYS("cqe", ibv_resize_cq(cq, 0) == EINVAL);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* What isn't there. */
static void absent(void **state)
{
	struct rig *r = *state;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_UD);
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .port = 1 };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_wq_init_attr wq = { 0 };
	struct ibv_ece ece;
	union ibv_gid gid = { .raw = { 0xfe, 0x80 } };

	SAYS("create_flow", NO_OBJECT(ibv_create_flow(p.a, &flow), EOPNOTSUPP));
	SAYS("create_counters", NO_OBJECT(ibv_create_counters(r->ctx, &counters), EOPNOTSUPP));
	SAYS("create_wq", NO_OBJECT(ibv_create_wq(r->ctx, &wq), EOPNOTSUPP));
	SAYS("rate_limit", ibv_modify_qp_rate_limit(p.a, &rate) == EOPNOTSUPP);
	SAYS("set_ece", ibv_set_ece(p.a, &ece) == EOPNOTSUPP);
	SAYS("query_ece", ibv_query_ece(p.a, &ece) == EOPNOTSUPP);
	SAYS("multicast", ibv_attach_mcast(p.a, &gid, 0) == EINVAL);
	rig_pair_free(&p);
}

static void in_the_child(struct rig *r, struct ibv_qp *qp, struct ibv_cq *cq)
{
	const char *word = r->ctx->device->name;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;

	SAYS(word, NO_OBJECT(ibv_alloc_pd(r->ctx), EPERM));
	SAYS(word, NO_OBJECT(ibv_create_cq(r->ctx, 1, NULL, NULL, 0), EPERM));
	SAYS(word, NO_OBJECT(ibv_create_comp_channel(r->ctx), EPERM));
	SAYS(word, NO_OBJECT(ibv_reg_mr(r->pd, r->buffer, 8, 0), EPERM));
	SAYS(word,
	     NO_OBJECT(make_qp(r, (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC }, cq), EPERM));
	SAYS(word, ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EPERM);
	SAYS(word, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == EPERM);
	SAYS(word, rig_post_send(r, qp, 1, 0, 8, 0) == EPERM);
	SAYS(word, rig_post_recv(r, qp, 1, 0, 8) == EPERM);
	SAYS(word, ibv_get_async_event(r->ctx, &event) == -1 && errno == EPERM);
}

/* A child can do nothing with its parent's context, and is told so. */
static void forked(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	int status;
	pid_t child;

	rig_connect_self(qp);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		in_the_child(r, qp, cq);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(null_objects), TEST(questions), TEST(creation), TEST(memory),
		TEST(transitions),  TEST(posting),   TEST(builders), TEST(shared_queues),
		TEST(absent),	    TEST(forked),
	};

	setenv("ROCELINK_LOG", "info", 1);
	rig_isolate();
	real_stderr = dup(2);
	captured = memfd_create("log", MFD_CLOEXEC);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
