/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What both sides say over the socket about messages that UC and UD may have lost.
 *
 * A client to which nothing comes for a moment doesn't guess: a message may be late, and the server
 * still have to look at the memory that the next one would be written to. It asks; the server answers
 * once it has taken all that has come. So what is counted as lost is lost, on a busy machine too.
 * The server says its half of each question and of the end beforehand, and looks now and then, when
 * it has nothing else to do, whether the client has said the other.
 */
#include "tools/pingpong.h"

static const char question[] = "anything missing?", answer[] = "all taken";

int pp_lossy_ask(struct pp *pp)
{
	int rc = rocelink_conn_sync(pp->conn, question, NULL, PP_SYNC_US, &pp->err);

	return rc ? rc : rocelink_conn_sync(pp->conn, answer, NULL, PP_SYNC_US, &pp->err);
}

int pp_lossy_begin(struct pp *pp, const char *phase, struct pp_watch *w)
{
	int rc = rocelink_conn_sync_say(pp->conn, phase, NULL, &pp->err);

	*w = (struct pp_watch){ .phase = phase };
	if (rc == ROCELINK_OK && !pp->lossy_asked) {
		pp->lossy_asked = true;
		rc = rocelink_conn_sync_say(pp->conn, question, NULL, &pp->err);
	}
	return rc;
}

/* OK and *said, or OK and not; or why not. */
static int heard(struct pp *pp, const char *name, bool *said)
{
	int rc = rocelink_conn_sync_test(pp->conn, name, &pp->err);

	*said = rc == ROCELINK_OK;
	return rc == ROCELINK_AGAIN ? ROCELINK_OK : rc;
}

int pp_lossy_look(struct pp *pp, struct pp_watch *w)
{
	int rc = rocelink_conn_drive(pp->conn, &pp->err);

	w->quiet_us += PP_LOOK_US;
	if (rc == ROCELINK_OK && !w->over)
		rc = heard(pp, w->phase, &w->over);
	if (rc == ROCELINK_OK)
		rc = heard(pp, question, &w->asked);
	if (w->asked)
		w->quiet_us = 0;
	if (rc == ROCELINK_OK && w->quiet_us > PP_STALL_US)
		rc = pp_fail(&pp->err, ROCELINK_TIMEOUT, "the client said nothing for %d s",
			     PP_STALL_US / 1000000);
	return rc;
}

int pp_lossy_answer(struct pp *pp, struct pp_watch *w)
{
	int rc = rocelink_conn_sync(pp->conn, answer, NULL, PP_SYNC_US, &pp->err);

	w->asked = false;
	return rc ? rc : rocelink_conn_sync_say(pp->conn, question, NULL, &pp->err);
}

int pp_lossy_end(struct pp *pp, const char *phase, int rc)
{
	struct rocelink_error unheard;

	/* A client that asks is told; one that doesn't learns it at the barrier. */
	if (rc && !pp->client)
		rocelink_conn_sync_say(pp->conn, answer, pp->err.text, &unheard);
	if (pp->client)
		rc = pp_agree(pp, phase, rc);
	/* Messages of the next phase must not meet a server that is still in this one. */
	return pp_agree(pp, "next phase", rc);
}

int pp_lossy_count(struct pp *pp, unsigned *in_a_row)
{
	if (++*in_a_row < PP_LOST_IN_A_ROW)
		return ROCELINK_OK;
	return pp_fail(&pp->err, ROCELINK_TIMEOUT,
		       "nothing gets through: %d times in a row no message came; `rocelink doctor "
		       "HOST` tells whether UDP port 4791 is dropped on the way",
		       PP_LOST_IN_A_ROW);
}
