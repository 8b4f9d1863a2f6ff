// SPDX-License-Identifier: BSD-2-Clause
/*
 * A forged UD SEND_ONLY from a plain UDP socket: a P_Key that no well-behaved device would send.
 * IPv6 only, whose header has no identification field that the ICRC covers and a socket can't set.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "probe.h"

enum { BTH = 12, DETH = 8, ICRC = 4, ROCE_PORT = 4791, UD_SEND_ONLY = 0x64, PAYLOAD_MAX = 1024 };

static uint32_t crc32_update(uint32_t crc, const uint8_t *at, size_t len)
{
	while (len--) {
		crc ^= *at++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

static void put32(uint8_t *at, uint32_t value)
{
	value = htonl(value);
	memcpy(at, &value, sizeof(value));
}

static void put16(uint8_t *at, uint16_t value)
{
	value = htons(value);
	memcpy(at, &value, sizeof(value));
}

/* IBA A17.3.3: mutable fields count as all ones, in front of them 8 bytes for the absent LRH. */
static uint32_t icrc(const struct sockaddr_in6 *from, const struct sockaddr_in6 *to,
		     const uint8_t *packet, size_t len)
{
	uint8_t head[8 + 40 + 8 + BTH];

	memset(head, 0xff, sizeof(head));
	head[8] = 0x6f;
	put16(head + 12, (uint16_t)(8 + len + ICRC));
	head[14] = IPPROTO_UDP;
	memcpy(head + 16, &from->sin6_addr, 16);
	memcpy(head + 32, &to->sin6_addr, 16);
	memcpy(head + 48, &from->sin6_port, 2);
	memcpy(head + 50, &to->sin6_port, 2);
	put16(head + 52, (uint16_t)(8 + len + ICRC));
	memcpy(head + 56, packet, BTH);
	head[56 + 4] = 0xff;
	return ~crc32_update(crc32_update(0xffffffff, head, sizeof(head)), packet + BTH, len - BTH);
}

void forge_ud_send(const struct end *e, uint16_t pkey, uint32_t qkey, const void *payload,
		   uint32_t len)
{
	struct sockaddr_in6 from = { .sin6_family = AF_INET6 };
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT) };
	uint8_t packet[BTH + DETH + PAYLOAD_MAX + ICRC] = { UD_SEND_ONLY, 0x40 };
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	socklen_t from_len = sizeof(from);
	uint32_t crc;

	memcpy(&from.sin6_addr, &e->mine.gid, 16);
	memcpy(&to.sin6_addr, &e->peer.gid, 16);
	if (fd < 0 || len > PAYLOAD_MAX || bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
	    getsockname(fd, (struct sockaddr *)&from, &from_len))
		die("forge_socket");
	put16(packet + 2, pkey);
	put32(packet + 4, e->peer.qpn);
	put32(packet + BTH, qkey);
	put32(packet + BTH + 4, e->mine.qpn);
	memcpy(packet + BTH + DETH, payload, len);
	crc = icrc(&from, &to, packet, BTH + DETH + len);
	memcpy(packet + BTH + DETH + len, &crc, sizeof(crc)); /* little-endian, as the host is */
	if (sendto(fd, packet, BTH + DETH + len + ICRC, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		die("forge_send");
	close(fd);
}
