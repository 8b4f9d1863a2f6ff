/* SPDX-License-Identifier: BSD-2-Clause */
/* A network namespace of the test's own, made without root where need be. */
#ifndef TESTS_NET_NAMESPACE_H
#define TESTS_NET_NAMESPACE_H

#include <stdbool.h>

/* Enter a fresh one and bring loopback up. False: not allowed here, the test can't run. */
bool namespace_enter(void);

/*
 * Add the interface d0 (a veth pair, its other end d1 is up and without addresses) with the
 * addresses 192.0.2.1 and .2, 2001:db8::1 and ::2, fe80::1; 192.0.2.99 is a neighbour that isn't
 * there.
 */
void namespace_add_link(void);

/* Run a command line; it must succeed. */
void must_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Run a command line quietly; did it succeed? */
bool try_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* More users than one: the test was started by root. */
bool namespace_has_users(void);

#endif
