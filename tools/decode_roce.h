/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCE packets in their context: the flow to one queue pair, whether the packet is new, repeated or
 * comes after a hole, what it answers, and which exchanged value each of its fields came from.
 */
#ifndef ROCELINK_TOOLS_DECODE_ROCE_H
#define ROCELINK_TOOLS_DECODE_ROCE_H

#include "tools/decode_frame.h"
#include "tools/decode_party.h"
#include "tools/decode_told.h"
#include "wire/packet.h"

enum icrc_verdict {
	ICRC_BAD,
	ICRC_OK,
	ICRC_UNCHECKED, /* the capture cut the packet off */
};

/* Frame numbers are 0 where nothing is known. */
struct roce {
	struct packet p;  /* valid if drop == DROP_NONE, except payload (see captured_len) */
	enum drop drop;	  /* malformed: why */
	size_t len;	  /* bytes from BTH to ICRC */
	bool cut_off;	  /* the capture doesn't hold all of it */
	unsigned segment; /* of segments in one captured datagram */
	unsigned segments;
	enum icrc_verdict icrc;
	uint32_t icrc_stored, icrc_right;

	struct party *from, *to;
	uint64_t qpn_told, gid_told; /* frames that told the destination */
	bool src_qpn_known;
	uint32_t src_qpn;
	uint64_t src_qpn_told;
	uint64_t psn_told;    /* frame that told the first PSN of the sequence this PSN counts in */
	uint32_t psn_offset;  /* PSN - that one */
	bool psn_of_receiver; /* responses count in the sequence of the requester, their receiver */
	const struct told_region *region; /* RETH, AtomicETH */
	uint64_t va_offset;

	bool retransmission;
	uint64_t original;		      /* the frame that it repeats */
	uint64_t because;		      /* the NAK that asked for it; 0: nothing was heard */
	uint64_t waited_ns;		      /* since the original */
	unsigned missing;		      /* packets missing before this one */
	uint64_t answers_first, answers_last; /* frames that it answers */
	char note[400];			      /* the same for people */
};

struct flow;
struct seen;

#define FLOW_BUCKETS 4096

struct flows {
	struct registry *registry;
	struct parties *parties;
	struct flow *buckets[FLOW_BUCKETS];
	struct flow *newest;
	uint32_t count;
	struct seen *seen; /* SEEN_SLOTS */
	uint64_t retransmissions, missing, naks, rnr_naks, bad_icrcs, malformed;
};

void flows_init(struct flows *fl, struct registry *registry, struct parties *parties);
void flows_destroy(struct flows *fl);

/* Packets in the datagram: 1, or more before segmentation offload; *len: of each but the last. */
unsigned roce_segments(const struct frame *f, size_t *len);
/* Packet number `segment` of the datagram, of this length, from data on. */
void roce_read(struct flows *fl, const struct frame *f, unsigned segment, unsigned segments,
	       const uint8_t *data, size_t len, struct roce *r);

/* decode_explain.c: sentences. */
const char *aeth_kind_name(uint8_t syndrome); /* "ack", "rnr_nak", "nak", "reserved" */
const char *nak_name(unsigned code);
const char *nak_explanation(unsigned code);
/* Credits of an ACK syndrome (IBA table 46), or -1: the field is not used. */
int aeth_credits(uint8_t syndrome);
void duration_format(uint64_t ns, char buf[32]);
const char *service_name(uint8_t opcode);
/* Add a sentence to the note. */
void note_add(struct roce *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
