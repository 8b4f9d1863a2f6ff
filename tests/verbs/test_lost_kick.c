/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A post that finds the engine's lock taken by somebody who lets go of it before he could see the post: the
 * one that posts has to try again, since nobody else is awake. The lock's trylock is answered here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "rig.h"

static _Thread_local int refusals;

__attribute__((visibility("default"))) int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	static int (*real)(pthread_mutex_t *);

	if (refusals && refusals--)
		return EBUSY;
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
	return real(mutex);
}

static void nobody_polls_and_the_message_arrives(void **state)
{
	struct rig *r = *state;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(r->ctx);
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *a, *b;

	assert_non_null(channel);
	send_cq = rig_cq(r, 8, NULL);
	recv_cq = rig_cq(r, 8, channel);
	a = rig_qp(r, IBV_QPT_RC, send_cq, send_cq, NULL);
	b = rig_qp(r, IBV_QPT_RC, recv_cq, recv_cq, NULL);
	rig_connect(a, b);
	assert_int_equal(ibv_req_notify_cq(recv_cq, 0), 0);
	assert_int_equal(rig_post_recv(r, b, 1, 4096, 64), 0);
	usleep(200000); /* the background thread sleeps */
	refusals = 1;
	assert_int_equal(rig_post_send(r, a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	assert_int_equal(refusals, 0);
	assert_true(rig_readable(channel->fd, 5000));
	rig_await_n(recv_cq, 1);
	rig_await_n(send_cq, 1);
	assert_int_equal(ibv_destroy_qp(a), 0);
	assert_int_equal(ibv_destroy_qp(b), 0);
	assert_int_equal(ibv_destroy_cq(send_cq), 0);
	assert_int_equal(ibv_destroy_cq(recv_cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nobody_polls_and_the_message_arrives, rig_setup,
						rig_teardown),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
