/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the libibverbs face share: how a symbol is exported, how it finds out whose an
 * object is, how a call about somebody else's object reaches the system's library, and errno
 * conventions.
 */
#ifndef ROCELINK_VERBS_SYMBOLS_H
#define ROCELINK_VERBS_SYMBOLS_H

#include <infiniband/verbs.h>

#include "base/log.h"
#include "device/device.h"
#include "verbs/system.h"

/* These are functions of the ABI behind macros or inline functions of the header. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))

static inline bool is_ours(const struct ibv_context *ctx)
{
	return dev_is_ours(ctx->device);
}

/* Return what the system's function of this name and version does; `failed` (nothing: void) where there is none. */
#define PASS_ON(failed, function, version, ...)                                           \
	do {                                                                              \
		static _Atomic(void *) cached_;                                           \
		typeof(&(function)) next_ =                                               \
			(typeof(&(function)))system_symbol(&cached_, #function, version); \
		if (next_)                                                                \
			return next_(__VA_ARGS__);                                        \
		errno = ENOSYS;                                                           \
		return failed;                                                            \
	} while (0)

/* A creator's result: the object, or NULL with errno. */
#define CREATED(rc, object) ((rc) ? (errno = -(rc), NULL) : (object))

/* 0, or -1 with errno. */
static inline int minus_one(int rc)
{
	if (rc == 0)
		return 0;
	errno = -rc;
	return -1;
}

/* A NULL where an object must be: the log names it. */
#define IS_NULL(argument) ((argument) ? false : null_logged(__func__, #argument))
static inline bool null_logged(const char *call, const char *argument)
{
	log_info("%s: %s is NULL, it must be an object", call, argument);
	return true;
}

static inline void *null_refused(void)
{
	errno = EINVAL;
	return NULL;
}

void context_ops_init(struct verbs_context *verbs);

/* Exported functions that the public headers don't declare. */
int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned index, unsigned *type);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

/* For paths.c, in a library of its own: dev_sysfs_read(). */
int rocelink_sysfs_read(const char *path, char *text, size_t cap);

#endif
