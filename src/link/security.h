/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLS 1.3 over any byte channel (docs/protocol.md, section 9). OpenSSL sees memory only; the caller
 * carries the bytes, so the same code serves sockets, callbacks and tests.
 */
#ifndef ROCELINK_LINK_SECURITY_H
#define ROCELINK_LINK_SECURITY_H

#include "link/buffer.h"
#include "rocelink/rocelink.h"

/* What a connection or listener was configured with; shared by reference. */
struct security;

/* options NULL: AUTO. */
int security_new(const struct rocelink_security *options, struct security **out,
		 struct rocelink_error *err);
struct security *security_ref(struct security *s);
void security_unref(struct security *s);

/* May peers be listened for on addresses that are (or aren't) loopback ones? `at` is for the text. */
int security_check_listen(const struct security *s, bool loopback, const char *at,
			  struct rocelink_error *err);
bool security_is_tls(const struct security *s);
/* May plain text be spoken on a channel that does not leave the machine (or may)? */
int security_check_plain(const struct security *s, bool local, struct rocelink_error *err);

/* One TLS session. */
struct tls;

/* `host` is what the active side connected to, for the certificate's name; NULL on the passive
 * side. */
int tls_new(struct security *s, bool active, const char *host, struct tls **out,
	    struct rocelink_error *err);
void tls_free(struct tls *t);

/* Bytes from the peer. */
bool tls_feed(struct tls *t, const void *data, size_t len);
/* OK when complete, AGAIN when more from the peer is needed. Bytes for the peer are in tls_out().
 */
int tls_handshake(struct tls *t, struct rocelink_error *err);
/* Ciphertext to be sent; consume what was. */
struct buffer *tls_out(struct tls *t);
/* >0 bytes of plain text; 0 end of stream (close_notify); -EAGAIN; -EPROTO with *err. */
ssize_t tls_read(struct tls *t, void *data, size_t len, struct rocelink_error *err);
int tls_write(struct tls *t, const void *data, size_t len, struct rocelink_error *err);
void tls_shutdown(struct tls *t);

/* "TLSv1.3, TLS_AES_128_GCM_SHA256" and who the peer is. */
void tls_describe(const struct tls *t, char *buf, size_t len);
void tls_identity(const struct tls *t, char *buf, size_t len);
/* It began with the magic of this protocol instead of TLS. */
bool tls_peer_is_plain(const struct tls *t);

#endif
