/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The objects of the adapter behind libibverbs' structures, and what can be done with them. Each
 * object embeds its public ibv_* structure first; the public pointer is the object.
 *
 * Errors: control paths return 0 or -errno and log which attribute was wrong at info level; the
 * data path (dev_qp_post_*, dev_srq_post, dev_cq_poll, dev_cq_req_notify) is called straight from a
 * context's operations and so speaks as libibverbs does: positive errno, *bad_wr.
 *
 * Locks, outermost first: CQ poll lock > post lock > engine lock > device lock, file lock >
 * channel and event queue locks. The list lock is apart: nothing else is taken under it. The
 * engine, which produces completions and events under its lock, takes only the last kind.
 */
#ifndef ROCELINK_DEVICE_DEVICE_H
#define ROCELINK_DEVICE_DEVICE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "device/engine.h"
#include "device/file.h"
#include "net/netdev.h"
#include "transport/wq.h"

#define DEV_PORT 1u

enum dev_kind {
	DEV_QP,
	DEV_AH,
	DEV_MW,
	DEV_MR,
	DEV_DM,
	DEV_SRQ,
	DEV_CQ,
	DEV_CHANNEL,
	DEV_XRCD,
	DEV_DOMAIN,
	DEV_PD,
	DEV_TD,
	DEV_KINDS
};

struct dev {
	struct ibv_device ibv;
	struct list link; /* list of devices */
	int refs;	  /* device lists and contexts; under the list lock */
	__be64 guid;
	pthread_mutex_t lock;
	struct netdev net;
	bool link_fault; /* injected: the port is down whatever the interface is */
	struct list contexts;
	struct engine_observer observer;
	size_t dm_used;			  /* bytes of device memory, under the lock */
	_Atomic unsigned made[DEV_KINDS]; /* limit.c */
};

/* Asynchronous events waiting to be read: fd is readable while there are some. */
struct dev_async {
	pthread_mutex_t lock;
	struct list events;
};

struct dev_context {
	struct verbs_context verbs;
	struct dev *dev;
	struct engine *engine;
	unsigned generation; /* of forks: other than now in a child */
	struct list link;    /* dev->contexts */
	struct dev_file *file;
	struct list objects[DEV_KINDS]; /* under the file's lock */
	struct dev_async async;
};

/* What a protection domain is to the memory table and the transport: an address. */
struct dev_pd_object {
	struct dev_shared shared;
};

/* A name of it: the PD as it was allocated or imported, or a parent domain of it. */
struct dev_pd {
	struct ibv_pd ibv;
	struct list link;
	int users; /* made under this name */
	bool parent;
	struct dev_pd_object *object;
	struct dev_td *td;
};

struct dev_td {
	struct ibv_td ibv;
	struct list link;
	int users;
};

struct dev_mr_object {
	struct dev_shared shared;
	struct mr mr;
	struct dev_pd_object *pd;
	bool special; /* null, of device memory or of a dma-buf: can't be registered anew */
	struct dev_dm_object *dm; /* whose memory it is, or NULL */
	void *mapping;		  /* of a dma-buf, or NULL */
	size_t mapping_len;
};

struct dev_mr {
	struct ibv_mr ibv;
	struct list link;
	struct dev_mr_object *object;
};

struct dev_dm_object {
	struct dev_shared shared;
	unsigned generation; /* of forks, when it was allocated */
	uint8_t *memory;
	size_t length;
};

struct dev_dm {
	struct ibv_dm ibv;
	struct list link;
	struct dev_dm_object *object;
};

struct dev_mw {
	struct ibv_mw ibv;
	struct list link;
	struct mr window;
	struct dev_pd_object *pd;
};

struct dev_ah {
	struct ibv_ah ibv;
	struct list link;
	struct path path;
	struct dev_pd_object *pd;
};

struct dev_channel {
	struct ibv_comp_channel ibv; /* refcnt counts its CQs */
	struct list link;
	pthread_mutex_t lock;
	struct list pending; /* CQs with unread events */
	bool signalled;	     /* the descriptor is readable */
};

struct cq_slot {
	struct ibv_wc wc;
	uint64_t stamp_ns; /* CLOCK_MONOTONIC */
	uint64_t wall_ns;  /* CLOCK_REALTIME */
};

enum cq_armed { CQ_IDLE, CQ_SOLICITED, CQ_NEXT };

/* A cache line for what the engine writes, one for what pollers write. */
struct dev_cq { // NOLINT(clang-analyzer-optin.performance.Padding)
	struct ibv_cq_ex ibv;
	struct dev_context *ctx;
	pthread_mutex_t poll_lock;
	bool single_threaded, ignore_overrun, stamped, wall_stamped;
	/* Written by the engine alone, under its lock. */
	_Alignas(64) _Atomic uint32_t tail;
	_Atomic int armed; /* enum cq_armed */
	_Atomic bool overrun;
	/* Written by pollers alone, under the poll lock. */
	_Alignas(64) _Atomic uint32_t head;
	struct cq_slot current; /* start_poll family */
	/* Changed under both. */
	_Alignas(64) struct cq_slot *slots;
	uint32_t mask;
	struct list link;
	int users; /* QPs, once for each direction */
	/* channel's lock */
	struct list pending_link;
	unsigned events_pending, events_read;
	unsigned async_read;
	struct dev_pd *domain; /* the parent domain it was made in, or NULL */
	/* Moderation, under the engine lock: an event for every so many completions, or when the
	 * oldest that had none is so old. 0 and 0: for each. */
	uint32_t event_count;
	uint64_t event_period_ns;
	uint32_t since_event;
	bool held_back; /* armed, and an event is owed */
	struct engine_alarm event_alarm;
	/* QPs and XRC SRQs to put in error at an overrun, and the QP whose completion was lost;
	 * under the engine lock. */
	struct list send_qps, recv_qps, srqs;
	uint32_t lost_qpn;
	bool has_reaper;
	pthread_t reaper;
};

/* A handle on an XRC domain (device/xrc.h). */
struct dev_xrcd {
	struct ibv_xrcd ibv;
	struct list link;
	int users; /* SRQs and queue pairs made with this handle */
	struct xrc_domain *domain;
};

struct dev_srq {
	struct ibv_srq ibv;
	struct list link;
	struct dev_context *ctx;
	struct dev_pd_object *pd;
	int users;
	unsigned async_read;
	pthread_mutex_t post_lock;
	struct recv_queue rq;
	/* XRC; else NULL. */
	struct dev_xrcd *xrcd;
	struct dev_cq *cq;
	uint32_t srqn;
	struct dev_srq *next_numbered;
	struct list cq_link;
	bool broken; /* its CQ overran: no message finds it any more; under the engine lock */
};

struct qp_builder;

struct dev_qp {
	struct ibv_qp_ex ibv;
	struct dev_context *ctx;
	struct engine *engine;
	pthread_mutex_t send_lock, recv_lock;
	struct engine_qp eqp;
	struct list link, send_link, recv_link;
	struct dev_pd_object *pd;
	struct qp_builder *builder; /* of the ibv_wr_* family, or NULL */
	unsigned async_read;
	bool expecting; /* engine_expect_peer was called */
	bool sq_sig_all;
	/* XRC: with xrcd, a handle on this target, whose transport object is the one that counts. */
	struct xrc_target *target;
	struct list handle_link;
	struct dev_xrcd *xrcd;
	uint64_t
		remote_id; /* target NULL: of a handle on another process's target (xrc_remote.c) */
};

static inline struct dev_context *dev_context_of(const struct ibv_context *ctx)
{
	return container_of(ctx, struct dev_context, verbs.context);
}

/* Forks of this process so far, as a child counts them. */
extern unsigned dev_fork_generation;

/* In a child of the process that opened the context nothing of it may be used. */
static inline bool dev_forked(const struct dev_context *ctx)
{
	return __builtin_expect(ctx->generation != dev_fork_generation, 0);
}

/* The same for a call that has to refuse then: it says so in the log. */
bool dev_refuse_forked(const struct dev_context *ctx);

/* -EIO when the device is in the fatal state, which the log tells. */
int dev_check_alive(const struct dev_context *ctx);

/* Zeroed memory for an object; the log tells when there is none. */
void *dev_zalloc(size_t size);

/* Who was made in this domain keeps the name busy that it was made under, a parent domain or not, and
 * the domain. */
#define DEV_PD_USERS(pd) \
	&((struct dev_pd *)(pd))->users, &((struct dev_pd *)(pd))->object->shared.users

/* May something be made in this domain? -EPERM: it is a forking process's; -ENOENT: it was destroyed
 * under another name. The log names the call. */
int dev_pd_check(const struct ibv_pd *pd, const char *call);

/* list.c. dev_list: a NULL-terminated array of references, to be dropped with dev_put and freed. */
int dev_list(struct dev ***list, size_t *n);
bool dev_is_ours(const struct ibv_device *device);
struct dev *dev_get(struct dev *dev);
void dev_put(struct dev *dev);
/* sysfs.c: the text of this file below /sys/class/infiniband. Its length, -ENOENT: there is none
 * (of ours), or another -errno. */
int dev_sysfs_read(const char *path, char *text, size_t cap);
/* Around a fork; and in the child: the contexts and whoever held a device's lock are the parent's.
 */
void dev_list_lock(void);
void dev_list_unlock(void);
void dev_list_abandon_contexts(void);

/* limit.c: 0 or -ENOMEM, logged; the maximum of this kind, 0: there is none. */
int dev_limit_take(struct dev *dev, enum dev_kind kind);
void dev_limit_give(struct dev *dev, enum dev_kind kind);
int dev_limit(enum dev_kind kind);

/* context.c */
int dev_context_open(struct dev *dev, struct dev_context **out);
/* On a file of a context of this process; the descriptor is the new context's then. Errors as
 * dev_file_find() has them, too. */
int dev_context_import(int fd, struct dev_context **out);
int dev_context_close(struct dev_context *ctx);
/* Enter an object in its context's list and count it as a user of others (NULLs are skipped). */
void dev_object_add(struct dev_context *ctx, enum dev_kind kind, struct list *link,
		    int *const users[], size_t n);
/* Take it out, unless it has users itself: -EBUSY. */
int dev_object_remove(struct dev_context *ctx, struct list *link, const int *own_users,
		      int *const users[], size_t n);
/* One user more, later than the object was entered. */
void dev_object_use(struct dev_context *ctx, int *users);
/* One user less, later than the object was taken out. */
void dev_object_unuse(struct dev_context *ctx, int *users);

/* port_attr.c */
void dev_query_device(struct dev_context *ctx, struct ibv_device_attr *attr);
int dev_query_device_ex(struct dev_context *ctx, struct ibv_device_attr_ex *attr, size_t size);
int dev_query_port(struct dev_context *ctx, unsigned port, struct ibv_port_attr *attr);
uint32_t dev_mtu(struct dev *dev); /* active path MTU, bytes */
int dev_query_rt_values(struct ibv_values_ex *values);

/* gid.c */
/* -ENODATA: a hole. */
int dev_gid_get(struct dev *dev, unsigned port, unsigned index, struct gid *gid);
void dev_gid_refused(const char *call, unsigned port, int index); /* logs it */
int dev_gid_find(struct dev *dev, const struct gid *gid);	  /* index or -ENOENT */
int dev_gid_find_family(struct dev *dev, bool ipv4);
int dev_query_gid_ex(struct dev_context *ctx, unsigned port, unsigned index,
		     struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
ssize_t dev_query_gid_table(struct dev_context *ctx, struct ibv_gid_entry *entries, size_t max,
			    uint32_t flags, size_t entry_size);
void dev_refresh(struct dev *dev); /* look at the interface again; tell the contexts what changed */
void dev_link_fault(struct dev *dev, bool down); /* injected */
void dev_fatal(struct dev *dev);		 /* injected */
/* The path an address vector describes. */
int dev_path_resolve(struct dev *dev, const struct ibv_ah_attr *attr, struct path *path, char *why,
		     size_t why_len);

/* pd.c */
int dev_pd_create(struct dev_context *ctx, struct ibv_pd **pd);
int dev_pd_destroy(struct ibv_pd *pd);
int dev_pd_import(struct dev_context *ctx, uint32_t handle, struct ibv_pd **pd);
void dev_pd_unimport(struct ibv_pd *pd);
int dev_parent_domain_create(struct dev_context *ctx,
			     const struct ibv_parent_domain_init_attr *attr, struct ibv_pd **pd);
int dev_td_create(struct dev_context *ctx, const struct ibv_td_init_attr *attr, struct ibv_td **td);
int dev_td_destroy(struct ibv_td *td);

/* mr.c, mr_special.c, dm.c, probe.c */
int dev_mr_create(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
		  struct ibv_mr **mr);
int dev_mr_destroy(struct ibv_mr *mr);
int dev_mr_import(struct ibv_pd *pd, uint32_t handle, struct ibv_mr **mr);
void dev_mr_unimport(struct ibv_mr *mr);
/* Its keys and its mapping go. */
void dev_mr_object_end(struct dev_mr_object *object, struct engine *engine);
/* 0 or one of enum ibv_rereg_mr_err_code, with errno set. */
int dev_mr_rereg(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 unsigned access);
/* Enter a region described by `mr` (all but its key) into the engine's table. */
int dev_mr_enter(struct ibv_pd *pd, const struct mr *mr, struct dev_mr **out);
/* The flags of a registration: known, and consistent. 0 or -EINVAL, logged with the call's name. */
int dev_mr_check_access(const char *call, unsigned access);
int dev_mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		  const struct ibv_sge *list, uint32_t n);
int dev_mr_create_null(struct ibv_pd *pd, struct ibv_mr **mr);
int dev_mr_create_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
			 unsigned access, struct ibv_mr **mr);
int dev_mr_create_dm(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
		     unsigned access, struct ibv_mr **mr);
#define DEV_MAX_CQE (1 << 22)
#define DEV_DM_MAX  (UINT64_C(64) << 20) /* device memory of all contexts of a device */
int dev_dm_create(struct dev_context *ctx, const struct ibv_alloc_dm_attr *attr,
		  struct ibv_dm **dm);
int dev_dm_destroy(struct ibv_dm *dm);
int dev_dm_import(struct dev_context *ctx, uint32_t handle, struct ibv_dm **dm);
void dev_dm_unimport(struct ibv_dm *dm);
void dev_dm_object_end(struct dev_dm_object *object, struct dev *dev);
/* Bring the pages in. 0 or -EFAULT. */
int dev_probe_populate(const void *addr, size_t length, bool writable);
/* Is all of this memory mapped, and writable where asked? 0 or -EFAULT. */
int dev_probe_memory(const void *addr, size_t length, bool writable);

/* channel.c */
int dev_channel_create(struct dev_context *ctx, struct ibv_comp_channel **channel);
int dev_channel_destroy(struct ibv_comp_channel *channel);
int dev_channel_get_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void dev_channel_post(struct dev_channel *ch, struct dev_cq *cq); /* engine */
/* The CQ leaves: drop its unread events; returns how many were read. */
unsigned dev_channel_forget(struct dev_channel *ch, struct dev_cq *cq);
void dev_cq_ack_events(struct ibv_cq *cq, unsigned n);

/* async.c */
int dev_async_open(struct dev_context *ctx);
void dev_async_close(struct dev_context *ctx);
/* Is it an event of a queue pair? */
bool dev_async_is_of_qp(enum ibv_event_type type);
/* element: the object the event is of; NULL: the port. */
void dev_async_post(struct dev_context *ctx, enum ibv_event_type type, void *element);
int dev_async_get(struct dev_context *ctx, struct ibv_async_event *event);
void dev_async_ack(const struct ibv_async_event *event);
/* Drop what is unread of an object that goes away. */
void dev_async_forget(struct dev_context *ctx, const void *element);

/* cq.c, cq_ex.c, cq_notify.c, cq_overrun.c */
int dev_cq_create(struct dev_context *ctx, const struct ibv_cq_init_attr_ex *attr,
		  struct dev_cq **cq);
int dev_cq_destroy(struct ibv_cq *cq);
int dev_cq_resize(struct ibv_cq *cq, int cqe);
int dev_cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int dev_cq_req_notify(struct ibv_cq *cq, int solicited_only);
bool dev_cq_pop(struct dev_cq *cq, struct cq_slot *slot);		 /* under the poll lock */
void dev_cq_complete(void *cq, const struct ibv_wc *wc, bool solicited); /* engine */
/* Remove this QP's completions. Without locks. */
void dev_cq_clean(struct dev_cq *cq, uint32_t qpn);
int dev_cq_moderate(struct ibv_cq *cq, uint32_t count, uint32_t period_us);
void dev_cq_notify(struct dev_cq *cq, bool failed, bool solicited); /* engine */
void dev_cq_notify_stop(
	struct dev_cq *cq); /* no event comes from now on, without new completions */
void dev_cq_ex_init(struct dev_cq *cq, uint64_t wc_flags);
/* This queue pair's completion didn't fit; engine. */
void dev_cq_overrun(struct dev_cq *cq, uint32_t qpn);
void dev_cq_overrun_finish(struct dev_cq *cq); /* before its memory goes */

/* srq.c */
/* xrcd and cq: both for an XRC SRQ, else NULL. */
int dev_srq_create(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr,
		   struct dev_xrcd *xrcd, struct dev_cq *cq, struct ibv_srq **srq);
int dev_srq_num(const struct ibv_srq *srq, uint32_t *num);
int dev_srq_destroy(struct ibv_srq *srq);
int dev_srq_modify(struct ibv_srq *srq, const struct ibv_srq_attr *attr, int mask);
int dev_srq_query(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int dev_srq_post(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* mw.c */
int dev_mw_create(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw **mw);
int dev_mw_destroy(struct ibv_mw *mw);
/* ibv_bind_mw. Positive errno. */
int dev_mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, const struct ibv_mw_bind *bind);

/* xrc.c, xrc_target.c */
int dev_xrcd_open(struct dev_context *ctx, const struct ibv_xrcd_init_attr *attr,
		  struct ibv_xrcd **xrcd);
int dev_xrcd_close(struct ibv_xrcd *xrcd);
int dev_xrc_target_create(struct dev_context *ctx, struct ibv_qp_init_attr_ex *attr,
			  struct dev_qp **qp);
int dev_xrc_target_open(struct dev_context *ctx, const struct ibv_qp_open_attr *attr,
			struct dev_qp **qp);
int dev_xrc_target_close(struct dev_qp *handle);

/* ah.c */
int dev_ah_create(struct ibv_pd *pd, const struct ibv_ah_attr *attr, struct ibv_ah **ah);
int dev_ah_destroy(struct ibv_ah *ah);
int dev_ah_init_from_wc(struct dev_context *ctx, unsigned port, const struct ibv_wc *wc,
			const struct ibv_grh *grh, struct ibv_ah_attr *attr);

/* qp.c, qp_post.c, qp_ex.c, mcast.c */
int dev_qp_create(struct dev_context *ctx, struct ibv_qp_init_attr_ex *attr, struct dev_qp **qp);
int dev_qp_destroy(struct ibv_qp *qp);
int dev_qp_modify(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask);
int dev_qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
int dev_qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int dev_qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* One request, under the send lock; no kick. Positive errno. */
int dev_qp_post_one(struct dev_qp *qp, const struct ibv_send_wr *wr);
int dev_qp_builder_create(struct dev_qp *qp, enum ibv_qp_type type, uint64_t send_ops);
void dev_qp_builder_destroy(struct dev_qp *qp);
int dev_mcast_attach(struct ibv_qp *qp, const union ibv_gid *gid);
int dev_mcast_detach(struct ibv_qp *qp, const union ibv_gid *gid);

/* How a context that is closed lets go of what its program left behind: no waiting, no refusal. */
void dev_pd_release(struct dev_pd *pd);
void dev_ah_release(struct dev_ah *ah);
void dev_qp_release(struct dev_qp *qp);
void dev_cq_release(struct dev_cq *cq);
void dev_srq_release(struct dev_srq *srq);
void dev_xrc_target_release(struct dev_qp *handle);
void dev_xrcd_release(struct dev_xrcd *xrcd);
void dev_mr_release(struct dev_mr *mr);
void dev_mw_release(struct dev_mw *mw);
void dev_dm_release(struct dev_dm *dm);
void dev_channel_release(struct dev_channel *ch);

#endif
