/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of a connection on a real device (or the adapter), for e2e.py: links queue pairs in one
 * of the library's ways, then plays ping-pong with checked contents over each, and for RC a WRITE
 * into and a READ from the peer's region.
 *
 *	peer listen|connect|meet|ticket HOST PORT [TYPE [QPS [OPTION...]]]
 *
 * OPTIONs: secret, stock, srq (the stock programs' exchange), there=HOST (for meet), iters=N,
 * size=N. A ticket goes to stdout, the other's comes from stdin.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rocelink/rocelink.h"

enum {
	MAX_QPS = 16,
	GRH = 40,
	RECEIVES = 32,
	PATIENCE_US = 15000000,
	RECV_ID = 1000,
	SEND_ID = 2000
};

static struct rocelink_error err;
static const char *how, *host, *port, *there = "";
static enum ibv_qp_type type = IBV_QPT_RC;
static int qps = 1, iters = 200, size = 1000;
static bool secret, stock, srq;
static bool first; /* this side sends first */

static struct rocelink_endpoint *ends[MAX_QPS];
static struct ibv_mr *mr;
static char *memory; /* receive buffer with GRH, send buffer, region, what was read back */

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "peer %s: %s: %s\n", how, what, err.text);
	exit(1);
}

static char *send_buffer(void)
{
	return memory + GRH + size;
}

static char *region(void)
{
	return memory + GRH + 2 * size;
}

static char *read_back(void)
{
	return memory + GRH + 3 * size;
}

static void post_receive(int i)
{
	struct ibv_sge sge = { (uintptr_t)memory, (uint32_t)(GRH + size), mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)(RECV_ID + i), .sg_list = &sge, .num_sge = 1 },
			   *bad;

	need(ibv_post_recv(ends[i]->qp, &wr, &bad) == 0, "ibv_post_recv");
}

static int prepare(void *arg, struct rocelink_conn *conn)
{
	(void)arg;
	(void)conn;
	for (int i = 0; i < qps; i++)
		for (int k = 0; k < RECEIVES; k++)
			post_receive(i);
	return 0;
}

static void make_ends(void)
{
	for (int i = 0; i < qps; i++) {
		ends[i] = rocelink_endpoint_open(
			ROCELINK_ENDPOINT(.host = *there	      ? there
						  : strcmp(host, "*") ? host
								      : NULL,
					  .type = type, .shared = i ? ends[0] : NULL,
					  .cq = i ? ends[0]->cq : NULL, .send_depth = 512,
					  .recv_depth = 512),
			&err);
		need(ends[i], "endpoint");
	}
	memory = calloc(1, (size_t)(GRH + 4 * size));
	mr = ibv_reg_mr(ends[0]->pd, memory, (size_t)(GRH + 4 * size),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	need(mr, "ibv_reg_mr");
}

/* What READY and sync are where there is a channel: whoever carries the tickets says "go" to both.
 */
static void agree_by_hand(void)
{
	char line[16];

	printf("here\n");
	fflush(stdout);
	need(fgets(line, sizeof(line), stdin), "nobody said go");
}

static void by_hand(struct rocelink_conn *conn)
{
	char text[ROCELINK_MAX_TICKET];

	need(!rocelink_ticket_write(conn, text, sizeof(text), &err), "ticket");
	printf("%s\n", text);
	fflush(stdout);
	need(fgets(text, sizeof(text), stdin), "no ticket came");
	need(!rocelink_ticket_read(conn, text, &err), "ticket");
	agree_by_hand();
}

static struct rocelink_conn *open_conn(const struct rocelink_options *o)
{
	struct rocelink_conn *conn = NULL;

	if (!strcmp(how, "listen")) {
		struct rocelink_listener *l =
			rocelink_listen(host, port, ROCELINK_LISTEN(.conn = o), &err);

		need(l, "listen");
		conn = rocelink_listener_wait(l, PATIENCE_US, &err);
		rocelink_listener_free(l);
	} else if (!strcmp(how, "connect")) {
		conn = rocelink_dial(host, port, o, &err);
	} else if (!strcmp(how, "meet")) {
		conn = rocelink_dial_meet(host, there, port, o, &err);
	} else if (!strcmp(how, "ticket")) {
		conn = rocelink_by_ticket(o, &err);
	}
	need(conn, "connection");
	return conn;
}

static struct rocelink_conn *link_up(void)
{
	struct rocelink_security *tls =
		ROCELINK_SECURITY(.secret = "an unguessable secret", .secret_len = 21);
	struct rocelink_region *mine =
		ROCELINK_REGION(.name = "region", .mr = mr, .addr = region(),
				.length = (uint64_t)size,
				.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	struct rocelink_options *o =
		ROCELINK_OPTIONS(.prepare = prepare, .retry_refused = true,
				 .security = secret ? tls : NULL, .regions = mine,
				 .region_count = 1,
				 .rdma_host = strcmp(how, "ticket") ? NULL : host,
				 .compat = srq	   ? ROCELINK_COMPAT_SRQ_PINGPONG
					   : stock ? ROCELINK_COMPAT_PINGPONG
						   : ROCELINK_COMPAT_NONE);
	struct rocelink_conn *conn = open_conn(o);

	for (int i = 0; i < qps; i++)
		need(!rocelink_conn_add_qp(conn, ends[i]->qp, NULL, &err), "add_qp");
	if (!strcmp(how, "ticket"))
		by_hand(conn);
	else
		need(!rocelink_conn_establish(conn, &err), "establish");
	return conn;
}

static void post_send(const struct rocelink_conn *conn, int i)
{
	struct ibv_sge sge = { (uintptr_t)send_buffer(), (uint32_t)size, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)(SEND_ID + i),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct rocelink_qp_info info = { .size = sizeof(info) };

	if (type == IBV_QPT_UD) {
		rocelink_conn_qp(conn, (unsigned)i, &info);
		wr.wr.ud.ah = info.ah;
		wr.wr.ud.remote_qpn = info.remote_qpn;
		wr.wr.ud.remote_qkey = info.remote_qkey;
	}
	need(ibv_post_send(ends[i]->qp, &wr, &bad) == 0, "ibv_post_send");
}

static void check_received(void)
{
	const char *data = memory + (type == IBV_QPT_UD ? GRH : 0);

	for (int k = 0; k < size && !stock && !srq; k++)
		if (data[k] != (char)(k * 7)) {
			snprintf(err.text, sizeof(err.text), "byte %d is 0x%02x", k,
				 (unsigned char)data[k]);
			need(false, "contents");
		}
}

/* As the stock programs do: whoever is first sends, each answers each receive, `iters` in all. */
static void ping_pong(const struct rocelink_conn *conn)
{
	int sent = 0, received = 0, pending[MAX_QPS];

	for (int k = 0; k < size; k++)
		send_buffer()[k] = (char)(k * 7);
	for (int i = 0; i < qps; i++) {
		pending[i] = first ? 3 : 1;
		if (first)
			post_send(conn, i);
	}
	while (sent < iters || received < iters) {
		struct ibv_wc wc;
		int i;

		need(!rocelink_wait_completion(ends[0]->cq, NULL, PATIENCE_US, &wc, &err),
		     "completion");
		i = (int)(wc.wr_id % 1000);
		if (wc.wr_id >= SEND_ID) {
			sent++;
			pending[i] &= ~2;
		} else {
			check_received();
			received++;
			pending[i] &= ~1;
			post_receive(i);
		}
		if (sent < iters && !pending[i]) {
			post_send(conn, i);
			pending[i] = 3;
		}
	}
}

static void rdma(const struct rocelink_remote_region *to, enum ibv_wr_opcode opcode, char *local)
{
	struct ibv_sge sge = { (uintptr_t)local, (uint32_t)size, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = SEND_ID,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { to->addr, to->rkey } },
			   *bad;
	enum ibv_wc_opcode done = opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
	struct ibv_wc wc;

	need(ibv_post_send(ends[0]->qp, &wr, &bad) == 0, "ibv_post_send");
	/* The other queue pairs' ping-pong may not have ended. */
	do
		need(!rocelink_wait_completion(ends[0]->cq, NULL, PATIENCE_US, &wc, &err),
		     "completion");
	while (wc.opcode != done);
}

/* Write into the peer's region, agree that both have, read it back. */
static void one_sided(struct rocelink_conn *conn)
{
	struct rocelink_remote_region to = { .size = sizeof(to) };

	need(!rocelink_conn_sync(conn, "ping-pong done", NULL, PATIENCE_US, &err), "sync");
	need(!rocelink_conn_find(conn, "region", &to), "region");
	rdma(&to, IBV_WR_RDMA_WRITE, send_buffer());
	need(!rocelink_conn_sync(conn, "written", NULL, PATIENCE_US, &err), "sync");
	rdma(&to, IBV_WR_RDMA_READ, read_back());
	need(memcmp(region(), send_buffer(), (size_t)size) == 0, "what the peer wrote");
	need(memcmp(read_back(), send_buffer(), (size_t)size) == 0, "what was read back");
}

static void parse(int argc, char **argv)
{
	static const struct {
		const char *name;
		enum ibv_qp_type type;
	} types[] = { { "rc", IBV_QPT_RC }, { "uc", IBV_QPT_UC }, { "ud", IBV_QPT_UD } };

	if (argc < 4) {
		fprintf(stderr, "usage: peer listen|connect|meet|ticket HOST PORT [TYPE [QPS "
				"[OPTION...]]]\n");
		exit(2);
	}
	how = argv[1];
	host = argv[2];
	port = argv[3];
	for (size_t i = 0; argc > 4 && i < 3; i++)
		if (!strcmp(argv[4], types[i].name))
			type = types[i].type;
	if (argc > 5)
		qps = atoi(argv[5]);
	for (int i = 6; i < argc; i++) {
		secret = secret || !strcmp(argv[i], "secret");
		stock = stock || !strcmp(argv[i], "stock");
		srq = srq || !strcmp(argv[i], "srq");
		sscanf(argv[i], "iters=%d", &iters);
		sscanf(argv[i], "size=%d", &size);
		if (!strncmp(argv[i], "there=", 6))
			there = argv[i] + 6;
	}
	if (qps < 1 || qps > MAX_QPS || size < 1 || iters < 1)
		exit(2);
}

int main(int argc, char **argv)
{
	struct rocelink_qp_info info = { .size = sizeof(info) };
	struct rocelink_conn *conn;

	parse(argc, argv);
	make_ends();
	conn = link_up();
	rocelink_conn_qp(conn, 0, &info);
	/* Both can tell from what was exchanged who begins; the stock programs' client does. */
	first = stock || srq ? !strcmp(how, "connect") : info.qpn > info.remote_qpn;
	ping_pong(conn);
	if (type == IBV_QPT_RC && !stock && !srq && strcmp(how, "ticket"))
		one_sided(conn);
	if (!strcmp(how, "ticket"))
		agree_by_hand();
	/* The stock programs have messages under way beyond the last they wait for; there is no closing
	 * handshake with them, so whoever started us says when they have ended. */
	if (stock || srq)
		while (getchar() != EOF)
			;
	need(!rocelink_conn_close(conn, &err), "close");
	rocelink_conn_free(conn);
	fprintf(stderr, "peer %s: ok on %s\n", how, info.gid.device);
	ibv_dereg_mr(mr);
	free(memory);
	for (int i = qps; i-- > 0;)
		rocelink_endpoint_close(ends[i]);
	return 0;
}
