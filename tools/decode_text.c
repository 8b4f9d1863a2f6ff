/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The conversation as text, one line per event and indented lines for what is worth knowing about
 * it. TCP segments that carry nothing are counted, not shown.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_decoder.h"

enum { BYTES_SHOWN = 24 };

#define INDENT "                          "

struct text_sink {
	struct sink sink;
	FILE *out;
	uint64_t silent; /* TCP segments without anything to tell */
	bool legend_given;
};

static void introduce(struct text_sink *s, struct party *p)
{
	char address[GID_STRLEN];

	if (!p || p->announced)
		return;
	p->announced = true;
	fprintf(s->out, INDENT "%s is %s%s\n", p->name, p->second ? "another program at " : "",
		address_format(&p->address, address));
}

static void begin_line(struct text_sink *s, const struct event *e)
{
	introduce(s, e->from);
	introduce(s, e->to);
	fprintf(s->out, "%6" PRIu64 " %11.6f  ", e->f->number, (double)e->f->time_ns / 1e9);
	if (e->from)
		fprintf(s->out, "%s > %s  ", e->from->name, e->to->name);
}

static void print_bytes(struct text_sink *s, const struct message *m)
{
	fprintf(s->out, "%zu bytes:", m->n_bytes);
	for (size_t i = 0; i < m->n_bytes && i < BYTES_SHOWN; i++)
		fprintf(s->out, " %02x", m->bytes[i]);
	fputs("  |", s->out);
	for (size_t i = 0; i < m->n_bytes && i < BYTES_SHOWN; i++)
		fputc(m->bytes[i] >= ' ' && m->bytes[i] <= '~' ? m->bytes[i] : '.', s->out);
	fputs(m->n_bytes > BYTES_SHOWN ? "| ...\n" : "|\n", s->out);
}

static const char *protocol_title(enum exchange_protocol protocol)
{
	switch (protocol) {
	case EXCHANGE_IBV:
		return "ibv_*_pingpong exchange";
	case EXCHANGE_PERFTEST:
		return "perftest exchange";
	case EXCHANGE_ROCELINK:
		return "rocelink protocol";
	case EXCHANGE_TLS:
		return "TLS";
	case EXCHANGE_CM:
		return "connection manager";
	case EXCHANGE_UNKNOWN:
	case EXCHANGE_BYTES:
	default:
		return "TCP";
	}
}

/* One value stands on the message's own line, several below it. */
static void print_told(struct text_sink *s, const struct message *m)
{
	char line[320];

	for (unsigned i = 0; i < m->n_told; i++) {
		told_format(&m->told[i], line, sizeof(line));
		fprintf(s->out, m->n_told == 1 ? ": %s\n" : INDENT "  %s\n", line);
	}
}

/* What the other side does with what it was told. */
static void print_use(struct text_sink *s, const struct event *e, const struct message *m)
{
	const struct told *t = m->told;

	if (m->n_told == 1 && t->has & TOLD_PSN && t->qpn)
		fprintf(s->out,
			INDENT "  now %s knows where to send (GID, QPN) and which PSN %s begins "
			       "with\n",
			e->to->name, e->from->name);
}

static void print_message(struct text_sink *s, const struct event *e, struct message *m)
{
	text_clean(m->text);
	if (e->kind == EVENT_TCP)
		begin_line(s, e);
	else
		fputs(INDENT "  ", s->out);
	fprintf(s->out, "%s, ", protocol_title(m->protocol));
	if (m->bytes) {
		print_bytes(s, m);
	} else if (m->repeated) {
		fprintf(s->out, "%s: the same as before\n", m->name);
		return;
	} else {
		fprintf(s->out, m->n_told == 1 ? "%s" : "%s\n", m->name);
		print_told(s, m);
		print_use(s, e, m);
	}
	if (m->text[0])
		fprintf(s->out, INDENT "  %s\n", m->text);
}

static void on_tcp(struct text_sink *s, const struct event *e)
{
	static const char *const changes[] = {
		[TCP_OPENED] = "opens a TCP connection",
		[TCP_CLOSED] = "closes its direction of the TCP connection",
		[TCP_WAS_RESET] = "resets the TCP connection",
	};

	for (unsigned i = 0; i < e->n_messages; i++)
		print_message(s, e, &e->messages[i]);
	if (e->change == TCP_NOTHING) {
		s->silent += e->n_messages == 0;
		return;
	}
	begin_line(s, e);
	fprintf(s->out, "%s, port %u to %u\n", changes[e->change], e->f->sport, e->f->dport);
}

static const char *icrc_text(enum icrc_verdict verdict)
{
	switch (verdict) {
	case ICRC_OK:
		return "ICRC ok";
	case ICRC_BAD:
		return "ICRC BAD";
	case ICRC_UNCHECKED:
	default:
		return "ICRC unchecked";
	}
}

static void legend(struct text_sink *s, const struct roce *r)
{
	if (s->legend_given || !r->psn_told)
		return;
	s->legend_given = true;
	fprintf(s->out,
		INDENT "[#%" PRIu64 " +2] means: the value told in frame %" PRIu64 ", plus 2\n",
		r->psn_told, r->psn_told);
}

static void on_roce(struct text_sink *s, const struct event *e)
{
	const struct roce *r = e->roce;
	char line[800];

	legend(s, r);
	begin_line(s, e);
	packet_title(r, line, sizeof(line));
	fprintf(s->out, "%s  ", line);
	packet_fields(r, line, sizeof(line));
	fprintf(s->out, "%s  %s\n", line, icrc_text(r->icrc));
	packet_details(r, line, sizeof(line));
	if (line[0])
		fprintf(s->out, INDENT "  %s\n", line);
	for (unsigned i = 0; i < e->n_messages; i++)
		print_message(s, e, &e->messages[i]);
	if (r->icrc == ICRC_BAD && r->len >= BTH_LEN + ICRC_LEN)
		fprintf(s->out, INDENT "  ICRC 0x%08x, would be right: 0x%08x\n", r->icrc_stored,
			r->icrc_right);
}

static void text_event(struct sink *sink, const struct event *e)
{
	struct text_sink *s = (struct text_sink *)sink;

	switch (e->kind) {
	case EVENT_TCP:
		on_tcp(s, e);
		break;
	case EVENT_ROCE:
		on_roce(s, e);
		break;
	case EVENT_ICMP:
		begin_line(s, e);
		fprintf(s->out, "ICMP: %s\n", e->text ? e->text : "not about RoCE");
		break;
	case EVENT_UDP:
		begin_line(s, e);
		fprintf(s->out, "UDP, port %u to %u, %zu bytes\n", e->f->sport, e->f->dport,
			e->f->claimed_len);
		break;
	case EVENT_OTHER:
	default:
		begin_line(s, e);
		fprintf(s->out, "%s\n", e->text);
		break;
	}
}

static void text_finish(struct sink *sink, const struct decoder *d)
{
	struct text_sink *s = (struct text_sink *)sink;
	const struct flows *fl = &d->flows;

	fprintf(s->out,
		"\n%" PRIu64 " frames in %.6f s: %" PRIu64 " RoCE packets, %" PRIu64
		" TCP segments (%" PRIu64 " without data, not shown), %" PRIu64 " others\n",
		d->totals.frames, (double)d->totals.last_ns / 1e9, d->totals.roce, d->totals.tcp,
		s->silent, d->totals.others);
	if (d->totals.roce)
		fprintf(s->out,
			"RoCE: %" PRIu64 " retransmissions, %" PRIu64 " missing, %" PRIu64
			" NAKs, %" PRIu64 " RNR NAKs, %" PRIu64 " wrong ICRCs, %" PRIu64
			" malformed\n",
			fl->retransmissions, fl->missing, fl->naks, fl->rnr_naks, fl->bad_icrcs,
			fl->malformed);
}

struct sink *text_sink_create(FILE *out)
{
	struct text_sink *s = decode_alloc(sizeof(*s));

	s->sink.event = text_event;
	s->sink.finish = text_finish;
	s->out = out;
	return &s->sink;
}

void sink_destroy(struct sink *s)
{
	if (s->destroy)
		s->destroy(s);
	free(s);
}
