/* SPDX-License-Identifier: BSD-2-Clause */
/* `rocelink pingpong`: link, measure, report; the server serves one client, as the stock
 * programs do. */
#include <stdlib.h>

#include "tools/commands.h"
#include "tools/pingpong.h"

static void say_goodbye(struct pp *pp)
{
	enum rocelink_state state;
	struct rocelink_error err;

	if (!pp->conn || pp->o->compat)
		return;
	state = rocelink_conn_state(pp->conn);
	/* CLOSING: the peer's BYE came together with its last sync, and waits for ours. The results
	 * are there: how the socket ends changes nothing about them. */
	if (state == ROCELINK_STATE_ESTABLISHED || state == ROCELINK_STATE_CLOSING)
		rocelink_conn_close(pp->conn, &err);
}

static int measure_once(struct pp *pp, struct rocelink_listener *l)
{
	int rc = l ? pp_link_server(pp, l) : pp_link_client(pp);

	if (rc == ROCELINK_OK)
		rc = pp->plan.act ? pp_rnr_act_server(pp) : pp_run(pp);
	say_goodbye(pp);
	if (rc)
		pp_report_failure(pp->o, &pp->err);
	else if (!pp->plan.act)
		pp_report(pp);
	return rc ? EXIT_FAILED : EXIT_OK;
}

static struct pp *make(const struct pp_options *o)
{
	struct pp *pp = calloc(1, sizeof(*pp));

	if (!pp) {
		fputs("rocelink pingpong: out of memory\n", stderr);
		return NULL;
	}
	pp->o = o;
	pp->client = o->host;
	pp->plan = o->plan;
	return pp;
}

static int serve(const struct pp_options *o)
{
	struct rocelink_listener *l;
	struct rocelink_error err;
	enum pp_act act;
	int status;

	if (pp_listen(o, &l, &err)) {
		pp_report_failure(o, &err);
		return EXIT_FAILED;
	}
	do {
		struct pp *pp = make(o);

		if (!pp)
			return EXIT_FAILED;
		status = measure_once(pp, l);
		/* A demonstration comes as one connection for each act. */
		act = pp->plan.act;
		pp_unlink(pp);
		free(pp);
	} while (status == EXIT_OK && act && act + 1 < PP_ACTS);
	rocelink_listener_free(l);
	return status;
}

int command_pingpong(int argc, char **argv)
{
	struct pp_options o;
	struct pp *pp;
	int status = pp_options_parse(&o, argc, argv);

	if (status)
		return status - 1;
	if (!o.host)
		return serve(&o);
	if (o.rnr_demo)
		return pp_rnr_client(&o);
	pp = make(&o);
	if (!pp)
		return EXIT_FAILED;
	status = measure_once(pp, NULL);
	pp_unlink(pp);
	free(pp);
	return status;
}
