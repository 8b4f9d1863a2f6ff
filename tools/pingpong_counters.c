/* SPDX-License-Identifier: BSD-2-Clause */
/* How many RNR NAKs came: hardware and the kernel's drivers count in sysfs, the adapter answers
 * the same question as for `rocelink counters`. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "net/port.h"
#include "tools/pingpong.h"

enum { ANSWER_TIMEOUT_MS = 2000 };

static bool read_sysfs(const char *device, uint8_t port, uint64_t *n)
{
	/* Soft-RoCE, then mlx5, irdma and others. */
	static const char *const names[] = { "rcvd_rnr_err", "rnr_nak_retry_err", "rx_rnr_nak" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		unsigned long long value;
		char path[256];
		FILE *file;
		int got;

		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/hw_counters/%s",
			 device, port, names[i]);
		file = fopen(path, "r");
		if (!file)
			continue;
		got = fscanf(file, "%llu", &value);
		fclose(file);
		*n = value;
		if (got == 1)
			return true;
	}
	return false;
}

bool pp_rnr_count(const struct ibv_qp *qp, uint8_t port, uint64_t *n)
{
	static const char name[] = "\nrnr_naks_received ";
	char text[8192];
	const char *at;

	if (read_sysfs(ibv_get_device_name(qp->context->device), port, n))
		return true;
	if (port_query_report(qpn_block(qp->qp_num), text, sizeof(text), ANSWER_TIMEOUT_MS) < 0)
		return false;
	at = strstr(text, name);
	if (!at)
		return false;
	*n = strtoull(at + strlen(name), NULL, 10);
	return true;
}
