/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program may unmap or protect memory that it has registered. The access that finds it so raises
 * SIGSEGV or SIGBUS; the handlers here abandon it (mem/guard.h), and the work request ends with an
 * error. All other faults go to the handler that the program had before, or take their default
 * course.
 */
#ifndef ROCELINK_DEVICE_MR_FAULT_H
#define ROCELINK_DEVICE_MR_FAULT_H

#include <stdbool.h>

/* At every registration: the program may have set handlers of its own since the last. */
void mr_fault_watch(void);

/* Around a fork, so that the child finds the lock free. */
void mr_fault_fork_lock(bool take);

#endif
