/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC messages for an SRQ of another process: the scenarios of XRC with node 1 cut in two, its target on
 * the one side and the SRQ and memory on the other, which answers after a while; and, step by step, what
 * waits for an answer and what becomes of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/units.h"
#include "scenarios.h"
#include "transport/relay.h"

/* What would be the other process. */
static struct qp proxy;
static bool has_run;
static unsigned runs, longest_run, ends;

static struct recv_queue local_srq;
#define LOCAL_SRQN (SIM_SRQN ^ 1)

static struct recv_queue *find_local(void *xrcd, uint32_t srqn)
{
	(void)xrcd;
	return srqn == LOCAL_SRQN ? &local_srq : NULL;
}

static bool is_elsewhere(const struct qp *qp, uint32_t srqn)
{
	(void)qp;
	return srqn == SIM_SRQN;
}

static enum fault start(struct qp *qp)
{
	assert_false(has_run);
	assert_true(qp->resp.relay.run > 0);
	has_run = true;
	runs++;
	if (qp->resp.relay.run > longest_run)
		longest_run = qp->resp.relay.run;
	return FAULT_NONE;
}

static void end(struct qp *qp, uint32_t srqn)
{
	(void)qp;
	assert_int_equal(srqn, SIM_SRQN);
	ends++;
	has_run = false;
	relay_flush(&proxy);
}

static void refused(const struct qp *qp, const struct packet *pkt)
{
	(void)qp;
	(void)pkt;
}

static const struct relay_ops relay_ops = { is_elsewhere, start, end, refused };

static struct qp *target(void)
{
	return &sim.node[1].qp[0];
}

static void answer(void)
{
	struct qp *t = target();
	const struct relay_packet *held = t->resp.relay.first;
	const unsigned run = t->resp.relay.run;
	enum fault fault = FAULT_NONE;
	unsigned done = 0;

	has_run = false;
	while (done < run && !fault) {
		fault = relay_execute(&proxy, &held->pkt);
		done += !fault;
		held = held->next;
	}
	relay_answered(t, done, fault);
}

/* With all that is needed of node 1, whose target is cut off from it. */
static void begin(const struct sim_config *cfg)
{
	struct sim_config own = *cfg;
	struct qp_config config;

	own.pair[0].type = IBV_QPT_XRC_SEND;
	sim_start(&sim, &own);
	config = target()->cfg;
	assert_int_equal(qp_init(&proxy, &config), 0);
	proxy.qpn = target()->qpn;
	proxy.mtu = target()->mtu;
	proxy.attr.qp_access_flags = target()->attr.qp_access_flags;
	target()->cfg.find_srq = find_local;
	target()->cfg.relay = &relay_ops;
	assert_int_equal(recv_queue_init(&local_srq, 8, 1, &sim.node[1]), 0);
	local_srq.cq = sim.node[1].srq.cq;
	has_run = false;
	runs = longest_run = ends = 0;
}

static void finish(void)
{
	qp_destroy(&proxy);
	sim_end(&sim);
	recv_queue_destroy(&local_srq);
}

/* Until all is at rest, each answer coming so long after the last event. */
static void run_to_rest(uint64_t answer_ns)
{
	uint64_t slice = answer_ns;
	bool rest = false;

	while (!rest || has_run) {
		uint64_t before = sim.now_ns;

		if (slice > LIMIT_NS)
			fail_msg("%s: doesn't come to rest", describe());
		rest = sim_run(&sim, slice);
		slice = sim.now_ns == before ? 2 * slice : answer_ns;
		if (has_run)
			answer();
	}
}

static const char *const names[] = { "xrc-send", "xrc-write", "xrc-write-imm", "xrc-rnr" };
static const uint64_t answer_after[] = { 1000, 30 * NS_PER_US, 5 * NS_PER_MS };

static void run_relayed(const char *name, const struct sim_config *cfg, uint64_t answer_ns)
{
	const struct scenario *sc = scenario_find(name);

	assert_non_null(sc);
	begin(cfg);
	sc->post(&sim);
	run_to_rest(answer_ns);
	sc->check(&sim);
	assert_true(runs > 0);
	finish();
}

static void test_scenarios(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(names); i++)
		for (unsigned k = 0; k < ARRAY_LEN(answer_after); k++) {
			struct sim_config cfg = sim_defaults;

			run_relayed(names[i], &cfg, answer_after[k]);
			cfg.psn = 0xfffffe;
			run_relayed(names[i], &cfg, answer_after[k]);
		}
}

/* Each of the first packets of both directions lost or not. */
static void test_first_packets_lost(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(names); i++)
		for (uint64_t mask = 0; mask < 256; mask++) {
			struct sim_config cfg = sim_defaults;

			cfg.drop_mask[0] = mask & 0x1f;
			cfg.drop_mask[1] = mask >> 5;
			run_relayed(names[i], &cfg, answer_after[mask % 3]);
		}
}

static void test_loss(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(names); i++)
		for (uint64_t seed = 1; seed <= 100; seed++) {
			struct sim_config cfg = sim_defaults;

			cfg.seed = seed;
			cfg.loss = 50000;
			cfg.duplicate = cfg.reorder = 100000;
			cfg.corrupt = 10000;
			run_relayed(names[i], &cfg, answer_after[seed % 3]);
		}
}

/* Step by step. */

enum { XRC_SEND_FIRST = 0xa0, XRC_SEND_MIDDLE = 0xa1, XRC_SEND_LAST = 0xa2, XRC_SEND_ONLY = 0xa4 };

static uint32_t next_psn;

static void inject(uint8_t opcode, uint32_t srqn, uint32_t len)
{
	static const uint8_t data[MTU];
	struct packet pkt = {
		.opcode = opcode,
		.psn = { next_psn++ },
		.xrc_srqn = srqn,
		.ack_req = true,
		.payload = data,
		.payload_len = len,
	};

	assert_int_equal(sim_inject(&sim, 1, &pkt), DROP_NONE);
}

static void begin_steps(void)
{
	begin(&sim_defaults);
	next_psn = sim_defaults.psn;
}

static void expect(uint32_t packets, uint32_t messages)
{
	assert_int_equal(target()->resp.epsn.v, sim_defaults.psn + packets);
	assert_int_equal(target()->resp.msn, messages);
}

/* Nothing is acknowledged, counted or executed before the answer; what comes meanwhile makes one run. */
static void test_nothing_before_the_answer(void **state)
{
	struct ibv_recv_wr wr = { .wr_id = 9 };

	(void)state;
	begin_steps();
	assert_int_equal(recv_queue_post(&local_srq, &wr), 0);
	for (unsigned i = 0; i < 4; i++)
		post_recv(&sim, 1, i, 0, 64);
	inject(XRC_SEND_ONLY, SIM_SRQN, 8);
	inject(XRC_SEND_ONLY, SIM_SRQN, 8);
	inject(XRC_SEND_ONLY, SIM_SRQN, 8);
	inject(XRC_SEND_ONLY, LOCAL_SRQN, 0);
	inject(XRC_SEND_ONLY, SIM_SRQN, 8);
	assert_false(target()->resp.ack_due);
	expect(0, 0);
	assert_int_equal(sim.node[1].n_recv_wc, 0);
	assert_int_equal(target()->resp.relay.run, 1);
	answer();
	assert_true(target()->resp.ack_due);
	expect(1, 1);
	assert_int_equal(target()->resp.relay.run, 2);
	answer();
	/* The local one in between is done; the last is a run of its own. */
	expect(4, 4);
	assert_int_equal(sim.node[1].n_recv_wc, 4);
	assert_int_equal(sim.node[1].recv_wc[3].wr_id, 9);
	assert_int_equal(target()->resp.relay.run, 1);
	answer();
	expect(5, 5);
	assert_int_equal(sim.node[1].n_recv_wc, 5);
	assert_null(target()->resp.relay.first);
	assert_int_equal(ends, 0);
	finish();
}

/* A run is as long as a message between processes can be, and never empty. */
static void test_long_runs(void **state)
{
	const unsigned fit = RELAY_RUN_BYTES / (MTU + 2 * 8 + PACKET_HEADER_MAX + ICRC_LEN + 3);

	(void)state;
	begin_steps();
	post_recv(&sim, 1, 0, 0, 64);
	inject(XRC_SEND_ONLY, SIM_SRQN, 8);
	post_recv(&sim, 1, 0, 0, 4 * MTU * fit < SIM_MEMORY ? 4 * MTU * fit : SIM_MEMORY / 2);
	inject(XRC_SEND_FIRST, SIM_SRQN, MTU);
	for (unsigned i = 0; i < fit + 10; i++)
		inject(XRC_SEND_MIDDLE, SIM_SRQN, MTU);
	answer();
	assert_int_equal(target()->resp.relay.run, fit);
	answer();
	assert_int_equal(target()->resp.relay.run, 11);
	assert_int_equal(target()->resp.relay.srqn, SIM_SRQN);
	finish();
}

/* No receive in the middle of a run: an RNR NAK for that packet, and the rest of the run is as if it
 * had never come. */
static void test_no_receive_within_a_run(void **state)
{
	(void)state;
	begin_steps();
	post_recv(&sim, 1, 0, 0, 64);
	post_recv(&sim, 1, 1, 0, 64);
	for (unsigned i = 0; i < 4; i++)
		inject(XRC_SEND_ONLY, SIM_SRQN, 8);
	answer();
	answer();
	expect(2, 2);
	assert_int_equal(target()->resp.syndrome & AETH_KIND_MASK, AETH_RNR_NAK);
	assert_int_equal(target()->resp.ack_psn.v, sim_defaults.psn + 2);
	assert_int_equal(atomic_load(&target()->state), IBV_QPS_RTS);
	assert_null(target()->resp.relay.first);
	/* It starts over. */
	post_recv(&sim, 1, 2, 0, 64);
	next_psn = sim_defaults.psn + 2;
	inject(XRC_SEND_ONLY, SIM_SRQN, 8);
	answer();
	expect(3, 3);
	assert_int_equal(target()->resp.syndrome & AETH_KIND_MASK, AETH_ACK);
	finish();
}

/* The connection fails within a message: the receive that it took is flushed there; and so it is when a run
 * is under way that began it. */
static void test_end_within_a_message(void **state)
{
	(void)state;
	for (unsigned answered = 0; answered < 2; answered++) {
		begin_steps();
		post_recv(&sim, 1, 7, 0, 1024);
		inject(XRC_SEND_FIRST, SIM_SRQN, MTU);
		inject(XRC_SEND_MIDDLE, SIM_SRQN, MTU);
		if (answered) {
			answer();
			answer();
			assert_true(relay_in_progress(&proxy));
		}
		sim_to_error(&sim, target());
		assert_int_equal(ends, 1);
		assert_null(target()->resp.relay.first);
		assert_false(relay_in_progress(&proxy));
		assert_int_equal(sim.node[1].n_recv_wc, answered);
		if (answered)
			assert_int_equal(sim.node[1].recv_wc[0].status, IBV_WC_WR_FLUSH_ERR);
		finish();
	}
}

/* A message can't go on in an SRQ of another process than it began in, either way. */
static void test_message_changes_process(void **state)
{
	struct ibv_recv_wr wr = { .wr_id = 9 };

	(void)state;
	for (unsigned away = 0; away < 2; away++) {
		struct ibv_sge sge;

		begin_steps();
		sge = sim_sge(&sim.node[1], 0, 1024);
		wr.sg_list = &sge;
		wr.num_sge = 1;
		assert_int_equal(recv_queue_post(&local_srq, &wr), 0);
		post_recv(&sim, 1, 7, 0, 1024);
		inject(XRC_SEND_FIRST, away ? LOCAL_SRQN : SIM_SRQN, MTU);
		if (!away)
			answer();
		inject(XRC_SEND_LAST, away ? SIM_SRQN : LOCAL_SRQN, 8);
		assert_false(has_run);
		assert_int_equal(sim.node[1].events[IBV_EVENT_QP_REQ_ERR], 1);
		assert_int_equal(target()->resp.syndrome, AETH_NAK | NAK_INVALID_REQUEST);
		assert_int_equal(sim.node[1].n_recv_wc, 1);
		assert_int_equal(sim.node[1].recv_wc[0].status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(sim.node[1].recv_wc[0].wr_id, away ? 9 : 7);
		finish();
	}
}

/* More than any window is dropped, not kept. */
static void test_held_is_bounded(void **state)
{
	static const uint8_t data[MTU];
	struct packet pkt = { .opcode = XRC_SEND_ONLY,
			      .psn = { sim_defaults.psn },
			      .xrc_srqn = SIM_SRQN,
			      .payload = data,
			      .payload_len = MTU };
	enum drop drop = DROP_NONE;
	unsigned n = 0;

	(void)state;
	begin_steps();
	for (; drop == DROP_NONE; n++)
		drop = sim_inject(&sim, 1, &pkt);
	assert_int_equal(drop, DROP_FORWARD);
	assert_in_range(n, RELAY_HELD_MAX / 1024, RELAY_HELD_MAX / MTU);
	assert_true(target()->resp.relay.bytes <= RELAY_HELD_MAX);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scenarios),
		cmocka_unit_test(test_first_packets_lost),
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_nothing_before_the_answer),
		cmocka_unit_test(test_long_runs),
		cmocka_unit_test(test_no_receive_within_a_run),
		cmocka_unit_test(test_end_within_a_message),
		cmocka_unit_test(test_message_changes_process),
		cmocka_unit_test(test_held_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
