/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The environment as bytes: variables separated by zero bytes. Whatever they are, they are taken or
 * refused with a sentence that ends within its buffer; what is taken is within its limits.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/units.h"
#include "fuzz.h"

#define VARIABLES_MAX 64

static void check_plan(const struct fault_plan *p)
{
	for (int d = 0; d < FAULT_DIRECTIONS; d++) {
		const struct fault_rates *r = &p->rates[d];

		assert(r->loss <= FAULT_ALWAYS && r->reorder <= FAULT_ALWAYS);
		assert(r->dup <= FAULT_ALWAYS && r->corrupt <= FAULT_ALWAYS);
		assert(r->delay_ns < 3601 * NS_PER_SEC);
	}
	assert(p->rnr <= FAULT_ALWAYS);
	assert(p->link_down_at_ns < 3601 * NS_PER_SEC && p->link_down_for_ns < 3601 * NS_PER_SEC);
}

static void parse(char *const *env, size_t error_len)
{
	char *error = malloc(error_len);
	struct settings s;
	int ret = settings_parse(&s, env, error, error_len);

	assert(ret == 0 || ret == -EINVAL);
	if (ret)
		assert(strlen(error) > 0 && strlen(error) < error_len);
	else
		check_plan(&s.fault);
	free(error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *env[VARIABLES_MAX + 1] = { NULL };
	char *text = malloc(size + 1);
	size_t n = 0;

	memcpy(text, data, size);
	text[size] = '\0';
	for (char *at = text; at < text + size && n < VARIABLES_MAX; at += strlen(at) + 1)
		env[n++] = at;
	parse(env, 512);
	parse(env, 40);
	free(text);
	return 0;
}
