/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line of `rocelink pingpong`. The letters are those of ibv_rc_pingpong. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "tools/commands.h"
#include "tools/pingpong.h"

static const char *const types[] = { "rc", "uc", "ud", "xrc" };
static const char *const ops[] = { "send", "write", "read", "fetch-add", "cmp-swap" };

const char *pp_type_name(enum pp_type type)
{
	return types[type];
}

const char *pp_op_name(enum pp_op op)
{
	return ops[op];
}

static int find(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	return -1;
}

bool pp_type_parse(const char *name, enum pp_type *type)
{
	int i = find(types, ARRAY_LEN(types), name);

	*type = i < 0 ? PP_RC : (enum pp_type)i;
	return i >= 0;
}

bool pp_op_parse(const char *name, enum pp_op *op)
{
	int i = find(ops, ARRAY_LEN(ops), name);

	*op = i < 0 ? PP_SEND : (enum pp_op)i;
	return i >= 0;
}

static void usage(FILE *out)
{
	fputs("usage: rocelink pingpong [OPTIONS]         the server\n"
	      "       rocelink pingpong [OPTIONS] HOST    the client; the server follows it\n\n"
	      "  -t, --type TYPE      rc (default), uc, ud or xrc\n"
	      "  -o, --op OP          send (default), write, read, fetch-add or cmp-swap\n"
	      "  -s, --size BYTES     default 4096 (UD: 1024; atomics: always 8)\n"
	      "  -n, --iters N        exchanges, default 1000\n"
	      "  -d, --ib-dev NAME    -i, --ib-port N   -g, --gid-idx N   default: by the route\n"
	      "  -m, --mtu BYTES      path MTU at most: 256, 512, 1024, 2048 or 4096\n"
	      "  -e, --events         sleep until a completion comes, instead of polling\n"
	      "  -p, --port PORT      TCP port, default 18515\n"
	      "  -l, --listen ADDR    server: default localhost; all (*) with the next two\n"
	      "  --secret-file FILE   TLS 1.3 with this shared secret, the same on both sides\n"
	      "  --plain              no protection, also beyond this machine\n"
	      "  --explain            tell each step as it happens\n"
	      "  --verify             check every byte\n"
	      "  --rnr-demo           show what happens without synchronisation\n"
	      "  --compat ibv         the other end is ibv_rc_, ibv_uc_ or ibv_ud_pingpong\n"
	      "  --compat ibv-srq     ... ibv_srq_pingpong; -q, --num-qp N: default 16\n"
	      "  --json, --help       the results as one line of JSON; this text\n\n"
	      "Exit status: 0 done, 1 it failed (also: wrong data), 2 wrong usage.\n"
	      "The manual: man rocelink-pingpong\n",
	      out);
}

static bool take_number(const char *option, const char *text, unsigned long min, unsigned long max,
			unsigned *value)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 0);
	if (errno || end == text || *end || *text == '-' || n < min || n > max) {
		fprintf(stderr, "rocelink pingpong: %s %s: a number from %lu to %lu is needed\n",
			option, text, min, max);
		return false;
	}
	*value = (unsigned)n;
	return true;
}

static bool complain(const char *option, const char *value, const char *right)
{
	fprintf(stderr, "rocelink pingpong: %s %s: %s\n", option, value, right);
	return false;
}

static bool take_compat(struct pp_options *o, const char *value)
{
	if (strcmp(value, "ibv") == 0)
		o->compat = PP_IBV;
	else if (strcmp(value, "ibv-srq") == 0)
		o->compat = PP_IBV_SRQ;
	else
		return complain("--compat", value, "unknown; ibv and ibv-srq are the choices");
	return true;
}

static bool take_mtu(struct pp_options *o, const char *value)
{
	if (!take_number("-m", value, 256, 4096, &o->mtu))
		return false;
	return rocelink_mtu_code(o->mtu) ||
	       complain("-m", value, "256, 512, 1024, 2048 and 4096 are the choices");
}

enum { LONG_EXPLAIN = 256, LONG_VERIFY, LONG_RNR, LONG_COMPAT, LONG_JSON, LONG_SECRET, LONG_PLAIN };

static bool take(struct pp_options *o, int c)
{
	struct pp_plan *plan = &o->plan;
	unsigned n = 0;
	bool ok = true;

	switch (c) {
	case 't':
		o->said |= SAID_TYPE;
		return pp_type_parse(optarg, &plan->type) ||
		       complain("--type", optarg, "unknown; rc, uc, ud and xrc are the choices");
	case 'o':
		o->said |= SAID_OP;
		return pp_op_parse(optarg, &plan->op) ||
		       complain("--op", optarg,
				"unknown; send, write, read, fetch-add and cmp-swap are the "
				"choices");
	case 's':
		o->said |= SAID_SIZE;
		return take_number("-s", optarg, 1, PP_MAX_SIZE, &plan->size);
	case 'n':
		o->said |= SAID_ITERS;
		return take_number("-n", optarg, 1, PP_MAX_ITERS, &plan->iters);
	case 'd':
		o->device = optarg;
		break;
	case 'i':
		ok = take_number("-i", optarg, 1, 255, &n);
		o->ib_port = (uint8_t)n;
		break;
	case 'g':
		ok = take_number("-g", optarg, 0, 65535, &n);
		o->gid_index = (int)n;
		break;
	case 'm':
		return take_mtu(o, optarg);
	case 'q':
		return take_number("-q", optarg, 1, PP_MAX_QPS, &o->qps);
	case 'p':
		o->service = optarg;
		return take_number("-p", optarg, 0, 65535, &n);
	case 'l':
		o->listen = optarg;
		break;
	case 'e':
		o->events = true;
		break;
	case LONG_EXPLAIN:
		o->explain = true;
		break;
	case LONG_VERIFY:
		o->said |= SAID_VERIFY;
		plan->verify = true;
		break;
	case LONG_RNR:
		o->rnr_demo = true;
		break;
	case LONG_COMPAT:
		return take_compat(o, optarg);
	case LONG_JSON:
		o->json = true;
		break;
	case LONG_SECRET:
		o->secret_file = optarg;
		break;
	case LONG_PLAIN:
		o->plain = true;
		break;
	default:
		fputs("`rocelink pingpong --help` lists the options\n", stderr);
		return false;
	}
	return ok;
}

int pp_plan_check(const struct pp_plan *plan, struct rocelink_error *err)
{
	bool atomic = plan->op == PP_FETCH_ADD || plan->op == PP_CMP_SWAP;

	if (plan->type == PP_UD && plan->op != PP_SEND)
		return pp_fail(err, ROCELINK_INVALID,
			       "UD can only send: --type ud with --op %s is "
			       "not possible; use --type rc",
			       pp_op_name(plan->op));
	if (plan->type == PP_UC && plan->op != PP_SEND && plan->op != PP_WRITE)
		return pp_fail(err, ROCELINK_INVALID,
			       "UC can send and write: --op %s needs an answer, so --type rc",
			       pp_op_name(plan->op));
	if (atomic && plan->size != 8)
		return pp_fail(err, ROCELINK_INVALID, "atomics work on 8 bytes; leave -s %u away",
			       plan->size);
	return ROCELINK_OK;
}

/* What was not said gets its default; then what doesn't go together. */
static int complete(struct pp_options *o, struct rocelink_error *err)
{
	struct pp_plan *plan = &o->plan;

	if (!(o->said & SAID_SIZE))
		/* ibv_ud_pingpong's default is 1024 too, whatever its --help says. */
		plan->size = plan->op >= PP_FETCH_ADD ? 8 : plan->type != PP_UD ? 4096 : 1024;
	plan->immediate = o->events && plan->op == PP_WRITE;
	if (o->compat) {
		if (plan->op != PP_SEND)
			return pp_fail(err, ROCELINK_INVALID,
				       "the ibv_*_pingpong programs send: "
				       "--op %s doesn't go with --compat",
				       pp_op_name(plan->op));
		if (o->secret_file)
			return pp_fail(err, ROCELINK_INVALID,
				       "the ibv_*_pingpong programs know no secrets: --secret-file "
				       "doesn't go with --compat");
		if (plan->type == PP_XRC || (o->compat == PP_IBV_SRQ && plan->type != PP_RC))
			return pp_fail(err, ROCELINK_INVALID, "--compat doesn't go with --type %s",
				       pp_type_name(plan->type));
	}
	o->qps = o->compat == PP_IBV_SRQ ? (o->qps ? o->qps : 16) : 1;
	if (o->rnr_demo && (o->compat || plan->type != PP_RC || plan->op != PP_SEND || o->json))
		return pp_fail(err, ROCELINK_INVALID,
			       "--rnr-demo is about RC SEND, and goes with "
			       "neither --compat nor --json");
	return pp_plan_check(plan, err);
}

int pp_options_parse(struct pp_options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "type", required_argument, NULL, 't' },
		{ "op", required_argument, NULL, 'o' },
		{ "size", required_argument, NULL, 's' },
		{ "iters", required_argument, NULL, 'n' },
		{ "ib-dev", required_argument, NULL, 'd' },
		{ "ib-port", required_argument, NULL, 'i' },
		{ "gid-idx", required_argument, NULL, 'g' },
		{ "mtu", required_argument, NULL, 'm' },
		{ "events", no_argument, NULL, 'e' },
		{ "port", required_argument, NULL, 'p' },
		{ "listen", required_argument, NULL, 'l' },
		{ "num-qp", required_argument, NULL, 'q' },
		{ "secret-file", required_argument, NULL, LONG_SECRET },
		{ "plain", no_argument, NULL, LONG_PLAIN },
		{ "explain", no_argument, NULL, LONG_EXPLAIN },
		{ "verify", no_argument, NULL, LONG_VERIFY },
		{ "rnr-demo", no_argument, NULL, LONG_RNR },
		{ "compat", required_argument, NULL, LONG_COMPAT },
		{ "json", no_argument, NULL, LONG_JSON },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct rocelink_error err;
	int c;

	*o = (struct pp_options){
		.service = "18515",
		.gid_index = -1,
		.ib_port = 1,
		.plan = { .iters = 1000 },
	};
	optind = 1;
	while ((c = getopt_long(argc, argv, "ht:o:s:n:d:i:g:m:ep:l:q:", longs, NULL)) != -1) {
		if (c == 'h') {
			usage(stdout);
			return EXIT_OK + 1;
		}
		if (!take(o, c))
			return EXIT_USAGE + 1;
	}
	if (argc - optind > 1) {
		fprintf(stderr, "rocelink pingpong: %s: one host at most\n", argv[optind + 1]);
		return EXIT_USAGE + 1;
	}
	o->host = argv[optind]; /* NULL behind the last */
	if (complete(o, &err)) {
		fprintf(stderr, "rocelink pingpong: %s\n", err.text);
		return EXIT_USAGE + 1;
	}
	return 0;
}
