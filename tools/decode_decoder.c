/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_decoder.h"

enum { UDP_HEADER = 8, ICMP4_UNREACHABLE = 3, ICMP6_UNREACHABLE = 1, ICMP6_TOO_BIG = 2 };

void decoder_init(struct decoder *d, struct sink *const *sinks)
{
	memset(d, 0, sizeof(*d));
	parties_init(&d->parties);
	flows_init(&d->flows, &d->registry, &d->parties);
	d->sinks = sinks;
}

void decoder_destroy(struct decoder *d)
{
	tcp_table_destroy(&d->tcp);
	cm_table_destroy(&d->cm);
	flows_destroy(&d->flows);
	registry_destroy(&d->registry);
	parties_destroy(&d->parties);
}

static void emit(struct decoder *d, const struct event *e)
{
	for (struct sink *const *s = d->sinks; *s; s++)
		(*s)->event(*s, e);
}

static void emit_plain(struct decoder *d, const struct frame *f, enum event_kind kind,
		       const char *text)
{
	struct event e = { .kind = kind, .f = f, .text = text };
	bool shared = gid_eq(&f->src, &f->dst);

	d->totals.others++;
	if (f->has_addresses) {
		e.from = party_get(&d->parties, &f->src, 0);
		e.to = party_get(&d->parties, &f->dst, shared);
	}
	emit(d, &e);
}

static void enter_message(struct decoder *d, const struct frame *f, struct exchange *x,
			  unsigned side, struct message *m)
{
	bool shared = gid_eq(&f->src, &f->dst), news = false;

	for (unsigned i = 0; i < m->n_told; i++) {
		news |= told_enter(&d->registry, x, side, &m->told[i], f->number);
		if (m->told[i].has & TOLD_GID && !gid_is_zero(&m->told[i].gid))
			party_add_address(&d->parties, x->side[side].party, &m->told[i].gid,
					  shared ? side : 0);
	}
	m->repeated = m->n_told > 0 && !news;
}

static void destroy_messages(struct event *e)
{
	for (unsigned i = 0; i < e->n_messages; i++)
		message_destroy(&e->messages[i]);
	free(e->messages);
}

static bool is_cm(const struct roce *r)
{
	return r->drop == DROP_NONE && r->icrc == ICRC_OK && r->p.dest_qpn == CM_QPN &&
	       opcode_service(r->p.opcode) == WIRE_UD && r->p.payload_len == CM_MAD_LEN;
}

/* A datagram of the connection manager is a message of an exchange as well. */
static void on_cm(struct decoder *d, struct event *e, const uint8_t *mad)
{
	struct cm_conn *conn;
	struct message m;
	unsigned side;

	if (!cm_read(&d->cm, &d->registry, e->f, mad, e->from, e->to, &m, &conn, &side))
		return;
	if (conn) {
		e->from = conn->exchange->side[side].party;
		e->to = conn->exchange->side[!side].party;
		enter_message(d, e->f, conn->exchange, side, &m);
	}
	e->messages = decode_alloc(sizeof(m));
	e->messages[0] = m;
	e->n_messages = 1;
}

static void on_roce_packet(struct decoder *d, const struct frame *f, unsigned segment,
			   unsigned segments, const uint8_t *data, size_t len)
{
	struct roce r;
	struct event e = { .kind = EVENT_ROCE, .f = f, .roce = &r };

	roce_read(&d->flows, f, segment, segments, data, len, &r);
	e.from = r.from;
	e.to = r.to;
	if (is_cm(&r))
		on_cm(d, &e, data + packet_headers_len(r.p.opcode));
	d->totals.roce++;
	emit(d, &e);
	destroy_messages(&e);
}

static void on_roce(struct decoder *d, const struct frame *f)
{
	size_t step, at = 0;
	unsigned segments = roce_segments(f, &step);

	for (unsigned i = 0; i < segments; i++, at += step)
		on_roce_packet(d, f, i, segments, f->payload + at,
			       i + 1 < segments ? step : f->payload_len - at);
}

/* What the ICMP message says about a RoCE packet, or NULL. */
static const char *icmp_about_roce(const struct frame *f)
{
	struct frame inner = { 0 };
	bool ipv4 = gid_is_ipv4(&f->src);
	unsigned type = f->l4[0], code = f->l4[1];

	frame_parse_ip(&inner, f->payload, f->payload_len);
	if (inner.kind != FRAME_UDP || inner.dport != ROCE_UDP_PORT)
		return NULL;
	if (ipv4 ? type == ICMP4_UNREACHABLE && code == 3 : type == ICMP6_UNREACHABLE && code == 4)
		return "port unreachable: nobody listens on UDP port 4791 there, neither the "
		       "adapter "
		       "nor a driver";
	if (ipv4 ? type == ICMP4_UNREACHABLE && code == 4 : type == ICMP6_TOO_BIG)
		return "packet too big: the path MTU is larger than a link on the way allows";
	if (ipv4 ? type == ICMP4_UNREACHABLE && (code == 9 || code == 10 || code == 13)
		 : type == ICMP6_UNREACHABLE && code == 1)
		return "prohibited: a firewall refuses UDP port 4791";
	if (ipv4 ? type == ICMP4_UNREACHABLE : type == ICMP6_UNREACHABLE)
		return "destination unreachable: no route to the GID, or no such host";
	return "an ICMP message about a RoCE packet";
}

static enum tcp_change change_of(struct tcp_half *h, const struct frame *f, bool new)
{
	bool closed = h->closed;

	h->closed |= (f->tcp_flags & (TCP_FIN | TCP_RST)) != 0;
	if (f->tcp_flags & TCP_RST)
		return TCP_WAS_RESET;
	if (f->tcp_flags & TCP_FIN)
		return closed ? TCP_NOTHING : TCP_CLOSED;
	return new && f->tcp_flags &TCP_SYN ? TCP_OPENED : TCP_NOTHING;
}

static void on_tcp(struct decoder *d, const struct frame *f)
{
	struct event e = { .kind = EVENT_TCP, .f = f };
	bool shared = gid_eq(&f->src, &f->dst), new;
	struct message m;
	unsigned side;
	struct tcp_conn *c = tcp_input(&d->tcp, f, &side, &new);
	struct party *client, *server;

	if (new) {
		client = party_get(&d->parties, &c->half[0].address, 0);
		server = party_get(&d->parties, &c->half[1].address, shared);
		c->exchange = exchange_add(&d->registry, client, server);
	}
	e.from = c->exchange->side[side].party;
	e.to = c->exchange->side[!side].party;
	e.change = change_of(&c->half[side], f, new);
	while (tcp_next_message(c, side, &m)) {
		enter_message(d, f, c->exchange, side, &m);
		e.messages = decode_realloc(e.messages, (e.n_messages + 1) * sizeof(*e.messages));
		e.messages[e.n_messages++] = m;
	}
	d->totals.tcp++;
	emit(d, &e);
	destroy_messages(&e);
}

void decoder_frame(struct decoder *d, const struct frame *f)
{
	d->totals.frames++;
	d->totals.last_ns = f->time_ns;
	switch (f->kind) {
	case FRAME_UDP:
		if (f->dport == ROCE_UDP_PORT)
			on_roce(d, f);
		else
			emit_plain(d, f, EVENT_UDP, "UDP");
		break;
	case FRAME_TCP:
		on_tcp(d, f);
		break;
	case FRAME_ICMP:
		emit_plain(d, f, EVENT_ICMP, icmp_about_roce(f));
		break;
	case FRAME_OTHER:
	default:
		emit_plain(d, f, EVENT_OTHER, f->what);
		break;
	}
}

void decoder_finish(struct decoder *d)
{
	for (struct sink *const *s = d->sinks; *s; s++)
		(*s)->finish(*s, d);
}
