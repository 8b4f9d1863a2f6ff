/* SPDX-License-Identifier: BSD-2-Clause */
/* Same-host links between two ports: offers, refusals, traffic, the peer's end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"
#include "net/port_internal.h"
#include "net/shm.h"

#define NOW 1000000

struct two {
	struct endpoint a, b;
};

static int setup(void **state)
{
	struct two *t = calloc(1, sizeof(*t));

	endpoint_open_shm(&t->a);
	endpoint_open_shm(&t->b);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct two *t = *state;

	endpoint_close(&t->a);
	if (t->b.port)
		endpoint_close(&t->b);
	free(t);
	return 0;
}

static void serve(struct endpoint *e)
{
	for (int i = 0; i < 4; i++)
		port_receive(e->port, 16);
}

/* A ready link from one to the other. */
static struct shm_link *connect_ends(struct endpoint *from, struct endpoint *to)
{
	struct shm_link *link;

	assert_int_equal(shm_find(from->port, to->block, NOW, &link), SHM_PENDING);
	serve(to);
	serve(from);
	assert_int_equal(shm_find(from->port, to->block, NOW, &link), SHM_READY);
	assert_true(shm_changed(from->port));
	return link;
}

static void put(struct endpoint *e, struct shm_link *link, uint8_t value, uint32_t len)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xc000);
	struct outbox *box = shm_outbox(e->port, link);
	uint8_t *at;

	assert_non_null(box);
	at = outbox_reserve(box, &path, len);
	assert_non_null(at);
	memset(at, value, len);
	outbox_commit(box, len);
}

static void links_carry_both_ways(void **state)
{
	struct two *t = *state;
	struct shm_link *ab = connect_ends(&t->a, &t->b), *ba;

	/* The other end has the link too: nothing needs to be offered. */
	assert_int_equal(shm_find(t->b.port, t->a.block, NOW, &ba), SHM_READY);
	put(&t->a, ab, 1, 64);
	put(&t->a, ab, 2, 64);
	shm_publish(t->a.port, ab);
	put(&t->b, ba, 3, 32000);
	shm_publish(t->b.port, ba);
	assert_int_equal(shm_receive(t->b.port, 16), 1);
	assert_int_equal(shm_receive(t->a.port, 16), 1);
	assert_int_equal(t->b.n_packets, 2);
	assert_int_equal(t->b.bursts[0].data[0], 1);
	assert_int_equal(t->b.bursts[0].data[64 + ICRC_LEN], 2);
	assert_int_equal(t->a.n_packets, 1);
	assert_int_equal(t->a.bursts[0].len, 32000 + ICRC_LEN);
	assert_int_equal(port_stats(t->a.port)->local_sent, 2);
	assert_int_equal(port_stats(t->b.port)->local_received, 2);
}

static void one_link_serves_all_blocks(void **state)
{
	struct two *t = *state;
	struct shm_link *link = connect_ends(&t->a, &t->b), *again;
	int more = port_claim_block(t->b.port);

	assert_true(more > 0);
	assert_int_equal(shm_find(t->a.port, (unsigned)more, NOW, &again), SHM_READY);
	assert_ptr_equal(again, link);
	port_release_block(t->b.port, (unsigned)more);
	assert_int_equal(shm_find(t->a.port, (unsigned)more, NOW, &again), SHM_NONE);
	assert_int_equal(port_stats(t->a.port)->links, 1);
}

static void both_may_offer_at_once(void **state)
{
	struct two *t = *state;
	struct shm_link *ab, *ba;

	assert_int_equal(shm_find(t->a.port, t->b.block, NOW, &ab), SHM_PENDING);
	assert_int_equal(shm_find(t->b.port, t->a.block, NOW, &ba), SHM_PENDING);
	serve(&t->a);
	serve(&t->b);
	serve(&t->a);
	assert_int_equal(shm_find(t->a.port, t->b.block, NOW, &ab), SHM_READY);
	assert_int_equal(shm_find(t->b.port, t->a.block, NOW, &ba), SHM_READY);
	put(&t->a, ab, 1, 64);
	shm_publish(t->a.port, ab);
	put(&t->b, ba, 2, 64);
	shm_publish(t->b.port, ba);
	assert_int_equal(shm_receive(t->b.port, 16), 1);
	assert_int_equal(shm_receive(t->a.port, 16), 1);
}

static void own_blocks_need_no_peer(void **state)
{
	struct two *t = *state;
	struct shm_link *self;

	assert_int_equal(shm_find(t->a.port, t->a.block, NOW, &self), SHM_READY);
	assert_false(shm_waits_for_us(t->a.port));
	put(&t->a, self, 9, 64);
	shm_publish(t->a.port, self);
	assert_true(shm_waits_for_us(t->a.port));
	assert_int_equal(shm_receive(t->a.port, 16), 1);
	assert_int_equal(t->a.bursts[0].data[0], 9);
}

static void who_refuses_gets_udp(void **state)
{
	struct two *t = *state;
	struct shm_link *link;

	endpoint_close(&t->b);
	endpoint_open(&t->b, NULL);
	assert_int_equal(shm_find(t->a.port, t->b.block, NOW, &link), SHM_PENDING);
	serve(&t->b);
	serve(&t->a);
	assert_int_equal(shm_find(t->a.port, t->b.block, NOW, &link), SHM_NONE);
	assert_null(link);
	assert_int_equal(port_stats(t->a.port)->links, 0);
}

static void nobody_is_no_link(void **state)
{
	struct two *t = *state;
	struct shm_link *link;

	assert_int_equal(shm_find(t->a.port, t->a.block == 77 ? 78 : 77, NOW, &link), SHM_NONE);
}

static void who_does_not_answer_gets_udp(void **state)
{
	struct two *t = *state;
	struct shm_link *link;

	assert_int_equal(shm_find(t->a.port, t->b.block, NOW, &link), SHM_PENDING);
	assert_int_equal(shm_next_due(t->a.port), NOW + SHM_OFFER_WAIT_NS);
	shm_hold(link);
	assert_int_equal(shm_state(t->a.port, link, NOW + SHM_OFFER_WAIT_NS - 1), SHM_PENDING);
	assert_int_equal(shm_state(t->a.port, link, NOW + SHM_OFFER_WAIT_NS), SHM_NONE);
	shm_release(link);
	/* The answer that comes too late finds nobody. */
	serve(&t->b);
	serve(&t->b);
	assert_int_equal(port_stats(t->b.port)->links, 0);
}

/* What was sent before the end arrives; then the link is dead, while somebody holds it. */
static void the_end_of_a_peer_loses_nothing(void **state)
{
	struct two *t = *state;
	struct shm_link *ab = connect_ends(&t->a, &t->b), *ba;

	shm_hold(ab);
	assert_int_equal(shm_find(t->b.port, t->a.block, NOW, &ba), SHM_READY);
	put(&t->b, ba, 5, 64);
	shm_publish(t->b.port, ba);
	endpoint_close(&t->b);
	t->b.port = NULL;
	serve(&t->a);
	assert_int_equal(t->a.n_packets, 1);
	assert_int_equal(shm_state(t->a.port, ab, NOW), SHM_DEAD);
	assert_int_equal(port_stats(t->a.port)->links, 0);
	shm_release(ab);
	assert_int_equal(shm_state(t->a.port, ab, NOW), SHM_NONE);
}

static void a_sleeper_is_woken_through_its_descriptor(void **state)
{
	static const bool none[SHM_LINKS_MAX];
	struct two *t = *state;
	struct shm_link *ab = connect_ends(&t->a, &t->b);

	serve(&t->b);
	assert_true(shm_sleep(t->b.port, none));
	assert_false(endpoint_readable(&t->b));
	put(&t->a, ab, 1, 64);
	shm_publish(t->a.port, ab);
	assert_true(endpoint_readable(&t->b));
	assert_false(shm_sleep(t->b.port, none));
	serve(&t->b);
	assert_int_equal(shm_receive(t->b.port, 16), 1);
	/* Awake, it is left alone. */
	shm_awake(t->b.port);
	serve(&t->b);
	put(&t->a, ab, 1, 64);
	shm_publish(t->a.port, ab);
	assert_false(endpoint_readable(&t->b));
}

/* Memory that its sender could take away, of another size, or not what it says; and, so that nothing
 * else is what is refused, memory that is right. */
/* The byte may be read by a thread that isn't the sleeper: whether one was is remembered until somebody says
 * again that we sleep, and then looks for what came meanwhile. */
static void a_wake_up_that_was_read_is_remembered(void **state)
{
	static const bool none[SHM_LINKS_MAX];
	struct two *t = *state;
	struct shm_link *link = connect_ends(&t->a, &t->b);

	assert_true(shm_sleep(t->b.port, none));
	assert_false(shm_woken(t->b.port));
	put(&t->a, link, 1, 64);
	shm_publish(t->a.port, link);
	serve(&t->b);
	assert_true(shm_woken(t->b.port));
	assert_int_equal(shm_receive(t->b.port, 16), 1);
	/* Now the peer thinks that we are awake. */
	put(&t->a, link, 2, 64);
	shm_publish(t->a.port, link);
	serve(&t->b);
	assert_false(shm_sleep(t->b.port, none));
	assert_false(shm_woken(t->b.port));
	assert_int_equal(shm_receive(t->b.port, 16), 1);
	assert_true(shm_sleep(t->b.port, none));
}

static void bad_memory_is_refused(void **state)
{
	enum { SHORT, UNSEALED, EMPTY, RIGHT, KINDS };
	const uint32_t magic = 0x726c6b33; /* as in shm.c */
	struct two *t = *state;
	int pair[2], fd;

	for (int kind = 0; kind < KINDS; kind++) {
		off_t size = kind == SHORT ? 4096 : (off_t)shm_memory_size();
		char byte = 0;

		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
		fd = memfd_create("test", MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fd, size), 0);
		if (kind != EMPTY)
			assert_int_equal(pwrite(fd, &magic, sizeof(magic), 0), sizeof(magic));
		if (kind != UNSEALED)
			assert_int_equal(
				fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
				0);
		shm_offered(t->a.port, fd, pair[1]);
		assert_int_equal(port_stats(t->a.port)->links, kind == RIGHT);
		/* The refusal is the end of the socket; the memory's descriptor is closed. */
		assert_int_equal(recv(pair[0], &byte, 1, 0), kind == RIGHT);
		assert_int_equal(fcntl(fd, F_GETFD), -1);
		close(pair[0]);
	}
}

static int run_as_nobody(struct endpoint *to)
{
	struct endpoint e;
	struct shm_link *link;

	if (setuid(65534))
		return 77;
	endpoint_open_shm(&e);
	if (shm_find(e.port, to->block, NOW, &link) != SHM_PENDING)
		return 1;
	for (int i = 0; i < 200 && shm_state(e.port, link, NOW) == SHM_PENDING; i++) {
		usleep(10000);
		port_receive(e.port, 16);
	}
	return shm_state(e.port, link, NOW) == SHM_NONE ? 0 : 2;
}

/* Another user's process can't share memory with ours. */
static void another_user_is_refused(void **state)
{
	struct two *t = *state;
	uint64_t refused = port_stats(t->a.port)->forward_refused;
	int status = -1;
	pid_t pid;

	if (!namespace_has_users())
		skip();
	/* Another user can't bind the port while we have it: its own in a namespace isn't ours. */
	close(t->a.port->main4.fd);
	close(t->a.port->main6.fd);
	t->a.port->main4.fd = t->a.port->main6.fd = -1;
	close(t->b.port->main4.fd);
	close(t->b.port->main6.fd);
	t->b.port->main4.fd = t->b.port->main6.fd = -1;
	pid = fork();
	if (pid == 0)
		_exit(run_as_nobody(&t->a));
	while (waitpid(pid, &status, WNOHANG) == 0) {
		port_receive(t->a.port, 16);
		usleep(1000);
	}
	assert_int_equal(status, 0);
	assert_int_equal(port_stats(t->a.port)->links, 0);
	assert_int_equal(port_stats(t->a.port)->forward_refused, refused + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(links_carry_both_ways),
		T(one_link_serves_all_blocks),
		T(both_may_offer_at_once),
		T(own_blocks_need_no_peer),
		T(who_refuses_gets_udp),
		T(nobody_is_no_link),
		T(who_does_not_answer_gets_udp),
		T(the_end_of_a_peer_loses_nothing),
		T(a_sleeper_is_woken_through_its_descriptor),
		T(a_wake_up_that_was_read_is_remembered),
		T(bad_memory_is_refused),
		T(another_user_is_refused),
	};

	if (!namespace_enter())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
