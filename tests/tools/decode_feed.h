/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Feeding the decoder: packets made from a few values, with right ICRCs, between two hosts; the
 * events that come out are kept. Hosts: 0 is 192.0.2.1, 1 is 192.0.2.2.
 */
#ifndef ROCELINK_TESTS_DECODE_FEED_H
#define ROCELINK_TESTS_DECODE_FEED_H

#include "tools/decode_decoder.h"

struct feed {
	struct sink sink; /* first */
	struct sink *sinks[2];
	struct decoder d;
	uint64_t number, now_ns;
	unsigned from; /* the host that sends the next packet */
	bool loopback; /* both hosts are 192.0.2.1 */
	uint16_t ports[2];
	uint32_t seq[2]; /* next TCP sequence number of each host */
	uint8_t bytes[70000];
	size_t len; /* of the last packet in bytes, from the IP header on */
	/* Of the last event. */
	unsigned events;
	enum event_kind kind;
	struct roce roce;
	char from_name[16], to_name[16];
	char text[200]; /* of ICMP and others */
	/* All messages since feed_start(), most recent last. */
	struct message messages[600];
	unsigned n_messages;
};

struct feed *feed_start(void);
void feed_end(struct feed *f);

/* One RoCE packet from host f->from; p needs opcode and what its headers need. */
void feed_packet(struct feed *f, const struct packet *p);
/* The short form: opcode, destination QPN, PSN, payload bytes. */
void feed_op(struct feed *f, uint8_t opcode, uint32_t qpn, uint32_t psn, uint32_t payload_len);
/* An acknowledgement from the host that isn't f->from. */
void feed_ack(struct feed *f, uint8_t syndrome, uint32_t qpn, uint32_t psn);
/* Build the packet into f->bytes without feeding it; feed what is there. */
void feed_build(struct feed *f, const struct packet *p);
void feed_bytes(struct feed *f);
/* Bytes of the built packet were changed: give it its right ICRC again. */
void feed_repair(struct feed *f);

/* TCP bytes from this host, at this sequence number; feed_tcp() at the next. */
void feed_tcp_at(struct feed *f, unsigned host, uint32_t seq, uint8_t flags, const void *data,
		 size_t len);
void feed_tcp(struct feed *f, unsigned host, const void *data, size_t len);
/* Both hosts say what ibv_rc_pingpong says. */
void feed_exchange(struct feed *f, uint32_t qpn0, uint32_t psn0, uint32_t qpn1, uint32_t psn1);

#endif
