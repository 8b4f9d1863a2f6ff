/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A datagram to a UD queue pair. UD queue pairs aren't connected, but their owners have to talk
 * all the same: the sender needs the receiver's GID, QPN and Q_Key for each work request.
 *
 *	ud_send listen 127.0.0.1 7471
 *	ud_send connect 127.0.0.1 7471 "some text"
 *
 * Build: cc -o ud_send ud_send.c $(pkg-config --cflags --libs rocelink)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocelink/rocelink.h>

#define PATIENCE_US 30000000
#define GRH_LEN	    40 /* the first bytes of each UD receive, even if the packet has no GRH */

static struct rocelink_error err;
static char memory[GRH_LEN + 256];
static struct ibv_mr *mr;

static void need(bool ok)
{
	if (ok)
		return;
	fprintf(stderr, "ud_send: %s\n", err.text);
	exit(1);
}

/* Called before the client knows of the queue pair: no datagram can come too early. */
static int post_receive(void *qp, struct rocelink_conn *conn)
{
	struct ibv_sge sge = { (uintptr_t)memory, sizeof(memory) - 1, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	(void)conn;
	return ibv_post_recv(qp, &wr, &bad);
}

static struct rocelink_conn *receive(const char *host, const char *service,
				     const struct rocelink_endpoint *ep)
{
	struct rocelink_options *options =
		ROCELINK_OPTIONS(.prepare = post_receive, .prepare_arg = ep->qp);
	struct rocelink_listener *listener;
	struct rocelink_conn *conn;
	struct ibv_wc wc;

	listener = rocelink_listen(host, service, ROCELINK_LISTEN(.conn = options), &err);
	need(listener);
	printf("waiting on port %s\n", service);
	conn = rocelink_accept(listener, ep->qp, ROCELINK_NO_DEADLINE, &err);
	need(conn);
	rocelink_listener_free(listener);

	need(!rocelink_wait_completion(ep->cq, ep->channel, PATIENCE_US, &wc, &err));
	printf("from QPN 0x%06x: %s\n", wc.src_qp, memory + GRH_LEN);
	return conn;
}

static struct rocelink_conn *send_text(const char *host, const char *service, const char *text,
				       const struct rocelink_endpoint *ep)
{
	struct rocelink_qp_info peer = { .size = sizeof(peer) };
	struct ibv_sge sge = { (uintptr_t)memory, (uint32_t)strlen(text), mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_send_wr *bad;
	struct rocelink_conn *conn;
	struct ibv_wc wc;

	conn = rocelink_connect(host, service, ep->qp, NULL, &err);
	need(conn);
	need(!rocelink_conn_qp(conn, 0, &peer));

	memcpy(memory, text, sge.length);
	wr.wr.ud.ah = peer.ah;
	wr.wr.ud.remote_qpn = peer.remote_qpn;
	wr.wr.ud.remote_qkey = peer.remote_qkey;
	if (ibv_post_send(ep->qp, &wr, &bad)) {
		perror("ibv_post_send");
		exit(1);
	}
	need(!rocelink_wait_completion(ep->cq, ep->channel, PATIENCE_US, &wc, &err));
	printf("sent to QPN 0x%06x with Q_Key 0x%08x\n", peer.remote_qpn, peer.remote_qkey);
	return conn;
}

int main(int argc, char **argv)
{
	struct rocelink_endpoint *ep;
	struct rocelink_conn *conn;

	if (argc < 4 || (argc == 5 && strlen(argv[4]) > 255)) {
		fprintf(stderr, "usage: ud_send listen|connect HOST PORT [TEXT]\n");
		return 2;
	}
	ep = rocelink_endpoint_open(ROCELINK_ENDPOINT(.host = argv[2], .type = IBV_QPT_UD,
						      .events = true, .sq_sig_all = true),
				    &err);
	need(ep);
	mr = ibv_reg_mr(ep->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		perror("ibv_reg_mr");
		return 1;
	}

	if (!strcmp(argv[1], "listen"))
		conn = receive(argv[2], argv[3], ep);
	else
		conn = send_text(argv[2], argv[3], argv[4] ? argv[4] : "Hello", ep);

	rocelink_conn_close(conn, NULL);
	rocelink_conn_free(conn);
	ibv_dereg_mr(mr);
	rocelink_endpoint_close(ep);
	return 0;
}
