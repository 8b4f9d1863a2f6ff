// SPDX-License-Identifier: BSD-2-Clause
/*
 * The scenes: one row each. Errors are provoked by the requester's second-to-last work request; one
 * more follows it, to see that the send queue is flushed. What is right is in matrix.py.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

enum { ALL = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };

static void report_requester(struct end *e, int n_wrs)
{
	uint64_t began = now_us();
	struct ibv_wc wc;

	for (int i = 0; i < n_wrs; i++) {
		bool got = next_wc(e, &wc, 20000);

		printf("wc%d=%s\n", i, got ? wc_name(wc.status) : "missing");
		if (i == 0)
			printf("elapsed_ms=%llu\n", (unsigned long long)(now_us() - began) / 1000);
	}
	printf("qp=%s\n", state_name(qp_state(e)));
}

static void report_memory(const struct end *e)
{
	for (size_t i = 0; i < 2 * REGION; i++) {
		if (e->buf[i]) {
			printf("memory=touched at=%zu\n", i);
			return;
		}
	}
	puts("memory=intact");
}

static void inspect(struct end *e)
{
	const char *event = next_event(e);

	printf("event=%s\nqp=%s\n", event, state_name(qp_state(e)));
	report_memory(e);
}

static void rdma(struct end *e, enum ibv_wr_opcode op, uint32_t len, uint64_t va_add,
		 uint32_t rkey_xor)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, len, e->mr->lkey };
	struct ibv_send_wr wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 };

	if (op == IBV_WR_RDMA_WRITE)
		memset(e->buf, 0xee, REGION);
	wr.wr.rdma.remote_addr = e->peer.va + va_add;
	wr.wr.rdma.rkey = e->peer.rkey ^ rkey_xor;
	post_wr(e, &wr);
}

static void fail_then_flush(struct end *e, enum ibv_wr_opcode op, uint32_t len, uint64_t va_add,
			    uint32_t rkey_xor)
{
	rdma(e, op, len, va_add, rkey_xor);
	post(e, 1, IBV_WR_SEND, 0, 8, 0);
	report_requester(e, 2);
	if (op == IBV_WR_RDMA_READ)
		report_memory(e);
}

/* Another index and another key byte: wrong in every way a key can be. */
static void act_wrong_rkey_write(struct end *e)
{
	fail_then_flush(e, IBV_WR_RDMA_WRITE, 64, 0, 0x00ff00ff);
}

static void act_wrong_rkey_read(struct end *e)
{
	fail_then_flush(e, IBV_WR_RDMA_READ, 64, 0, 0x00ff00ff);
}

/* The first bytes lie inside: none of them may be written either. */
static void act_beyond_write(struct end *e)
{
	fail_then_flush(e, IBV_WR_RDMA_WRITE, 5000, REGION - 4096, 0);
}

static void act_beyond_read(struct end *e)
{
	fail_then_flush(e, IBV_WR_RDMA_READ, 5000, REGION - 4096, 0);
}

static void act_below_write(struct end *e)
{
	fail_then_flush(e, IBV_WR_RDMA_WRITE, 64, (uint64_t)-32, 0);
}

static void act_plain_write(struct end *e)
{
	fail_then_flush(e, IBV_WR_RDMA_WRITE, 64, 0, 0);
}

static void act_plain_read(struct end *e)
{
	fail_then_flush(e, IBV_WR_RDMA_READ, 64, 0, 0);
}

static void act_misaligned_atomic(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.atomic.remote_addr = e->peer.va + 4;
	wr.wr.atomic.rkey = e->peer.rkey;
	wr.wr.atomic.compare_add = 1;
	post_wr(e, &wr);
	post(e, 1, IBV_WR_SEND, 0, 8, 0);
	report_requester(e, 2);
}

/* IBA C9-88: a zero-length WRITE or READ does not check the R_Key. */
static void act_zero_length(struct end *e)
{
	rdma(e, IBV_WR_RDMA_WRITE, 0, 1ull << 40, 0x00ff00ff);
	rdma(e, IBV_WR_RDMA_READ, 0, 1ull << 40, 0x00ff00ff);
	report_requester(e, 2);
}

static void act_send_twice(struct end *e)
{
	post(e, 0, IBV_WR_SEND, 0, 64, 0);
	post(e, 1, IBV_WR_SEND, 0, 8, 0);
	report_requester(e, 2);
}

static void act_send_once(struct end *e)
{
	post(e, 0, IBV_WR_SEND, 0, 64, 0);
	report_requester(e, 1);
}

/* The receive queue is filled only after many RNR NAKs. */
static void serve_late(struct end *e)
{
	struct ibv_wc wc;

	usleep(300000);
	post_receive(e, 0, 0, 4096);
	printf("receive=%s\n", next_wc(e, &wc, 20000) ? wc_name(wc.status) : "missing");
}

static void prepare_small(struct end *e)
{
	post_receive(e, 0, 0, 16);
}

static void inspect_small(struct end *e)
{
	struct ibv_wc wc;

	printf("receive=%s\n", next_wc(e, &wc, QUIET_MS) ? wc_name(wc.status) : "missing");
	inspect(e);
}

static void prepare_one(struct end *e)
{
	post_receive(e, 0, 0, 4096);
}

static void serve_die(struct end *e)
{
	struct ibv_wc wc;

	printf("receive=%s\n", next_wc(e, &wc, 20000) ? wc_name(wc.status) : "missing");
	usleep(300000); /* a completion here says nothing about the acknowledgement's departure */
	kill(getpid(), SIGKILL);
}

static void act_outlive(struct end *e)
{
	struct ibv_wc wc;
	char byte;

	post(e, 9, IBV_WR_SEND, 0, 64, 0);
	if (!next_wc(e, &wc, 20000) || wc.status != IBV_WC_SUCCESS)
		die("first_send");
	while (read(e->sock, &byte, 1) > 0)
		continue;
	usleep(300000); /* the dead process's queue pair is taken apart after its socket */
	act_send_twice(e);
	exit(0);
}

static void prepare_two(struct end *e)
{
	post_receive(e, 0, 0, 4096);
	post_receive(e, 1, 4096, 4096);
}

/* How many datagrams came, and which one first: the payloads are 'W' (wrong) and 'R' (right). */
static void inspect_datagrams(struct end *e)
{
	char first = '-';
	struct ibv_wc wc;
	int n = 0;

	while (next_wc(e, &wc, QUIET_MS)) {
		if (n++ == 0)
			first = (char)e->buf[wc.wr_id * 4096 + (e->ah ? 40 : 0)];
	}
	printf("received=%d first=%c\nqp=%s\n", n, first, state_name(qp_state(e)));
}

static void act_wrong_qkey(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, 64, e->mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };

	memset(e->buf, 'W', 64);
	memset(e->buf + 64, 'R', 64);
	wr.wr.ud.ah = e->ah;
	wr.wr.ud.remote_qpn = e->peer.qpn;
	wr.wr.ud.remote_qkey = QKEY + 1;
	post_wr(e, &wr);
	post(e, 1, IBV_WR_SEND, 64, 64, 0);
	report_requester(e, 2);
}

/* The second one shows that a forged packet does arrive when only the P_Key is right. */
static void act_wrong_pkey(struct end *e)
{
	memset(e->buf, 'W', 64);
	memset(e->buf + 64, 'R', 64);
	forge_ud_send(e, 0x9123, QKEY, e->buf, 64);
	forge_ud_send(e, 0xffff, QKEY, e->buf + 64, 64);
}

static void act_uc_wrong_rkey(struct end *e)
{
	rdma(e, IBV_WR_RDMA_WRITE, 3000, 0, 0x00ff00ff);
	memset(e->buf + REGION / 2, 'R', 64);
	post(e, 1, IBV_WR_SEND, REGION / 2, 64, 0);
	report_requester(e, 2);
}

/* clang-format off */
/*                    type    timeout retry rnr_retry rnr_timer  QP access  MR access (with local write) */
#define RC(access)  { IBV_QPT_RC, 16, 7,    7,        12,        ALL, IBV_ACCESS_LOCAL_WRITE | (access) }
#define UC          { IBV_QPT_UC, 0,  0,    0,        0,         ALL, IBV_ACCESS_LOCAL_WRITE | ALL }
#define UD          { IBV_QPT_UD, 0,  0,    0,        0,         0,   IBV_ACCESS_LOCAL_WRITE }
#define RC_RNR2     { IBV_QPT_RC, 16, 7,    2,        24,        ALL, IBV_ACCESS_LOCAL_WRITE | ALL }
#define RC_HASTY    { IBV_QPT_RC, 14, 3,    7,        12,        ALL, IBV_ACCESS_LOCAL_WRITE | ALL }
#define RC_NO_READ  { IBV_QPT_RC, 16, 7,    7,        12, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_LOCAL_WRITE | ALL }

const struct scene scenes[] = {
	/* name             knobs      prepare                act                    serve                inspect */
	{ "rc",             RC(ALL),   data_prepare_rc,       data_act_rc,           data_serve_rc,       NULL },
	{ "uc",             UC,        data_prepare_datagram, data_act_datagram,     data_serve_datagram, NULL },
	{ "ud",             UD,        data_prepare_datagram, data_act_datagram,     data_serve_datagram, NULL },
	{ "wrong-rkey-write", RC(ALL), NULL,                  act_wrong_rkey_write,  NULL,                inspect },
	{ "wrong-rkey-read", RC(ALL),  NULL,                  act_wrong_rkey_read,   NULL,                inspect },
	{ "beyond-write",   RC(ALL),   NULL,                  act_beyond_write,      NULL,                inspect },
	{ "beyond-read",    RC(ALL),   NULL,                  act_beyond_read,       NULL,                inspect },
	{ "below-write",    RC(ALL),   NULL,                  act_below_write,       NULL,                inspect },
	{ "no-access-write", RC(0),    NULL,                  act_plain_write,       NULL,                inspect },
	{ "qp-no-read",     RC_NO_READ, NULL,                 act_plain_read,        NULL,                inspect },
	{ "misaligned-atomic", RC(ALL), NULL,                 act_misaligned_atomic, NULL,                inspect },
	{ "zero-length",    RC(ALL),   NULL,                  act_zero_length,       NULL,                inspect },
	{ "rnr-used-up",    RC_RNR2,   NULL,                  act_send_twice,        NULL,                inspect },
	{ "rnr-late",       RC(ALL),   NULL,                  act_send_once,         serve_late,          NULL },
	{ "receive-too-small", RC(ALL), prepare_small,        act_send_twice,        NULL,                inspect_small },
	{ "peer-killed",    RC_HASTY,  prepare_one,           act_outlive,           serve_die,           NULL },
	{ "wrong-qkey",     UD,        prepare_two,           act_wrong_qkey,        NULL,                inspect_datagrams },
	{ "wrong-pkey",     UD,        prepare_two,           act_wrong_pkey,        NULL,                inspect_datagrams },
	{ "uc-wrong-rkey",  UC,        prepare_two,           act_uc_wrong_rkey,     NULL,                inspect_datagrams },
};
const size_t n_scenes = sizeof(scenes) / sizeof(scenes[0]);
/* clang-format on */
