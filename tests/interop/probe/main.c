// SPDX-License-Identifier: BSD-2-Clause
/* probe: command line, GID listing, and the steps every scene goes through. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

static void print_gids(struct ibv_device *device)
{
	struct ibv_context *ctx = ibv_open_device(device);
	struct ibv_port_attr port;
	char text[INET6_ADDRSTRLEN];
	union ibv_gid gid, none = { .raw = { 0 } };

	if (!ctx || ibv_query_port(ctx, 1, &port))
		die("open_device");
	printf("device %s %u\n", ibv_get_device_name(device), 128u << port.active_mtu);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid(ctx, 1, i, &gid) || !memcmp(&gid, &none, sizeof(gid)))
			continue;
		inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
		printf("gid %s %d %s\n", ibv_get_device_name(device), i, text);
	}
	ibv_close_device(ctx);
}

static int list_gids(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list)
		die("get_device_list");
	for (int i = 0; list[i]; i++)
		print_gids(list[i]);
	ibv_free_device_list(list);
	return 0;
}

static int play(struct end *e, const struct scene *s)
{
	end_open(e, &s->knobs);
	if (!e->host && s->prepare)
		s->prepare(e);
	end_barrier(e);
	if (e->host)
		s->act(e);
	else if (s->serve)
		s->serve(e);
	end_barrier(e);
	if (!e->host && s->inspect)
		s->inspect(e);
	end_barrier(e);
	end_close(e);
	return 0;
}

static int usage(void)
{
	fputs("usage: probe gids | probe SCENE -d DEVICE -g INDEX [-p PORT] [-n ROUNDS] "
	      "[HOST]\nscenes:",
	      stderr);
	for (size_t i = 0; i < n_scenes; i++)
		fprintf(stderr, " %s", scenes[i].name);
	fputc('\n', stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct end e = { .port = "18600", .rounds = 4 };
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 2 && !strcmp(argv[1], "gids"))
		return list_gids();
	while ((option = getopt(argc, argv, "d:g:p:n:")) != -1) {
		switch (option) {
		case 'd':
			e.device = optarg;
			break;
		case 'g':
			e.gid_index = atoi(optarg);
			break;
		case 'p':
			e.port = optarg;
			break;
		case 'n':
			e.rounds = (unsigned int)atoi(optarg);
			break;
		default:
			return usage();
		}
	}
	if (!e.device || optind >= argc)
		return usage();
	e.host = optind + 1 < argc ? argv[optind + 1] : NULL;
	for (size_t i = 0; i < n_scenes; i++) {
		if (!strcmp(scenes[i].name, argv[optind]))
			return play(&e, &scenes[i]);
	}
	return usage();
}
