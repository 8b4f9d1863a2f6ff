/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two queue pairs under a program and a network that are both hostile: the bytes are actions of
 * verbs calls, packets of a stranger who knows the numbers (with right ICRCs), loss and time. The
 * simulation checks its invariants after each event. Then both ends go to the error state: every
 * work request has completed once and in order, and no byte outside the regions has changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../sim/sim.h"
#include "../sim/sim_pcap.h"
#include "fuzz.h"

/* What bounds a run, so that there are hundreds in a second: actions, packets, and bytes of memory
 * and of most messages. */
#define ACTIONS_MAX 200
#define PACKETS_MAX 400
#define MEMORY	    (32u << 10)
#define MOSTLY_MAX  1024u
#define STEP_NS	    (10 * NS_PER_US)
#define REST_NS	    (NS_PER_SEC * 3)

const char *fuzz_pcap;

struct input {
	const uint8_t *at, *end;
};

struct run {
	struct sim sim;
	struct input in;
	unsigned sends[2], recvs[2]; /* posted */
	bool gone[2];		     /* the region was taken out */
};

static struct run run; /* large */

/* Zeros when there is no more. */
static uint32_t take(struct input *in, unsigned bytes)
{
	uint32_t v = 0;

	while (bytes-- && in->at < in->end)
		v = v << 8 | *in->at++;
	return v;
}

static struct sim_node *take_node(struct run *r, unsigned *i)
{
	*i = take(&r->in, 1) & 1;
	return &r->sim.node[*i];
}

/* Mostly within the region, sometimes beyond. */
static uint32_t take_offset(struct run *r)
{
	return take(&r->in, 2) % (MEMORY + MEMORY / 8);
}

/* Long ones are rare where each costs packets. */
static struct ibv_sge take_sge(struct run *r, const struct sim_node *n, bool may_be_long)
{
	uint32_t offset = take_offset(r), len = take(&r->in, 2);
	struct ibv_sge sge =
		sim_sge(n, offset, may_be_long || len >> 13 == 7 ? len & 0x1fff : len % MOSTLY_MAX);

	sge.lkey ^= (len & 0x1f) == 0x1f;
	return sge;
}

static void post_send(struct run *r)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,	      IBV_WR_SEND_WITH_IMM,	   IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,     IBV_WR_RDMA_WRITE_WITH_IMM,  IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	unsigned i;
	struct sim_node *n = take_node(r, &i);
	uint32_t kind = take(&r->in, 1), offset = take_offset(r);
	struct ibv_sge sge[3];
	struct path path = sim_path(!i);
	struct ibv_send_wr wr = { .wr_id = r->sends[i],
				  .sg_list = sge,
				  .opcode = opcodes[kind % ARRAY_LEN(opcodes)],
				  .send_flags = IBV_SEND_SIGNALED };
	bool atomic =
		wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint64_t va = sim_va(&r->sim.node[!i], offset);

	wr.num_sge = atomic ? 1 : kind >> 3 & 3;
	for (int k = 0; k < wr.num_sge; k++) {
		sge[k] = take_sge(r, n, false);
		if (atomic)
			sge[k].length = 8;
	}
	wr.send_flags |= kind & 0x20 ? IBV_SEND_FENCE : 0;
	wr.send_flags |= kind & 0x40 ? IBV_SEND_SOLICITED : 0;
	if (n->qp[0].cfg.type == IBV_QPT_UD) {
		wr.wr.ud.remote_qpn = r->sim.node[!i].qp[0].qpn;
		wr.wr.ud.remote_qkey = SIM_QKEY;
	} else if (atomic) {
		wr.wr.atomic.remote_addr = va & ~UINT64_C(7);
		wr.wr.atomic.rkey = r->sim.node[!i].mr.key;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = va;
		wr.wr.rdma.rkey = r->sim.node[!i].mr.key;
	}
	wr.qp_type.xrc.remote_srqn = SIM_SRQN;
	if (qp_post_send(&n->qp[0], &wr, &path) == 0)
		r->sends[i]++;
}

static void post_recv(struct run *r)
{
	unsigned i;
	struct sim_node *n = take_node(r, &i);
	struct ibv_sge sge[2] = { take_sge(r, n, true), take_sge(r, n, true) };
	struct ibv_recv_wr wr = { .wr_id = r->recvs[i],
				  .sg_list = sge,
				  .num_sge = sge[0].length & 1 ? 2 : 1 };

	if (sim_try_recv(n, 0, &wr) == 0)
		r->recvs[i]++;
}

/* A packet that fits in: its PSN near what the node waits for, keys and addresses of the node. */
static void fit_in(const struct sim_node *to, struct packet *p, uint32_t how)
{
	bool response = p->op->flags & OPF_RESPONSE;
	struct psn base = response ? to->qp[0].comp.una : to->qp[0].resp.epsn;

	p->psn = psn_add(base, (uint32_t)(int32_t)(int8_t)how);
	p->va = to->mr.iova + p->va % (MEMORY + MEMORY / 8);
	p->rkey = to->mr.key;
	p->qkey = SIM_QKEY;
	p->xrc_srqn = SIM_SRQN;
	p->dma_len &= 0xffff;
	p->src_qpn = 0x100;
}

static void stranger(struct run *r)
{
	uint8_t bytes[PACKET_HEADER_MAX + MTU_MAX + ICRC_LEN];
	unsigned i;
	struct sim_node *to = take_node(r, &i);
	uint32_t how = take(&r->in, 2), len = take(&r->in, 2);
	size_t left = (size_t)(r->in.end - r->in.at);
	struct packet p = { 0 };

	len = len < left ? len : (uint32_t)left;
	len = len < sizeof(bytes) ? len : sizeof(bytes);
	memcpy(bytes, r->in.at, len);
	r->in.at += len;
	if (len < BTH_LEN + ICRC_LEN)
		return;
	bytes[5] = (uint8_t)(to->qp[0].qpn >> 16);
	bytes[6] = (uint8_t)(to->qp[0].qpn >> 8);
	bytes[7] = (uint8_t)to->qp[0].qpn;
	if (how & 0x100 && packet_parse(&p, bytes, len) == DROP_NONE) {
		fit_in(to, &p, how);
		packet_build_headers(&p, bytes);
	}
	sim_inject_bytes(&r->sim, i, bytes, len);
}

static void lose(struct run *r)
{
	unsigned i;
	struct sim_node *n = take_node(r, &i);

	if (n->sent < 48)
		r->sim.cfg.drop_mask[i] |= (uint64_t)take(&r->in, 2) << n->sent;
}

/* Take the region out; a work request that names it fails from now on. */
static void deregister(struct run *r)
{
	unsigned i;
	struct sim_node *n = take_node(r, &i);

	if (!r->gone[i])
		mem_remove(&n->mem, &n->mr);
	r->gone[i] = true;
}

static void act(struct run *r)
{
	unsigned i;

	switch (take(&r->in, 1) & 15) {
	case 0:
	case 1:
	case 2:
		post_send(r);
		break;
	case 3:
	case 4:
		post_recv(r);
		break;
	case 5:
	case 6:
		sim_run(&r->sim, STEP_NS * (1 + take(&r->in, 1)));
		break;
	case 7:
		sim_run(&r->sim, NS_PER_MS * (1 + take(&r->in, 1)));
		break;
	case 8:
		lose(r);
		break;
	case 9:
		deregister(r);
		break;
	case 10:
		sim_to_error(&r->sim, &take_node(r, &i)->qp[0]);
		break;
	default:
		stranger(r);
	}
}

static void set_up(struct run *r)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC,      IBV_QPT_RC,
						  IBV_QPT_RC, IBV_QPT_UC,      IBV_QPT_UC,
						  IBV_QPT_UD, IBV_QPT_XRC_SEND };
	struct sim_config cfg = sim_defaults;
	uint32_t how = take(&r->in, 1);

	cfg.pair[0].type = types[how & 7];
	cfg.mtu = how & 8 ? IBV_MTU_1024 : IBV_MTU_256;
	cfg.psn = how & 16 ? 0xfffffe : 0x1000;
	cfg.rd_atomic = how & 32 ? 1 : 4;
	cfg.retry_cnt = how & 64 ? 1 : 7;
	cfg.rnr_retry = how & 64 ? 1 : 7;
	cfg.pair[0].srq = how & 128 && cfg.pair[0].type != IBV_QPT_XRC_SEND ? 2 : 0;
	cfg.min_rnr_timer = 26; /* 82 ms: who retries for ever doesn't do so often */
	cfg.memory = MEMORY;
	cfg.wrs = 32;
	cfg.sges = 3;
	sim_start(&r->sim, &cfg);
	if (fuzz_pcap)
		r->sim.pcap = sim_pcap_open(fuzz_pcap);
}

/* Once and in order; all of them, but for receives that are left in a shared queue. */
static void check_completions(const struct ibv_wc *wc, unsigned n, unsigned posted, bool shared)
{
	assert_in_range(n, shared ? 0 : posted, posted);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(wc[i].wr_id, i);
}

/* Outside of a cmocka test a failed assertion would end the process without a word. */
static void __attribute__((constructor)) make_assertions_speak(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run *r = &run;

	memset(r->sends, 0, sizeof(r->sends));
	memset(r->recvs, 0, sizeof(r->recvs));
	memset(r->gone, 0, sizeof(r->gone));
	r->in = (struct input){ data, data + size };
	set_up(r);
	for (unsigned n = 0; r->in.at < r->in.end && n < ACTIONS_MAX; n++) {
		if (r->sim.node[0].sent + r->sim.node[1].sent > PACKETS_MAX)
			break;
		act(r);
	}
	sim_run(&r->sim, REST_NS);
	for (unsigned i = 0; i < 2; i++)
		sim_to_error(&r->sim, &r->sim.node[i].qp[0]);
	assert_true(sim_run(&r->sim, REST_NS));
	for (unsigned i = 0; i < 2; i++) {
		const struct sim_node *n = &r->sim.node[i];

		check_completions(n->send_wc, n->n_send_wc, r->sends[i], false);
		check_completions(n->recv_wc, n->n_recv_wc, r->recvs[i],
				  n->qp[0].cfg.srq || n->qp[0].cfg.type == IBV_QPT_XRC_RECV);
		assert_int_equal(qp_next_deadline(&n->qp[0]), TIME_NEVER);
	}
	if (r->sim.pcap)
		fclose(r->sim.pcap);
	sim_end(&r->sim);
	return 0;
}
