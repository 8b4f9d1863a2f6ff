/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CRC runs over a small copy of the masked headers and then over the packet itself, untouched.
 *
 * Solving for the IPv4 identification. A CRC register in reflected form is a polynomial modulo
 * P = x^32 + ..., its lowest bit the highest power, so that four message bytes read little-endian
 * are the polynomial they add. Two headers that differ in the four bytes d from the identification
 * on (identification, flags, fragment offset), followed by n equal bytes, have CRCs that differ by
 * d * x^(32 + 8n) mod P. So d = difference * x^-(8(n + 4)), one and only; the check accepts it when
 * it changes nothing but the identification and the DF bit: 2^17 of 2^32 values.
 */
#include "wire/icrc.h"

#include <isa-l/crc.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/bytes.h"
#include "wire/packet.h"

#define IPPROTO_UDP_NUMBER 17
#define IPV4_DF		   0x4000

struct wire_ipv4 {
	uint8_t version_ihl;
	uint8_t tos;
	be16 total_len;
	be16 id;
	be16 flags_offset;
	uint8_t ttl;
	uint8_t protocol;
	be16 checksum;
	uint8_t src[4], dst[4];
};

struct wire_ipv6 {
	uint8_t version_class_label[4];
	be16 payload_len;
	uint8_t next_header;
	uint8_t hop_limit;
	uint8_t src[16], dst[16];
};

struct wire_udp {
	be16 sport, dport;
	be16 len;
	be16 checksum;
};

struct pseudo_ipv4 {
	struct wire_ipv4 ip;
	struct wire_udp udp;
	uint8_t bth[BTH_LEN];
};

struct pseudo_ipv6 {
	struct wire_ipv6 ip;
	struct wire_udp udp;
	uint8_t bth[BTH_LEN];
};
_Static_assert(sizeof(struct pseudo_ipv4) == 20 + 8 + 12, "no padding");
_Static_assert(sizeof(struct pseudo_ipv6) == 40 + 8 + 12, "no padding");

/* The CRC-32 of the eight bytes 0xff that stand in for an InfiniBand LRH. */
#define CRC_OF_LRH 0x2144df1cu

/* Up to here one copy and one CRC call cost less than two calls: 29 ns against 48 for a short
 * packet. */
#define COPY_MAX 256

#if defined(__x86_64__)
__attribute__((target("avx"))) static void zero_upper_halves(void)
{
	_mm256_zeroupper();
}
#endif

/*
 * From 256 bytes on ISA-L computes in 512-bit registers, where there are any, and leaves their upper parts
 * in use: the next instruction that takes the lower part alone waits for 160 ns, twice as long as the CRC
 * of 4 KiB takes.
 */
static uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t len)
{
	crc = crc32_gzip_refl(crc, data, len);
#if defined(__x86_64__)
	if (len >= 256 && __builtin_cpu_supports("avx"))
		zero_upper_halves();
#endif
	return crc;
}

#define MASKED16 ((be16){ { 0xff, 0xff } })

static struct wire_udp masked_udp(uint16_t sport, size_t packet_len)
{
	return (struct wire_udp){ .sport = make_be16(sport),
				  .dport = make_be16(ROCE_UDP_PORT),
				  .len = make_be16(
					  (uint16_t)(sizeof(struct wire_udp) + packet_len)),
				  .checksum = MASKED16 };
}

static void masked_bth(uint8_t out[BTH_LEN], const uint8_t *data)
{
	memcpy(out, data, BTH_LEN);
	out[4] = 0xff; /* FECN, BECN and the reserved bits may change on the way */
}

static void mask_ipv4(struct pseudo_ipv4 *h, const struct path *path, uint16_t id,
		      const uint8_t *data, size_t len)
{
	const size_t packet_len = len + ICRC_LEN;

	h->ip.version_ihl = 0x45;
	h->ip.tos = 0xff;
	h->ip.total_len = make_be16((uint16_t)(sizeof(h->ip) + sizeof(h->udp) + packet_len));
	h->ip.id = make_be16(id);
	h->ip.flags_offset = make_be16(IPV4_DF);
	h->ip.ttl = 0xff;
	h->ip.protocol = IPPROTO_UDP_NUMBER;
	h->ip.checksum = MASKED16;
	memcpy(h->ip.src, path->sgid.raw + 12, sizeof(h->ip.src));
	memcpy(h->ip.dst, path->dgid.raw + 12, sizeof(h->ip.dst));
	h->udp = masked_udp(path->sport, packet_len);
	masked_bth(h->bth, data);
}

static void mask_ipv6(struct pseudo_ipv6 *h, const struct path *path, const uint8_t *data,
		      size_t len)
{
	const size_t packet_len = len + ICRC_LEN;

	memset(h->ip.version_class_label, 0xff, sizeof(h->ip.version_class_label));
	h->ip.version_class_label[0] = 0x6f;
	h->ip.payload_len = make_be16((uint16_t)(sizeof(h->udp) + packet_len));
	h->ip.next_header = IPPROTO_UDP_NUMBER;
	h->ip.hop_limit = 0xff;
	memcpy(h->ip.src, path->sgid.raw, sizeof(h->ip.src));
	memcpy(h->ip.dst, path->dgid.raw, sizeof(h->ip.dst));
	h->udp = masked_udp(path->sport, packet_len);
	masked_bth(h->bth, data);
}

uint32_t icrc_compute(const struct path *path, uint16_t ipv4_id, const uint8_t *data, size_t len)
{
	union {
		struct pseudo_ipv4 v4;
		struct pseudo_ipv6 v6;
		uint8_t bytes[sizeof(struct pseudo_ipv6) + COPY_MAX];
	} head;
	const size_t rest = len - BTH_LEN;
	size_t head_len;
	uint32_t crc;

	if (gid_is_ipv4(&path->sgid)) {
		mask_ipv4(&head.v4, path, ipv4_id, data, len);
		head_len = sizeof(head.v4);
	} else {
		mask_ipv6(&head.v6, path, data, len);
		head_len = sizeof(head.v6);
	}
	if (rest <= COPY_MAX) {
		memcpy(head.bytes + head_len, data + BTH_LEN, rest);
		return crc32_of(CRC_OF_LRH, head.bytes, head_len + rest);
	}
	crc = crc32_of(CRC_OF_LRH, head.bytes, head_len);
	return crc32_of(crc, data + BTH_LEN, rest);
}

/* P without x^32, reflected: the highest bit is x^0. */
#define POLYNOMIAL 0xedb88320u

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (unsigned i = 0; i < 32; i++) {
		product ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (POLYNOMIAL & -(b & 1));
	}
	return product;
}

/* crc * x^(-8 bytes) mod P: takes back that many zero bytes. */
static uint32_t unshift(uint32_t crc, size_t bytes)
{
	/* x^(-8 * 2^i) mod P, reflected; each is the square of the one before. */
	static const uint32_t inverse[16] = {
		0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d,
		0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
		0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5,
	};

	for (unsigned i = 0; bytes != 0; i++, bytes >>= 1)
		if (bytes & 1)
			crc = multiply(crc, inverse[i]);
	return crc;
}

/* The identification that explains the difference of two ICRCs, or -1 where none does. */
static int solve_id(uint32_t difference, uint16_t id, size_t len)
{
	const size_t behind =
		sizeof(struct pseudo_ipv4) - offsetof(struct pseudo_ipv4, ip.id) - BTH_LEN + len;
	uint32_t d = unshift(difference, behind);

	if (d >> 24 != 0 || ((d >> 16) & 0xff & ~(IPV4_DF >> 8)) != 0)
		return -1;
	return id ^ ((d & 0xff) << 8 | (d >> 8 & 0xff));
}

bool icrc_check(const struct path *path, uint16_t *ipv4_id, const uint8_t *data, size_t len)
{
	uint32_t computed, received;
	int id;

	if (len < BTH_LEN + ICRC_LEN || len > UINT16_MAX - sizeof(struct wire_udp))
		return false;
	len -= ICRC_LEN;
	computed = icrc_compute(path, *ipv4_id, data, len);
	memcpy(&received, data + len, sizeof(received));
	received = le32toh(received);
	if (computed == received)
		return true;
	if (!gid_is_ipv4(&path->sgid))
		return false;
	id = solve_id(computed ^ received, *ipv4_id, len);
	if (id < 0)
		return false;
	*ipv4_id = (uint16_t)id;
	return true;
}
