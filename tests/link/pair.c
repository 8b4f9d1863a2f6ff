/* SPDX-License-Identifier: BSD-2-Clause */
#include "check.h"

#include "pair.h"

static const struct rocelink_security plain = { .size = sizeof(plain),
						.mode = ROCELINK_SECURITY_PLAIN };

void pair_init(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	mem_pair(p->ends);
	for (int i = 0; i < 2; i++) {
		fake_device_init(&p->side[i].dev, i ? "fake1" : "fake0");
		p->side[i].role = i ? ROCELINK_PASSIVE : ROCELINK_ACTIVE;
		p->side[i].options.size = sizeof(p->side[i].options);
		p->side[i].options.security = &plain;
	}
}

void pair_open(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		struct side *s = &p->side[i];
		struct rocelink_channel ch = mem_channel(&p->ends[i]);

		s->conn = rocelink_dial_channel(&ch, s->role, &s->options, &s->err);
		if (!s->conn)
			fail_msg("dial: %s", s->err.text);
	}
}

void side_start(struct side *s, enum ibv_qp_type type, int count)
{
	for (int i = 0; i < count; i++) {
		fake_qp_init(&s->qps[i], &s->dev, type,
			     (uint32_t)(0x100 * (s->role == ROCELINK_PASSIVE ? 2 : 1) + i));
		if (rocelink_conn_add_qp(s->conn, &s->qps[i].qp, NULL, &s->err))
			return;
	}
	rocelink_conn_start(s->conn, &s->err);
}

void pair_start(struct pair *p, enum ibv_qp_type type, int count)
{
	enum ibv_qp_type other = type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : type;

	pair_run(p);
	side_start(&p->side[0], type, count);
	pair_run(p);
	side_start(&p->side[1], other, count);
	pair_run(p);
}

void pair_run(struct pair *p)
{
	size_t before;

	do {
		before = p->ends[0].sent.len + p->ends[1].sent.len + p->ends[0].taken +
			 p->ends[1].taken;
		for (int i = 0; i < 2; i++)
			if (p->side[i].conn)
				rocelink_conn_drive(p->side[i].conn, &p->side[i].err);
	} while (before !=
		 p->ends[0].sent.len + p->ends[1].sent.len + p->ends[0].taken + p->ends[1].taken);
}

void pair_free(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		rocelink_conn_free(p->side[i].conn);
	mem_free(p->ends);
}

void pair_establish(struct pair *p)
{
	pair_init(p);
	pair_open(p);
	pair_start(p, IBV_QPT_RC, 1);
	for (int i = 0; i < 2; i++)
		if (rocelink_conn_state(p->side[i].conn) != ROCELINK_STATE_ESTABLISHED)
			fail_msg("side %d: %s: %s", i,
				 rocelink_state_name(rocelink_conn_state(p->side[i].conn)),
				 p->side[i].err.text);
}
