/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/security.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "link/fail.h"
#include "link/security_ctx.h"

enum { SECRET_MIN_LEN = 16, SECRET_MAX_LEN = 4096 };

static const char salt[] = "rocelink psk 1";
static const unsigned char session_context[] = { 'r', 'l' };

static int ssl_fail(struct rocelink_error *err, const char *what, const char *which)
{
	char text[200] = "unknown";
	unsigned long code = ERR_get_error();

	if (code)
		ERR_error_string_n(code, text, sizeof(text));
	ERR_clear_error();
	return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0, "%s%s%s: %s", what,
			 which ? " " : "", which ? which : "", text);
}

static int derive_key(struct security *s, const void *secret, size_t len,
		      struct rocelink_error *err)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret,
						  len),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt,
						  sizeof(salt) - 1),
		OSSL_PARAM_construct_end(),
	};
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
	bool ok = ctx && EVP_KDF_derive(ctx, s->psk, sizeof(s->psk), params) > 0;

	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	return ok ? ROCELINK_OK : ssl_fail(err, "deriving the key", NULL);
}

static int read_secret_file(const char *path, uint8_t *secret, size_t *len,
			    struct rocelink_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, errno,
				 "rocelink_security.secret_file %s", path);
	n = read(fd, secret, SECRET_MAX_LEN);
	close(fd);
	if (n < 0)
		return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, errno, "reading %s",
				 path);
	while (n > 0 && (secret[n - 1] == '\n' || secret[n - 1] == '\r'))
		n--;
	*len = (size_t)n;
	return ROCELINK_OK;
}

static int load_secret(struct security *s, const struct rocelink_security *o,
		       struct rocelink_error *err)
{
	uint8_t file[SECRET_MAX_LEN];
	const void *secret = o->secret;
	size_t len = o->secret_len;
	int rc = ROCELINK_OK;

	if (!secret) {
		rc = read_secret_file(o->secret_file, file, &len, err);
		secret = file;
	}
	if (!rc && len < SECRET_MIN_LEN)
		rc = link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			       "the secret has %zu bytes: at least %d unguessable ones are needed, "
			       "for example "
			       "from `openssl rand -hex 32`",
			       len, SECRET_MIN_LEN);
	if (!rc)
		rc = derive_key(s, secret, len, err);
	OPENSSL_cleanse(file, sizeof(file));
	return rc;
}

static SSL_SESSION *psk_session(const struct security *s, SSL *ssl)
{
	/* TLS_AES_128_GCM_SHA256 stands for "hash SHA-256" here. */
	static const unsigned char cipher_id[] = { 0x13, 0x01 };
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_id);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && cipher && SSL_SESSION_set1_master_key(session, s->psk, sizeof(s->psk)) &&
	    SSL_SESSION_set_cipher(session, cipher) &&
	    SSL_SESSION_set1_id_context(session, session_context, sizeof(session_context)) &&
	    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

static int use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
		   SSL_SESSION **session)
{
	const struct security *s = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	*session = NULL;
	/* After a HelloRetryRequest only a key of that hash can be offered. */
	if (md && EVP_MD_get_type(md) != NID_sha256)
		return 1;
	*id = (const unsigned char *)SECURITY_PSK_IDENTITY;
	*id_len = strlen(SECURITY_PSK_IDENTITY);
	*session = psk_session(s, ssl);
	return *session != NULL;
}

static int find_psk(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
	const struct security *s = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	*session = NULL;
	if (id_len == strlen(SECURITY_PSK_IDENTITY) &&
	    memcmp(id, SECURITY_PSK_IDENTITY, id_len) == 0)
		*session = psk_session(s, ssl);
	return 1;
}

static const unsigned char alpn[] = "\x0arocelink/1";

static int select_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
		       const unsigned char *in, unsigned in_len, void *arg)
{
	unsigned char *chosen;

	(void)ssl;
	(void)arg;
	if (SSL_select_next_proto(&chosen, out_len, alpn, sizeof(alpn) - 1, in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static int load_certificates(SSL_CTX *ctx, const struct rocelink_security *o,
			     struct rocelink_error *err)
{
	if (!o->cert_file || !o->key_file || !o->ca_file)
		return link_fail(
			err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			"rocelink_security: certificates need cert_file, key_file and ca_file, all "
			"three");
	if (SSL_CTX_use_certificate_chain_file(ctx, o->cert_file) != 1)
		return ssl_fail(err, "certificate", o->cert_file);
	if (SSL_CTX_use_PrivateKey_file(ctx, o->key_file, SSL_FILETYPE_PEM) != 1)
		return ssl_fail(err, "key", o->key_file);
	if (SSL_CTX_load_verify_file(ctx, o->ca_file) != 1)
		return ssl_fail(err, "CA file", o->ca_file);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return ROCELINK_OK;
}

static int make_ctx(struct security *s, const struct rocelink_security *o,
		    struct rocelink_error *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_method());

	if (!ctx)
		return ssl_fail(err, "SSL_CTX_new", NULL);
	s->ctx = ctx;
	SSL_CTX_set_app_data(ctx, s);
	SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	/* A secret is a session in OpenSSL's eyes, and those need a context where peers are
	 * verified. */
	SSL_CTX_set_session_id_context(ctx, session_context, sizeof(session_context));
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_ciphersuites(ctx, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256");
	SSL_CTX_set_alpn_protos(ctx, alpn, sizeof(alpn) - 1);
	SSL_CTX_set_alpn_select_cb(ctx, select_alpn, NULL);
	if (s->mode == ROCELINK_SECURITY_CERT)
		return load_certificates(ctx, o, err);
	/* A certificate in place of the secret can't be verified with no CA, so it fails. */
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_psk_use_session_callback(ctx, use_psk);
	SSL_CTX_set_psk_find_session_callback(ctx, find_psk);
	return load_secret(s, o, err);
}

static enum rocelink_security_mode resolve_mode(const struct rocelink_security *o)
{
	if (o->mode != ROCELINK_SECURITY_AUTO)
		return o->mode;
	if (o->cert_file || o->key_file || o->ca_file)
		return ROCELINK_SECURITY_CERT;
	return o->secret || o->secret_file ? ROCELINK_SECURITY_PSK : ROCELINK_SECURITY_AUTO;
}

int security_new(const struct rocelink_security *options, struct security **out,
		 struct rocelink_error *err)
{
	struct rocelink_security o = { 0 };
	struct security *s;
	int rc = ROCELINK_OK;

	if (options) {
		rc = link_check_size(options->size, sizeof(o), "rocelink_security", err);
		if (rc)
			return rc;
		link_copy_options(&o, sizeof(o), options, options->size);
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return link_no_memory(err);
	s->refs = 1;
	s->mode = resolve_mode(&o);
	if ((unsigned)s->mode > ROCELINK_SECURITY_CERT)
		rc = link_fail(err, ROCELINK_INVALID, ROCELINK_PHASE_NONE, 0,
			       "rocelink_security.mode is %d", o.mode);
	else if (s->mode == ROCELINK_SECURITY_PSK && !o.secret && !o.secret_file)
		rc = link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			       "rocelink_security: mode PSK needs secret or secret_file");
	if (!rc && o.peer_name) {
		s->peer_name = strdup(o.peer_name);
		if (!s->peer_name)
			rc = link_no_memory(err);
	}
	if (!rc && security_is_tls(s))
		rc = make_ctx(s, &o, err);
	if (rc) {
		security_unref(s);
		return rc;
	}
	*out = s;
	return ROCELINK_OK;
}

struct security *security_ref(struct security *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void security_unref(struct security *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	SSL_CTX_free(s->ctx);
	free(s->peer_name);
	OPENSSL_cleanse(s, sizeof(*s));
	free(s);
}

bool security_is_tls(const struct security *s)
{
	return s->mode == ROCELINK_SECURITY_PSK || s->mode == ROCELINK_SECURITY_CERT;
}

int security_check_plain(const struct security *s, bool local, struct rocelink_error *err)
{
	if (s->mode == ROCELINK_SECURITY_PLAIN || (s->mode == ROCELINK_SECURITY_AUTO && local))
		return ROCELINK_OK;
	return link_fail(err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
			 "this channel isn't known to stay on this machine, and an R_Key in plain "
			 "text is write "
			 "access to memory: set options.security to a secret or certificates on "
			 "both sides (or, "
			 "on a network you trust, to ROCELINK_SECURITY_PLAIN)");
}

int security_check_listen(const struct security *s, bool loopback, const char *at,
			  struct rocelink_error *err)
{
	if (loopback || s->mode != ROCELINK_SECURITY_AUTO)
		return ROCELINK_OK;
	return link_fail(
		err, ROCELINK_SECURITY, ROCELINK_PHASE_SECURE, 0,
		"listening on %s without security would let anyone who reaches it read "
		"R_Keys, which are write access to memory: set options.security to a secret "
		"or certificates, listen on \"localhost\", or, on a network you trust, ask "
		"for ROCELINK_SECURITY_PLAIN",
		strcmp(at, "*") == 0 ? "all addresses" : at);
}
