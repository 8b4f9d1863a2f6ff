/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions by name, barriers, tickets: what lives on an established connection, or without one. */
#include "check.h"

#include <stdio.h>

#include "link/syncs.h"
#include "pair.h"

static struct pair p;
static char around[8192], *const memory = around + 1024;
static struct ibv_mr mr = { .addr = around + 1024, .length = 4096, .rkey = 0xabcd1234 };

static int teardown(void **state)
{
	(void)state;
	pair_free(&p);
	return 0;
}

static struct rocelink_region region(const char *name)
{
	return (struct rocelink_region){ .size = sizeof(struct rocelink_region),
					 .name = name,
					 .mr = &mr,
					 .access = IBV_ACCESS_REMOTE_READ };
}

static int find(int side, const char *name, struct rocelink_remote_region *r)
{
	r->size = sizeof(*r);
	return rocelink_conn_find(p.side[side].conn, name, r);
}

static void regions_of_the_options_are_there_at_once(void **state)
{
	struct rocelink_region both[2] = { region("a"), region("b") };
	struct rocelink_remote_region r;

	(void)state;
	both[1].addr = memory + 100;
	both[1].length = 50;
	pair_init(&p);
	p.side[1].options.regions = both;
	p.side[1].options.region_count = 2;
	pair_open(&p);
	pair_start(&p, IBV_QPT_RC, 1);
	assert_int_equal(find(0, "a", &r), ROCELINK_OK);
	assert_int_equal(r.addr, (uintptr_t)memory);
	assert_int_equal(r.length, mr.length);
	assert_int_equal(r.rkey, 0xabcd1234);
	assert_int_equal(r.access, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(find(0, "b", &r), ROCELINK_OK);
	assert_int_equal(r.addr, (uintptr_t)memory + 100);
	assert_int_equal(r.length, 50);
	assert_int_equal(find(0, "c", &r), ROCELINK_NOT_FOUND);
	assert_int_equal(find(1, "a", &r), ROCELINK_NOT_FOUND);
	assert_int_equal(rocelink_conn_region(p.side[0].conn, 1, &r), ROCELINK_OK);
	assert_string_equal(r.name, "b");
	assert_int_equal(rocelink_conn_region(p.side[0].conn, 2, &r), ROCELINK_NOT_FOUND);
	r.size = 0;
	assert_int_equal(rocelink_conn_find(p.side[0].conn, "a", &r), ROCELINK_INVALID);
}

static void regions_come_and_go(void **state)
{
	struct rocelink_remote_region r;
	struct rocelink_region g = region("late");
	struct rocelink_error *err = &p.side[1].err;

	(void)state;
	pair_establish(&p);
	assert_ok(rocelink_conn_offer(p.side[1].conn, &g, err), *err);
	assert_int_equal(rocelink_conn_offer(p.side[1].conn, &g, err), ROCELINK_INVALID);
	assert_contains(err->text, "withdraw it first");
	pair_run(&p);
	assert_int_equal(find(0, "late", &r), ROCELINK_OK);
	assert_ok(rocelink_conn_withdraw(p.side[1].conn, "late", err), *err);
	assert_int_equal(rocelink_conn_withdraw(p.side[1].conn, "late", err), ROCELINK_NOT_FOUND);
	pair_run(&p);
	assert_int_equal(find(0, "late", &r), ROCELINK_NOT_FOUND);
	mr.rkey++;
	assert_ok(rocelink_conn_offer(p.side[1].conn, &g, err), *err);
	pair_run(&p);
	assert_int_equal(find(0, "late", &r), ROCELINK_OK);
	assert_int_equal(r.rkey, mr.rkey);
}

static void as_many_regions_as_the_limit(void **state)
{
	struct rocelink_error *err = &p.side[0].err;
	struct rocelink_remote_region r;
	char name[20];

	(void)state;
	pair_establish(&p);
	for (int i = 0; i < ROCELINK_MAX_REGIONS; i++) {
		struct rocelink_region g = region(name);

		snprintf(name, sizeof(name), "%d", i);
		assert_ok(rocelink_conn_offer(p.side[0].conn, &g, err), *err);
	}
	struct rocelink_region g = region("one too many");

	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_LIMIT);
	pair_run(&p);
	assert_int_equal(find(1, "255", &r), ROCELINK_OK);
}

static void wrong_regions_are_explained(void **state)
{
	struct rocelink_error *err = &p.side[0].err;
	struct rocelink_region g = region("r");

	(void)state;
	pair_establish(&p);
	g.addr = memory + 4000;
	g.length = 200;
	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_INVALID);
	assert_contains(err->text, "within its mr");
	g = region("r");
	g.addr = memory - 1;
	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_INVALID);
	g = region("r");
	g.addr = memory;
	g.length = UINT64_MAX;
	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_INVALID);
	g = region("r");
	g.access = IBV_ACCESS_LOCAL_WRITE;
	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_INVALID);
	g = region("");
	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_INVALID);
	g = region("r");
	g.mr = NULL;
	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_INVALID);
	g = region("r");
	g.size = 3;
	assert_int_equal(rocelink_conn_offer(p.side[0].conn, &g, err), ROCELINK_INVALID);
}

static void a_barrier_needs_both(void **state)
{
	struct rocelink_error *err = &p.side[0].err;

	(void)state;
	pair_establish(&p);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "go", err), ROCELINK_INVALID);
	assert_ok(rocelink_conn_sync_say(p.side[0].conn, "go", NULL, err), *err);
	pair_run(&p);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "go", err), ROCELINK_AGAIN);
	/* The peer has heard it, but hasn't come to it itself. */
	assert_int_equal(rocelink_conn_sync_test(p.side[1].conn, "go", err), ROCELINK_INVALID);
	assert_ok(rocelink_conn_sync_say(p.side[1].conn, "go", NULL, err), *err);
	pair_run(&p);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "go", err), ROCELINK_OK);
	assert_int_equal(rocelink_conn_sync_test(p.side[1].conn, "go", err), ROCELINK_OK);
	/* Used up: the next is a barrier of its own. */
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "go", err), ROCELINK_INVALID);
}

static void barriers_of_one_name_count(void **state)
{
	struct rocelink_error *err = &p.side[0].err;

	(void)state;
	pair_establish(&p);
	for (int i = 0; i < 3; i++)
		assert_ok(rocelink_conn_sync_say(p.side[0].conn, "step", NULL, err), *err);
	assert_ok(rocelink_conn_sync_say(p.side[1].conn, "step", NULL, err), *err);
	pair_run(&p);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "step", err), ROCELINK_OK);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "step", err), ROCELINK_AGAIN);
	assert_int_equal(rocelink_conn_sync_test(p.side[1].conn, "step", err), ROCELINK_OK);
	assert_ok(rocelink_conn_sync_say(p.side[1].conn, "step", NULL, err), *err);
	pair_run(&p);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "step", err), ROCELINK_OK);
}

static void a_failed_barrier_tells_why(void **state)
{
	struct rocelink_error *err = &p.side[0].err;

	(void)state;
	pair_establish(&p);
	assert_ok(rocelink_conn_sync_say(p.side[0].conn, "post", NULL, err), *err);
	assert_ok(rocelink_conn_sync_say(p.side[1].conn, "post", "no memory for receives", err),
		  *err);
	pair_run(&p);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "post", err),
			 ROCELINK_PEER_FAILED);
	assert_contains(err->text, "no memory for receives");
	assert_int_equal(rocelink_conn_sync_test(p.side[1].conn, "post", err), ROCELINK_OK);
}

static void what_was_said_before_bye_counts(void **state)
{
	struct rocelink_error *err = &p.side[0].err;

	(void)state;
	pair_establish(&p);
	assert_ok(rocelink_conn_sync_say(p.side[0].conn, "last", NULL, err), *err);
	assert_ok(rocelink_conn_sync_say(p.side[1].conn, "last", NULL, err), *err);
	assert_ok(rocelink_conn_sync_say(p.side[0].conn, "never", NULL, err), *err);
	assert_ok(rocelink_conn_bye(p.side[1].conn, err), *err);
	pair_run(&p);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "last", err), ROCELINK_OK);
	assert_int_equal(rocelink_conn_sync_test(p.side[0].conn, "never", err), ROCELINK_CLOSED);
	assert_int_equal(rocelink_conn_sync_say(p.side[0].conn, "more", NULL, err),
			 ROCELINK_CLOSED);
}

static void barriers_are_bounded(void **state)
{
	struct rocelink_error *err = &p.side[0].err;
	char name[20];

	(void)state;
	pair_establish(&p);
	for (int i = 0; i < SYNCS_MAX; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_ok(rocelink_conn_sync_say(p.side[0].conn, name, NULL, err), *err);
	}
	assert_int_equal(rocelink_conn_sync_say(p.side[0].conn, "more", NULL, err), ROCELINK_LIMIT);
}

/* Two sides by tickets, text carried by this function. */
static void ticket_side(int i, enum ibv_qp_type type)
{
	struct side *s = &p.side[i];
	struct rocelink_region g = region("shared");

	s->conn = rocelink_by_ticket(&s->options, &s->err);
	if (!s->conn)
		fail_msg("%s", s->err.text);
	fake_qp_init(&s->qps[0], &s->dev, type, i ? 0x222 : 0x111);
	assert_ok(rocelink_conn_add_qp(s->conn, &s->qps[0].qp, NULL, &s->err), s->err);
	assert_int_equal(s->qps[0].state, IBV_QPS_INIT);
	assert_ok(rocelink_conn_offer(s->conn, &g, &s->err), s->err);
}

static void tickets_link(void **state)
{
	char text[2][ROCELINK_MAX_TICKET], told[1000];
	struct rocelink_remote_region r;
	struct rocelink_error err;

	(void)state;
	pair_init(&p);
	for (int i = 0; i < 2; i++) {
		ticket_side(i, IBV_QPT_RC);
		assert_ok(rocelink_ticket_write(p.side[i].conn, text[i], sizeof(text[i]), &err),
			  err);
	}
	/* A misspelt ticket can be read again. */
	text[1][10] ^= 1;
	assert_int_equal(rocelink_ticket_read(p.side[0].conn, text[1], &err), ROCELINK_PROTOCOL);
	text[1][10] ^= 1;
	for (int i = 0; i < 2; i++)
		assert_ok(rocelink_ticket_read(p.side[i].conn, text[1 - i], &err), err);
	for (int i = 0; i < 2; i++) {
		const struct ibv_qp_attr *a = &fake_qp_step(&p.side[i].qps[0], IBV_QPS_RTR)->attr;

		assert_int_equal(rocelink_conn_state(p.side[i].conn), ROCELINK_STATE_ESTABLISHED);
		assert_int_equal(p.side[i].qps[0].state, IBV_QPS_RTS);
		assert_int_equal(a->dest_qp_num, p.side[1 - i].qps[0].qp.qp_num);
		assert_int_equal(a->rq_psn,
				 fake_qp_step(&p.side[1 - i].qps[0], IBV_QPS_RTS)->attr.sq_psn);
		assert_int_equal(find(i, "shared", &r), ROCELINK_OK);
		assert_int_equal(r.rkey, mr.rkey);
	}
	assert_int_equal(rocelink_ticket_read(p.side[0].conn, text[1], &err), ROCELINK_INVALID);
	assert_contains(err.text, "one connection");
	assert_int_equal(rocelink_conn_sync_say(p.side[0].conn, "x", NULL, &err), ROCELINK_INVALID);
	assert_ok(rocelink_ticket_describe(text[0], told, sizeof(told), &err), err);
	assert_contains(told, "RC QPN 0x000111");
	assert_contains(told, "127.0.0.1");
}

static void own_ticket_is_noticed(void **state)
{
	char text[ROCELINK_MAX_TICKET];
	struct rocelink_error err;

	(void)state;
	pair_init(&p);
	ticket_side(0, IBV_QPT_RC);
	assert_int_equal(rocelink_ticket_read(p.side[0].conn, "RL1-", &err), ROCELINK_INVALID);
	assert_ok(rocelink_ticket_write(p.side[0].conn, text, sizeof(text), &err), err);
	assert_int_equal(rocelink_ticket_read(p.side[0].conn, text, &err), ROCELINK_MISMATCH);
	assert_contains(err.text, "own ticket");
	assert_int_equal(p.side[0].qps[0].state, IBV_QPS_RESET);
}

static void different_types_by_ticket(void **state)
{
	char text[2][ROCELINK_MAX_TICKET];
	struct rocelink_error err;

	(void)state;
	pair_init(&p);
	ticket_side(0, IBV_QPT_RC);
	ticket_side(1, IBV_QPT_UD);
	for (int i = 0; i < 2; i++)
		assert_ok(rocelink_ticket_write(p.side[i].conn, text[i], sizeof(text[i]), &err),
			  err);
	assert_int_equal(rocelink_ticket_read(p.side[0].conn, text[1], &err), ROCELINK_MISMATCH);
	assert_contains(err.text, "UD on the other");
}

int main(void)
{
#define T(f) cmocka_unit_test_teardown(f, teardown)
	const struct CMUnitTest tests[] = {
		T(regions_of_the_options_are_there_at_once),
		T(regions_come_and_go),
		T(as_many_regions_as_the_limit),
		T(wrong_regions_are_explained),
		T(a_barrier_needs_both),
		T(barriers_of_one_name_count),
		T(a_failed_barrier_tells_why),
		T(what_was_said_before_bye_counts),
		T(barriers_are_bounded),
		T(tickets_link),
		T(own_ticket_is_noticed),
		T(different_types_by_ticket),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
