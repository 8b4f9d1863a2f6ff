/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef ROCELINK_LINK_DEVICE_H
#define ROCELINK_LINK_DEVICE_H

#include "rocelink/rocelink.h"

/* Open the device of this name; NULL with *err, which lists those that there are. */
struct ibv_context *link_device_open_named(const char *name, struct rocelink_error *err);

#endif
