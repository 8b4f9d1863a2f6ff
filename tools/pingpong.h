/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `rocelink pingpong`: two queue pairs connected by librocelink, then measured.
 *
 * The client's options are the plan; it travels as text in the private data of HELLO, so that the
 * server needs none. An option that the server was given too must agree, or it refuses. With
 * --compat there is no plan: both sides must be started alike, as the stock programs have it.
 *
 * Both sides lay out their memory alike, from the plan alone: `depth` slots to send from, then
 * `depth` slots (times queue pairs) that the peer's messages arrive in.
 */
#ifndef ROCELINK_TOOLS_PINGPONG_H
#define ROCELINK_TOOLS_PINGPONG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "rocelink/rocelink.h"

enum pp_type { PP_RC, PP_UC, PP_UD, PP_XRC };
enum pp_op { PP_SEND, PP_WRITE, PP_READ, PP_FETCH_ADD, PP_CMP_SWAP };
enum pp_compat { PP_NATIVE, PP_IBV, PP_IBV_SRQ };

/* The acts of --rnr-demo; 0: no demo. */
enum pp_act { PP_NO_DEMO, PP_ACT_PATIENT, PP_ACT_GIVES_UP, PP_ACT_SYNCED, PP_ACTS };

enum {
	PP_GRH = 40, /* before each UD message in its receive buffer */
	PP_MAX_QPS = 64,
	PP_MAX_DEPTH = 16,
	PP_STALL_US = 10 * 1000 * 1000,
	/* The other side notices a stall later than this one. */
	PP_SYNC_US = 2 * PP_STALL_US,
	/* RNR NAKs of the demonstration come at a pace that a person can count. */
	PP_DEMO_RNR_DELAY_US = 10000,
	PP_DEMO_RNR_RETRIES = 3,
	/* UC and UD: after so long without a message the client asks the server. */
	PP_LOSS_US = 50 * 1000,
	/* How often a server that has nothing to do looks whether it is asked. */
	PP_LOOK_US = 5 * 1000,
	/* So often nothing: then nothing gets through. */
	PP_LOST_IN_A_ROW = 40,
};

#define PP_MAX_SIZE  (UINT32_C(256) << 20)
#define PP_MAX_ITERS 10000000
#define PP_REGION    "pingpong"
#define PP_SERVICE   "rocelink-pingpong/1"

struct pp_plan {
	enum pp_type type;
	enum pp_op op;
	uint32_t size;
	unsigned iters;
	bool verify;
	bool immediate; /* WRITE with immediate: the client sleeps on events */
	enum pp_act act;
};

/* Which members of the plan the command line has said. */
enum pp_said { SAID_TYPE = 1, SAID_OP = 2, SAID_SIZE = 4, SAID_ITERS = 8, SAID_VERIFY = 16 };

struct pp_options {
	const char *host; /* of the server; NULL: we are the server */
	const char *service, *listen, *device, *secret_file;
	int gid_index; /* -1: by the route */
	uint8_t ib_port;
	unsigned mtu, qps;
	bool events, explain, json, plain, rnr_demo;
	enum pp_compat compat;
	struct pp_plan plan;
	unsigned said; /* enum pp_said */
};

struct pp {
	const struct pp_options *o;
	struct pp_plan plan;
	bool client;
	struct rocelink_gid gid; /* with -g */
	bool has_gid;
	struct rocelink_conn *conn;
	struct rocelink_endpoint *ep[PP_MAX_QPS];
	struct rocelink_qp_info info[PP_MAX_QPS];
	unsigned qps, depth;
	/* XRC: what our half receives with. */
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *target;
	uint8_t *buf;
	size_t buf_len, stride;
	struct ibv_mr *mr;
	struct rocelink_remote_region remote;
	bool first_posted, first_completed; /* told by --explain */

	uint64_t *samples; /* ns, of the measured kind */
	unsigned n_samples;
	uint64_t latency_ns, stream_ns; /* of all iterations together; 0: not measured */
	uint64_t arrived;		/* messages of the stream */
	uint64_t unanswered;		/* exchanges of which a message was lost */
	bool lossy_asked;		/* pingpong_lossy.c */
	uint64_t verified;		/* messages */
	struct rocelink_error err;
};

/* pingpong_options.c: 0, or the exit status + 1. */
int pp_options_parse(struct pp_options *o, int argc, char **argv);
const char *pp_type_name(enum pp_type type);
const char *pp_op_name(enum pp_op op);
bool pp_type_parse(const char *name, enum pp_type *type);
bool pp_op_parse(const char *name, enum pp_op *op);
/* Whether this type can do this operation; else the sentence in err->text. */
int pp_plan_check(const struct pp_plan *plan, struct rocelink_error *err);

/* pingpong_plan.c */
void pp_plan_write(const struct pp_plan *plan, char *text, size_t len);
bool pp_plan_read(struct pp_plan *plan, const char *text, size_t len);
/* Fill *plan from the peer's; what the server's own options contradict is an error. */
int pp_plan_accept(struct pp_plan *plan, const struct pp_options *o,
		   const struct rocelink_conn *conn, struct rocelink_error *err);

/* pingpong_link.c: all return enum rocelink_code with pp->err filled. */
int pp_listen(const struct pp_options *o, struct rocelink_listener **l, struct rocelink_error *err);
int pp_link_client(struct pp *pp);
int pp_link_server(struct pp *pp, struct rocelink_listener *l);
void pp_unlink(struct pp *pp);

/* pingpong_xrc.c: the same. On endpoints that are open; close them after. */
int pp_xrc_open(struct pp *pp);
int pp_xrc_add(struct pp *pp, const struct rocelink_qp_options *options);
void pp_xrc_close(struct pp *pp);

/* pingpong_memory.c */
int pp_memory_make(struct pp *pp);
uint8_t *pp_send_slot(const struct pp *pp, uint64_t seq);
uint8_t *pp_recv_slot(const struct pp *pp, unsigned qp, uint64_t seq);
/* What the last byte of a polled WRITE says. */
uint8_t pp_flag(const struct pp *pp, uint64_t seq);
/* The peer's address for our message number seq. */
uint64_t pp_remote_slot(const struct pp *pp, uint64_t seq);
void pp_fill(const struct pp *pp, uint8_t *at, uint64_t seq, bool from_client);
/* Every byte; an error names the first wrong one. Counts it in pp->verified. */
int pp_check(struct pp *pp, const uint8_t *at, uint64_t seq, bool from_client);

/* pingpong_post.c */
int pp_post_recv(struct pp *pp, unsigned qp, uint64_t seq);
int pp_post_send(struct pp *pp, unsigned qp, uint64_t seq);
int pp_post_read(struct pp *pp, uint64_t seq);
/* With the message's number as immediate value, on the first queue pair. */
int pp_post_numbered(struct pp *pp, uint64_t seq, uint32_t number);
/* An empty SEND with an immediate value: how many have come; exact if nothing is under way. */
#define PP_COUNT_EXACT 0x80000000u
int pp_post_count(struct pp *pp, uint32_t count);
int pp_wait(struct pp *pp, struct ibv_wc *wc);
/* The same for so long; ROCELINK_TIMEOUT is no failure of the service then. */
int pp_wait_for(struct pp *pp, uint64_t timeout_us, struct ibv_wc *wc);
bool pp_wc_is_recv(const struct ibv_wc *wc);
unsigned pp_wc_qp(const struct ibv_wc *wc);
uint64_t pp_now(void);

/* pingpong_run.c: the measurement, on a linked pp. */
int pp_run(struct pp *pp);
/* Both say how it went; a failure on either side is an error on both. */
int pp_agree(struct pp *pp, const char *name, int rc);

/* pingpong_run.c: one more of the samples. */
void pp_sample(struct pp *pp, uint64_t ns);

/* pingpong_echo.c: the first half on UC and UD. *received: how many receives were used. */
int pp_echo(struct pp *pp, uint64_t *received);

/* pingpong_stream.c: the second half; `base` is the first message's number, `received` how many
 * receives were used before. */
int pp_stream(struct pp *pp, uint64_t base, uint64_t received);
/* Does the service repeat what is lost? */
bool pp_reliable(const struct pp *pp);
void pp_progress(const struct pp *pp, const char *what, uint64_t done);

/* pingpong_lossy.c. The client: after this all that has come to the server is taken. */
int pp_lossy_ask(struct pp *pp);
/* The server, in a phase that the client ends by the barrier of this name. */
struct pp_watch {
	const char *phase;
	bool over;  /* the client has come to the barrier */
	bool asked; /* it waits for an answer */
	uint64_t quiet_us;
};
int pp_lossy_begin(struct pp *pp, const char *phase, struct pp_watch *w);
/* Whenever nothing came for PP_LOOK_US. */
int pp_lossy_look(struct pp *pp, struct pp_watch *w);
int pp_lossy_answer(struct pp *pp, struct pp_watch *w);
/* Both sides: the end of the phase, as pp_agree(). */
int pp_lossy_end(struct pp *pp, const char *phase, int rc);
/* Once more everything that was out is lost: an error if that goes on. */
int pp_lossy_count(struct pp *pp, unsigned *in_a_row);

/* pingpong_arrival.c */
int pp_check_length(struct pp *pp, const struct ibv_wc *wc, uint64_t seq);
/* A SEND is in slot *received: check it, count it, post the receive for a later one. */
int pp_take_received(struct pp *pp, const struct ibv_wc *wc, uint64_t *received);
/* A message with its number in the immediate value: check it, post the receive again. */
int pp_take_numbered(struct pp *pp, const struct ibv_wc *wc, uint64_t *received, uint64_t *seq);
/* Watch the last byte of the slots of polled WRITEs first ... first + n - 1, count send completions
 * on the way. ROCELINK_TIMEOUT if none is there for so long. */
int pp_watch_flags(struct pp *pp, uint64_t first, uint64_t n, uint64_t timeout_us,
		   uint64_t *completed, uint64_t *seq);
/* The answer to READ or atomic number seq. */
int pp_check_answer(struct pp *pp, uint64_t seq);

/* pingpong_report.c */
void pp_report(struct pp *pp);
void pp_report_failure(const struct pp_options *o, const struct rocelink_error *err);

/* pingpong_explain.c */
void pp_explain_trace(void *arg, const struct rocelink_trace *trace);
void pp_explain(const struct pp *pp, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* pingpong_rnr.c: the exit status. */
int pp_rnr_client(const struct pp_options *o);
int pp_rnr_act_server(struct pp *pp);
/* RNR NAKs that this side's queue pairs have received so far; false: this device doesn't say. */
bool pp_rnr_count(const struct ibv_qp *qp, uint8_t port, uint64_t *n);

int pp_fail(struct rocelink_error *err, enum rocelink_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
