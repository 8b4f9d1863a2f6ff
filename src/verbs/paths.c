/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library of its own, which `rocelink run` puts in front of a program: for programs that look for
 * a device's files beside the API. UCX wants a device node below /dev/infiniband and reads the types
 * of GIDs from /sys/class/infiniband, as NCCL does; a machine without the kernel's RDMA has neither.
 *
 * The few calls with which such files are looked at are taken here: a path of a device of ours is
 * answered by the adapter, all others go on to the C library untouched. It knows nothing of the adapter but
 * one function, which it looks for when it is needed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define NODES	"/dev/infiniband/rl_"
#define CM_NODE "/dev/infiniband/rdma_cm"
#define CLASS	"/sys/class/infiniband/rl_"
/* What stands for a device's node: it exists, is a character device, and can be opened. */
#define NODE "/dev/null"

/* The C library's function of this name. */
#define NEXT(function, ...)                                                               \
	({                                                                                \
		static _Atomic(void *) next_;                                             \
		if (!next_)                                                               \
			next_ = dlsym(RTLD_NEXT, #function);                              \
		next_ ? ((typeof(&(function)))next_)(__VA_ARGS__) : (errno = ENOSYS, -1); \
	})

static bool begins(const char *path, const char *with)
{
	return path && strncmp(path, with, strlen(with)) == 0;
}

static const char *node(const char *path)
{
	return begins(path, NODES) ? NODE : path;
}

/* A descriptor of the file that the adapter has in place of this path; -1 with errno: what the
 * adapter says; -2: it has none. */
static int open_ours(const char *path, int flags)
{
	int (*sysfs_read)(const char *, char *, size_t);
	char text[256];
	int n, fd;

	*(void **)&sysfs_read = dlsym(RTLD_DEFAULT, "rocelink_sysfs_read");
	if (!sysfs_read || (n = sysfs_read(path, text, sizeof(text))) == -ENOENT)
		return -2;
	if (n < 0 || (flags & O_ACCMODE) != O_RDONLY) {
		errno = n < 0 ? -n : EACCES;
		return -1;
	}
	fd = memfd_create("sysfs", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd >= 0 && (write(fd, text, (size_t)n) != n || lseek(fd, 0, SEEK_SET) != 0)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* The third argument of open(). */
static mode_t mode_of(int flags, va_list args)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

/* These only ask whether there is a connection manager, and mostly do without: told who asks to be. */
static bool in_a_prober(void)
{
	static const char *const probers[] = { "libucs.so.0", "libfabric.so.1" };
	const char *log = getenv("ROCELINK_LOG");
	void *loaded = NULL;

	if (log &&
	    (strcmp(log, "info") == 0 || strcmp(log, "debug") == 0 || strcmp(log, "trace") == 0))
		return false;
	for (size_t i = 0; i < sizeof(probers) / sizeof(*probers) && !loaded; i++)
		loaded = dlopen(probers[i], RTLD_LAZY | RTLD_NOLOAD);
	if (loaded)
		dlclose(loaded);
	return loaded;
}

/* Programs of librdmacm are told no more than "No such file or directory". */
static void explain_no_cm(void)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	int error = errno;

	if (!in_a_prober() && !atomic_flag_test_and_set(&told))
		fputs("rocelink: the program connects with librdmacm, which needs the kernel's "
		      "connection manager (" CM_NODE "); this machine has none, and the adapter "
		      "none of its own. Have the program connect over TCP if it can (perftest: "
		      "without -R).\n",
		      stderr);
	errno = error;
}

#define OPEN(function)                                        \
	EXPORT int function(const char *path, int flags, ...) \
	{                                                     \
		va_list args;                                 \
		mode_t mode;                                  \
		int fd = -2;                                  \
                                                              \
		va_start(args, flags);                        \
		mode = mode_of(flags, args);                  \
		va_end(args);                                 \
		if (begins(path, CLASS))                      \
			fd = open_ours(path, flags);          \
		if (fd != -2)                                 \
			return fd;                            \
		fd = NEXT(function, node(path), flags, mode); \
		if (fd < 0 && begins(path, CM_NODE))          \
			explain_no_cm();                      \
		return fd;                                    \
	}

OPEN(open)
OPEN(open64)

/* What a program calls instead that was built with _FORTIFY_SOURCE and learns the flags at run time. Without
 * a mode for what it creates the C library's own ends it. */
#define FORTIFIED_OPEN(function, plain)                     \
	int function(const char *path, int flags);          \
	EXPORT int function(const char *path, int flags)    \
	{                                                   \
		if (flags & (O_CREAT | __O_TMPFILE))        \
			return NEXT(function, path, flags); \
		return plain(path, flags);                  \
	}

FORTIFIED_OPEN(__open_2, open)
FORTIFIED_OPEN(__open64_2, open64)

#define FOPEN(function)                                                                        \
	EXPORT FILE *function(const char *path, const char *mode)                              \
	{                                                                                      \
		static _Atomic(void *) next;                                                   \
		int fd = begins(path, CLASS) && *mode == 'r' ? open_ours(path, O_RDONLY) : -2; \
                                                                                               \
		if (fd == -1)                                                                  \
			return NULL;                                                           \
		if (fd >= 0)                                                                   \
			return fdopen(fd, mode);                                               \
		if (!next)                                                                     \
			next = dlsym(RTLD_NEXT, #function);                                    \
		return next ? ((typeof(&(function)))next)(path, mode) : NULL;                  \
	}

FOPEN(fopen)
FOPEN(fopen64)

EXPORT int stat(const char *restrict path, struct stat *restrict st)
{
	return NEXT(stat, node(path), st);
}

EXPORT int stat64(const char *restrict path, struct stat64 *restrict st)
{
	return NEXT(stat64, node(path), st);
}

EXPORT int access(const char *path, int mode)
{
	return NEXT(access, node(path), mode);
}
