/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pair attributes as text: one row per attribute, so that none is forgotten. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "rocelink/rocelink.h"

struct text {
	char *buf;
	size_t size, len; /* len: of the whole text, stored or not */
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *format, ...)
{
	size_t at = t->len < t->size ? t->len : t->size;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->buf ? t->buf + at : NULL, t->size - at, format, args);
	va_end(args);
	if (n > 0)
		t->len += (size_t)n;
}

static const char *state_name(enum ibv_qp_state state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < ARRAY_LEN(names) ? names[state] : "unknown";
}

static void put_state(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%s", state_name(a->qp_state));
}

static void put_access(struct text *t, const struct ibv_qp_attr *a)
{
	unsigned f = a->qp_access_flags;

	put(t, "0x%x (remote:%s%s%s%s)", f, f & IBV_ACCESS_REMOTE_WRITE ? " write" : "",
	    f & IBV_ACCESS_REMOTE_READ ? " read" : "",
	    f & IBV_ACCESS_REMOTE_ATOMIC ? " atomic" : "",
	    f & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
		    ? ""
		    : " nothing");
}

static void put_pkey_index(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%u", a->pkey_index);
}

static void put_port(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%u", a->port_num);
}

static void put_qkey(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "0x%08x", a->qkey);
}

static void put_av(struct text *t, const struct ibv_qp_attr *a)
{
	const struct ibv_ah_attr *ah = &a->ah_attr;
	char gid[INET6_ADDRSTRLEN];

	if (!ah->is_global) {
		put(t, "is_global 0 (no GRH), dlid %u, sl %u, port %u", ah->dlid, ah->sl,
		    ah->port_num);
		return;
	}
	inet_ntop(AF_INET6, &ah->grh.dgid, gid, sizeof(gid));
	put(t,
	    "is_global 1, dgid %s, sgid_index %u, hop_limit %u, traffic_class %u, flow_label 0x%x, "
	    "sl %u, "
	    "port %u",
	    gid, ah->grh.sgid_index, ah->grh.hop_limit, ah->grh.traffic_class, ah->grh.flow_label,
	    ah->sl, ah->port_num);
	if (ah->dlid)
		put(t, ", dlid %u", ah->dlid);
}

static void put_mtu(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "code %d (%u bytes)", a->path_mtu, rocelink_mtu_bytes(a->path_mtu));
}

static void put_timeout(struct text *t, const struct ibv_qp_attr *a)
{
	if (a->timeout == 0)
		put(t, "code 0 (wait for ever)");
	else
		put(t, "code %u (%.3f ms)", a->timeout,
		    (double)rocelink_ack_timeout_us(a->timeout) / 1000);
}

static void put_retry(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%u", a->retry_cnt);
}

static void put_rnr_retry(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%u%s", a->rnr_retry, a->rnr_retry == 7 ? " (for ever)" : "");
}

static void put_rq_psn(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "0x%06x (the peer's first packet)", a->rq_psn);
}

static void put_initiator(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%u (READs and atomics outstanding from here)", a->max_rd_atomic);
}

static void put_min_rnr(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "code %u (%.2f ms)", a->min_rnr_timer,
	    (double)rocelink_rnr_delay_us(a->min_rnr_timer) / 1000);
}

static void put_sq_psn(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "0x%06x (our first packet)", a->sq_psn);
}

static void put_responder(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%u (READs and atomics served at a time)", a->max_dest_rd_atomic);
}

static void put_dest_qpn(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "0x%06x", a->dest_qp_num);
}

static void put_mig(struct text *t, const struct ibv_qp_attr *a)
{
	put(t, "%d", a->path_mig_state);
}

/* clang-format off */
static const struct {
	int bit;
	const char *name;
	void (*put)(struct text *t, const struct ibv_qp_attr *a);
} rows[] = {
	{ IBV_QP_STATE,              "qp_state",           put_state },
	{ IBV_QP_PKEY_INDEX,         "pkey_index",         put_pkey_index },
	{ IBV_QP_PORT,               "port_num",           put_port },
	{ IBV_QP_ACCESS_FLAGS,       "qp_access_flags",    put_access },
	{ IBV_QP_QKEY,               "qkey",               put_qkey },
	{ IBV_QP_AV,                 "ah_attr",            put_av },
	{ IBV_QP_PATH_MTU,           "path_mtu",           put_mtu },
	{ IBV_QP_DEST_QPN,           "dest_qp_num",        put_dest_qpn },
	{ IBV_QP_RQ_PSN,             "rq_psn",             put_rq_psn },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", put_responder },
	{ IBV_QP_MIN_RNR_TIMER,      "min_rnr_timer",      put_min_rnr },
	{ IBV_QP_SQ_PSN,             "sq_psn",             put_sq_psn },
	{ IBV_QP_TIMEOUT,            "timeout",            put_timeout },
	{ IBV_QP_RETRY_CNT,          "retry_cnt",          put_retry },
	{ IBV_QP_RNR_RETRY,          "rnr_retry",          put_rnr_retry },
	{ IBV_QP_MAX_QP_RD_ATOMIC,   "max_rd_atomic",      put_initiator },
	{ IBV_QP_PATH_MIG_STATE,     "path_mig_state",     put_mig },
};
/* clang-format on */

size_t rocelink_attr_text(const struct ibv_qp_attr *attr, int attr_mask, char *buf, size_t len)
{
	struct text t = { .buf = len ? buf : NULL, .size = len };

	if (len)
		buf[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (!(attr_mask & rows[i].bit))
			continue;
		put(&t, "%s%s: ", t.len ? "\n" : "", rows[i].name);
		rows[i].put(&t, attr);
	}
	return t.len;
}
