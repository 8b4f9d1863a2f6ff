/* SPDX-License-Identifier: BSD-2-Clause */
/* Codes of the specification in words. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "tools/decode_roce.h"

const char *aeth_kind_name(uint8_t syndrome)
{
	switch (syndrome & AETH_KIND_MASK) {
	case AETH_ACK:
		return "ack";
	case AETH_RNR_NAK:
		return "rnr_nak";
	case AETH_NAK:
		return "nak";
	default:
		return "reserved";
	}
}

/* clang-format off */
static const struct {
	const char *name;
	const char *explanation;
} naks[] = {
	[NAK_PSN_SEQUENCE] = { "PSN sequence error",
		"a packet was lost on the way; the requester repeats from the PSN given here" },
	[NAK_INVALID_REQUEST] = { "invalid request",
		"the responder can't do this: operation not allowed for the queue pair, message longer than "
		"the receive, or packets that don't fit the path MTU (is it equal on both sides?)" },
	[NAK_REMOTE_ACCESS] = { "remote access error",
		"the R_Key gives no such access: wrong key, an address outside of the region, or a region or "
		"queue pair without the right (IBV_ACCESS_REMOTE_...)" },
	[NAK_REMOTE_OPERATIONAL] = { "remote operational error",
		"the responder met a trouble of its own, such as memory of the posted receive" },
	[NAK_INVALID_RD_REQUEST] = { "invalid RD request", "of reliable datagrams only" },
};
/* clang-format on */

const char *nak_name(unsigned code)
{
	return code < ARRAY_LEN(naks) ? naks[code].name : "reserved code";
}

const char *nak_explanation(unsigned code)
{
	return code < ARRAY_LEN(naks) ? naks[code].explanation : "not in the specification";
}

int aeth_credits(uint8_t syndrome)
{
	unsigned code = syndrome & AETH_VALUE_MASK;

	if (code == AETH_CREDIT_INVALID)
		return -1;
	if (code < 4)
		return (int)code;
	/* From 4 on, every second code doubles: 4, 6, 8, 12, 16, 24 ... 32768. */
	return (code & 1 ? 6 : 4) << ((code - 4) / 2);
}

void duration_format(uint64_t ns, char buf[32])
{
	if (ns < NS_PER_MS)
		snprintf(buf, 32, "%.3g us", (double)ns / (double)NS_PER_US);
	else if (ns < NS_PER_SEC)
		snprintf(buf, 32, "%.4g ms", (double)ns / (double)NS_PER_MS);
	else
		snprintf(buf, 32, "%.4g s", (double)ns / (double)NS_PER_SEC);
}

const char *service_name(uint8_t opcode)
{
	static const char *const names[] = {
		[WIRE_RC] = "RC", [WIRE_UC] = "UC",   [WIRE_RD] = "RD",
		[WIRE_UD] = "UD", [WIRE_CNP] = "CNP", [WIRE_XRC] = "XRC",
	};
	unsigned service = opcode_service(opcode);

	return service < ARRAY_LEN(names) ? names[service] : "reserved";
}

void note_add(struct roce *r, const char *format, ...)
{
	size_t used = strlen(r->note);
	va_list args;

	if (used && used + 2 < sizeof(r->note)) {
		memcpy(r->note + used, "; ", 3);
		used += 2;
	}
	va_start(args, format);
	vsnprintf(r->note + used, sizeof(r->note) - used, format, args);
	va_end(args);
}
