/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * probe: a small verbs program for what Debian's own programs can't show: verified data of every
 * operation, and errors provoked on purpose. It uses libibverbs only, so the same binary runs on
 * the adapter and on the kernel's driver; what it sees is printed as `name=value` for matrix.py.
 *
 *   probe gids                                          devices and their GID tables
 *   probe SCENE -d DEVICE -g INDEX [-p PORT] [-n N]     server
 *   probe SCENE ... HOST                                client: the requester
 *
 * The two ends exchange their values over TCP and pass the same barriers, so that the responder is
 * always ready before the requester acts, and looks at the outcome when the requester has it.
 */
#ifndef PROBE_H
#define PROBE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	REGION = 128 << 10, /* registered; as much again beyond it is mapped, not registered */
	DEPTH = 64,
	QKEY = 0x11223344,
	POLL_MS = 60000,
	QUIET_MS = 400, /* after which nothing more is expected to arrive */
};

struct values {
	unsigned int qpn, psn, rkey;
	unsigned long long va;
	union ibv_gid gid;
};

struct knobs {
	enum ibv_qp_type type;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	unsigned int qp_access, mr_access;
};

struct end {
	const char *device, *host, *port;
	int gid_index;
	unsigned int rounds;
	int sock;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	struct ibv_ah *ah; /* UD only */
	enum ibv_mtu mtu;
	uint8_t *buf;
	struct values mine, peer;
};

struct scene {
	const char *name;
	struct knobs knobs;
	void (*prepare)(struct end *); /* the responder, before the requester may act */
	void (*act)(struct end *);     /* the requester */
	void (*serve)(struct end *);   /* the responder, at the same time */
	void (*inspect)(struct end *); /* the responder, when the requester has finished */
};

extern const struct scene scenes[];
extern const size_t n_scenes;

/* end.c */
void end_open(struct end *e, const struct knobs *knobs);
void end_close(struct end *e);
void end_barrier(struct end *e);
void end_hang_up(struct end *e);
void post_receive(struct end *e, uint64_t wr_id, size_t offset, uint32_t len);
/* One SEND-queue work request on buf[offset, offset + len); remote offset as given. */
void post(struct end *e, uint64_t wr_id, enum ibv_wr_opcode op, size_t offset, uint32_t len,
	  size_t remote_offset);
void post_wr(struct end *e, struct ibv_send_wr *wr);
/* The next completion, or false after timeout_ms without one. */
bool next_wc(struct end *e, struct ibv_wc *wc, int timeout_ms);
const char *wc_name(enum ibv_wc_status status);
enum ibv_qp_state qp_state(struct end *e);
const char *state_name(enum ibv_qp_state state);
/* Name of the next asynchronous event, or "none" after QUIET_MS. */
const char *next_event(struct end *e);
uint64_t now_us(void);
void die(const char *what) __attribute__((noreturn));

/* data.c: verified data */
void data_prepare_rc(struct end *e);
void data_act_rc(struct end *e);
void data_serve_rc(struct end *e);
void data_prepare_datagram(struct end *e);
void data_act_datagram(struct end *e);
void data_serve_datagram(struct end *e);

/* forge.c: a UD SEND_ONLY with this P_Key from a plain UDP socket; IPv6 GIDs only. */
void forge_ud_send(const struct end *e, uint16_t pkey, uint32_t qkey, const void *payload,
		   uint32_t len);

#endif
