/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A checked copy of rocelink_options, with defaults filled in and times in nanoseconds; shared by a
 * listener and its connections, read-only.
 */
#ifndef ROCELINK_LINK_CONFIG_H
#define ROCELINK_LINK_CONFIG_H

#include <stdatomic.h>

#include "link/regions.h"
#include "link/security.h"

struct config {
	atomic_uint refs;
	char service_name[ROCELINK_MAX_NAME + 1];
	uint8_t *private_data;
	size_t private_data_len;
	struct security *security;
	bool has_gid, has_qp;
	struct rocelink_gid gid;
	char *rdma_host;
	struct rocelink_qp_options qp;
	struct regions regions;
	int (*prepare)(void *arg, struct rocelink_conn *conn);
	void *prepare_arg;
	rocelink_trace_fn trace;
	void *trace_arg;
	uint64_t resolve_ns, connect_ns, secure_ns, hello_ns, ready_ns, close_ns, total_ns;
	bool retry_refused;
	enum rocelink_compat compat;
};

int config_new(const struct rocelink_options *options, struct config **out,
	       struct rocelink_error *err);
struct config *config_ref(struct config *c);
void config_unref(struct config *c);

/* Microseconds (or ROCELINK_NO_DEADLINE) to nanoseconds, saturating. */
uint64_t config_ns(uint64_t us);

/* A name of the program's, for a region, sync or service. */
int config_check_name(const char *what, const char *name, struct rocelink_error *err);
/* The program's region as it is told to the peer. */
int config_region(const struct rocelink_region *region, struct region_value *value,
		  struct rocelink_error *err);

#endif
