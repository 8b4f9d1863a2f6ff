/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port that remembers what it was given. Ports have no globals, so several of them in one process
 * are to the kernel and to each other what several processes are.
 */
#ifndef TESTS_NET_ENDPOINT_H
#define TESTS_NET_ENDPOINT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/port.h"

#define BURSTS_KEPT 512

struct kept_burst {
	struct path path;
	uint8_t *data;
	size_t len, seg_len;
};

struct endpoint {
	struct port *port;
	unsigned block;
	struct outbox box;
	struct kept_burst bursts[BURSTS_KEPT];
	unsigned n_bursts;
	unsigned n_packets;
	unsigned drops[DROP_COUNT];
	unsigned n_relayed;   /* messages of other engines ... */
	uint8_t relayed[256]; /* ... by their first bytes */
	size_t relayed_len[256];
};

/* Open with one block; pcap may be NULL. */
void endpoint_open(struct endpoint *e, const char *pcap);
/* The same, with the same-host path. */
void endpoint_open_shm(struct endpoint *e);
bool endpoint_readable(const struct endpoint *e);
void endpoint_close(struct endpoint *e);
/* Forget what was received. */
void endpoint_clear(struct endpoint *e);

/* A QPN in its block. */
uint32_t endpoint_qpn(const struct endpoint *e, unsigned index);

struct gid gid_of(const char *text);
/* A path between these addresses ("192.0.2.1" or "::1"), hop limit 64. */
struct path path_of(const char *from, const char *to, uint16_t sport);

/* Put a UD-like packet of payload_len bytes into the outbox; the payload is a function of psn. */
void endpoint_queue(struct endpoint *e, const struct path *path, uint32_t dest_qpn, uint32_t psn,
		    uint32_t payload_len);
void endpoint_send(struct endpoint *e);

/* Let all of them receive until together they have n packets; fails after some seconds. */
void endpoints_await(struct endpoint **all, unsigned n_all, unsigned packets);
/* Let all of them receive until nothing is readable any more. */
void endpoints_settle(struct endpoint **all, unsigned n_all);

/* Packet number i over all bursts: its bytes and burst. */
const uint8_t *endpoint_packet(const struct endpoint *e, unsigned i,
			       const struct kept_burst **burst, size_t *len);
/* The PSN of packet i. */
uint32_t endpoint_psn(const struct endpoint *e, unsigned i);
/* Every packet's ICRC is right for this identification (k: its place in the burst, plus first). */
void endpoint_check_icrcs(const struct endpoint *e, bool numbered);

#endif
