/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has UDP port 4791. Read from /proc rather than tried by binding: a socket that joins the
 * port for a moment would take packets away from a running transfer.
 */
#include <ctype.h>
#include <dirent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor.h"

enum { ROCE_PORT = 4791, MAX_OWNERS = 32 };

struct owner {
	unsigned long inode;
	unsigned uid;
	int pid; /* 0: not visible */
	bool adapter;
};

struct owners {
	struct owner list[MAX_OWNERS];
	unsigned n;
};

/* Lines of /proc/net/udp: "sl local:port remote:port st queues timer retransmits uid timeout
 * inode". */
static void read_table(const char *path, struct owners *o)
{
	char line[512];
	FILE *file = fopen(path, "r");

	while (file && o->n < MAX_OWNERS && fgets(line, sizeof(line), file)) {
		unsigned port, uid;
		unsigned long inode;

		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %*s %*s %*s %*s %u %*s %lu", &port,
			   &uid, &inode) == 3 &&
		    port == ROCE_PORT)
			o->list[o->n++] = (struct owner){ .inode = inode, .uid = uid };
	}
	if (file)
		fclose(file);
}

/* The adapter of a process owns a socket of this name for its queue pair numbers. */
static bool is_adapter_socket(unsigned long inode)
{
	char line[512];
	FILE *file = fopen("/proc/net/unix", "r");
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		unsigned long number;
		char name[128];

		found = sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %127s", &number, name) == 2 &&
			number == inode && strncmp(name, "@rocelink/", 10) == 0;
	}
	if (file)
		fclose(file);
	return found;
}

static unsigned long socket_inode(int pid, const char *fd)
{
	char path[64], target[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, fd);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return 0;
	target[n] = '\0';
	return strncmp(target, "socket:[", 8) == 0 ? strtoul(target + 8, NULL, 10) : 0;
}

static void look_at_process(int pid, struct owners *o)
{
	char path[32];
	bool ours = false, adapter = false;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	for (int pass = 0; dir && pass < 2; pass++, rewinddir(dir))
		while ((entry = readdir(dir))) {
			unsigned long inode = socket_inode(pid, entry->d_name);

			/* Only of a process that has the port is more asked: it costs a file each.
			 */
			if (inode && pass == 1 && ours && !adapter)
				adapter = is_adapter_socket(inode);
			for (unsigned i = 0; inode && i < o->n; i++) {
				if (o->list[i].inode != inode)
					continue;
				o->list[i].pid = pid;
				ours = true;
			}
		}
	if (dir)
		closedir(dir);
	for (unsigned i = 0; i < o->n; i++)
		if (o->list[i].pid == pid)
			o->list[i].adapter = adapter;
}

static void find_processes(struct owners *o)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]))
			look_at_process(atoi(entry->d_name), o);
	if (dir)
		closedir(dir);
}

static void process_name(int pid, char *name, size_t len)
{
	char path[32];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = fopen(path, "r");
	*name = '\0';
	if (file && fgets(name, (int)len, file))
		name[strcspn(name, "\n")] = '\0';
	if (file)
		fclose(file);
}

static void user_name(unsigned uid, char *name, size_t len)
{
	const struct passwd *pw = getpwuid(uid);

	if (pw)
		snprintf(name, len, "%s", pw->pw_name);
	else
		snprintf(name, len, "%u", uid);
}

static void report(struct doctor *d, const struct owner *o)
{
	char name[64] = "", user[64];

	user_name(o->uid, user, sizeof(user));
	if (o->pid)
		process_name(o->pid, name, sizeof(name));
	if (o->adapter && o->uid == geteuid())
		doctor_find(d, WELL, "port 4791", NULL,
			    "shared with process %d (%s), which runs on the adapter", o->pid, name);
	else if (o->pid)
		doctor_find(d, BAD, "port 4791",
			    o->adapter ? "the port is shared by processes of one user only: run as "
					 "that user, or stop it"
				       : "stop that process: RoCE v2 has this port alone",
			    "process %d (%s) of user %s has it", o->pid, name, user);
	else if (o->uid == 0 && geteuid() == 0)
		doctor_find(d, BAD, "port 4791",
			    "`rdma link` lists it; `rdma link delete NAME` or `modprobe -r "
			    "rdma_rxe` gives the port back; or use its device instead of the "
			    "adapter's",
			    "the kernel has it (no process does): Soft-RoCE, rdma_rxe");
	else
		doctor_find(d, BAD, "port 4791",
			    o->uid == 0 ? "`rdma link` shows whether it is the kernel's Soft-RoCE "
					  "(rdma_rxe); else ask root"
					: "the port is shared by processes of one user only: ask "
					  "that user",
			    "user %s has it", user);
}

void doctor_check_port(struct doctor *d)
{
	struct owners o = { .n = 0 };
	unsigned told = 0;

	read_table("/proc/net/udp", &o);
	read_table("/proc/net/udp6", &o);
	if (o.n)
		find_processes(&o);
	for (unsigned i = 0; i < o.n; i++) {
		bool known = false;

		/* One line for a process with many sockets, and for all that nothing is known of.
		 */
		for (unsigned j = 0; j < i; j++)
			known |= o.list[j].pid == o.list[i].pid && o.list[j].uid == o.list[i].uid;
		/* This process's own adapter, opened to list its devices, is no finding. */
		if (known || o.list[i].pid == getpid())
			continue;
		report(d, &o.list[i]);
		told++;
	}
	if (!told)
		doctor_find(d, WELL, "port 4791", NULL, "UDP port 4791 is free");
}
