/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading a capture file (pcap, pcapng) through libpcap, and the link layers in it. */
#ifndef ROCELINK_TOOLS_DECODE_CAPTURE_H
#define ROCELINK_TOOLS_DECODE_CAPTURE_H

#include <stdio.h>

#include "tools/decode_frame.h"

struct capture;

/* Open the file ("-": standard input). NULL with a sentence in error. */
struct capture *capture_open(const char *path, char *error, size_t error_len);
/* The same for an open stream, which then belongs to the capture, also when this fails. */
struct capture *capture_open_stream(FILE *stream, char *error, size_t error_len);
void capture_close(struct capture *c);

/*
 * The next frame: 1; 0 at the end; -EBADMSG when the file is cut off or corrupt, with the sentence
 * in capture_error(). The frame's bytes live until the next call.
 */
int capture_next(struct capture *c, struct frame *f);
const char *capture_error(struct capture *c);

#endif
