/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events, and the GID table and port that follow the interface. */
#include "rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <arpa/inet.h>

#include "../net/namespace.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

static void nothing_to_read(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	assert_false(rig_readable(ctx->async_fd, 0));
	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_async_event(ctx, &event), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, 0), 0);
}

static int post_srq(struct rig *r, struct ibv_srq *srq, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)r->buffer + 4096, 64, r->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void srq_limit_and_last_wqe(void **state)
{
	struct rig *r = *state;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r->pd, &init);
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, srq);
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;

	rig_connect_self(qp);
	assert_int_equal(rig_post_recv(r, qp, 0, 0, 8), EINVAL);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post_srq(r, srq, i), 0);
	attr.srq_limit = 9;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	attr.srq_limit = 3;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, 0), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, 0), 0);
	rig_await_n(cq, 2);
	event = rig_await_event(r->ctx, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, srq);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_query_srq(srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0); /* once */
	assert_int_equal(attr.max_wr, init.attr.max_wr);
	/* Resizing keeps what is posted. */
	attr.max_wr = 1;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
	attr.max_wr = 64;
	assert_int_equal(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	assert_int_equal(rig_post_send(r, qp, 0, 0, 8, 0), 0);
	assert_int_equal(rig_await(cq).wr_id, 2);
	assert_int_equal(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
	event = rig_await_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* A wrong R_Key: the responder's queue pair is in error with its event, the requester's completion
 * says so. */
static void access_error(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *a = rig_qp(r, IBV_QPT_RC, cq, cq, NULL),
		      *b = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE },
			   *bad;
	struct ibv_async_event event;

	rig_connect(a, b);
	wr.wr.rdma.remote_addr = (uintptr_t)r->buffer;
	wr.wr.rdma.rkey = r->mr->rkey ^ 0x5500;
	assert_int_equal(ibv_post_send(a, &wr, &bad), 0);
	assert_int_equal(rig_await(cq).status, IBV_WC_REM_ACCESS_ERR);
	event = rig_await_event(r->ctx, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, b);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void drained(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_async_event event;

	rig_connect_self(qp);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	event = rig_await_event(r->ctx, IBV_EVENT_SQ_DRAINED);
	assert_ptr_equal(event.element.qp, qp);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* An unread event goes with its queue pair, so that nobody is handed a pointer to what is gone. */
static void unread_event_goes(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	rig_connect_self(qp);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	assert_true(rig_readable(r->ctx->async_fd, 30000));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	nothing_to_read(r->ctx);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

struct destroyer {
	struct ibv_qp *qp;
	_Atomic bool started, done;
};

static void *destroy(void *arg)
{
	struct destroyer *d = arg;

	atomic_store(&d->started, true);
	if (ibv_destroy_qp(d->qp) == 0)
		atomic_store(&d->done, true);
	return NULL;
}

static void destroy_waits_for_acknowledgement(void **state)
{
	struct rig *r = *state;
	struct ibv_cq *cq = rig_cq(r, 32, NULL);
	struct destroyer d = { .qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL) };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_async_event event;
	pthread_t thread;

	rig_connect_self(d.qp);
	assert_int_equal(ibv_modify_qp(d.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	event = rig_await_event(r->ctx, IBV_EVENT_SQ_DRAINED);
	assert_int_equal(pthread_create(&thread, NULL, destroy, &d), 0);
	/* It has let go of its CQ, and so is at the wait or about to be. */
	while (ibv_destroy_cq(cq) == EBUSY)
		sched_yield();
	assert_false(atomic_load(&d.done));
	ibv_ack_async_event(&event);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&d.done));
}

/* An interface with carrier; its other end has no address and so is no device. */
static void interface_add(const char *name, const char *address)
{
	must_run("ip link add %s type veth peer name peer && ip link set peer addrgenmode none && "
		 "ip link set peer up && ip link set %s up && ip addr add %s dev %s",
		 name, name, address, name);
}

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid gid;

	assert_int_equal(inet_pton(AF_INET6, text, gid.raw), 1);
	return gid;
}

/* Index of the GID in the table, -1: not there. */
static int index_of(struct ibv_context *ctx, const char *text)
{
	union ibv_gid wanted = gid_of(text), gid;

	for (int i = 0; ibv_query_gid(ctx, 1, i, &gid) == 0; i++)
		if (!memcmp(&gid, &wanted, sizeof(gid)))
			return i;
	return -1;
}

/* Every change is an event; more than one may come for one command. */
static void await_gid(struct ibv_context *ctx, const char *text, bool there)
{
	while ((index_of(ctx, text) >= 0) != there) {
		struct ibv_async_event event = rig_await_event(ctx, IBV_EVENT_GID_CHANGE);

		assert_int_equal(event.element.port_num, 1);
		ibv_ack_async_event(&event);
	}
}

static void gid_table_is_live(void **state)
{
	struct ibv_context *ctx, *second;
	int kept;

	(void)state;
	interface_add("t0", "192.0.2.1/24");
	ctx = rig_open("t0");
	second = rig_open("t0");
	kept = index_of(ctx, "::ffff:192.0.2.1");
	assert_true(kept >= 0);
	must_run("ip addr add 192.0.2.2/24 dev t0 && ip addr add 192.0.2.3/24 dev t0");
	await_gid(ctx, "::ffff:192.0.2.3", true);
	await_gid(second, "::ffff:192.0.2.3", true);
	assert_int_equal(index_of(ctx, "::ffff:192.0.2.1"), kept);
	must_run("ip addr del 192.0.2.2/24 dev t0");
	await_gid(ctx, "::ffff:192.0.2.2", false);
	assert_int_equal(index_of(ctx, "::ffff:192.0.2.1"), kept);
	assert_true(index_of(ctx, "::ffff:192.0.2.3") >= 0);
	must_run("ip -6 addr add fd00::77/64 dev t0 nodad");
	await_gid(ctx, "fd00::77", true);
	assert_int_equal(ibv_close_device(second), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	must_run("ip link del t0");
}

static void port_follows_the_link(void **state)
{
	struct ibv_async_event event;
	struct ibv_port_attr port;
	struct ibv_context *ctx;

	(void)state;
	interface_add("t1", "192.0.2.9/24");
	ctx = rig_open("t1");
	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.active_mtu, IBV_MTU_1024);
	must_run("ip link set t1 mtu 9000");
	do
		assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	while (port.active_mtu != IBV_MTU_4096 && sched_yield() == 0);
	must_run("ip link set t1 down");
	event = rig_await_event(ctx, IBV_EVENT_PORT_ERR);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	must_run("ip link set t1 up");
	event = rig_await_event(ctx, IBV_EVENT_PORT_ACTIVE);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	must_run("ip link del t1");
	event = rig_await_event(ctx, IBV_EVENT_PORT_ERR);
	ibv_ack_async_event(&event);
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* The device is the same object in every list, and its name that of the interface; loopback is the
 * last. */
static void lists(void **state)
{
	struct ibv_device **a, **b;
	int n, m;

	(void)state;
	interface_add("t2", "192.0.2.9/24");
	a = ibv_get_device_list(&n);
	b = ibv_get_device_list(&m);
	assert_int_equal(n, 2);
	assert_int_equal(m, 2);
	assert_ptr_equal(a[0], b[0]);
	assert_null(a[2]);
	assert_string_equal(ibv_get_device_name(a[0]), "rl_t2");
	assert_string_equal(ibv_get_device_name(a[1]), "rl_lo");
	assert_int_not_equal(ibv_get_device_guid(a[0]), 0);
	assert_int_not_equal(ibv_get_device_guid(a[1]), 0);
	assert_int_not_equal(ibv_get_device_guid(a[1]), ibv_get_device_guid(a[0]));
	assert_int_equal(a[0]->node_type, IBV_NODE_CA);
	assert_int_equal(a[0]->transport_type, IBV_TRANSPORT_IB);
	ibv_free_device_list(a);
	must_run("ip link del t2");
	a = ibv_get_device_list(&n);
	assert_int_equal(n, 1);
	ibv_free_device_list(a);
	/* Held by a list, the device that went can still be asked for its name. */
	assert_string_equal(ibv_get_device_name(b[0]), "rl_t2");
	ibv_free_device_list(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(srq_limit_and_last_wqe),
		TEST(access_error),
		TEST(drained),
		TEST(unread_event_goes),
		TEST(destroy_waits_for_acknowledgement),
		cmocka_unit_test(gid_table_is_live),
		cmocka_unit_test(port_follows_the_link),
		cmocka_unit_test(lists),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
