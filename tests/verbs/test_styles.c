/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All ways in which programs wait, at once and in turn: threads of two processes answer each other's messages
 * (RC, UC, UD), and each time wait otherwise: polling, in ibv_get_cq_event(), in poll(2), watching memory, asleep.
 * Another thread polls and posts what nobody receives, and then keeps still until each pair went on. Whoever drives at the moment must
 * notice for whom: UC and UD repeat nothing, so that a wake-up that gets lost stops its pair for good.
 *
 *	test_verbs_styles [SECONDS [SEED]]		with one to six pairs, as the seed says
 */
#include "rig.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LANES_MAX 6
#define SLICE	  4096 /* bytes of a lane in the buffer */
#define OUT	  0    /* in the slice: what is sent ... */
#define IN	  1024 /* ... where WRITEs arrive ... */
#define RECEIVES  2048 /* ... and SENDs */
#define DEPTH	  8    /* receives posted */
#define GRH	  40
#define LAST	  0xff /* this message ends the game */
#define STALLED_S 15

enum style { POLL, EVENT, POLL_FD, ASLEEP, STYLES };
static const char *const style_names[] = { "poll", "ibv_get_cq_event", "poll(2)", "sleep",
					   "watch" };

struct lane {
	pthread_t thread;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	uint32_t peer_qpn, peer_rkey;
	uint64_t peer_addr; /* of the peer's buffer */
	unsigned index, posted, random;
	_Atomic unsigned rounds, style;
	_Atomic bool done;
};

static struct rig *rig;
static struct lane lanes[LANES_MAX];
static bool is_child;
static _Atomic bool over;
static unsigned seconds = 2, seed, n_lanes;

static unsigned draw(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static uint32_t slice(const struct lane *l, uint32_t offset)
{
	return l->index * SLICE + offset;
}

/* Both ends draw the same for each message: a WRITE, whose receiver watches its memory, or a SEND. */
static bool is_write(const struct lane *l, unsigned message)
{
	unsigned x = l->index * 7919 + message;

	return l->qp->qp_type != IBV_QPT_UD && draw(&x) % 4 == 0;
}

static void post_receive(struct lane *l, unsigned slot)
{
	assert_int_equal(rig_post_recv(rig, l->qp, slot, slice(l, RECEIVES + slot * 64), GRH + 8),
			 0);
}

static void send_one(struct lane *l, unsigned message, uint8_t mark)
{
	struct ibv_sge sge = { (uintptr_t)rig->buffer + slice(l, OUT), 1, rig->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = is_write(l, message) ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	/* The one before it is answered, but perhaps not acknowledged yet: it may be sent again. */
	while (l->posted) {
		int n = ibv_poll_cq(l->send_cq, 1, &wc);

		assert_true(n >= 0);
		if (n)
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		l->posted -= (unsigned)n;
	}
	rig->buffer[slice(l, OUT)] = mark;
	if (l->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = l->ah;
		wr.wr.ud.remote_qpn = l->peer_qpn;
		wr.wr.ud.remote_qkey = 0x1234;
	} else {
		wr.wr.rdma.remote_addr = l->peer_addr + slice(l, IN);
		wr.wr.rdma.rkey = l->peer_rkey;
	}
	assert_int_equal(ibv_post_send(l->qp, &wr, &bad), 0);
	l->posted++;
}

__attribute__((no_sanitize("thread"))) static uint8_t seen(const struct lane *l)
{
	return *(const volatile uint8_t *)(rig->buffer + slice(l, IN));
}

static uint8_t watch(struct lane *l)
{
	const bool asleep = draw(&l->random) % 2;
	uint8_t mark;

	atomic_store(&l->style, STYLES);
	while (!(mark = seen(l))) {
		if (asleep)
			usleep(50);
		else
			sched_yield();
	}
	rig->buffer[slice(l, IN)] = 0;
	return mark;
}

static void wait_for_event(struct lane *l, bool by_fd)
{
	struct ibv_cq *cq;
	void *context;

	if (by_fd)
		assert_true(rig_readable(l->channel->fd, STALLED_S * 1000 * 2));
	assert_int_equal(ibv_get_cq_event(l->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
}

static uint8_t receive(struct lane *l)
{
	const enum style style = draw(&l->random) % STYLES;
	struct ibv_wc wc;
	bool armed = false;
	int n;

	atomic_store(&l->style, style);
	while ((n = ibv_poll_cq(l->recv_cq, 1, &wc)) == 0) {
		if (style == ASLEEP) {
			usleep(draw(&l->random) % 2000);
		} else if (style == EVENT || style == POLL_FD) {
			if (armed)
				wait_for_event(l, style == POLL_FD);
			else
				assert_int_equal(ibv_req_notify_cq(l->recv_cq, 0), 0);
			armed = !armed;
		}
	}
	/* Asked for and not waited for: it comes with this completion or a later one. */
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	n = (int)slice(l, RECEIVES + (uint32_t)wc.wr_id * 64);
	if (l->qp->qp_type == IBV_QPT_UD)
		n += GRH;
	post_receive(l, (unsigned)wc.wr_id);
	return rig->buffer[n];
}

static void *play(void *arg)
{
	struct lane *l = arg;
	unsigned message = 0;
	uint8_t mark;

	if (!is_child)
		send_one(l, message++, 1);
	do {
		mark = is_write(l, message) ? watch(l) : receive(l);
		message++;
		if (draw(&l->random) % 50 == 0)
			usleep(draw(&l->random) % 3000);
		/* The parent ends it, and the child says that it heard so. */
		if (!is_child && mark == LAST)
			break;
		send_one(l, message++, !is_child && atomic_load(&over) ? LAST : mark);
		atomic_fetch_add(&l->rounds, 1);
	} while (!is_child || mark != LAST);
	atomic_store(&l->done, true);
	return NULL;
}

/* Until each pair went on without help. */
static void keep_still(void)
{
	unsigned before[LANES_MAX];

	for (unsigned i = 0; i < n_lanes; i++)
		before[i] = atomic_load(&lanes[i].rounds);
	for (unsigned i = 0; i < n_lanes; i++)
		while (atomic_load(&lanes[i].rounds) == before[i] && !atomic_load(&lanes[i].done))
			usleep(500);
}

/* Looks like a program that drives in a loop, and then doesn't. */
static void *make_noise(void *arg)
{
	struct ibv_cq *cq = rig_cq(rig, 1024, NULL);
	struct ibv_qp *qp = rig_qp(rig, IBV_QPT_UD, cq, cq, NULL);
	unsigned random = *(unsigned *)arg;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc[16];

	assert_int_equal(rig_to_init(qp) | rig_to_rtr(qp, 0) | rig_to_rts(qp), 0);
	wr.wr.ud.ah = lanes[0].ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = 0x1234;
	while (!atomic_load(&over)) {
		const unsigned kind = draw(&random) % 3, n = draw(&random) % 3000;

		for (unsigned i = 0; kind == 0 && i < n; i++)
			assert_true(ibv_poll_cq(cq, 16, wc) >= 0);
		for (unsigned i = 0; kind == 1 && i < n / 30; i++)
			while (ibv_post_send(qp, &wr, &bad))
				ibv_poll_cq(cq, 16, wc);
		if (kind == 2)
			usleep(n);
		else
			keep_still();
	}
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	return NULL;
}

static void meet(int sock, void *mine, void *theirs, size_t len)
{
	assert_int_equal(write(sock, mine, len), len);
	assert_int_equal(recv(sock, theirs, len, MSG_WAITALL), len);
}

static void open_lane(struct lane *l, unsigned index, int sock)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC };
	const enum ibv_qp_type type = types[index % 3];
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	uint64_t mine[3], theirs[3];

	l->index = index;
	l->random = seed * 31 + index * 2 + is_child;
	l->channel = ibv_create_comp_channel(rig->ctx);
	assert_non_null(l->channel);
	l->send_cq = rig_cq(rig, 16, NULL);
	l->recv_cq = rig_cq(rig, 16, l->channel);
	l->qp = rig_qp(rig, type, l->send_cq, l->recv_cq, NULL);
	assert_int_equal(ibv_query_gid(rig->ctx, 1, 0, &to.grh.dgid), 0);
	l->ah = ibv_create_ah(rig->pd, &to);
	assert_non_null(l->ah);
	mine[0] = l->qp->qp_num;
	mine[1] = rig->mr->rkey;
	mine[2] = (uintptr_t)rig->buffer;
	meet(sock, mine, theirs, sizeof(mine));
	l->peer_qpn = (uint32_t)theirs[0];
	l->peer_rkey = (uint32_t)theirs[1];
	l->peer_addr = theirs[2];
	assert_int_equal(rig_to_init(l->qp), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		post_receive(l, i);
	assert_int_equal(rig_to_rtr(l->qp, l->peer_qpn), 0);
	assert_int_equal(rig_to_rts(l->qp), 0);
}

static void close_lane(struct lane *l)
{
	assert_int_equal(ibv_destroy_ah(l->ah), 0);
	assert_int_equal(ibv_destroy_qp(l->qp), 0);
	assert_int_equal(ibv_destroy_cq(l->send_cq), 0);
	assert_int_equal(ibv_destroy_cq(l->recv_cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(l->channel), 0);
}

/* Returns when all are done; ends the process when one stands still. */
static void look_after(void)
{
	unsigned before[LANES_MAX] = { 0 }, still[LANES_MAX] = { 0 }, left = n_lanes;

	for (unsigned s = 0; left; s++) {
		if (s == seconds)
			atomic_store(&over, true);
		usleep(s < seconds ? 1000000 : 100000);
		left = 0;
		for (unsigned i = 0; i < n_lanes; i++) {
			unsigned rounds = atomic_load(&lanes[i].rounds);

			left += !atomic_load(&lanes[i].done);
			still[i] = rounds == before[i] && !atomic_load(&lanes[i].done)
					   ? still[i] + 1
					   : 0;
			before[i] = rounds;
			if (still[i] < (s < seconds ? STALLED_S : STALLED_S * 10))
				continue;
			fprintf(stderr, "%s: lane %u (%s) stands still after %u rounds: %s\n",
				is_child ? "child" : "parent", i,
				lanes[i].qp->qp_type == IBV_QPT_UD   ? "UD"
				: lanes[i].qp->qp_type == IBV_QPT_UC ? "UC"
								     : "RC",
				rounds, style_names[atomic_load(&lanes[i].style)]);
			_exit(1);
		}
	}
}

static void run_side(int sock)
{
	unsigned noise_seed = seed + 77 * is_child;
	pthread_t noise;
	void *r;
	char c = 0;

	assert_int_equal(rig_setup(&r), 0);
	rig = r;
	for (unsigned i = 0; i < n_lanes; i++)
		open_lane(&lanes[i], i, sock);
	meet(sock, &c, &c, 1);
	assert_int_equal(pthread_create(&noise, NULL, make_noise, &noise_seed), 0);
	for (unsigned i = 0; i < n_lanes; i++)
		assert_int_equal(pthread_create(&lanes[i].thread, NULL, play, &lanes[i]), 0);
	look_after();
	atomic_store(&over, true);
	for (unsigned i = 0; i < n_lanes; i++)
		pthread_join(lanes[i].thread, NULL);
	pthread_join(noise, NULL);
	/* Not before the peer has heard the last of it. */
	meet(sock, &c, &c, 1);
	for (unsigned i = 0; i < n_lanes; i++)
		close_lane(&lanes[i]);
	rig_teardown(&r);
}

static void play_seed(unsigned with)
{
	int socks[2], status;
	unsigned rounds = 0;
	pid_t child;

	if (is_child) /* a failed assertion goes on with the next test */
		_exit(1);
	seed = with;
	memset(lanes, 0, sizeof(lanes));
	atomic_store(&over, false);
	n_lanes = 1 + seed % LANES_MAX;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	is_child = child == 0;
	close(socks[!is_child]);
	run_side(socks[is_child]);
	if (is_child)
		_exit(0);
	close(socks[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	for (unsigned i = 0; i < n_lanes; i++) {
		rounds += lanes[i].rounds;
		assert_true(lanes[i].rounds > 0);
	}
	print_message("seed %u: %u rounds\n", seed, rounds);
}

static void one_pair(void **state)
{
	(void)state;
	play_seed(0);
}

static void two_pairs(void **state)
{
	(void)state;
	play_seed(1);
}

static void six_pairs(void **state)
{
	(void)state;
	play_seed(5);
}

static void given_seed(void **state)
{
	play_seed(*(unsigned *)*state);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_pair), /* nobody else's doings wake it */
		cmocka_unit_test(two_pairs),
		cmocka_unit_test(six_pairs),
	};
	unsigned given = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	const struct CMUnitTest one[] = { cmocka_unit_test_prestate(given_seed, &given) };

	if (argc > 1)
		seconds = (unsigned)atoi(argv[1]);
	rig_isolate();
	return argc > 2 ? cmocka_run_group_tests(one, NULL, NULL)
			: cmocka_run_group_tests(tests, NULL, NULL);
}
