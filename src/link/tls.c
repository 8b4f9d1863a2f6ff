/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "link/fail.h"
#include "link/security_ctx.h"
#include "link/session.h"

struct tls {
	SSL *ssl;
	BIO *rbio, *wbio; /* owned by ssl */
	struct security *security;
	struct buffer out;
	uint8_t first[4]; /* of the peer's bytes, to know plain text when we see it */
	size_t first_len;
	bool active, complete;
};

static int set_name(struct tls *t, const char *host, struct rocelink_error *err)
{
	const char *name = t->security->peer_name ? t->security->peer_name : host;
	struct in6_addr ip;
	X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
	bool ok;

	if (!name)
		return link_fail(
			err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			"rocelink_security.peer_name is needed on a channel that has no host name");
	if (inet_pton(AF_INET, name, &ip) == 1 || inet_pton(AF_INET6, name, &ip) == 1)
		ok = X509_VERIFY_PARAM_set1_ip_asc(param, name);
	else
		ok = SSL_set1_host(t->ssl, name) && SSL_set_tlsext_host_name(t->ssl, name);
	return ok ? ROCELINK_OK
		  : link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			      "\"%s\" can't be checked against a certificate", name);
}

int tls_new(struct security *s, bool active, const char *host, struct tls **out,
	    struct rocelink_error *err)
{
	struct tls *t = calloc(1, sizeof(*t));
	int rc = ROCELINK_OK;

	if (!t)
		return link_no_memory(err);
	t->security = security_ref(s);
	t->active = active;
	t->ssl = SSL_new(s->ctx);
	t->rbio = BIO_new(BIO_s_mem());
	t->wbio = BIO_new(BIO_s_mem());
	if (!t->ssl || !t->rbio || !t->wbio) {
		BIO_free(t->rbio);
		BIO_free(t->wbio);
		tls_free(t);
		return link_no_memory(err);
	}
	SSL_set_bio(t->ssl, t->rbio, t->wbio);
	if (active)
		SSL_set_connect_state(t->ssl);
	else
		SSL_set_accept_state(t->ssl);
	if (active && s->mode == ROCELINK_SECURITY_CERT)
		rc = set_name(t, host, err);
	if (rc) {
		tls_free(t);
		return rc;
	}
	*out = t;
	return ROCELINK_OK;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	SSL_free(t->ssl);
	security_unref(t->security);
	buffer_free(&t->out);
	free(t);
}

bool tls_feed(struct tls *t, const void *data, size_t len)
{
	if (t->first_len < sizeof(t->first)) {
		size_t n = sizeof(t->first) - t->first_len;

		n = len < n ? len : n;
		memcpy(t->first + t->first_len, data, n);
		t->first_len += n;
	}
	return len <= INT_MAX && BIO_write(t->rbio, data, (int)len) == (int)len;
}

static void collect(struct tls *t)
{
	char *data;
	long len = BIO_get_mem_data(t->wbio, &data);

	if (len > 0) {
		buffer_put(&t->out, data, (size_t)len);
		(void)BIO_reset(t->wbio);
	}
}

struct buffer *tls_out(struct tls *t)
{
	collect(t);
	return &t->out;
}

bool tls_peer_is_plain(const struct tls *t)
{
	return t->first_len == sizeof(t->first) && !session_is_foreign(t->first, sizeof(t->first));
}

static int handshake_failed(struct tls *t, struct rocelink_error *err)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;
	long verify = SSL_get_verify_result(t->ssl);

	ERR_clear_error();
	if (tls_peer_is_plain(t))
		return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
				 "the peer speaks plain text and this side TLS: set the same "
				 "options.security "
				 "on both sides");
	/* OpenSSL calls it "binder does not verify" here and "illegal parameter" there. */
	if (t->security->mode == ROCELINK_SECURITY_PSK && !t->complete)
		return link_fail(
			err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			"the peer doesn't have this side's secret: give both sides the same "
			"rocelink_security.secret or secret_file (a secret, not certificates)");
	if (verify != X509_V_OK)
		return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
				 "the peer's certificate isn't accepted: %s. It must be signed by "
				 "this side's ca_file, be valid today and carry the name that was "
				 "connected to, or peer_name",
				 X509_verify_cert_error_string(verify));
	return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			 "TLS with the peer failed (%s): does the peer use certificates too, and "
			 "does its ca_file lead to this side's, which has to be valid today?",
			 reason ? reason : "no reason given");
}

int tls_handshake(struct tls *t, struct rocelink_error *err)
{
	int rc;

	if (t->complete)
		return ROCELINK_OK;
	ERR_clear_error();
	rc = SSL_do_handshake(t->ssl);
	collect(t);
	if (rc != 1)
		return SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ && !tls_peer_is_plain(t)
			       ? link_again(err)
			       : handshake_failed(t, err);
	/* With a secret the handshake "resumes" the session made of it; anything else isn't it. */
	if (t->security->mode == ROCELINK_SECURITY_PSK && !SSL_session_reused(t->ssl))
		return handshake_failed(t, err);
	t->complete = true;
	return ROCELINK_OK;
}

ssize_t tls_read(struct tls *t, void *data, size_t len, struct rocelink_error *err)
{
	size_t n;
	int rc;

	ERR_clear_error();
	if (SSL_read_ex(t->ssl, data, len, &n) == 1)
		return (ssize_t)n;
	rc = SSL_get_error(t->ssl, 0);
	collect(t);
	if (rc == SSL_ERROR_WANT_READ)
		return -EAGAIN;
	if (rc == SSL_ERROR_ZERO_RETURN)
		return 0;
	handshake_failed(t, err);
	return -EPROTO;
}

int tls_write(struct tls *t, const void *data, size_t len, struct rocelink_error *err)
{
	size_t n;

	ERR_clear_error();
	if (len && SSL_write_ex(t->ssl, data, len, &n) != 1)
		return handshake_failed(t, err);
	collect(t);
	return t->out.failed ? link_no_memory(err) : ROCELINK_OK;
}

void tls_shutdown(struct tls *t)
{
	ERR_clear_error();
	SSL_shutdown(t->ssl);
	collect(t);
}

void tls_describe(const struct tls *t, char *buf, size_t len)
{
	snprintf(buf, len, "%s, %s", SSL_get_version(t->ssl), SSL_get_cipher(t->ssl));
}

void tls_identity(const struct tls *t, char *buf, size_t len)
{
	X509 *cert = SSL_get0_peer_certificate(t->ssl);
	char name[256];

	if (t->security->mode == ROCELINK_SECURITY_PSK) {
		snprintf(buf, len, "shared secret");
		return;
	}
	buf[0] = '\0';
	if (cert && X509_NAME_oneline(X509_get_subject_name(cert), name, sizeof(name)))
		link_clean_text(buf, len, name, strlen(name));
}
