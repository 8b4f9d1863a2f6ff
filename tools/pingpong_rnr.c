/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --rnr-demo: the same SEND three times. Twice the server posts its receive too late, as programs
 * do that don't synchronise; once both wait for each other first.
 */
#include <stdlib.h>
#include <time.h>

#include "base/units.h"
#include "tools/commands.h"
#include "tools/pingpong.h"

enum { LATE_MS = 300 };

static const char *const titles[PP_ACTS] = {
	[PP_ACT_PATIENT] =
		"1. The client sends at once; the server posts its receive 300 ms later. "
		"rnr_retry is 7: without end.",
	[PP_ACT_GIVES_UP] = "2. The same with rnr_retry 3.",
	[PP_ACT_SYNCED] =
		"3. The same, but the client waits for the server's word that the receive "
		"is posted (rocelink_conn_sync).",
};

static void sleep_ms(long ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

int pp_rnr_act_server(struct pp *pp)
{
	struct ibv_wc wc;
	int rc;

	if (pp->plan.act != PP_ACT_SYNCED)
		sleep_ms(LATE_MS);
	rc = pp_post_recv(pp, 0, 0);
	if (rc == ROCELINK_OK && pp->plan.act == PP_ACT_SYNCED)
		rc = rocelink_conn_sync(pp->conn, "receive posted", NULL, PP_SYNC_US, &pp->err);
	/* The client that gave up sends nothing any more. */
	if (rc == ROCELINK_OK && pp->plan.act != PP_ACT_GIVES_UP)
		rc = pp_wait(pp, &wc);
	return rc ? rc : rocelink_conn_sync(pp->conn, "act over", NULL, PP_SYNC_US, &pp->err);
}

static void explain_naks(const struct pp *pp, uint64_t naks)
{
	printf("   RNR NAKs received: %llu. ", (unsigned long long)naks);
	if (pp->plan.act == PP_ACT_SYNCED)
		puts("The receive was there.");
	else
		printf("Each is the server's adapter saying \"no receive is posted, ask\n   again "
		       "in "
		       "%.2f ms\" (its min_rnr_timer).%s\n",
		       (double)rocelink_rnr_delay_us(
			       rocelink_rnr_delay_code(PP_DEMO_RNR_DELAY_US)) /
			       1e3,
		       pp->plan.act == PP_ACT_PATIENT
			       ? " The client's adapter repeated the packet "
				 "each time;\n   the program saw only a late "
				 "completion."
			       : "");
}

/* One SEND, and what became of it. */
static int send_one(struct pp *pp)
{
	uint64_t before = 0, after = 0, started;
	bool counted = pp_rnr_count(pp->ep[0]->qp, pp->info[0].gid.port, &before);
	struct ibv_wc wc = { 0 };
	int rc;

	started = pp_now();
	rc = pp_post_send(pp, 0, 0);
	if (rc)
		return rc;
	rc = pp_wait(pp, &wc);
	printf("   completed after %.1f ms with status %d (%s)\n",
	       (double)(pp_now() - started) / (double)NS_PER_MS, wc.status,
	       ibv_wc_status_str(wc.status));
	if (counted && pp_rnr_count(pp->ep[0]->qp, pp->info[0].gid.port, &after))
		explain_naks(pp, after - before);
	else
		puts("   (this device has no counter of RNR NAKs)");
	if (pp->plan.act != PP_ACT_GIVES_UP)
		return rc;
	if (wc.status != IBV_WC_RNR_RETRY_EXC_ERR)
		return rc ? rc
			  : pp_fail(&pp->err, ROCELINK_VERBS,
				    "the SEND was expected to fail with \"%s\"",
				    ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR));
	puts("   After the first attempt and 3 repeats the adapter gave up: the queue pair is in "
	     "the "
	     "error\n   state and everything else on it is flushed. This is the error that users "
	     "report as\n   \"RNR retry counter exceeded\"; its cause is at the other end.");
	return ROCELINK_OK;
}

static int play(struct pp *pp)
{
	int rc = pp_link_client(pp);

	if (rc == ROCELINK_OK && pp->plan.act == PP_ACT_SYNCED)
		rc = rocelink_conn_sync(pp->conn, "receive posted", NULL, PP_SYNC_US, &pp->err);
	if (rc == ROCELINK_OK)
		rc = send_one(pp);
	if (rc == ROCELINK_OK)
		rc = rocelink_conn_sync(pp->conn, "act over", NULL, PP_SYNC_US, &pp->err);
	if (rc == ROCELINK_OK)
		rc = rocelink_conn_close(pp->conn, &pp->err);
	if (rc)
		pp_report_failure(pp->o, &pp->err);
	return rc;
}

int pp_rnr_client(const struct pp_options *o)
{
	for (int act = PP_ACT_PATIENT; act < PP_ACTS; act++) {
		struct pp *pp = calloc(1, sizeof(*pp));
		int rc;

		if (!pp)
			return EXIT_FAILED;
		pp->o = o;
		pp->client = true;
		pp->plan = o->plan;
		pp->plan.act = (enum pp_act)act;
		puts(titles[act]);
		fflush(stdout);
		rc = play(pp);
		pp_unlink(pp);
		free(pp);
		if (rc)
			return EXIT_FAILED;
	}
	puts("So: post receives before READY (librocelink does it in this order), and sync before "
	     "each\nSEND that relies on more.");
	return EXIT_OK;
}
