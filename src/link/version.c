/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/session.h"

const char *rocelink_version(void)
{
	return ROCELINK_VERSION;
}

void rocelink_protocol_versions(unsigned *min, unsigned *max)
{
	*min = VERSION_MIN;
	*max = VERSION_MAX;
}
