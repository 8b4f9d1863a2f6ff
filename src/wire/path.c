/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/path.h"

#include <arpa/inet.h>

_Static_assert(GID_STRLEN >= INET6_ADDRSTRLEN, "room for every address");

const char *gid_format(const struct gid *g, char buf[GID_STRLEN])
{
	return inet_ntop(AF_INET6, g->raw, buf, GID_STRLEN);
}
