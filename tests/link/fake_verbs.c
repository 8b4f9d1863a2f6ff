/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_device **all_devices;
static int all_count;

void fake_set_devices(struct fake_device **devices, int count)
{
	all_devices = devices;
	all_count = count;
}

void fake_device_add_gid(struct fake_device *d, const char *address, uint32_t type)
{
	struct ibv_gid_entry *e = &d->gids[d->gid_count];
	uint8_t *raw = e->gid.raw;

	memset(e, 0, sizeof(*e));
	if (inet_pton(AF_INET6, address, raw) != 1) {
		raw[10] = raw[11] = 0xff;
		if (inet_pton(AF_INET, address, raw + 12) != 1)
			abort();
	}
	e->gid_index = (uint32_t)d->gid_count++;
	e->port_num = 1;
	e->gid_type = type;
	d->port.gid_tbl_len = d->gid_count;
}

void fake_device_init(struct fake_device *d, const char *name)
{
	memset(d, 0, sizeof(*d));
	snprintf(d->device.name, sizeof(d->device.name), "%s", name);
	d->context.device = &d->device;
	d->pd.context = &d->context;
	d->attr.phys_port_cnt = 1;
	d->attr.max_qp_rd_atom = d->attr.max_qp_init_rd_atom = 16;
	d->attr.atomic_cap = IBV_ATOMIC_HCA;
	d->port.state = IBV_PORT_ACTIVE;
	d->port.active_mtu = d->port.max_mtu = IBV_MTU_4096;
	d->port.link_layer = IBV_LINK_LAYER_ETHERNET;
	d->fail_to = IBV_QPS_RESET;
	fake_device_add_gid(d, "127.0.0.1", IBV_GID_TYPE_ROCE_V2);
}

void fake_qp_init(struct fake_qp *q, struct fake_device *d, enum ibv_qp_type type, uint32_t qpn)
{
	memset(q, 0, sizeof(*q));
	q->dev = d;
	q->qp.context = &d->context;
	q->qp.pd = &d->pd;
	q->qp.qp_type = type;
	q->qp.qp_num = qpn;
	q->state = IBV_QPS_RESET;
}

const struct fake_step *fake_qp_step(const struct fake_qp *q, enum ibv_qp_state to)
{
	for (int i = q->step_count - 1; i >= 0; i--)
		if (q->steps[i].to == to)
			return &q->steps[i];
	return NULL;
}

/* Required attributes besides the state; nothing more may come (the library never needs optional
 * ones). */
static int required(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	int av = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return init | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
		if (type == IBV_QPT_UD)
			return 0;
		if (type == IBV_QPT_UC || type == IBV_QPT_XRC_SEND)
			return av;
		return av | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
		if (type == IBV_QPT_UD || type == IBV_QPT_UC)
			return IBV_QP_SQ_PSN;
		if (type == IBV_QPT_XRC_RECV)
			return IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
		return IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return to == IBV_QPS_RESET ? 0 : -1;
}

static int check_values(const struct fake_qp *q, const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_AV &&
	    (!a->ah_attr.is_global || a->ah_attr.grh.sgid_index >= q->dev->gid_count))
		return EINVAL;
	if (mask & IBV_QP_PORT && a->port_num != 1)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU && a->path_mtu > q->dev->port.active_mtu)
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > q->dev->attr.max_qp_init_rd_atom)
		return EINVAL;
	if (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7)
		return EINVAL;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	struct fake_step *s;

	if (!(mask & IBV_QP_STATE) ||
	    required(qp->qp_type, q->state, attr->qp_state) != (mask & ~IBV_QP_STATE) ||
	    check_values(q, attr, mask))
		return EINVAL;
	if (attr->qp_state == q->dev->fail_to && attr->qp_state != IBV_QPS_RESET)
		return q->dev->fail_errno;
	q->state = attr->qp_state;
	if (mask & IBV_QP_QKEY)
		q->qkey = attr->qkey;
	s = &q->steps[q->step_count++ % FAKE_MAX_STEPS];
	*s = (struct fake_step){ attr->qp_state, *attr, mask };
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	const struct fake_qp *q = (struct fake_qp *)qp;

	(void)mask;
	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));
	attr->qp_state = q->state;
	attr->port_num = q->state == IBV_QPS_RESET ? 0 : 1;
	attr->qkey = q->qkey;
	return 0;
}

static struct fake_device *device_of(struct ibv_context *context)
{
	return (struct fake_device *)((char *)context - offsetof(struct fake_device, context));
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = device_of(context)->attr;
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	if (port != 1)
		return EINVAL;
	memcpy(attr, &device_of(context)->port, sizeof(struct ibv_port_attr));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t entry_size)
{
	struct fake_device *d = device_of(context);
	size_t n = (size_t)d->gid_count < max ? (size_t)d->gid_count : max;

	(void)flags;
	if (entry_size != sizeof(*entries))
		return -EINVAL;
	memcpy(entries, d->gids, n * sizeof(*entries));
	return (ssize_t)n;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct fake_device *d = device_of(context);

	(void)port;
	if (index >= d->gid_count)
		return -1;
	*gid = d->gids[index].gid;
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = calloc(1, sizeof(*ah));

	if (!ah)
		return NULL;
	if (!attr->is_global) {
		free(ah);
		errno = EINVAL;
		return NULL;
	}
	ah->context = pd->context;
	ah->pd = pd;
	device_of(pd->context)->ah_alive++;
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	device_of(ah->context)->ah_alive--;
	free(ah);
	return 0;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc((size_t)all_count + 1, sizeof(struct ibv_device *));

	for (int i = 0; i < all_count; i++)
		list[i] = &all_devices[i]->device;
	if (count)
		*count = all_count;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fake_device *d = (struct fake_device *)device;

	d->opened++;
	d->open++;
	return &d->context;
}

int ibv_close_device(struct ibv_context *context)
{
	device_of(context)->open--;
	return 0;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* The rest is used by endpoints only, which are tested with real devices. */
#define ABSENT(result, name, args) \
	result name args;          \
	result name args           \
	{                          \
		errno = ENOSYS;    \
		return (result)0;  \
	}

typedef struct ibv_pd *pd_ptr;
typedef struct ibv_comp_channel *channel_ptr;
typedef struct ibv_cq *cq_ptr;
typedef struct ibv_qp *qp_ptr;
typedef const char *text_ptr;

ABSENT(pd_ptr, ibv_alloc_pd, (struct ibv_context * context))
ABSENT(int, ibv_dealloc_pd, (struct ibv_pd * pd))
ABSENT(channel_ptr, ibv_create_comp_channel, (struct ibv_context * context))
ABSENT(int, ibv_destroy_comp_channel, (struct ibv_comp_channel * channel))
ABSENT(cq_ptr, ibv_create_cq,
       (struct ibv_context * context, int cqe, void *arg, struct ibv_comp_channel *channel,
	int vector))
ABSENT(int, ibv_destroy_cq, (struct ibv_cq * cq))
ABSENT(qp_ptr, ibv_create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr *attr))
ABSENT(int, ibv_destroy_qp, (struct ibv_qp * qp))
ABSENT(int, ibv_get_cq_event,
       (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **context))
ABSENT(text_ptr, ibv_wc_status_str, (enum ibv_wc_status status))

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	(void)cq;
	(void)n;
}
