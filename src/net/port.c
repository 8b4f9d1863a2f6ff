/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening, closing and watching the port's sockets. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "net/in_use.h"
#include "net/port_internal.h"

int port_watch(struct port *port, struct rx *rx)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = rx };

	return epoll_ctl(port->epoll_fd, EPOLL_CTL_ADD, rx->fd, &event) ? -errno : 0;
}

void port_unwatch_close(struct port *port, struct rx *rx)
{
	if (rx->fd < 0)
		return;
	if (port->hot == rx)
		port->hot = NULL;
	/* Closing alone isn't enough where a forked child holds the socket as well. */
	epoll_ctl(port->epoll_fd, EPOLL_CTL_DEL, rx->fd, NULL);
	close(rx->fd);
	rx->fd = -1;
}

static int receive_buffer(int fd)
{
	int bytes = 0;
	socklen_t len = sizeof(bytes);

	getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &len);
	return bytes;
}

/* A bound and watched main socket; a family that the host lacks is none. */
static int open_main(struct port *port, struct rx *rx, bool ipv4)
{
	union address a;
	socklen_t len = address_set(&a, ipv4, NULL, port->udp_port, 0);
	int ret;

	rx->kind = RX_MAIN;
	rx->ipv4 = ipv4;
	rx->fd = socket_udp(ipv4);
	if (rx->fd < 0)
		return rx->fd == -EAFNOSUPPORT ? 0 : rx->fd;
	ret = socket_prepare_receive(rx->fd, ipv4);
	if (!ret && bind(rx->fd, &a.sa, len))
		ret = -errno;
	if (!ret)
		ret = port_watch(port, rx);
	if (!ret) {
		port->receive_buffer = receive_buffer(rx->fd);
		return 0;
	}
	close(rx->fd);
	rx->fd = -1;
	/* IPv6 compiled in but switched off for this namespace. */
	return ret == -EADDRNOTAVAIL && !ipv4 ? 0 : ret;
}

static int open_sockets(struct port *port)
{
	int ret;

	port->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (port->epoll_fd < 0)
		return -errno;
	ret = open_main(port, &port->main4, true);
	if (!ret)
		ret = open_main(port, &port->main6, false);
	if (!ret && port->main4.fd < 0 && port->main6.fd < 0)
		ret = -EAFNOSUPPORT;
	if (!ret)
		ret = forward_init(port);
	if (!ret)
		ret = relay_init(port);
	return ret;
}

static void no_sockets(struct port *port)
{
	port->epoll_fd = port->forward_fd = port->relay_fd = -1;
	port->main4.fd = port->main6.fd = -1;
	for (unsigned i = 0; i < FLOWS_MAX; i++)
		port->flows[i].rx.fd = -1;
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		port->blocks[i].rx.fd = -1;
	port->local_block = QPN_BLOCKS;
}

static void explain(const struct port *port, int ret, char *error, size_t error_len)
{
	if (ret == -EADDRINUSE)
		in_use_explain(port->udp_port, error, error_len);
	else
		snprintf(error, error_len, "opening UDP port %u: %s", port->udp_port,
			 strerror(-ret));
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Descriptors and memory; leaves alone what a forked child shares with its parent. */
static void let_go(struct port *port, bool abandon)
{
	for (unsigned i = 0; i < FLOWS_MAX; i++)
		close_fd(port->flows[i].rx.fd);
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		close_fd(port->blocks[i].rx.fd);
	close_fd(port->main4.fd);
	close_fd(port->main6.fd);
	close_fd(port->forward_fd);
	close_fd(port->relay_fd);
	tx_sockets_close(port);
	close_fd(port->epoll_fd);
	shm_close(port, abandon);
	free(port->forward.buf);
	free(port->block_buffer);
	free(port->rx_buffers);
	multicast_close(port);
	free(port);
}

static void release(struct port *port)
{
	if (port->tap)
		tap_close(port->tap);
	let_go(port, false);
}

int port_open(struct port **out, const struct port_config *config, char *error, size_t error_len)
{
	struct port *port = calloc(1, sizeof(*port));
	int ret;

	if (!port) {
		snprintf(error, error_len, "opening the port: out of memory");
		return -ENOMEM;
	}
	no_sockets(port);
	port->callbacks = config->callbacks;
	port->arg = config->arg;
	port->udp_port = config->udp_port;
	port->rx_buffers = malloc((size_t)RX_BATCH * RX_BUFFER);
	ret = port->rx_buffers ? 0 : -ENOMEM;
	if (!ret && config->shm)
		ret = shm_init(port);
	if (!ret)
		ret = open_sockets(port);
	if (ret) {
		explain(port, ret, error, error_len);
	} else if (config->pcap) {
		ret = tap_open(&port->tap, config->pcap);
		if (ret)
			snprintf(error, error_len, "the capture file %s: %s", config->pcap,
				 strerror(-ret));
	}
	if (ret) {
		log_error("%s", error);
		release(port);
		return ret;
	}
	receive_init(port);
	*out = port;
	return 0;
}

void port_close(struct port *port)
{
	if (!port)
		return;
	receive_hand_over(port);
	release(port);
}

void port_abandon(struct port *port)
{
	if (port->tap)
		tap_abandon(port->tap);
	let_go(port, true);
}

const struct port_stats *port_stats(const struct port *port)
{
	return &port->stats;
}

int port_wait_fd(const struct port *port)
{
	return port->epoll_fd;
}

void port_want_write(struct port *port, bool want)
{
	struct epoll_event event = { .events = EPOLLOUT, .data.ptr = NULL };

	port->want_write = want;
	if (port->watched && (!want || port->watched != port->blocked)) {
		epoll_ctl(port->epoll_fd, EPOLL_CTL_DEL, port->watched->fd, NULL);
		port->watched = NULL;
	}
	if (!want || !port->blocked || port->watched)
		return;
	if (epoll_ctl(port->epoll_fd, EPOLL_CTL_ADD, port->blocked->fd, &event) == 0)
		port->watched = port->blocked;
}

size_t port_receive_window(const struct port *port)
{
	/* The kernel charges a packet's whole memory to the buffer, up to about twice its bytes. */
	return (size_t)port->receive_buffer / 2;
}
