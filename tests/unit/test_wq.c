/* SPDX-License-Identifier: BSD-2-Clause */
/* What a send queue holds that was not begun: how many requests, and how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "transport/qp.h"

static void post(struct qp *qp, uint32_t len)
{
	struct send_wqe *w = ring_claim(&qp->sq);

	assert_non_null(w);
	w->len = len;
	ring_publish(&qp->sq);
}

static void unsent_requests_are_counted_and_measured(void **state)
{
	static struct qp qp;

	(void)state;
	assert_int_equal(ring_init(&qp.sq, 8, sizeof(struct send_wqe)), 0);
	assert_true(qp_unsent_within(&qp, 0, 0));
	post(&qp, 1000);
	assert_false(qp_unsent_within(&qp, 0, 1000));
	assert_false(qp_unsent_within(&qp, 1, 999));
	assert_true(qp_unsent_within(&qp, 1, 1000));
	/* A long one in front of a short one is long. */
	post(&qp, 8);
	assert_false(qp_unsent_within(&qp, 2, 999));
	assert_false(qp_unsent_within(&qp, 1, 1000));
	/* What was begun doesn't count. */
	qp.req.assigned = 1;
	assert_true(qp_unsent_within(&qp, 1, 8));
	/* Nor does where in the ring it lies. */
	for (uint32_t i = 0; i < 20; i++) {
		ring_retire(&qp.sq);
		post(&qp, i);
		qp.req.assigned = ring_tail(&qp.sq) - 1;
		assert_true(qp_unsent_within(&qp, 1, i));
		assert_false(i && qp_unsent_within(&qp, 1, i - 1));
	}
	ring_destroy(&qp.sq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unsent_requests_are_counted_and_measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
