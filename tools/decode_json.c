/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One JSON object per packet and line. The members are described in rocelink-decode(1); they are
 * written in a fixed order without spaces, so that grep works as well as jq.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_decoder.h"

struct json_sink {
	struct sink sink;
	FILE *out;
	bool first; /* no member was written in this object yet */
};

static void key(struct json_sink *s, const char *name)
{
	if (!s->first)
		fputc(',', s->out);
	s->first = false;
	fprintf(s->out, "\"%s\":", name);
}

static void number(struct json_sink *s, const char *name, uint64_t v)
{
	key(s, name);
	fprintf(s->out, "%" PRIu64, v);
}

/* A frame number; nothing when it isn't known. */
static void known(struct json_sink *s, const char *name, uint64_t v)
{
	if (v)
		number(s, name, v);
}

static void boolean(struct json_sink *s, const char *name, bool v)
{
	key(s, name);
	fputs(v ? "true" : "false", s->out);
}

static void string(struct json_sink *s, const char *name, const char *v)
{
	key(s, name);
	fputc('"', s->out);
	for (; *v; v++) {
		unsigned char c = (unsigned char)*v;

		if (c == '"' || c == '\\')
			fprintf(s->out, "\\%c", c);
		else if (c < ' ' || c > '~')
			fprintf(s->out, "\\u%04x", c); /* Latin-1: any byte is a character */
		else
			fputc(c, s->out);
	}
	fputc('"', s->out);
}

static void address(struct json_sink *s, const char *name, const struct gid *gid)
{
	char buf[GID_STRLEN];

	string(s, name, address_format(gid, buf));
}

static void bytes(struct json_sink *s, const char *name, const uint8_t *data, size_t len)
{
	key(s, name);
	fputc('"', s->out);
	for (size_t i = 0; i < len; i++)
		fprintf(s->out, "%02x", data[i]);
	fputc('"', s->out);
}

static void open_object(struct json_sink *s)
{
	fputc('{', s->out);
	s->first = true;
}

static void close_object(struct json_sink *s)
{
	fputc('}', s->out);
	s->first = false;
}

static void told(struct json_sink *s, const struct told *t)
{
	open_object(s);
	if (t->has & TOLD_TYPE)
		string(s, "type", t->type);
	if (t->has & TOLD_LID)
		number(s, "lid", t->lid);
	if (t->has & TOLD_QPN)
		number(s, "qpn", t->qpn);
	if (t->has & TOLD_PSN)
		number(s, "psn", t->psn);
	if (t->has & TOLD_GID)
		address(s, "gid", &t->gid);
	if (t->has & TOLD_QKEY)
		number(s, "qkey", t->qkey);
	if (t->has & TOLD_SRQN)
		number(s, "srqn", t->srqn);
	if (t->has & TOLD_MTU)
		number(s, "path_mtu", t->mtu);
	if (t->has & TOLD_NAME)
		string(s, "name", t->name);
	if (t->has & TOLD_RKEY) {
		number(s, "rkey", t->rkey);
		number(s, "va", t->va);
	}
	if (t->has & TOLD_LENGTH)
		number(s, "length", t->length);
	close_object(s);
}

static void message(struct json_sink *s, const struct message *m)
{
	open_object(s);
	string(s, "exchange", exchange_name(m->protocol));
	string(s, "message", m->name);
	if (m->text[0])
		string(s, "text", m->text);
	if (m->n_told) {
		boolean(s, "repeated", m->repeated);
		key(s, "values");
		for (unsigned i = 0; i < m->n_told; i++) {
			fputc(i ? ',' : '[', s->out);
			told(s, &m->told[i]);
		}
		fputc(']', s->out);
	}
	if (m->bytes)
		bytes(s, "bytes", m->bytes, m->n_bytes);
	close_object(s);
}

static void messages(struct json_sink *s, const struct event *e)
{
	if (!e->n_messages)
		return;
	key(s, "messages");
	for (unsigned i = 0; i < e->n_messages; i++) {
		fputc(i ? ',' : '[', s->out);
		message(s, &e->messages[i]);
	}
	fputc(']', s->out);
}

static void tcp(struct json_sink *s, const struct event *e)
{
	static const char *const changes[] = { NULL, "opened", "closed", "reset" };

	if (e->change != TCP_NOTHING)
		string(s, "connection", changes[e->change]);
	number(s, "payload_len", e->f->claimed_len);
}

static const char *icrc_name(enum icrc_verdict verdict)
{
	switch (verdict) {
	case ICRC_OK:
		return "ok";
	case ICRC_BAD:
		return "bad";
	case ICRC_UNCHECKED:
	default:
		return "unchecked";
	}
}

static void aeth(struct json_sink *s, const struct packet *p)
{
	unsigned value = p->syndrome & AETH_VALUE_MASK;
	int credits = aeth_credits(p->syndrome);

	number(s, "syndrome", p->syndrome);
	string(s, "ack", aeth_kind_name(p->syndrome));
	number(s, "msn", p->msn);
	switch (p->syndrome & AETH_KIND_MASK) {
	case AETH_ACK:
		if (credits >= 0)
			number(s, "credits", (unsigned)credits);
		break;
	case AETH_RNR_NAK:
		number(s, "rnr_timer_ns", rnr_timer_ns(value));
		break;
	case AETH_NAK:
		string(s, "nak", nak_name(value));
		break;
	default:
		break;
	}
}

static void extended_headers(struct json_sink *s, const struct packet *p)
{
	const unsigned headers = p->op->headers;

	if (headers & HDR_XRCETH)
		number(s, "srqn", p->xrc_srqn);
	if (headers & HDR_DETH)
		number(s, "qkey", p->qkey);
	if (headers & HDR_FETH) {
		number(s, "flush_type", p->flush_type);
		number(s, "flush_level", p->flush_level);
	}
	if (headers & (HDR_RETH | HDR_ATOMIC_ETH)) {
		number(s, "va", p->va);
		number(s, "rkey", p->rkey);
	}
	if (headers & HDR_RETH)
		number(s, "dma_len", p->dma_len);
	if (headers & HDR_ATOMIC_ETH)
		number(s, "swap_add", p->swap_add);
	if (headers & HDR_ATOMIC_ETH && p->op->kind == OP_COMPARE_SWAP)
		number(s, "compare", p->compare);
	if (headers & HDR_AETH)
		aeth(s, p);
	if (headers & HDR_ATOMIC_ACK)
		number(s, "atomic_result", p->atomic_result);
	if (headers & HDR_IMM)
		number(s, "imm", ntohl(p->imm));
	if (headers & HDR_IETH)
		number(s, "invalidate_rkey", p->invalidate_rkey);
}

static void origins(struct json_sink *s, const struct roce *r)
{
	key(s, "told");
	open_object(s);
	known(s, "dest_qpn", r->qpn_told);
	known(s, "dgid", r->gid_told);
	known(s, "src_qpn", r->src_qpn_told);
	known(s, "psn", r->psn_told);
	if (r->psn_told) {
		number(s, "psn_offset", r->psn_offset);
		string(s, "psn_of", r->psn_of_receiver ? "receiver" : "sender");
	}
	if (r->region) {
		number(s, "rkey", r->region->number);
		number(s, "va_offset", r->va_offset);
		if (r->region->v.has & TOLD_NAME)
			string(s, "region", r->region->v.name);
	}
	close_object(s);
}

static void sequence(struct json_sink *s, const struct roce *r)
{
	boolean(s, "retransmission", r->retransmission);
	known(s, "original", r->original);
	known(s, "because", r->because);
	known(s, "waited_ns", r->waited_ns);
	known(s, "missing_before", r->missing);
	known(s, "answers_first", r->answers_first);
	known(s, "answers_last", r->answers_last);
	if (r->note[0])
		string(s, "note", r->note);
}

static void roce(struct json_sink *s, const struct roce *r)
{
	const struct packet *p = &r->p;

	string(s, "icrc", icrc_name(r->icrc));
	if (r->segments > 1)
		number(s, "segment", r->segment);
	number(s, "opcode", p->opcode);
	string(s, "service", service_name(p->opcode));
	string(s, "operation", p->op->name ? p->op->name : "reserved");
	number(s, "dest_qpn", p->dest_qpn);
	number(s, "psn", p->psn.v);
	if (r->drop != DROP_NONE) {
		string(s, "malformed", drop_name(r->drop));
		string(s, "note", r->note);
		return;
	}
	if (r->src_qpn_known)
		number(s, "src_qpn", r->src_qpn);
	number(s, "pkey", p->pkey);
	boolean(s, "solicited", p->solicited);
	boolean(s, "mig_req", p->mig_req);
	boolean(s, "ack_req", p->ack_req);
	number(s, "pad", p->pad);
	number(s, "payload_len", p->payload_len);
	extended_headers(s, p);
	origins(s, r);
	sequence(s, r);
}

static const char *kind_name(enum event_kind kind)
{
	switch (kind) {
	case EVENT_ROCE:
		return "roce";
	case EVENT_TCP:
		return "tcp";
	case EVENT_UDP:
		return "udp";
	case EVENT_ICMP:
		return "icmp";
	case EVENT_OTHER:
	default:
		return "other";
	}
}

static void json_event(struct sink *sink, const struct event *e)
{
	struct json_sink *s = (struct json_sink *)sink;

	open_object(s);
	number(s, "packet", e->f->number);
	key(s, "time");
	fprintf(s->out, "%" PRIu64 ".%09" PRIu64, e->f->time_ns / 1000000000,
		e->f->time_ns % 1000000000);
	string(s, "protocol", kind_name(e->kind));
	if (e->from) {
		string(s, "from", e->from->name);
		string(s, "to", e->to->name);
	}
	if (e->f->has_addresses) {
		address(s, "src", &e->f->src);
		address(s, "dst", &e->f->dst);
	}
	if (e->kind == EVENT_TCP || e->kind == EVENT_UDP || e->kind == EVENT_ROCE) {
		number(s, "sport", e->f->sport);
		number(s, "dport", e->f->dport);
	}
	if (e->kind == EVENT_TCP)
		tcp(s, e);
	else if (e->kind == EVENT_ROCE)
		roce(s, e->roce);
	else if (e->text)
		string(s, "note", e->text);
	messages(s, e);
	fputs("}\n", s->out);
}

static void json_finish(struct sink *sink, const struct decoder *d)
{
	(void)sink, (void)d;
}

struct sink *json_sink_create(FILE *out)
{
	struct json_sink *s = decode_alloc(sizeof(*s));

	s->sink.event = json_event;
	s->sink.finish = json_finish;
	s->out = out;
	return &s->sink;
}
