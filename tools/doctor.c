/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/doctor.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>

#include "tools/commands.h"

static void usage(FILE *out)
{
	fputs("usage: rocelink doctor [-p PORT] [HOST]\n"
	      "       rocelink doctor [-p PORT] [--listen ADDR] --serve\n\n"
	      "Checks what stops people: settings, devices, the kernel's RDMA, UDP port 4791,\n"
	      "GIDs, MTU, memory limit. With HOST, where `rocelink doctor --serve` runs, RoCE\n"
	      "packets are sent both ways, small ones and full ones. Nothing is changed.\n\n"
	      "  --serve        be the other end for probes, until stopped\n"
	      "  --listen ADDR  address to serve on, default * (all)\n"
	      "  -p, --port N   TCP port of --serve, default 18516\n"
	      "  --help         this text\n\n"
	      "Exit status: 0 nothing stands in the way, 1 something does, 2 wrong usage.\n"
	      "The manual: man rocelink-doctor\n",
	      out);
}

void doctor_find(struct doctor *d, enum verdict verdict, const char *subject, const char *advice,
		 const char *format, ...)
{
	static const char *const marks[] = {
		[WELL] = "[ok]  ", [NOTE] = "[note]", [BAD] = "[BAD] "
	};
	va_list args;

	printf("%s %-13s ", marks[verdict], subject);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	if (advice)
		printf("       %-13s -> %s\n", "", advice);
	fflush(stdout);
	d->bad += verdict == BAD;
}

/* 0, or the exit status + 1. */
static int parse_options(struct doctor_options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "serve", no_argument, NULL, 's' },
		{ "listen", required_argument, NULL, 'l' },
		{ "port", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	*o = (struct doctor_options){ .service = "18516", .listen = "*" };
	optind = 1;
	while ((c = getopt_long(argc, argv, "hp:", longs, NULL)) != -1)
		switch (c) {
		case 's':
			o->serve = true;
			break;
		case 'l':
			o->listen = optarg;
			break;
		case 'p':
			o->service = optarg;
			break;
		case 'h':
			usage(stdout);
			return EXIT_OK + 1;
		default:
			return EXIT_USAGE + 1;
		}
	if (argc - optind > 1 || (o->serve && optind < argc)) {
		fprintf(stderr, "rocelink doctor: %s: %s\n", argv[argc - 1],
			o->serve ? "--serve takes no host" : "one host at most");
		return EXIT_USAGE + 1;
	}
	o->host = argv[optind];
	return 0;
}

static void check_addresses(struct doctor *d)
{
	doctor_check_gids(d);
	doctor_check_mtu(d);
}

static void check_path(struct doctor *d, const struct doctor_options *o)
{
	if (o->host) {
		doctor_check_route(d, o);
		doctor_check_probe(d, o);
	} else {
		doctor_find(d, NOTE, "path",
			    "start `rocelink doctor --serve` on another machine and "
			    "`rocelink doctor THAT-HOST` here",
			    "not tested: no host was named");
	}
}

int command_doctor(int argc, char **argv)
{
	struct doctor_options o;
	struct device_info *devices;
	struct doctor d = { 0 };
	bool usable;
	int status = parse_options(&o, argc, argv);

	if (status)
		return status - 1;
	if (o.serve)
		return doctor_serve(&o);
	usable = doctor_check_settings(&d);
	devices = usable ? devices_collect(&d.n_devices) : NULL;
	d.devices = devices;
	if (usable)
		doctor_check_devices(&d);
	doctor_check_kernel(&d);
	doctor_check_port(&d);
	if (usable)
		check_addresses(&d);
	doctor_check_memory_limit(&d);
	if (usable)
		check_path(&d, &o);
	devices_free(devices, d.n_devices);
	return d.bad ? EXIT_FAILED : EXIT_OK;
}
