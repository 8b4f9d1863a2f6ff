/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librocelink: connect queue pairs over a socket.
 *
 * Two queue pairs are connected when each context holds the other's address (GID, QPN, PSN ...).
 * The network does not do that; this library does: it exchanges the values over TCP (or any channel
 * the program has, or a line of text carried by hand), negotiates what both sides can do, drives
 * the queue pairs INIT -> RTR -> RTS and waits for the peer's word that it is ready too.
 *
 * The shortest use, both ends, qp being a queue pair in state RESET:
 *
 *	struct rocelink_error err;
 *	struct rocelink_conn *c = rocelink_connect("server", "7471", qp, NULL, &err);
 *	if (!c)
 *		fprintf(stderr, "%s\n", err.text);
 *
 *	struct rocelink_listener *l = rocelink_listen("server", "7471", NULL, &err);
 *	struct rocelink_conn *c = rocelink_accept(l, qp, ROCELINK_NO_DEADLINE, &err);
 *
 * (On other addresses than loopback, options.security must say how peers authenticate.)
 *
 * Conventions
 *  - A function returns ROCELINK_OK (0) or one of enum rocelink_code; one that makes an object
 * returns NULL when it fails. `err` may be NULL; otherwise it is filled when, and only when, the
 * call fails. ROCELINK_AGAIN means "not yet": it is no failure, only err->code is set.
 *  - Option structures begin with their size, for growth: use the ROCELINK_... macros in C, or set
 *    .size = sizeof(the structure). Every other member's zero means "the default". Where zero would
 *    have a meaning of its own, that meaning has a name (ROCELINK_RNR_DELAY_655MS ...). NULL
 * instead of an option structure means all defaults. Strings and arrays in them are copied.
 *  - Times are microseconds. Byte counts are bytes. QPN and PSN are in host order.
 *  - One thread at a time for each connection and each listener; different ones are independent.
 *    No function changes signal handling; SIGPIPE is never raised.
 *  - The queue pairs, regions and everything else of libibverbs stay the caller's; the library
 * never destroys them. Address handles it made for UD live as long as the connection.
 *
 * The protocol spoken between both ends is described in docs/protocol.md.
 */
#ifndef ROCELINK_ROCELINK_H
#define ROCELINK_ROCELINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- Results ---- */

enum rocelink_code {
	ROCELINK_OK = 0,
	ROCELINK_AGAIN,	      /* not yet; wait for the fd or the deadline */
	ROCELINK_INVALID,     /* the call, an option or the state of an object is wrong */
	ROCELINK_TIMEOUT,     /* a deadline passed; error.phase says of which phase */
	ROCELINK_RESOLVE,     /* the host name or service is unknown */
	ROCELINK_NETWORK,     /* the channel failed: refused, unreachable, reset; see sys_errno */
	ROCELINK_SECURITY,    /* TLS, certificate or secret; or plain text where it isn't allowed */
	ROCELINK_PROTOCOL,    /* the peer's bytes are no valid protocol */
	ROCELINK_MISMATCH,    /* what both sides want does not fit together */
	ROCELINK_REFUSED,     /* the peer declined; error.reason and error.app_reason say why */
	ROCELINK_PEER_FAILED, /* the peer reported a failure: of its queue pairs, or in a sync */
	ROCELINK_CLOSED,      /* the peer has closed the connection */
	ROCELINK_NO_DEVICE,   /* no RDMA device or no port, GID that serves */
	ROCELINK_VERBS,	      /* a verbs call failed; see sys_errno */
	ROCELINK_NOT_FOUND,   /* no region of this name (now) */
	ROCELINK_LIMIT,	      /* one of the limits written in this header */
	ROCELINK_SYSTEM,      /* the operating system: memory, descriptors; see sys_errno */
};

/* What was going on. */
enum rocelink_phase {
	ROCELINK_PHASE_NONE = 0,
	ROCELINK_PHASE_RESOLVE,	  /* host name to addresses */
	ROCELINK_PHASE_CONNECT,	  /* TCP */
	ROCELINK_PHASE_SECURE,	  /* TLS handshake */
	ROCELINK_PHASE_HELLO,	  /* exchange of the values */
	ROCELINK_PHASE_NEGOTIATE, /* finding what fits both */
	ROCELINK_PHASE_INIT,	  /* queue pair RESET -> INIT */
	ROCELINK_PHASE_RTR,	  /* INIT -> RTR */
	ROCELINK_PHASE_RTS,	  /* RTR -> RTS */
	ROCELINK_PHASE_READY,	  /* waiting for the peer's READY */
	ROCELINK_PHASE_OPEN,	  /* connected: regions, syncs */
	ROCELINK_PHASE_CLOSE,	  /* BYE and drain */
};

/* Why a side declines; travels in DECLINE and READY (docs/protocol.md has the same numbers). */
enum rocelink_reason {
	ROCELINK_REASON_NONE = 0,
	ROCELINK_REASON_VERSION = 1,	   /* no common protocol version */
	ROCELINK_REASON_SERVICE = 2,	   /* options.service_name differs */
	ROCELINK_REASON_QP_TYPE = 3,	   /* RC against UD and the like */
	ROCELINK_REASON_QP_COUNT = 4,	   /* the numbers of queue pairs differ */
	ROCELINK_REASON_MTU = 5,	   /* no common path MTU */
	ROCELINK_REASON_GID = 6,	   /* no GIDs of one family and type on both sides */
	ROCELINK_REASON_AUTH = 7,	   /* authentication wanted, or failed */
	ROCELINK_REASON_BUSY = 8,	   /* a limit of the listener; try again later */
	ROCELINK_REASON_APPLICATION = 9,   /* the program's own decision: app_reason, text */
	ROCELINK_REASON_PROTOCOL = 10,	   /* could not understand the peer */
	ROCELINK_REASON_SIMULTANEOUS = 11, /* the other of two crossing connections is used */
	ROCELINK_REASON_TIMEOUT = 12,	   /* waited too long for the peer */
	ROCELINK_REASON_LOCAL = 13,	   /* a local failure, for example ibv_modify_qp */
};

struct rocelink_error {
	enum rocelink_code code;
	enum rocelink_phase phase;
	enum rocelink_reason reason; /* REFUSED and PEER_FAILED: the peer's reason */
	uint32_t app_reason;	     /* the peer program's number, with REASON_APPLICATION */
	int sys_errno;		     /* errno of the system or verbs call, or 0 */
	char text[1020]; /* one sentence or two: what, both sides' values, what to change */
};

/* Short fixed names: "timeout", "RTR", "busy". Never NULL. */
const char *rocelink_code_name(enum rocelink_code code);
const char *rocelink_phase_name(enum rocelink_phase phase);
const char *rocelink_reason_name(enum rocelink_reason reason);

/* "1.2.3" of the library in use, and the protocol versions it speaks. */
const char *rocelink_version(void);
void rocelink_protocol_versions(unsigned *min, unsigned *max);

/* ---- Limits ---- */

#define ROCELINK_MAX_QPS	  1024 /* on one connection */
#define ROCELINK_MAX_REGIONS	  256  /* offered by one side at a time */
#define ROCELINK_MAX_NAME	  63   /* bytes in the name of a region, sync or service */
#define ROCELINK_MAX_PRIVATE_DATA 4096 /* bytes */
#define ROCELINK_MAX_REASON	  255  /* bytes of a reason's text that reach the peer */
#define ROCELINK_MAX_TICKET	  4096 /* bytes of a ticket's line with its NUL */

#define ROCELINK_NO_DEADLINE UINT64_MAX

/* ---- GIDs and devices ---- */

enum rocelink_gid_type {
	ROCELINK_GID_IB = 1,
	ROCELINK_GID_ROCE_V1 = 2,
	ROCELINK_GID_ROCE_V2 = 3,
};

struct rocelink_gid {
	size_t size;
	char device[64];
	uint8_t port;
	int index; /* what goes into sgid_index */
	enum rocelink_gid_type type;
	union ibv_gid gid;
	uint16_t lid; /* of the port; 0 on RoCE */
	unsigned ifindex;
	char ifname[16];  /* the interface behind it, "" when unknown */
	char address[48]; /* as text: "192.0.2.1", "fe80::1" */
	bool present;	  /* the interface has this address now */
	char why[256];	  /* rocelink_gid_choose: why this one, one sentence */
};

/*
 * All GIDs of a device's port (port 0: of all its ports), in order of index; at most `max` are
 * stored. Returns how many there are, or -1 with *err filled.
 */
int rocelink_gid_list(struct ibv_context *context, uint8_t port, struct rocelink_gid *gids, int max,
		      struct rocelink_error *err);

/* One of them, to pass as options.gid. */
int rocelink_gid_get(struct ibv_context *context, uint8_t port, int index, struct rocelink_gid *gid,
		     struct rocelink_error *err);

/*
 * The GID by which this host reaches `host` (name or address): the one whose address the kernel's
 * routing would use as the source. With context NULL all devices are looked at. A link-local GID is
 * taken only for a link-local host, or when nothing else exists. gid->why explains; when none
 * serves err->text says what was there and why not. Resolving a name takes at most 5 s.
 */
int rocelink_gid_choose(struct ibv_context *context, const char *host, struct rocelink_gid *gid,
			struct rocelink_error *err);

/*
 * Open the device by which `host` is reached (NULL: the first with an active port). *gid, unless
 * NULL, gets the choice and its reason. Close with ibv_close_device().
 */
struct ibv_context *rocelink_device_open(const char *host, struct rocelink_gid *gid,
					 struct rocelink_error *err);

/* ---- Security ---- */

enum rocelink_security_mode {
	/*
	 * Certificates or a secret if they are given; else plain text, allowed only if both ends of
	 * the channel are loopback addresses or a unix socket.
	 */
	ROCELINK_SECURITY_AUTO = 0,
	ROCELINK_SECURITY_PLAIN, /* no protection: an R_Key on the wire is write access to memory */
	ROCELINK_SECURITY_PSK,	 /* TLS 1.3 with a shared secret */
	ROCELINK_SECURITY_CERT,	 /* TLS 1.3 with certificates on both sides */
};

struct rocelink_security {
	size_t size;
	enum rocelink_security_mode mode;
	/* PSK: the same 16 or more unguessable bytes on both sides (not a password for people). */
	const void *secret;
	size_t secret_len;
	const char
		*secret_file; /* or a file that holds them; a newline at its end does not count */
	/* CERT: PEM files. A peer must present a certificate that ca_file leads to. */
	const char *cert_file;
	const char *key_file;
	const char *ca_file;
	/* CERT, active side: the name in the peer's certificate; NULL: the host connected to. */
	const char *peer_name;
};

#define ROCELINK_SECURITY(...) \
	(&(struct rocelink_security){ .size = sizeof(struct rocelink_security), __VA_ARGS__ })

/* ---- Memory regions ---- */

/*
 * A region by name. A local one is offered with mr set; addr, length 0 mean the whole of mr. What
 * the peer may do with it is `access` (IBV_ACCESS_REMOTE_READ, ..._WRITE, ..._ATOMIC); it is told
 * to the peer and must be what the mr was registered with, since libibverbs can't be asked.
 */
struct rocelink_region {
	size_t size;
	const char *name;
	struct ibv_mr *mr;
	void *addr;
	uint64_t length;
	unsigned access;
};

#define ROCELINK_REGION(...) \
	(&(struct rocelink_region){ .size = sizeof(struct rocelink_region), __VA_ARGS__ })

/* The peer's region: what RDMA work requests need. */
struct rocelink_remote_region {
	size_t size;
	char name[ROCELINK_MAX_NAME + 1];
	uint64_t addr; /* wr.rdma.remote_addr */
	uint64_t length;
	uint32_t rkey; /* wr.rdma.rkey */
	unsigned access;
};

/* ---- What is told while it happens ---- */

enum rocelink_step {
	ROCELINK_STEP_RESOLVED = 1, /* host name to address */
	ROCELINK_STEP_CONNECTED,    /* the socket is connected (or accepted) */
	ROCELINK_STEP_SECURED,	    /* TLS: version, cipher, peer */
	ROCELINK_STEP_GID_CHOSEN,   /* and why */
	ROCELINK_STEP_QP_MODIFIED,  /* one ibv_modify_qp: qp, attr, attr_mask, from, to, result */
	ROCELINK_STEP_AH_CREATED,   /* UD */
	ROCELINK_STEP_SENT,	    /* one message of the protocol, with its fields */
	ROCELINK_STEP_RECEIVED,
	ROCELINK_STEP_NEGOTIATED,  /* what both sides agreed on */
	ROCELINK_STEP_ESTABLISHED, /* READY sent and received */
	ROCELINK_STEP_CLOSED,
	ROCELINK_STEP_FAILED, /* text is the error's */
};

struct rocelink_trace {
	size_t size;
	enum rocelink_step step;
	uint64_t elapsed_us; /* since the connection object was made */
	const char *text;    /* one line (or more, separated by \n) for a person */
	/* For QP_MODIFIED; otherwise NULL and 0. */
	unsigned qp_index;
	struct ibv_qp *qp;
	enum ibv_qp_state from, to;
	const struct ibv_qp_attr *attr;
	int attr_mask;
	int result; /* 0, or the errno of ibv_modify_qp */
};

/* Called from within the library's calls; must not call back into the same connection. */
typedef void (*rocelink_trace_fn)(void *arg, const struct rocelink_trace *trace);

/*
 * The attributes that `attr_mask` selects, one per line "name: value (meaning)". Returns the length
 * that the whole text has; at most len - 1 bytes of it and a NUL are stored, as snprintf does.
 */
size_t rocelink_attr_text(const struct ibv_qp_attr *attr, int attr_mask, char *buf, size_t len);

/* ---- Options ---- */

/* Operations a program intends to use on a queue pair. */
#define ROCELINK_OP_SEND   0x01u
#define ROCELINK_OP_WRITE  0x02u
#define ROCELINK_OP_READ   0x04u
#define ROCELINK_OP_ATOMIC 0x08u

#define ROCELINK_ACCESS_NONE	 0x80000000u /* qp_options.access: no remote access at all */
#define ROCELINK_PSN(n)		 (0x80000000u | (n)) /* qp_options.psn: exactly this one */
#define ROCELINK_NO_ATOMIC_DEPTH 255	    /* rd_atomic depths: none, no READ and no atomics */
#define ROCELINK_NEVER		 UINT64_MAX /* ack_timeout_us: wait for ever (code 0) */
#define ROCELINK_RNR_DELAY_655MS \
	UINT64_MAX		   /* min_rnr_delay_us: code 0, the longest, not the shortest */
#define ROCELINK_NO_RETRY      255 /* retry_count, rnr_retry_count: fail at once */
#define ROCELINK_RETRY_FOREVER 7   /* rnr_retry_count: 7 means without end */

/*
 * For each queue pair. Values marked (n) are negotiated: a value that only one side sets holds for
 * both; if both set it the larger holds; otherwise the default. Codes are rounded up.
 */
struct rocelink_qp_options {
	size_t size;
	unsigned access; /* IBV_ACCESS_* of the queue pair; default: all that its type allows, since
			    each region has rights of its own */
	unsigned ops;	 /* ROCELINK_OP_*, 0: not said. The peer refuses what it can't serve. */
	uint32_t psn;	 /* ROCELINK_PSN(n); default random */
	uint32_t qkey;	 /* UD; default random, high bit clear */
	struct ibv_srq *srq; /* XRC target: the SRQ whose number the peer needs */
	uint16_t pkey_index;
	unsigned path_mtu; /* 256 ... 4096 at most; default 4096. The smallest of this, the port's
			      active MTU and the peer's holds. */
	unsigned min_path_mtu;	   /* refuse a peer with less; default 256 */
	unsigned initiator_depth;  /* READ and atomics outstanding from here; default the device's,
				      at most 16; never above the peer's responder_depth */
	unsigned responder_depth;  /* ... that are served here at a time; default likewise */
	uint64_t ack_timeout_us;   /* (n) default 67109 (code 14) */
	uint8_t retry_count;	   /* (n) 1 ... 7, default 7 */
	uint8_t rnr_retry_count;   /* (n) 1 ... 7, default 7: for ever */
	uint64_t min_rnr_delay_us; /* what a peer waits after our RNR NAK; default 120 (code 7) */
	uint8_t hop_limit;	   /* (n) default 64 */
	uint8_t traffic_class;	   /* (n) default 0 */
	uint8_t service_level;	   /* (n) default 0 */
	uint32_t flow_label;	   /* default 0 */
};

#define ROCELINK_QP(...) \
	(&(struct rocelink_qp_options){ .size = sizeof(struct rocelink_qp_options), __VA_ARGS__ })

struct rocelink_conn;
struct rocelink_listener;

enum rocelink_compat {
	ROCELINK_COMPAT_NONE = 0,
	/* The text exchange of ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong. */
	ROCELINK_COMPAT_PINGPONG,
	/* The same of ibv_srq_pingpong: always 256 records; the queue pairs added come first. */
	ROCELINK_COMPAT_SRQ_PINGPONG,
};

struct rocelink_options {
	size_t size;
	const char *service_name; /* of the program's own protocol, "kv/1"; refused if both set it
				     and they differ */
	const void *private_data; /* up to ROCELINK_MAX_PRIVATE_DATA bytes for the peer's program */
	size_t private_data_len;
	const struct rocelink_security *security;
	/* From rocelink_gid_get() or rocelink_gid_choose(); NULL: by the route to the peer. */
	const struct rocelink_gid *gid;
	/* The peer's RDMA address, if it isn't the channel's. A name is resolved while the channel
	 * is made; rocelink_by_ticket() waits for that. */
	const char *rdma_host;
	const struct rocelink_qp_options *qp;  /* for queue pairs that are added without options */
	const struct rocelink_region *regions; /* offered from the beginning */
	size_t region_count;

	/*
	 * Called once all queue pairs are in INIT and before the peer can know of them: the place
	 * to post receives, to offer regions, to look at the peer's request. Anything but 0 refuses
	 * the connection; say why with rocelink_conn_refuse(), or the number becomes app_reason.
	 */
	int (*prepare)(void *arg, struct rocelink_conn *conn);
	void *prepare_arg;
	rocelink_trace_fn trace;
	void *trace_arg;

	/* Deadlines of the phases, and of the whole until established. ROCELINK_NO_DEADLINE: none.
	 */
	uint64_t resolve_timeout_us; /* default 5 s */
	uint64_t connect_timeout_us; /* default 5 s, for all addresses together */
	uint64_t secure_timeout_us;  /* default 5 s */
	uint64_t hello_timeout_us;   /* default 10 s */
	uint64_t ready_timeout_us;   /* default 10 s */
	uint64_t close_timeout_us;   /* default 2 s */
	uint64_t timeout_us;	     /* default 30 s */
	/* Keep trying to connect while the peer refuses (it may not have started), until timeout.
	 */
	bool retry_refused;

	enum rocelink_compat compat;
};

#define ROCELINK_OPTIONS(...) \
	(&(struct rocelink_options){ .size = sizeof(struct rocelink_options), __VA_ARGS__ })

/* ---- Blocking, in one call ---- */

/* Connect to host and service and link qp with the peer's. Returns an established connection. */
struct rocelink_conn *rocelink_connect(const char *host, const char *service, struct ibv_qp *qp,
				       const struct rocelink_options *options,
				       struct rocelink_error *err);

/*
 * Wait for a peer and link qp with its queue pair. A peer that fails in the exchange is an error of
 * this call; the listener stays usable. The queue pair is put back to RESET after a failure.
 */
struct rocelink_conn *rocelink_accept(struct rocelink_listener *listener, struct ibv_qp *qp,
				      uint64_t timeout_us, struct rocelink_error *err);

/*
 * Both ends call this at about the same time, neither being the server: each listens on
 * local_host:service and connects to host:service until one connection is left.
 */
struct rocelink_conn *rocelink_meet(const char *local_host, const char *host, const char *service,
				    struct ibv_qp *qp, const struct rocelink_options *options,
				    struct rocelink_error *err);

/* ---- Step by step, blocking or not ---- */

/*
 *      dial                         listener_take
 *        |                               |
 *   CONNECTING ---> OPEN            REQUESTED      add_qp, offer, receives: then start (or refuse)
 *                     \               /
 *                       EXCHANGING                values out and in, INIT -> RTR -> RTS, READY
 *                           |
 *                      ESTABLISHED                sync, offer, withdraw, find
 *                           |
 *                        CLOSING ---> CLOSED      bye by either side
 *
 *   from any state: FAILED (the error stays readable with rocelink_conn_error)
 */
enum rocelink_state {
	ROCELINK_STATE_CONNECTING = 1,
	ROCELINK_STATE_OPEN,
	ROCELINK_STATE_REQUESTED,
	ROCELINK_STATE_EXCHANGING,
	ROCELINK_STATE_ESTABLISHED,
	ROCELINK_STATE_CLOSING,
	ROCELINK_STATE_CLOSED,
	ROCELINK_STATE_FAILED,
};

const char *rocelink_state_name(enum rocelink_state state);

enum rocelink_role {
	ROCELINK_ACTIVE = 1, /* says HELLO first, as one that connects */
	ROCELINK_PASSIVE,    /* answers, as one that accepts: sees the request before it decides */
	ROCELINK_PEER,	     /* both say HELLO at once: for symmetric programs */
};

/* Begin to connect; returns at once, in state CONNECTING. */
struct rocelink_conn *rocelink_dial(const char *host, const char *service,
				    const struct rocelink_options *options,
				    struct rocelink_error *err);
struct rocelink_conn *rocelink_dial_meet(const char *local_host, const char *host,
					 const char *service,
					 const struct rocelink_options *options,
					 struct rocelink_error *err);

/* On a connected stream socket that the program has; it belongs to the connection from now on, also
 * when the call fails. */
struct rocelink_conn *rocelink_dial_fd(int fd, enum rocelink_role role,
				       const struct rocelink_options *options,
				       struct rocelink_error *err);

/*
 * A channel of the program's own: any reliable, ordered carrier of bytes or messages.
 * send and recv must not block; they return the number of bytes taken or given, -EAGAIN, or another
 * -errno; recv returns 0 at the end of the stream. With max_message set, send is given at most so
 * many bytes at a time and recv always has room for as many. The bytes have no relation to the
 * carrier's message boundaries. options.security must say which protection is wanted (PLAIN: the
 * carrier is trusted).
 */
struct rocelink_channel {
	size_t size;
	void *arg;
	ssize_t (*send)(void *arg, const void *data, size_t len);
	ssize_t (*recv)(void *arg, void *data, size_t len);
	void (*shutdown)(void *arg); /* no more will be sent; may be NULL */
	void (*close)(void *arg);    /* may be NULL */
	/*
	 * For blocking calls: an fd to poll for reading (and, after -EAGAIN from send, for
	 * writing); or, with fd -1, wait() until something may have changed or timeout_us has
	 * passed. (0 is taken for "no fd": standard input is not meant.)
	 */
	int fd;
	void (*wait)(void *arg, uint64_t timeout_us);
	size_t max_message; /* 0: a byte stream */
	const char *name;   /* for texts, "kv store" */
};

struct rocelink_conn *rocelink_dial_channel(const struct rocelink_channel *channel,
					    enum rocelink_role role,
					    const struct rocelink_options *options,
					    struct rocelink_error *err);

/*
 * Add a queue pair, before rocelink_conn_start(); the n-th added here is linked with the n-th of
 * the peer. It must be in RESET or INIT. In states OPEN and REQUESTED it is moved to INIT at once,
 * so that receives can be posted; in CONNECTING this happens when the channel is there.
 */
int rocelink_conn_add_qp(struct rocelink_conn *conn, struct ibv_qp *qp,
			 const struct rocelink_qp_options *options, struct rocelink_error *err);

/* All is added: exchange (as soon as the channel is open). It drives: look at the state afterwards. */
int rocelink_conn_start(struct rocelink_conn *conn, struct rocelink_error *err);

/* start, and block until established. */
int rocelink_conn_establish(struct rocelink_conn *conn, struct rocelink_error *err);

/*
 * Block until the state is `state` or a later one; fails if it can't be reached any more. Waiting
 * for CLOSED is waiting for the peer to end it: when it says BYE this side says it too.
 */
int rocelink_conn_wait(struct rocelink_conn *conn, enum rocelink_state state,
		       struct rocelink_error *err);

/*
 * For event loops. The fd is one for the whole life of the connection and becomes readable when
 * rocelink_conn_drive() has something to do; call it then, and when the deadline is reached (in
 * microseconds from now; ROCELINK_NO_DEADLINE if there is none). drive never blocks. It returns
 * ROCELINK_OK, or what ended the connection (once it is FAILED, always the same).
 * With a rocelink_channel of fd -1 call drive whenever that channel has news.
 */
int rocelink_conn_fd(const struct rocelink_conn *conn);
uint64_t rocelink_conn_next_deadline(const struct rocelink_conn *conn);
int rocelink_conn_drive(struct rocelink_conn *conn, struct rocelink_error *err);
enum rocelink_state rocelink_conn_state(const struct rocelink_conn *conn);
/* The error that ended it, or NULL. */
const struct rocelink_error *rocelink_conn_error(const struct rocelink_conn *conn);

/* Decline, in REQUESTED or before start. The text (may be NULL) reaches the peer. Then free it. */
int rocelink_conn_refuse(struct rocelink_conn *conn, enum rocelink_reason reason,
			 uint32_t app_reason, const char *text);

/* Replace options.private_data, before start: an answer may depend on the request. */
int rocelink_conn_set_private_data(struct rocelink_conn *conn, const void *data, size_t len,
				   struct rocelink_error *err);

/*
 * An end without loss: say BYE, read what the peer still sends until its BYE, close. Blocks for at
 * most close_timeout_us. The queue pairs stay as they are: destroy them afterwards, or reset them.
 */
int rocelink_conn_close(struct rocelink_conn *conn, struct rocelink_error *err);
/* The same without blocking: say BYE, then drive until CLOSED. */
int rocelink_conn_bye(struct rocelink_conn *conn, struct rocelink_error *err);

/* Free it in any state (NULL is allowed); address handles made for UD are destroyed. */
void rocelink_conn_free(struct rocelink_conn *conn);

/* ---- What is known about a connection ---- */

struct rocelink_peer {
	size_t size;
	char address[64];	/* the channel's other end, "192.0.2.7:40312" */
	char local_address[64]; /* and this one */
	char identity[128]; /* authenticated: certificate's subject or "shared secret"; else "" */
	char service_name[ROCELINK_MAX_NAME + 1];
	char agent[64];	  /* the peer's software */
	unsigned version; /* of the protocol in use */
	unsigned qp_count;
	const void *private_data; /* valid until the connection is freed */
	size_t private_data_len;
};

/* From REQUESTED (passive) or EXCHANGING (active) on; ROCELINK_AGAIN before. */
int rocelink_conn_peer(const struct rocelink_conn *conn, struct rocelink_peer *peer);

/* The peer's n-th queue pair as requested, and, from ESTABLISHED on, as linked. */
struct rocelink_qp_info {
	size_t size;
	struct ibv_qp *qp;     /* ours; NULL while none is added */
	enum ibv_qp_type type; /* of ours */
	enum ibv_qp_type remote_type;
	uint32_t qpn, remote_qpn;
	uint32_t psn, remote_psn;
	uint32_t qkey, remote_qkey; /* UD: put remote_qkey into wr.ud.remote_qkey */
	uint32_t remote_srqn;	    /* XRC */
	unsigned remote_ops;
	struct ibv_ah *ah;	 /* UD: for wr.ud.ah */
	struct rocelink_gid gid; /* ours */
	union ibv_gid remote_gid;
	uint16_t remote_lid;
	unsigned path_mtu; /* bytes */
	unsigned initiator_depth, responder_depth;
	uint8_t timeout_code, retry_count, rnr_retry_count, min_rnr_code;
	uint8_t hop_limit, traffic_class, service_level;
};

int rocelink_conn_qp(const struct rocelink_conn *conn, unsigned index,
		     struct rocelink_qp_info *info);

/* ---- Memory ---- */

/* Before the start or at any time until BYE. A name can be offered once; withdraw it first. */
int rocelink_conn_offer(struct rocelink_conn *conn, const struct rocelink_region *region,
			struct rocelink_error *err);
/* The peer forgets it. What it has already posted is not stopped by this: deregister for that. */
int rocelink_conn_withdraw(struct rocelink_conn *conn, const char *name,
			   struct rocelink_error *err);

/* The peer's region of this name, if it is known now; reads nothing from the channel (drive does).
 */
int rocelink_conn_find(const struct rocelink_conn *conn, const char *name,
		       struct rocelink_remote_region *region);
/* Block until it is offered. */
int rocelink_conn_wait_region(struct rocelink_conn *conn, const char *name, uint64_t timeout_us,
			      struct rocelink_remote_region *region, struct rocelink_error *err);
/* The n-th of the peer's regions in order of offer, ROCELINK_NOT_FOUND after the last. */
int rocelink_conn_region(const struct rocelink_conn *conn, unsigned n,
			 struct rocelink_remote_region *region);

/* ---- Synchronise ---- */

/*
 * A barrier: returns when the peer has said the same name, both times as often. `failure` NULL says
 * "I am here and well"; a text says that it went wrong here, and why. If either side failed both
 * get an error: the caller that failed gets ROCELINK_OK for its own report once the peer is there,
 * the other ROCELINK_PEER_FAILED with the text.
 */
int rocelink_conn_sync(struct rocelink_conn *conn, const char *name, const char *failure,
		       uint64_t timeout_us, struct rocelink_error *err);
/* The two halves, for event loops: say it; ask (ROCELINK_AGAIN until the peer has said it too). */
int rocelink_conn_sync_say(struct rocelink_conn *conn, const char *name, const char *failure,
			   struct rocelink_error *err);
int rocelink_conn_sync_test(struct rocelink_conn *conn, const char *name,
			    struct rocelink_error *err);

/* ---- Listen ---- */

struct rocelink_listen_options {
	size_t size;
	const struct rocelink_options *conn; /* for each connection that is accepted */
	int backlog;			     /* default 512 */
	/* Limits on peers that have not finished TLS and HELLO; the latter two not for loopback. */
	unsigned max_pending;	       /* default 256 */
	unsigned max_pending_per_host; /* default 128 */
	unsigned max_rate;	       /* new ones per second, default 1000 */
	bool reuse_port;	       /* SO_REUSEPORT */
};

#define ROCELINK_LISTEN(...)                                                                \
	(&(struct rocelink_listen_options){ .size = sizeof(struct rocelink_listen_options), \
					    __VA_ARGS__ })

/*
 * Listen on one address, which has to be said: a host name or address of this machine, "localhost",
 * or
 * "*" for all addresses of both families. service "0" takes a free port.
 */
struct rocelink_listener *rocelink_listen(const char *host, const char *service,
					  const struct rocelink_listen_options *options,
					  struct rocelink_error *err);

/* The port in use, host order. */
uint16_t rocelink_listener_port(const struct rocelink_listener *listener);

/* fd and deadline as for connections; they cover the peers that are not yet handed out too. */
int rocelink_listener_fd(const struct rocelink_listener *listener);
uint64_t rocelink_listener_next_deadline(const struct rocelink_listener *listener);

/*
 * The next peer that has connected, authenticated and said HELLO, in state REQUESTED; never blocks:
 * NULL with ROCELINK_AGAIN if there is none yet. Peers that fail before are dropped, logged and
 * counted.
 */
struct rocelink_conn *rocelink_listener_take(struct rocelink_listener *listener,
					     struct rocelink_error *err);
/* The same, waiting for at most timeout_us. */
struct rocelink_conn *rocelink_listener_wait(struct rocelink_listener *listener,
					     uint64_t timeout_us, struct rocelink_error *err);

struct rocelink_listener_counters {
	size_t size;
	uint64_t accepted;     /* TCP connections */
	uint64_t requested;    /* handed out */
	uint64_t refused_busy; /* over a limit */
	uint64_t refused_auth;
	uint64_t timed_out;
	uint64_t garbage; /* no protocol of ours */
	uint64_t gone;	  /* closed by the peer before its HELLO was complete */
};
void rocelink_listener_counters(const struct rocelink_listener *listener,
				struct rocelink_listener_counters *counters);

/* Ends the peers not handed out; those handed out live on. NULL is allowed. */
void rocelink_listener_free(struct rocelink_listener *listener);

/* ---- Tickets ---- */

/*
 * One printable line that holds this side's values, for a channel that is no channel: a file, an
 * environment variable, a chat, a voice. Both sides:
 *
 *	c = rocelink_by_ticket(&options, &err);   options.gid or options.rdma_host says which GID
 *	rocelink_conn_add_qp(c, qp, NULL, &err);
 *	rocelink_ticket_write(c, text, sizeof(text), &err);      ... give text to the other side ...
 *	rocelink_ticket_read(c, their_text, &err);               now the queue pair is in RTS
 *
 * There is no READY by this way: post receives before you give your ticket away. There is no
 * secrecy either: who reads a ticket can write to the regions in it. A ticket serves one connection.
 * Without options.gid and rdma_host the first GID with a global address is taken.
 */
struct rocelink_conn *rocelink_by_ticket(const struct rocelink_options *options,
					 struct rocelink_error *err);
int rocelink_ticket_write(struct rocelink_conn *conn, char *text, size_t len,
			  struct rocelink_error *err);
int rocelink_ticket_read(struct rocelink_conn *conn, const char *text, struct rocelink_error *err);
/* What a ticket says, in lines for a person; any ticket, without a connection. */
int rocelink_ticket_describe(const char *text, char *buf, size_t len, struct rocelink_error *err);

/* ---- Endpoints: the usual objects in one call ---- */

/*
 * A device, a protection domain, a completion queue and a queue pair in RESET, as most programs
 * need them. Nothing hidden: the members are ordinary verbs objects, to use as one likes.
 */
struct rocelink_endpoint {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* with .events */
	struct ibv_cq *cq;		  /* for both directions */
	struct ibv_qp *qp;
};

struct rocelink_endpoint_options {
	size_t size;
	/* Where from: */
	const struct rocelink_conn
		*conn;	    /* the device by which this connection's peer is reached */
	const char *host;   /* ... by which this host is reached */
	const char *device; /* ... of this name; none of them: the first active one */
	const struct rocelink_endpoint *shared; /* or share context, pd (not cq) with this one */
	enum ibv_qp_type type; /* default IBV_QPT_RC; an XRC target needs ibv_create_qp_ex */
	uint32_t send_depth, recv_depth; /* work requests, default 64 each */
	uint32_t send_sge, recv_sge;	 /* default 1 */
	uint32_t inline_bytes;		 /* default 0 */
	struct ibv_cq *cq;		 /* use this instead of making one */
	struct ibv_srq *srq;
	bool events;	 /* with a completion channel */
	bool sq_sig_all; /* each send makes a completion */
};

#define ROCELINK_ENDPOINT(...)                                                                  \
	(&(struct rocelink_endpoint_options){ .size = sizeof(struct rocelink_endpoint_options), \
					      __VA_ARGS__ })

struct rocelink_endpoint *rocelink_endpoint_open(const struct rocelink_endpoint_options *options,
						 struct rocelink_error *err);
/* Destroys what endpoint_open made, no more. NULL is allowed. */
void rocelink_endpoint_close(struct rocelink_endpoint *endpoint);

/*
 * Poll cq until one completion is there (sleeping on `channel` if it isn't NULL, whose cq must be
 * this one). A completion with an error is an error of this call, ROCELINK_VERBS, whose text says
 * what the status means and what usually causes it; *wc is filled then too.
 */
int rocelink_wait_completion(struct ibv_cq *cq, struct ibv_comp_channel *channel,
			     uint64_t timeout_us, struct ibv_wc *wc, struct rocelink_error *err);

/* ---- Units ---- */

/* The specification's codes from microseconds (rounded up; beyond the largest: the largest), and
 * back. */
uint8_t rocelink_ack_timeout_code(uint64_t us);
uint64_t rocelink_ack_timeout_us(uint8_t code);
uint8_t rocelink_rnr_delay_code(uint64_t us);
uint64_t rocelink_rnr_delay_us(uint8_t code);
/* 256 ... 4096 to enum ibv_mtu (0 if it is none of them) and back. */
enum ibv_mtu rocelink_mtu_code(unsigned bytes);
unsigned rocelink_mtu_bytes(enum ibv_mtu mtu);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
