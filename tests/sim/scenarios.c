/* SPDX-License-Identifier: BSD-2-Clause */
#include "scenarios.h"

#include <string.h>

#include "scenario_parts.h"

const struct scenario scenarios[] = {
	{ "send", IBV_QPT_RC, post_sends, check_sends, false },
	{ "write", IBV_QPT_RC, post_writes, check_writes, false },
	{ "write-imm", IBV_QPT_RC, post_write_imm, check_write_imm, false },
	{ "read", IBV_QPT_RC, post_reads, check_writes, false },
	{ "long-read", IBV_QPT_RC, post_long_read, check_long_read, false },
	{ "atomics", IBV_QPT_RC, post_atomics, check_atomics, false },
	{ "mixed", IBV_QPT_RC, post_mixed, check_mixed, false },
	{ "fence", IBV_QPT_RC, post_fence, check_fence, false },
	{ "gather", IBV_QPT_RC, post_gather, check_gather, false },
	{ "inline", IBV_QPT_RC, post_inline, check_inline, false },
	{ "rnr", IBV_QPT_RC, post_rnr, check_rnr, false },
	{ "both", IBV_QPT_RC, post_both, check_both, false },
	{ "atomic-write", IBV_QPT_RC, post_atomic_writes, check_atomic_writes, false },
	{ "send-invalidate", IBV_QPT_RC, post_invalidating_sends, check_invalidating_sends, false },
	{ "locals", IBV_QPT_RC, post_locals, check_locals, false },
	{ "swaps", IBV_QPT_RC, post_swaps, check_swaps, false },
	{ "uc-send", IBV_QPT_UC, post_sends, check_uc, false },
	{ "uc-write-imm", IBV_QPT_UC, post_uc_writes, check_uc_writes, false },
	{ "ud", IBV_QPT_UD, post_uds, check_uds, false },
	{ "srq-send", IBV_QPT_RC, post_sends, check_sends, true },
	{ "srq-write-imm", IBV_QPT_RC, post_write_imm, check_write_imm, true },
	{ "srq-rnr", IBV_QPT_RC, post_rnr, check_rnr, true },
	{ "srq-uc-send", IBV_QPT_UC, post_sends, check_uc, true },
	/* The same over XRC, where node 1 only answers. */
	{ "xrc-send", IBV_QPT_XRC_SEND, post_sends, check_sends, false },
	{ "xrc-write", IBV_QPT_XRC_SEND, post_writes, check_writes, false },
	{ "xrc-write-imm", IBV_QPT_XRC_SEND, post_write_imm, check_write_imm, false },
	{ "xrc-read", IBV_QPT_XRC_SEND, post_reads, check_writes, false },
	{ "xrc-long-read", IBV_QPT_XRC_SEND, post_long_read, check_long_read, false },
	{ "xrc-atomics", IBV_QPT_XRC_SEND, post_atomics, check_atomics, false },
	{ "xrc-mixed", IBV_QPT_XRC_SEND, post_mixed, check_mixed, false },
	{ "xrc-atomic-write", IBV_QPT_XRC_SEND, post_atomic_writes, check_atomic_writes, false },
	{ "xrc-send-invalidate", IBV_QPT_XRC_SEND, post_invalidating_sends,
	  check_invalidating_sends, false },
	{ "xrc-swaps", IBV_QPT_XRC_SEND, post_swaps, check_swaps, false },
	{ "xrc-rnr", IBV_QPT_XRC_SEND, post_rnr, check_rnr, false },
};

const unsigned n_scenarios = ARRAY_LEN(scenarios);

const struct scenario *scenario_find(const char *name)
{
	for (unsigned i = 0; i < ARRAY_LEN(scenarios); i++)
		if (strcmp(scenarios[i].name, name) == 0)
			return &scenarios[i];
	return NULL;
}
