/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets and exchanged values in one line each, for the text and the picture. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/decode_decoder.h"

void text_clean(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

__attribute__((format(printf, 3, 4))) static void add(char *buf, size_t len, const char *format,
						      ...)
{
	size_t used = strlen(buf);
	va_list args;

	if (used && used + 2 < len) {
		memcpy(buf + used, "  ", 3);
		used += 2;
	}
	va_start(args, format);
	vsnprintf(buf + used, len - used, format, args);
	va_end(args);
}

static void aeth_title(const struct packet *p, char *buf, size_t len)
{
	unsigned value = p->syndrome & AETH_VALUE_MASK;
	const char *service = service_name(p->opcode);

	switch (p->syndrome & AETH_KIND_MASK) {
	case AETH_ACK:
		snprintf(buf, len, "%s %s", service, p->op->name);
		break;
	case AETH_RNR_NAK:
		snprintf(buf, len, "%s RNR NAK", service);
		break;
	case AETH_NAK:
		snprintf(buf, len, "%s NAK: %s", service, nak_name(value));
		break;
	default:
		snprintf(buf, len, "%s %s, syndrome 0x%02x", service, p->op->name, p->syndrome);
	}
}

void packet_title(const struct roce *r, char *buf, size_t len)
{
	const struct packet *p = &r->p;

	if (!p->op->name)
		snprintf(buf, len, "malformed RoCE packet, %zu bytes", r->len);
	else if (r->drop != DROP_NONE)
		snprintf(buf, len, "malformed %s %s", service_name(p->opcode), p->op->name);
	else if (p->op->kind == OP_ACKNOWLEDGE)
		aeth_title(p, buf, len);
	else if (p->op->kind == OP_CNP)
		snprintf(buf, len, "%s", p->op->name);
	else if (p->op->flags & OPF_PAYLOAD)
		snprintf(buf, len, "%s %s, %u bytes", service_name(p->opcode), p->op->name,
			 p->payload_len);
	else
		snprintf(buf, len, "%s %s", service_name(p->opcode), p->op->name);
}

/* " [#6]", or nothing. */
static const char *told_in(uint64_t number, char buf[32])
{
	buf[0] = '\0';
	if (number)
		snprintf(buf, 32, " [#%" PRIu64 "]", number);
	return buf;
}

void packet_fields(const struct roce *r, char *buf, size_t len)
{
	const struct packet *p = &r->p;
	char origin[32];

	buf[0] = '\0';
	add(buf, len, "QPN 0x%06x%s", p->dest_qpn, told_in(r->qpn_told, origin));
	if (p->op->kind == OP_CNP)
		return;
	if (r->psn_told)
		add(buf, len, "PSN 0x%06x [#%" PRIu64 " +%u]", p->psn.v, r->psn_told,
		    r->psn_offset);
	else
		add(buf, len, "PSN 0x%06x", p->psn.v);
}

static void add_memory(const struct roce *r, char *buf, size_t len)
{
	const struct packet *p = &r->p;
	const struct told_region *region = r->region;

	if (!region) {
		add(buf, len, "VA 0x%" PRIx64 "  R_Key 0x%08x", p->va, p->rkey);
		return;
	}
	add(buf, len, "VA 0x%" PRIx64 " [#%" PRIu64 " +%" PRIu64 "]", p->va, region->number,
	    r->va_offset);
	add(buf, len, "R_Key 0x%08x [#%" PRIu64 "]", p->rkey, region->number);
	if (region->v.has & TOLD_NAME)
		add(buf, len, "region \"%s\"", region->v.name);
}

static void add_aeth(const struct packet *p, char *buf, size_t len)
{
	int credits = aeth_credits(p->syndrome);

	if ((p->syndrome & AETH_KIND_MASK) == AETH_ACK && credits >= 0)
		add(buf, len, "credits %d", credits);
	add(buf, len, "MSN %u", p->msn);
}

static void add_extended(const struct roce *r, char *buf, size_t len)
{
	const struct packet *p = &r->p;
	unsigned headers = r->drop == DROP_NONE ? p->op->headers : 0;
	char origin[32];

	if (headers & HDR_XRCETH)
		add(buf, len, "SRQ 0x%06x", p->xrc_srqn);
	if (headers & HDR_DETH)
		add(buf, len, "from QPN 0x%06x%s  Q_Key 0x%08x", p->src_qpn,
		    told_in(r->src_qpn_told, origin), p->qkey);
	if (headers & (HDR_RETH | HDR_ATOMIC_ETH))
		add_memory(r, buf, len);
	if (headers & HDR_RETH)
		add(buf, len, "length %u", p->dma_len);
	if (headers & HDR_ATOMIC_ETH && p->op->kind == OP_COMPARE_SWAP)
		add(buf, len, "compare 0x%" PRIx64 "  swap 0x%" PRIx64, p->compare, p->swap_add);
	else if (headers & HDR_ATOMIC_ETH)
		add(buf, len, "add 0x%" PRIx64, p->swap_add);
	if (headers & HDR_AETH)
		add_aeth(p, buf, len);
	if (headers & HDR_ATOMIC_ACK)
		add(buf, len, "value before 0x%" PRIx64, p->atomic_result);
	if (headers & HDR_IMM)
		add(buf, len, "immediate 0x%08x", ntohl(p->imm));
	if (headers & HDR_IETH)
		add(buf, len, "invalidates R_Key 0x%08x", p->invalidate_rkey);
	if (headers & HDR_FETH)
		add(buf, len, "flush type 0x%x level %u", p->flush_type, p->flush_level);
}

void packet_details(const struct roce *r, char *buf, size_t len)
{
	size_t used;

	buf[0] = '\0';
	add_extended(r, buf, len);
	used = strlen(buf);
	if (r->note[0])
		snprintf(buf + used, len - used, "%s%s", used ? "; " : "", r->note);
}

void told_format(const struct told *t, char *buf, size_t len)
{
	char address[GID_STRLEN];

	buf[0] = '\0';
	if (t->has & TOLD_TYPE)
		add(buf, len, "%s", t->type);
	if (t->has & TOLD_QPN)
		add(buf, len, "QPN 0x%06x", t->qpn);
	if (t->has & TOLD_PSN)
		add(buf, len, "PSN 0x%06x", t->psn);
	if (t->has & TOLD_GID)
		add(buf, len, "GID %s", address_format(&t->gid, address));
	if (t->has & TOLD_LID && t->lid)
		add(buf, len, "LID 0x%04x", t->lid);
	if (t->has & TOLD_MTU)
		add(buf, len, "path MTU %u", t->mtu);
	if (t->has & TOLD_QKEY)
		add(buf, len, "Q_Key 0x%08x", t->qkey);
	if (t->has & TOLD_SRQN && t->srqn)
		add(buf, len, "SRQ 0x%06x", t->srqn);
	if (t->has & TOLD_NAME)
		add(buf, len, "region \"%s\"", t->name);
	if (t->has & TOLD_RKEY)
		add(buf, len, "R_Key 0x%08x  VA 0x%" PRIx64, t->rkey, t->va);
	if (t->has & TOLD_LENGTH)
		add(buf, len, "length %" PRIu64, t->length);
	text_clean(buf);
}
