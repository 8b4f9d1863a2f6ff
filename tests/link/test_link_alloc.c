/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every allocation of an exchange fails once: no crash, no leak (under the address sanitizer), an error that
 * says so or no effect at all, and no queue pair left half linked. The linker puts these wrappers in front
 * of the library's calls.
 */
#include "check.h"

#include <errno.h>

#include "pair.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static long countdown = -1; /* the allocation that fails when it reaches 0; negative: none */

static bool fails(void)
{
	if (countdown < 0 || countdown-- > 0)
		return false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

static struct pair p;
static char memory[64];
static struct ibv_mr mr = { .addr = memory, .length = sizeof(memory), .rkey = 1 };

/* Everything that a connection can do. True if all went well. */
static bool whole_life(void)
{
	struct rocelink_region r = {
		.size = sizeof(r), .name = "r", .mr = &mr, .access = IBV_ACCESS_REMOTE_READ
	};
	struct rocelink_error err;
	bool ok = true;

	for (int i = 0; i < 2; i++) {
		struct rocelink_channel ch = mem_channel(&p.ends[i]);
		struct side *s = &p.side[i];

		s->options.private_data = "data";
		s->options.private_data_len = 4;
		s->options.regions = &r;
		s->options.region_count = 1;
		s->conn = rocelink_dial_channel(&ch, s->role, &s->options, &err);
		if (!s->conn)
			return false;
	}
	pair_start(&p, IBV_QPT_UD, 2);
	r.name = "later";
	for (int i = 0; i < 2; i++) {
		ok = !rocelink_conn_offer(p.side[i].conn, &r, &err) && ok;
		ok = !rocelink_conn_sync_say(p.side[i].conn, "s", NULL, &err) && ok;
	}
	pair_run(&p);
	for (int i = 0; i < 2; i++) {
		ok = !rocelink_conn_sync_test(p.side[i].conn, "s", &err) && ok;
		ok = !rocelink_conn_withdraw(p.side[i].conn, "later", &err) && ok;
		ok = !rocelink_conn_bye(p.side[i].conn, &err) && ok;
	}
	pair_run(&p);
	return ok && rocelink_conn_state(p.side[0].conn) == ROCELINK_STATE_CLOSED;
}

static void each_allocation_fails_once(void **state)
{
	long n = 0;
	bool ok = false;

	(void)state;
	for (; !ok; n++) {
		assert_in_range(n, 0, 2000);
		pair_init(&p);
		/* The channel's own memory is not the library's. */
		for (int i = 0; i < 2; i++) {
			assert_non_null(buffer_grow(&p.ends[i].sent, 65536));
			p.ends[i].sent.len = 0;
		}
		countdown = n;
		ok = whole_life();
		/* Past the last allocation the count isn't used up. */
		ok = ok && countdown >= 0;
		countdown = -1;
		for (int i = 0; i < 2; i++)
			if (p.side[i].conn &&
			    rocelink_conn_state(p.side[i].conn) == ROCELINK_STATE_FAILED)
				assert_true(rocelink_conn_error(p.side[i].conn)->text[0] != '\0');
		pair_free(&p);
		assert_int_equal(p.side[0].dev.ah_alive, 0);
		assert_int_equal(p.side[1].dev.ah_alive, 0);
	}
	assert_true(n > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_allocation_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
