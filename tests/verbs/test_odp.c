/* SPDX-License-Identifier: BSD-2-Clause */
/* On-demand regions, explicit and implicit: what each transport does with them is what it advertises, on memory
 * that came after the region; memory that isn't there; advice. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	  4096
#define ON_DEMAND (RIG_ALL_ACCESS | IBV_ACCESS_ON_DEMAND)
#define GRH	  40

/* Two ends of a transport. What b receives completes in cq_b; with XRC it is always from an SRQ. */
struct ends {
	enum ibv_qp_type type;
	struct ibv_cq *cq_a, *cq_b;
	struct ibv_qp *a, *b;
	struct ibv_srq *srq; /* of b, or NULL */
	struct ibv_xrcd *xrcd;
	struct ibv_ah *ah; /* UD */
};

static struct ibv_srq *make_srq(struct rig *r, struct ends *e)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = r->pd,
	};
	struct ibv_srq *srq;

	if (e->xrcd) {
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.srq_type = IBV_SRQT_XRC;
		attr.xrcd = e->xrcd;
		attr.cq = e->cq_b;
	}
	srq = ibv_create_srq_ex(r->ctx, &attr);
	assert_non_null(srq);
	return srq;
}

static void make_xrc(struct rig *r, struct ends *e)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_qp_init_attr_ex target = { .qp_type = IBV_QPT_XRC_RECV,
					      .comp_mask = IBV_QP_INIT_ATTR_XRCD };
	struct ibv_qp_init_attr_ex initiator = { .qp_type = IBV_QPT_XRC_SEND,
						 .send_cq = e->cq_a,
						 .cap = { .max_send_wr = 16, .max_send_sge = 2 },
						 .comp_mask = IBV_QP_INIT_ATTR_PD,
						 .pd = r->pd };

	e->xrcd = ibv_open_xrcd(r->ctx, &domain);
	assert_non_null(e->xrcd);
	e->srq = make_srq(r, e);
	target.xrcd = e->xrcd;
	e->a = ibv_create_qp_ex(r->ctx, &initiator);
	e->b = ibv_create_qp_ex(r->ctx, &target);
	assert_non_null(e->a);
	assert_non_null(e->b);
}

static struct ends ends_make(struct rig *r, enum ibv_qp_type type, bool shared)
{
	struct ends e = { .type = type, .cq_a = rig_cq(r, 16, NULL), .cq_b = rig_cq(r, 16, NULL) };
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };

	if (type == IBV_QPT_XRC_SEND) {
		make_xrc(r, &e);
	} else {
		if (shared)
			e.srq = make_srq(r, &e);
		e.a = rig_qp(r, type, e.cq_a, e.cq_a, NULL);
		e.b = rig_qp(r, type, e.cq_b, e.cq_b, e.srq);
	}
	rig_connect(e.a, e.b);
	if (type == IBV_QPT_UD) {
		assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid), 0);
		e.ah = ibv_create_ah(r->pd, &attr);
		assert_non_null(e.ah);
	}
	return e;
}

static void ends_free(struct ends *e)
{
	if (e->ah)
		assert_int_equal(ibv_destroy_ah(e->ah), 0);
	assert_int_equal(ibv_destroy_qp(e->a), 0);
	assert_int_equal(ibv_destroy_qp(e->b), 0);
	if (e->srq)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	if (e->xrcd)
		assert_int_equal(ibv_close_xrcd(e->xrcd), 0);
	assert_int_equal(ibv_destroy_cq(e->cq_a), 0);
	assert_int_equal(ibv_destroy_cq(e->cq_b), 0);
}

struct place {
	uint8_t *at;
	struct ibv_mr *mr;
};

static int post_send(struct ends *e, enum ibv_wr_opcode opcode, const struct place *local,
		     uint32_t len, const struct place *remote)
{
	struct ibv_sge sge = { (uintptr_t)local->at, len, local->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED
	};
	struct ibv_send_wr *bad;
	uint32_t srqn = 0;

	if (e->type == IBV_QPT_UD) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = e->b->qp_num;
		wr.wr.ud.remote_qkey = 0x1234;
	} else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote->at;
		wr.wr.atomic.rkey = remote->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->at;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	if (e->xrcd) {
		assert_int_equal(ibv_get_srq_num(e->srq, &srqn), 0);
		wr.qp_type.xrc.remote_srqn = srqn;
	}
	return ibv_post_send(e->a, &wr, &bad);
}

static void post_recv(struct ends *e, const struct place *p, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)p->at, len, p->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	assert_int_equal(
		e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->b, &wr, &bad), 0);
}

/* Two pages that are there only after the region is; implicit: one region for all memory. */
static struct place place_make(struct rig *r, struct ibv_mr *implicit)
{
	struct place p;

	p.at = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(p.at, MAP_FAILED);
	p.mr = implicit ? implicit : ibv_reg_mr(r->pd, p.at, 2 * PAGE, ON_DEMAND);
	assert_non_null(p.mr);
	assert_int_equal(mprotect(p.at, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	return p;
}

static void place_free(struct place *p, const struct ibv_mr *implicit)
{
	if (p->mr != implicit)
		assert_int_equal(ibv_dereg_mr(p->mr), 0);
	munmap(p->at, 2 * PAGE);
}

static struct place plain(const struct rig *r)
{
	return (struct place){ r->buffer, r->mr };
}

/* A SEND from `from` into `to` arrives whole. */
static bool sends(struct ends *e, const struct place *from, const struct place *to)
{
	uint32_t skip = e->type == IBV_QPT_UD ? GRH : 0, len = 1000;

	for (uint32_t i = 0; i < len; i++)
		from->at[i] = (uint8_t)(i * 7 + 1);
	post_recv(e, to, 2 * PAGE);
	if (post_send(e, IBV_WR_SEND, from, len, to) || rig_await(e->cq_a).status ||
	    rig_await(e->cq_b).status)
		return false;
	return memcmp(from->at, to->at + skip, len) == 0;
}

/* A WRITE of UC is complete when it is sent; it has arrived when what was sent after it has. */
static bool arrived(struct rig *r, struct ends *e)
{
	struct place from = plain(r), to = plain(r);

	from.at += 16384;
	to.at += 32768;
	return sends(e, &from, &to);
}

/* A one-sided operation between `from` and `to`; false: it is refused when it is posted. */
static bool operates(struct rig *r, struct ends *e, enum ibv_wr_opcode opcode,
		     const struct place *local, const struct place *remote)
{
	uint32_t len = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : PAGE + 100;
	int rc = post_send(e, opcode, local, len, remote);

	if (rc) {
		assert_int_equal(rc, EINVAL);
		return false;
	}
	assert_int_equal(rig_await(e->cq_a).status, IBV_WC_SUCCESS);
	return e->type != IBV_QPT_UC || arrived(r, e);
}

/* Memory on demand at each end in turn, and at both. */
static bool one_sided(struct rig *r, enum ibv_qp_type type, enum ibv_wr_opcode opcode,
		      struct ibv_mr *implicit)
{
	struct place other = plain(r);
	bool works = true;

	for (int which = 1; which < 4; which++) {
		struct ends e = ends_make(r, type, false);
		struct place p = place_make(r, implicit), q = place_make(r, implicit);
		const struct place *local = which & 1 ? &p : &other,
				   *remote = which & 2 ? &q : &other;

		remote->at[0] = 41;
		memset(remote->at + 1, 0, 7);
		works = works && operates(r, &e, opcode, local, remote);
		if (works && opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			assert_int_equal(local->at[0], 41);
			assert_int_equal(remote->at[0], 42);
		} else if (works) {
			assert_memory_equal(local->at, remote->at, PAGE + 100);
		}
		place_free(&p, implicit);
		place_free(&q, implicit);
		ends_free(&e);
	}
	return works;
}

/* The capabilities that can be seen to work. */
static uint32_t capabilities(struct rig *r, enum ibv_qp_type type, struct ibv_mr *implicit)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t cap;
	} ops[] = {
		{ IBV_WR_RDMA_WRITE, IBV_ODP_SUPPORT_WRITE },
		{ IBV_WR_RDMA_READ, IBV_ODP_SUPPORT_READ },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ODP_SUPPORT_ATOMIC },
	};
	struct place other = plain(r);
	uint32_t caps = 0;

	other.at += 32768;
	for (int shared = type == IBV_QPT_XRC_SEND; shared < 2; shared++) {
		struct ends e = ends_make(r, type, shared);
		struct place p = place_make(r, implicit), q = place_make(r, implicit);

		if (sends(&e, &p, &other))
			caps |= IBV_ODP_SUPPORT_SEND;
		if (sends(&e, &other, &q))
			caps |= shared ? IBV_ODP_SUPPORT_SRQ_RECV : IBV_ODP_SUPPORT_RECV;
		/* XRC receives by SRQs alone. */
		if (type == IBV_QPT_XRC_SEND && (caps & IBV_ODP_SUPPORT_SRQ_RECV))
			caps |= IBV_ODP_SUPPORT_RECV;
		assert_true(sends(&e, &p, &q));
		place_free(&p, implicit);
		place_free(&q, implicit);
		ends_free(&e);
	}
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (one_sided(r, type, ops[i].opcode, implicit))
			caps |= ops[i].cap;
	return caps;
}

static void check_capabilities(struct rig *r, struct ibv_mr *implicit)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(r->ctx, NULL, &attr), 0);
	assert_int_equal(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	assert_int_equal(capabilities(r, IBV_QPT_RC, implicit),
			 attr.odp_caps.per_transport_caps.rc_odp_caps);
	assert_int_equal(capabilities(r, IBV_QPT_UC, implicit),
			 attr.odp_caps.per_transport_caps.uc_odp_caps);
	assert_int_equal(capabilities(r, IBV_QPT_UD, implicit),
			 attr.odp_caps.per_transport_caps.ud_odp_caps);
	assert_int_equal(capabilities(r, IBV_QPT_XRC_SEND, implicit), attr.xrc_odp_caps);
}

static void explicit_regions(void **state)
{
	check_capabilities(*state, NULL);
}

static void implicit_region(void **state)
{
	struct rig *r = *state;
	struct ibv_mr *all = ibv_reg_mr(r->pd, NULL, SIZE_MAX, ON_DEMAND);

	assert_non_null(all);
	check_capabilities(r, all);
	assert_int_equal(ibv_dereg_mr(all), 0);
}

/* What is sent isn't there: an error of its own, for datagrams and connections alike. */
static void nothing_to_send(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						  IBV_QPT_XRC_SEND };
	struct rig *r = *state;

	for (size_t i = 0; i < 4; i++) {
		struct ends e = ends_make(r, types[i], false);
		struct place p = place_make(r, NULL), to = plain(r);

		assert_int_equal(mprotect(p.at, PAGE, PROT_NONE), 0);
		assert_int_equal(post_send(&e, IBV_WR_SEND, &p, 64, &to), 0);
		assert_int_equal(rig_await(e.cq_a).status, IBV_WC_LOC_PROT_ERR);
		place_free(&p, NULL);
		ends_free(&e);
	}
}

/* Nor is the receive's memory, of a queue pair or an SRQ. Its second page is missing: the first has what came
 * before that was found. */
static void nowhere_to_receive(void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						  IBV_QPT_XRC_SEND };
	struct rig *r = *state;

	for (size_t i = 0; i < 8; i++) {
		bool shared = i & 1;
		struct ends e;
		struct place p, from = plain(r);

		if (types[i / 2] == IBV_QPT_XRC_SEND && !shared)
			continue;
		e = ends_make(r, types[i / 2], shared);
		p = place_make(r, NULL);
		assert_int_equal(mprotect(p.at + PAGE, PAGE, PROT_NONE), 0);
		p.at += PAGE - 32;
		post_recv(&e, &p, PAGE + 32);
		assert_int_equal(post_send(&e, IBV_WR_SEND, &from, 1000, &p), 0);
		assert_int_equal(rig_await(e.cq_a).status,
				 types[i / 2] == IBV_QPT_RC || types[i / 2] == IBV_QPT_XRC_SEND
					 ? IBV_WC_REM_OP_ERR
					 : IBV_WC_SUCCESS);
		assert_int_equal(rig_await(e.cq_b).status, IBV_WC_LOC_PROT_ERR);
		p.at -= PAGE - 32;
		place_free(&p, NULL);
		ends_free(&e);
	}
}

static bool is_resident(void *page)
{
	unsigned char in;

	assert_int_equal(mincore(page, PAGE, &in), 0);
	return in & 1;
}

static int advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, void *at,
		  uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)at, len, lkey };

	return ibv_advise_mr(pd, advice, flags, &sge, 1);
}

/* Each advice on each kind of region, with the flag and without; what it brings in is what traffic then finds
 * there. (More wrong uses are in test_regions.c.) */
static void advice(void **state)
{
	struct rig *r = *state;
	struct ibv_mr *all = ibv_reg_mr(r->pd, NULL, SIZE_MAX, ON_DEMAND);

	for (int i = 0; i < 12; i++) {
		struct ibv_mr *implicit = i & 1 ? all : NULL;
		uint32_t flags = i & 2 ? IBV_ADVISE_MR_FLAG_FLUSH : 0;
		enum ibv_advise_mr_advice what = (enum ibv_advise_mr_advice)(i / 4);
		struct place p = place_make(r, implicit);
		struct ends e = ends_make(r, IBV_QPT_UD, true);
		struct place from = plain(r);

		assert_false(is_resident(p.at));
		assert_int_equal(advise(r->pd, what, flags, p.at, PAGE, p.mr->lkey), 0);
		assert_int_equal(is_resident(p.at), what != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
		assert_false(is_resident(p.at + PAGE));
		assert_true(sends(&e, &from, &p));
		ends_free(&e);
		place_free(&p, implicit);
	}
	assert_int_equal(ibv_dereg_mr(all), 0);
}

static void wrong_advice(void **state)
{
	struct rig *r = *state;
	struct ibv_mr *all = ibv_reg_mr(r->pd, NULL, SIZE_MAX, ON_DEMAND);
	struct ibv_mr *reads = ibv_reg_mr(r->pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND);
	struct place p = place_make(r, NULL);
	struct ibv_sge two[2] = { { (uintptr_t)p.at, PAGE, p.mr->lkey },
				  { (uintptr_t)p.at + PAGE, PAGE + 1, p.mr->lkey } };

	/* The second is out of bounds: told, whatever was done with the first. */
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, two, 2), EFAULT);
	assert_int_equal(ibv_advise_mr(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, two, 0), EINVAL);
	/* Not part of the process's memory. */
	assert_int_equal(advise(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, PAGE, all->lkey),
			 EFAULT);
	assert_int_equal(advise(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0,
				(void *)(UINTPTR_MAX - PAGE), PAGE, all->lkey),
			 EFAULT);
	/* There, but not writable; and by a region that doesn't allow writing. */
	assert_int_equal(mprotect(p.at, PAGE, PROT_READ), 0);
	assert_int_equal(
		advise(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, p.at, PAGE, all->lkey),
		EFAULT);
	assert_int_equal(advise(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, p.at, PAGE, all->lkey), 0);
	assert_int_equal(advise(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, p.at + PAGE, PAGE,
				reads->lkey),
			 EPERM);
	assert_int_equal(
		advise(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, p.at + PAGE, PAGE, reads->lkey), 0);
	/* Nothing is nothing. */
	assert_int_equal(advise(r->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, p.at, 0, p.mr->lkey), 0);
	place_free(&p, NULL);
	assert_int_equal(ibv_dereg_mr(all), 0);
	assert_int_equal(ibv_dereg_mr(reads), 0);
}

struct churn {
	uint8_t *at;
	_Atomic bool stop;
	_Atomic unsigned rounds;
};

/* Pages go and come, with zeros. */
static void *take_away(void *arg)
{
	struct churn *c = arg;

	while (!c->stop) {
		if (madvise(c->at, 16 * PAGE, MADV_DONTNEED))
			return "madvise";
		c->rounds++;
	}
	return NULL;
}

/* The kernel takes the pages of a region away again and again while peers read and write it: no request fails,
 * and what is read is what was written, or zeros. */
static void pages_go_amid_traffic(void **state)
{
	struct rig *r = *state;
	struct rig_pair p = rig_pair_make(r, IBV_QPT_RC);
	struct churn c = { .at = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
	struct ibv_mr *mr = ibv_reg_mr(r->pd, c.at, 16 * PAGE, ON_DEMAND);
	pthread_t thread;
	void *wrong;

	assert_non_null(mr);
	assert_int_equal(pthread_create(&thread, NULL, take_away, &c), 0);
	memset(r->buffer, 0x42, 16384);
	for (unsigned i = 0; i < 300 || c.rounds < 100; i++) {
		uint64_t there = (uintptr_t)c.at + i % 12 * PAGE + 100;

		assert_int_equal(rig_run(&p, IBV_WR_RDMA_WRITE, (uintptr_t)r->buffer, 3 * PAGE,
					 r->mr->lkey, there, mr->rkey),
				 IBV_WC_SUCCESS);
		assert_int_equal(rig_run(&p, IBV_WR_RDMA_READ, (uintptr_t)r->buffer + 16384,
					 3 * PAGE, r->mr->lkey, there, mr->rkey),
				 IBV_WC_SUCCESS);
		for (unsigned b = 0; b < 3 * PAGE; b++)
			if (r->buffer[16384 + b] != 0 && r->buffer[16384 + b] != 0x42)
				fail_msg("byte %u is 0x%02x", b, r->buffer[16384 + b]);
	}
	c.stop = true;
	assert_int_equal(pthread_join(thread, &wrong), 0);
	assert_null(wrong);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(c.at, 16 * PAGE);
	rig_pair_free(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(explicit_regions),	     TEST(implicit_region), TEST(nothing_to_send),
		TEST(nowhere_to_receive),    TEST(advice),	    TEST(wrong_advice),
		TEST(pages_go_amid_traffic),
	};

	rig_isolate();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
