/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariant CRC of RoCE v2 (IBA annex A17.3.3): CRC-32 over masked pseudo IP and UDP headers,
 * the BTH with its reserved byte masked, and all up to the ICRC. Computed by ISA-L.
 *
 * The IPv4 identification and the DF bit take part, and a UDP socket can't read them. The CRC is
 * linear: for a given length these 17 bits change it by an injective linear map, so the check
 * solves for them and accepts a difference that lies in the map's image (strength 2^-15; IPv6:
 * 2^-32).
 */
#ifndef ROCELINK_WIRE_ICRC_H
#define ROCELINK_WIRE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/path.h"

/*
 * ICRC of a packet: data[0..len) from the BTH up to, not including, the ICRC. IPv4 when path->sgid
 * is IPv4-mapped, with DF set and the given ID. Returns the value; store it little-endian.
 */
uint32_t icrc_compute(const struct path *path, uint16_t ipv4_id, const uint8_t *data, size_t len);

/*
 * Check the ICRC that ends data[0..len). The expected *ipv4_id with DF set costs one CRC; otherwise
 * both are solved for, and on success *ipv4_id is the true one. IPv6: *ipv4_id is left alone.
 */
bool icrc_check(const struct path *path, uint16_t *ipv4_id, const uint8_t *data, size_t len);

#endif
