/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The packet tap: a pcap file (link type "raw IP", nanoseconds) of what the port sends and
 * receives. IP and UDP headers are made up from the path: a socket neither gives nor takes them.
 * For packets sent they are what the kernel writes (ID of the segment, DF, UDP checksum); for
 * packets received the IPv4 ID and DF are those that the ICRC was computed with, and the UDP
 * checksum is the right one, though the sender may have sent none.
 *
 * Each call writes whole records with one write(2) in append mode: the file of a killed process is
 * valid, and processes may share a file. Whoever opens a file that nobody writes starts it anew;
 * while somebody does (a shared flock), it is continued. After a fork the child writes nothing.
 */
#ifndef ROCELINK_NET_TAP_H
#define ROCELINK_NET_TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/path.h"

struct tap;

/* 0 or -errno. A new file gets mode 0600. */
int tap_open(struct tap **tap, const char *file);
void tap_close(struct tap *tap);
/* A forked child lets go of it. */
void tap_abandon(struct tap *tap);

/* Packets of seg_len bytes (the last may be shorter). numbered: their IPv4 IDs are 0, 1, 2 ...,
 * else all 0. */
void tap_sent(struct tap *tap, const struct path *path, const uint8_t *data, size_t len,
	      size_t seg_len, bool numbered);
void tap_received(struct tap *tap, const struct path *path, const uint8_t *data, size_t len,
		  size_t seg_len);

#endif
