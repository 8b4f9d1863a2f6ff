/* SPDX-License-Identifier: BSD-2-Clause */
/* Time is uint64_t nanoseconds on one monotonic clock; names that hold one end in _ns. */
#ifndef ROCELINK_BASE_UNITS_H
#define ROCELINK_BASE_UNITS_H

#include <stdint.h>

#define NS_PER_US  UINT64_C(1000)
#define NS_PER_MS  UINT64_C(1000000)
#define NS_PER_SEC UINT64_C(1000000000)
#define TIME_NEVER UINT64_MAX

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
