/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scenarios.h"
#include "sim_pcap.h"

static const char *context = "";
static const char *pcap; /* the runs are written to this file */
static const char *program;
static bool under_way; /* a run of run_one() that has not ended well */

/* All that a run depends on: the fields of a specification, in their order. */
static const struct spec_field {
	size_t offset, size;
} spec_fields[] = {
#define FIELD(name)                                                                       \
	{                                                                                 \
		offsetof(struct sim_config, name), sizeof(((struct sim_config *)0)->name) \
	}
	FIELD(mtu),    FIELD(psn),	 FIELD(drop_mask[0]), FIELD(drop_mask[1]),
	FIELD(loss),   FIELD(duplicate), FIELD(reorder),      FIELD(corrupt),
	FIELD(replay), FIELD(delay_ns),	 FIELD(mbps),	      FIELD(queue_bytes),
	FIELD(seed),
#undef FIELD
};

const char *describe(void)
{
	static char text[400];
	int n = snprintf(text, sizeof(text), "%s", context);

	for (size_t i = 0; i < ARRAY_LEN(spec_fields); i++) {
		uint64_t v = 0;

		memcpy(&v, (char *)&sim.cfg + spec_fields[i].offset, spec_fields[i].size);
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %#llx", (unsigned long long)v);
	}
	return text;
}

void run_one(const struct scenario *sc, const struct sim_config *cfg)
{
	struct sim_config own = *cfg;

	own.pair[0].type = sc->type;
	own.pair[0].srq = sc->srq ? 2 : 0;
	sim_start(&sim, &own);
	if (pcap)
		sim.pcap = sim_pcap_open(pcap);
	context = sc->name;
	under_way = true;
	sc->post(&sim);
	if (!sim_run(&sim, LIMIT_NS))
		fail_msg("%s: doesn't come to rest", describe());
	sc->check(&sim);
	if (sim.pcap)
		fclose(sim.pcap);
	sim_end(&sim);
	under_way = false;
}

void runner_start(const char *program_name)
{
	program = program_name;
}

/* The command itself writes the packets. */
int explain_failure(void **state)
{
	char command[800];

	(void)state;
	if (!under_way || pcap)
		return 0;
	under_way = false;
	snprintf(command, sizeof(command), "%s --run %s sim-failure.pcap", program, describe());
	print_error("to repeat the run: %s\n", command);
	strcat(command, " >/dev/null 2>&1");
	if (system(command) != 0)
		print_error("its packets: sim-failure.pcap\n");
	return 0;
}

int run_spec(int argc, char **argv)
{
	const struct scenario *sc = scenario_find(argv[2]);
	struct sim_config cfg = sim_defaults;

	for (size_t i = 0; i < ARRAY_LEN(spec_fields) && 3 + (int)i < argc; i++) {
		uint64_t v = strtoull(argv[3 + i], NULL, 0);

		memcpy((char *)&cfg + spec_fields[i].offset, &v, spec_fields[i].size);
	}
	if (argc > 3 + (int)ARRAY_LEN(spec_fields))
		pcap = argv[argc - 1];
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	if (!sc) {
		fprintf(stderr, "%s: no scenario %s\n", program, argv[2]);
		return 2;
	}
	run_one(sc, &cfg);
	printf("%s: good\n", describe());
	return 0;
}
