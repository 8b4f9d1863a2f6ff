// SPDX-License-Identifier: BSD-2-Clause
#include "conversation.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/capture.h"
#include "../unit/test.h"

static bool is_request(const struct packet *p)
{
	return p->op->flags & OPF_REQUEST;
}

static void append(struct conversation *c, const struct capture_packet *cp, bool reply)
{
	struct seen *m;

	c->messages = realloc(c->messages, (c->n_messages + 1) * sizeof(*m));
	m = &c->messages[c->n_messages++];
	memset(m, 0, sizeof(*m));
	m->reply = reply;
	m->frame = cp->frame;
	m->bytes = malloc(cp->len);
	memcpy(m->bytes, cp->data, cp->len);
	assert_int_equal(packet_parse(&m->pkt, m->bytes, cp->len), DROP_NONE);
	c->n_requests += !reply;
	if (m->pkt.op->position == POS_FIRST || m->pkt.op->position == POS_MIDDLE)
		c->mtu = m->pkt.payload_len;
}

static bool has_request(const struct conversation *c, struct psn psn)
{
	for (size_t i = 0; i < c->n_messages; i++) {
		const struct packet *p = &c->messages[i].pkt;

		if (!c->messages[i].reply && psn_diff(psn, p->psn) >= 0 &&
		    psn_diff(psn, psn_add(p->psn, p->dma_len / MTU_MIN)) <= 0)
			return true;
	}
	return false;
}

static struct conversation *of_request(struct conversations *all, const struct path *path,
				       uint32_t qpn)
{
	struct conversation *c;

	for (size_t i = 0; i < all->n; i++) {
		c = &all->list[i];
		if (c->responder_qpn == qpn && gid_eq(&c->path.dgid, &path->dgid))
			return c;
	}
	assert_true(all->n < CONVERSATIONS_MAX);
	c = &all->list[all->n++];
	c->path = *path;
	c->responder_qpn = qpn;
	c->mtu = 1024;
	return c;
}

/* A reply names only the requester's queue pair: the first one tells by its PSN whose it is. */
static struct conversation *of_reply(struct conversations *all, const struct path *path,
				     const struct packet *p)
{
	for (size_t i = 0; i < all->n; i++) {
		struct conversation *c = &all->list[i];

		if (!gid_eq(&c->path.sgid, &path->dgid) || !gid_eq(&c->path.dgid, &path->sgid))
			continue;
		if (c->requester_qpn == p->dest_qpn)
			return c;
		if (!c->requester_qpn && has_request(c, p->psn)) {
			c->requester_qpn = p->dest_qpn;
			return c;
		}
	}
	return NULL;
}

static void visit(const struct capture_packet *cp, void *arg)
{
	struct conversations *all = arg;
	struct conversation *c;
	struct packet p;

	if (packet_parse(&p, cp->data, cp->len) || opcode_service(p.opcode) != WIRE_RC)
		return;
	c = is_request(&p) ? of_request(all, &cp->path, p.dest_qpn) : of_reply(all, &cp->path, &p);
	if (c)
		append(c, cp, !is_request(&p));
}

static uint64_t named_length(const struct packet *p)
{
	return p->op->headers & HDR_ATOMIC_ETH ? 8 : p->op->headers & HDR_RETH ? p->dma_len : 0;
}

static void find_range(struct conversation *c)
{
	uint64_t end = 0;

	c->va = UINT64_MAX;
	for (size_t i = 0; i < c->n_messages; i++) {
		const struct packet *p = &c->messages[i].pkt;

		if (c->messages[i].reply || !named_length(p))
			continue;
		c->va = p->va < c->va ? p->va : c->va;
		end = p->va + named_length(p) > end ? p->va + named_length(p) : end;
	}
	c->va = end ? c->va : 0x1000;
	c->length = end ? end - c->va : 8;
	assert_true(c->length < 64u << 20);
}

/* What a READ brought back is what was there, where no WRITE of this conversation came before. */
static void learn(struct conversation *c, bool *known, uint64_t at, const uint8_t *bytes,
		  size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (!known[at + i]) {
			known[at + i] = true;
			c->image[at + i] = bytes ? bytes[i] : 0;
		}
	}
}

static const struct packet *request_of(const struct conversation *c, size_t before, struct psn psn)
{
	const struct packet *found = NULL;

	for (size_t i = 0; i < before; i++) {
		const struct packet *p = &c->messages[i].pkt;

		if (!c->messages[i].reply && p->op->headers & (HDR_RETH | HDR_ATOMIC_ETH) &&
		    psn_diff(psn, p->psn) >= 0)
			found = p;
	}
	return found;
}

static void draw_image(struct conversation *c)
{
	bool *known = calloc(c->length, sizeof(*known));
	uint64_t read_at = 0;

	c->image = calloc(1, c->length);
	for (size_t i = 0; i < c->n_messages; i++) {
		const struct packet *p = &c->messages[i].pkt;
		const struct packet *request = request_of(c, i, p->psn);

		if (p->op->kind == OP_WRITE && p->op->headers & HDR_RETH)
			learn(c, known, p->va - c->va, NULL, p->dma_len);
		if (p->op->kind == OP_READ_RESPONSE && request) {
			if (p->op->position == POS_FIRST || p->op->position == POS_ONLY)
				read_at = request->va - c->va;
			if (p->payload_len)
				learn(c, known, read_at, p->payload, p->payload_len);
			read_at += p->payload_len;
		}
		if (p->op->kind == OP_ATOMIC_ACKNOWLEDGE && request) {
			/* In the responder's own order: the captures' machines are little-endian. */
			uint64_t original = htole64(p->atomic_result);

			learn(c, known, request->va - c->va, (uint8_t *)&original, 8);
		}
	}
	free(known);
}

void conversations_read(struct conversations *all, const char *file)
{
	char path[512];

	memset(all, 0, sizeof(*all));
	snprintf(path, sizeof(path), "%s/tests/data/%s", getenv("SOURCE_DIR"), file);
	assert_true(capture_each(path, visit, all) > 0);
	assert_true(all->n > 0);
	for (size_t i = 0; i < all->n; i++) {
		find_range(&all->list[i]);
		draw_image(&all->list[i]);
	}
}

void conversations_free(struct conversations *all)
{
	for (size_t i = 0; i < all->n; i++) {
		struct conversation *c = &all->list[i];

		for (size_t k = 0; k < c->n_messages; k++)
			free(c->messages[k].bytes);
		free(c->messages);
		free(c->image);
	}
}
