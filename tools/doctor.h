/* SPDX-License-Identifier: BSD-2-Clause */
/* `rocelink doctor`: each check is one function that prints what it found, one line each, and what
 * to do about it. Nothing is changed on the machine. */
#ifndef ROCELINK_TOOLS_DOCTOR_H
#define ROCELINK_TOOLS_DOCTOR_H

#include "tools/devices.h"

#define DOCTOR_SERVICE "rocelink-doctor/1"

enum verdict { WELL, NOTE, BAD };

struct doctor {
	const struct device_info *devices;
	int n_devices;
	unsigned bad; /* findings of this kind so far */
};

struct doctor_options {
	const char *host; /* NULL: this machine only */
	const char *service, *listen;
	bool serve;
};

/* One finding: "[ok] subject: text", below it "-> advice" unless NULL. */
void doctor_find(struct doctor *d, enum verdict verdict, const char *subject, const char *advice,
		 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* doctor_local.c */
/* False: no device can be opened until they are right. */
bool doctor_check_settings(struct doctor *d);
void doctor_check_devices(struct doctor *d);
void doctor_check_kernel(struct doctor *d);
void doctor_check_memory_limit(struct doctor *d);
void doctor_check_gids(struct doctor *d);
void doctor_check_mtu(struct doctor *d);

/* doctor_port.c */
void doctor_check_port(struct doctor *d);

/* doctor_path.c: the way to a host, without and with a peer there. */
void doctor_check_route(struct doctor *d, const struct doctor_options *o);
void doctor_check_probe(struct doctor *d, const struct doctor_options *o);

/* doctor_serve.c: the exit status; returns only when it can't serve. */
int doctor_serve(const struct doctor_options *o);

/* doctor_probe.c: UD messages counted, the same on both sides. */
enum { PROBES = 8, PROBE_SMALL = 64 };

struct probe;

struct probe *probe_open(const struct rocelink_conn *conn, struct rocelink_error *err);
void probe_close(struct probe *p);
/* Adds the queue pair, posts the receives, establishes. */
int probe_link(struct probe *p, struct rocelink_conn *conn, struct rocelink_error *err);
unsigned probe_mtu(const struct probe *p);
const char *probe_gid(const struct probe *p);
/* Send PROBES messages of this size. */
int probe_send(struct probe *p, uint32_t size, struct rocelink_error *err);
/* How many have arrived (waiting for stragglers); -1 with *err. */
int probe_count(struct probe *p, struct rocelink_error *err);

#endif
