/* SPDX-License-Identifier: BSD-2-Clause */
/* The fields of frames, for message.c alone. */
#ifndef ROCELINK_LINK_FIELDS_H
#define ROCELINK_LINK_FIELDS_H

#include "link/message.h"

struct field {
	const char *name;
	size_t min, max; /* of the value; fixed fields: min, and longer is allowed */
	bool fixed, repeatable;
	/* NULL, or what is wrong: a sentence, or "" when out of memory. At least min bytes are there. */
	const char *(*read)(struct message *m, struct reader *r);
	void (*write)(const struct message *m, struct buffer *out);
};

extern const struct field fields[FIELD_TYPES];

#endif
