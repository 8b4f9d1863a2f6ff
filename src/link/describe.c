/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages as a person reads them: the text of the trace steps SENT and RECEIVED. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>

#include "link/message.h"

static void add(char *buf, size_t len, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void add(char *buf, size_t len, const char *format, ...)
{
	size_t used = strlen(buf);
	va_list args;

	va_start(args, format);
	vsnprintf(buf + used, len - used, format, args);
	va_end(args);
}

const char *wire_qp_type_name(unsigned type)
{
	static const char *const names[] = {
		[WIRE_RC] = "RC",
		[WIRE_UC] = "UC",
		[WIRE_UD] = "UD",
		[WIRE_XRC_INI] = "XRC initiator",
		[WIRE_XRC_TGT] = "XRC target",
	};

	return type >= WIRE_RC && type <= WIRE_XRC_TGT ? names[type] : "unknown";
}

static void describe_gid(char *buf, size_t len, const struct gid_value *g)
{
	static const char *const kinds[] = { "?", "InfiniBand", "RoCE v1", "RoCE v2" };
	char text[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, g->gid, text, sizeof(text));
	add(buf, len, " GID %s (%s)", text, kinds[g->kind <= 3 ? g->kind : 0]);
	if (g->lid)
		add(buf, len, " LID %u", g->lid);
}

static void describe_qp(char *buf, size_t len, const struct qp_values *q)
{
	add(buf, len, " [%s QPN 0x%06x", wire_qp_type_name(q->type), q->qpn);
	if (q->type != WIRE_UD)
		add(buf, len, " PSN 0x%06x MTU %u", q->psn,
		    rocelink_mtu_bytes((enum ibv_mtu)q->mtu));
	if (q->type == WIRE_UD)
		add(buf, len, " Q_Key 0x%08x", q->qkey);
	if (q->type == WIRE_XRC_TGT)
		add(buf, len, " SRQ 0x%06x", q->srqn);
	if (q->type == WIRE_RC || q->type >= WIRE_XRC_INI)
		add(buf, len, " depths %u/%u", q->initiator_depth, q->responder_depth);
	add(buf, len, "]");
}

void message_describe(const struct message *m, char *buf, size_t len)
{
	snprintf(buf, len, "%s", frame_name(m->type));
	if (message_has(m, FIELD_NAME))
		add(buf, len, " \"%s\"", m->name);
	if (message_has(m, FIELD_STATUS)) {
		if (m->reason)
			add(buf, len, " %s", rocelink_reason_name((enum rocelink_reason)m->reason));
		else
			add(buf, len, " ok");
	}
	if (m->app_reason)
		add(buf, len, " %u", m->app_reason);
	if (message_has(m, FIELD_TEXT))
		add(buf, len, ": %s", m->text);
	if (message_has(m, FIELD_SERVICE_NAME))
		add(buf, len, " service \"%s\"", m->service_name);
	for (unsigned i = 0; i < m->gid_count; i++)
		describe_gid(buf, len, &m->gids[i]);
	for (unsigned i = 0; i < m->qp_count; i++)
		describe_qp(buf, len, &m->qps[i]);
	for (unsigned i = 0; i < m->region_count; i++)
		add(buf, len, " region \"%s\" VA 0x%llx length %llu R_Key 0x%08x",
		    m->regions[i].name, (unsigned long long)m->regions[i].addr,
		    (unsigned long long)m->regions[i].length, m->regions[i].rkey);
	if (m->private_data_len)
		add(buf, len, " private data %zu bytes", m->private_data_len);
}
