/* SPDX-License-Identifier: BSD-2-Clause */
/* Certificates made on the spot, in a directory of their own. */
#ifndef TESTS_LINK_CERTS_H
#define TESTS_LINK_CERTS_H

struct certs {
	char dir[64];
	char ca[80], other_ca[80];
	char server[80], server_key[80];     /* for localhost and 127.0.0.1, by ca */
	char client[80], client_key[80];     /* by ca */
	char stranger[80], stranger_key[80]; /* for localhost, by other_ca */
};

void certs_make(struct certs *c);
void certs_remove(struct certs *c);

#endif
