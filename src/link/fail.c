/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

static const char *const code_names[] = {
	[ROCELINK_OK] = "ok",
	[ROCELINK_AGAIN] = "again",
	[ROCELINK_INVALID] = "invalid",
	[ROCELINK_TIMEOUT] = "timeout",
	[ROCELINK_RESOLVE] = "resolve",
	[ROCELINK_NETWORK] = "network",
	[ROCELINK_SECURITY] = "security",
	[ROCELINK_PROTOCOL] = "protocol",
	[ROCELINK_MISMATCH] = "mismatch",
	[ROCELINK_REFUSED] = "refused",
	[ROCELINK_PEER_FAILED] = "peer failed",
	[ROCELINK_CLOSED] = "closed",
	[ROCELINK_NO_DEVICE] = "no device",
	[ROCELINK_VERBS] = "verbs",
	[ROCELINK_NOT_FOUND] = "not found",
	[ROCELINK_LIMIT] = "limit",
	[ROCELINK_SYSTEM] = "system",
};

static const char *const phase_names[] = {
	[ROCELINK_PHASE_NONE] = "none",	      [ROCELINK_PHASE_RESOLVE] = "resolve",
	[ROCELINK_PHASE_CONNECT] = "connect", [ROCELINK_PHASE_SECURE] = "secure",
	[ROCELINK_PHASE_HELLO] = "HELLO",     [ROCELINK_PHASE_NEGOTIATE] = "negotiate",
	[ROCELINK_PHASE_INIT] = "INIT",	      [ROCELINK_PHASE_RTR] = "RTR",
	[ROCELINK_PHASE_RTS] = "RTS",	      [ROCELINK_PHASE_READY] = "READY",
	[ROCELINK_PHASE_OPEN] = "open",	      [ROCELINK_PHASE_CLOSE] = "close",
};

static const char *const reason_names[] = {
	[ROCELINK_REASON_NONE] = "none",
	[ROCELINK_REASON_VERSION] = "version",
	[ROCELINK_REASON_SERVICE] = "service",
	[ROCELINK_REASON_QP_TYPE] = "queue pair type",
	[ROCELINK_REASON_QP_COUNT] = "queue pair count",
	[ROCELINK_REASON_MTU] = "path MTU",
	[ROCELINK_REASON_GID] = "GID",
	[ROCELINK_REASON_AUTH] = "authentication",
	[ROCELINK_REASON_BUSY] = "busy",
	[ROCELINK_REASON_APPLICATION] = "application",
	[ROCELINK_REASON_PROTOCOL] = "protocol",
	[ROCELINK_REASON_SIMULTANEOUS] = "simultaneous",
	[ROCELINK_REASON_TIMEOUT] = "timeout",
	[ROCELINK_REASON_LOCAL] = "local failure",
};

static const char *const state_names[] = {
	[ROCELINK_STATE_CONNECTING] = "connecting",   [ROCELINK_STATE_OPEN] = "open",
	[ROCELINK_STATE_REQUESTED] = "requested",     [ROCELINK_STATE_EXCHANGING] = "exchanging",
	[ROCELINK_STATE_ESTABLISHED] = "established", [ROCELINK_STATE_CLOSING] = "closing",
	[ROCELINK_STATE_CLOSED] = "closed",	      [ROCELINK_STATE_FAILED] = "failed",
};

static const char *name_of(const char *const *names, size_t count, unsigned value)
{
	return value < count && names[value] ? names[value] : "unknown";
}

const char *rocelink_code_name(enum rocelink_code code)
{
	return name_of(code_names, ARRAY_LEN(code_names), code);
}

const char *rocelink_phase_name(enum rocelink_phase phase)
{
	return name_of(phase_names, ARRAY_LEN(phase_names), phase);
}

const char *rocelink_reason_name(enum rocelink_reason reason)
{
	return name_of(reason_names, ARRAY_LEN(reason_names), reason);
}

const char *rocelink_state_name(enum rocelink_state state)
{
	return name_of(state_names, ARRAY_LEN(state_names), state);
}

int link_fail(struct rocelink_error *err, enum rocelink_code code, enum rocelink_phase phase,
	      int sys_errno, const char *format, ...)
{
	va_list args;
	int len;

	if (!err)
		return (int)code;
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->phase = phase;
	err->sys_errno = sys_errno;
	va_start(args, format);
	len = vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	if (sys_errno && len >= 0 && (size_t)len < sizeof(err->text)) {
		char buf[128];

		snprintf(err->text + len, sizeof(err->text) - (size_t)len, ": %s",
			 strerror_r(sys_errno, buf, sizeof(buf)));
	}
	return (int)code;
}

int link_again(struct rocelink_error *err)
{
	if (err) {
		memset(err, 0, sizeof(*err));
		err->code = ROCELINK_AGAIN;
	}
	return ROCELINK_AGAIN;
}

int link_no_memory(struct rocelink_error *err)
{
	return link_fail(err, ROCELINK_SYSTEM, ROCELINK_PHASE_NONE, ENOMEM, "out of memory");
}

void link_clean_text(char *to, size_t size, const void *from, size_t len)
{
	const unsigned char *p = from;
	size_t n = len < size - 1 ? len : size - 1;

	for (size_t i = 0; i < n; i++)
		to[i] = p[i] < 0x20 || p[i] == 0x7f ? '?' : (char)p[i];
	to[n] = '\0';
}

int link_check_size(size_t size, size_t smallest, const char *name, struct rocelink_error *err)
{
	if (size >= smallest && size < 65536)
		return ROCELINK_OK;
	return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			 "%s.size is %zu: set it to sizeof(struct %s)", name, size, name);
}

void link_copy_options(void *to, size_t size, const void *from, size_t from_size)
{
	memset(to, 0, size);
	memcpy(to, from, from_size < size ? from_size : size);
}

int link_store_result(void *to, const void *from, size_t size)
{
	size_t known;

	memcpy(&known, to, sizeof(known));
	if (known < size || known >= 65536)
		return ROCELINK_INVALID;
	memcpy((char *)to + sizeof(known), (const char *)from + sizeof(known),
	       size - sizeof(known));
	return ROCELINK_OK;
}
