/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The decoder: frames in, events out to any number of sinks, in the order of the file. An event is
 * one RoCE packet or one other frame; it lives for the call only.
 */
#ifndef ROCELINK_TOOLS_DECODE_DECODER_H
#define ROCELINK_TOOLS_DECODE_DECODER_H

#include <stdio.h>

#include "tools/decode_cm.h"
#include "tools/decode_roce.h"
#include "tools/decode_tcp.h"

enum event_kind { EVENT_OTHER, EVENT_UDP, EVENT_ICMP, EVENT_TCP, EVENT_ROCE };

enum tcp_change { TCP_NOTHING, TCP_OPENED, TCP_CLOSED, TCP_WAS_RESET };

struct event {
	enum event_kind kind;
	const struct frame *f;
	struct party *from, *to;  /* NULL: no addresses */
	enum tcp_change change;	  /* TCP */
	struct message *messages; /* those of an exchange that this frame completed */
	unsigned n_messages;
	const struct roce *roce; /* RoCE */
	const char *text;	 /* ICMP: what it says; other: what it is */
};

struct totals {
	uint64_t frames, roce, tcp, others;
	uint64_t last_ns;
};

struct decoder;

struct sink {
	void (*event)(struct sink *s, const struct event *e);
	/* The last frame was read. */
	void (*finish)(struct sink *s, const struct decoder *d);
	void (*destroy)(struct sink *s); /* what it holds besides itself; may be NULL */
};

struct decoder {
	struct registry registry;
	struct parties parties;
	struct flows flows;
	struct tcp_table tcp;
	struct cm_table cm;
	struct sink *const *sinks; /* until NULL */
	struct totals totals;
};

void decoder_init(struct decoder *d, struct sink *const *sinks);
void decoder_frame(struct decoder *d, const struct frame *f);
void decoder_finish(struct decoder *d);
void decoder_destroy(struct decoder *d);

/* decode_text.c, decode_json.c, decode_svg.c */
struct sink *text_sink_create(FILE *out);
struct sink *json_sink_create(FILE *out);
struct sink *svg_sink_create(FILE *out, const char *title);
void sink_destroy(struct sink *s);

/* Shared by text and picture. */
void packet_title(const struct roce *r, char *buf, size_t len);	 /* "RC SEND First, 1024 bytes" */
void packet_fields(const struct roce *r, char *buf, size_t len); /* QPN and PSN with origin */
void packet_details(const struct roce *r, char *buf,
		    size_t len); /* extended headers and note; may be "" */
void told_format(const struct told *t, char *buf, size_t len);
/* Text of strangers: control characters and bytes that are not ASCII become '?'. */
void text_clean(char *text);

#endif
