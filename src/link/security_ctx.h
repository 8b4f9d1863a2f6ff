/* SPDX-License-Identifier: BSD-2-Clause */
/* What security.c (configuration) and tls.c (one session) share. */
#ifndef ROCELINK_LINK_SECURITY_CTX_H
#define ROCELINK_LINK_SECURITY_CTX_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "link/security.h"

#define SECURITY_PSK_IDENTITY "rocelink"

struct security {
	atomic_uint refs;
	enum rocelink_security_mode mode; /* AUTO: plain text, on local channels only */
	SSL_CTX *ctx;			  /* with TLS */
	char *peer_name;
	uint8_t psk[32];
};

#endif
