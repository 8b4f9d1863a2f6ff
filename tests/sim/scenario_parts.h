/* SPDX-License-Identifier: BSD-2-Clause */
/* What scenarios.c makes its table of: a scenario's post_ and check_ function. */
#ifndef ROCELINK_TESTS_SIM_SCENARIO_PARTS_H
#define ROCELINK_TESTS_SIM_SCENARIO_PARTS_H

#include "sim.h"

void post_sends(struct sim *s);
void check_sends(struct sim *s);
void check_writes(struct sim *s);
void post_write_imm(struct sim *s);
void check_write_imm(struct sim *s);
void post_reads(struct sim *s);
void post_long_read(struct sim *s);
void check_long_read(struct sim *s);
void post_atomics(struct sim *s);
void check_atomics(struct sim *s);
void post_mixed(struct sim *s);
void check_mixed(struct sim *s);
void post_fence(struct sim *s);
void check_fence(struct sim *s);
void post_gather(struct sim *s);
void check_gather(struct sim *s);
void post_inline(struct sim *s);
void check_inline(struct sim *s);
void post_rnr(struct sim *s);
void check_rnr(struct sim *s);
void post_atomic_writes(struct sim *s);
void check_atomic_writes(struct sim *s);
void post_invalidating_sends(struct sim *s);
void check_invalidating_sends(struct sim *s);
void post_locals(struct sim *s);
void check_locals(struct sim *s);
void post_both(struct sim *s);
void check_both(struct sim *s);
void post_swaps(struct sim *s);
void check_swaps(struct sim *s);
void check_uc(struct sim *s);
void post_uc_writes(struct sim *s);
void check_uc_writes(struct sim *s);
void post_uds(struct sim *s);
void check_uds(struct sim *s);

#endif
