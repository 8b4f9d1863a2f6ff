/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The port: this process's share of the host's UDP port 4791.
 *
 * Receive. Every process binds 4791 for IPv4 and IPv6 (wildcard, SO_REUSEPORT). The header names
 * only a queue pair, so the 24-bit QPN space is cut into 4096 blocks of 4096 and a process owns a
 * block by binding the abstract unix datagram socket "rocelink/<block>": atomic, per network
 * namespace, freed by the kernel at any death. What arrives in the wrong process is passed to the
 * block's owner over that socket (whole GRO bursts; senders of another uid are refused). To make
 * that rare, a process that expects a flow (peer address, peer's UDP source port) opens a socket of
 * its own bound to 4791 and connected to it: the kernel prefers connected sockets. Flows are
 * announced when a connected QP learns its peer (port_flow_get), and learnt from forwarded bursts.
 * Correctness never depends on them.
 *
 * Send. From unconnected sockets (the kernel then sends IPv4 ID 0, 1, 2 ... within a segmented
 * send), one per UDP source port: the port is a function of both QPN blocks (port_sport), so that
 * flows between two processes have a 4-tuple of their own and the receiver can compute it. Where
 * that port is taken, another is.
 *
 * Threads: the caller serialises all calls (the engine's lock), port_wait_fd() apart.
 */
#ifndef ROCELINK_NET_PORT_H
#define ROCELINK_NET_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/outbox.h"
#include "wire/packet.h"
#include "wire/path.h"

#define QPN_BLOCK_BITS 12
#define QPN_BLOCKS     4096

/* The block of a queue pair number, and so its process. */
static inline uint32_t qpn_block(uint32_t qpn)
{
	return qpn >> QPN_BLOCK_BITS;
}

struct port;

/* A run of equal-sized packets (the last may be shorter) of one flow, as one receive call gave
 * them. The path is the packets' own: sgid the sender. Valid until the handler returns. */
struct burst {
	struct path path;
	const uint8_t *data;
	size_t len;
	size_t seg_len;
};

struct port_callbacks {
	/* Packets for this process, or (block not ours) garbage. */
	void (*receive)(void *arg, const struct burst *burst);
	/* The QPN's block belongs to this process. Called to decide on forwarding; QPNs 0, 1 and
	 * multicast: true. */
	bool (*is_local_qpn)(void *arg, uint32_t qpn);
	/* A message that port_relay() of another process of this user sent. NULL: there are none. */
	void (*relayed)(void *arg, const uint8_t *data, size_t len);
	/* Text of the counters for `rocelink counters`; returns its length (at most cap). */
	size_t (*report)(void *arg, char *text, size_t cap);
	/* A packet was dropped by the port itself (DROP_FORWARD, DROP_SHORT). */
	void (*dropped)(void *arg, enum drop reason, unsigned packets);
};

struct port_config {
	struct port_callbacks callbacks;
	void *arg;
	const char *pcap;  /* write every packet sent and received to this file; NULL: don't */
	uint16_t udp_port; /* 4791 */
	bool shm;	   /* offer and accept same-host links (net/shm.h) */
};

/* What the port did; every count is of packets unless it says otherwise. */
struct port_stats {
	uint64_t sent, received;
	uint64_t send_failed;	 /* the kernel refused them: no route, too long for the path, ... */
	uint64_t sent_singly;	 /* of a group that the kernel didn't want as one */
	uint64_t icrc_rewritten; /* another UDP source port or IPv4 ID than the outbox assumed */
	uint64_t forwarded;	 /* to their owner */
	uint64_t received_forwarded;
	uint64_t forward_refused; /* datagrams of another user, or malformed */
	unsigned flows;		  /* connected sockets now */
	unsigned links;		  /* same-host links to other processes now (net/shm.h) */
	uint64_t local_sent, local_received; /* over those, and to ourselves */
};

/*
 * Open the sockets; claims no block yet. A family the host lacks is left out. 0 or -errno;
 * -EADDRINUSE when somebody else (the kernel's driver, another user's process) owns the port: the
 * log says whom and what to do, and so does the sentence in error.
 */
int port_open(struct port **port, const struct port_config *config, char *error, size_t error_len);
void port_close(struct port *port);

/*
 * In the child of a fork: close the inherited descriptors and free the memory, touching nothing
 * that the parent still uses. Until then the child must call nothing else here, and should not wait
 * long: the parent's blocks and its share of the port live as long as a descriptor does.
 */
void port_abandon(struct port *port);

const struct port_stats *port_stats(const struct port *port);

/* Claim a free QPN block at random (never block 0). Returns its number, or -errno (-ENOSPC: none
 * free). */
int port_claim_block(struct port *port);
void port_release_block(struct port *port, unsigned block);

/* A message for the process that owns this block, whole and in order. 0, -EAGAIN (its queue is full now),
 * or another -errno (-ECONNREFUSED: nobody owns it). */
#define PORT_RELAY_MAX (71 << 10)
int port_relay(struct port *port, unsigned block, const void *data, size_t len);

/* The UDP source port for packets between these queue pairs, 0xc000 ... 0xffff. */
uint16_t port_sport(uint32_t src_qpn, uint32_t dest_qpn);

/* Expect packets of this path (as received: sgid the peer) and UDP source port: refcounted;
 * failures are only logged, since forwarding still works. */
void port_flow_get(struct port *port, const struct path *path);
void port_flow_put(struct port *port, const struct path *path);

int port_multicast_join(struct port *port, const struct gid *group, unsigned ifindex);
int port_multicast_leave(struct port *port, const struct gid *group, unsigned ifindex);

/*
 * Send the waiting groups. 0: all sent (or given up: an unreachable peer is like a lost packet;
 * counted and logged once per cause), -EAGAIN: the socket buffer is full; the rest stays in the
 * outbox, wait for writability.
 */
int port_send(struct port *port, struct outbox *box);

/*
 * Receive what is there, at most about `budget` bursts, calling the handler for each. Returns the
 * number of bursts handled, and one more while bursts for another process wait for it: call again.
 * 0 when nothing was there. Cheap when nothing is there: one system call in the common case.
 */
int port_receive(struct port *port, int budget);

/* An epoll descriptor that is readable while anything can be received (port_receive) and, while
 * want_write is set, when a full socket buffer has room again. */
int port_wait_fd(const struct port *port);
void port_want_write(struct port *port, bool want);

/*
 * Bytes that may be in flight to this process without overflowing the receive buffer of one flow:
 * half of SO_RCVBUF, since the kernel charges a packet's whole memory. Measured: bursts of
 * segmented sends fit twice over, single packets of 1 KiB and more just fit, single packets of 256
 * bytes less than half.
 */
size_t port_receive_window(const struct port *port);

/* Ask the process that owns this block for its counters' text. 0 or -errno. Needs no open port. */
int port_query_report(unsigned block, char *text, size_t cap, int timeout_ms);
/* Blocks owned in this network namespace now (from /proc/net/unix): returns how many, at most cap.
 */
int port_list_blocks(unsigned *blocks, size_t cap);

#endif
