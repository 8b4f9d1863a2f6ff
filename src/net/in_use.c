/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads /proc/net/udp and udp6; sockets of the kernel's own have inode 0 there. */
#include "net/in_use.h"

#include <dirent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct owner {
	uid_t uid;
	unsigned long inode;
};

bool in_use_rxe_loaded(void)
{
	return access("/sys/module/rdma_rxe", F_OK) == 0;
}

/* Somebody with this port; one who isn't us is preferred, since sharing is only refused to others.
 */
static bool find_owner(const char *table, uint16_t udp_port, struct owner *owner)
{
	FILE *f = fopen(table, "re");
	char line[512];
	bool found = false;

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		unsigned number, uid;
		unsigned long inode;

		if (sscanf(line,
			   " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %*x %*x:%*x %*x:%*x %*x %u "
			   "%*d %lu",
			   &number, &uid, &inode) != 3 ||
		    number != udp_port)
			continue;
		if (found && uid == geteuid() && inode != 0)
			continue;
		*owner = (struct owner){ .uid = uid, .inode = inode };
		found = true;
	}
	fclose(f);
	return found;
}

static bool holds_inode(const char *pid, unsigned long inode)
{
	char path[300], want[48], target[48];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(want, sizeof(want), "socket:[%lu]", inode);
	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		if (len < 0)
			continue;
		target[len] = '\0';
		found = strcmp(target, want) == 0;
	}
	closedir(dir);
	return found;
}

/* "process 123 (name)", where we may look. */
static bool find_process(unsigned long inode, char *text, size_t len)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	bool found = false;

	if (!proc)
		return false;
	while (!found && (entry = readdir(proc))) {
		char path[300], name[32] = "?";
		FILE *f;

		if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name) ||
		    !holds_inode(entry->d_name, inode))
			continue;
		found = true;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		f = fopen(path, "re");
		if (f && fgets(name, sizeof(name), f))
			name[strcspn(name, "\n")] = '\0';
		if (f)
			fclose(f);
		snprintf(text, len, "process %.10s (%s)", entry->d_name, name);
	}
	closedir(proc);
	return found;
}

static void describe_user(uid_t uid, char *text, size_t len)
{
	char buf[1024];
	struct passwd pw, *result = NULL;

	if (getpwuid_r(uid, &pw, buf, sizeof(buf), &result) == 0 && result)
		snprintf(text, len, "user %s", pw.pw_name);
	else
		snprintf(text, len, "uid %u", uid);
}

void in_use_explain(uint16_t udp_port, char *text, size_t len)
{
	struct owner owner;
	char user[64], process[64];

	if (!find_owner("/proc/net/udp", udp_port, &owner) &&
	    !find_owner("/proc/net/udp6", udp_port, &owner)) {
		snprintf(text, len,
			 "UDP port %u is in use, by whom can't be seen from here: it is free "
			 "once that program has ended",
			 udp_port);
		return;
	}
	if (owner.inode == 0 && owner.uid == 0 && in_use_rxe_loaded()) {
		snprintf(text, len,
			 "UDP port %u is used by the kernel's Soft-RoCE driver (rdma_rxe): remove "
			 "its devices ('rdma link delete NAME') or unload it ('modprobe -r "
			 "rdma_rxe')",
			 udp_port);
		return;
	}
	describe_user(owner.uid, user, sizeof(user));
	if (!find_process(owner.inode, process, sizeof(process)))
		snprintf(process, sizeof(process), "a process");
	if (owner.uid == geteuid())
		snprintf(text, len,
			 "UDP port %u is used by %s of this user, which doesn't share it: "
			 "end that process",
			 udp_port, process);
	else
		snprintf(text, len,
			 "UDP port %u is used by %s of %s; only programs of one user can share "
			 "it: run as that user, end that program, or use a network namespace",
			 udp_port, process, user);
}
