/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One-sided write into a named region. The server offers 64 bytes under the name "inbox"; the
 * client writes into them. The server's program does nothing for it: it only waits to be told.
 *
 *	rc_write listen 127.0.0.1 7471
 *	rc_write connect 127.0.0.1 7471
 *
 * On other addresses than loopback both need the same secret, at least 16 bytes, in a file:
 *
 *	rc_write listen 192.0.2.1 7471 secret
 *
 * Build: cc -o rc_write rc_write.c $(pkg-config --cflags --libs rocelink)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocelink/rocelink.h>

#define PATIENCE_US 30000000

static struct rocelink_error err;
static char memory[64];

static void need(bool ok)
{
	if (ok)
		return;
	fprintf(stderr, "rc_write: %s\n", err.text);
	exit(1);
}

static struct rocelink_conn *serve(const char *host, const char *service,
				   const struct rocelink_security *security, struct ibv_qp *qp,
				   struct ibv_mr *mr)
{
	struct rocelink_region *inbox =
		ROCELINK_REGION(.name = "inbox", .mr = mr, .access = IBV_ACCESS_REMOTE_WRITE);
	struct rocelink_options *options =
		ROCELINK_OPTIONS(.regions = inbox, .region_count = 1, .security = security);
	struct rocelink_listener *listener;
	struct rocelink_conn *conn;

	listener = rocelink_listen(host, service, ROCELINK_LISTEN(.conn = options), &err);
	need(listener);
	printf("waiting on port %s\n", service);
	conn = rocelink_accept(listener, qp, ROCELINK_NO_DEADLINE, &err);
	need(conn);
	rocelink_listener_free(listener);

	need(!rocelink_conn_sync(conn, "written", NULL, PATIENCE_US, &err));
	printf("my memory holds: %s\n", memory);
	return conn;
}

static struct rocelink_conn *write_there(const char *host, const char *service,
					 const struct rocelink_security *security,
					 const struct rocelink_endpoint *ep, struct ibv_mr *mr)
{
	struct rocelink_remote_region inbox = { .size = sizeof(inbox) };
	struct ibv_sge sge = { (uintptr_t)memory, sizeof(memory), mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_send_wr *bad;
	struct rocelink_conn *conn;
	struct ibv_wc wc;

	conn = rocelink_connect(host, service, ep->qp, ROCELINK_OPTIONS(.security = security),
				&err);
	need(conn);
	need(!rocelink_conn_wait_region(conn, "inbox", PATIENCE_US, &inbox, &err));

	strcpy(memory, "Hello, memory of yours");
	wr.wr.rdma.remote_addr = inbox.addr;
	wr.wr.rdma.rkey = inbox.rkey;
	if (ibv_post_send(ep->qp, &wr, &bad)) {
		perror("ibv_post_send");
		exit(1);
	}
	need(!rocelink_wait_completion(ep->cq, NULL, PATIENCE_US, &wc, &err));

	need(!rocelink_conn_sync(conn, "written", NULL, PATIENCE_US, &err));
	printf("written to VA 0x%012" PRIx64 " with R_Key 0x%08x\n", inbox.addr, inbox.rkey);
	return conn;
}

int main(int argc, char **argv)
{
	/* Without a secret the library allows plain text, on loopback only. */
	const struct rocelink_security *security =
		argc > 4 ? ROCELINK_SECURITY(.secret_file = argv[4]) : NULL;
	struct rocelink_endpoint *ep;
	struct rocelink_conn *conn;
	struct ibv_mr *mr;

	if (argc < 4) {
		fprintf(stderr, "usage: rc_write listen|connect HOST PORT [SECRET_FILE]\n");
		return 2;
	}
	ep = rocelink_endpoint_open(ROCELINK_ENDPOINT(.host = argv[2], .sq_sig_all = true), &err);
	need(ep);
	mr = ibv_reg_mr(ep->pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr) {
		perror("ibv_reg_mr");
		return 1;
	}

	if (!strcmp(argv[1], "listen"))
		conn = serve(argv[2], argv[3], security, ep->qp, mr);
	else
		conn = write_there(argv[2], argv[3], security, ep, mr);

	rocelink_conn_close(conn, NULL);
	rocelink_conn_free(conn);
	ibv_dereg_mr(mr);
	rocelink_endpoint_close(ep);
	return 0;
}
