/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a context's cmd_fd is open on. Contexts that were opened and imported on one file share its
 * protection domains, regions and device memory: its objects, each known by a handle. What a program
 * holds of an object is a structure (ibv_pd, ibv_mr, ibv_dm) of one context, here called a name of it.
 *
 * An object begins with its first name and is destroyed under any of them; those left can then only
 * be given up (ibv_unimport_*). Its memory goes with the last. One that lost all its names without
 * being destroyed stays, for others to import, until the file's last context is closed.
 *
 * A file lives in one process, as its contexts do: in another its descriptor is known, and refused.
 */
#ifndef ROCELINK_DEVICE_FILE_H
#define ROCELINK_DEVICE_FILE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"

struct dev;
struct engine;

enum dev_shared_kind { DEV_SHARED_MR, DEV_SHARED_DM, DEV_SHARED_PD, DEV_SHARED_KINDS };

/* Begins each object. */
struct dev_shared {
	struct list link; /* file->objects; of a destroyed one, itself */
	uint32_t handle;
	int names, users;	/* users: objects that need it */
	_Atomic bool destroyed; /* written under the lock */
};

struct dev_file {
	struct list link;
	struct dev *dev;
	dev_t st_dev;
	ino_t st_ino;
	unsigned generation; /* of forks: a child's files are its own */
	int contexts;
	pthread_mutex_t lock; /* objects of the file and its contexts, and their user counts */
	struct list objects[DEV_SHARED_KINDS];
	uint32_t last_handle;
	bool handles_wrapped;
};

/* The callers of these three hold the lock of opening and closing (context.c). */
int dev_file_create(struct dev *dev, struct dev_file **file, int *fd);
/* The file behind a descriptor, with one context more. -ENOENT: none of ours; -EOPNOTSUPP: of another
 * process, or closed; -EINVAL: the descriptor is a context's own, not a duplicate. */
int dev_file_find(int fd, struct dev_file **file);
/* One context less; with the last, all that is left goes. */
void dev_file_put(struct dev_file *file, struct engine *engine);

/* Enter an object under its first name. */
void dev_shared_add(struct dev_file *file, enum dev_shared_kind kind, struct dev_shared *object);
/* One name more for the object of this handle; NULL: there is none, and the log says so. */
struct dev_shared *dev_shared_find(struct dev_file *file, enum dev_shared_kind kind,
				   uint32_t handle, const char *call);
/* From now on nobody finds it. -EBUSY: it has users; -ENOENT: it was destroyed under another name; the
 * log names the call. */
int dev_shared_destroy(struct dev_file *file, struct dev_shared *object, const char *call);
/* One name less; true: it was destroyed and this the last, its memory is the caller's. */
bool dev_shared_drop(struct dev_file *file, struct dev_shared *object);
/* -ENOENT when it was destroyed. */
int dev_shared_check(const struct dev_shared *object, const char *call);
void dev_shared_use(struct dev_file *file, struct dev_shared *object, int users);

#endif
