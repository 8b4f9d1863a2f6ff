/* SPDX-License-Identifier: BSD-2-Clause */
#include "ends.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* After a failed assertion cmocka goes on with the next test, in the child as well: that is the end of
 * it. Where the far end is a thread, nobody could tell what it would still do. */
static bool is_child, playing;
static int near_sock;
static pid_t child;

bool ends_lossy(void)
{
	return getenv("ROCELINK_FAULT") != NULL;
}

struct far {
	ends_side *side;
	struct ends e;
};

static void *play_far(void *arg)
{
	struct far *far = arg;

	far->side(&far->e);
	return NULL;
}

static void play_in_threads(ends_side *near, ends_side *far_side, const int socks[2])
{
	struct ends e = { .near = true, .sock = socks[0] };
	struct far far = { .side = far_side, .e = { .sock = socks[1] } };
	pthread_t thread;

	if (playing) {
		fprintf(stderr,
			"the far end of the scene that failed is still there: no more scenes\n");
		_exit(1);
	}
	playing = true;
	assert_int_equal(pthread_create(&thread, NULL, play_far, &far), 0);
	near(&e);
	assert_int_equal(pthread_join(thread, NULL), 0);
	close(socks[0]);
	close(socks[1]);
	playing = false;
}

static void play_in_processes(ends_side *near, ends_side *far, const int socks[2])
{
	struct ends e = { 0 };
	int status;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	is_child = child == 0;
	e.near = !is_child;
	e.sock = socks[is_child];
	close(socks[!is_child]);
	if (is_child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		far(&e);
		_exit(0);
	}
	near_sock = e.sock;
	near(&e);
	close(e.sock);
	near_sock = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

void ends_play(ends_side *near, ends_side *far)
{
	const char *where = getenv("TEST_ENDS");
	int socks[2];

	if (is_child)
		_exit(1);
	if (near_sock) { /* the last scene failed here: its far end hears of it and fails, too */
		close(near_sock);
		near_sock = 0;
		waitpid(child, NULL, 0);
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
	if (where && !strcmp(where, "process"))
		play_in_threads(near, far, socks);
	else
		play_in_processes(near, far, socks);
}

void ends_swap(struct ends *e, struct hello mine)
{
	assert_int_equal(send(e->sock, &mine, sizeof(mine), MSG_NOSIGNAL), sizeof(mine));
	assert_int_equal(recv(e->sock, &e->peer, sizeof(e->peer), MSG_WAITALL), sizeof(e->peer));
}

void ends_meet(struct ends *e)
{
	struct hello peer = e->peer;

	ends_swap(e, peer);
	e->peer = peer;
}

void ends_open(struct ends *e, enum ibv_qp_type type)
{
	void *r;

	assert_int_equal(rig_setup(&r), 0);
	e->r = r;
	e->type = type;
	e->cq = rig_cq(e->r, 64, NULL);
	e->qp = rig_qp(e->r, type, e->cq, e->cq, NULL);
}

/* Nothing is under way. */
static int set_timeout(struct ibv_qp *qp, uint8_t timeout)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .timeout = timeout };

	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_TIMEOUT), 0);
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

int ends_to_rts(struct ibv_qp *qp)
{
	int rc = rig_to_rts(qp);

	if (rc || qp->qp_type == IBV_QPT_UC || qp->qp_type == IBV_QPT_UD)
		return rc;
	return set_timeout(qp, 17);
}

void ends_hurry(struct ends *e)
{
	assert_int_equal(set_timeout(e->qp, 8), 0);
}

void ends_hasten(struct ends *e)
{
	if (ends_lossy())
		ends_hurry(e);
}

static void connect_to(struct ends *e, uint32_t qpn, int (*rts)(struct ibv_qp *qp))
{
	assert_int_equal(rig_to_init(e->qp), 0);
	assert_int_equal(rig_to_rtr(e->qp, qpn), 0);
	assert_int_equal(rts(e->qp), 0);
	ends_meet(e);
}

static void join_with(struct ends *e, uint32_t rkey, int (*rts)(struct ibv_qp *qp))
{
	ends_swap(e, (struct hello){
			     .qpn = e->qp->qp_num, .rkey = rkey, .addr = (uintptr_t)e->r->buffer });
	connect_to(e, e->peer.qpn, rts);
}

void ends_join(struct ends *e, uint32_t rkey)
{
	join_with(e, rkey, ends_to_rts);
}

void ends_join_impatient(struct ends *e, uint32_t rkey)
{
	join_with(e, rkey, rig_to_rts);
}

void ends_again(struct ends *e)
{
	struct ibv_pd *pd = e->qp->pd, *own = e->r->pd;
	struct hello peer = e->peer;

	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	e->r->pd = pd;
	e->qp = rig_qp(e->r, e->type, e->cq, e->cq, NULL);
	e->r->pd = own;
	ends_swap(e, (struct hello){ .qpn = e->qp->qp_num });
	peer.qpn = e->peer.qpn;
	e->peer = peer;
	connect_to(e, peer.qpn, ends_to_rts);
}

void ends_close(struct ends *e)
{
	void *r = e->r;

	ends_meet(e);
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	rig_teardown(&r);
}

void ends_fill(struct ends *e, uint32_t offset, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		e->r->buffer[offset + i] = (uint8_t)(seed + i * 7);
}

void ends_expect_filled(struct ends *e, uint32_t offset, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		if (e->r->buffer[offset + i] != (uint8_t)(seed + i * 7))
			fail_msg("byte %u of %u is %02x, not %02x", i, len,
				 e->r->buffer[offset + i], (uint8_t)(seed + i * 7));
}

uint64_t ends_word(struct ends *e, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, e->r->buffer + offset, sizeof(value));
	return value;
}

void ends_set_word(struct ends *e, uint32_t offset, uint64_t value)
{
	memcpy(e->r->buffer + offset, &value, sizeof(value));
}

struct ibv_wc ends_run(struct ends *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags |= IBV_SEND_SIGNALED;
	assert_int_equal(ibv_post_send(e->qp, wr, &bad), 0);
	return rig_await(e->cq);
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static enum ibv_wc_status request(struct ends *e, struct ibv_send_wr *wr, uint32_t len,
				  uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)e->r->buffer, len, e->r->mr->lkey };

	wr->sg_list = &sge;
	wr->num_sge = 1;
	if (is_atomic(wr->opcode)) {
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = 5;
		wr->wr.atomic.swap = 77;
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = rkey;
	}
	return ends_run(e, wr).status;
}

enum ibv_wc_status ends_request_at(struct ends *e, enum ibv_wr_opcode opcode, uint32_t len,
				   uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = opcode };

	return request(e, &wr, len, addr, rkey);
}

enum ibv_wc_status ends_request(struct ends *e, enum ibv_wr_opcode opcode, uint32_t len,
				uint32_t rkey, uint32_t imm_or_key, unsigned flags)
{
	struct ibv_send_wr wr = { .opcode = opcode, .send_flags = flags, .imm_data = imm_or_key };

	return request(e, &wr, len, e->peer.addr + FAR_AT, rkey);
}

void ends_expect_refused(enum ibv_wc_status status, enum ibv_wc_status expected)
{
	if (!ends_lossy() || status != IBV_WC_RETRY_EXC_ERR)
		assert_int_equal(status, expected);
}

void ends_expect_event(struct ends *e, enum ibv_event_type type, const void *element)
{
	struct ibv_async_event event = rig_await_event(e->r->ctx, type);

	assert_ptr_equal(event.element.qp, element);
	ibv_ack_async_event(&event);
}

void ends_try(struct ends *e, const struct attempt *list, unsigned n, uint64_t addr, uint32_t rkey)
{
	for (unsigned i = 0; i < n; i++) {
		const uint64_t at = addr + (uint64_t)list[i].offset;
		enum ibv_wc_status status;

		if (list[i].refused)
			ends_hasten(e);
		status = ends_request_at(e, list[i].opcode, list[i].len, at, rkey);
		if (!list[i].refused) {
			if (status != IBV_WC_SUCCESS)
				fail_msg("attempt %u: %s", i, ibv_wc_status_str(status));
			continue;
		}
		if (status == IBV_WC_SUCCESS)
			fail_msg("attempt %u was not refused", i);
		ends_expect_refused(status, IBV_WC_REM_ACCESS_ERR);
		ends_again(e);
	}
	ends_meet(e);
}

void ends_await_tries(struct ends *e, const struct attempt *list, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!list[i].refused)
			continue;
		ends_expect_event(e, IBV_EVENT_QP_ACCESS_ERR, e->qp);
		ends_again(e);
	}
	ends_meet(e);
}
