/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine's timer heap and queue pair table, each against a plain model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/qp_table.h"
#include "device/timers.h"
#include "prng.h"

enum { N = 300 };

static struct prng prng = { 7 };

static struct engine_qp qps[N];

/* The deadline that qp_next_deadline() will report. */
static void set_deadline(struct engine_qp *eqp, uint64_t ns)
{
	eqp->qp.retry.deadline_ns = ns;
	eqp->qp.retry.probe_ns = eqp->qp.retry.rnr_until_ns = TIME_NEVER;
}

static void test_timers(void **state)
{
	struct timers t = { 0 };
	uint64_t now = 1000;

	(void)state;
	memset(qps, 0, sizeof(qps));
	assert_int_equal(timers_reserve(&t, N), 0);
	for (unsigned i = 0; i < N; i++)
		set_deadline(&qps[i], TIME_NEVER);
	for (unsigned step = 0; step < 50000; step++) {
		struct engine_qp *eqp = &qps[prng_below(&prng, N)];
		uint64_t due = now + prng_below(&prng, 1000);
		uint64_t earliest = TIME_NEVER;

		switch (prng_below(&prng, 4)) {
		case 0:
			due = TIME_NEVER;
			/* fall through */
		case 1:
			set_deadline(eqp, due);
			timers_set(&t, eqp, due);
			break;
		case 2:
			set_deadline(eqp, TIME_NEVER);
			timers_remove(&t, eqp);
			break;
		default:
			now += prng_below(&prng, 50);
		}
		while ((eqp = timers_pop(&t, now))) {
			assert_true(eqp->qp.retry.deadline_ns <= now);
			set_deadline(eqp, TIME_NEVER);
		}
		for (unsigned i = 0; i < N; i++) {
			uint64_t d = qps[i].qp.retry.deadline_ns;

			assert_true(d > now);
			earliest = d < earliest ? d : earliest;
		}
		assert_true(timers_next(&t) <= earliest);
	}
	timers_destroy(&t);
}

/* A port of which only the blocks are used. */
static unsigned claimed, released;

int __wrap_port_claim_block(struct port *port);
void __wrap_port_release_block(struct port *port, unsigned block);

int __wrap_port_claim_block(struct port *port)
{
	(void)port;
	return claimed < 3 ? (int)(10 + claimed++) : -28;
}

void __wrap_port_release_block(struct port *port, unsigned block)
{
	(void)port;
	assert_in_range(block, 10, 12);
	released++;
}

static void test_numbers(void **state)
{
	static struct qp_table t;
	static struct engine_qp many[3 * QPNS_PER_BLOCK];
	uint32_t last;

	(void)state;
	for (unsigned i = 0; i < 3 * QPNS_PER_BLOCK; i++) {
		assert_int_equal(qp_table_add(&t, NULL, &many[i], prng_u64(&prng)), 0);
		assert_in_range(many[i].qp.qpn, 10 << QPN_BLOCK_BITS, (13 << QPN_BLOCK_BITS) - 1);
		assert_ptr_equal(qp_table_find(&t, many[i].qp.qpn), &many[i]);
	}
	/* Full: and says so. */
	assert_int_equal(qp_table_add(&t, NULL, &qps[0], 0), -28);
	/* A number given back isn't the next one given out, unless it is the only one. */
	qp_table_remove(&t, &many[5]);
	qp_table_remove(&t, &many[6]);
	last = many[5].qp.qpn;
	assert_null(qp_table_find(&t, last));
	assert_int_equal(qp_table_add(&t, NULL, &qps[0], 0), 0);
	qp_table_remove(&t, &qps[0]);
	assert_int_equal(qp_table_add(&t, NULL, &qps[1], 0), 0);
	assert_int_not_equal(qps[1].qp.qpn, qps[0].qp.qpn);
	assert_false(qp_table_owns(&t, 1));
	assert_null(qp_table_find(&t, 0xffffff));
	assert_null(qp_table_find(&t, 13 << QPN_BLOCK_BITS));
	qp_table_destroy(&t, NULL);
	assert_int_equal(released, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timers),
		cmocka_unit_test(test_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
