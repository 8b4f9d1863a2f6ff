/* SPDX-License-Identifier: BSD-2-Clause */
/* Exported: devices, contexts and what can be asked of them. */
#include <stdlib.h>

#include "base/log.h"
#include "verbs/symbols.h"

/* A list that the program holds: ours and, after them, the machine's real devices. */
struct device_list {
	struct device_list *next;
	struct ibv_device **system; /* the system's list, or NULL */
	size_t ours;
	struct ibv_device *devices[];
};

/*
 * Also around the system's calls, which have a lock of their own: taken over a fork, so that the
 * child finds both free.
 */
static pthread_mutex_t lists_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_list *lists;

/* This thread is in a function of the system's that asks for the list itself, and takes what it gets for
 * its own kind of device. */
static _Thread_local bool system_only __attribute__((tls_model("initial-exec")));

static void lock_lists(void)
{
	pthread_mutex_lock(&lists_lock);
}

static void unlock_lists(void)
{
	pthread_mutex_unlock(&lists_lock);
}

static void watch_forks(void)
{
	pthread_atfork(lock_lists, unlock_lists, unlock_lists);
}

static struct ibv_device **system_list(int *n)
{
	PASS_ON(NULL, ibv_get_device_list, "IBVERBS_1.1", n);
}

static void system_free(struct ibv_device **list)
{
	PASS_ON(, ibv_free_device_list, "IBVERBS_1.1", list);
}

static struct device_list *make_list(struct dev **ours, size_t n_ours, struct ibv_device **system,
				     size_t n_system)
{
	struct device_list *list =
		calloc(1, sizeof(*list) + (n_ours + n_system + 1) * sizeof(list->devices[0]));

	if (!list)
		return NULL;
	list->system = system;
	list->ours = n_ours;
	for (size_t i = 0; i < n_ours; i++)
		list->devices[i] = &ours[i]->ibv;
	for (size_t i = 0; i < n_system; i++)
		list->devices[n_ours + i] = system[i];
	return list;
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ibv_device **system;
	struct device_list *list;
	struct dev **ours;
	int n_system = 0;
	size_t n_ours;
	int rc;

	if (system_only)
		return system_list(num);
	rc = dev_list(&ours, &n_ours);
	if (num)
		*num = 0;
	if (rc) {
		errno = -rc;
		return NULL;
	}
	pthread_once(&once, watch_forks);
	lock_lists();
	/* It fails where the kernel has no RDMA: what we are for. */
	system = system_list(&n_system);
	if (!system)
		n_system = 0;
	list = make_list(ours, n_ours, system, (size_t)n_system);
	if (list) {
		list->next = lists;
		lists = list;
	} else if (system) {
		system_free(system);
	}
	unlock_lists();
	if (!list)
		for (size_t i = 0; i < n_ours; i++)
			dev_put(ours[i]);
	free(ours);
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	if (num)
		*num = (int)n_ours + n_system;
	errno = 0;
	return list->devices;
}

/* The list that the program was given these devices by; taken out of the registry. */
static struct device_list *take_list(struct ibv_device **devices)
{
	struct device_list **link, *list;

	for (link = &lists; *link && (*link)->devices != devices; link = &(*link)->next)
		;
	list = *link;
	if (list)
		*link = list->next;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **devices)
{
	struct device_list *list;

	if (!devices)
		return;
	lock_lists();
	list = take_list(devices);
	if (!list)
		system_free(devices);
	else if (list->system)
		system_free(list->system);
	unlock_lists();
	if (!list)
		return;
	for (size_t i = 0; i < list->ours; i++)
		dev_put((struct dev *)list->devices[i]);
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device ? device->name : NULL;
}

/* The index is the kernel's; our devices have none. */
EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	if (!device || dev_is_ours(device))
		return -1;
	PASS_ON(-1, ibv_get_device_index, "IBVERBS_1.9", device);
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (!device)
		return 0;
	if (dev_is_ours(device))
		return ((struct dev *)device)->guid;
	PASS_ON(0, ibv_get_device_guid, "IBVERBS_1.1", device);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct dev_context *ctx = NULL;
	int rc;

	if (IS_NULL(device))
		return null_refused();
	if (!dev_is_ours(device))
		PASS_ON(NULL, ibv_open_device, "IBVERBS_1.1", device);
	rc = dev_context_open((struct dev *)device, &ctx);
	if (!rc)
		context_ops_init(&ctx->verbs);
	return CREATED(rc, &ctx->verbs.context);
}

EXPORT int ibv_close_device(struct ibv_context *ctx)
{
	if (IS_NULL(ctx))
		return EINVAL;
	if (!is_ours(ctx))
		PASS_ON(ENOSYS, ibv_close_device, "IBVERBS_1.1", ctx);
	return -dev_context_close(dev_context_of(ctx));
}

static struct ibv_context *system_import(int cmd_fd)
{
	PASS_ON(NULL, ibv_import_device, "IBVERBS_1.10", cmd_fd);
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *systems;
	struct dev_context *ctx = NULL;
	int rc = dev_context_import(cmd_fd, &ctx);

	if (rc == -ENOENT) {
		system_only = true;
		systems = system_import(cmd_fd);
		system_only = false;
		return systems;
	}
	if (!rc)
		context_ops_init(&ctx->verbs);
	return CREATED(rc, &ctx->verbs.context);
}

EXPORT int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	if (IS_NULL(ctx) || IS_NULL(event))
		return minus_one(-EINVAL);
	if (!is_ours(ctx))
		PASS_ON(-1, ibv_get_async_event, "IBVERBS_1.1", ctx, event);
	return minus_one(dev_async_get(dev_context_of(ctx), event));
}

/* Whose an event is shows at its object; the port's need no acknowledgement. */
static struct ibv_context *event_context(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	case IBV_EVENT_WQ_FATAL:
		return event->element.wq->context;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		break;
	}
	return NULL;
}

static void system_ack(struct ibv_async_event *event)
{
	PASS_ON(, ibv_ack_async_event, "IBVERBS_1.1", event);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *ctx = event_context(event);

	if (!ctx)
		return;
	if (is_ours(ctx))
		dev_async_ack(event);
	else
		system_ack(event);
}

EXPORT int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	if (IS_NULL(ctx) || IS_NULL(attr))
		return EINVAL;
	if (!is_ours(ctx))
		PASS_ON(ENOSYS, ibv_query_device, "IBVERBS_1.1", ctx, attr);
	dev_query_device(dev_context_of(ctx), attr);
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr full;
	int rc;

	if (IS_NULL(ctx) || IS_NULL(attr))
		return EINVAL;
	if (!is_ours(ctx))
		PASS_ON(ENOSYS, ibv_query_port, "IBVERBS_1.1", ctx, port, attr);
	rc = dev_query_port(dev_context_of(ctx), port, &full);
	/* The structure ended here when this function became part of the ABI. */
	if (!rc)
		memcpy(attr, &full, offsetof(struct ibv_port_attr, port_cap_flags2));
	return -rc;
}

/* An empty entry isn't an error here: it reads as zero. */
EXPORT int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	struct gid found = { 0 };
	int rc;

	if (IS_NULL(ctx) || IS_NULL(gid))
		return minus_one(-EINVAL);
	if (!is_ours(ctx))
		PASS_ON(-1, ibv_query_gid, "IBVERBS_1.1", ctx, port, index, gid);
	rc = index < 0 ? -EINVAL
		       : dev_gid_get(dev_context_of(ctx)->dev, port, (unsigned)index, &found);
	if (rc == -EINVAL)
		dev_gid_refused("query_gid", port, index);
	if (rc && rc != -ENODATA)
		return minus_one(rc);
	memcpy(gid->raw, found.raw, sizeof(gid->raw));
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	if (IS_NULL(ctx) || IS_NULL(entry))
		return EINVAL;
	if (!is_ours(ctx))
		PASS_ON(ENOSYS, _ibv_query_gid_ex, "IBVERBS_1.11", ctx, port, index, entry, flags,
			entry_size);
	return -dev_query_gid_ex(dev_context_of(ctx), port, index, entry, flags, entry_size);
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries,
				    size_t max_entries, uint32_t flags, size_t entry_size)
{
	if (IS_NULL(ctx) || IS_NULL(entries))
		return -EINVAL;
	if (!is_ours(ctx))
		PASS_ON(-ENOSYS, _ibv_query_gid_table, "IBVERBS_1.11", ctx, entries, max_entries,
			flags, entry_size);
	return dev_query_gid_table(dev_context_of(ctx), entries, max_entries, flags, entry_size);
}

/* As sysfs has it: 0 for InfiniBand and RoCE v1, 1 for RoCE v2; an empty entry reads as 0. */
EXPORT int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned index, unsigned *type)
{
	struct gid gid;
	int rc;

	if (IS_NULL(ctx) || IS_NULL(type))
		return minus_one(-EINVAL);
	if (!is_ours(ctx))
		PASS_ON(-1, ibv_query_gid_type, "IBVERBS_PRIVATE_34", ctx, port, index, type);
	rc = dev_gid_get(dev_context_of(ctx)->dev, port, index, &gid);
	if (rc == -EINVAL)
		dev_gid_refused("query_gid_type", port, (int)index);
	if (rc && rc != -ENODATA)
		return minus_one(rc);
	*type = rc ? 0 : 1;
	return 0;
}

#define DEFAULT_PKEY 0xffff

EXPORT int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey)
{
	if (IS_NULL(ctx) || IS_NULL(pkey))
		return minus_one(-EINVAL);
	if (!is_ours(ctx))
		PASS_ON(-1, ibv_query_pkey, "IBVERBS_1.1", ctx, port, index, pkey);
	if (port != DEV_PORT || index != 0) {
		log_info("query_pkey: port_num is %u, index %d; the device has port %u and one "
			 "P_Key, index 0",
			 port, index, DEV_PORT);
		return minus_one(-EINVAL);
	}
	*pkey = htobe16(DEFAULT_PKEY);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, __be16 pkey)
{
	if (IS_NULL(ctx))
		return minus_one(-EINVAL);
	if (!is_ours(ctx))
		PASS_ON(-1, ibv_get_pkey_index, "IBVERBS_1.5", ctx, port, pkey);
	if (port != DEV_PORT || pkey != htobe16(DEFAULT_PKEY)) {
		log_info("get_pkey_index: port_num is %u, pkey 0x%04x; the device has port %u and "
			 "P_Key 0x%04x",
			 port, be16toh(pkey), DEV_PORT, DEFAULT_PKEY);
		return minus_one(-EINVAL);
	}
	return 0;
}

static int system_fork_init(void)
{
	PASS_ON(0, ibv_fork_init, "IBVERBS_1.1");
}

/* Our contexts need nothing: no page is pinned. */
EXPORT int ibv_fork_init(void)
{
	return system_fork_init();
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	PASS_ON(IBV_FORK_UNNEEDED, ibv_is_fork_initialized, "IBVERBS_1.13");
}
