/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A key-value server that its clients read with RDMA READ. The server puts its pairs into a hash
 * table in registered memory and offers the table as a region; from then on it only keeps the
 * connections open. A client hashes the key, reads that slot, and looks whether the key is there.
 * Any number of clients read at once, none waits for the server's CPU.
 *
 *	kv_get serve 127.0.0.1 7471 KEY=VALUE...
 *	kv_get get 127.0.0.1 7471 KEY...
 *
 * The server ends when it gets a signal. The table does not change while it is served; a table that
 * does needs a version in each slot, read before and after.
 *
 * Build: cc -o kv_get kv_get.c $(pkg-config --cflags --libs rocelink) -lpthread
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocelink/rocelink.h>

#define SLOTS	    1024 /* a power of two, more than there are pairs */
#define PATIENCE_US 30000000

struct slot {
	char key[64]; /* "": free */
	char value[192];
};

static void need(bool ok, const struct rocelink_error *err)
{
	if (ok)
		return;
	fprintf(stderr, "kv_get: %s\n", err->text);
	exit(1);
}

/* FNV-1a; both sides have to agree on it. */
static unsigned first_slot(const char *key)
{
	uint32_t hash = 2166136261u;

	while (*key)
		hash = (hash ^ (uint8_t)*key++) * 16777619u;
	return hash % SLOTS;
}

/* ---- Server ---- */

static struct slot table[SLOTS];
static struct rocelink_endpoint *server;
static struct ibv_mr *table_mr;

static void put(const char *pair)
{
	const char *equals = strchr(pair, '=');
	unsigned i;

	if (!equals || equals == pair || (size_t)(equals - pair) >= sizeof(table->key)) {
		fprintf(stderr, "kv_get: %s is not KEY=VALUE\n", pair);
		exit(2);
	}
	char *key = strndup(pair, (size_t)(equals - pair));

	for (i = first_slot(key); table[i].key[0] && strcmp(table[i].key, key);)
		i = (i + 1) % SLOTS;
	strcpy(table[i].key, key);
	snprintf(table[i].value, sizeof(table[i].value), "%s", equals + 1);
	free(key);
}

/* One thread for each client; it has nothing to do but to wait until the client leaves. */
static void *serve_client(void *arg)
{
	struct rocelink_conn *conn = arg;
	struct rocelink_error err;
	struct rocelink_endpoint *ep =
		rocelink_endpoint_open(ROCELINK_ENDPOINT(.shared = server), &err);
	struct rocelink_region *region =
		ROCELINK_REGION(.name = "table", .mr = table_mr, .access = IBV_ACCESS_REMOTE_READ);

	if (!ep || rocelink_conn_add_qp(conn, ep->qp, NULL, &err) ||
	    rocelink_conn_offer(conn, region, &err) || rocelink_conn_establish(conn, &err) ||
	    rocelink_conn_wait(conn, ROCELINK_STATE_CLOSED, &err))
		fprintf(stderr, "kv_get: %s\n", err.text);
	rocelink_conn_free(conn);
	rocelink_endpoint_close(ep);
	return NULL;
}

static void serve(const char *host, const char *service, char **pairs)
{
	struct rocelink_options *options = ROCELINK_OPTIONS(.service_name = "kv/1");
	struct rocelink_listener *listener;
	struct rocelink_error err;

	while (*pairs)
		put(*pairs++);

	server = rocelink_endpoint_open(ROCELINK_ENDPOINT(.host = host), &err);
	need(server, &err);
	table_mr = ibv_reg_mr(server->pd, table, sizeof(table), IBV_ACCESS_REMOTE_READ);
	if (!table_mr) {
		perror("ibv_reg_mr");
		exit(1);
	}
	listener = rocelink_listen(host, service, ROCELINK_LISTEN(.conn = options), &err);
	need(listener, &err);
	printf("serving on port %s\n", service);
	for (;;) {
		struct rocelink_conn *conn =
			rocelink_listener_wait(listener, ROCELINK_NO_DEADLINE, &err);
		pthread_t thread;

		need(conn, &err);
		if (pthread_create(&thread, NULL, serve_client, conn) == 0)
			pthread_detach(thread);
		else
			rocelink_conn_free(conn);
	}
}

/* ---- Client ---- */

struct client {
	struct rocelink_endpoint *ep;
	struct rocelink_conn *conn;
	struct rocelink_remote_region table;
	struct ibv_mr *mr;
	struct slot slot; /* what was read last */
};

static void read_slot(struct client *c, unsigned index)
{
	struct ibv_sge sge = { (uintptr_t)&c->slot, sizeof(c->slot), c->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ };
	struct ibv_send_wr *bad;
	struct rocelink_error err;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = c->table.addr + index * sizeof(c->slot);
	wr.wr.rdma.rkey = c->table.rkey;
	if (ibv_post_send(c->ep->qp, &wr, &bad)) {
		perror("ibv_post_send");
		exit(1);
	}
	need(!rocelink_wait_completion(c->ep->cq, NULL, PATIENCE_US, &wc, &err), &err);
}

static const char *get(struct client *c, const char *key)
{
	for (unsigned i = first_slot(key);; i = (i + 1) % SLOTS) {
		read_slot(c, i);
		if (!c->slot.key[0])
			return NULL;
		if (!strcmp(c->slot.key, key))
			return c->slot.value;
	}
}

static int get_all(const char *host, const char *service, char **keys)
{
	struct client c = { .table.size = sizeof(c.table) };
	struct rocelink_options *options = ROCELINK_OPTIONS(.service_name = "kv/1");
	struct rocelink_error err;
	int missing = 0;

	c.ep = rocelink_endpoint_open(ROCELINK_ENDPOINT(.host = host, .sq_sig_all = true), &err);
	need(c.ep, &err);
	c.mr = ibv_reg_mr(c.ep->pd, &c.slot, sizeof(c.slot), IBV_ACCESS_LOCAL_WRITE);
	if (!c.mr) {
		perror("ibv_reg_mr");
		exit(1);
	}
	c.conn = rocelink_connect(host, service, c.ep->qp, options, &err);
	need(c.conn, &err);
	need(!rocelink_conn_wait_region(c.conn, "table", PATIENCE_US, &c.table, &err), &err);

	for (; *keys; keys++) {
		const char *value = get(&c, *keys);

		printf("%s%s%s\n", *keys, value ? "=" : ": no such key", value ? value : "");
		missing += !value;
	}
	rocelink_conn_close(c.conn, NULL);
	rocelink_conn_free(c.conn);
	ibv_dereg_mr(c.mr);
	rocelink_endpoint_close(c.ep);
	return missing ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc < 5) {
		fprintf(stderr, "usage: kv_get serve HOST PORT KEY=VALUE...\n"
				"       kv_get get HOST PORT KEY...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "serve"))
		serve(argv[2], argv[3], argv + 4);
	return get_all(argv[2], argv[3], argv + 4);
}
