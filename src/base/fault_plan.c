/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * "key=value,key=value": one row per key. Numbers are read by hand: strtod() follows the program's
 * locale and would take "1e9" and "nan".
 */
#include "base/fault_plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

#define DECIMALS     6 /* digits behind the point that count */
#define DECIMAL_UNIT 1000000
#define NUMBER_MAX   UINT64_C(1000000000)

/* Digits with at most one point among them, times DECIMAL_UNIT. Returns what follows, or NULL. */
static const char *take_number(const char *s, uint64_t *value)
{
	uint64_t whole = 0, part = 0, unit = DECIMAL_UNIT;

	if (*s < '0' || *s > '9')
		return NULL;
	for (; *s >= '0' && *s <= '9'; s++) {
		whole = whole * 10 + (uint64_t)(*s - '0');
		if (whole > NUMBER_MAX)
			return NULL;
	}
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++) {
			unit /= 10;
			part += unit * (uint64_t)(*s - '0');
		}
	*value = whole * DECIMAL_UNIT + part;
	return s;
}

static bool take_chance(const char *s, uint64_t *chance)
{
	uint64_t percent;

	s = take_number(s, &percent);
	if (!s || strcmp(s, "%") != 0 || percent > 100 * DECIMAL_UNIT)
		return false;
	*chance = percent * FAULT_ALWAYS / (100 * DECIMAL_UNIT);
	return true;
}

static const char *take_duration_head(const char *s, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = { { "ns", 1 }, { "us", NS_PER_US }, { "ms", NS_PER_MS }, { "s", NS_PER_SEC } };
	uint64_t number;

	s = take_number(s, &number);
	for (size_t i = 0; s && i < ARRAY_LEN(units); i++) {
		size_t len = strlen(units[i].name);

		if (strncmp(s, units[i].name, len) != 0)
			continue;
		/* An hour is beyond any sense and below any overflow. */
		if (number / DECIMAL_UNIT > 3600 * NS_PER_SEC / units[i].ns)
			return NULL;
		*ns = number * units[i].ns / DECIMAL_UNIT;
		return s + len;
	}
	return NULL;
}

static bool take_duration(const char *s, uint64_t *ns)
{
	s = take_duration_head(s, ns);
	return s && *s == '\0';
}

static bool take_count(const char *s, uint64_t *count)
{
	uint64_t number;

	s = take_number(s, &number);
	if (!s || *s || number % DECIMAL_UNIT)
		return false;
	*count = number / DECIMAL_UNIT;
	return true;
}

static bool take_positive(const char *s, uint64_t *count)
{
	return take_count(s, count) && *count > 0;
}

/* "AT+FOR", two durations. */
static bool take_outage(const char *s, uint64_t *at_for)
{
	s = take_duration_head(s, &at_for[0]);
	return s && *s == '+' && take_duration(s + 1, &at_for[1]) && at_for[1] > 0;
}

static const struct {
	const char *name;
	size_t offset; /* in fault_rates (per_direction) or fault_plan */
	bool per_direction;
	bool (*take)(const char *s, uint64_t *value);
	const char *right;
} keys[] = {
#define RATE(field) offsetof(struct fault_rates, field), true
#define PLAN(field) offsetof(struct fault_plan, field), false
	{ "loss", RATE(loss), take_chance, "a percentage such as 1%" },
	{ "reorder", RATE(reorder), take_chance, "a percentage such as 0.5%" },
	{ "dup", RATE(dup), take_chance, "a percentage such as 0.1%" },
	{ "corrupt", RATE(corrupt), take_chance, "a percentage such as 0.01%" },
	{ "delay", RATE(delay_ns), take_duration, "a time such as 2ms or 50us" },
	{ "seed", PLAN(seed), take_count, "a number such as 42" },
	{ "rnr", PLAN(rnr), take_chance, "a percentage such as 1%" },
	{ "cq-overrun", PLAN(cq_overrun), take_positive, "a number of completions such as 100" },
	{ "qp-error", PLAN(qp_error), take_positive, "a number of packets such as 1000" },
	{ "device-fatal", PLAN(device_fatal), take_positive, "a number of packets such as 1000" },
	{ "link-down", PLAN(link_down_at_ns), take_outage,
	  "when, a plus and how long, such as 2s+500ms" },
#undef RATE
#undef PLAN
};
_Static_assert(offsetof(struct fault_plan, link_down_for_ns) ==
		       offsetof(struct fault_plan, link_down_at_ns) + sizeof(uint64_t),
	       "take_outage() writes both");

/* "in.loss" is of one direction, "loss" of both. Returns a mask of directions. */
static unsigned take_direction(const char **name)
{
	if (strncmp(*name, "out.", 4) == 0) {
		*name += 4;
		return 1u << FAULT_OUT;
	}
	if (strncmp(*name, "in.", 3) == 0) {
		*name += 3;
		return 1u << FAULT_IN;
	}
	return 1u << FAULT_OUT | 1u << FAULT_IN;
}

static bool put(struct fault_plan *plan, size_t key, unsigned directions, const char *value)
{
	if (!keys[key].per_direction)
		return keys[key].take(value, (uint64_t *)(void *)((char *)plan + keys[key].offset));
	for (int d = 0; d < FAULT_DIRECTIONS; d++) {
		uint64_t *field = (uint64_t *)(void *)((char *)&plan->rates[d] + keys[key].offset);

		if (directions & 1u << d && !keys[key].take(value, field))
			return false;
	}
	return true;
}

static void list_keys(char *error, size_t error_len, size_t used)
{
	for (size_t i = 0; i < ARRAY_LEN(keys) && used < error_len; i++)
		used += (size_t)snprintf(error + used, error_len - used, "%s %s", i ? "," : "",
					 keys[i].name);
}

static int take_item(struct fault_plan *plan, char *item, char *error, size_t error_len)
{
	const char *name = item;
	char *value = strchr(item, '=');
	unsigned directions;
	int used;

	if (value)
		*value++ = '\0';
	directions = take_direction(&name);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (strcmp(name, keys[i].name) != 0 || (name != item && !keys[i].per_direction))
			continue;
		if (value && put(plan, i, directions, value))
			return 0;
		snprintf(error, error_len, "%s is \"%s\"; it must be %s", item, value ? value : "",
			 keys[i].right);
		return -EINVAL;
	}
	used = snprintf(error, error_len, "there is no fault \"%s\"; there are", item);
	list_keys(error, error_len, (size_t)used);
	return -EINVAL;
}

static bool is_active(const struct fault_plan *plan)
{
	uint64_t any = plan->rnr | plan->cq_overrun | plan->qp_error | plan->device_fatal |
		       plan->link_down_for_ns;

	for (int d = 0; d < FAULT_DIRECTIONS; d++) {
		const struct fault_rates *r = &plan->rates[d];

		any |= r->loss | r->reorder | r->dup | r->corrupt | r->delay_ns;
	}
	return any != 0;
}

int fault_plan_parse(struct fault_plan *plan, const char *text, char *error, size_t error_len)
{
	char copy[512], *item = copy, *comma;
	int ret;

	*plan = (struct fault_plan){ .seed = 1 };
	if (*text == '\0' || strlen(text) >= sizeof(copy)) {
		snprintf(error, error_len, "it must be a list such as loss=1%%,delay=2ms,seed=42");
		return -EINVAL;
	}
	memcpy(copy, text, strlen(text) + 1);
	do {
		comma = strchr(item, ',');
		if (comma)
			*comma = '\0';
		ret = take_item(plan, item, error, error_len);
		item = comma ? comma + 1 : item;
	} while (!ret && comma);
	plan->active = is_active(plan);
	return ret;
}
