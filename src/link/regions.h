/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions by name, in order of offer, at most ROCELINK_MAX_REGIONS. One directory for each side. */
#ifndef ROCELINK_LINK_REGIONS_H
#define ROCELINK_LINK_REGIONS_H

#include "link/message.h"

struct regions {
	struct region_value *values;
	unsigned count, cap;
};

/* 0, -EEXIST, -ENOSPC, -ENOMEM. */
int regions_add(struct regions *r, const struct region_value *value);
/* 0 or -ENOENT. */
int regions_remove(struct regions *r, const char *name);
const struct region_value *regions_find(const struct regions *r, const char *name);
void regions_free(struct regions *r);

#endif
