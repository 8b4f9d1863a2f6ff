/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Microseconds to the specification's codes and back. Rounding is up: a timer that is too long
 * costs time, one that is too short costs the connection.
 */
#include "base/units.h"
#include "rocelink/rocelink.h"

enum {
	ACK_TIMEOUT_BASE_NS = 4096, /* IBA 11.2.4.2: 4.096 us * 2^code */
	ACK_TIMEOUT_MAX_CODE = 31,
	RNR_LONGEST_CODE = 0,
	RNR_MAX_CODE = 31,
};

/* IBA table 45: RNR NAK timer field, in units of 10 us. */
static const uint32_t rnr_delay_10us[32] = {
	65536, 1,    2,	   3,	 4,    6,     8,     12,    16,	   24,	  32,
	48,    64,   96,   128,	 192,  256,   384,   512,   768,   1024,  1536,
	2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

uint8_t rocelink_ack_timeout_code(uint64_t us)
{
	uint8_t code = 1;

	if (us == ROCELINK_NEVER)
		return 0;
	while (code < ACK_TIMEOUT_MAX_CODE && rocelink_ack_timeout_us(code) < us)
		code++;
	return code;
}

uint64_t rocelink_ack_timeout_us(uint8_t code)
{
	uint64_t ns = (uint64_t)ACK_TIMEOUT_BASE_NS << (code & ACK_TIMEOUT_MAX_CODE);

	if (code == 0)
		return ROCELINK_NEVER;
	return (ns + NS_PER_US - 1) / NS_PER_US;
}

uint8_t rocelink_rnr_delay_code(uint64_t us)
{
	for (unsigned code = 1; code <= RNR_MAX_CODE; code++)
		if (rocelink_rnr_delay_us((uint8_t)code) >= us)
			return (uint8_t)code;
	return RNR_LONGEST_CODE;
}

uint64_t rocelink_rnr_delay_us(uint8_t code)
{
	return (uint64_t)rnr_delay_10us[code & RNR_MAX_CODE] * 10;
}

enum ibv_mtu rocelink_mtu_code(unsigned bytes)
{
	for (unsigned code = IBV_MTU_256; code <= IBV_MTU_4096; code++)
		if (rocelink_mtu_bytes((enum ibv_mtu)code) == bytes)
			return (enum ibv_mtu)code;
	return (enum ibv_mtu)0;
}

unsigned rocelink_mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}
