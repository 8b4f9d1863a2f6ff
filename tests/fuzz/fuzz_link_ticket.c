/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tickets. An input that begins with 'R' is a line of text; any other is the binary inside of one,
 * to which the check value and the text form are added here, so that mutations get past them.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "link/base32.h"
#include "link/ticket.h"

static void try_text(const char *text)
{
	struct message m, back;
	char again[ROCELINK_MAX_TICKET], why[200];

	if (ticket_decode(text, &m, why, sizeof(why)) == 0) {
		if (ticket_encode(&m, again, sizeof(again)) != 0 ||
		    ticket_decode(again, &back, why, sizeof(why)) != 0)
			abort();
		if (back.qp_count != m.qp_count || back.region_count != m.region_count)
			abort();
		message_free(&back);
	}
	message_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[ROCELINK_MAX_TICKET] = "RL1-";
	uint8_t body[2048];
	uint32_t crc;

	if (size && data[0] == 'R' && size < sizeof(text)) {
		memcpy(text, data, size);
		text[size] = '\0';
		try_text(text);
		return 0;
	}
	if (size > sizeof(body) - 3)
		return 0;
	memcpy(body, data, size);
	crc = crc24(data, size);
	body[size] = (uint8_t)(crc >> 16);
	body[size + 1] = (uint8_t)(crc >> 8);
	body[size + 2] = (uint8_t)crc;
	if (base32_encode(text + 4, sizeof(text) - 4, body, size + 3) == 0)
		try_text(text);
	return 0;
}
