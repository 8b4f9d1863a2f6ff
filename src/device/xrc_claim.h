/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which processes have an XRC domain open. Each that has holds an abstract unix socket whose name tells
 * the user, the device and the file: per network namespace, and gone with the process however it ends.
 * Looking and claiming are one step, under a lock that is such a name too.
 *
 * Any user can bind such a name, and so make this one believe that a domain is open. It gives access
 * to nothing.
 */
#ifndef ROCELINK_DEVICE_XRC_CLAIM_H
#define ROCELINK_DEVICE_XRC_CLAIM_H

#include <stdint.h>

/* What a domain is known by, also in messages between processes. */
struct xrc_name {
	uint64_t file_dev, file_ino;
	uint32_t ifindex; /* the device's */
	uint32_t reserved;
};

/* For a process that hasn't the domain open, with ibv_open_xrcd()'s flags. A descriptor to close when
 * it is closed, or -errno: -EINVAL (O_EXCL, and a process has it open), -EAGAIN (no O_CREAT, and
 * none has). */
int xrc_claim(const struct xrc_name *name, int oflags);

#endif
