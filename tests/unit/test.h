/* SPDX-License-Identifier: BSD-2-Clause */
/* cmocka with the headers that it wants to have been included before. */
#ifndef ROCELINK_TESTS_TEST_H
#define ROCELINK_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
