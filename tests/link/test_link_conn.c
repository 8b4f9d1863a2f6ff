/* SPDX-License-Identifier: BSD-2-Clause */
/* Two whole connections over memory: what both sides' queue pairs and programs get. */
#include "check.h"

#include <errno.h>

#include "link/conn.h"
#include "pair.h"

static struct pair p;

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pair_free(&p);
	assert_int_equal(p.side[0].dev.ah_alive, 0);
	assert_int_equal(p.side[1].dev.ah_alive, 0);
	return 0;
}

static void assert_state(int side, enum rocelink_state wanted)
{
	if (rocelink_conn_state(p.side[side].conn) != wanted)
		fail_msg("side %d is %s, not %s: %s", side,
			 rocelink_state_name(rocelink_conn_state(p.side[side].conn)),
			 rocelink_state_name(wanted), p.side[side].err.text);
}

static void assert_established(void)
{
	assert_state(0, ROCELINK_STATE_ESTABLISHED);
	assert_state(1, ROCELINK_STATE_ESTABLISHED);
}

static struct rocelink_qp_info info(int side, unsigned index)
{
	struct rocelink_qp_info i = { .size = sizeof(i) };

	assert_int_equal(rocelink_conn_qp(p.side[side].conn, index, &i), ROCELINK_OK);
	return i;
}

/* What one side wrote into its queue pair is what the other side has. */
static void assert_linked(int side, int index)
{
	const struct fake_qp *mine = &p.side[side].qps[index],
			     *other = &p.side[1 - side].qps[index];
	const struct ibv_qp_attr *rtr = &fake_qp_step(mine, IBV_QPS_RTR)->attr;
	const struct ibv_qp_attr *rts = &fake_qp_step(mine, IBV_QPS_RTS)->attr;
	const struct ibv_qp_attr *other_rtr = &fake_qp_step(other, IBV_QPS_RTR)->attr;

	assert_int_equal(mine->state, IBV_QPS_RTS);
	assert_int_equal(rtr->dest_qp_num, other->qp.qp_num);
	assert_int_equal(rts->sq_psn, other_rtr->rq_psn);
	assert_int_equal(rtr->path_mtu, other_rtr->path_mtu);
	assert_int_equal(rtr->ah_attr.is_global, 1);
	assert_memory_equal(&rtr->ah_attr.grh.dgid, &p.side[1 - side].dev.gids[0].gid, 16);
}

static void rc(void **state)
{
	const struct ibv_qp_attr *a;

	(void)state;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_established();
	assert_linked(0, 0);
	assert_linked(1, 0);
	a = &fake_qp_step(&p.side[0].qps[0], IBV_QPS_RTS)->attr;
	assert_int_equal(a->timeout, 14);
	assert_int_equal(a->retry_cnt, 7);
	assert_int_equal(a->rnr_retry, 7);
	assert_int_equal(a->max_rd_atomic, 16);
	a = &fake_qp_step(&p.side[0].qps[0], IBV_QPS_RTR)->attr;
	assert_int_equal(a->min_rnr_timer, 7);
	assert_int_equal(a->ah_attr.grh.hop_limit, 64);
	assert_int_equal(fake_qp_step(&p.side[0].qps[0], IBV_QPS_INIT)->attr.qp_access_flags,
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				 IBV_ACCESS_REMOTE_ATOMIC);
}

static void uc(void **state)
{
	(void)state;
	pair_open(&p);
	pair_start(&p, IBV_QPT_UC, 1);
	assert_established();
	assert_linked(0, 0);
	assert_linked(1, 0);
	assert_int_equal(fake_qp_step(&p.side[0].qps[0], IBV_QPS_INIT)->attr.qp_access_flags,
			 IBV_ACCESS_REMOTE_WRITE);
}

static void ud(void **state)
{
	struct rocelink_qp_info a, b;

	(void)state;
	pair_open(&p);
	pair_start(&p, IBV_QPT_UD, 1);
	assert_established();
	a = info(0, 0);
	b = info(1, 0);
	assert_non_null(a.ah);
	assert_non_null(b.ah);
	assert_int_equal(a.remote_qpn, b.qpn);
	assert_int_equal(a.remote_qkey, b.qkey);
	assert_int_equal(b.remote_qkey, a.qkey);
	assert_int_equal(a.qkey, fake_qp_step(&p.side[0].qps[0], IBV_QPS_INIT)->attr.qkey);
	assert_int_equal(a.qkey >> 31, 0);
	assert_int_not_equal(a.qkey, b.qkey);
}

static void xrc(void **state)
{
	(void)state;
	pair_open(&p);
	pair_start(&p, IBV_QPT_XRC_SEND, 1);
	assert_established();
	assert_linked(0, 0);
	assert_linked(1, 0);
	assert_int_equal(info(0, 0).remote_type, IBV_QPT_XRC_RECV);
}

static void eight_queue_pairs_in_one_exchange(void **state)
{
	(void)state;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 8);
	assert_established();
	for (int i = 0; i < 8; i++) {
		assert_linked(0, i);
		assert_linked(1, i);
	}
	for (int i = 1; i < 8; i++)
		assert_int_not_equal(info(0, 0).psn, info(0, (unsigned)i).psn);
	/* One HELLO, one READY and the greeting from each: that is 8 QP fields of 32 bytes and
	 * little more. */
	assert_true(p.ends[0].sent.len < 24 + 8 * 32 + 250);
}

static void one_byte_at_a_time(void **state)
{
	(void)state;
	p.ends[0].chunk = p.ends[1].chunk = 1;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 3);
	assert_established();
	assert_linked(0, 2);
}

static void both_are_peers(void **state)
{
	(void)state;
	p.side[0].role = p.side[1].role = ROCELINK_PEER;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_established();
	/* Both had QPN 0x100 of their own device here: that is no obstacle. */
	assert_linked(0, 0);
	assert_linked(1, 0);
}

static void nobody_is_established_before_both_are_ready(void **state)
{
	(void)state;
	pair_open(&p);
	pair_run(&p);
	assert_state(0, ROCELINK_STATE_OPEN);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	pair_run(&p);
	assert_state(0, ROCELINK_STATE_EXCHANGING);
	assert_state(1, ROCELINK_STATE_REQUESTED);
	/* The active side's queue pair waits in INIT: it has receives, but no address. */
	assert_int_equal(p.side[0].qps[0].state, IBV_QPS_INIT);
	side_start(&p.side[1], IBV_QPT_RC, 1);
	/* The passive side has done all and said READY, but hasn't heard it. */
	assert_int_equal(p.side[1].qps[0].state, IBV_QPS_RTS);
	assert_state(1, ROCELINK_STATE_EXCHANGING);
	pair_run(&p);
	assert_established();
}

static void options_are_negotiated(void **state)
{
	const struct fake_step *s;
	struct rocelink_qp_options o = {
		.size = sizeof(o),
		.path_mtu = 512,
		.initiator_depth = 3,
		.responder_depth = ROCELINK_NO_ATOMIC_DEPTH,
		.ack_timeout_us = 1000000,
		.retry_count = 2,
		.rnr_retry_count = ROCELINK_NO_RETRY,
		.hop_limit = 9,
		.traffic_class = 0x20,
		.service_level = 2,
		.min_rnr_delay_us = 10,
		.psn = ROCELINK_PSN(0),
	};

	(void)state;
	p.side[0].options.qp = &o;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_established();
	s = fake_qp_step(&p.side[1].qps[0], IBV_QPS_RTR);
	assert_int_equal(s->attr.path_mtu, IBV_MTU_512);
	assert_int_equal(s->attr.max_dest_rd_atomic, 3);
	assert_int_equal(s->attr.ah_attr.grh.hop_limit, 9);
	assert_int_equal(s->attr.ah_attr.grh.traffic_class, 0x20);
	assert_int_equal(s->attr.ah_attr.sl, 2);
	assert_int_equal(s->attr.min_rnr_timer, 7); /* its own */
	assert_int_equal(s->attr.rq_psn, 0);
	s = fake_qp_step(&p.side[1].qps[0], IBV_QPS_RTS);
	assert_int_equal(s->attr.timeout, 18); /* 1.07 s */
	assert_int_equal(s->attr.retry_cnt, 2);
	assert_int_equal(s->attr.rnr_retry, 0);
	assert_int_equal(s->attr.max_rd_atomic, 0);
	s = fake_qp_step(&p.side[0].qps[0], IBV_QPS_RTR);
	assert_int_equal(s->attr.min_rnr_timer, 1);
}

static void assert_refused(int side, enum rocelink_code code, enum rocelink_reason reason,
			   const char *text)
{
	const struct rocelink_error *err = rocelink_conn_error(p.side[side].conn);

	assert_state(side, ROCELINK_STATE_FAILED);
	assert_string_equal(rocelink_code_name(err->code), rocelink_code_name(code));
	assert_string_equal(rocelink_reason_name(err->reason), rocelink_reason_name(reason));
	assert_contains(err->text, text);
}

static void different_types_are_refused_on_both_sides(void **state)
{
	(void)state;
	pair_open(&p);
	pair_run(&p);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	pair_run(&p);
	side_start(&p.side[1], IBV_QPT_UD, 1);
	pair_run(&p);
	assert_refused(1, ROCELINK_MISMATCH, ROCELINK_REASON_QP_TYPE, "RC on the other");
	assert_refused(0, ROCELINK_REFUSED, ROCELINK_REASON_QP_TYPE, "RC on the other");
	/* Nothing half linked stays behind. */
	assert_int_equal(p.side[0].qps[0].state, IBV_QPS_RESET);
	assert_int_equal(p.side[1].qps[0].state, IBV_QPS_RESET);
}

static void too_small_a_path_mtu_is_refused(void **state)
{
	struct rocelink_qp_options o = { .size = sizeof(o), .min_path_mtu = 2048 };

	(void)state;
	p.side[0].options.qp = &o;
	p.side[1].dev.port.active_mtu = IBV_MTU_1024;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_refused(0, ROCELINK_MISMATCH, ROCELINK_REASON_MTU, "2048 or more");
	/* The other side had agreed already: our READY takes it back. */
	assert_refused(1, ROCELINK_REFUSED, ROCELINK_REASON_MTU, "up to 1024");
	assert_int_equal(p.side[1].qps[0].state, IBV_QPS_RESET);
}

static void different_services_are_refused(void **state)
{
	(void)state;
	p.side[0].options.service_name = "kv/1";
	p.side[1].options.service_name = "files/3";
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_refused(0, ROCELINK_REFUSED, ROCELINK_REASON_SERVICE, "kv/1");
	assert_refused(1, ROCELINK_MISMATCH, ROCELINK_REASON_SERVICE, "files/3");
}

static void different_counts_are_refused(void **state)
{
	(void)state;
	pair_open(&p);
	pair_run(&p);
	side_start(&p.side[0], IBV_QPT_RC, 4);
	pair_run(&p);
	side_start(&p.side[1], IBV_QPT_RC, 3);
	pair_run(&p);
	assert_refused(0, ROCELINK_REFUSED, ROCELINK_REASON_QP_COUNT, "4");
}

static void the_program_refuses_with_its_words(void **state)
{
	struct rocelink_peer peer = { .size = sizeof(peer) };

	(void)state;
	p.side[0].options.private_data = "user=eve";
	p.side[0].options.private_data_len = 8;
	pair_open(&p);
	pair_run(&p);
	assert_int_equal(rocelink_conn_peer(p.side[1].conn, &peer), ROCELINK_AGAIN);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	pair_run(&p);
	assert_state(1, ROCELINK_STATE_REQUESTED);
	assert_int_equal(rocelink_conn_peer(p.side[1].conn, &peer), ROCELINK_OK);
	assert_int_equal(peer.private_data_len, 8);
	assert_memory_equal(peer.private_data, "user=eve", 8);
	assert_int_equal(peer.qp_count, 1);
	assert_int_equal(peer.version, 1);
	assert_int_equal(
		rocelink_conn_refuse(p.side[1].conn, ROCELINK_REASON_APPLICATION, 77, "not you"),
		ROCELINK_OK);
	pair_run(&p);
	assert_refused(0, ROCELINK_REFUSED, ROCELINK_REASON_APPLICATION, "not you");
	assert_int_equal(rocelink_conn_error(p.side[0].conn)->app_reason, 77);
}

static int prepare_checks(void *arg, struct rocelink_conn *conn)
{
	struct fake_qp *qp = arg;

	(void)conn;
	assert_int_equal(qp->state, IBV_QPS_INIT);
	return 0;
}

static int prepare_refuses(void *arg, struct rocelink_conn *conn)
{
	(void)arg;
	(void)conn;
	return 5;
}

static int prepare_refuses_in_words(void *arg, struct rocelink_conn *conn)
{
	(void)arg;
	rocelink_conn_refuse(conn, ROCELINK_REASON_BUSY, 0, "full");
	return 1;
}

static void prepare_is_called_in_init(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		p.side[i].options.prepare = prepare_checks;
		p.side[i].options.prepare_arg = &p.side[i].qps[0];
	}
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_established();
}

static void prepare_can_refuse(void **state)
{
	(void)state;
	p.side[1].options.prepare = prepare_refuses;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_refused(0, ROCELINK_REFUSED, ROCELINK_REASON_APPLICATION, "prepare");
	assert_int_equal(rocelink_conn_error(p.side[0].conn)->app_reason, 5);
}

static void prepare_can_refuse_in_its_words(void **state)
{
	(void)state;
	p.side[1].options.prepare = prepare_refuses_in_words;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_refused(0, ROCELINK_REFUSED, ROCELINK_REASON_BUSY, "full");
}

/* A failing ibv_modify_qp reaches both programs with the attributes that were written. */
static void failed_transition_is_explained_on_both_sides(void **state)
{
	static const struct {
		enum ibv_qp_state to;
		int error;
		const char *text;
	} cases[] = {
		{ IBV_QPS_RTR, EINVAL, "INIT -> RTR" },
		{ IBV_QPS_RTR, ENETUNREACH, "no route" },
		{ IBV_QPS_RTR, ETIMEDOUT, "neighbour" },
		{ IBV_QPS_RTS, EINVAL, "RTR -> RTS" },
	};

	(void)state;
	for (int who = 0; who < 2; who++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			pair_free(&p);
			pair_init(&p);
			p.side[who].dev.fail_to = cases[i].to;
			p.side[who].dev.fail_errno = cases[i].error;
			pair_open(&p);
			pair_start(&p, IBV_QPT_RC, 1);
			assert_refused(who, ROCELINK_VERBS, ROCELINK_REASON_NONE, cases[i].text);
			assert_refused(1 - who, ROCELINK_PEER_FAILED, ROCELINK_REASON_LOCAL,
				       "refused");
			if (cases[i].to == IBV_QPS_RTR)
				assert_contains(rocelink_conn_error(p.side[who].conn)->text,
						"dest_qp_num");
			assert_int_equal(p.side[who].qps[0].state, IBV_QPS_RESET);
			assert_int_equal(p.side[1 - who].qps[0].state, IBV_QPS_RESET);
		}
}

static void init_failure_is_an_error_of_add_qp(void **state)
{
	struct fake_qp *qp = &p.side[0].qps[0];

	(void)state;
	p.side[0].dev.fail_to = IBV_QPS_INIT;
	p.side[0].dev.fail_errno = EINVAL;
	pair_open(&p);
	pair_run(&p);
	fake_qp_init(qp, &p.side[0].dev, IBV_QPT_RC, 1);
	assert_int_equal(rocelink_conn_add_qp(p.side[0].conn, &qp->qp, NULL, &p.side[0].err),
			 ROCELINK_VERBS);
	assert_contains(p.side[0].err.text, "RESET -> INIT");
	assert_contains(p.side[0].err.text, "port_num: 1");
	/* The connection lives; another queue pair may do. */
	p.side[0].dev.fail_to = IBV_QPS_RESET;
	pair_start(&p, IBV_QPT_RC, 1);
	assert_established();
}

static void wrong_uses_are_explained(void **state)
{
	struct rocelink_qp_options o = { .size = sizeof(o) };
	struct fake_qp *qp = &p.side[0].qps[0];
	struct rocelink_error *err = &p.side[0].err;
	struct rocelink_conn *conn;

	(void)state;
	pair_open(&p);
	conn = p.side[0].conn;
	fake_qp_init(qp, &p.side[0].dev, IBV_QPT_RC, 1);
	assert_int_equal(rocelink_conn_start(conn, err), ROCELINK_INVALID);
	assert_contains(err->text, "add a queue pair");
	assert_int_equal(rocelink_conn_add_qp(conn, NULL, NULL, err), ROCELINK_INVALID);
	o.size = 0;
	assert_int_equal(rocelink_conn_add_qp(conn, &qp->qp, &o, err), ROCELINK_INVALID);
	assert_contains(err->text, "sizeof");
	o = (struct rocelink_qp_options){ .size = sizeof(o), .retry_count = 8 };
	assert_int_equal(rocelink_conn_add_qp(conn, &qp->qp, &o, err), ROCELINK_INVALID);
	assert_contains(err->text, "3 bits");
	o = (struct rocelink_qp_options){ .size = sizeof(o), .path_mtu = 1500 };
	assert_int_equal(rocelink_conn_add_qp(conn, &qp->qp, &o, err), ROCELINK_INVALID);
	assert_contains(err->text, "1024");
	o = (struct rocelink_qp_options){ .size = sizeof(o), .psn = 1234 };
	assert_int_equal(rocelink_conn_add_qp(conn, &qp->qp, &o, err), ROCELINK_INVALID);
	assert_contains(err->text, "ROCELINK_PSN");
	qp->state = IBV_QPS_RTS;
	assert_int_equal(rocelink_conn_add_qp(conn, &qp->qp, NULL, err), ROCELINK_INVALID);
	assert_contains(err->text, "state RTS");
	qp->state = IBV_QPS_RESET;
	qp->qp.qp_type = IBV_QPT_RAW_PACKET;
	assert_int_equal(rocelink_conn_add_qp(conn, &qp->qp, NULL, err), ROCELINK_INVALID);
	qp->qp.qp_type = IBV_QPT_RC;
	pair_run(&p);
	o = (struct rocelink_qp_options){ .size = sizeof(o), .initiator_depth = 17 };
	assert_int_equal(rocelink_conn_add_qp(conn, &qp->qp, &o, err), ROCELINK_INVALID);
	assert_contains(err->text, "the device has 16");
	p.side[0].dev.port.active_mtu = IBV_MTU_1024;
	o = (struct rocelink_qp_options){ .size = sizeof(o), .path_mtu = 4096 };
	/* No more than the port has: what is said is an upper bound. */
	assert_ok(rocelink_conn_add_qp(conn, &qp->qp, &o, err), *err);
	assert_ok(rocelink_conn_start(conn, err), *err);
	assert_int_equal(conn->hello.qps[0].mtu, IBV_MTU_1024);
	assert_int_equal(rocelink_conn_sync_say(conn, "x", NULL, err), ROCELINK_INVALID);
	assert_int_equal(rocelink_conn_bye(conn, err), ROCELINK_INVALID);
}

static void queue_pair_already_in_init_is_taken_as_it_is(void **state)
{
	struct side *s = &p.side[0];

	(void)state;
	pair_open(&p);
	pair_run(&p);
	fake_qp_init(&s->qps[0], &s->dev, IBV_QPT_RC, 0x100);
	s->qps[0].state = IBV_QPS_INIT;
	assert_ok(rocelink_conn_add_qp(s->conn, &s->qps[0].qp, NULL, &s->err), s->err);
	assert_null(fake_qp_step(&s->qps[0], IBV_QPS_INIT));
	assert_ok(rocelink_conn_start(s->conn, &s->err), s->err);
	pair_run(&p);
	side_start(&p.side[1], IBV_QPT_RC, 1);
	pair_run(&p);
	assert_established();
}

static void bye_closes_both(void **state)
{
	(void)state;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_ok(rocelink_conn_bye(p.side[0].conn, &p.side[0].err), p.side[0].err);
	assert_state(0, ROCELINK_STATE_CLOSING);
	pair_run(&p);
	assert_state(1, ROCELINK_STATE_CLOSING);
	assert_ok(rocelink_conn_bye(p.side[1].conn, &p.side[1].err), p.side[1].err);
	pair_run(&p);
	assert_state(0, ROCELINK_STATE_CLOSED);
	assert_state(1, ROCELINK_STATE_CLOSED);
	/* What is linked stays linked: the queue pairs are the program's. */
	assert_int_equal(p.side[0].qps[0].state, IBV_QPS_RTS);
}

static void end_without_bye_is_an_error(void **state)
{
	(void)state;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	p.ends[1].shut = true;
	pair_run(&p);
	assert_refused(0, ROCELINK_NETWORK, ROCELINK_REASON_NONE, "no BYE");
	assert_int_equal(p.side[0].qps[0].state, IBV_QPS_RTS);
}

/* The steps that --explain prints, in their order. */
struct seen {
	char steps[400];
	int modified;
};

static void observe(void *arg, const struct rocelink_trace *t)
{
	static const char *const names[] = {
		[ROCELINK_STEP_RESOLVED] = "resolved",
		[ROCELINK_STEP_CONNECTED] = "connected",
		[ROCELINK_STEP_SECURED] = "secured",
		[ROCELINK_STEP_GID_CHOSEN] = "gid",
		[ROCELINK_STEP_QP_MODIFIED] = "modify",
		[ROCELINK_STEP_AH_CREATED] = "ah",
		[ROCELINK_STEP_SENT] = "sent",
		[ROCELINK_STEP_RECEIVED] = "received",
		[ROCELINK_STEP_NEGOTIATED] = "negotiated",
		[ROCELINK_STEP_ESTABLISHED] = "established",
		[ROCELINK_STEP_CLOSED] = "closed",
		[ROCELINK_STEP_FAILED] = "failed",
	};
	struct seen *s = arg;

	assert_int_equal(t->size, sizeof(*t));
	assert_true(t->text[0] != '\0');
	strcat(strcat(s->steps, names[t->step]), " ");
	if (t->step == ROCELINK_STEP_QP_MODIFIED) {
		assert_non_null(t->attr);
		assert_true(t->attr_mask & IBV_QP_STATE);
		assert_int_equal(t->to, t->attr->qp_state);
		s->modified++;
	}
}

static void each_step_is_observed(void **state)
{
	static struct seen a, b;

	(void)state;
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	p.side[0].options.trace = p.side[1].options.trace = observe;
	p.side[0].options.trace_arg = &a;
	p.side[1].options.trace_arg = &b;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	/* The passive side's HELLO and READY come together here. */
	assert_string_equal(a.steps, "connected gid modify sent received received negotiated "
				     "modify modify sent established ");
	assert_string_equal(
		b.steps,
		"connected received gid modify negotiated sent modify modify sent received "
		"established ");
	assert_int_equal(a.modified, 3);
}

/* The active side offers all GIDs of its port; the passive one picks the pair that fits. */
static void passive_side_picks_the_gid_pair(void **state)
{
	const struct ibv_qp_attr *a;

	(void)state;
	fake_device_add_gid(&p.side[0].dev, "::1", IBV_GID_TYPE_ROCE_V2);
	p.side[1].dev.gid_count = 0;
	fake_device_add_gid(&p.side[1].dev, "::1", IBV_GID_TYPE_ROCE_V2);
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_established();
	a = &fake_qp_step(&p.side[0].qps[0], IBV_QPS_RTR)->attr;
	assert_int_equal(a->ah_attr.grh.sgid_index, 1);
	assert_memory_equal(&a->ah_attr.grh.dgid, &p.side[1].dev.gids[0].gid, 16);
	assert_contains(info(0, 0).gid.why, "the peer chose");
}

static void no_common_gid_is_refused(void **state)
{
	(void)state;
	p.side[1].dev.gid_count = 0;
	fake_device_add_gid(&p.side[1].dev, "::1", IBV_GID_TYPE_ROCE_V2);
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	/* add_qp fails on the passive side, which then refuses. */
	assert_int_equal(p.side[1].err.code, ROCELINK_MISMATCH);
	assert_contains(p.side[1].err.text, "127.0.0.1");
	assert_contains(p.side[1].err.text, "::1");
	assert_int_equal(p.side[1].err.reason, ROCELINK_REASON_GID);
}

static void given_gid_is_used(void **state)
{
	struct rocelink_gid gid = { .size = sizeof(gid) };

	(void)state;
	fake_device_add_gid(&p.side[0].dev, "127.0.0.1", IBV_GID_TYPE_ROCE_V2);
	assert_ok(rocelink_gid_get(&p.side[0].dev.context, 1, 1, &gid, &p.side[0].err),
		  p.side[0].err);
	p.side[0].options.gid = &gid;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_established();
	assert_int_equal(fake_qp_step(&p.side[0].qps[0], IBV_QPS_RTR)->attr.ah_attr.grh.sgid_index,
			 1);
	assert_int_equal(rocelink_gid_get(&p.side[0].dev.context, 1, 9, &gid, &p.side[0].err),
			 ROCELINK_NO_DEVICE);
}

/* Each phase has its deadline, and the error says which passed. Time is given, not waited for. */
static void deadlines(void **state)
{
	uint64_t late = link_now() + 60ull * 1000000000;
	struct rocelink_error *err = &p.side[0].err;

	(void)state;
	pair_open(&p);
	assert_int_equal(conn_drive_at(p.side[0].conn, late, err), ROCELINK_TIMEOUT);
	assert_int_equal(err->phase, ROCELINK_PHASE_HELLO);
	pair_free(&p);

	pair_init(&p);
	pair_open(&p);
	pair_run(&p);
	assert_int_equal(conn_drive_at(p.side[0].conn, late, err), ROCELINK_TIMEOUT);
	assert_contains(err->text, "did not start");
	pair_free(&p);

	pair_init(&p);
	pair_open(&p);
	pair_run(&p);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	pair_run(&p);
	assert_int_equal(conn_drive_at(p.side[0].conn, late, err), ROCELINK_TIMEOUT);
	assert_int_equal(err->phase, ROCELINK_PHASE_HELLO);
	pair_run(&p);
	/* The other side is told. */
	assert_refused(1, ROCELINK_REFUSED, ROCELINK_REASON_TIMEOUT, "HELLO in time");
	pair_free(&p);

	pair_init(&p);
	p.side[0].options.ready_timeout_us = 1000;
	pair_open(&p);
	pair_run(&p);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	pair_run(&p);
	side_start(&p.side[1], IBV_QPT_RC, 1);
	/* Cut off before the passive side's READY of 43 bytes or so. */
	p.ends[1].cut_after = SIZE_MAX;
	p.ends[1].sent.len -= 1;
	rocelink_conn_drive(p.side[0].conn, err);
	assert_state(0, ROCELINK_STATE_EXCHANGING);
	assert_int_equal(conn_drive_at(p.side[0].conn, late, err), ROCELINK_TIMEOUT);
	assert_int_equal(err->phase, ROCELINK_PHASE_READY);
	assert_int_equal(p.side[0].qps[0].state, IBV_QPS_RESET);
}

static void next_deadline_is_told(void **state)
{
	uint64_t left;

	(void)state;
	p.side[0].options.hello_timeout_us = 2000000;
	pair_open(&p);
	pair_run(&p);
	/* This side's program is waited for: only the whole has a deadline. */
	left = rocelink_conn_next_deadline(p.side[0].conn);
	assert_in_range(left, 2000001, 30000000);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	left = rocelink_conn_next_deadline(p.side[0].conn);
	assert_in_range(left, 1, 2000000);
	pair_run(&p);
	side_start(&p.side[1], IBV_QPT_RC, 1);
	pair_run(&p);
	assert_established();
	assert_true(rocelink_conn_next_deadline(p.side[0].conn) == ROCELINK_NO_DEADLINE);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(rc),
		T(uc),
		T(ud),
		T(xrc),
		T(eight_queue_pairs_in_one_exchange),
		T(one_byte_at_a_time),
		T(both_are_peers),
		T(nobody_is_established_before_both_are_ready),
		T(options_are_negotiated),
		T(different_types_are_refused_on_both_sides),
		T(too_small_a_path_mtu_is_refused),
		T(different_services_are_refused),
		T(different_counts_are_refused),
		T(the_program_refuses_with_its_words),
		T(prepare_is_called_in_init),
		T(prepare_can_refuse),
		T(prepare_can_refuse_in_its_words),
		T(failed_transition_is_explained_on_both_sides),
		T(init_failure_is_an_error_of_add_qp),
		T(wrong_uses_are_explained),
		T(queue_pair_already_in_init_is_taken_as_it_is),
		T(bye_closes_both),
		T(end_without_bye_is_an_error),
		T(each_step_is_observed),
		T(passive_side_picks_the_gid_pair),
		T(no_common_gid_is_refused),
		T(given_gid_is_used),
		T(deadlines),
		T(next_deadline_is_told),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
