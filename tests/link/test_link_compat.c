/* SPDX-License-Identifier: BSD-2-Clause */
/* The exchange of the stock ibv_*_pingpong programs, whose bytes are written out here. */
#include "check.h"

#include <stdio.h>

#include "link/compat.h"
#include "link/conn.h"
#include "pair.h"

static struct pair p;

static int setup(void **state)
{
	(void)state;
	pair_init(&p);
	p.side[0].options.compat = p.side[1].options.compat = ROCELINK_COMPAT_PINGPONG;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pair_free(&p);
	return 0;
}

static void open_one(int real)
{
	struct rocelink_channel ch = mem_channel(&p.ends[real]);
	struct side *s = &p.side[real];

	s->conn = rocelink_dial_channel(&ch, s->role, &s->options, &s->err);
	if (!s->conn)
		fail_msg("%s", s->err.text);
	rocelink_conn_drive(s->conn, &s->err);
}

static const char record[] = "0000:000123:abcdef:00000000000000000000ffff7f000001";
static const char done[] = "done";

static enum rocelink_state drive(int real)
{
	rocelink_conn_drive(p.side[real].conn, &p.side[real].err);
	return rocelink_conn_state(p.side[real].conn);
}

static void as_client(void **state)
{
	struct rocelink_qp_options o = { .size = sizeof(o), .psn = ROCELINK_PSN(0x123456) };
	const struct ibv_qp_attr *a;

	(void)state;
	assert_int_equal(sizeof(record), COMPAT_RECORD_LEN);
	p.side[0].options.qp = &o;
	open_one(0);
	assert_int_equal(drive(0), ROCELINK_STATE_OPEN);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	assert_int_equal(drive(0), ROCELINK_STATE_EXCHANGING);
	/* Exactly the bytes that the stock server reads. */
	assert_int_equal(p.ends[0].sent.len, COMPAT_RECORD_LEN);
	assert_string_equal((char *)p.ends[0].sent.data,
			    "0000:000100:123456:00000000000000000000ffff7f000001");
	buffer_put(&p.ends[1].sent, record, sizeof(record));
	assert_int_equal(drive(0), ROCELINK_STATE_ESTABLISHED);
	assert_int_equal(p.ends[0].sent.len, COMPAT_RECORD_LEN + sizeof(done));
	assert_string_equal((char *)p.ends[0].sent.data + COMPAT_RECORD_LEN, "done");
	a = &fake_qp_step(&p.side[0].qps[0], IBV_QPS_RTR)->attr;
	assert_int_equal(a->dest_qp_num, 0x123);
	assert_int_equal(a->rq_psn, 0xabcdef);
	assert_int_equal(a->path_mtu, IBV_MTU_1024);
	assert_int_equal(a->max_dest_rd_atomic, 1);
	/* The stock server closes now; that is no failure. */
	p.ends[1].shut = true;
	assert_int_equal(drive(0), ROCELINK_STATE_ESTABLISHED);
	assert_ok(rocelink_conn_bye(p.side[0].conn, &p.side[0].err), p.side[0].err);
	assert_int_equal(drive(0), ROCELINK_STATE_CLOSED);
}

static void as_server(void **state)
{
	(void)state;
	open_one(1);
	assert_int_equal(p.ends[1].sent.len, 0);
	buffer_put(&p.ends[0].sent, record, 20);
	assert_int_equal(drive(1), ROCELINK_STATE_CONNECTING);
	buffer_put(&p.ends[0].sent, record + 20, sizeof(record) - 20);
	assert_int_equal(drive(1), ROCELINK_STATE_REQUESTED);
	side_start(&p.side[1], IBV_QPT_UC, 1);
	/* In RTS before it answers: the client sends as soon as it has the answer. */
	assert_int_equal(p.side[1].qps[0].state, IBV_QPS_RTS);
	assert_int_equal(p.ends[1].sent.len, COMPAT_RECORD_LEN);
	assert_int_equal(drive(1), ROCELINK_STATE_EXCHANGING);
	buffer_put(&p.ends[0].sent, done, sizeof(done));
	p.ends[0].shut = true;
	assert_int_equal(drive(1), ROCELINK_STATE_ESTABLISHED);
	assert_int_equal(p.ends[1].sent.len, COMPAT_RECORD_LEN);
}

static void ud_has_the_programs_qkey(void **state)
{
	struct rocelink_qp_info info = { .size = sizeof(info) };

	(void)state;
	open_one(1);
	buffer_put(&p.ends[0].sent, record, sizeof(record));
	drive(1);
	side_start(&p.side[1], IBV_QPT_UD, 1);
	assert_int_equal(rocelink_conn_qp(p.side[1].conn, 0, &info), ROCELINK_OK);
	assert_int_equal(info.remote_qkey, 0x11111111);
	assert_int_equal(info.qkey, 0x11111111);
	assert_int_equal(fake_qp_step(&p.side[1].qps[0], IBV_QPS_INIT)->attr.qkey, 0x11111111);
	assert_non_null(info.ah);
	/* A datagram may be as long as the port allows; nothing of it is negotiated. */
	assert_int_equal(info.path_mtu, 4096);
}

static void srq_has_256_records(void **state)
{
	(void)state;
	p.side[0].options.compat = p.side[1].options.compat = ROCELINK_COMPAT_SRQ_PINGPONG;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 5);
	assert_int_equal(drive(0), ROCELINK_STATE_ESTABLISHED);
	assert_int_equal(drive(1), ROCELINK_STATE_ESTABLISHED);
	assert_int_equal(p.ends[0].sent.len, 256 * COMPAT_RECORD_LEN + sizeof(done));
	assert_int_equal(p.ends[1].sent.len, 256 * COMPAT_RECORD_LEN);
	for (int i = 0; i < 5; i++)
		assert_int_equal(fake_qp_step(&p.side[0].qps[i], IBV_QPS_RTR)->attr.dest_qp_num,
				 p.side[1].qps[i].qp.qp_num);
	assert_string_equal((char *)p.ends[0].sent.data + 255 * COMPAT_RECORD_LEN,
			    "0000:000000:000000:00000000000000000000000000000000");
}

static void wrong_records(void **state)
{
	static const char *const cases[] = {
		"0000-000123:abcdef:00000000000000000000ffff7f000001",
		"0000:00012g:abcdef:00000000000000000000ffff7f000001",
		"0000:000123:abcdef:00000000000000000000ffff7f00000x",
		"0000:000123:abcdef:00000000000000000000ffff7f0000012",
		"5.60:000000:000000:00000000000000000000000000000000",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_one(1);
		buffer_put(&p.ends[0].sent, cases[i], COMPAT_RECORD_LEN);
		assert_int_equal(drive(1), ROCELINK_STATE_FAILED);
		assert_int_equal(p.side[1].err.code, ROCELINK_PROTOCOL);
		teardown(state);
		setup(state);
	}
}

static void forgotten_g_is_explained(void **state)
{
	static const char no_gid[] = "0000:000123:abcdef:00000000000000000000000000000000";

	(void)state;
	open_one(1);
	buffer_put(&p.ends[0].sent, no_gid, sizeof(no_gid));
	assert_int_equal(drive(1), ROCELINK_STATE_FAILED);
	assert_contains(p.side[1].err.text, "-g");
}

static void something_else_than_done(void **state)
{
	(void)state;
	open_one(1);
	buffer_put(&p.ends[0].sent, record, sizeof(record));
	drive(1);
	side_start(&p.side[1], IBV_QPT_RC, 1);
	buffer_put(&p.ends[0].sent, "oops", 5);
	assert_int_equal(drive(1), ROCELINK_STATE_FAILED);
	assert_int_equal(p.side[1].qps[0].state, IBV_QPS_RESET);
}

static void our_own_protocol_is_not_for_them(void **state)
{
	struct rocelink_error *err = &p.side[0].err;

	(void)state;
	open_one(0);
	side_start(&p.side[0], IBV_QPT_RC, 1);
	buffer_put(&p.ends[1].sent, record, sizeof(record));
	assert_int_equal(drive(0), ROCELINK_STATE_ESTABLISHED);
	assert_int_equal(rocelink_conn_sync_say(p.side[0].conn, "x", NULL, err), ROCELINK_INVALID);
	struct fake_qp more;

	fake_qp_init(&more, &p.side[0].dev, IBV_QPT_RC, 9);
	assert_int_equal(rocelink_conn_add_qp(p.side[0].conn, &more.qp, NULL, err),
			 ROCELINK_INVALID);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(as_client),
		T(as_server),
		T(ud_has_the_programs_qkey),
		T(srq_has_256_records),
		T(wrong_records),
		T(forgotten_g_is_explained),
		T(something_else_than_done),
		T(our_own_protocol_is_not_for_them),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
