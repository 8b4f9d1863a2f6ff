/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/line.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "link/dialer.h"
#include "link/fail.h"
#include "link/gid.h"

enum {
	CHUNK = 16384,
	KEEPALIVE_IDLE_S = 10,
	KEEPALIVE_INTERVAL_S = 5,
	KEEPALIVE_COUNT = 4,
};

static ssize_t fd_send(void *arg, const void *data, size_t len)
{
	ssize_t n = send((int)(intptr_t)arg, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

static ssize_t fd_recv(void *arg, void *data, size_t len)
{
	ssize_t n = recv((int)(intptr_t)arg, data, len, MSG_DONTWAIT);

	return n < 0 ? -errno : n;
}

static void fd_shutdown(void *arg)
{
	shutdown((int)(intptr_t)arg, SHUT_WR);
}

static void fd_close(void *arg)
{
	close((int)(intptr_t)arg);
}

/* Small messages at once, and a peer whose machine is gone is noticed in about half a minute. */
static void set_options(int fd)
{
	int one = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S,
	    count = KEEPALIVE_COUNT;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

static void want(struct line *l, uint32_t events)
{
	struct epoll_event ev = { .events = events };

	if (l->channel.fd <= 0 || (l->polled && l->polling == events) || (!l->polled && !events))
		return;
	/* A descriptor that epoll can't watch (a file) is always ready: its owner drives. */
	if (!events)
		epoll_ctl(l->epfd, EPOLL_CTL_DEL, l->channel.fd, NULL);
	else
		epoll_ctl(l->epfd, l->polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, l->channel.fd, &ev);
	l->polled = events != 0;
	l->polling = events;
}

void line_init_channel(struct line *l, const struct rocelink_channel *channel, int epfd)
{
	memset(l, 0, sizeof(*l));
	l->channel = *channel;
	l->epfd = epfd;
	want(l, EPOLLIN);
}

void line_init_fd(struct line *l, int fd, int epfd)
{
	struct rocelink_channel channel = {
		.size = sizeof(channel),
		.arg = (void *)(intptr_t)fd,
		.send = fd_send,
		.recv = fd_recv,
		.shutdown = fd_shutdown,
		.close = fd_close,
		.fd = fd,
		.name = "socket",
	};
	socklen_t len;

	set_options(fd);
	line_init_channel(l, &channel, epfd);
	len = sizeof(l->peer);
	getpeername(fd, (struct sockaddr *)&l->peer, &len);
	len = sizeof(l->local);
	getsockname(fd, (struct sockaddr *)&l->local, &len);
}

bool line_is_local(const struct line *l)
{
	struct address a;

	if (l->peer.ss_family == AF_UNIX || l->local.ss_family == AF_UNIX)
		return true;
	return address_from_sockaddr(&a, (const struct sockaddr *)&l->peer) &&
	       address_is_loopback(&a) &&
	       address_from_sockaddr(&a, (const struct sockaddr *)&l->local) &&
	       address_is_loopback(&a);
}

int line_start(struct line *l, struct security *security, bool active, const char *host,
	       enum rocelink_role role, const uint8_t nonce[NONCE_LEN], bool meet,
	       enum rocelink_compat compat, const struct tracer *t, struct rocelink_error *err)
{
	char peer[64], local[64];
	int rc;

	sockaddr_text(&l->peer, peer, sizeof(peer));
	sockaddr_text(&l->local, local, sizeof(local));
	tracer_say(t, ROCELINK_STEP_CONNECTED, "%s %s, from %s",
		   l->outgoing ? "connected to" : "channel with",
		   l->peer.ss_family ? peer
		   : l->channel.name ? l->channel.name
				     : "the program's carrier",
		   l->local.ss_family ? local : "here");
	session_init(&l->session, role, nonce, meet, compat);
	if (security_is_tls(security)) {
		if (compat)
			return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_SECURE, 0,
					 "the ibv_*_pingpong programs can't do TLS: ask for "
					 "ROCELINK_SECURITY_PLAIN");
		return tls_new(security, active, host, &l->tls, err);
	}
	/* The stock programs' exchange carries no R_Key. */
	rc = compat ? ROCELINK_OK : security_check_plain(security, line_is_local(l), err);
	l->secured = rc == ROCELINK_OK;
	return rc;
}

/* Bytes to the channel. AGAIN when it takes no more now. */
static int send_buffer(struct line *l, struct buffer *b, struct rocelink_error *err)
{
	while (b->len) {
		size_t n = b->len;
		ssize_t sent;

		if (l->channel.max_message && n > l->channel.max_message)
			n = l->channel.max_message;
		sent = l->channel.send(l->channel.arg, b->data, n);
		if (sent == -EAGAIN || sent == -EWOULDBLOCK)
			return ROCELINK_AGAIN;
		if (sent == -EINTR)
			continue;
		if (sent < 0)
			return link_fail(err, ROCELINK_NETWORK, ROCELINK_PHASE_NONE, (int)-sent,
					 "sending to the peer");
		buffer_consume(b, (size_t)sent);
	}
	return ROCELINK_OK;
}

int line_flush(struct line *l, struct rocelink_error *err)
{
	struct buffer *out = &l->session.out;
	int rc = ROCELINK_OK;

	if (l->out_ended)
		return ROCELINK_OK;
	if (l->tls) {
		if (l->secured && out->len) {
			rc = tls_write(l->tls, out->data, out->len, err);
			if (rc)
				return rc;
			buffer_consume(out, out->len);
		}
		out = tls_out(l->tls);
	}
	if (l->tls || l->secured)
		rc = send_buffer(l, out, err);
	want(l, (l->in_ended ? 0u : EPOLLIN) | (rc == ROCELINK_AGAIN ? EPOLLOUT : 0u));
	if (rc == ROCELINK_OK && (l->session.said_bye || l->session.dead)) {
		if (l->tls && l->secured) {
			tls_shutdown(l->tls);
			send_buffer(l, tls_out(l->tls), NULL);
		}
		if (l->channel.shutdown)
			l->channel.shutdown(l->channel.arg);
		l->out_ended = true;
	}
	return rc == ROCELINK_AGAIN ? ROCELINK_OK : rc;
}

bool line_is_flushed(const struct line *l)
{
	return l->session.out.len == 0 && (!l->tls || tls_out(l->tls)->len == 0);
}

void line_refuse_plain(struct line *l, enum rocelink_reason reason, const char *text)
{
	struct session s;

	session_init(&s, ROCELINK_PASSIVE, l->session.nonce, false, ROCELINK_COMPAT_NONE);
	session_decline(&s, reason, 0, text);
	send_buffer(l, &s.out, NULL);
	session_free(&s);
}

static int handshake(struct line *l, const struct tracer *t, struct rocelink_error *err)
{
	char cipher[100], identity[128];
	int rc = tls_handshake(l->tls, err);

	if (rc == ROCELINK_AGAIN)
		return rc;
	if (rc) {
		line_flush(l, NULL);
		/* One that speaks TLS was told by an alert. */
		if (!l->outgoing && tls_peer_is_plain(l->tls))
			line_refuse_plain(l, ROCELINK_REASON_AUTH,
					  "this side wants TLS: set options.security");
		return rc;
	}
	l->secured = true;
	tls_describe(l->tls, cipher, sizeof(cipher));
	tls_identity(l->tls, identity, sizeof(identity));
	tracer_say(t, ROCELINK_STEP_SECURED, "%s; the peer is authenticated by: %s", cipher,
		   identity);
	return ROCELINK_OK;
}

/* Plain text out of TLS into the session. */
static int decrypt(struct line *l, const struct tracer *t, struct rocelink_error *err)
{
	uint8_t plain[CHUNK];
	ssize_t n;
	int rc;

	if (!l->secured) {
		rc = handshake(l, t, err);
		if (rc)
			return rc == ROCELINK_AGAIN ? ROCELINK_OK : rc;
	}
	while ((n = tls_read(l->tls, plain, sizeof(plain), err)) > 0)
		if (!session_receive(&l->session, plain, (size_t)n))
			return link_no_memory(err);
	if (n == 0)
		l->in_ended = true;
	return n == -EPROTO ? ROCELINK_SECURITY : ROCELINK_OK;
}

/* A listener that turns its peer away before TLS says so in plain text. */
static int take_refusal(struct line *l, const uint8_t *data, size_t len, struct rocelink_error *err)
{
	buffer_put(&l->plain, data, len);
	return l->plain.failed ? link_no_memory(err)
			       : session_plain_refusal(l->plain.data, l->plain.len, err);
}

static int take(struct line *l, const uint8_t *data, size_t len, const struct tracer *t,
		struct rocelink_error *err)
{
	if (l->tls && l->outgoing && !l->tls_began &&
	    (l->plain.len || !session_is_foreign(data, len))) {
		int rc = take_refusal(l, data, len, err);

		return rc == ROCELINK_AGAIN ? ROCELINK_OK : rc;
	}
	if (l->tls) {
		l->tls_began = true;
		if (!tls_feed(l->tls, data, len))
			return link_no_memory(err);
		return decrypt(l, t, err);
	}
	return session_receive(&l->session, data, len) ? ROCELINK_OK : link_no_memory(err);
}

static int receive(struct line *l, const struct tracer *t, struct rocelink_error *err)
{
	uint8_t chunk[CHUNK];
	ssize_t n;

	if (l->in_ended)
		return ROCELINK_AGAIN;
	if (l->channel.max_message > sizeof(chunk))
		return link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
				 "rocelink_channel.max_message is above %d", CHUNK);
	/* One chunk at a time: the session's input stays bounded, epoll tells of the rest. */
	n = l->channel.recv(l->channel.arg, chunk, sizeof(chunk));
	if (n == -EAGAIN || n == -EWOULDBLOCK || n == -EINTR)
		return ROCELINK_AGAIN;
	if (n < 0)
		return link_fail(err, ROCELINK_NETWORK, ROCELINK_PHASE_NONE, (int)-n,
				 "receiving from the peer");
	if (n > 0)
		return take(l, chunk, (size_t)n, t, err);
	l->in_ended = true;
	if (l->tls && !l->secured)
		return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0, "%s",
				 l->plain.len
					 ? "the peer speaks plain text and this side TLS: set "
					   "the same options.security on both sides"
					 : "the peer closed the channel in the TLS handshake: "
					   "does it use TLS too, and does it trust this side?");
	return ROCELINK_OK;
}

int line_drive(struct line *l, const struct tracer *t, struct rocelink_error *err)
{
	int rc, sent;

	if (l->tls && !l->secured && l->outgoing) {
		rc = handshake(l, t, err);
		if (rc && rc != ROCELINK_AGAIN)
			return rc;
	}
	sent = line_flush(l, err);
	/* What the peer said before it closed matters more than that we couldn't send. */
	if (sent && sent != ROCELINK_NETWORK)
		return sent;
	rc = receive(l, t, sent ? NULL : err);
	if (rc == ROCELINK_AGAIN && sent)
		return sent;
	if (rc == ROCELINK_OK)
		line_flush(l, NULL);
	return rc;
}

void line_close(struct line *l)
{
	if (l->channel.fd > 0 && l->polled)
		epoll_ctl(l->epfd, EPOLL_CTL_DEL, l->channel.fd, NULL);
	if (l->channel.close)
		l->channel.close(l->channel.arg);
	tls_free(l->tls);
	buffer_free(&l->plain);
	session_free(&l->session);
	memset(l, 0, sizeof(*l));
}
