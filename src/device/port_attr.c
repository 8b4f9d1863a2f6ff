/* SPDX-License-Identifier: BSD-2-Clause */
/* What a device and its port say of themselves: every capability that is named here works. */
#include <time.h>

#include "base/log.h"
#include "device/device.h"

/* Not an organisation's number: what software adapters give; 0 is taken for an error by some
 * programs. */
#define VENDOR_ID 0xffffff

/* Physical port states and GRH flag as InfiniBand management numbers them (IBA 14.2.5.6). */
enum { PHYS_DISABLED = 3, PHYS_LINK_UP = 5 };
#define QPF_GRH_REQUIRED 1

/* IBV_DEVICE_ATOMIC_WRITE of later headers, which programs built with them look for. */
#define CAP_EX_ATOMIC_WRITE (UINT64_C(1) << 40)

void dev_query_device(struct dev_context *ctx, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.fw_ver = ROCELINK_VERSION,
		.node_guid = ctx->dev->guid,
		.sys_image_guid = ctx->dev->guid,
		.max_mr_size = UINT64_MAX,
		.page_size_cap = UINT64_MAX & ~UINT64_C(0xfff),
		.vendor_id = VENDOR_ID,
		.max_qp = dev_limit(DEV_QP),
		.max_qp_wr = QP_MAX_WR,
		.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
				    IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_UD_AV_PORT_ENFORCE | IBV_DEVICE_SRQ_RESIZE |
				    IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_sge = QP_MAX_SGE,
		.max_sge_rd = QP_MAX_SGE,
		.max_cq = dev_limit(DEV_CQ),
		.max_cqe = DEV_MAX_CQE,
		.max_mr = dev_limit(DEV_MR),
		.max_mw = dev_limit(DEV_MW),
		.max_pd = dev_limit(DEV_PD),
		.max_qp_rd_atom = QP_MAX_RD_ATOMIC,
		.max_res_rd_atom = QP_MAX_RD_ATOMIC * dev_limit(DEV_QP),
		.max_qp_init_rd_atom = QP_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mcast_grp = ENGINE_MAX_GROUPS,
		.max_mcast_qp_attach = ENGINE_MAX_GROUP_MEMBERS,
		.max_total_mcast_qp_attach = ENGINE_MAX_MEMBERS,
		.max_ah = dev_limit(DEV_AH),
		.max_srq = dev_limit(DEV_SRQ),
		.max_srq_wr = QP_MAX_WR,
		.max_srq_sge = QP_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
}

int dev_query_device_ex(struct dev_context *ctx, struct ibv_device_attr_ex *attr, size_t size)
{
	/* No page is pinned: every access is on demand. */
	const uint32_t odp_connected = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				       IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex full = {
		.odp_caps = {
			.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
			.per_transport_caps = {
				.rc_odp_caps = odp_connected | IBV_ODP_SUPPORT_READ |
					       IBV_ODP_SUPPORT_ATOMIC,
				.uc_odp_caps = odp_connected,
				.ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
					       IBV_ODP_SUPPORT_SRQ_RECV,
			},
		},
		.cq_mod_caps = { .max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX },
		.max_dm_size = DEV_DM_MAX,
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = NS_PER_SEC / 1000, /* kHz */
		.xrc_odp_caps = odp_connected | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
		.phys_port_cnt_ex = 1,
	};

	if (size < sizeof(full.orig_attr)) {
		log_info("query_device_ex: attr_size is %zu, must be at least %zu", size,
			 sizeof(full.orig_attr));
		return -EINVAL;
	}
	dev_query_device(ctx, &full.orig_attr);
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags | CAP_EX_ATOMIC_WRITE;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

int dev_query_rt_values(struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	values->comp_mask = asked & IBV_VALUES_MASK_RAW_CLOCK;
	if (values->comp_mask && clock_gettime(CLOCK_MONOTONIC, &values->raw_clock))
		return -errno;
	return 0;
}

/* The largest path MTU whose packets fit: IPv6, UDP, BTH, XRCETH, the longest extended header,
 * ICRC. */
static enum ibv_mtu mtu_code(unsigned link_mtu)
{
	const unsigned overhead = 40 + 8 + 12 + 4 + 28 + 4;
	enum ibv_mtu code = IBV_MTU_4096;

	while (code > IBV_MTU_256 && (128u << code) + overhead > link_mtu)
		code--;
	return code;
}

uint32_t dev_mtu(struct dev *dev)
{
	uint32_t mtu;

	pthread_mutex_lock(&dev->lock);
	mtu = 128u << mtu_code(dev->net.mtu);
	pthread_mutex_unlock(&dev->lock);
	return mtu;
}

/* Width and speed as codes (IBA 14.2.5.6); an interface that doesn't know its speed passes for 100
 * Gb/s. */
static void set_rate(struct ibv_port_attr *attr, uint32_t mbps)
{
	// clang-format off
	static const struct {
		uint32_t mbps;
		uint8_t width, speed;
	} rates[] = {
		{   1000, 1,   1 }, /* 1x SDR */
		{  10000, 1,   4 }, /* 1x QDR */
		{  25000, 1,  32 }, /* 1x EDR */
		{  40000, 2,   4 }, /* 4x QDR */
		{  50000, 1,  64 }, /* 1x HDR */
		{ 100000, 2,  32 }, /* 4x EDR */
		{ 200000, 2,  64 }, /* 4x HDR */
		{ 400000, 2, 128 }, /* 4x NDR */
	};
	// clang-format on
	size_t i = 0;

	if (mbps == 0)
		mbps = 100000;
	while (i + 1 < ARRAY_LEN(rates) && rates[i].mbps < mbps)
		i++;
	attr->active_width = rates[i].width;
	attr->active_speed = rates[i].speed;
}

int dev_query_port(struct dev_context *ctx, unsigned port, struct ibv_port_attr *attr)
{
	struct dev *dev = ctx->dev;
	uint64_t bad_pkey, bad_qkey;
	bool up;

	if (port != DEV_PORT) {
		log_info("query_port: port_num is %u, the device has port %u", port, DEV_PORT);
		return -EINVAL;
	}
	bad_pkey = dev_forked(ctx) ? 0 : engine_drops(ctx->engine, DROP_PKEY);
	bad_qkey = dev_forked(ctx) ? 0 : engine_drops(ctx->engine, DROP_QKEY);
	pthread_mutex_lock(&dev->lock);
	up = dev->net.up && !dev->link_fault;
	*attr = (struct ibv_port_attr){
		.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_code(dev->net.mtu),
		.gid_tbl_len = NETDEV_GIDS,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = QP_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.phys_state = up ? PHYS_LINK_UP : PHYS_DISABLED,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = QPF_GRH_REQUIRED,
	};
	set_rate(attr, dev->net.speed_mbps);
	attr->bad_pkey_cntr = (uint32_t)bad_pkey;
	attr->qkey_viol_cntr = (uint32_t)bad_qkey;
	pthread_mutex_unlock(&dev->lock);
	return 0;
}
