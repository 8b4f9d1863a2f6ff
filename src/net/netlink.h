/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Questions to rtnetlink. Three kinds of request don't need a library, and programs that run on the
 * adapter shouldn't have to load one.
 */
#ifndef ROCELINK_NET_NETLINK_H
#define ROCELINK_NET_NETLINK_H

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called for each message of an answer. */
typedef void (*netlink_handler)(void *arg, const struct nlmsghdr *msg);

/* A socket subscribed to these multicast groups (RTMGRP_*), or -errno. */
int netlink_open(uint32_t groups);

/*
 * Ask on a socket of its own: a header structure of header_len bytes, optionally one attribute.
 * flags: NLM_F_DUMP or 0. Calls the handler for each answer. 0 or -errno (also the kernel's
 * refusal).
 */
int netlink_ask(uint16_t type, uint16_t flags, const void *header, size_t header_len,
		uint16_t attr_type, const void *attr, size_t attr_len, netlink_handler handler,
		void *arg);

/* The attributes that follow a header of header_len bytes, by type; absent ones NULL. */
void netlink_attributes(const struct nlmsghdr *msg, size_t header_len, const struct rtattr **attrs,
			unsigned n_attrs);

/* An unsigned 32-bit attribute, or this value where it is absent. */
uint32_t netlink_u32(const struct rtattr *attr, uint32_t absent);

#endif
