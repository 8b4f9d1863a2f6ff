/* SPDX-License-Identifier: BSD-2-Clause */
/* What `rocelink devices` has found; printed by devices_text.c and devices_json.c. */
#ifndef ROCELINK_TOOLS_DEVICES_H
#define ROCELINK_TOOLS_DEVICES_H

#include <stdbool.h>

#include "rocelink/rocelink.h"

struct device_port {
	uint8_t number;
	bool queried;
	struct ibv_port_attr attr;
	struct rocelink_gid *gids;
	int n_gids;
	char error[256]; /* why there are none */
};

struct device_info {
	char name[64];
	bool adapter;	 /* ours; else a device of the kernel */
	char driver[64]; /* of a device of the kernel, "" if unknown */
	int open_errno;	 /* 0: the rest is valid */
	uint64_t guid;	 /* host order */
	struct ibv_device_attr attr;
	struct device_port *ports;
};

struct device_choice {
	const char *host; /* --to; NULL: none was asked for */
	bool found;
	struct rocelink_gid gid; /* found */
	struct rocelink_error err;
};

/* All devices; *n of them. NULL with *n 0: none, and errno says why (0: there are simply none). */
struct device_info *devices_collect(int *n);
void devices_free(struct device_info *list, int n);

const char *device_link_layer(uint8_t link_layer);
const char *device_gid_type(enum rocelink_gid_type type);
bool device_gid_chosen(const struct device_choice *choice, const struct rocelink_gid *gid);

void devices_print_text(const struct device_info *list, int n, const struct device_choice *choice,
			bool verbose);
void devices_print_json(const struct device_info *list, int n, const struct device_choice *choice);

#endif
