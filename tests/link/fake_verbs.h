/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Doubles of the few ibv_* calls that the link library makes, linked instead of libibverbs. A queue
 * pair checks each transition against the specification's table, restated here, and remembers what
 * was written.
 */
#ifndef TESTS_LINK_FAKE_VERBS_H
#define TESTS_LINK_FAKE_VERBS_H

#include <infiniband/verbs.h>

enum { FAKE_MAX_STEPS = 8, FAKE_MAX_GIDS = 16 };

struct fake_device {
	struct ibv_device device;
	struct ibv_context context;
	struct ibv_pd pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_gid_entry gids[FAKE_MAX_GIDS];
	int gid_count;
	/* Fail the n-th transition to this state (IBV_QPS_RESET: never) with this errno. */
	enum ibv_qp_state fail_to;
	int fail_errno;
	int ah_alive;
	int opened, open; /* how often, and how often it still is */
};

struct fake_step {
	enum ibv_qp_state to;
	struct ibv_qp_attr attr;
	int mask;
};

struct fake_qp {
	struct ibv_qp qp;
	struct fake_device *dev;
	enum ibv_qp_state state;
	struct fake_step steps[FAKE_MAX_STEPS];
	int step_count;
	uint32_t qkey;
};

/* One port, MTU 4096, depths 16, atomics; one GID ::ffff:127.0.0.1 of type RoCE v2. */
void fake_device_init(struct fake_device *d, const char *name);
/* "192.0.2.1" or "fd00::1"; type as in struct ibv_gid_entry. */
void fake_device_add_gid(struct fake_device *d, const char *address, uint32_t type);
void fake_qp_init(struct fake_qp *q, struct fake_device *d, enum ibv_qp_type type, uint32_t qpn);
/* The written attributes of the transition to this state, or NULL. */
const struct fake_step *fake_qp_step(const struct fake_qp *q, enum ibv_qp_state to);

/* What ibv_get_device_list() gives. */
void fake_set_devices(struct fake_device **devices, int count);

#endif
