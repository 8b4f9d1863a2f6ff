/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A whole connection, with doubled verbs, against a peer whose bytes are the input. The first byte
 * chooses role, kind of exchange, queue pair type and how the bytes are cut into pieces. Our nonce
 * is zeros, so that an input can echo it.
 *
 * Whatever comes: when the connection has failed before it was established, no queue pair is
 * linked.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "fake_verbs.h"
#include "link/conn.h"
#include "mem_channel.h"

static const struct rocelink_security plain = { .size = sizeof(plain),
						.mode = ROCELINK_SECURITY_PLAIN };

struct fuzzed {
	struct mem_end ends[2];
	struct fake_device dev;
	struct fake_qp qps[2];
	unsigned qp_count;
	enum ibv_qp_type type;
	struct rocelink_conn *conn;
};

static void open_it(struct fuzzed *f, uint8_t how)
{
	static const enum rocelink_role roles[] = { ROCELINK_ACTIVE, ROCELINK_PASSIVE,
						    ROCELINK_PEER, ROCELINK_PASSIVE };
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_UC,
						  IBV_QPT_XRC_RECV };
	struct rocelink_options options = {
		.size = sizeof(options),
		.security = &plain,
		.compat = how & 0x40 ? ROCELINK_COMPAT_PINGPONG : ROCELINK_COMPAT_NONE,
	};
	struct rocelink_channel ch;

	mem_pair(f->ends);
	fake_device_init(&f->dev, "fake");
	f->type = types[how >> 2 & 3];
	f->qp_count = how & 0x10 && !(how & 0x40) ? 2 : 1;
	ch = mem_channel(&f->ends[0]);
	f->conn = rocelink_dial_channel(&ch, roles[how & 3], &options, NULL);
	memset(f->conn->nonce, 0, NONCE_LEN);
	memset(f->conn->line.session.nonce, 0, NONCE_LEN);
}

static void advance(struct fuzzed *f)
{
	struct rocelink_remote_region r = { .size = sizeof(r) };
	enum rocelink_state state;

	rocelink_conn_drive(f->conn, NULL);
	state = rocelink_conn_state(f->conn);
	if ((state == ROCELINK_STATE_OPEN || state == ROCELINK_STATE_REQUESTED) &&
	    !f->conn->started) {
		for (unsigned i = 0; i < f->qp_count; i++) {
			fake_qp_init(&f->qps[i], &f->dev, f->type, 0x100 + i);
			if (rocelink_conn_add_qp(f->conn, &f->qps[i].qp, NULL, NULL))
				return;
		}
		rocelink_conn_start(f->conn, NULL);
	}
	if (rocelink_conn_state(f->conn) == ROCELINK_STATE_ESTABLISHED) {
		rocelink_conn_sync_say(f->conn, "a", NULL, NULL);
		rocelink_conn_sync_test(f->conn, "a", NULL);
		rocelink_conn_find(f->conn, "r", &r);
	}
	if (f->ends[0].sent.len > 3 << 20)
		abort();
}

static bool was_established(const struct fuzzed *f)
{
	return f->conn->line.session.said_ready && f->conn->line.session.heard_ready;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzzed f = { 0 };
	size_t step;

	if (size < 1)
		return 0;
	open_it(&f, data[0]);
	step = data[0] & 0x80 ? 1 + size / 8 : size;
	for (size_t at = 1; at < size; at += step) {
		buffer_put(&f.ends[1].sent, data + at, step < size - at ? step : size - at);
		advance(&f);
	}
	f.ends[1].shut = true;
	advance(&f);
	if (rocelink_conn_state(f.conn) == ROCELINK_STATE_FAILED && !was_established(&f))
		for (unsigned i = 0; i < f.conn->qp_count; i++)
			if (f.qps[i].state != IBV_QPS_RESET)
				abort();
	rocelink_conn_free(f.conn);
	if (f.dev.ah_alive)
		abort();
	mem_free(f.ends);
	return 0;
}
