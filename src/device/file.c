/* SPDX-License-Identifier: BSD-2-Clause */
/* Files behind cmd_fd, and the objects that their contexts share (file.h). */
#include "device/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "device/device.h"

/* How another process knows such a descriptor: the kernel shows the name, with this in front. */
#define NAME  "rocelink context of process "
#define SHOWN "/memfd:" NAME

/* Under the lock of opening and closing. */
static struct list files = { &files, &files };

int dev_file_create(struct dev *dev, struct dev_file **out, int *fd)
{
	struct dev_file *file = dev_zalloc(sizeof(*file));
	char name[sizeof(NAME) + 16];
	struct stat st;
	int rc;

	if (!file)
		return -ENOMEM;
	snprintf(name, sizeof(name), NAME "%d", (int)getpid());
	*fd = memfd_create(name, MFD_CLOEXEC);
	if (*fd < 0 || fstat(*fd, &st)) {
		rc = -errno;
		log_info("no descriptor to be had for a context: %s", strerror(-rc));
		free(file);
		return rc;
	}
	file->dev = dev;
	file->st_dev = st.st_dev;
	file->st_ino = st.st_ino;
	file->generation = dev_fork_generation;
	file->contexts = 1;
	pthread_mutex_init(&file->lock, NULL);
	for (int i = 0; i < DEV_SHARED_KINDS; i++)
		list_init(&file->objects[i]);
	list_append(&files, &file->link);
	*out = file;
	return 0;
}

static struct dev_file *find(const struct stat *st)
{
	struct list *pos;

	list_for_each(pos, &files)
	{
		struct dev_file *file = container_of(pos, struct dev_file, link);

		if (file->st_dev == st->st_dev && file->st_ino == st->st_ino &&
		    file->generation == dev_fork_generation)
			return file;
	}
	return NULL;
}

/* A context's file that isn't in our list. */
static bool is_foreign(int fd)
{
	char path[32], shown[128];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, shown, sizeof(shown) - 1);
	if (n < (ssize_t)sizeof(SHOWN) || strncmp(shown, SHOWN, sizeof(SHOWN) - 1) != 0)
		return false;
	shown[n] = '\0';
	log_info(
		"import_device: descriptor %d is of a context of process %ld, this is %d: contexts "
		"and their memory live in one process, as long as they are open there",
		fd, strtol(shown + sizeof(SHOWN) - 1, NULL, 10), (int)getpid());
	return true;
}

static bool is_own_descriptor(const struct dev_file *file, int fd)
{
	struct list *pos;
	bool own = false;

	pthread_mutex_lock(&file->dev->lock);
	list_for_each(pos, &file->dev->contexts) own |=
		container_of(pos, struct dev_context, link)->verbs.context.cmd_fd == fd;
	pthread_mutex_unlock(&file->dev->lock);
	return own;
}

int dev_file_find(int fd, struct dev_file **out)
{
	struct dev_file *file;
	struct stat st;

	if (fstat(fd, &st))
		return -ENOENT;
	file = find(&st);
	if (!file)
		return is_foreign(fd) ? -EOPNOTSUPP : -ENOENT;
	if (is_own_descriptor(file, fd)) {
		log_info("import_device: descriptor %d is a context's own, which closes it: "
			 "duplicate it (dup) first",
			 fd);
		return -EINVAL;
	}
	file->contexts++;
	*out = file;
	return 0;
}

static void release(enum dev_shared_kind kind, struct dev_shared *object, struct dev_file *file,
		    struct engine *engine)
{
	switch (kind) {
	case DEV_SHARED_MR:
		dev_mr_object_end((struct dev_mr_object *)object, engine);
		dev_limit_give(file->dev, DEV_MR);
		break;
	case DEV_SHARED_DM:
		dev_dm_object_end((struct dev_dm_object *)object, file->dev);
		break;
	case DEV_SHARED_PD:
		dev_limit_give(file->dev, DEV_PD);
		break;
	case DEV_SHARED_KINDS:
		break;
	}
	free(object);
}

void dev_file_put(struct dev_file *file, struct engine *engine)
{
	struct list *pos, *next;

	if (--file->contexts)
		return;
	list_remove(&file->link);
	for (int kind = 0; kind < DEV_SHARED_KINDS; kind++) {
		for (pos = file->objects[kind].next; pos != &file->objects[kind]; pos = next) {
			next = pos->next;
			release((enum dev_shared_kind)kind,
				container_of(pos, struct dev_shared, link), file, engine);
		}
	}
	pthread_mutex_destroy(&file->lock);
	free(file);
}

/* Under the lock. */
static struct dev_shared *lookup(const struct dev_file *file, enum dev_shared_kind kind,
				 uint32_t handle)
{
	struct list *pos;

	list_for_each(pos, &file->objects[kind])
	{
		struct dev_shared *object = container_of(pos, struct dev_shared, link);

		if (object->handle == handle)
			return object;
	}
	return NULL;
}

void dev_shared_add(struct dev_file *file, enum dev_shared_kind kind, struct dev_shared *object)
{
	pthread_mutex_lock(&file->lock);
	do {
		if (++file->last_handle == 0)
			file->handles_wrapped = true;
	} while (file->handles_wrapped && lookup(file, kind, file->last_handle));
	object->handle = file->last_handle;
	object->names = 1;
	list_append(&file->objects[kind], &object->link);
	pthread_mutex_unlock(&file->lock);
}

struct dev_shared *dev_shared_find(struct dev_file *file, enum dev_shared_kind kind,
				   uint32_t handle, const char *call)
{
	struct dev_shared *object;

	pthread_mutex_lock(&file->lock);
	object = lookup(file, kind, handle);
	if (object)
		object->names++;
	pthread_mutex_unlock(&file->lock);
	if (!object)
		log_info("%s: the context's file has no such object of handle %u", call, handle);
	return object;
}

static int destroyed(const char *call)
{
	log_info("%s: the object was destroyed under another name of it: this one can only be "
		 "unimported",
		 call);
	return -ENOENT;
}

int dev_shared_destroy(struct dev_file *file, struct dev_shared *object, const char *call)
{
	int users;
	bool gone;

	pthread_mutex_lock(&file->lock);
	gone = object->destroyed;
	users = object->users;
	if (!gone && !users) {
		object->destroyed = true;
		list_remove(&object->link);
	}
	pthread_mutex_unlock(&file->lock);
	if (gone)
		return destroyed(call);
	if (users) {
		log_info("%s: %d objects that need it are left", call, users);
		return -EBUSY;
	}
	return 0;
}

bool dev_shared_drop(struct dev_file *file, struct dev_shared *object)
{
	bool last;

	pthread_mutex_lock(&file->lock);
	last = --object->names == 0 && object->destroyed;
	pthread_mutex_unlock(&file->lock);
	return last;
}

int dev_shared_check(const struct dev_shared *object, const char *call)
{
	return object->destroyed ? destroyed(call) : 0;
}

void dev_shared_use(struct dev_file *file, struct dev_shared *object, int users)
{
	pthread_mutex_lock(&file->lock);
	object->users += users;
	pthread_mutex_unlock(&file->lock);
}
