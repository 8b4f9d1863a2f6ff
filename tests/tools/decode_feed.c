/* SPDX-License-Identifier: BSD-2-Clause */
#include "decode_feed.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "wire/icrc.h"

enum { IP_HEADER = 20, UDP_HEADER = 8, TCP_HEADER = 20, EXCHANGE_PORT = 18515, ROCE_SPORT = 50000 };

static void put16(uint8_t *p, size_t v)
{
	be16 b = make_be16((uint16_t)v);

	memcpy(p, &b, sizeof(b));
}

static void put32(uint8_t *p, uint32_t v)
{
	be32 b = make_be32(v);

	memcpy(p, &b, sizeof(b));
}

static void on_event(struct sink *s, const struct event *e)
{
	struct feed *f = (struct feed *)s;

	f->events++;
	f->kind = e->kind;
	if (e->roce)
		f->roce = *e->roce;
	snprintf(f->from_name, sizeof(f->from_name), "%s", e->from ? e->from->name : "");
	snprintf(f->to_name, sizeof(f->to_name), "%s", e->to ? e->to->name : "");
	snprintf(f->text, sizeof(f->text), "%s", e->text ? e->text : "");
	for (unsigned i = 0; i < e->n_messages; i++) {
		struct message *m = &f->messages[f->n_messages++];

		assert_true(f->n_messages < sizeof(f->messages) / sizeof(f->messages[0]));
		*m = e->messages[i];
		/* The event's own copies die with it. */
		m->told = malloc(m->n_told * sizeof(*m->told) + 1);
		m->bytes = malloc(m->n_bytes + 1);
		assert_non_null(m->told);
		assert_non_null(m->bytes);
		if (m->n_told)
			memcpy(m->told, e->messages[i].told, m->n_told * sizeof(*m->told));
		if (m->n_bytes)
			memcpy(m->bytes, e->messages[i].bytes, m->n_bytes);
	}
}

static void on_finish(struct sink *s, const struct decoder *d)
{
	(void)s, (void)d;
}

struct feed *feed_start(void)
{
	struct feed *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->sink.event = on_event;
	f->sink.finish = on_finish;
	f->sinks[0] = &f->sink;
	f->ports[0] = 40000;
	f->ports[1] = EXCHANGE_PORT;
	decoder_init(&f->d, f->sinks);
	return f;
}

void feed_end(struct feed *f)
{
	decoder_finish(&f->d);
	decoder_destroy(&f->d);
	for (unsigned i = 0; i < f->n_messages; i++)
		message_destroy(&f->messages[i]);
	free(f);
}

static struct gid address_of(const struct feed *f, unsigned host)
{
	return (struct gid){ { [10] = 0xff,
			       [11] = 0xff,
			       [12] = 192,
			       [14] = 2,
			       [15] = (uint8_t)(f->loopback ? 1 : 1 + host) } };
}

static void put_ip(struct feed *f, unsigned from, uint8_t protocol, size_t total)
{
	uint8_t *ip = f->bytes;
	struct gid src = address_of(f, from), dst = address_of(f, !from);

	memset(ip, 0, IP_HEADER);
	ip[0] = 0x45;
	put16(ip + 2, total);
	put16(ip + 6, 0x4000);
	ip[8] = 64;
	ip[9] = protocol;
	memcpy(ip + 12, src.raw + 12, 4);
	memcpy(ip + 16, dst.raw + 12, 4);
	f->len = total;
}

static void put_icrc(struct feed *f, uint8_t *bth, size_t len)
{
	struct path path = { .sgid = address_of(f, f->from),
			     .dgid = address_of(f, !f->from),
			     .sport = ROCE_SPORT };
	uint32_t icrc = htole32(icrc_compute(&path, 0, bth, len));

	memcpy(bth + len, &icrc, sizeof(icrc));
}

void feed_repair(struct feed *f)
{
	put_icrc(f, f->bytes + IP_HEADER + UDP_HEADER, f->len - IP_HEADER - UDP_HEADER - ICRC_LEN);
}

void feed_build(struct feed *f, const struct packet *wanted)
{
	uint8_t *udp = f->bytes + IP_HEADER, *bth = udp + UDP_HEADER;
	struct packet p = *wanted;
	size_t len;

	p.mig_req = true;
	p.pkey = 0xffff;
	len = packet_build_headers(&p, bth);
	memset(bth + len, 0x5a, p.payload_len);
	len += p.payload_len;
	memset(bth + len, 0, packet_pad(p.payload_len));
	len += packet_pad(p.payload_len);
	put_icrc(f, bth, len);
	len += ICRC_LEN;
	put_ip(f, f->from, 17, IP_HEADER + UDP_HEADER + len);
	put16(udp, ROCE_SPORT);
	put16(udp + 2, ROCE_UDP_PORT);
	put16(udp + 4, UDP_HEADER + len);
	put16(udp + 6, 0);
}

void feed_bytes(struct feed *f)
{
	struct frame frame = { .number = ++f->number, .time_ns = f->now_ns += 1000 };

	frame_parse_ip(&frame, f->bytes, f->len);
	memset(&f->roce, 0, sizeof(f->roce));
	decoder_frame(&f->d, &frame);
}

void feed_packet(struct feed *f, const struct packet *p)
{
	feed_build(f, p);
	feed_bytes(f);
	assert_int_equal(f->kind, EVENT_ROCE);
	assert_int_equal(f->roce.drop, DROP_NONE);
	assert_int_equal(f->roce.icrc, ICRC_OK);
}

void feed_op(struct feed *f, uint8_t opcode, uint32_t qpn, uint32_t psn, uint32_t payload_len)
{
	feed_packet(f, &(struct packet){ .opcode = opcode,
					 .dest_qpn = qpn,
					 .psn = psn_make(psn),
					 .payload_len = payload_len });
}

void feed_ack(struct feed *f, uint8_t syndrome, uint32_t qpn, uint32_t psn)
{
	f->from = !f->from;
	feed_packet(f, &(struct packet){ .opcode = 0x11,
					 .dest_qpn = qpn,
					 .psn = psn_make(psn),
					 .syndrome = syndrome });
	f->from = !f->from;
}

void feed_tcp_at(struct feed *f, unsigned host, uint32_t seq, uint8_t flags, const void *data,
		 size_t len)
{
	uint8_t *tcp = f->bytes + IP_HEADER;

	put_ip(f, host, 6, IP_HEADER + TCP_HEADER + len);
	memset(tcp, 0, TCP_HEADER);
	put16(tcp, f->ports[host]);
	put16(tcp + 2, f->ports[!host]);
	put32(tcp + 4, seq);
	tcp[12] = TCP_HEADER / 4 << 4;
	tcp[13] = flags;
	if (len)
		memcpy(tcp + TCP_HEADER, data, len);
	feed_bytes(f);
	assert_int_equal(f->kind, EVENT_TCP);
}

void feed_tcp(struct feed *f, unsigned host, const void *data, size_t len)
{
	feed_tcp_at(f, host, f->seq[host], TCP_ACK, data, len);
	f->seq[host] += (uint32_t)len;
}

void feed_exchange(struct feed *f, uint32_t qpn0, uint32_t psn0, uint32_t qpn1, uint32_t psn1)
{
	char record[64];
	int n;

	for (unsigned host = 0; host < 2; host++) {
		n = snprintf(record, sizeof(record),
			     "0000:%06x:%06x:00000000000000000000ffffc00002%02x",
			     host ? qpn1 : qpn0, host ? psn1 : psn0, f->loopback ? 1 : 1 + host);
		feed_tcp(f, host, record, (size_t)n + 1);
	}
	feed_tcp(f, 0, "done", 5);
}
