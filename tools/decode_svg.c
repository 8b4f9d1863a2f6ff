/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The message sequence chart: one lifeline per party, time downwards, one arrow per packet. The
 * text of an arrow stands above it, what is worth knowing below. Rows are collected first, since
 * the distance of the lifelines follows from the longest text; no two texts share a line, so none
 * can overlap.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_decoder.h"

enum {
	ROWS_MAX = 2000,
	PARTIES_MAX = 12,
	LINES_MAX = 6,	  /* of a note */
	VALUES_SHOWN = 3, /* told by one message: where it is, and its first queue pair */
};

/* Pixels. The advance is a little more than any usual monospaced font's, 0.6 of its size. */
enum {
	MARGIN = 24,
	TITLE_HEIGHT = 34,
	HEAD_HEIGHT = 58, /* names and addresses of the parties */
	TIME_WIDTH = 132, /* frame number and time */
	LABEL_SIZE = 13,
	NOTE_SIZE = 12,
	LINE_HEIGHT = 16,
	ROW_GAP = 12,
	GAP_MIN = 560, /* between lifelines */
	LABEL_PAD = 36,
	LEGEND_HEIGHT = 50,
};
#define ADVANCE 0.62

enum look { LOOK_EXCHANGE, LOOK_REQUEST, LOOK_ANSWER, LOOK_TROUBLE, LOOK_REPEATED, LOOK_COUNT };

static const struct {
	const char *color;
	const char *dash;
	const char *legend;
} looks[LOOK_COUNT] = {
	[LOOK_EXCHANGE] = { "#1f5fbf", "", "exchange" },
	[LOOK_REQUEST] = { "#222222", "", "request" },
	[LOOK_ANSWER] = { "#1b7a3d", "", "answer" },
	[LOOK_TROUBLE] = { "#c01c28", "", "refusal or damage" },
	[LOOK_REPEATED] = { "#b35c00", "7 4", "sent again" },
};

struct row {
	uint64_t number;
	uint64_t time_ns;
	unsigned from, to;
	enum look look;
	char *label;
	char *note; /* lines separated by '\n' */
};

struct svg_sink {
	struct sink sink;
	FILE *out;
	const char *title;
	struct row *rows;
	size_t n_rows;
	uint64_t more; /* packets beyond ROWS_MAX or PARTIES_MAX */
};

/* Geometry of the finished picture. */
struct chart {
	unsigned parties;
	double gap; /* between lifelines */
	double width, height;
};

static char *copy(const char *text)
{
	return decode_check(strdup(text));
}

/* Wrap at spaces so that no line has more than max characters, a word longer than that excepted. */
static void wrap(char *text, size_t max)
{
	char *line = text, *space = NULL;

	for (char *p = text; *p; p++) {
		if (*p == '\n') {
			line = p + 1;
			space = NULL;
			continue;
		}
		if (*p == ' ')
			space = p;
		if ((size_t)(p - line) >= max && space) {
			*space = '\n';
			line = space + 1;
			space = NULL;
		}
	}
}

static struct row *add_row(struct svg_sink *s, const struct event *e, enum look look)
{
	struct row *row;

	if (s->n_rows == ROWS_MAX || e->from->index >= PARTIES_MAX || e->to->index >= PARTIES_MAX) {
		s->more++;
		return NULL;
	}
	if ((s->n_rows & (s->n_rows - 1)) == 0)
		s->rows =
			decode_realloc(s->rows, (s->n_rows ? 2 * s->n_rows : 1) * sizeof(*s->rows));
	row = &s->rows[s->n_rows++];
	*row = (struct row){ .number = e->f->number, .time_ns = e->f->time_ns, .look = look };
	row->from = e->from->index;
	row->to = e->to->index;
	return row;
}

__attribute__((format(printf, 4, 5))) static void add_line(struct svg_sink *s,
							   const struct event *e, enum look look,
							   const char *format, ...)
{
	struct row *row = add_row(s, e, look);
	char text[160];
	va_list args;

	if (!row)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_clean(text);
	row->label = copy(text);
	row->note = copy("");
}

static enum look look_of(const struct roce *r)
{
	bool answer = r->p.op->flags & OPF_RESPONSE;

	if (r->icrc == ICRC_BAD || r->drop != DROP_NONE)
		return LOOK_TROUBLE;
	if (r->retransmission)
		return LOOK_REPEATED;
	if (r->p.op->kind == OP_ACKNOWLEDGE && (r->p.syndrome & AETH_KIND_MASK) != AETH_ACK)
		return LOOK_TROUBLE;
	return answer ? LOOK_ANSWER : LOOK_REQUEST;
}

static void on_roce(struct svg_sink *s, const struct event *e)
{
	const struct roce *r = e->roce;
	struct row *row = add_row(s, e, look_of(r));
	char title[160], fields[160], text[800];

	if (!row)
		return;
	packet_title(r, title, sizeof(title));
	packet_fields(r, fields, sizeof(fields));
	snprintf(text, sizeof(text), "%s  %s%s", title, fields,
		 r->icrc == ICRC_BAD ? "  ICRC BAD" : "");
	row->label = copy(text);
	packet_details(r, text, sizeof(text));
	row->note = copy(text);
}

/* "record", and what it told: the first values and the number of the others. */
static void on_message(struct svg_sink *s, const struct event *e, const struct message *m)
{
	struct row *row;
	char values[640] = "", text[1000];

	if (m->bytes && m->protocol == EXCHANGE_BYTES) {
		add_line(s, e, LOOK_EXCHANGE, "%zu bytes over TCP", m->n_bytes);
		return;
	}
	row = add_row(s, e, LOOK_EXCHANGE);
	if (!row)
		return;
	snprintf(text, sizeof(text), "%s %s%s", exchange_name(m->protocol), m->name,
		 m->repeated ? ", the same as before" : "");
	row->label = copy(text);
	for (unsigned i = 0; i < m->n_told && i < VALUES_SHOWN && !m->repeated; i++) {
		size_t used = strlen(values);

		if (used + 2 > sizeof(values))
			break;
		if (i)
			values[used++] = '\n';
		told_format(&m->told[i], values + used, sizeof(values) - used);
	}
	snprintf(text, sizeof(text), "%s%s%s", values, values[0] && m->text[0] ? "\n" : "",
		 m->repeated ? "" : m->text);
	if (m->n_told > VALUES_SHOWN && !m->repeated)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "\nand %u more",
			 m->n_told - VALUES_SHOWN);
	row->note = copy(text);
	for (char *p = row->note; *p; p++)
		if (*p != '\n' && (*p < ' ' || *p > '~'))
			*p = '?';
}

static void svg_event(struct sink *sink, const struct event *e)
{
	struct svg_sink *s = (struct svg_sink *)sink;

	if (!e->from)
		return;
	for (unsigned i = 0; i < e->n_messages; i++)
		on_message(s, e, &e->messages[i]);
	if (e->kind == EVENT_ROCE && !e->n_messages)
		on_roce(s, e);
	else if (e->kind == EVENT_ICMP && e->text)
		add_line(s, e, LOOK_TROUBLE, "ICMP: %s", e->text);
	if (e->change == TCP_OPENED)
		add_line(s, e, LOOK_EXCHANGE, "opens a TCP connection to port %u", e->f->dport);
}

/* Text with the characters that XML keeps for itself replaced. */
static void put_text(FILE *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		switch (text[i]) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			fputc(text[i] < ' ' || text[i] > '~' ? '?' : text[i], out);
		}
}

static void draw_text(FILE *out, double x, double y, unsigned size, const char *color,
		      const char *anchor, const char *text, size_t len)
{
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%u\" fill=\"%s\" text-anchor=\"%s\">",
		x, y, size, color, anchor);
	put_text(out, text, len);
	fputs("</text>\n", out);
}

static double lifeline_x(const struct chart *c, unsigned party)
{
	return MARGIN + TIME_WIDTH + LABEL_PAD * 2 + party * c->gap;
}

static unsigned note_lines(const struct row *row)
{
	unsigned lines = row->note[0] ? 1 : 0;

	for (const char *p = row->note; *p; p++)
		lines += *p == '\n';
	return lines < LINES_MAX ? lines : LINES_MAX;
}

static double row_height(const struct row *row)
{
	return 2 * LINE_HEIGHT + note_lines(row) * LINE_HEIGHT + ROW_GAP - 8;
}

static double text_width(size_t characters, unsigned size)
{
	return (double)characters * size * ADVANCE;
}

/* Wide enough for the longest label between two neighbours; notes are wrapped to that. */
static void lay_out(struct svg_sink *s, const struct decoder *d, struct chart *c)
{
	double longest = 0, width, lowest;

	c->parties = d->parties.count < PARTIES_MAX ? d->parties.count : PARTIES_MAX;
	for (size_t i = 0; i < s->n_rows; i++) {
		width = text_width(strlen(s->rows[i].label), LABEL_SIZE);
		if (width > longest)
			longest = width;
	}
	c->gap = longest + LABEL_PAD > GAP_MIN ? longest + LABEL_PAD : GAP_MIN;
	c->height = TITLE_HEIGHT + HEAD_HEIGHT + LEGEND_HEIGHT + 2 * MARGIN;
	for (size_t i = 0; i < s->n_rows; i++) {
		wrap(s->rows[i].note, (size_t)((c->gap - LABEL_PAD) / (NOTE_SIZE * ADVANCE)));
		c->height += row_height(&s->rows[i]);
	}
	lowest = text_width(strlen(s->title), 16) + 2 * MARGIN;
	c->width = lifeline_x(c, c->parties ? c->parties - 1 : 0) + 3 * LABEL_PAD + MARGIN;
	if (c->width < lowest)
		c->width = lowest;
}

static void draw_arrow(FILE *out, double x1, double x2, double y, enum look look)
{
	fprintf(out,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
		"stroke-width=\"1.6\"%s%s%s marker-end=\"url(#head%u)\"/>\n",
		x1, y, x2 + (x2 > x1 ? -1 : 1), y, looks[look].color,
		looks[look].dash[0] ? " stroke-dasharray=\"" : "", looks[look].dash,
		looks[look].dash[0] ? "\"" : "", (unsigned)look);
}

/* From a party to itself: an arrow that comes back from the right. */
static void draw_loop(FILE *out, double x, double y, enum look look)
{
	fprintf(out,
		"<path d=\"M%.1f %.1fh40v10h-39\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" "
		"marker-end=\"url(#head%u)\"/>\n",
		x, y - 6, looks[look].color, (unsigned)look);
}

static void draw_note(FILE *out, const struct row *row, double x, double y)
{
	const char *line = row->note;

	for (unsigned i = note_lines(row); i > 0; i--) {
		size_t len = strcspn(line, "\n");

		draw_text(out, x, y, NOTE_SIZE, looks[row->look].color, "middle", line, len);
		y += LINE_HEIGHT;
		line += len + 1;
	}
}

static void draw_row(FILE *out, const struct chart *c, const struct row *row, double y)
{
	double x1 = lifeline_x(c, row->from), x2 = lifeline_x(c, row->to);
	double middle = row->from == row->to ? x1 + c->gap / 2 : (x1 + x2) / 2;
	double line_y = y + LINE_HEIGHT + 4;
	char text[64];
	int len;

	len = snprintf(text, sizeof(text), "#%-5" PRIu64 " %.6f", row->number,
		       (double)row->time_ns / 1e9);
	fputs("<g>", out);
	draw_text(out, MARGIN, line_y + 4, NOTE_SIZE, "#666666", "start", text, (size_t)len);
	draw_text(out, middle, line_y - 6, LABEL_SIZE, looks[row->look].color, "middle", row->label,
		  strlen(row->label));
	if (row->from == row->to)
		draw_loop(out, x1, line_y, row->look);
	else
		draw_arrow(out, x1, x2, line_y, row->look);
	draw_note(out, row, middle, line_y + LINE_HEIGHT);
	fputs("</g>\n", out);
}

static void draw_head(FILE *out, const struct svg_sink *s, const struct chart *c)
{
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" width=\"%.0f\" "
		"height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, "
		"monospace\">\n<title>",
		c->width, c->height, c->width, c->height);
	put_text(out, s->title, strlen(s->title));
	fputs("</title>\n<defs>\n", out);
	for (unsigned i = 0; i < LOOK_COUNT; i++)
		fprintf(out,
			"<marker id=\"head%u\" markerWidth=\"10\" markerHeight=\"8\" refX=\"9\" "
			"refY=\"4\" orient=\"auto\" markerUnits=\"userSpaceOnUse\">"
			"<path d=\"M0 0L10 4L0 8z\" fill=\"%s\"/></marker>\n",
			i, looks[i].color);
	fputs("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", out);
	draw_text(out, MARGIN, MARGIN + 12, 16, "#000000", "start", s->title, strlen(s->title));
}

static void draw_parties(FILE *out, const struct decoder *d, const struct chart *c)
{
	const double top = MARGIN + TITLE_HEIGHT, bottom = c->height - MARGIN - LEGEND_HEIGHT;
	char address[GID_STRLEN];

	for (const struct party *p = d->parties.first; p && p->index < c->parties; p = p->next) {
		double x = lifeline_x(c, p->index);

		address_format(&p->address, address);
		draw_text(out, x, top + 14, 16, "#000000", "middle", p->name, strlen(p->name));
		draw_text(out, x, top + 32, NOTE_SIZE, "#444444", "middle", address,
			  strlen(address));
		fprintf(out,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
			"stroke=\"#999999\"/>\n",
			x, top + 40, x, bottom);
	}
}

static void draw_legend(FILE *out, const struct svg_sink *s, const struct chart *c)
{
	double y = c->height - MARGIN - 18, x = MARGIN;
	char text[96];
	int len;

	for (unsigned i = 0; i < LOOK_COUNT; i++) {
		draw_arrow(out, x, x + 34, y - 4, (enum look)i);
		draw_text(out, x + 42, y, NOTE_SIZE, looks[i].color, "start", looks[i].legend,
			  strlen(looks[i].legend));
		x += 42 + text_width(strlen(looks[i].legend), NOTE_SIZE) + 18;
	}
	len = snprintf(text, sizeof(text), "[#4 +2]: the value told in frame 4, plus 2");
	if (s->more)
		len = snprintf(text, sizeof(text), "%s; %" PRIu64 " more packets are not drawn",
			       "[#4 +2]: the value told in frame 4, plus 2", s->more);
	draw_text(out, MARGIN, y + 20, NOTE_SIZE, "#444444", "start", text, (size_t)len);
}

static void svg_finish(struct sink *sink, const struct decoder *d)
{
	struct svg_sink *s = (struct svg_sink *)sink;
	double y = MARGIN + TITLE_HEIGHT + HEAD_HEIGHT;
	struct chart c;

	lay_out(s, d, &c);
	draw_head(s->out, s, &c);
	draw_parties(s->out, d, &c);
	for (size_t i = 0; i < s->n_rows; i++) {
		draw_row(s->out, &c, &s->rows[i], y);
		y += row_height(&s->rows[i]);
	}
	draw_legend(s->out, s, &c);
	fputs("</svg>\n", s->out);
}

static void svg_destroy(struct sink *sink)
{
	struct svg_sink *s = (struct svg_sink *)sink;

	for (size_t i = 0; i < s->n_rows; i++) {
		free(s->rows[i].label);
		free(s->rows[i].note);
	}
	free(s->rows);
}

struct sink *svg_sink_create(FILE *out, const char *title)
{
	struct svg_sink *s = decode_alloc(sizeof(*s));

	s->sink.event = svg_event;
	s->sink.finish = svg_finish;
	s->sink.destroy = svg_destroy;
	s->out = out;
	s->title = title;
	return &s->sink;
}
