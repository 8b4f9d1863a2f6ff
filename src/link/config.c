/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/config.h"

#include <errno.h>
#include <stdio.h>

#include "base/units.h"
#include "link/fail.h"

uint64_t config_ns(uint64_t us)
{
	return us > TIME_NEVER / NS_PER_US ? TIME_NEVER : us * NS_PER_US;
}

static uint64_t timeout(uint64_t us, uint64_t default_s)
{
	return us ? config_ns(us) : default_s * NS_PER_SEC;
}

static int invalid(struct rocelink_error *err, const char *text)
{
	return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0, "%s", text);
}

int config_check_name(const char *what, const char *name, struct rocelink_error *err)
{
	size_t len = name ? strlen(name) : 0;

	if (len == 0 || len > ROCELINK_MAX_NAME)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "the name of a %s has 1 to %d bytes, this one %zu", what,
				 ROCELINK_MAX_NAME, len);
	for (const unsigned char *p = (const void *)name; *p; p++)
		if (*p < 0x20 || *p == 0x7f)
			return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
					 "the name of a %s has a control character", what);
	return ROCELINK_OK;
}

int config_region(const struct rocelink_region *region, struct region_value *value,
		  struct rocelink_error *err)
{
	struct rocelink_region r;
	int rc = link_check_size(region->size, sizeof(r), "rocelink_region", err);
	uintptr_t start;

	if (rc)
		return rc;
	link_copy_options(&r, sizeof(r), region, region->size);
	rc = config_check_name("region", r.name, err);
	if (rc)
		return rc;
	if (!r.mr)
		return invalid(err, "rocelink_region.mr is NULL: register the memory first");
	if (!(r.access &
	      (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)))
		return invalid(err, "rocelink_region.access grants nothing: say "
				    "IBV_ACCESS_REMOTE_READ, ..._WRITE "
				    "or ..._ATOMIC, as in ibv_reg_mr()");
	start = (uintptr_t)(r.addr ? r.addr : r.mr->addr);
	if (!r.length)
		r.length = (uintptr_t)r.mr->addr + r.mr->length - start;
	if (start < (uintptr_t)r.mr->addr || r.length > r.mr->length ||
	    start - (uintptr_t)r.mr->addr > r.mr->length - r.length)
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "region \"%s\" of %llu bytes at %p doesn't lie within its mr (%zu "
				 "bytes at %p)",
				 r.name, (unsigned long long)r.length, (void *)start, r.mr->length,
				 r.mr->addr);
	*value = (struct region_value){
		.addr = start,
		.length = r.length,
		.rkey = r.mr->rkey,
		.access = r.access,
	};
	snprintf(value->name, sizeof(value->name), "%s", r.name);
	return ROCELINK_OK;
}

static int copy_regions(struct config *c, const struct rocelink_options *o,
			struct rocelink_error *err)
{
	const char *at = (const void *)o->regions;

	for (size_t i = 0; i < o->region_count; i++) {
		const struct rocelink_region *r = (const void *)at;
		struct region_value value;
		int rc = config_region(r, &value, err);

		if (rc)
			return rc;
		rc = regions_add(&c->regions, &value);
		if (rc == -EEXIST)
			return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
					 "region \"%s\" is in options.regions twice", value.name);
		if (rc == -ENOSPC)
			return link_fail(err, ROCELINK_LIMIT, ROCELINK_PHASE_NONE, 0,
					 "more than %d regions", ROCELINK_MAX_REGIONS);
		if (rc)
			return link_no_memory(err);
		at += r->size;
	}
	return ROCELINK_OK;
}

static int copy_private_data(struct config *c, const struct rocelink_options *o,
			     struct rocelink_error *err)
{
	if (!o->private_data_len)
		return ROCELINK_OK;
	if (o->private_data_len > ROCELINK_MAX_PRIVATE_DATA || !o->private_data)
		return link_fail(err, ROCELINK_LIMIT, ROCELINK_PHASE_NONE, 0,
				 "options.private_data has %zu bytes: at most %d",
				 o->private_data_len, ROCELINK_MAX_PRIVATE_DATA);
	c->private_data = malloc(o->private_data_len);
	if (!c->private_data)
		return link_no_memory(err);
	memcpy(c->private_data, o->private_data, o->private_data_len);
	c->private_data_len = o->private_data_len;
	return ROCELINK_OK;
}

static int copy_structures(struct config *c, const struct rocelink_options *o,
			   struct rocelink_error *err)
{
	int rc;

	if (o->gid) {
		rc = link_check_size(o->gid->size, sizeof(c->gid), "rocelink_gid", err);
		if (rc)
			return rc;
		link_copy_options(&c->gid, sizeof(c->gid), o->gid, o->gid->size);
		c->has_gid = true;
	}
	if (o->qp) {
		rc = link_check_size(o->qp->size, sizeof(c->qp), "rocelink_qp_options", err);
		if (rc)
			return rc;
		link_copy_options(&c->qp, sizeof(c->qp), o->qp, o->qp->size);
		c->qp.size = sizeof(c->qp);
		c->has_qp = true;
	}
	if (o->rdma_host) {
		c->rdma_host = strdup(o->rdma_host);
		if (!c->rdma_host)
			return link_no_memory(err);
	}
	if (o->service_name) {
		rc = config_check_name("service", o->service_name, err);
		if (rc)
			return rc;
		snprintf(c->service_name, sizeof(c->service_name), "%s", o->service_name);
	}
	return ROCELINK_OK;
}

static void copy_values(struct config *c, const struct rocelink_options *o)
{
	c->prepare = o->prepare;
	c->prepare_arg = o->prepare_arg;
	c->trace = o->trace;
	c->trace_arg = o->trace_arg;
	c->retry_refused = o->retry_refused;
	c->compat = o->compat;
	c->resolve_ns = timeout(o->resolve_timeout_us, 5);
	c->connect_ns = timeout(o->connect_timeout_us, 5);
	c->secure_ns = timeout(o->secure_timeout_us, 5);
	c->hello_ns = timeout(o->hello_timeout_us, 10);
	c->ready_ns = timeout(o->ready_timeout_us, 10);
	c->close_ns = timeout(o->close_timeout_us, 2);
	c->total_ns = timeout(o->timeout_us, 30);
	/* A peer that may start late is waited for as long as the whole may take. */
	if (c->retry_refused && !o->connect_timeout_us)
		c->connect_ns = c->total_ns;
}

int config_new(const struct rocelink_options *options, struct config **out,
	       struct rocelink_error *err)
{
	struct rocelink_options o = { 0 };
	struct config *c;
	int rc;

	if (options) {
		rc = link_check_size(options->size, sizeof(o), "rocelink_options", err);
		if (rc)
			return rc;
		link_copy_options(&o, sizeof(o), options, options->size);
	}
	if ((unsigned)o.compat > ROCELINK_COMPAT_SRQ_PINGPONG)
		return invalid(err, "options.compat is none of enum rocelink_compat");
	c = calloc(1, sizeof(*c));
	if (!c)
		return link_no_memory(err);
	c->refs = 1;
	copy_values(c, &o);
	rc = security_new(o.security, &c->security, err);
	if (!rc)
		rc = copy_structures(c, &o, err);
	if (!rc)
		rc = copy_private_data(c, &o, err);
	if (!rc)
		rc = copy_regions(c, &o, err);
	if (rc) {
		config_unref(c);
		return rc;
	}
	*out = c;
	return ROCELINK_OK;
}

struct config *config_ref(struct config *c)
{
	atomic_fetch_add(&c->refs, 1);
	return c;
}

void config_unref(struct config *c)
{
	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	security_unref(c->security);
	regions_free(&c->regions);
	free(c->private_data);
	free(c->rdma_host);
	free(c);
}
