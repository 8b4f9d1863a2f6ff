/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UD messages, counted. UD because nothing repeats what is lost, and each direction can be judged
 * alone: RoCE packets of both directions go to port 4791, so a firewall must let in both.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor.h"

enum { GRH = 40, SLOT = 4096 + GRH, STRAGGLERS_US = 300000, SEND_US = 5000000 };

struct probe {
	struct rocelink_endpoint *ep;
	struct ibv_mr *mr;
	struct rocelink_qp_info info;
	unsigned arrived;
	uint8_t buf[(PROBES + 1) * SLOT]; /* the last is sent from */
};

struct probe *probe_open(const struct rocelink_conn *conn, struct rocelink_error *err)
{
	struct probe *p = calloc(1, sizeof(*p));

	if (!p) {
		snprintf(err->text, sizeof(err->text), "out of memory");
		return NULL;
	}
	p->ep = rocelink_endpoint_open(ROCELINK_ENDPOINT(.conn = conn, .type = IBV_QPT_UD), err);
	if (!p->ep) {
		free(p);
		return NULL;
	}
	p->mr = ibv_reg_mr(p->ep->pd, p->buf, sizeof(p->buf), IBV_ACCESS_LOCAL_WRITE);
	if (!p->mr) {
		snprintf(err->text, sizeof(err->text), "ibv_reg_mr: %s", strerror(errno));
		probe_close(p);
		return NULL;
	}
	return p;
}

void probe_close(struct probe *p)
{
	if (!p)
		return;
	if (p->mr)
		ibv_dereg_mr(p->mr);
	rocelink_endpoint_close(p->ep);
	free(p);
}

static int fail(struct rocelink_error *err, const char *call, int error)
{
	err->code = ROCELINK_VERBS;
	snprintf(err->text, sizeof(err->text), "%s: %s", call, strerror(error));
	return ROCELINK_VERBS;
}

static int post_receive(struct probe *p, unsigned slot, struct rocelink_error *err)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)p->buf + slot * SLOT,
		.length = SLOT,
		.lkey = p->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	int ret = ibv_post_recv(p->ep->qp, &wr, &bad);

	return ret ? fail(err, "ibv_post_recv", ret) : ROCELINK_OK;
}

int probe_link(struct probe *p, struct rocelink_conn *conn, struct rocelink_error *err)
{
	int rc = rocelink_conn_add_qp(conn, p->ep->qp, NULL, err);

	for (unsigned i = 0; rc == ROCELINK_OK && i < PROBES; i++)
		rc = post_receive(p, i, err);
	if (rc == ROCELINK_OK)
		rc = rocelink_conn_establish(conn, err);
	p->info.size = sizeof(p->info);
	return rc ? rc : rocelink_conn_qp(conn, 0, &p->info);
}

unsigned probe_mtu(const struct probe *p)
{
	return p->info.path_mtu;
}

const char *probe_gid(const struct probe *p)
{
	return p->info.gid.address;
}

static int post_probe(struct probe *p, uint32_t size, struct rocelink_error *err)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)p->buf + PROBES * SLOT,
		.length = size,
		.lkey = p->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = PROBES,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = {
			.ah = p->info.ah,
			.remote_qpn = p->info.remote_qpn,
			.remote_qkey = p->info.remote_qkey,
		},
	};
	int ret = ibv_post_send(p->ep->qp, &wr, &bad);

	return ret ? fail(err, "ibv_post_send", ret) : ROCELINK_OK;
}

/* One completion: a receive is counted and posted again. */
static int take(struct probe *p, uint64_t timeout_us, bool *sent, struct rocelink_error *err)
{
	struct ibv_wc wc;
	int rc = rocelink_wait_completion(p->ep->cq, NULL, timeout_us, &wc, err);

	if (rc)
		return rc;
	*sent = wc.wr_id == PROBES;
	if (*sent)
		return ROCELINK_OK;
	p->arrived++;
	return post_receive(p, (unsigned)wc.wr_id, err);
}

int probe_send(struct probe *p, uint32_t size, struct rocelink_error *err)
{
	unsigned done = 0;
	int rc = ROCELINK_OK;

	for (unsigned i = 0; rc == ROCELINK_OK && i < PROBES; i++)
		rc = post_probe(p, size, err);
	while (rc == ROCELINK_OK && done < PROBES) {
		bool sent = false;

		rc = take(p, SEND_US, &sent, err);
		done += sent;
	}
	return rc;
}

int probe_count(struct probe *p, struct rocelink_error *err)
{
	unsigned n;
	int rc = ROCELINK_OK;
	bool sent;

	while (rc == ROCELINK_OK && p->arrived < PROBES)
		rc = take(p, STRAGGLERS_US, &sent, err);
	n = p->arrived;
	p->arrived = 0;
	return rc == ROCELINK_OK || rc == ROCELINK_TIMEOUT ? (int)n : -1;
}
