/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "tools/decode_alloc.h"
#include "tools/decode_party.h"

struct party_address {
	struct gid address;
	unsigned side;
	struct party *party;
	struct party_address *next;
};

void parties_init(struct parties *p)
{
	memset(p, 0, sizeof(*p));
	p->last = &p->first;
}

void parties_destroy(struct parties *p)
{
	for (struct party *party = p->first, *next; party; party = next) {
		next = party->next;
		free(party);
	}
	for (unsigned i = 0; i < PARTY_BUCKETS; i++)
		for (struct party_address *a = p->buckets[i], *next; a; a = next) {
			next = a->next;
			free(a);
		}
	parties_init(p);
}

static struct party_address **bucket_of(struct parties *p, const struct gid *address)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (unsigned i = 0; i < sizeof(address->raw); i++)
		hash = (hash ^ address->raw[i]) * 16777619u;
	return &p->buckets[hash % PARTY_BUCKETS];
}

static struct party *find(struct parties *p, const struct gid *address, unsigned side)
{
	for (struct party_address *a = *bucket_of(p, address); a; a = a->next)
		if (a->side == side && gid_eq(&a->address, address))
			return a->party;
	return NULL;
}

void party_add_address(struct parties *p, struct party *party, const struct gid *address,
		       unsigned side)
{
	struct party_address **bucket = bucket_of(p, address), *a;

	if (find(p, address, side))
		return;
	a = decode_alloc(sizeof(*a));
	a->address = *address;
	a->side = side;
	a->party = party;
	a->next = *bucket;
	*bucket = a;
}

struct party *party_get(struct parties *p, const struct gid *address, unsigned side)
{
	struct party *party = find(p, address, side);

	if (party)
		return party;
	party = decode_alloc(sizeof(*party));
	party->address = *address;
	party->index = p->count++;
	party->second = side;
	if (party->index < 26)
		snprintf(party->name, sizeof(party->name), "%c", (char)('A' + party->index));
	else
		snprintf(party->name, sizeof(party->name), "P%u", party->index + 1);
	*p->last = party;
	p->last = &party->next;
	party_add_address(p, party, address, side);
	return party;
}

const char *address_format(const struct gid *g, char buf[GID_STRLEN])
{
	if (gid_is_ipv4(g))
		inet_ntop(AF_INET, g->raw + 12, buf, GID_STRLEN);
	else
		inet_ntop(AF_INET6, g->raw, buf, GID_STRLEN);
	return buf;
}
