/* SPDX-License-Identifier: BSD-2-Clause */
/* A frame's payload: two bytes of type and flags, then fields. What is accepted must come back the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "link/message.h"

static void check_round_trip(const struct message *m)
{
	struct buffer b = { 0 };
	struct message back;
	char why[200];

	message_encode(&b, m);
	if (b.failed)
		abort();
	if (message_decode(&back, m->type, 0, b.data + FRAME_HEADER_LEN, b.len - FRAME_HEADER_LEN,
			   why, sizeof(why)) != 0)
		abort();
	if (back.has != m->has || back.qp_count != m->qp_count || back.gid_count != m->gid_count ||
	    back.region_count != m->region_count || back.private_data_len != m->private_data_len ||
	    strcmp(back.name, m->name) != 0 || strcmp(back.text, m->text) != 0)
		abort();
	if (m->qp_count && memcmp(back.qps, m->qps, m->qp_count * sizeof(*m->qps)) != 0)
		abort();
	message_free(&back);
	buffer_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct message m;
	char why[200], text[1024];

	if (size < 2)
		return 0;
	if (message_decode(&m, data[0], (uint16_t)(data[1] << 8), data + 2, size - 2, why,
			   sizeof(why)) == 0) {
		message_describe(&m, text, sizeof(text));
		check_round_trip(&m);
	}
	message_free(&m);
	return 0;
}
