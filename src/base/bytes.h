/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Big-endian fields. A value that stands in a packet or a message has a type of its own, so that
 * it can't be used in arithmetic by mistake; load and store work at any alignment.
 */
#ifndef ROCELINK_BASE_BYTES_H
#define ROCELINK_BASE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

typedef struct {
	uint8_t b[2];
} be16;
typedef struct {
	uint8_t b[3];
} be24;
typedef struct {
	uint8_t b[4];
} be32;
typedef struct {
	uint8_t b[8];
} be64;

static inline uint16_t load_be16(be16 v)
{
	uint16_t h;

	memcpy(&h, v.b, sizeof(h));
	return be16toh(h);
}

static inline uint32_t load_be24(be24 v)
{
	return (uint32_t)v.b[0] << 16 | (uint32_t)v.b[1] << 8 | v.b[2];
}

static inline uint32_t load_be32(be32 v)
{
	uint32_t h;

	memcpy(&h, v.b, sizeof(h));
	return be32toh(h);
}

static inline uint64_t load_be64(be64 v)
{
	uint64_t h;

	memcpy(&h, v.b, sizeof(h));
	return be64toh(h);
}

static inline be16 make_be16(uint16_t h)
{
	be16 v;

	h = htobe16(h);
	memcpy(v.b, &h, sizeof(h));
	return v;
}

static inline be24 make_be24(uint32_t h)
{
	return (be24){ { (uint8_t)(h >> 16), (uint8_t)(h >> 8), (uint8_t)h } };
}

static inline be32 make_be32(uint32_t h)
{
	be32 v;

	h = htobe32(h);
	memcpy(v.b, &h, sizeof(h));
	return v;
}

static inline be64 make_be64(uint64_t h)
{
	be64 v;

	h = htobe64(h);
	memcpy(v.b, &h, sizeof(h));
	return v;
}

#endif
