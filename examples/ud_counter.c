/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A counter that others may add to. Client and server talk over UD, where datagrams may be lost, so
 * the client asks again until it is answered. Both are here, each with a queue pair of its own.
 *
 *	rocelink run -- ud_counter rl_lo 0
 *
 * There is a mistake in it that no run on a good network shows: when not the question but the
 * answer was lost, the server adds a second time. Faults show it; `careful` is the version without
 * the mistake, whose server knows a question that it has answered.
 *
 *	rocelink run --fault loss=5% -- ud_counter rl_lo 0
 *	rocelink run --fault loss=5% -- ud_counter rl_lo 0 careful
 *
 * Build: cc -o ud_counter ud_counter.c -libverbs
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ADDITIONS  200
#define TRIES	   100
#define PATIENCE_S 0.02
#define QKEY	   0x11111111
#define GRH_LEN	   40 /* the first bytes of each UD receive, even if the packet has no GRH */
#define RECEIVES   8

enum role { CLIENT, SERVER };

struct datagram {
	unsigned number; /* of the question */
	unsigned counter;
};

struct receive {
	char grh[GRH_LEN];
	struct datagram datagram;
};

static struct memory {
	struct receive receives[2][RECEIVES];
} memory;

static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static struct ibv_qp *qps[2];
static bool careful;
static unsigned counter, last_number, answered;

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(2);
}

static void post_receive(enum role role, unsigned slot)
{
	struct receive *r = &memory.receives[role][slot];
	struct ibv_sge sge = { (uintptr_t)r, sizeof(*r), mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	need(!ibv_post_recv(qps[role], &wr, &bad), "ibv_post_recv");
}

/* Inline: no memory to keep until a completion, so that one in 16 is enough. */
static void send_to(enum role to, struct datagram datagram)
{
	struct ibv_sge sge = { (uintptr_t)&datagram, sizeof(datagram), 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	static unsigned sent;

	wr.send_flags = IBV_SEND_INLINE | (++sent % 16 ? 0 : IBV_SEND_SIGNALED);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qps[to]->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	need(!ibv_post_send(qps[!to], &wr, &bad), "ibv_post_send");
}

static void serve(struct datagram question)
{
	if (!careful || question.number > last_number)
		counter++;
	if (question.number > last_number)
		last_number = question.number;
	send_to(CLIENT, (struct datagram){ question.number, counter });
}

static void handle(const struct ibv_wc *wc)
{
	enum role role = wc->qp_num == qps[SERVER]->qp_num ? SERVER : CLIENT;
	struct datagram datagram;

	need(wc->status == IBV_WC_SUCCESS, ibv_wc_status_str(wc->status));
	if (!(wc->opcode & IBV_WC_RECV))
		return;
	datagram = memory.receives[role][wc->wr_id].datagram;
	post_receive(role, (unsigned)wc->wr_id);
	if (role == SERVER)
		serve(datagram);
	else
		answered = datagram.number;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The client: ask until it is answered. */
static void add(unsigned number)
{
	struct ibv_wc wc;

	for (int try = 0; try < TRIES; try++) {
		double start = now();

		send_to(SERVER, (struct datagram){ number, 0 });
		while (answered != number && now() - start < PATIENCE_S)
			if (ibv_poll_cq(cq, 1, &wc) > 0)
				handle(&wc);
		if (answered == number)
			return;
	}
	fprintf(stderr, "ud_counter: no answer\n");
	exit(2);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 64, RECEIVES, 1, 1, sizeof(struct datagram) },
					 .qp_type = IBV_QPT_UD };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	need(qp, "ibv_create_qp");
	need(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	     "to INIT");
	attr.qp_state = IBV_QPS_RTR;
	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTR");
	attr.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "to RTS");
	return qp;
}

static void set_up(const char *device, int gid_index)
{
	struct ibv_context *ctx = open_device(device);
	struct ibv_ah_attr to_self = { .port_num = 1, .is_global = 1 };
	struct ibv_pd *pd;

	need(ctx, device);
	pd = ibv_alloc_pd(ctx);
	need(pd, "ibv_alloc_pd");
	cq = ibv_create_cq(ctx, 256, NULL, NULL, 0);
	need(cq, "ibv_create_cq");
	mr = ibv_reg_mr(pd, &memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(mr, "ibv_reg_mr");
	need(!ibv_query_gid(ctx, 1, gid_index, &to_self.grh.dgid), "ibv_query_gid");
	to_self.grh.sgid_index = (uint8_t)gid_index;
	ah = ibv_create_ah(pd, &to_self);
	need(ah, "ibv_create_ah");
	for (int role = CLIENT; role <= SERVER; role++) {
		qps[role] = create_qp(pd);
		for (unsigned slot = 0; slot < RECEIVES; slot++)
			post_receive((enum role)role, slot);
	}
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc > 4 || (argc == 4 && strcmp(argv[3], "careful"))) {
		fprintf(stderr, "usage: ud_counter DEVICE GID_INDEX [careful]\n");
		return 2;
	}
	careful = argc == 4;
	set_up(argv[1], atoi(argv[2]));
	for (unsigned number = 1; number <= ADDITIONS; number++)
		add(number);
	printf("%u additions; the counter says %u\n", ADDITIONS, counter);
	return counter != ADDITIONS;
}
