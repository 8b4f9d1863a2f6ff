/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters as text, one "name value" a line: what `rocelink counters` shows. */
#include <stdio.h>
#include <unistd.h>

#include "device/engine_internal.h"

size_t engine_report_line(char *text, size_t cap, size_t at, const char *name, uint64_t value)
{
	int n;

	if (at >= cap)
		return at;
	n = snprintf(text + at, cap - at, "%s %llu\n", name, (unsigned long long)value);
	return at + (n > 0 ? (size_t)n : 0);
}

static struct qp_counters totals(const struct engine *e)
{
	struct qp_counters sum = e->gone;

	for (uint32_t i = 0; i < e->qps.n_owned; i++) {
		struct engine_qp **block = e->qps.blocks[e->qps.owned[i]];

		for (uint32_t j = 0; j < QPNS_PER_BLOCK; j++)
			if (block[j])
				qp_counters_add(&sum, &block[j]->qp.counters);
	}
	return sum;
}

size_t engine_report(struct engine *e, char *text, size_t cap)
{
	struct qp_counters c = totals(e);
	const struct {
		const char *name;
		uint64_t value;
	} lines[] = {
		{ "pid", (uint64_t)getpid() },
		{ "queue_pairs", e->qps.live },
		{ "tx_packets", c.tx_packets },
		{ "tx_bytes", c.tx_bytes },
		{ "rx_packets", c.rx_packets },
		{ "rx_bytes", c.rx_bytes },
		{ "retransmitted", c.retransmitted },
		{ "timeouts", c.timeouts },
		{ "naks_sent", c.naks_sent },
		{ "naks_received", c.naks_received },
		{ "rnr_naks_sent", c.rnr_naks_sent },
		{ "rnr_naks_received", c.rnr_naks_received },
		{ "duplicates", c.duplicates },
		{ "links", port_stats(e->port)->links },
		{ "local_sent", port_stats(e->port)->local_sent },
		{ "local_received", port_stats(e->port)->local_received },
	};
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		at = engine_report_line(text, cap, at, lines[i].name, lines[i].value);
	for (int d = DROP_NONE + 1; d < DROP_COUNT; d++) {
		char name[64];

		snprintf(name, sizeof(name), "drop_%s", drop_name((enum drop)d));
		at = engine_report_line(text, cap, at, name, e->drops[d]);
	}
	if (e->fault)
		at = engine_fault_report(e, text, cap, at);
	return at < cap ? at : cap;
}

uint64_t engine_drops(struct engine *e, enum drop reason)
{
	uint64_t n;

	pthread_mutex_lock(&e->lock);
	n = e->drops[reason];
	pthread_mutex_unlock(&e->lock);
	return n;
}
