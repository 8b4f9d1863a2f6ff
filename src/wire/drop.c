/* SPDX-License-Identifier: BSD-2-Clause */
/* The reasons why a packet is dropped, in words: counters, `rocelink` output and logs show them. */
#include "wire/packet.h"

#include "base/units.h"

struct drop_text {
	const char *name, *explanation;
};

static const struct drop_text drops[] = {
	[DROP_NONE] = { "none", "The packet was not dropped." },
	[DROP_SHORT] = { "short", "The packet is shorter than its headers and the ICRC." },
	[DROP_OPCODE] = { "opcode",
			  "The opcode is reserved or belongs to an unsupported service." },
	[DROP_VERSION] = { "version", "The transport header version is not 0." },
	[DROP_LENGTH] = { "length", "The payload or pad length is not possible for the opcode." },
	[DROP_ICRC] = { "icrc", "The invariant CRC is wrong: the packet was damaged or altered." },
	[DROP_QPN] = { "qpn", "No queue pair has the destination number." },
	[DROP_SERVICE] = { "service", "The opcode is of another service than the queue pair." },
	[DROP_STATE] = { "state", "The queue pair is not in a state that receives." },
	[DROP_PKEY] = { "pkey", "The partition key does not match the queue pair's." },
	[DROP_QKEY] = { "qkey", "The Q_Key does not match the queue pair's." },
	[DROP_ADDRESS] = { "address",
			   "The addresses are not those the queue pair is connected to." },
	[DROP_STALE] = { "stale", "A response answers nothing that is outstanding." },
	[DROP_DUPLICATE] = { "duplicate", "A repeated request needs no answer." },
	[DROP_SEQUENCE] = { "sequence", "The packet is out of order." },
	[DROP_NO_RECEIVE] = { "no_receive", "No receive work request was posted." },
	[DROP_TOO_LONG] = { "too_long", "The message is longer than the receive buffer." },
	[DROP_ACCESS] = { "access", "The R_Key, the bounds or the permission does not allow it." },
	[DROP_MULTICAST] = { "multicast",
			     "No queue pair here is a member of the multicast group." },
	[DROP_FORWARD] = { "forward", "The owning process is gone or its queue is full." },
	[DROP_CNP] = { "cnp", "A congestion notification: counted, no action is taken." },
};

_Static_assert(ARRAY_LEN(drops) == DROP_COUNT, "every reason has its text");

const char *drop_name(enum drop drop)
{
	return (unsigned)drop < DROP_COUNT ? drops[drop].name : "unknown";
}

const char *drop_explanation(enum drop drop)
{
	return (unsigned)drop < DROP_COUNT ? drops[drop].explanation : "Unknown reason.";
}
