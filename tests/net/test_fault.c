/* SPDX-License-Identifier: BSD-2-Clause */
/* The fault injector alone: an outbox in, an outbox out, bursts in, bursts out, time by hand. */
#include <errno.h>
#include <string.h>

#include "base/units.h"
#include "endpoint.h"
#include "net/fault.h"
#include "wire/icrc.h"

#define T0	 UINT64_C(1000000000)
#define KEPT_MAX 4096

/* Packets as they came out, by PSN. */
struct kept {
	unsigned n;
	uint32_t psn[KEPT_MAX];
	unsigned good; /* with a right ICRC */
};

static struct fault_injector *injector(const char *text)
{
	struct fault_injector *f;
	struct fault_plan plan;
	char error[256] = "";

	if (fault_plan_parse(&plan, text, error, sizeof(error)))
		fail_msg("%s: %s", text, error);
	assert_int_equal(fault_create(&f, &plan, T0), 0);
	return f;
}

static void keep(void *arg, const struct burst *burst)
{
	struct kept *k = arg;

	assert_true(burst->seg_len > 0);
	for (size_t at = 0; at < burst->len; at += burst->seg_len) {
		size_t left = burst->len - at;
		const uint8_t *p = burst->data + at;
		uint16_t id = 0;

		assert_true(k->n < KEPT_MAX);
		k->good += icrc_check(&burst->path, &id, p,
				      left < burst->seg_len ? left : burst->seg_len);
		k->psn[k->n++] = (uint32_t)p[9] << 16 | (uint32_t)p[10] << 8 | p[11];
	}
}

/* What lies in the outbox, as the other end would see it. */
static void empty_outbox(struct outbox *box, struct kept *k)
{
	for (unsigned i = box->first_group; i < box->n_groups; i++) {
		const struct outbox_group *g = &box->groups[i];
		struct burst burst = { .path = g->path,
				       .data = box->buf + g->offset,
				       .len = g->len,
				       .seg_len = g->seg_len };

		if (g->damaged)
			assert_int_equal(g->segments, 1);
		keep(k, &burst);
	}
	outbox_sent(box, box->n_groups - box->first_group);
}

static void put(struct outbox *box, const char *from, uint32_t psn, uint32_t len)
{
	struct path path = path_of(from, strchr(from, ':') ? "2001:db8::2" : "192.0.2.2", 0xc000);
	struct packet p = { .opcode = 0x04,
			    .pkey = 0xffff,
			    .dest_qpn = 0x123456,
			    .psn = psn_make(psn),
			    .payload_len = len };
	uint8_t *out = outbox_reserve(box, &path, PACKET_HEADER_MAX + len);
	unsigned head;

	assert_non_null(out);
	head = packet_build_headers(&p, out);
	memset(out + head, (int)psn, len);
	outbox_commit(box, head + len);
}

/* n packets out at T0; returns those that leave at once. */
static struct kept send_packets(struct fault_injector *f, const char *from, unsigned n)
{
	struct kept kept = { 0 };
	struct outbox box;

	assert_int_equal(outbox_init(&box, 128 << 10), 0);
	for (unsigned i = 0; i < n; i++) {
		put(&box, from, i, 256);
		fault_send(f, &box, T0);
		assert_true(outbox_empty(&box));
		empty_outbox(fault_outbox(f), &kept);
	}
	outbox_destroy(&box);
	return kept;
}

static struct kept send_later(struct fault_injector *f, uint64_t now_ns)
{
	struct outbox nothing = { 0 };
	struct kept kept = { 0 };

	fault_send(f, &nothing, now_ns);
	empty_outbox(fault_outbox(f), &kept);
	return kept;
}

static bool local_burst;

/* n packets in, in one burst. */
static struct kept receive_packets(struct fault_injector *f, unsigned n, uint64_t now_ns)
{
	struct kept kept = { 0 };
	struct outbox box;

	assert_int_equal(outbox_init(&box, 1 << 20), 0);
	for (unsigned i = 0; i < n; i++)
		put(&box, "192.0.2.1", i, 256);
	for (unsigned i = 0; i < box.n_groups; i++) {
		const struct outbox_group *g = &box.groups[i];
		struct burst burst = { .path = g->path,
				       .data = box.buf + g->offset,
				       .len = g->len,
				       .seg_len = g->seg_len };

		burst.path.local = local_burst;
		fault_receive(f, &burst, now_ns, keep, &kept);
	}
	outbox_destroy(&box);
	return kept;
}

static void assert_in_order(const struct kept *k, unsigned n)
{
	assert_int_equal(k->n, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(k->psn[i], i);
}

static void test_nothing_to_do(void **state)
{
	struct fault_injector *f = injector("seed=7");
	struct kept k = send_packets(f, "192.0.2.1", 500);

	(void)state;
	assert_in_order(&k, 500);
	assert_int_equal(k.good, 500);
	k = receive_packets(f, 100, T0);
	assert_in_order(&k, 100);
	assert_int_equal(k.good, 100);
	assert_true(fault_next_due_ns(f, T0) == TIME_NEVER);
	fault_destroy(f);
}

static void test_loss(void **state)
{
	struct fault_injector *a = injector("loss=20%,seed=42"), *b = injector("loss=20%,seed=42");
	struct fault_injector *c = injector("loss=20%,seed=43");
	struct kept ka = send_packets(a, "192.0.2.1", 2000);
	struct kept kb = send_packets(b, "192.0.2.1", 2000);
	struct kept kc = send_packets(c, "192.0.2.1", 2000);

	(void)state;
	/* Five standard deviations of 1600. */
	assert_in_range(ka.n, 1510, 1690);
	assert_int_equal(ka.n, ka.good);
	assert_int_equal(fault_stats(a, FAULT_OUT)->lost, 2000 - ka.n);
	assert_memory_equal(&ka, &kb, sizeof(ka));
	assert_memory_not_equal(&ka, &kc, sizeof(ka));
	fault_destroy(a);
	fault_destroy(b);
	fault_destroy(c);
}

static void test_directions(void **state)
{
	struct fault_injector *f = injector("in.loss=100%");
	struct kept k = send_packets(f, "192.0.2.1", 100);

	(void)state;
	assert_in_order(&k, 100);
	assert_int_equal(receive_packets(f, 100, T0).n, 0);
	fault_destroy(f);
	f = injector("out.loss=100%");
	assert_int_equal(send_packets(f, "192.0.2.1", 100).n, 0);
	k = receive_packets(f, 100, T0);
	assert_in_order(&k, 100);
	fault_destroy(f);
}

/* One rate doesn't move the choices of another. */
static void test_rates_are_independent(void **state)
{
	struct fault_injector *a = injector("loss=20%,seed=5");
	struct fault_injector *b = injector("loss=20%,dup=30%,seed=5");
	struct kept ka = send_packets(a, "2001:db8::1", 1000);
	struct kept kb = send_packets(b, "2001:db8::1", 1000);
	unsigned n = 0;

	(void)state;
	for (unsigned i = 0; i < kb.n; i++)
		if (i == 0 || kb.psn[i] != kb.psn[i - 1])
			kb.psn[n++] = kb.psn[i];
	assert_in_range(kb.n - n, 180, 300);
	assert_int_equal(ka.n, n);
	assert_memory_equal(ka.psn, kb.psn, n * sizeof(ka.psn[0]));
	fault_destroy(a);
	fault_destroy(b);
}

static void test_delay(void **state)
{
	struct fault_injector *f = injector("delay=2ms");
	struct kept k = send_packets(f, "192.0.2.1", 300);

	(void)state;
	assert_int_equal(k.n, 0);
	assert_true(fault_next_due_ns(f, T0) == T0 + 2 * NS_PER_MS);
	assert_int_equal(send_later(f, T0 + 2 * NS_PER_MS - 1).n, 0);
	k = send_later(f, T0 + 2 * NS_PER_MS);
	assert_in_order(&k, 300);
	assert_int_equal(k.good, 300);
	assert_true(fault_next_due_ns(f, T0) == TIME_NEVER);

	assert_int_equal(receive_packets(f, 50, T0).n, 0);
	assert_true(fault_next_due_ns(f, T0) == T0 + 2 * NS_PER_MS);
	k = (struct kept){ 0 };
	fault_receive(f, NULL, T0 + 2 * NS_PER_MS - 1, keep, &k);
	assert_int_equal(k.n, 0);
	fault_receive(f, NULL, T0 + 2 * NS_PER_MS, keep, &k);
	assert_in_order(&k, 50);
	assert_int_equal(k.good, 50);
	fault_destroy(f);
}

static void test_end_sends_what_is_held(void **state)
{
	struct fault_injector *f = injector("delay=1s");
	struct kept k = send_packets(f, "192.0.2.1", 10);

	(void)state;
	assert_int_equal(k.n, 0);
	fault_send_held(f);
	empty_outbox(fault_outbox(f), &k);
	assert_in_order(&k, 10);
	send_packets(f, "192.0.2.1", 10);
	fault_destroy(f); /* what is held is freed: a sanitizer would tell */
}

static void test_reorder(void **state)
{
	struct fault_injector *f = injector("reorder=20%");
	struct kept k = send_packets(f, "192.0.2.1", 500), late;
	uint8_t seen[500] = { 0 };

	(void)state;
	assert_in_range(k.n, 340, 460);
	late = send_later(f, T0 + NS_PER_MS);
	assert_int_equal(k.n + late.n, 500);
	assert_int_equal(fault_stats(f, FAULT_OUT)->reordered, late.n);
	for (unsigned i = 0; i < k.n; i++)
		seen[k.psn[i]]++;
	for (unsigned i = 0; i < late.n; i++)
		seen[late.psn[i]]++;
	for (unsigned i = 0; i < 500; i++)
		assert_int_equal(seen[i], 1);
	fault_destroy(f);
}

static void test_duplicates(void **state)
{
	struct fault_injector *f = injector("dup=100%");
	struct kept k = send_packets(f, "192.0.2.1", 100);

	(void)state;
	assert_int_equal(k.n, 200);
	assert_int_equal(k.good, 200);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(k.psn[i], i / 2);
	k = receive_packets(f, 100, T0);
	assert_int_equal(k.n, 200);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(k.psn[i], i / 2);
	fault_destroy(f);
}

/* Over IPv4 the check is blind to one bit in 2^15: the injector takes another. */
static void test_corruption_is_noticed(void **state)
{
	struct fault_injector *f = injector("corrupt=100%");

	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		struct kept k = send_packets(f, round & 1 ? "192.0.2.1" : "2001:db8::1", 2000);

		assert_int_equal(k.n, 2000);
		assert_int_equal(k.good, 0);
		k = receive_packets(f, 1000, T0);
		assert_int_equal(k.n, 1000);
		assert_int_equal(k.good, 0);
	}
	fault_destroy(f);
}

/* More than its outbox holds waits its turn. */
static void test_full_outbox(void **state)
{
	struct fault_injector *f = injector("corrupt=0.0001%");
	struct kept k = { 0 };
	struct outbox box;
	unsigned n = 0;

	(void)state;
	assert_int_equal(outbox_init(&box, 512 << 10), 0);
	for (unsigned round = 0; round < 6; round++) {
		for (unsigned i = 0; i < 100; i++)
			put(&box, "192.0.2.1", n++, 4096);
		fault_send(f, &box, T0);
		assert_true(outbox_empty(&box));
	}
	while (k.n < n) {
		unsigned before = k.n;

		empty_outbox(fault_outbox(f), &k);
		assert_true(k.n > before);
		assert_true(k.n == n || fault_next_due_ns(f, T0) <= T0);
		fault_send(f, &box, T0);
	}
	assert_in_order(&k, n);
	assert_int_equal(k.good, n);
	outbox_destroy(&box);
	fault_destroy(f);
}

/* The other end of a same-host link: its ring, of so many places. */
struct ring {
	struct kept kept;
	unsigned room;
	uint32_t len; /* of each packet */
};

static bool put_ring(void *arg, const struct path *path, const uint8_t *data, uint32_t len)
{
	struct ring *r = arg;

	assert_true(path->local);
	assert_int_equal(len, r->len);
	if (r->kept.n == r->room)
		return false;
	r->kept.psn[r->kept.n++] = (uint32_t)data[9] << 16 | (uint32_t)data[10] << 8 | data[11];
	return true;
}

/* n packets of the same-host path out at `now_ns`. */
static void send_local(struct fault_injector *f, struct ring *r, unsigned n, uint64_t now_ns)
{
	struct path path = path_of("192.0.2.1", "192.0.2.1", 0xc000);
	struct outbox box;

	path.local = true;
	fault_set_ring(f, put_ring, r);
	assert_int_equal(outbox_init(&box, 128 << 10), 0);
	box.no_icrc = true;
	for (unsigned i = 0; i < n; i++) {
		struct packet p = { .opcode = 0x04, .pkey = 0xffff, .psn = psn_make(i) };
		uint8_t *out = outbox_reserve(&box, &path, PACKET_HEADER_MAX);

		assert_non_null(out);
		r->len = packet_build_headers(&p, out);
		outbox_commit(&box, r->len);
		fault_send(f, &box, now_ns);
		assert_true(outbox_empty(&box));
	}
	/* Nothing of it is meant for the network. */
	assert_true(outbox_empty(fault_outbox(f)));
	outbox_destroy(&box);
}

/* The same fates as on UDP, packet by packet; what would be damaged is lost. */
static void test_ring_same_fates(void **state)
{
	static const char *const plans[] = { "loss=10%,seed=42", "dup=10%,seed=42",
					     "out.reorder=20%,seed=42", "in.loss=50%" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
		struct fault_injector *f = injector(plans[i]), *g = injector(plans[i]);
		struct kept udp = send_packets(f, "192.0.2.1", 500), later;
		struct ring ring = { .room = KEPT_MAX };

		send_local(g, &ring, 500, T0);
		assert_int_equal(ring.kept.n, udp.n);
		assert_memory_equal(ring.kept.psn, udp.psn, udp.n * sizeof(udp.psn[0]));
		later = send_later(f, T0 + NS_PER_SEC);
		ring.kept.n = 0;
		send_later(g, T0 + NS_PER_SEC);
		assert_int_equal(ring.kept.n, later.n);
		assert_memory_equal(ring.kept.psn, later.psn, later.n * sizeof(later.psn[0]));
		fault_destroy(f);
		fault_destroy(g);
	}
}

static void test_ring_corrupt_is_lost(void **state)
{
	struct fault_injector *f = injector("corrupt=10%,seed=42");
	struct ring ring = { .room = KEPT_MAX };
	uint64_t out, in;

	(void)state;
	send_local(f, &ring, 500, T0);
	out = fault_stats(f, FAULT_OUT)->corrupted;
	assert_in_range(out, 20, 100);
	assert_int_equal(ring.kept.n, 500 - out);
	local_burst = true;
	in = receive_packets(f, 500, T0).n;
	local_burst = false;
	assert_in_range(fault_stats(f, FAULT_IN)->corrupted, 20, 100);
	assert_int_equal(in, 500 - fault_stats(f, FAULT_IN)->corrupted);
	fault_destroy(f);
}

/* A full ring stops nobody else, loses nothing, changes no order, and is asked again soon. */
static void test_ring_full(void **state)
{
	struct fault_injector *f = injector("corrupt=0.0001%");
	struct ring ring = { .room = 10 };
	uint64_t due;

	(void)state;
	send_local(f, &ring, 100, T0);
	assert_int_equal(ring.kept.n, 10);
	assert_int_equal(send_packets(f, "192.0.2.1", 5).n, 5);
	due = fault_next_due_ns(f, T0);
	assert_in_range(due, T0 + 1, T0 + NS_PER_MS);
	ring.room = KEPT_MAX;
	assert_int_equal(send_later(f, due).n, 0);
	assert_in_order(&ring.kept, 100);
	assert_true(fault_next_due_ns(f, due) == TIME_NEVER);
	fault_destroy(f);
}

static void test_held_is_bounded(void **state)
{
	struct fault_injector *f = injector("delay=1s");
	struct outbox box;

	(void)state;
	assert_int_equal(outbox_init(&box, 512 << 10), 0);
	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < 100; i++)
			put(&box, "192.0.2.1", i, 4096);
		fault_send(f, &box, T0);
	}
	/* 64 MiB of 20,000 packets of 4112 bytes. */
	assert_int_equal(fault_stats(f, FAULT_OUT)->overflow, 20000 - (64 << 20) / 4112);
	outbox_destroy(&box);
	fault_destroy(f);
}

static void test_link_down(void **state)
{
	struct fault_injector *f = injector("link-down=2s+500ms");
	const uint64_t down = T0 + 2 * NS_PER_SEC, up = down + 500 * NS_PER_MS;

	(void)state;
	assert_true(fault_next_due_ns(f, T0) == down);
	assert_false(fault_link_down(f, down - 1));
	assert_int_equal(receive_packets(f, 10, down - 1).n, 10);
	assert_true(fault_link_down(f, down));
	assert_int_equal(receive_packets(f, 10, down).n, 0);
	assert_true(fault_next_due_ns(f, down) == up);
	assert_int_equal(receive_packets(f, 10, up - 1).n, 0);
	assert_false(fault_link_down(f, up));
	assert_int_equal(receive_packets(f, 10, up).n, 10);
	assert_true(fault_next_due_ns(f, up) == TIME_NEVER);
	assert_int_equal(fault_stats(f, FAULT_IN)->link_down, 20);
	fault_destroy(f);

	/* Noticed late, it lasts as long. */
	f = injector("link-down=2s+500ms");
	assert_true(fault_link_down(f, up));
	assert_true(fault_link_down(f, up + 500 * NS_PER_MS - 1));
	assert_false(fault_link_down(f, up + 500 * NS_PER_MS));
	fault_destroy(f);
}

static void test_once(void **state)
{
	struct fault_injector *f = injector("cq-overrun=3,qp-error=5,device-fatal=7,rnr=50%");
	unsigned overruns = 0, errors = 0, rnrs = 0;

	(void)state;
	for (unsigned i = 1; i <= 1000; i++) {
		bool overrun = fault_cq_overrun(f), error = fault_qp_error(f);

		assert_int_equal(overrun, i == 3);
		assert_int_equal(error, i == 5);
		assert_int_equal(fault_device_fatal(f), i == 7);
		overruns += overrun;
		errors += error;
		rnrs += fault_rnr(f);
	}
	assert_int_equal(overruns, 1);
	assert_int_equal(errors, 1);
	assert_in_range(rnrs, 400, 600);
	fault_destroy(f);
}

static void test_plan(void **state)
{
	struct fault_plan p;
	char error[256];

	(void)state;
	assert_int_equal(
		fault_plan_parse(&p,
				 "loss=1%,reorder=0.5%,delay=2ms,dup=0.1%,corrupt=0.01%,seed=42,"
				 "in.loss=100%,out.delay=1.5us,rnr=0.000001%,link-down=0s+10ns",
				 error, sizeof(error)),
		0);
	assert_true(p.active);
	assert_int_equal(p.seed, 42);
	assert_int_equal(p.rates[FAULT_OUT].loss, FAULT_ALWAYS / 100);
	assert_int_equal(p.rates[FAULT_IN].loss, FAULT_ALWAYS);
	assert_int_equal(p.rates[FAULT_IN].reorder, FAULT_ALWAYS / 200);
	assert_int_equal(p.rates[FAULT_OUT].dup, FAULT_ALWAYS / 1000);
	assert_int_equal(p.rates[FAULT_OUT].corrupt, FAULT_ALWAYS / 10000);
	assert_int_equal(p.rates[FAULT_OUT].delay_ns, 1500);
	assert_int_equal(p.rates[FAULT_IN].delay_ns, 2 * NS_PER_MS);
	assert_int_equal(p.rnr, FAULT_ALWAYS / 100000000);
	assert_int_equal(p.link_down_at_ns, 0);
	assert_int_equal(p.link_down_for_ns, 10);

	assert_int_equal(fault_plan_parse(&p, "seed=9", error, sizeof(error)), 0);
	assert_false(p.active);
	assert_int_equal(fault_plan_parse(&p, "delay=3600s", error, sizeof(error)), 0);
	assert_int_equal(p.rates[FAULT_IN].delay_ns, 3600 * NS_PER_SEC);
}

static void test_wrong_plans(void **state)
{
	static const struct {
		const char *text, *named;
	} rows[] = {
		{ "", "list" },
		{ ",", "no fault \"\"" },
		{ "loss", "loss is \"\"" },
		{ "loss=", "percentage" },
		{ "loss=1", "percentage" },
		{ "loss=101%", "percentage" },
		{ "loss=-1%", "percentage" },
		{ "loss=1e1%", "percentage" },
		{ "loss=nan%", "percentage" },
		{ "loss=1%%", "percentage" },
		{ "loss=1% ,dup=1%", "percentage" },
		{ "loss=99999999999999999999%", "percentage" },
		{ "los=1%", "no fault \"los\"; there are loss," },
		{ "in.seed=1", "no fault \"in.seed\"" },
		{ "out.=1%", "no fault" },
		{ "delay=2", "a time" },
		{ "delay=2m", "a time" },
		{ "delay=3601s", "a time" },
		{ "delay=2ms3", "a time" },
		{ "seed=1.5", "a number" },
		{ "cq-overrun=0", "completions" },
		{ "qp-error=x", "packets" },
		{ "device-fatal=0", "packets" },
		{ "link-down=2s", "how long" },
		{ "link-down=2s+0s", "how long" },
		{ "link-down=2s+1s+1s", "how long" },
		{ "loss=1%,", "no fault \"\"" },
	};
	char error[256], lengthy[1024];
	struct fault_plan p;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		*error = '\0';
		if (fault_plan_parse(&p, rows[i].text, error, sizeof(error)) != -EINVAL ||
		    !strstr(error, rows[i].named))
			fail_msg("\"%s\": \"%s\"", rows[i].text, error);
	}
	memset(lengthy, '1', sizeof(lengthy) - 1);
	lengthy[sizeof(lengthy) - 1] = '\0';
	assert_int_equal(fault_plan_parse(&p, lengthy, error, sizeof(error)), -EINVAL);
	lengthy[500] = '\0';
	assert_int_equal(fault_plan_parse(&p, lengthy, error, 16), -EINVAL);
	assert_true(strlen(error) < 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_to_do),
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_directions),
		cmocka_unit_test(test_rates_are_independent),
		cmocka_unit_test(test_delay),
		cmocka_unit_test(test_end_sends_what_is_held),
		cmocka_unit_test(test_reorder),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_corruption_is_noticed),
		cmocka_unit_test(test_full_outbox),
		cmocka_unit_test(test_held_is_bounded),
		cmocka_unit_test(test_ring_same_fates),
		cmocka_unit_test(test_ring_corrupt_is_lost),
		cmocka_unit_test(test_ring_full),
		cmocka_unit_test(test_link_down),
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_wrong_plans),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
