/* SPDX-License-Identifier: BSD-2-Clause */
/* Every maximum of ibv_query_device(): so many can be had, one more can't, and after one went it can. (What
 * queue pairs of the largest size do is in test_many.c.) */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../net/namespace.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLENTY false /* the shadow memory of a million objects */
#else
#define PLENTY true
#endif

static struct ibv_device_attr attributes(struct rig *r)
{
	struct ibv_device_attr attr;

	assert_int_equal(ibv_query_device(r->ctx, &attr), 0);
	return attr;
}

static void *make_pd(struct rig *r, struct ibv_cq *cq)
{
	(void)cq;
	return ibv_alloc_pd(r->ctx);
}

static int end_pd(void *object)
{
	return ibv_dealloc_pd(object);
}

static void *make_mr(struct rig *r, struct ibv_cq *cq)
{
	(void)cq;
	/* On demand: the system isn't asked about the memory, a million times. */
	return ibv_reg_mr(r->pd, r->buffer, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
}

static int end_mr(void *object)
{
	return ibv_dereg_mr(object);
}

static void *make_mw(struct rig *r, struct ibv_cq *cq)
{
	(void)cq;
	return ibv_alloc_mw(r->pd, IBV_MW_TYPE_2);
}

static int end_mw(void *object)
{
	return ibv_dealloc_mw(object);
}

static void *make_ah(struct rig *r, struct ibv_cq *cq)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };

	(void)cq;
	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid), 0);
	return ibv_create_ah(r->pd, &attr);
}

static int end_ah(void *object)
{
	return ibv_destroy_ah(object);
}

static void *make_srq(struct rig *r, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = 1 } };

	(void)cq;
	return ibv_create_srq(r->pd, &attr);
}

static int end_srq(void *object)
{
	return ibv_destroy_srq(object);
}

static void *make_cq(struct rig *r, struct ibv_cq *cq)
{
	(void)cq;
	return ibv_create_cq(r->ctx, 1, NULL, NULL, 0);
}

static int end_cq(void *object)
{
	return ibv_destroy_cq(object);
}

static void *make_qp(struct rig *r, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = { 1, 1, 1, 1, 0 }
	};

	return ibv_create_qp(r->pd, &attr);
}

static int end_qp(void *object)
{
	return ibv_destroy_qp(object);
}

/* Until it is refused, also to another context of the device; the number is the one that was told. */
static void walk(struct rig *r, void *(*make)(struct rig *, struct ibv_cq *), int (*end)(void *),
		 int max, int already)
{
	struct rig other = { .ctx = rig_open("lo"), .buffer = r->buffer };
	void **made = calloc((size_t)max + 1, sizeof(void *));
	struct ibv_cq *cq = make == make_qp ? rig_cq(r, 1, NULL) : NULL;
	int n = 0;

	assert_non_null(made);
	while (n <= max && (made[n] = make(r, cq)))
		n++;
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(n + already, max);
	if (make == make_pd || make == make_cq) {
		errno = 0;
		assert_null(make(&other, NULL));
		assert_int_equal(errno, ENOMEM);
	}
	assert_int_equal(end(made[0]), 0);
	made[0] = make(r, cq);
	assert_non_null(made[0]);
	assert_null(make(r, cq));
	while (n)
		assert_int_equal(end(made[--n]), 0);
	if (cq)
		assert_int_equal(ibv_destroy_cq(cq), 0);
	/* None of them counts any more. */
	made[0] = make == make_qp ? NULL : make(r, cq);
	if (made[0])
		assert_int_equal(end(made[0]), 0);
	free(made);
	assert_int_equal(ibv_close_device(other.ctx), 0);
}

static void protection_domains(void **state)
{
	walk(*state, make_pd, end_pd, attributes(*state).max_pd, 1);
}

static void regions(void **state)
{
	walk(*state, make_mr, end_mr, attributes(*state).max_mr, 1);
}

static void windows(void **state)
{
	walk(*state, make_mw, end_mw, attributes(*state).max_mw, 0);
}

static void address_handles(void **state)
{
	walk(*state, make_ah, end_ah, attributes(*state).max_ah, 0);
}

static void shared_queues(void **state)
{
	walk(*state, make_srq, end_srq, attributes(*state).max_srq, 0);
}

static void completion_queues(void **state)
{
	walk(*state, make_cq, end_cq, attributes(*state).max_cq, 0);
}

static void queue_pairs(void **state)
{
	walk(*state, make_qp, end_qp, attributes(*state).max_qp, 0);
}

/* What a context that is closed left behind, and what it was refused, counts no more. */
static void left_behind(void **state)
{
	struct rig *r = *state;
	int max = attributes(r).max_srq, n = 0;

	for (int round = 0; round < 2; round++) {
		struct rig other = { .ctx = rig_open("lo"), .buffer = r->buffer };
		struct ibv_srq_init_attr wrong = { .attr = { .max_wr = 1, .max_sge = 1000 } };

		other.pd = ibv_alloc_pd(other.ctx);
		assert_null(ibv_create_srq(other.pd, &wrong));
		for (n = 0; make_srq(&other, NULL); n++)
			;
		assert_int_equal(n, max);
		assert_int_equal(ibv_close_device(other.ctx), 0);
	}
}

/* Sizes of one object. */
static void sizes(void **state)
{
	struct rig *r = *state;
	struct ibv_device_attr dev = attributes(r);
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = (uint32_t)dev.max_srq_wr,
						    .max_sge = (uint32_t)dev.max_srq_sge } };
	struct ibv_srq_init_attr more = attr;
	struct ibv_srq *srq = ibv_create_srq(r->pd, &attr);
	struct ibv_sge sge[64];
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = dev.max_srq_sge }, *bad;
	struct ibv_srq_attr change = { .max_wr = (uint32_t)dev.max_srq_wr + 1 };
	struct ibv_cq *cq = ibv_create_cq(r->ctx, dev.max_cqe, NULL, NULL, 0);

	assert_non_null(srq);
	assert_int_equal(attr.attr.max_wr, dev.max_srq_wr);
	for (int i = 0; i < 64; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)r->buffer, 8, r->mr->lkey };
	for (int i = 0; i < dev.max_srq_wr; i++)
		assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
	wr.num_sge++;
	assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
	assert_int_equal(ibv_modify_srq(srq, &change, IBV_SRQ_MAX_WR), EINVAL);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	more.attr.max_wr++;
	assert_null(ibv_create_srq(r->pd, &more));
	assert_int_equal(errno, EINVAL);
	more = attr;
	more.attr.max_sge++;
	assert_null(ibv_create_srq(r->pd, &more));
	assert_int_equal(errno, EINVAL);

	assert_non_null(cq);
	assert_int_equal(cq->cqe, dev.max_cqe);
	assert_int_equal(ibv_resize_cq(cq, dev.max_cqe + 1), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, 1), 0);
	assert_int_equal(ibv_resize_cq(cq, dev.max_cqe), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_null(ibv_create_cq(r->ctx, dev.max_cqe + 1, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
}

/* Outstanding READs and atomics, asked for and served. */
static void rd_atom(void **state)
{
	struct rig *r = *state;
	struct ibv_device_attr dev = attributes(r);
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	struct ibv_qp *qp = rig_qp(r, IBV_QPT_RC, cq, cq, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD }, got;
	struct ibv_qp_init_attr init;

	assert_int_equal(dev.max_res_rd_atom, dev.max_qp_rd_atom * dev.max_qp);
	rig_connect_self(qp);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.max_rd_atomic = (uint8_t)(dev.max_qp_init_rd_atom + 1);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC), EINVAL);
	attr.max_rd_atomic--;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC), 0);
	attr.max_dest_rd_atomic = (uint8_t)(dev.max_qp_rd_atom + 1);
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MAX_DEST_RD_ATOMIC), EINVAL);
	attr.max_dest_rd_atomic--;
	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_MAX_DEST_RD_ATOMIC), 0);
	assert_int_equal(ibv_query_qp(qp, &got, 0, &init), 0);
	assert_int_equal(got.max_rd_atomic, dev.max_qp_init_rd_atom);
	assert_int_equal(got.max_dest_rd_atomic, dev.max_qp_rd_atom);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static union ibv_gid group_of(bool ipv4, int n)
{
	union ibv_gid gid = { .raw = { 0xff, 0x05, [14] = (uint8_t)(n >> 8), (uint8_t)n } };

	if (ipv4)
		gid = (union ibv_gid){
			.raw = { [10] = 0xff, [11] = 0xff, 239, 77, (uint8_t)(n >> 8), (uint8_t)n }
		};
	return gid;
}

static struct ibv_qp *datagrams(struct rig *r, struct ibv_cq *cq)
{
	struct ibv_qp *qp = make_qp(r, cq);

	assert_non_null(qp);
	rig_connect_self(qp);
	return qp;
}

/* A datagram to the group, from itself to itself; then one to the queue pair alone, behind which none to
 * the group can come. */
static void one_copy(struct rig *r, struct ibv_cq *cq, struct ibv_qp *qp, union ibv_gid group)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_sge sge = { (uintptr_t)r->buffer, 8, r->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	for (int to_group = 1; to_group >= 0; to_group--) {
		attr.grh.dgid = group;
		if (!to_group)
			assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &attr.grh.dgid), 0);
		wr.wr.ud.ah = ibv_create_ah(r->pd, &attr);
		assert_non_null(wr.wr.ud.ah);
		wr.wr.ud.remote_qpn = to_group ? 0xffffff : qp->qp_num;
		wr.wr.ud.remote_qkey = 0x1234;
		assert_int_equal(rig_post_recv(r, qp, 1, 4096, 200), 0);
		assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
		rig_await_n(cq, 2);
		assert_int_equal(ibv_destroy_ah(wr.wr.ud.ah), 0);
	}
}

/* More than a socket may join (20 of IPv4), on one interface. (Packets to groups of IPv6, which loopback has
 * no route for, are in test_multicast.c.) */
static void groups(void **state)
{
	struct rig *r = *state;
	struct ibv_device_attr dev = attributes(r);
	struct ibv_cq *cq = rig_cq(r, 8, NULL);
	struct ibv_qp *qp = datagrams(r, cq), *other = datagrams(r, cq);
	const int half = dev.max_mcast_grp / 2, some[] = { 0, 19, 20, 21, 40, half - 1 };
	union ibv_gid gid;

	must_run("ip route replace 239.0.0.0/8 dev lo");
	for (int i = 0; i < half; i++) {
		for (int ipv4 = 0; ipv4 < 2; ipv4++) {
			gid = group_of(ipv4, i);
			assert_int_equal(ibv_attach_mcast(qp, &gid, 0), 0);
		}
	}
	gid = group_of(true, half);
	assert_int_equal(ibv_attach_mcast(qp, &gid, 0), ENOSPC);
	gid = group_of(true, 5);
	assert_int_equal(ibv_attach_mcast(other, &gid, 0), 0);
	assert_int_equal(ibv_detach_mcast(other, &gid, 0), 0);
	assert_int_equal(ibv_query_gid(r->ctx, 1, 0, &gid), 0);
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		one_copy(r, cq, qp, group_of(true, some[i]));
	for (int i = 0; i < half; i++) {
		for (int ipv4 = 0; ipv4 < 2; ipv4++) {
			gid = group_of(ipv4, i);
			assert_int_equal(ibv_detach_mcast(qp, &gid, 0), 0);
		}
	}
	assert_int_equal(ibv_attach_mcast(qp, &gid, 0), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_qp(other), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* Members of one group, and of all groups together. */
static void members(void **state)
{
	struct rig *r = *state;
	struct ibv_device_attr dev = attributes(r);
	int per_group = dev.max_mcast_qp_attach, n = 0;
	struct ibv_qp **qp = calloc((size_t)per_group + 1, sizeof(struct ibv_qp *));
	struct ibv_cq *cq = rig_cq(r, 8, NULL);
	union ibv_gid gid = group_of(true, 0);

	for (int i = 0; i <= per_group; i++) {
		qp[i] = make_qp(r, cq);
		assert_non_null(qp[i]);
	}
	for (int i = 0; i < per_group; i++)
		assert_int_equal(ibv_attach_mcast(qp[i], &gid, 0), 0);
	assert_int_equal(ibv_attach_mcast(qp[per_group], &gid, 0), ENOSPC);
	assert_int_equal(ibv_attach_mcast(qp[0], &gid, 0), 0); /* it is one already */
	for (n = per_group; n < dev.max_total_mcast_qp_attach; n++) {
		gid = group_of(true, n / per_group);
		assert_int_equal(ibv_attach_mcast(qp[n % per_group], &gid, 0), 0);
	}
	gid = group_of(true, n / per_group);
	assert_int_equal(ibv_attach_mcast(qp[0], &gid, 0), ENOSPC);
	/* Who goes makes room. */
	assert_int_equal(ibv_destroy_qp(qp[0]), 0);
	assert_int_equal(ibv_attach_mcast(qp[1], &gid, 0), 0);
	gid = group_of(true, 0);
	assert_int_equal(ibv_attach_mcast(qp[per_group], &gid, 0), 0);
	for (int i = 1; i <= per_group; i++)
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	free(qp);
}

/* Limits of what isn't there are 0. */
static void nothing(void **state)
{
	struct rig *r = *state;
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr dev = attributes(r);
	static const struct ibv_tso_caps tso;
	static const struct ibv_rss_caps rss;
	static const struct ibv_tm_caps tm;
	static const struct ibv_packet_pacing_caps pacing;
	static const struct ibv_pci_atomic_caps pci;

	assert_int_equal(ibv_query_device_ex(r->ctx, NULL, &ex), 0);
	assert_memory_equal(&ex.orig_attr, &dev, sizeof(dev));
	assert_memory_equal(&ex.tso_caps, &tso, sizeof(tso));
	assert_memory_equal(&ex.rss_caps, &rss, sizeof(rss));
	assert_memory_equal(&ex.tm_caps, &tm, sizeof(tm));
	assert_memory_equal(&ex.packet_pacing_caps, &pacing, sizeof(pacing));
	assert_memory_equal(&ex.pci_atomic_caps, &pci, sizeof(pci));
	assert_int_equal(ex.comp_mask, 0);
	assert_int_equal(ex.max_wq_type_rq, 0);
	assert_int_equal(ex.raw_packet_caps, 0);
	assert_int_equal(dev.max_ee, 0);
	assert_int_equal(dev.max_rdd, 0);
	assert_int_equal(dev.max_ee_rd_atom, 0);
	assert_int_equal(dev.max_ee_init_rd_atom, 0);
	assert_int_equal(dev.max_raw_ipv6_qp, 0);
	assert_int_equal(dev.max_raw_ethy_qp, 0);
	assert_int_equal(dev.max_fmr, 0);
	assert_int_equal(dev.max_map_per_fmr, 0);
	assert_int_equal(dev.hw_ver, 0);
}

/* The largest region there can be: all memory. */
static void region_size(void **state)
{
	struct rig *r = *state;
	struct ibv_mr *mr = ibv_reg_mr(r->pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND);

	assert_non_null(mr);
	assert_true(mr->length == attributes(r).max_mr_size);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* One P_Key; moderation as far as its fields reach. */
static void others(void **state)
{
	struct rig *r = *state;
	struct ibv_device_attr_ex ex;
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	struct ibv_cq *cq = rig_cq(r, 4, NULL);
	struct ibv_port_attr port;
	__be16 pkey;

	assert_int_equal(ibv_query_device_ex(r->ctx, NULL, &ex), 0);
	assert_int_equal(ibv_query_port(r->ctx, 1, &port), 0);
	assert_int_equal(ex.orig_attr.phys_port_cnt, 1);
	assert_int_equal(ibv_query_port(r->ctx, 2, &port), EINVAL);
	assert_int_equal(ex.orig_attr.max_pkeys, port.pkey_tbl_len);
	for (int i = 0; i <= ex.orig_attr.max_pkeys; i++)
		assert_int_equal(ibv_query_pkey(r->ctx, 1, i, &pkey),
				 i < ex.orig_attr.max_pkeys ? 0 : -1);
	assert_int_equal(ex.cq_mod_caps.max_cq_count, UINT16_MAX);
	assert_int_equal(ex.cq_mod_caps.max_cq_period, UINT16_MAX);
	attr.moderate.cq_count = (uint16_t)ex.cq_mod_caps.max_cq_count;
	attr.moderate.cq_period = ex.cq_mod_caps.max_cq_period;
	assert_int_equal(ibv_modify_cq(cq, &attr), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest plenty[] = {
		TEST(protection_domains), TEST(regions),	   TEST(windows),
		TEST(address_handles),	  TEST(completion_queues), TEST(queue_pairs),
	};
	const struct CMUnitTest tests[] = {
		TEST(shared_queues), TEST(left_behind), TEST(sizes),
		TEST(rd_atom),	     TEST(groups),	TEST(members),
		TEST(nothing),	     TEST(region_size), TEST(others),
	};
	int failed = 0;

	rig_isolate();
	if (PLENTY)
		failed = cmocka_run_group_tests(plenty, NULL, NULL);
	return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
