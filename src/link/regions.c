/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/regions.h"

#include <errno.h>

const struct region_value *regions_find(const struct regions *r, const char *name)
{
	for (unsigned i = 0; i < r->count; i++)
		if (strcmp(r->values[i].name, name) == 0)
			return &r->values[i];
	return NULL;
}

int regions_add(struct regions *r, const struct region_value *value)
{
	if (regions_find(r, value->name))
		return -EEXIST;
	if (r->count == ROCELINK_MAX_REGIONS)
		return -ENOSPC;
	if (r->count == r->cap) {
		unsigned cap = r->cap ? 2 * r->cap : 4;
		struct region_value *values = realloc(r->values, cap * sizeof(*values));

		if (!values)
			return -ENOMEM;
		r->values = values;
		r->cap = cap;
	}
	r->values[r->count++] = *value;
	return 0;
}

int regions_remove(struct regions *r, const char *name)
{
	for (unsigned i = 0; i < r->count; i++)
		if (strcmp(r->values[i].name, name) == 0) {
			r->count--;
			memmove(&r->values[i], &r->values[i + 1],
				(r->count - i) * sizeof(r->values[0]));
			return 0;
		}
	return -ENOENT;
}

void regions_free(struct regions *r)
{
	free(r->values);
	memset(r, 0, sizeof(*r));
}
