/* SPDX-License-Identifier: BSD-2-Clause */
#include "endpoint.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/icrc.h"

#define PATIENCE_MS 10000

static void keep(void *arg, const struct burst *burst)
{
	struct endpoint *e = arg;
	struct kept_burst *k = &e->bursts[e->n_bursts];

	assert_true(e->n_bursts < BURSTS_KEPT);
	assert_true(burst->len > 0 && burst->seg_len > 0 && burst->seg_len <= burst->len);
	*k = (struct kept_burst){ .path = burst->path,
				  .len = burst->len,
				  .seg_len = burst->seg_len };
	/* A copy of just its size, so that a sanitizer sees any access beyond. */
	k->data = malloc(burst->len);
	memcpy(k->data, burst->data, burst->len);
	e->n_bursts++;
	e->n_packets += (unsigned)((burst->len + burst->seg_len - 1) / burst->seg_len);
}

static bool is_local_qpn(void *arg, uint32_t qpn)
{
	const struct endpoint *e = arg;

	return qpn <= 1 || qpn == QPN_MULTICAST || qpn >> QPN_BLOCK_BITS == e->block;
}

static size_t report(void *arg, char *text, size_t cap)
{
	const struct endpoint *e = arg;

	return (size_t)snprintf(text, cap, "block %u\n", e->block);
}

static void dropped(void *arg, enum drop reason, unsigned packets)
{
	struct endpoint *e = arg;

	e->drops[reason] += packets;
}

static void relayed(void *arg, const uint8_t *data, size_t len)
{
	struct endpoint *e = arg;

	e->relayed[e->n_relayed % 256] = len ? data[0] : 0;
	e->relayed_len[e->n_relayed++ % 256] = len;
}

static void open_with(struct endpoint *e, const char *pcap, bool shm)
{
	struct port_config config = { .callbacks = { .receive = keep,
						     .is_local_qpn = is_local_qpn,
						     .relayed = relayed,
						     .report = report,
						     .dropped = dropped },
				      .arg = e,
				      .pcap = pcap,
				      .udp_port = ROCE_UDP_PORT,
				      .shm = shm };
	char error[512] = "";
	int block;

	memset(e, 0, sizeof(*e));
	if (port_open(&e->port, &config, error, sizeof(error)))
		fail_msg("port_open: %s", error);
	block = port_claim_block(e->port);
	assert_true(block > 0 && block < QPN_BLOCKS - 1);
	e->block = (unsigned)block;
	assert_int_equal(outbox_init(&e->box, 256 << 10), 0);
}

void endpoint_open(struct endpoint *e, const char *pcap)
{
	open_with(e, pcap, false);
}

void endpoint_open_shm(struct endpoint *e)
{
	open_with(e, NULL, true);
}

bool endpoint_readable(const struct endpoint *e)
{
	struct pollfd pfd = { .fd = port_wait_fd(e->port), .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

void endpoint_clear(struct endpoint *e)
{
	for (unsigned i = 0; i < e->n_bursts; i++)
		free(e->bursts[i].data);
	e->n_bursts = 0;
	e->n_packets = 0;
	memset(e->drops, 0, sizeof(e->drops));
}

void endpoint_close(struct endpoint *e)
{
	endpoint_clear(e);
	outbox_destroy(&e->box);
	port_close(e->port);
}

uint32_t endpoint_qpn(const struct endpoint *e, unsigned index)
{
	return e->block << QPN_BLOCK_BITS | index;
}

struct gid gid_of(const char *text)
{
	struct gid gid = { { 0 } };

	if (inet_pton(AF_INET6, text, gid.raw) == 1)
		return gid;
	gid.raw[10] = gid.raw[11] = 0xff;
	assert_int_equal(inet_pton(AF_INET, text, gid.raw + 12), 1);
	return gid;
}

struct path path_of(const char *from, const char *to, uint16_t sport)
{
	return (struct path){
		.sgid = gid_of(from), .dgid = gid_of(to), .sport = sport, .hop_limit = 64
	};
}

void endpoint_queue(struct endpoint *e, const struct path *path, uint32_t dest_qpn, uint32_t psn,
		    uint32_t payload_len)
{
	struct packet p = {
		.opcode = 0x04, /* RC SEND Only */
		.pkey = 0xffff,
		.mig_req = true,
		.dest_qpn = dest_qpn,
		.psn = psn_make(psn),
		.payload_len = payload_len,
	};
	unsigned pad = packet_pad(payload_len), head;
	uint8_t *out = outbox_reserve(&e->box, path, PACKET_HEADER_MAX + payload_len + pad);

	assert_non_null(out);
	head = packet_build_headers(&p, out);
	for (uint32_t i = 0; i < payload_len; i++)
		out[head + i] = (uint8_t)(psn * 7 + i * 13 + (i >> 8));
	memset(out + head + payload_len, 0, pad);
	outbox_commit(&e->box, head + payload_len + pad);
}

void endpoint_send(struct endpoint *e)
{
	assert_int_equal(port_send(e->port, &e->box), 0);
	assert_true(outbox_empty(&e->box));
}

static int readable(struct endpoint **all, unsigned n_all, int timeout_ms)
{
	struct pollfd fds[8];

	assert_true(n_all <= 8);
	for (unsigned i = 0; i < n_all; i++)
		fds[i] = (struct pollfd){ .fd = port_wait_fd(all[i]->port), .events = POLLIN };
	return poll(fds, n_all, timeout_ms);
}

static unsigned packets_of(struct endpoint **all, unsigned n_all)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < n_all; i++)
		sum += all[i]->n_packets;
	return sum;
}

void endpoints_await(struct endpoint **all, unsigned n_all, unsigned packets)
{
	while (packets_of(all, n_all) < packets) {
		if (readable(all, n_all, PATIENCE_MS) <= 0)
			fail_msg("%u of %u packets arrived", packets_of(all, n_all), packets);
		for (unsigned i = 0; i < n_all; i++)
			port_receive(all[i]->port, 64);
	}
	assert_int_equal(packets_of(all, n_all), packets);
}

void endpoints_settle(struct endpoint **all, unsigned n_all)
{
	while (readable(all, n_all, 0) > 0)
		for (unsigned i = 0; i < n_all; i++)
			port_receive(all[i]->port, 64);
}

const uint8_t *endpoint_packet(const struct endpoint *e, unsigned i,
			       const struct kept_burst **burst, size_t *len)
{
	for (unsigned b = 0; b < e->n_bursts; b++) {
		const struct kept_burst *k = &e->bursts[b];
		unsigned n = (unsigned)((k->len + k->seg_len - 1) / k->seg_len);

		if (i < n) {
			size_t at = i * k->seg_len;

			if (burst)
				*burst = k;
			if (len)
				*len = k->len - at < k->seg_len ? k->len - at : k->seg_len;
			return k->data + at;
		}
		i -= n;
	}
	fail_msg("there is no packet %u", i);
	return NULL;
}

uint32_t endpoint_psn(const struct endpoint *e, unsigned i)
{
	const uint8_t *p = endpoint_packet(e, i, NULL, NULL);

	return (uint32_t)p[9] << 16 | (uint32_t)p[10] << 8 | p[11];
}

void endpoint_check_icrcs(const struct endpoint *e, bool numbered)
{
	for (unsigned i = 0; i < e->n_packets; i++) {
		const struct kept_burst *burst;
		size_t len;
		const uint8_t *p = endpoint_packet(e, i, &burst, &len);
		size_t place = (size_t)(p - burst->data) / burst->seg_len;
		uint16_t expected = (uint16_t)(numbered ? place : 0);
		uint16_t id = expected;

		assert_true(icrc_check(&burst->path, &id, p, len));
		assert_int_equal(id, expected);
	}
}
