/* SPDX-License-Identifier: BSD-2-Clause */
#include "check.h"

#include "link/negotiate.h"

static char text[400];

static struct qp_values rc(void)
{
	return (struct qp_values){
		.type = WIRE_RC,
		.mtu = IBV_MTU_4096,
		.initiator_depth = 16,
		.responder_depth = 16,
		.qpn = 5,
		.psn = 6,
	};
}

/* Both HELLOs with one queue pair each. */
static enum rocelink_reason check(const struct qp_values *a, const struct qp_values *b)
{
	struct message x, y;
	enum rocelink_reason reason, other;

	message_init(&x, FRAME_HELLO);
	message_init(&y, FRAME_HELLO);
	assert_true(message_add_qp(&x, a) && message_add_qp(&y, b));
	other = negotiate_check(&y, &x, text, sizeof(text));
	reason = negotiate_check(&x, &y, text, sizeof(text));
	assert_int_equal(reason, other); /* both sides judge alike */
	message_free(&x);
	message_free(&y);
	return reason;
}

static void types(void **state)
{
	(void)state;
	for (uint8_t a = WIRE_RC; a <= WIRE_XRC_TGT; a++)
		for (uint8_t b = WIRE_RC; b <= WIRE_XRC_TGT; b++) {
			struct qp_values x = rc(), y = rc();
			bool fits = (a == b && a < WIRE_XRC_INI) ||
				    (a == WIRE_XRC_INI && b == WIRE_XRC_TGT) ||
				    (a == WIRE_XRC_TGT && b == WIRE_XRC_INI);

			x.type = a;
			y.type = b;
			assert_int_equal(check(&x, &y),
					 fits ? ROCELINK_REASON_NONE : ROCELINK_REASON_QP_TYPE);
		}
	struct qp_values x = rc(), y = rc();

	y.type = WIRE_UD;
	check(&x, &y);
	assert_contains(text, "RC on this side and UD on the other");
}

static void operations(void **state)
{
	struct qp_values a = rc(), b = rc();

	(void)state;
	a.ops = ROCELINK_OP_READ;
	assert_int_equal(check(&a, &b), ROCELINK_REASON_NONE);
	b.responder_depth = 0;
	assert_int_equal(check(&a, &b), ROCELINK_REASON_QP_TYPE);
	assert_contains(text, "responder depth 0");
	a.ops = ROCELINK_OP_SEND | ROCELINK_OP_WRITE;
	assert_int_equal(check(&a, &b), ROCELINK_REASON_NONE);
	a.type = b.type = WIRE_UC;
	assert_int_equal(check(&a, &b), ROCELINK_REASON_NONE);
	a.ops = ROCELINK_OP_READ;
	assert_int_equal(check(&a, &b), ROCELINK_REASON_QP_TYPE);
	a.type = b.type = WIRE_UD;
	a.ops = ROCELINK_OP_WRITE;
	assert_int_equal(check(&a, &b), ROCELINK_REASON_QP_TYPE);
}

static void services_and_counts(void **state)
{
	struct qp_values q = rc();
	struct message x, y;

	(void)state;
	message_init(&x, FRAME_HELLO);
	message_init(&y, FRAME_HELLO);
	assert_true(message_add_qp(&x, &q) && message_add_qp(&y, &q) && message_add_qp(&y, &q));
	assert_int_equal(negotiate_check(&x, &y, text, sizeof(text)), ROCELINK_REASON_QP_COUNT);
	assert_contains(text, "1 queue pairs, the other 2");
	strcpy(x.service_name, "kv/1");
	x.has |= 1u << FIELD_SERVICE_NAME;
	assert_int_equal(negotiate_check(&x, &y, text, sizeof(text)), ROCELINK_REASON_QP_COUNT);
	strcpy(y.service_name, "kv/2");
	y.has |= 1u << FIELD_SERVICE_NAME;
	assert_int_equal(negotiate_check(&x, &y, text, sizeof(text)), ROCELINK_REASON_SERVICE);
	assert_contains(text, "kv/1");
	assert_contains(text, "kv/2");
	message_free(&x);
	message_free(&y);
}

static void smaller_mtu_and_depths(void **state)
{
	struct qp_values a = rc(), b = rc();
	struct agreed x, y;

	(void)state;
	a.mtu = IBV_MTU_1024;
	a.initiator_depth = 128;
	a.responder_depth = 2;
	b.initiator_depth = 7;
	b.responder_depth = 4;
	negotiate_pair(&a, &b, &x);
	negotiate_pair(&b, &a, &y);
	assert_int_equal(x.mtu, IBV_MTU_1024);
	assert_int_equal(y.mtu, IBV_MTU_1024);
	assert_int_equal(x.initiator_depth, 4);
	assert_int_equal(y.responder_depth, 4);
	assert_int_equal(y.initiator_depth, 2);
	assert_int_equal(x.responder_depth, 2);
}

static void wishes(void **state)
{
	struct qp_values a = rc(), b = rc();
	struct agreed x;

	(void)state;
	negotiate_pair(&a, &b, &x);
	assert_int_equal(x.timeout, 14);
	assert_int_equal(x.retry, 7);
	assert_int_equal(x.rnr_retry, 7);
	assert_int_equal(x.hop_limit, 64);
	assert_int_equal(x.traffic_class, 0);
	/* One side's wish holds, also a small one. */
	a.wishes = WISH_ALL;
	a.timeout = 10;
	a.retry = 2;
	a.rnr_retry = 0;
	a.hop_limit = 1;
	a.traffic_class = 8;
	a.service_level = 3;
	negotiate_pair(&b, &a, &x);
	assert_int_equal(x.timeout, 10);
	assert_int_equal(x.retry, 2);
	assert_int_equal(x.rnr_retry, 0);
	assert_int_equal(x.hop_limit, 1);
	assert_int_equal(x.traffic_class, 8);
	assert_int_equal(x.service_level, 3);
	/* Of two the larger. */
	b.wishes = WISH_TIMEOUT | WISH_HOP_LIMIT;
	b.timeout = 18;
	b.hop_limit = 0;
	negotiate_pair(&b, &a, &x);
	assert_int_equal(x.timeout, 18);
	assert_int_equal(x.hop_limit, 1);
	/* Never is the largest timeout of all. */
	b.timeout = 0;
	negotiate_pair(&a, &b, &x);
	assert_int_equal(x.timeout, 0);
}

/* negotiate(a, b) and negotiate(b, a) always are two halves of one agreement. */
static void both_sides_agree(void **state)
{
	struct rng r = { 1 };

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct qp_values q[2];
		struct agreed x, y;

		for (int k = 0; k < 2; k++) {
			q[k] = rc();
			q[k].mtu = (uint8_t)(1 + rng_below(&r, 5));
			q[k].initiator_depth = (uint8_t)rng_next(&r);
			q[k].responder_depth = (uint8_t)rng_next(&r);
			q[k].wishes = (uint8_t)rng_below(&r, 64);
			q[k].timeout = (uint8_t)rng_below(&r, 32);
			q[k].retry = (uint8_t)rng_below(&r, 8);
			q[k].rnr_retry = (uint8_t)rng_below(&r, 8);
			q[k].hop_limit = (uint8_t)rng_next(&r);
			q[k].traffic_class = (uint8_t)rng_next(&r);
			q[k].service_level = (uint8_t)rng_below(&r, 16);
		}
		negotiate_pair(&q[0], &q[1], &x);
		negotiate_pair(&q[1], &q[0], &y);
		assert_int_equal(x.mtu, y.mtu);
		assert_int_equal(x.initiator_depth, y.responder_depth);
		assert_int_equal(y.initiator_depth, x.responder_depth);
		assert_int_equal(x.timeout, y.timeout);
		assert_int_equal(x.retry, y.retry);
		assert_int_equal(x.rnr_retry, y.rnr_retry);
		assert_int_equal(x.hop_limit, y.hop_limit);
		assert_int_equal(x.traffic_class, y.traffic_class);
		assert_int_equal(x.service_level, y.service_level);
		assert_true(x.initiator_depth <= q[1].responder_depth);
		assert_true(x.initiator_depth <= q[0].initiator_depth);
	}
}

static struct gid_value gid(uint8_t kind, uint8_t first, uint8_t second, bool mapped)
{
	struct gid_value g = { .kind = kind };

	g.gid[0] = first;
	g.gid[1] = second;
	if (mapped)
		g.gid[10] = g.gid[11] = 0xff;
	g.gid[15] = 1;
	return g;
}

static void gids(void **state)
{
	struct gid_value v4 = gid(ROCELINK_GID_ROCE_V2, 0, 0, true);
	struct gid_value v6 = gid(ROCELINK_GID_ROCE_V2, 0xfd, 0, false);
	struct gid_value local = gid(ROCELINK_GID_ROCE_V2, 0xfe, 0x80, false);
	struct gid_value v1 = gid(ROCELINK_GID_ROCE_V1, 0, 0, true);
	struct gid_value ib = gid(ROCELINK_GID_IB, 0xfe, 0x80, false);
	struct gid_value ib_global = gid(ROCELINK_GID_IB, 0x20, 1, false);

	(void)state;
	assert_true(negotiate_gids_match(&v4, &v4));
	assert_true(negotiate_gids_match(&v6, &v6));
	assert_true(negotiate_gids_match(&local, &local));
	assert_true(negotiate_gids_match(&ib, &ib_global));
	assert_false(negotiate_gids_match(&v4, &v6));
	assert_false(negotiate_gids_match(&v4, &v1));
	assert_false(negotiate_gids_match(&v6, &local));
	assert_false(negotiate_gids_match(&local, &ib));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types),
		cmocka_unit_test(operations),
		cmocka_unit_test(services_and_counts),
		cmocka_unit_test(smaller_mtu_and_depths),
		cmocka_unit_test(wishes),
		cmocka_unit_test(both_sides_agree),
		cmocka_unit_test(gids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
