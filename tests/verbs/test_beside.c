/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Beside a real device of the machine, whose library is the next in line (a stand-in:
 * fake_system.c): both are listed, each call reaches whom it concerns. In the form that stands in
 * front, to which this program is linked, and in the drop-in form, which it loads as NCCL does:
 * dlopen and dlvsym.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <infiniband/verbs.h>

struct calls {
	struct ibv_device **(*get_list)(int *);
	void (*free_list)(struct ibv_device **);
	const char *(*name)(struct ibv_device *);
	__be64 (*guid)(struct ibv_device *);
	struct ibv_context *(*open)(struct ibv_device *);
	int (*close)(struct ibv_context *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
};

static int ask_fake(const char *name)
{
	static void *fake;
	int (*call)(void);

	if (!fake)
		fake = dlopen(getenv("TEST_FAKE"), RTLD_NOW | RTLD_LOCAL);
	assert_non_null(fake);
	call = (int (*)(void))dlsym(fake, name);
	assert_non_null(call);
	return call();
}

static void check(const struct calls *c)
{
	struct ibv_context *real, *ours;
	struct ibv_device **list;
	struct ibv_pd *pd;
	int n = 0;

	list = c->get_list(&n);
	assert_non_null(list);
	assert_true(n >= 2);
	assert_int_equal(ask_fake("fake_lists_held"), 1);
	/* Ours first, the real ones behind. */
	assert_int_equal(strncmp(c->name(list[0]), "rl_", 3), 0);
	assert_string_equal(c->name(list[n - 1]), "real0");
	assert_null(list[n]);
	assert_int_equal(c->guid(list[n - 1]), 4711);

	real = c->open(list[n - 1]);
	ours = c->open(list[0]);
	assert_non_null(real);
	assert_non_null(ours);
	assert_int_equal(ask_fake("fake_contexts_open"), 1);
	c->free_list(list);
	assert_int_equal(ask_fake("fake_lists_held"), 0);
	pd = c->alloc_pd(real);
	assert_int_equal(pd->handle, 99);
	assert_int_equal(c->dealloc_pd(pd), 0);
	pd = c->alloc_pd(ours);
	assert_ptr_equal(pd->context, ours);
	assert_int_not_equal(pd->handle, 99);
	assert_int_equal(c->close(ours), 0); /* with the PD left in it */
	assert_int_equal(ask_fake("fake_contexts_open"), 1);
	assert_int_equal(c->close(real), 0);
	assert_int_equal(ask_fake("fake_contexts_open"), 0);
}

static void in_front(void **state)
{
	static const struct calls calls = { ibv_get_device_list, ibv_free_device_list,
					    ibv_get_device_name, ibv_get_device_guid,
					    ibv_open_device,	 ibv_close_device,
					    ibv_alloc_pd,	 ibv_dealloc_pd };

	(void)state;
	check(&calls);
}

/* A descriptor that is no context of ours is the system's to import; the devices that it then sees are its
 * own. */
static void imported(void **state)
{
	struct ibv_context *ctx = ibv_import_device(-1);

	(void)state;
	assert_non_null(ctx);
	assert_int_equal(ask_fake("fake_lists_held"), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
	assert_int_equal(ask_fake("fake_contexts_open"), 0);
}

static void *symbol(void *library, const char *name)
{
	void *found = dlvsym(library, name, "IBVERBS_1.1");

	assert_non_null(found);
	return found;
}

static void drop_in(void **state)
{
	void *l = dlopen(getenv("TEST_DROPIN"), RTLD_NOW | RTLD_LOCAL);
	struct calls calls;

	(void)state;
	if (!l)
		fail_msg("%s", dlerror());
	calls.get_list = (struct ibv_device * *(*)(int *)) symbol(l, "ibv_get_device_list");
	calls.free_list = (void (*)(struct ibv_device **))symbol(l, "ibv_free_device_list");
	calls.name = (const char *(*)(struct ibv_device *))symbol(l, "ibv_get_device_name");
	calls.guid = (__be64(*)(struct ibv_device *))symbol(l, "ibv_get_device_guid");
	calls.open = (struct ibv_context * (*)(struct ibv_device *)) symbol(l, "ibv_open_device");
	calls.close = (int (*)(struct ibv_context *))symbol(l, "ibv_close_device");
	calls.alloc_pd = (struct ibv_pd * (*)(struct ibv_context *)) symbol(l, "ibv_alloc_pd");
	calls.dealloc_pd = (int (*)(struct ibv_pd *))symbol(l, "ibv_dealloc_pd");
	check(&calls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_front),
		cmocka_unit_test(imported),
		cmocka_unit_test(drop_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
