/* SPDX-License-Identifier: BSD-2-Clause */
/* What the device says of itself: each capability that is advertised works, each that isn't is refused;
 * limits; what a device without a feature refuses; many contexts. */
#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static int try_qp(struct rig *r, enum ibv_qp_type type, uint64_t send_ops, uint32_t create_flags)
{
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = r->pd,
		.send_ops_flags = send_ops,
		.create_flags = create_flags,
	};
	struct ibv_qp *qp;
	int error;

	attr.comp_mask |= send_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0;
	attr.comp_mask |= create_flags ? IBV_QP_INIT_ATTR_CREATE_FLAGS : 0;
	qp = ibv_create_qp_ex(r->ctx, &attr);
	error = errno;
	if (qp)
		assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	return qp ? 0 : error;
}

static bool modifies(struct rig *r, int mask)
{
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .cur_qp_state = IBV_QPS_RTS,
				    .path_mig_state = IBV_MIG_REARM,
				    .rate_limit = 1000,
				    .cap = { .max_send_wr = 32, .max_recv_wr = 32 } };
	bool works = ibv_modify_qp(p.a, &attr, IBV_QP_STATE | mask) == 0;

	rig_pair_free(&p);
	return works;
}

static bool cur_state(struct rig *r)
{
	return modifies(r, IBV_QP_CUR_STATE);
}

static bool resize_wr(struct rig *r)
{
	return modifies(r, IBV_QP_CAP);
}

static bool path_migration(struct rig *r)
{
	return modifies(r, IBV_QP_PATH_MIG_STATE) || modifies(r, IBV_QP_ALT_PATH);
}

static bool raw_packets(struct rig *r)
{
	return try_qp(r, IBV_QPT_RAW_PACKET, 0, 0) == 0;
}

static bool sys_image_guid(struct rig *r)
{
	struct ibv_device_attr attr;

	return ibv_query_device(r->ctx, &attr) == 0 && attr.sys_image_guid != 0 &&
	       attr.node_guid == ibv_get_device_guid(r->ctx->device);
}

static bool av_port(struct rig *r)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 2, .grh = { .hop_limit = 1 } };

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid), 0);
	return ibv_create_ah(r->pd, &attr) == NULL;
}

static bool rnr_nak(struct rig *r)
{
	struct rig_pair p = { .cq_a = rig_cq(r, 4, NULL) };
	struct ibv_qp_attr attr;
	bool works;

	p.a = rig_qp(r, IBV_QPT_RC, p.cq_a, p.cq_a, NULL);
	assert_int_equal(rig_to_init(p.a), 0);
	assert_int_equal(rig_to_rtr(p.a, p.a->qp_num), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 12 };
	assert_int_equal(ibv_modify_qp(p.a, &attr,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
					       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY),
			 0);
	assert_int_equal(rig_post_send(r, p.a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
	works = rig_await(p.cq_a).status == IBV_WC_RNR_RETRY_EXC_ERR;
	assert_int_equal(ibv_destroy_qp(p.a), 0);
	assert_int_equal(ibv_destroy_cq(p.cq_a), 0);
	return works;
}

static bool srq_resize(struct rig *r)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_srq_attr attr = { .max_wr = 64 };
	bool works = ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == 0 &&
		     ibv_query_srq(srq, &attr) == 0 && attr.max_wr >= 64;

	assert_int_equal(ibv_destroy_srq(srq), 0);
	return works;
}

static bool xrc(struct rig *r)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(r->ctx, &attr);

	return xrcd && ibv_close_xrcd(xrcd) == 0;
}

static bool window(struct rig *r, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(r->pd, type);

	return mw && ibv_dealloc_mw(mw) == 0;
}

static bool windows_1(struct rig *r)
{
	return window(r, IBV_MW_TYPE_1);
}

static bool windows_2(struct rig *r)
{
	return window(r, IBV_MW_TYPE_2);
}

static bool invalidation(struct rig *r)
{
	return try_qp(r, IBV_QPT_RC, IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV, 0) ==
	       0;
}

static bool flow_steering(struct rig *r)
{
	struct ibv_flow_attr attr = { .type = IBV_FLOW_ATTR_NORMAL, .port = 1 };
	struct rig_pair p = rig_pair_make(r, IBV_QPT_UD);
	struct ibv_flow *flow = ibv_create_flow(p.a, &attr);

	rig_pair_free(&p);
	return flow != NULL;
}

static uint32_t port_counter(struct rig *r, bool qkey)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(r->ctx, 1, &attr), 0);
	return qkey ? attr.qkey_viol_cntr : attr.bad_pkey_cntr;
}

/* A datagram with the wrong Q_Key is dropped and counted. */
static bool qkey_counter(struct rig *r)
{
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct rig_pair p = rig_pair_make(r, IBV_QPT_UD);
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	uint32_t before = port_counter(r, true);
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &ah_attr.grh.dgid), 0);
	wr.wr.ud.ah = ibv_create_ah(r->pd, &ah_attr);
	wr.wr.ud.remote_qpn = p.b->qp_num;
	wr.wr.ud.remote_qkey = 0x4321;
	assert_int_equal(rig_post_recv(r, p.b, 1, 4096, 200), 0);
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), 0);
	/* The right one after it arrives after it. */
	wr.wr.ud.remote_qkey = 0x1234;
	assert_int_equal(ibv_post_send(p.a, &wr, &bad), 0);
	rig_await_n(p.cq_b, 1);
	assert_int_equal(ibv_destroy_ah(wr.wr.ud.ah), 0);
	rig_pair_free(&p);
	return port_counter(r, true) == before + 1;
}

/* Each flag, and how it is found out whether the device does it; NULL: tested elsewhere, or nothing
 * that could be tried. */
static void test_capabilities(void **state)
{
	static const struct {
		unsigned flag;
		bool advertised;
		bool (*works)(struct rig *r);
	} table[] = {
		{ IBV_DEVICE_RESIZE_MAX_WR, false, resize_wr },
		{ IBV_DEVICE_BAD_PKEY_CNTR, true, NULL },
		{ IBV_DEVICE_BAD_QKEY_CNTR, true, qkey_counter },
		{ IBV_DEVICE_RAW_MULTI, false, raw_packets },
		{ IBV_DEVICE_AUTO_PATH_MIG, false, path_migration },
		{ IBV_DEVICE_CHANGE_PHY_PORT, false, NULL },
		{ IBV_DEVICE_UD_AV_PORT_ENFORCE, true, av_port },
		{ IBV_DEVICE_CURR_QP_STATE_MOD, true, cur_state },
		{ IBV_DEVICE_SHUTDOWN_PORT, false, NULL },
		{ IBV_DEVICE_INIT_TYPE, false, NULL },
		{ IBV_DEVICE_PORT_ACTIVE_EVENT, true, NULL }, /* test_event.c */
		{ IBV_DEVICE_SYS_IMAGE_GUID, true, sys_image_guid },
		{ IBV_DEVICE_RC_RNR_NAK_GEN, true, rnr_nak },
		{ IBV_DEVICE_SRQ_RESIZE, true, srq_resize },
		{ IBV_DEVICE_N_NOTIFY_CQ, false, NULL },
		{ IBV_DEVICE_MEM_WINDOW, true, windows_1 },
		{ IBV_DEVICE_UD_IP_CSUM, false, NULL },
		{ IBV_DEVICE_XRC, true, xrc },
		{ IBV_DEVICE_MEM_MGT_EXTENSIONS, true, invalidation },
		{ IBV_DEVICE_MEM_WINDOW_TYPE_2A, false, NULL },
		{ IBV_DEVICE_MEM_WINDOW_TYPE_2B, true, windows_2 },
		{ IBV_DEVICE_RC_IP_CSUM, false, NULL },
		{ IBV_DEVICE_RAW_IP_CSUM, false, raw_packets },
		{ IBV_DEVICE_MANAGED_FLOW_STEERING, false, flow_steering },
	};
	struct rig *r = *state;
	struct ibv_device_attr attr;
	unsigned known = 0;

	assert_int_equal(ibv_query_device(r->ctx, &attr), 0);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		known |= table[i].flag;
		if (!!(attr.device_cap_flags & table[i].flag) != table[i].advertised)
			fail_msg("flag 0x%x", table[i].flag);
		if (table[i].works && table[i].works(r) != table[i].advertised)
			fail_msg("capability 0x%x: advertised is not what works", table[i].flag);
	}
	assert_int_equal(attr.device_cap_flags & ~known, 0);
}

static void test_extended_attributes(void **state)
{
	struct rig *r = *state;
	struct ibv_query_device_ex_input input = { .comp_mask = 1 };
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;

	assert_int_equal(ibv_query_device_ex(r->ctx, &input, &attr), EINVAL);
	assert_int_equal(ibv_query_device_ex(r->ctx, NULL, &attr), 0);
	/* Atomic write has a bit beyond those with names in the header. */
	assert_int_equal(attr.device_cap_flags_ex, attr.orig_attr.device_cap_flags | UINT64_C(1)
											     << 40);
	assert_int_equal(attr.completion_timestamp_mask, UINT64_MAX);
	assert_int_equal(attr.hca_core_clock, 1000000);
	assert_int_equal(attr.cq_mod_caps.max_cq_count, UINT16_MAX);
	assert_int_equal(attr.phys_port_cnt_ex, 1);
	assert_true(attr.orig_attr.fw_ver[0] != '\0');
	/* What there isn't. */
	assert_int_equal(attr.tso_caps.max_tso, 0);
	assert_int_equal(attr.rss_caps.supported_qpts, 0);
	assert_int_equal(attr.max_wq_type_rq, 0);
	assert_int_equal(attr.packet_pacing_caps.supported_qpts, 0);
	assert_int_equal(attr.raw_packet_caps, 0);
	assert_int_equal(attr.tm_caps.max_num_tags, 0);
	assert_int_equal(attr.pci_atomic_caps.fetch_add, 0);
	assert_int_equal(ibv_query_port(r->ctx, 1, &port), 0);
	assert_int_equal(port.port_cap_flags, IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS);
	assert_int_equal(port.flags, IBV_QPF_GRH_REQUIRED);
	assert_int_equal(port.port_cap_flags2, 0);
	assert_int_equal(ibv_get_device_index(r->ctx->device), -1);
}

/* Every operation that a service type advertises for on-demand regions works with one. */
static void test_on_demand_capabilities(void **state)
{
	const uint32_t connected = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				   IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV;
	struct rig *r = *state;
	struct ibv_device_attr_ex attr;
	struct ibv_mr *mr =
		ibv_reg_mr(r->pd, NULL, SIZE_MAX, RIG_ALL_ACCESS | IBV_ACCESS_ON_DEMAND);
	uint64_t here = (uintptr_t)r->buffer, there = here + 4096;

	assert_int_equal(ibv_query_device_ex(r->ctx, NULL, &attr), 0);
	assert_int_equal(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	assert_int_equal(attr.odp_caps.per_transport_caps.rc_odp_caps,
			 connected | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC);
	assert_int_equal(attr.odp_caps.per_transport_caps.uc_odp_caps, connected);
	assert_int_equal(attr.xrc_odp_caps, attr.odp_caps.per_transport_caps.rc_odp_caps);
	assert_non_null(mr);
	for (int rc = 0; rc < 2; rc++) {
		struct rig_pair p = rig_pair_make(r, rc ? IBV_QPT_RC : IBV_QPT_UC);
		struct ibv_sge sge = { there, 64, mr->lkey };
		struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;

		assert_int_equal(ibv_post_recv(p.b, &recv, &bad), 0);
		assert_int_equal(rig_run(&p, IBV_WR_SEND, here, 64, mr->lkey, 0, 0),
				 IBV_WC_SUCCESS);
		rig_await_n(p.cq_b, 1);
		assert_int_equal(
			rig_run(&p, IBV_WR_RDMA_WRITE, here, 64, mr->lkey, there, mr->rkey),
			IBV_WC_SUCCESS);
		if (rc) {
			assert_int_equal(
				rig_run(&p, IBV_WR_RDMA_READ, here, 64, mr->lkey, there, mr->rkey),
				IBV_WC_SUCCESS);
			assert_int_equal(rig_run(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, here, 8, mr->lkey,
						 there, mr->rkey),
					 IBV_WC_SUCCESS);
		}
		rig_pair_free(&p);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

#define REFUSED(call)                                \
	do {                                         \
		errno = 0;                           \
		assert_null(call);                   \
		assert_int_equal(errno, EOPNOTSUPP); \
	} while (0)

/* As a device without it does. */
static void test_refused(void **state)
{
	struct rig *r = *state;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .port = 1 };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .pd = r->pd, .cq = p.cq_a };
	struct ibv_srq_init_attr_ex srq = { .attr = { 8, 1, 0 },
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE |
							 IBV_SRQ_INIT_ATTR_PD |
							 IBV_SRQ_INIT_ATTR_TM,
					    .srq_type = IBV_SRQT_TM,
					    .pd = r->pd };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
	struct ibv_ah_attr ah = { 0 };
	struct ibv_ece ece = { 0 };
	uint8_t mac[6];
	uint16_t vlan;

	REFUSED(ibv_create_flow(p.a, &flow));
	REFUSED(ibv_create_flow_action_esp(r->ctx, &esp));
	REFUSED(ibv_create_counters(r->ctx, &counters));
	REFUSED(ibv_create_wq(r->ctx, &wq));
	REFUSED(ibv_create_rwq_ind_table(r->ctx, &table));
	REFUSED(ibv_create_srq_ex(r->ctx, &srq));
	assert_int_equal(try_qp(r, IBV_QPT_RAW_PACKET, 0, 0), EOPNOTSUPP);
	assert_int_equal(try_qp(r, IBV_QPT_DRIVER, 0, 0), EOPNOTSUPP);
	assert_int_equal(try_qp(r, IBV_QPT_RC, IBV_QP_EX_WITH_TSO, 0), EOPNOTSUPP);
	assert_int_equal(try_qp(r, IBV_QPT_UD, 0, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB), EOPNOTSUPP);
	assert_int_equal(try_qp(r, IBV_QPT_RC, 0, IBV_QP_CREATE_SCATTER_FCS), EOPNOTSUPP);
	assert_int_equal(ibv_modify_qp_rate_limit(p.a, &rate), EOPNOTSUPP);
	assert_int_equal(ibv_set_ece(p.a, &ece), EOPNOTSUPP);
	assert_int_equal(ibv_query_ece(p.a, &ece), EOPNOTSUPP);
	assert_int_equal(ibv_resolve_eth_l2_from_gid(r->ctx, &ah, mac, &vlan), EOPNOTSUPP);
	assert_int_equal(ibv_query_qp_data_in_order(p.a, IBV_WR_RDMA_WRITE, 0), 0);
	assert_false(modifies(r, IBV_QP_RATE_LIMIT));
	rig_pair_free(&p);
}

/* Flags of the creation that are accepted where there is nothing to do. */
static void test_parent_domain(void **state)
{
	struct rig *r = *state;
	struct ibv_parent_domain_init_attr attr = {
		.pd = r->pd,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	};
	struct ibv_td_init_attr td_attr = { .comp_mask = 1 };
	struct ibv_pd *pd = ibv_alloc_parent_domain(r->ctx, &attr);
	struct ibv_mr *mr;

	assert_non_null(pd);
	/* One protection domain under two names. */
	mr = ibv_reg_mr(pd, r->buffer, 64, RIG_ALL_ACCESS | IBV_ACCESS_HUGETLB);
	assert_non_null(mr);
	assert_ptr_equal(mr->pd, pd);
	{
		struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);

		assert_int_equal(rig_run(&p, IBV_WR_RDMA_WRITE, (uintptr_t)r->buffer + 4096, 64,
					 r->mr->lkey, (uintptr_t)r->buffer, mr->rkey),
				 IBV_WC_SUCCESS);
		rig_pair_free(&p);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	attr.comp_mask = 4;
	REFUSED(ibv_alloc_parent_domain(r->ctx, &attr));
	REFUSED(ibv_alloc_td(r->ctx, &td_attr));
	attr = (struct ibv_parent_domain_init_attr){ 0 };
	assert_null(ibv_alloc_parent_domain(r->ctx, &attr));
	assert_int_equal(errno, EINVAL);
}

/* A program that asks for fork support gets it: no page is pinned. (What the answer is before depends on
 * the system's library, which may have devices of its own.) */
static void test_fork_support(void **state)
{
	struct rig *r = *state;
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = 4, .max_sge = 1 },
					     .comp_mask =
						     IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
					     .srq_type = IBV_SRQT_BASIC,
					     .pd = r->pd };
	struct ibv_srq *srq = ibv_create_srq_ex(r->ctx, &attr);

	assert_non_null(srq);
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_not_equal(ibv_is_fork_initialized(), IBV_FORK_DISABLED);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Opened and closed 10,000 times, by itself and beside another: nothing is left over. */
static void test_open_and_close(void **state)
{
	struct ibv_context *beside = rig_open("lo");
	int before = open_files();

	(void)state;
	for (int i = 0; i < 9000; i++)
		assert_int_equal(ibv_close_device(rig_open("lo")), 0);
	assert_int_equal(open_files(), before);
	assert_int_equal(ibv_close_device(beside), 0);
	before = open_files();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_close_device(rig_open("lo")), 0);
	assert_int_equal(open_files(), before);
}

/* Contexts of one device are apart but for the wire. */
static void test_many_contexts(void **state)
{
	enum { N = 64 };
	struct rig *rigs[N];
	struct ibv_cq *cq[N];
	struct ibv_qp *qp[N];
	void *rig;

	(void)state;
	for (int i = 0; i < N; i++) {
		assert_int_equal(rig_setup(&rig), 0);
		rigs[i] = rig;
		cq[i] = rig_cq(rigs[i], 8, NULL);
		qp[i] = rig_qp(rigs[i], IBV_QPT_RC, cq[i], cq[i], NULL);
	}
	for (int i = 0; i < N; i += 2)
		rig_connect(qp[i], qp[i + 1]);
	for (int i = 0; i < N; i += 2) {
		memset(rigs[i]->buffer, i + 1, 64);
		assert_int_equal(rig_post_recv(rigs[i + 1], qp[i + 1], 1, 0, 64), 0);
		assert_int_equal(rig_post_send(rigs[i], qp[i], 2, 0, 64, IBV_SEND_SIGNALED), 0);
	}
	for (int i = 0; i < N; i++) {
		rig_await_n(cq[i], 1);
		assert_int_equal(rigs[i]->buffer[63], (i & ~1) + 1);
	}
	/* Another's protection domain isn't this one's. */
	assert_int_equal(rig_post_send(rigs[1], qp[0], 2, 0, 64, IBV_SEND_SIGNALED), 0);
	assert_int_equal(rig_await(cq[0]).status, IBV_WC_LOC_PROT_ERR);
	for (int i = 0; i < N; i++) {
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
		assert_int_equal(ibv_destroy_cq(cq[i]), 0);
		rig = rigs[i];
		rig_teardown(&rig);
	}
}

/* The first packet on a queue pair in RTR tells; a datagram's local error stops its send queue only. */
static void test_states(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 16, NULL);
	struct ibv_qp *a = rig_qp(r, IBV_QPT_RC, cq, cq, NULL),
		      *b = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp *ud = rig_qp(r, IBV_QPT_UD, cq, cq, NULL);
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey ^ 0x100 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_async_event event;

	assert_int_equal(rig_to_init(a), 0);
	assert_int_equal(rig_to_init(b), 0);
	assert_int_equal(rig_to_rtr(a, b->qp_num), 0);
	assert_int_equal(rig_to_rtr(b, a->qp_num), 0);
	assert_int_equal(rig_to_rts(a), 0);
	assert_int_equal(rig_post_recv(r, b, 1, 4096, 64), 0);
	assert_int_equal(rig_post_send(r, a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
	rig_await_n(cq, 2);
	event = rig_await_event(r->ctx, IBV_EVENT_COMM_EST);
	assert_ptr_equal(event.element.qp, b);
	ibv_ack_async_event(&event);

	rig_connect_self(ud);
	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &ah_attr.grh.dgid), 0);
	wr.wr.ud.ah = ibv_create_ah(r->pd, &ah_attr);
	wr.wr.ud.remote_qpn = ud->qp_num;
	wr.wr.ud.remote_qkey = 0x1234;
	assert_int_equal(ibv_post_send(ud, &wr, &bad), 0);
	assert_int_equal(rig_await(cq).status, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_query_qp(ud, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_SQE);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(ud, &attr, IBV_QP_STATE), 0);
	sge.lkey = r->mr->lkey;
	assert_int_equal(rig_post_recv(r, ud, 1, 4096, 64), 0);
	assert_int_equal(ibv_post_send(ud, &wr, &bad), 0);
	rig_await_n(cq, 1);
	assert_int_equal(ibv_destroy_ah(wr.wr.ud.ah), 0);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_qp(ud), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_capabilities),
		TEST(test_extended_attributes),
		TEST(test_on_demand_capabilities),
		TEST(test_refused),
		TEST(test_parent_domain),
		TEST(test_states),
		TEST(test_fork_support),
		cmocka_unit_test(test_open_and_close),
		cmocka_unit_test(test_many_contexts),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
