/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Floods UDP port 4791 of a host with what a stranger, or a broken machine, may send: one row of
 * the table per kind. Forged packets have a good ICRC and the addresses they claim.
 *
 *	garbage TO PEER STRANGER QPN SECONDS
 *
 * PEER and STRANGER are addresses of the sending host; QPN (hexadecimal) is a queue pair at TO
 * whose peer is at PEER, and which sends no requests, so that an acknowledgement can't be right by
 * accident. At the end it prints for each kind how many packets went out.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/units.h"
#include "wire/icrc.h"
#include "wire/packet.h"

enum { PACKET_MAX = 9000, BATCH = 32, SOCKETS = 8, SEGMENTS = 64, BULK_MAX = 60000, READY = 16 };

struct sender {
	int fd;
	struct path path;
};

struct garbage {
	struct sender peer[SOCKETS], stranger;
	struct sockaddr_storage to;
	socklen_t to_len;
	struct gid to_gid;
	uint32_t qpn;
};

static uint64_t random_state = 88172645463325252u;

static uint32_t random_u32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 32);
}

static size_t random_fill(uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)random_u32();
	return len;
}

static void put_be32(uint8_t *data, uint32_t value)
{
	be32 field = make_be32(value);

	memcpy(data, &field, sizeof(field));
}

/* A BTH as a receiver would like it, but for its random PSN. */
static void bth(uint8_t *data, uint8_t opcode, uint32_t qpn)
{
	put_be32(data, (uint32_t)opcode << 24 | 0x40ffff); /* MigReq, P_Key */
	put_be32(data + 4, qpn & 0xffffff);
	put_be32(data + 8, random_u32() & 0xffffff);
}

/* Which the ICRC covers: segment k of one call leaves with k, all else with 0. */
static uint16_t ipv4_id;

static size_t seal(const struct path *path, uint8_t *data, size_t len)
{
	uint32_t icrc = htole32(icrc_compute(path, ipv4_id, data, len));

	memcpy(data + len, &icrc, sizeof(icrc));
	return len + ICRC_LEN;
}

enum opcode { RC_SEND_ONLY = 0x04, RC_WRITE_FIRST = 0x06, RC_ACK = 0x11, UC_SEND_ONLY = 0x24 };

static size_t make_random(const struct garbage *g, const struct path *path, uint8_t *data)
{
	(void)g;
	(void)path;
	return random_fill(data, random_u32() % 1400);
}

static size_t make_short(const struct garbage *g, const struct path *path, uint8_t *data)
{
	(void)path;
	bth(data, RC_SEND_ONLY, g->qpn);
	return random_u32() % (BTH_LEN + ICRC_LEN);
}

static size_t make_truncated(const struct garbage *g, const struct path *path, uint8_t *data)
{
	bth(data, RC_WRITE_FIRST, g->qpn);
	random_fill(data + BTH_LEN, 8); /* half a RETH */
	return seal(path, data, BTH_LEN + 8);
}

static size_t make_overlong(const struct garbage *g, const struct path *path, uint8_t *data)
{
	bth(data, RC_SEND_ONLY, g->qpn);
	random_fill(data + BTH_LEN, MTU_MAX + 4);
	return seal(path, data, BTH_LEN + MTU_MAX + 4);
}

static size_t make_icrc(const struct garbage *g, const struct path *path, uint8_t *data)
{
	size_t len;

	bth(data, RC_SEND_ONLY, g->qpn);
	len = seal(path, data, BTH_LEN + random_fill(data + BTH_LEN, 64));
	data[BTH_LEN + random_u32() % 64] ^= (uint8_t)(1 + random_u32() % 255);
	return len;
}

static size_t make_opcode(const struct garbage *g, const struct path *path, uint8_t *data)
{
	static const uint8_t reserved[] = { 0x1f, 0x3f, 0x44, 0x60, 0x7f, 0xbf, 0xff };

	bth(data, reserved[random_u32() % sizeof(reserved)], g->qpn);
	return seal(path, data, BTH_LEN + random_fill(data + BTH_LEN, 64));
}

static size_t make_version(const struct garbage *g, const struct path *path, uint8_t *data)
{
	bth(data, RC_SEND_ONLY, g->qpn);
	data[1] |= (uint8_t)(1 + random_u32() % 15);
	return seal(path, data, BTH_LEN + random_fill(data + BTH_LEN, 64));
}

/* Half of them in the block of the process that runs, so that it gets them. */
static size_t make_qpn(const struct garbage *g, const struct path *path, uint8_t *data)
{
	uint32_t qpn = random_u32();

	if (qpn & 1)
		qpn = (g->qpn & ~0x7ffu) | (~g->qpn & 0x400) | (qpn & 0x3ff);
	bth(data, RC_SEND_ONLY, qpn);
	return seal(path, data, BTH_LEN + random_fill(data + BTH_LEN, 64));
}

static size_t make_ack(const struct garbage *g, const struct path *path, uint8_t *data)
{
	bth(data, RC_ACK, g->qpn);
	put_be32(data + BTH_LEN, random_u32() & 0x1fffffff);
	return seal(path, data, BTH_LEN + 4);
}

static size_t make_service(const struct garbage *g, const struct path *path, uint8_t *data)
{
	bth(data, UC_SEND_ONLY, g->qpn);
	return seal(path, data, BTH_LEN + random_fill(data + BTH_LEN, 64));
}

static struct kind {
	const char *name;
	size_t (*make)(const struct garbage *g, const struct path *path, uint8_t *data);
	bool from_stranger;
	uint64_t sent;
} kinds[] = {
	{ "random", make_random, false, 0 },
	{ "short", make_short, false, 0 },
	{ "truncated", make_truncated, true, 0 },
	{ "overlong", make_overlong, false, 0 },
	{ "icrc", make_icrc, false, 0 },
	{ "opcode", make_opcode, false, 0 },
	{ "version", make_version, true, 0 },
	{ "qpn", make_qpn, false, 0 },
	{ "ack", make_ack, false, 0 },
	{ "ack_stranger", make_ack, true, 0 },
	{ "service", make_service, false, 0 },
};

static void fatal(const char *what)
{
	fprintf(stderr, "garbage: %s: %s\n", what, strerror(errno));
	exit(1);
}

static socklen_t address_parse(const char *text, uint16_t port, struct sockaddr_storage *ss,
			       struct gid *gid)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	memset(gid, 0, sizeof(*gid));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &v4->sin_addr, 4);
		return sizeof(*v4);
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1) {
		errno = EINVAL;
		fatal(text);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	memcpy(gid->raw, &v6->sin6_addr, 16);
	return sizeof(*v6);
}

/* Unconnected and without fragments: IPv4 ID 0, which the ICRC covers. */
static void sender_open(struct garbage *g, struct sender *s, const char *from)
{
	int df = IP_PMTUDISC_DO, df6 = IPV6_PMTUDISC_DO;
	struct sockaddr_storage ss;
	socklen_t len = address_parse(from, 0, &ss, &s->path.sgid);

	s->path.dgid = g->to_gid;
	s->fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&ss, len) < 0 ||
	    getsockname(s->fd, (struct sockaddr *)&ss, &len) < 0)
		fatal(from);
	if (ss.ss_family == AF_INET)
		setsockopt(s->fd, IPPROTO_IP, IP_MTU_DISCOVER, &df, sizeof(df));
	else
		setsockopt(s->fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &df6, sizeof(df6));
	s->path.sport = ntohs(ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port
						      : ((struct sockaddr_in6 *)&ss)->sin6_port);
}

static void send_batch(struct garbage *g, struct kind *kind, const struct sender *s)
{
	static uint8_t data[BATCH][PACKET_MAX];
	struct mmsghdr messages[BATCH] = { 0 };
	struct iovec iov[BATCH];
	int done = 0;

	for (int i = 0; i < BATCH; i++) {
		iov[i].iov_base = data[i];
		iov[i].iov_len = kind->make(g, &s->path, data[i]);
		messages[i].msg_hdr = (struct msghdr){ .msg_name = &g->to,
						       .msg_namelen = g->to_len,
						       .msg_iov = &iov[i],
						       .msg_iovlen = 1 };
	}
	while (done < BATCH) {
		int n = sendmmsg(s->fd, messages + done, BATCH - (unsigned)done, 0);

		/* Too long for the interface, refused by an ICMP error: that one is lost. */
		done += n > 0 ? n : 1;
		kind->sent += n > 0 ? (uint64_t)n : 0;
	}
}

/* Packets of one kind and length, one behind the other. */
struct ready {
	const struct sender *from;
	unsigned segments, seg_len;
	uint8_t data[BULK_MAX];
};

static void make_ready(struct garbage *g, struct kind *kind, struct ready *r, bool bulk)
{
	uint8_t packet[PACKET_MAX];

	r->from = kind->from_stranger ? &g->stranger : &g->peer[random_u32() % SOCKETS];
	ipv4_id = 0;
	r->seg_len = (unsigned)kind->make(g, &r->from->path, r->data);
	r->seg_len += !r->seg_len;
	r->segments = BULK_MAX / r->seg_len < SEGMENTS ? BULK_MAX / r->seg_len : SEGMENTS;
	for (unsigned k = 1; k < r->segments; k++) {
		ipv4_id = bulk ? (uint16_t)k : 0;
		random_fill(packet, r->seg_len);
		kind->make(g, &r->from->path, packet);
		memcpy(r->data + k * r->seg_len, packet, r->seg_len);
	}
}

static void send_bulk(struct garbage *g, struct kind *kind, struct ready *r)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(uint16_t))] = { 0 };
	struct iovec iov = { r->data, (size_t)r->segments * r->seg_len };
	struct msghdr msg = { .msg_name = &g->to,
			      .msg_namelen = g->to_len,
			      .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	const uint16_t seg_len = (uint16_t)r->seg_len;

	cmsg->cmsg_level = SOL_UDP;
	cmsg->cmsg_type = UDP_SEGMENT;
	cmsg->cmsg_len = CMSG_LEN(sizeof(seg_len));
	memcpy(CMSG_DATA(cmsg), &seg_len, sizeof(seg_len));
	if (sendmsg(r->from->fd, &msg, 0) > 0)
		kind->sent += r->segments;
}

static void send_single(struct garbage *g, struct kind *kind, struct ready *r)
{
	struct mmsghdr messages[SEGMENTS] = { 0 };
	struct iovec iov[SEGMENTS];
	int n;

	for (unsigned k = 0; k < r->segments; k++) {
		iov[k] = (struct iovec){ r->data + k * r->seg_len, r->seg_len };
		messages[k].msg_hdr = (struct msghdr){ .msg_name = &g->to,
						       .msg_namelen = g->to_len,
						       .msg_iov = &iov[k],
						       .msg_iovlen = 1 };
	}
	n = sendmmsg(r->from->fd, messages, r->segments, 0);
	kind->sent += n > 0 ? (uint64_t)n : 0;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void trickle(struct garbage *g, double end)
{
	for (unsigned round = 0; now_s() < end; round++) {
		struct kind *kind = &kinds[round % ARRAY_LEN(kinds)];

		send_batch(g, kind,
			   kind->from_stranger ? &g->stranger : &g->peer[random_u32() % SOCKETS]);
	}
}

static void flood(struct garbage *g, double seconds, bool bulk)
{
	static struct ready ready[READY][ARRAY_LEN(kinds)];
	double end;

	for (size_t i = 0; i < READY * ARRAY_LEN(kinds); i++)
		make_ready(g, &kinds[i % ARRAY_LEN(kinds)], &ready[0][i], bulk);
	end = now_s() + seconds;
	for (size_t i = 0; now_s() < end; i = (i + 1) % (READY * ARRAY_LEN(kinds)))
		(bulk ? send_bulk : send_single)(g, &kinds[i % ARRAY_LEN(kinds)], &ready[0][i]);
}

int main(int argc, char **argv)
{
	struct garbage g = { 0 };
	double seconds;
	bool bulk;

	bulk = argc == 7 && strcmp(argv[6], "bulk") == 0;
	if (argc != 6 && !bulk && (argc != 7 || strcmp(argv[6], "single") != 0)) {
		fputs("usage: garbage TO PEER STRANGER QPN SECONDS [bulk|single]\n", stderr);
		return 2;
	}
	g.to_len = address_parse(argv[1], ROCE_UDP_PORT, &g.to, &g.to_gid);
	for (int i = 0; i < SOCKETS; i++)
		sender_open(&g, &g.peer[i], argv[2]);
	sender_open(&g, &g.stranger, argv[3]);
	g.qpn = (uint32_t)strtoul(argv[4], NULL, 16);
	seconds = atof(argv[5]);
	if (argc == 7)
		flood(&g, seconds, bulk);
	else
		trickle(&g, now_s() + seconds);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		printf("%s %llu\n", kinds[i].name, (unsigned long long)kinds[i].sent);
	return 0;
}
