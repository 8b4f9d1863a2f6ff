/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The port's inside, shared by its files:
 *
 * - port.c: open, close, epoll
 * - sockets.c: socket options, addresses, control messages
 * - receive.c: bursts in, and whose
 * - send.c: groups out
 * - flows.c: connected sockets
 * - tx_sockets.c: one sending socket per UDP source port
 * - blocks.c: QPN blocks, unix sockets
 * - forward.c: bursts for other processes
 * - relay.c: messages for them
 * - multicast.c: group membership
 * - report.c: counters of other processes
 *
 * Everything that epoll may name (struct rx) lies in struct port itself, so that an event read
 * before its socket was closed still points at valid memory: fd is then -1.
 */
#ifndef ROCELINK_NET_PORT_INTERNAL_H
#define ROCELINK_NET_PORT_INTERNAL_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "net/port.h"
#include "net/shm.h"
#include "net/tap.h"

#define RX_BATCH	  16
#define RX_BUFFER	  (64 << 10) /* no UDP datagram, and no GRO burst, is longer */
#define FLOWS_MAX	  64
#define BLOCKS_MAX	  256 /* per process: a million QPs */
#define TX_SOCKETS_MAX	  256
#define TX_TABLE	  (2 * TX_SOCKETS_MAX)
#define FLOW_CANDIDATES	  32
#define PACKET_MIN	  (BTH_LEN + ICRC_LEN)
#define SPORT_MIN	  0xc000
#define HOP_LIMIT_DEFAULT 64 /* where a path says 0 */

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* A socket that receives. */
enum rx_kind { RX_LINK, RX_BLOCK, RX_MAIN, RX_FLOW, RX_KINDS };
struct rx {
	int fd; /* -1: none */
	uint8_t kind;
	bool ipv4;
};

struct rx_block {
	struct rx rx;
	unsigned number;
};

struct flow {
	struct rx rx;
	bool learned;  /* from forwarded bursts: stays without references */
	bool received; /* since eviction last looked */
	uint16_t sport;
	unsigned refs;
	struct gid peer, local;
};

struct flow_candidate {
	struct gid peer, local;
	uint16_t sport;
	uint16_t seen;
};

struct multicast_group {
	struct gid gid;
	unsigned ifindex;
	unsigned refs;
	int fd; /* which socket joined */
};

/* One that joins groups when the main socket can't join more. */
struct multicast_holder {
	int fd;
	bool ipv4;
};

/* A socket that sends. */
struct tx_socket {
	int fd;
	uint16_t sport; /* that packets really carry */
	bool ipv4;
	bool flow_labels; /* IPV6_FLOWINFO_SEND is set */
	uint8_t hop_limit, traffic_class;
};

struct tx_entry {
	uint16_t wanted; /* sport; 0: the entry is free */
	bool ipv4;
	struct tx_socket *tx;
};

struct rx_slot {
	union address from;
	struct iovec iov;
	_Alignas(struct cmsghdr) uint8_t control[192];
};

/* Bursts on their way to another process, gathered into one datagram. */
struct forward {
	unsigned block;
	unsigned packets;
	size_t len;	      /* 0: empty */
	unsigned attempts;    /* to hand it over; not 0: the owner's queue was full */
	unsigned stuck_block; /* this owner's queue stayed full too long; 0: none */
	uint8_t *buf;
};

struct port {
	struct port_callbacks callbacks;
	void *arg;
	uint16_t udp_port;

	int epoll_fd;
	struct rx main4, main6;
	struct rx *hot; /* gave the last burst; tried first */
	unsigned idle_polls, hot_polls;
	bool closing;	      /* nothing is for us any more */
	uint32_t local_block; /* a block that is_local_qpn() called ours; QPN_BLOCKS: none known */
	int receive_buffer;   /* bytes, as the kernel counts them */
	uint8_t *rx_buffers;
	struct rx_slot rx_slots[RX_BATCH];
	struct mmsghdr rx_messages[RX_BATCH];

	struct flow flows[FLOWS_MAX];
	struct flow_candidate candidates[FLOW_CANDIDATES];
	struct rx_block blocks[BLOCKS_MAX];
	struct multicast_group *groups;
	unsigned n_groups;
	struct multicast_holder *holders;
	unsigned n_holders;

	int forward_fd, relay_fd;
	struct forward forward;
	uint8_t *block_buffer; /* one datagram of a block's socket */

	struct tx_socket tx_sockets[TX_SOCKETS_MAX];
	unsigned n_tx_sockets;
	struct tx_entry tx_table[TX_TABLE];
	unsigned n_tx_entries;
	bool no_flow_labels; /* the system refuses them */
	bool want_write;
	struct tx_socket *blocked;	   /* its buffer was full */
	struct tx_socket *watched;	   /* in the epoll set */
	const struct outbox_group *single; /* this group goes out packet by packet: every ID is 0 */
	uint64_t send_errors_logged[3];	   /* bit per errno */

	struct shm *shm; /* NULL: no same-host path */
	struct tap *tap;
	struct port_stats stats;
};

static inline unsigned burst_packets(const struct burst *burst)
{
	if (burst->len <= burst->seg_len) /* also the empty datagram */
		return 1;
	return (unsigned)((burst->len + burst->seg_len - 1) / burst->seg_len);
}

/* sockets.c. A UDP socket for this family, or -errno. */
int socket_udp(bool ipv4);
int socket_set(int fd, int level, int option, int value);
/* Raise SO_RCVBUF or SO_SNDBUF as far as the system allows, to at most `bytes`. */
void socket_raise_buffer(int fd, int option, int bytes);
/* Options of every socket that receives from the network. 0 or -errno. */
int socket_prepare_receive(int fd, bool ipv4);
/* An address; gid NULL: the wildcard. Returns its length. */
socklen_t address_set(union address *a, bool ipv4, const struct gid *gid, uint16_t udp_port,
		      unsigned ifindex);
void address_gid(const union address *a, struct gid *gid, uint16_t *udp_port);
/* Interface index that sending needs; 0: the routing table decides. */
unsigned path_scope(const struct path *path);
/* The path of a received message, and its segment size (0: it is one packet). */
void message_path(struct msghdr *msg, bool ipv4, struct path *path, size_t *seg_len);
/* Append a control message; msg->msg_controllen grows. */
void message_add_control(struct msghdr *msg, int level, int type, const void *value, size_t len);

/* port.c */
int port_watch(struct port *port, struct rx *rx);
void port_unwatch_close(struct port *port, struct rx *rx);

/* receive.c */
void receive_init(struct port *port);
/* The last act: packets that wait in our sockets and belong to other processes go to them. */
void receive_hand_over(struct port *port);
/* Hand these packets over, or on when they came from the network. */
void port_route_burst(struct port *port, const struct burst *burst, bool forwarded);

/* multicast.c */
void multicast_close(struct port *port);

/* flows.c */
void flows_learn(struct port *port, const struct path *path);

/* blocks.c */
socklen_t block_address(struct sockaddr_un *un, unsigned block);
/* Read and serve one datagram. False: none was there. */
bool block_receive(struct port *port, struct rx *rx);

/* forward.c */
int forward_init(struct port *port);
void forward_add(struct port *port, unsigned block, const struct burst *burst);
void forward_flush(struct port *port);
void forward_receive(struct port *port, const uint8_t *data, size_t len);

/* relay.c */
int relay_init(struct port *port);

/* shm.c */
int shm_init(struct port *port);
/* abandon: in the child of a fork. */
void shm_close(struct port *port, bool abandon);
/* Somebody of this user offers a link; takes both descriptors. */
void shm_offered(struct port *port, int memory, int socket);
/* Bytes of memory that a link must bring. */
size_t shm_memory_size(void);
void shm_socket_event(struct port *port, struct rx *rx);
void shm_block_changed(struct port *port, unsigned block, bool owned);

/* tx_sockets.c: the socket for this path, or NULL with errno. */
struct tx_socket *tx_socket_get(struct port *port, const struct path *path);
void tx_sockets_close(struct port *port);

/* First bytes of a datagram between processes; the second is the version. */
enum block_message_kind { BLOCK_FORWARD = 1, BLOCK_QUERY, BLOCK_REPORT, BLOCK_OFFER, BLOCK_RELAY };
struct block_message {
	uint8_t magic[3];
	uint8_t version;
	uint32_t kind;
};
#define BLOCK_VERSION	  1
#define BLOCK_MESSAGE_MAX (72 << 10)
struct block_message block_message_make(enum block_message_kind kind);
/* Checks the head; returns the kind, or 0. */
unsigned block_message_kind(const void *data, size_t len);

#endif
