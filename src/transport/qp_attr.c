/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/qp_attr.h"

#include <errno.h>
#include <stdio.h>

#include "base/units.h"
#include "transport/qp.h"

/* One row per transition and service: attributes that must and that may be given. */
/* clang-format off */
#define ACC IBV_QP_ACCESS_FLAGS
#define PKEY IBV_QP_PKEY_INDEX
#define ALT IBV_QP_ALT_PATH
#define MIG IBV_QP_PATH_MIG_STATE
#define QKEY IBV_QP_QKEY
#define RNR IBV_QP_MIN_RNR_TIMER
#define INI IBV_QPT_XRC_SEND
#define TGT IBV_QPT_XRC_RECV
#define RTR_COMMON (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
static const struct transition {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	int required, optional;
} transitions[] = {
	{ IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, PKEY | IBV_QP_PORT | ACC,  0 },
	{ IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, PKEY | IBV_QP_PORT | ACC,  0 },
	{ IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, PKEY | IBV_QP_PORT | QKEY, 0 },
	{ IBV_QPT_RC, IBV_QPS_INIT,  IBV_QPS_INIT, 0, PKEY | IBV_QP_PORT | ACC },
	{ IBV_QPT_UC, IBV_QPS_INIT,  IBV_QPS_INIT, 0, PKEY | IBV_QP_PORT | ACC },
	{ IBV_QPT_UD, IBV_QPS_INIT,  IBV_QPS_INIT, 0, PKEY | IBV_QP_PORT | QKEY },
	{ IBV_QPT_RC, IBV_QPS_INIT,  IBV_QPS_RTR,  RTR_COMMON | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, ALT | ACC | PKEY },
	{ IBV_QPT_UC, IBV_QPS_INIT,  IBV_QPS_RTR,  RTR_COMMON, ALT | ACC | PKEY },
	{ IBV_QPT_UD, IBV_QPS_INIT,  IBV_QPS_RTR,  0, PKEY | QKEY },
	{ IBV_QPT_RC, IBV_QPS_RTR,   IBV_QPS_RTS,  IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_MAX_QP_RD_ATOMIC, ALT | ACC | RNR | MIG },
	{ IBV_QPT_UC, IBV_QPS_RTR,   IBV_QPS_RTS,  IBV_QP_SQ_PSN, ALT | ACC | MIG },
	{ IBV_QPT_UD, IBV_QPS_RTR,   IBV_QPS_RTS,  IBV_QP_SQ_PSN, QKEY },
	{ IBV_QPT_RC, IBV_QPS_RTS,   IBV_QPS_RTS,  0, ALT | ACC | RNR | MIG },
	{ IBV_QPT_UC, IBV_QPS_RTS,   IBV_QPS_RTS,  0, ALT | ACC | MIG },
	{ IBV_QPT_UD, IBV_QPS_RTS,   IBV_QPS_RTS,  0, QKEY },
	{ IBV_QPT_RC, IBV_QPS_RTS,   IBV_QPS_SQD,  0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPT_UC, IBV_QPS_RTS,   IBV_QPS_SQD,  0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPT_UD, IBV_QPS_RTS,   IBV_QPS_SQD,  0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPT_RC, IBV_QPS_SQD,   IBV_QPS_RTS,  0, ALT | ACC | RNR | MIG },
	{ IBV_QPT_UC, IBV_QPS_SQD,   IBV_QPS_RTS,  0, ALT | ACC | MIG },
	{ IBV_QPT_UD, IBV_QPS_SQD,   IBV_QPS_RTS,  0, QKEY },
	{ IBV_QPT_RC, IBV_QPS_SQD,   IBV_QPS_SQD,  0, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						      IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
						      PKEY | IBV_QP_PORT | ALT | ACC | RNR | MIG },
	{ IBV_QPT_UC, IBV_QPS_SQD,   IBV_QPS_SQD,  0, IBV_QP_AV | PKEY | IBV_QP_PORT | ALT | ACC | MIG },
	{ IBV_QPT_UD, IBV_QPS_SQD,   IBV_QPS_SQD,  0, PKEY | QKEY },
	/* XRC: an initiator is given what a requester needs, a target what a responder needs. */
	{ INI, IBV_QPS_RESET, IBV_QPS_INIT, PKEY | IBV_QP_PORT | ACC, 0 },
	{ TGT, IBV_QPS_RESET, IBV_QPS_INIT, PKEY | IBV_QP_PORT | ACC, 0 },
	{ INI, IBV_QPS_INIT,  IBV_QPS_INIT, 0, PKEY | IBV_QP_PORT | ACC },
	{ TGT, IBV_QPS_INIT,  IBV_QPS_INIT, 0, PKEY | IBV_QP_PORT | ACC },
	{ INI, IBV_QPS_INIT,  IBV_QPS_RTR,  RTR_COMMON, ALT | ACC | PKEY },
	{ TGT, IBV_QPS_INIT,  IBV_QPS_RTR,  RTR_COMMON | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, ALT | ACC | PKEY },
	{ INI, IBV_QPS_RTR,   IBV_QPS_RTS,  IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					    IBV_QP_MAX_QP_RD_ATOMIC, ALT | ACC | MIG },
	{ TGT, IBV_QPS_RTR,   IBV_QPS_RTS,  IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, ALT | ACC | RNR | MIG },
	{ INI, IBV_QPS_RTS,   IBV_QPS_RTS,  0, ALT | ACC | MIG },
	{ TGT, IBV_QPS_RTS,   IBV_QPS_RTS,  0, ALT | ACC | RNR | MIG },
	{ INI, IBV_QPS_RTS,   IBV_QPS_SQD,  0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ TGT, IBV_QPS_RTS,   IBV_QPS_SQD,  0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ INI, IBV_QPS_SQD,   IBV_QPS_RTS,  0, ALT | ACC | MIG },
	{ TGT, IBV_QPS_SQD,   IBV_QPS_RTS,  0, ALT | ACC | RNR | MIG },
	{ INI, IBV_QPS_SQD,   IBV_QPS_SQD,  0, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC | PKEY | IBV_QP_PORT | ALT | ACC | MIG },
	{ TGT, IBV_QPS_SQD,   IBV_QPS_SQD,  0, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC |
					       PKEY | IBV_QP_PORT | ALT | ACC | RNR | MIG },
	{ IBV_QPT_UC, IBV_QPS_SQE,   IBV_QPS_RTS,  0, ACC },
	{ IBV_QPT_UD, IBV_QPS_SQE,   IBV_QPS_RTS,  0, QKEY },
};

static const struct { int bit; const char *name; } attr_names[] = {
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY, "en_sqd_async_notify" }, { ACC, "qp_access_flags" },
	{ PKEY, "pkey_index" }, { IBV_QP_PORT, "port_num" }, { QKEY, "qkey" }, { IBV_QP_AV, "ah_attr" },
	{ IBV_QP_PATH_MTU, "path_mtu" }, { IBV_QP_TIMEOUT, "timeout" }, { IBV_QP_RETRY_CNT, "retry_cnt" },
	{ IBV_QP_RNR_RETRY, "rnr_retry" }, { IBV_QP_RQ_PSN, "rq_psn" }, { IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic" },
	{ ALT, "alt_ah_attr" }, { RNR, "min_rnr_timer" }, { IBV_QP_SQ_PSN, "sq_psn" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic" }, { MIG, "path_mig_state" }, { IBV_QP_CAP, "cap" },
	{ IBV_QP_DEST_QPN, "dest_qp_num" }, { IBV_QP_RATE_LIMIT, "rate_limit" },
};
/* clang-format on */

const char *qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return (unsigned)state < ARRAY_LEN(names) ? names[state] : "unknown";
}

const char *qp_type_name(enum ibv_qp_type type)
{
	switch ((int)type) {
	case IBV_QPT_RC:
		return "RC";
	case IBV_QPT_UC:
		return "UC";
	case IBV_QPT_UD:
		return "UD";
	case IBV_QPT_XRC_SEND:
		return "XRC_SEND";
	case IBV_QPT_XRC_RECV:
		return "XRC_RECV";
	default:
		return "unknown";
	}
}

static void name_attrs(int mask, char *out, size_t len)
{
	size_t at = 0;

	out[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(attr_names); i++)
		if ((mask & attr_names[i].bit) && at < len)
			at += (size_t)snprintf(out + at, len - at, "%s%s", at ? ", " : "",
					       attr_names[i].name);
}

static const struct transition *find_transition(enum ibv_qp_type type, enum ibv_qp_state from,
						enum ibv_qp_state to)
{
	for (size_t i = 0; i < ARRAY_LEN(transitions); i++)
		if (transitions[i].type == type && transitions[i].from == from &&
		    transitions[i].to == to)
			return &transitions[i];
	return NULL;
}

int qp_attr_check_transition(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			     int mask, char *why, size_t why_len)
{
	static const struct transition
		any_to_end; /* to RESET or ERR: from everywhere, nothing else */
	const struct transition *t = find_transition(type, from, to);
	char names[256];

	mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		t = &any_to_end;
	if (!t) {
		snprintf(why, why_len, "an %s queue pair can't go from %s to %s",
			 qp_type_name(type), qp_state_name(from), qp_state_name(to));
		return EINVAL;
	}
	if (t->required & ~mask) {
		name_attrs(t->required & ~mask, names, sizeof(names));
		snprintf(why, why_len, "%s to %s of an %s queue pair needs %s", qp_state_name(from),
			 qp_state_name(to), qp_type_name(type), names);
		return EINVAL;
	}
	if (mask & ~(t->required | t->optional)) {
		name_attrs(mask & ~(t->required | t->optional), names, sizeof(names));
		snprintf(why, why_len, "%s to %s of an %s queue pair doesn't take %s",
			 qp_state_name(from), qp_state_name(to), qp_type_name(type),
			 names[0] ? names : "an attribute it was given");
		return EINVAL;
	}
	return 0;
}

static int refuse(char *why, size_t why_len, const char *name, unsigned value, unsigned max)
{
	snprintf(why, why_len, "%s is %u; it must be at most %u", name, value, max);
	return EINVAL;
}

int qp_attr_check_values(const struct ibv_qp_attr *attr, int mask, const struct path *path,
			 uint32_t port_mtu, char *why, size_t why_len)
{
	const struct {
		int bit;
		const char *name;
		unsigned value, max;
	} limits[] = {
		{ PKEY, "pkey_index", attr->pkey_index, 0 },
		{ IBV_QP_TIMEOUT, "timeout", attr->timeout, 31 },
		{ IBV_QP_RETRY_CNT, "retry_cnt", attr->retry_cnt, 7 },
		{ IBV_QP_RNR_RETRY, "rnr_retry", attr->rnr_retry, 7 },
		{ RNR, "min_rnr_timer", attr->min_rnr_timer, 31 },
		{ IBV_QP_DEST_QPN, "dest_qp_num", attr->dest_qp_num, PSN_MASK },
		{ IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr->max_rd_atomic, QP_MAX_RD_ATOMIC },
		{ IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr->max_dest_rd_atomic,
		  QP_MAX_RD_ATOMIC },
	};

	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		if ((mask & limits[i].bit) && limits[i].value > limits[i].max)
			return refuse(why, why_len, limits[i].name, limits[i].value, limits[i].max);
	if ((mask & IBV_QP_PORT) && attr->port_num != 1) {
		snprintf(why, why_len, "port_num is %u; the device has one port, number 1",
			 attr->port_num);
		return EINVAL;
	}
	/* Not accepted to be ignored: IBV_DEVICE_AUTO_PATH_MIG isn't among the capabilities. */
	if ((mask & ALT) || ((mask & MIG) && attr->path_mig_state != IBV_MIG_MIGRATED)) {
		snprintf(why, why_len,
			 "there is no path migration: leave alt_ah_attr out, and path_mig_state "
			 "or let it be IBV_MIG_MIGRATED");
		return EOPNOTSUPP;
	}
	if ((mask & IBV_QP_AV) && !path) {
		snprintf(why, why_len,
			 "ah_attr.is_global is 0; RoCE needs the GRH: set is_global to 1, grh.dgid "
			 "to the peer's GID and grh.sgid_index to one of the device's");
		return EINVAL;
	}
	if (mask & IBV_QP_PATH_MTU) {
		if (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096)
			return refuse(why, why_len, "path_mtu (enum ibv_mtu)", attr->path_mtu,
				      IBV_MTU_4096);
		if (128u << attr->path_mtu > port_mtu)
			return refuse(why, why_len, "path_mtu in bytes", 128u << attr->path_mtu,
				      port_mtu);
	}
	return 0;
}

void qp_attr_store(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define STORE(bit, field)                        \
	do {                                     \
		if (mask & (bit))                \
			to->field = from->field; \
	} while (0)
	STORE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	STORE(ACC, qp_access_flags);
	STORE(PKEY, pkey_index);
	STORE(IBV_QP_PORT, port_num);
	STORE(QKEY, qkey);
	STORE(IBV_QP_AV, ah_attr);
	STORE(IBV_QP_PATH_MTU, path_mtu);
	STORE(IBV_QP_TIMEOUT, timeout);
	STORE(IBV_QP_RETRY_CNT, retry_cnt);
	STORE(IBV_QP_RNR_RETRY, rnr_retry);
	STORE(IBV_QP_RQ_PSN, rq_psn);
	STORE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	STORE(RNR, min_rnr_timer);
	STORE(IBV_QP_SQ_PSN, sq_psn);
	STORE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	STORE(MIG, path_mig_state);
	STORE(IBV_QP_DEST_QPN, dest_qp_num);
#undef STORE
}
