/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One sending socket per UDP source port and family, kept in a hash table. They stay unconnected,
 * since a connected socket numbers its IPv4 packets from a counter. Nothing is ever received on
 * them: a filter drops what strangers send there. When the wanted port can't be had, or there are
 * too many sockets, another socket stands in; its packets' ICRCs are then written anew, for the
 * ICRC covers the source port.
 */
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "net/port_internal.h"

#ifndef IPV6_FLOWINFO_SEND
#define IPV6_FLOWINFO_SEND 33
#endif

#define SEND_BUFFER_MAX (4 << 20)

static void drop_all_received(int fd)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = { .len = 1, .filter = &nothing };

	setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* IPv4: always DF, which gives ID 0 and ICRCs that survive; either: no fragments, the path MTU
 * counts. */
static int prepare(int fd, bool ipv4, const struct path *path)
{
	int ret;

	socket_raise_buffer(fd, SO_SNDBUF, SEND_BUFFER_MAX);
	drop_all_received(fd);
	/* Another process of this user may send from the same port. */
	socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (ipv4) {
		ret = socket_set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
		ret = ret ? ret : socket_set(fd, IPPROTO_IP, IP_TTL, path->hop_limit);
		ret = ret ? ret : socket_set(fd, IPPROTO_IP, IP_TOS, path->traffic_class);
	} else {
		ret = socket_set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
		ret = ret ? ret : socket_set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, path->hop_limit);
		ret = ret ? ret : socket_set(fd, IPPROTO_IPV6, IPV6_TCLASS, path->traffic_class);
	}
	return ret;
}

/* Bind to the wanted port, or to any where it is taken. Returns the port or -errno. */
static int bind_port(int fd, bool ipv4, uint16_t wanted)
{
	union address a;
	socklen_t len = address_set(&a, ipv4, NULL, wanted, 0);
	struct gid gid;
	uint16_t got;

	if (bind(fd, &a.sa, len)) {
		log_info("UDP source port %u is taken (errno %d): using another", wanted, errno);
		len = address_set(&a, ipv4, NULL, 0, 0);
		if (bind(fd, &a.sa, len))
			return -errno;
	}
	if (getsockname(fd, &a.sa, &len))
		return -errno;
	address_gid(&a, &gid, &got);
	return got;
}

static struct tx_socket *open_socket(struct port *port, const struct path *path, bool ipv4)
{
	struct tx_socket *tx = &port->tx_sockets[port->n_tx_sockets];
	struct path first = *path;
	int fd, ret;

	if (port->n_tx_sockets == TX_SOCKETS_MAX) {
		errno = EMFILE;
		return NULL;
	}
	if (first.hop_limit == 0)
		first.hop_limit = HOP_LIMIT_DEFAULT;
	fd = socket_udp(ipv4);
	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	ret = prepare(fd, ipv4, &first);
	ret = ret ? ret : bind_port(fd, ipv4, path->sport);
	if (ret < 0) {
		close(fd);
		errno = -ret;
		return NULL;
	}
	*tx = (struct tx_socket){
		.fd = fd,
		.sport = (uint16_t)ret,
		.ipv4 = ipv4,
		.flow_labels = !ipv4 && !socket_set(fd, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1),
		.hop_limit = first.hop_limit,
		.traffic_class = first.traffic_class,
	};
	port->n_tx_sockets++;
	return tx;
}

/* A socket of this family that is there already. */
static struct tx_socket *stand_in(struct port *port, uint16_t wanted, bool ipv4)
{
	for (unsigned i = 0; i < port->n_tx_sockets; i++) {
		struct tx_socket *tx = &port->tx_sockets[(wanted + i) % port->n_tx_sockets];

		if (tx->ipv4 == ipv4)
			return tx;
	}
	return NULL;
}

static unsigned slot_of(uint16_t sport, bool ipv4)
{
	return (sport * 2u + ipv4) * 0x9e3779b1u >> 23 & (TX_TABLE - 1);
}

struct tx_socket *tx_socket_get(struct port *port, const struct path *path)
{
	const bool ipv4 = gid_is_ipv4(&path->sgid);
	const uint16_t wanted = path->sport ? path->sport : SPORT_MIN;
	struct path from = *path;
	struct tx_entry *e;
	struct tx_socket *tx;
	unsigned probes = 0;

	for (unsigned i = slot_of(wanted, ipv4);; i = (i + 1) & (TX_TABLE - 1)) {
		e = &port->tx_table[i];
		if (e->wanted == wanted && e->ipv4 == ipv4)
			return e->tx;
		if (!e->wanted || ++probes == TX_TABLE)
			break;
	}
	from.sport = wanted;
	tx = open_socket(port, &from, ipv4);
	if (!tx) {
		int error = errno;

		tx = stand_in(port, wanted, ipv4);
		errno = error;
	}
	/* A stand-in isn't remembered in a table that is half full: looking again costs little
	 * beside the ICRCs. */
	if (tx && !e->wanted && (tx->sport == wanted || port->n_tx_entries < TX_TABLE / 2)) {
		*e = (struct tx_entry){ .wanted = wanted, .ipv4 = ipv4, .tx = tx };
		port->n_tx_entries++;
	}
	return tx;
}

void tx_sockets_close(struct port *port)
{
	for (unsigned i = 0; i < port->n_tx_sockets; i++)
		close(port->tx_sockets[i].fd);
	port->n_tx_sockets = 0;
}
