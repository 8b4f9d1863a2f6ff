/* SPDX-License-Identifier: BSD-2-Clause */
#include "certs.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct issuer {
	X509 *cert;
	EVP_PKEY *key;
};

static void must(int ok)
{
	if (!ok)
		abort();
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	must(ext && X509_add_ext(cert, ext, -1));
	X509_EXTENSION_free(ext);
}

static struct issuer make(const char *name, const struct issuer *by, const char *alt_names)
{
	static long serial = 1;
	struct issuer i = { X509_new(), EVP_EC_gen("P-256") };
	X509_NAME *subject = X509_get_subject_name(i.cert);

	must(i.cert && i.key);
	X509_set_version(i.cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(i.cert), serial++);
	X509_gmtime_adj(X509_getm_notBefore(i.cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(i.cert), 86400);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1,
				   0);
	X509_set_issuer_name(i.cert, by ? X509_get_subject_name(by->cert) : subject);
	X509_set_pubkey(i.cert, i.key);
	add_extension(i.cert, by ? by->cert : i.cert, NID_basic_constraints,
		      by ? "CA:FALSE" : "critical,CA:TRUE");
	if (alt_names)
		add_extension(i.cert, by ? by->cert : i.cert, NID_subject_alt_name, alt_names);
	must(X509_sign(i.cert, by ? by->key : i.key, EVP_sha256()) > 0);
	return i;
}

static void store(const struct issuer *i, const char *cert, const char *key)
{
	FILE *f = fopen(cert, "w");

	must(f && PEM_write_X509(f, i->cert));
	fclose(f);
	if (!key)
		return;
	f = fopen(key, "w");
	must(f && PEM_write_PrivateKey(f, i->key, NULL, NULL, 0, NULL, NULL));
	fclose(f);
}

static void drop(struct issuer *i)
{
	X509_free(i->cert);
	EVP_PKEY_free(i->key);
}

void certs_make(struct certs *c)
{
	struct issuer ca = make("test CA", NULL, NULL), other = make("other CA", NULL, NULL);
	struct issuer server = make("server", &ca, "DNS:localhost,IP:127.0.0.1");
	struct issuer client = make("client", &ca, NULL);
	struct issuer stranger = make("stranger", &other, "DNS:localhost,IP:127.0.0.1");

	strcpy(c->dir, "/tmp/rocelink-certs-XXXXXX");
	must(mkdtemp(c->dir) != NULL);
	snprintf(c->ca, sizeof(c->ca), "%s/ca", c->dir);
	snprintf(c->other_ca, sizeof(c->other_ca), "%s/other_ca", c->dir);
	snprintf(c->server, sizeof(c->server), "%s/server", c->dir);
	snprintf(c->server_key, sizeof(c->server_key), "%s/server_k", c->dir);
	snprintf(c->client, sizeof(c->client), "%s/client", c->dir);
	snprintf(c->client_key, sizeof(c->client_key), "%s/client_k", c->dir);
	snprintf(c->stranger, sizeof(c->stranger), "%s/stranger", c->dir);
	snprintf(c->stranger_key, sizeof(c->stranger_key), "%s/strange_k", c->dir);
	store(&ca, c->ca, NULL);
	store(&other, c->other_ca, NULL);
	store(&server, c->server, c->server_key);
	store(&client, c->client, c->client_key);
	store(&stranger, c->stranger, c->stranger_key);
	drop(&ca);
	drop(&other);
	drop(&server);
	drop(&client);
	drop(&stranger);
}

void certs_remove(struct certs *c)
{
	unlink(c->ca);
	unlink(c->other_ca);
	unlink(c->server);
	unlink(c->server_key);
	unlink(c->client);
	unlink(c->client_key);
	unlink(c->stranger);
	unlink(c->stranger_key);
	rmdir(c->dir);
}
