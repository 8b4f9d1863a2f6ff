/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two RC queue pairs connected by hand: sockets and verbs, nothing else. docs/tutorial.md explains
 * it line by line; rc_write.c does the same with librocelink.
 *
 *	by_hand DEVICE GID_INDEX PORT         waits for the other side
 *	by_hand DEVICE GID_INDEX PORT HOST    connects to it, writes into its memory
 *
 * Build: cc -o by_hand by_hand.c -libverbs
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* What the other side has to know of this one. */
struct side {
	union ibv_gid gid;
	uint32_t qpn, psn, rkey;
	uint64_t va;
};

struct objects {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static char memory[64];

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct objects make_objects(const char *device)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct objects o = { 0 };

	need(list != NULL, "ibv_get_device_list");
	for (int i = 0; list[i] && !o.context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			o.context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	need(o.context != NULL, device);

	o.pd = ibv_alloc_pd(o.context);
	need(o.pd != NULL, "ibv_alloc_pd");
	o.mr = ibv_reg_mr(o.pd, memory, sizeof(memory),
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	need(o.mr != NULL, "ibv_reg_mr");
	o.cq = ibv_create_cq(o.context, 8, NULL, NULL, 0);
	need(o.cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = o.cq;
	o.qp = ibv_create_qp(o.pd, &init);
	need(o.qp != NULL, "ibv_create_qp");
	return o;
}

static int tcp_socket(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE };
	struct addrinfo *a;
	int fd, yes = 1;

	need(getaddrinfo(host, port, &hints, &a) == 0, "getaddrinfo");
	fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
	need(fd >= 0, "socket");
	if (host) {
		need(connect(fd, a->ai_addr, a->ai_addrlen) == 0, "connect");
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		need(bind(fd, a->ai_addr, a->ai_addrlen) == 0, "bind");
		need(listen(fd, 1) == 0, "listen");
		printf("waiting on port %s\n", port);
		fd = accept(fd, NULL, NULL);
		need(fd >= 0, "accept");
	}
	freeaddrinfo(a);
	return fd;
}

static struct side exchange(int fd, FILE *in, const struct side *mine)
{
	char text[INET6_ADDRSTRLEN], line[160];
	struct side theirs;

	inet_ntop(AF_INET6, &mine->gid, text, sizeof(text));
	snprintf(line, sizeof(line),
		 "GID %s QPN 0x%06x PSN 0x%06x VA 0x%012" PRIx64 " R_Key 0x%08x", text, mine->qpn,
		 mine->psn, mine->va, mine->rkey);
	printf("sent      %s\n", line);
	dprintf(fd, "%s\n", line);

	need(fgets(line, sizeof(line), in) != NULL, "the peer's values");
	printf("received  %s", line);
	need(sscanf(line, "GID %45s QPN %" SCNx32 " PSN %" SCNx32 " VA %" SCNx64 " R_Key %" SCNx32,
		    text, &theirs.qpn, &theirs.psn, &theirs.va, &theirs.rkey) == 5,
	     "five values");
	need(inet_pton(AF_INET6, text, &theirs.gid) == 1, "GID");
	return theirs;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	need(ibv_modify_qp(qp, &attr, mask) == 0, "to INIT");
}

static void to_rtr(struct ibv_qp *qp, int gid_index, const struct side *theirs)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024, /* the same on both sides */
		.dest_qp_num = theirs->qpn,
		.rq_psn = theirs->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 7, /* 120 microseconds; 0 would be 655 milliseconds */
		.ah_attr = {
			.port_num = 1,
			.is_global = 1, /* RoCE has no LIDs: the GID is the address */
			.grh = {
				.dgid = theirs->gid,
				.sgid_index = (uint8_t)gid_index,
				.hop_limit = 64,
			},
		},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	need(ibv_modify_qp(qp, &attr, mask) == 0, "to RTR");
}

static void to_rts(struct ibv_qp *qp, const struct side *mine)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = mine->psn,
		.timeout = 18,	/* 4.096 us * 2^18: about a second; 0 would be for ever */
		.retry_cnt = 7, /* the most that fits into 3 bits */
		.rnr_retry = 7, /* here 7 is for ever */
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	need(ibv_modify_qp(qp, &attr, mask) == 0, "to RTS");
}

/* Returns when the peer has said the same word. */
static void synchronise(int fd, FILE *in, const char *word)
{
	char line[16];

	dprintf(fd, "%s\n", word);
	need(fgets(line, sizeof(line), in) != NULL, word);
	need(!strncmp(line, word, strlen(word)), word);
}

static void wait_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	need(n == 1, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void send_and_wait(const struct objects *o, enum ibv_wr_opcode opcode, uint32_t length,
			  const struct side *theirs)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, o->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = length != 0, .opcode = opcode };
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = theirs->va; /* a SEND does not look at these two */
	wr.wr.rdma.rkey = theirs->rkey;
	need(ibv_post_send(o->qp, &wr, &bad) == 0, "ibv_post_send");
	wait_completion(o->cq);
}

static void post_empty_receive(const struct objects *o)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;

	need(ibv_post_recv(o->qp, &wr, &bad) == 0, "ibv_post_recv");
}

int main(int argc, char **argv)
{
	struct objects o;
	struct side mine = { 0 }, theirs;
	int gid_index, fd;
	FILE *in;

	if (argc < 4) {
		fprintf(stderr, "usage: by_hand DEVICE GID_INDEX PORT [HOST]\n");
		return 2;
	}
	o = make_objects(argv[1]);
	gid_index = atoi(argv[2]);

	need(ibv_query_gid(o.context, 1, gid_index, &mine.gid) == 0, "ibv_query_gid");
	need(getrandom(&mine.psn, sizeof(mine.psn), 0) == sizeof(mine.psn), "getrandom");
	mine.psn &= 0xffffff;
	mine.qpn = o.qp->qp_num;
	mine.va = (uintptr_t)memory;
	mine.rkey = o.mr->rkey;

	to_init(o.qp);
	post_empty_receive(&o); /* before the peer can send */
	fd = tcp_socket(argv[4], argv[3]);
	in = fdopen(fd, "r");
	theirs = exchange(fd, in, &mine);
	to_rtr(o.qp, gid_index, &theirs);
	to_rts(o.qp, &mine);
	synchronise(fd, in, "ready");

	if (argv[4]) {
		strcpy(memory, "Hello, memory of yours");
		send_and_wait(&o, IBV_WR_RDMA_WRITE, sizeof(memory), &theirs);
		send_and_wait(&o, IBV_WR_SEND, 0, &theirs);
		printf("written\n");
	} else {
		wait_completion(o.cq);
		printf("my memory holds: %s\n", memory);
	}
	synchronise(fd, in, "done"); /* a queue pair that is gone answers nobody */

	fclose(in);
	ibv_destroy_qp(o.qp);
	ibv_destroy_cq(o.cq);
	ibv_dereg_mr(o.mr);
	ibv_dealloc_pd(o.pd);
	ibv_close_device(o.context);
	return 0;
}
