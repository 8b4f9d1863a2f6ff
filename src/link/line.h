/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A channel that is open, its TLS and its session, moving bytes between them without blocking. The
 * owner takes messages out of line->session after each line_drive().
 *
 *	channel <-> tls (or nothing) <-> session
 *
 * `channel` is the program's, or a socket behind the same callbacks.
 */
#ifndef ROCELINK_LINK_LINE_H
#define ROCELINK_LINK_LINE_H

#include <sys/socket.h>

#include "link/security.h"
#include "link/session.h"
#include "link/trace.h"

struct line {
	struct rocelink_channel channel;
	int epfd;
	bool polled;	  /* channel.fd is in epfd */
	uint32_t polling; /* for these events */
	struct tls *tls;
	struct buffer plain; /* that came where the peer's TLS was expected: perhaps a refusal */
	bool tls_began;	     /* the peer's first bytes were TLS's */
	bool secured;
	struct session session;
	bool in_ended;			     /* end of stream read */
	bool out_ended;			     /* shutdown was called */
	bool outgoing;			     /* we connected */
	struct sockaddr_storage peer, local; /* AF_UNSPEC on a channel of the program's */
};

/* Around a connected socket, which belongs to the line from now on. */
void line_init_fd(struct line *l, int fd, int epfd);
void line_init_channel(struct line *l, const struct rocelink_channel *channel, int epfd);

/* Both ends on this machine, as far as addresses tell. */
bool line_is_local(const struct line *l);

/* Begin: check the security, start TLS, queue the greeting. */
int line_start(struct line *l, struct security *security, bool active, const char *host,
	       enum rocelink_role role, const uint8_t nonce[NONCE_LEN], bool meet,
	       enum rocelink_compat compat, const struct tracer *t, struct rocelink_error *err);

/*
 * Move bytes. OK: something was read (perhaps the end of the stream, in_ended): look for messages
 * and call again. AGAIN: nothing more now. Otherwise the channel or TLS has failed.
 */
int line_drive(struct line *l, const struct tracer *t, struct rocelink_error *err);

/* Send what is queued, as far as the channel takes it. */
int line_flush(struct line *l, struct rocelink_error *err);
/* All that was queued is sent. */
bool line_is_flushed(const struct line *l);

/* To a peer whose TLS has not begun: why there will be none, in plain text (section 3). */
void line_refuse_plain(struct line *l, enum rocelink_reason reason, const char *text);

void line_close(struct line *l);

#endif
