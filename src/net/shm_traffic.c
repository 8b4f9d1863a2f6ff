/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets through links, and who sleeps and is woken. */
#include <errno.h>
#include <sys/socket.h>

#include "base/log.h"
#include "net/shm_internal.h"

#define BURSTS_A_LINK 16
#define WAKE	      'W'

static void wake(const struct shm_link *link)
{
	const char byte = WAKE;

	/* A full socket is as good: the peer has yet to read what wakes it. */
	if (!link->self && send(link->rx.fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_trace("waking a same-host peer: errno %d", errno);
}

struct outbox *shm_outbox(struct port *port, struct shm_link *link)
{
	struct outbox *box = pring_open(&link->out);

	if (!box && link->out.broken)
		shm_link_died(port, link, "the peer broke its ring");
	return box;
}

bool shm_has_room(struct port *port, unsigned index)
{
	struct shm_link *link = &port->shm->links[index];

	return link->state == LINK_READY && pring_has_room(&link->out);
}

void shm_publish(struct port *port, struct shm_link *link)
{
	const struct outbox *box = &link->out.box;

	for (unsigned i = box->first_group; i < box->n_groups; i++)
		port->stats.local_sent += box->groups[i].segments;
	if (pring_publish(&link->out))
		wake(link);
}

static int receive_link(struct port *port, struct shm_link *link, int budget)
{
	struct burst burst;
	int n = 0;

	while (n < budget && pring_peek(&link->in, &burst)) {
		port->stats.local_received += burst_packets(&burst);
		port->callbacks.receive(port->arg, &burst);
		pring_consume(&link->in);
		n++;
	}
	if (n && pring_wakes_producer(&link->in))
		wake(link);
	if (link->in.broken)
		shm_link_died(port, link, "the peer broke its ring");
	return n;
}

int shm_receive(struct port *port, int budget)
{
	struct shm *shm = port->shm;
	int bursts = 0;

	if (!shm)
		return 0;
	for (unsigned i = 0; i < shm->used && bursts < budget; i++) {
		struct shm_link *link;

		if (++shm->next >= shm->used)
			shm->next = 0;
		link = &shm->links[shm->next];
		if (link->state == LINK_READY)
			bursts += receive_link(port, link, BURSTS_A_LINK);
	}
	return bursts;
}

bool shm_has_input(const struct port *port)
{
	struct shm *shm = port->shm;

	for (unsigned i = 0; shm && i < shm->used; i++)
		if (shm->links[i].state == LINK_READY && !pring_empty(&shm->links[i].in))
			return true;
	return false;
}

bool shm_waits_for_us(struct port *port)
{
	return port->shm && port->shm->self && !pring_empty(&port->shm->self->in);
}

bool shm_busy(const struct port *port)
{
	return port->shm && (port->stats.links || port->shm->self) && !port->shm->pending;
}

/* What the peer had sent before it went is delivered. */
static void lost(struct port *port, struct shm_link *link)
{
	if (link->state == LINK_READY)
		receive_link(port, link, RING_SLOTS);
	if (link->state == LINK_READY)
		shm_link_died(port, link, "the peer is gone");
}

void shm_socket_event(struct port *port, struct rx *rx)
{
	struct shm_link *link = (struct shm_link *)(void *)rx;
	char bytes[16];
	ssize_t n;

	while (rx->fd >= 0) {
		n = recv(rx->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n < 0)
			return;
		port->shm->woken = true;
		if (n == 0 && link->state == LINK_OFFERED)
			shm_link_refused(port, link);
		else if (n == 0)
			lost(port, link);
		else if (link->state == LINK_OFFERED && bytes[0] == SHM_ACCEPT) {
			port->shm->pending--;
			shm_link_ready(port, link);
		}
	}
}

bool shm_sleep(struct port *port, const bool full[SHM_LINKS_MAX])
{
	struct shm *shm = port->shm;
	bool quiet = true;

	if (shm)
		shm->woken = false;
	for (unsigned i = 0; shm && i < shm->used && quiet; i++) {
		struct shm_link *link = &shm->links[i];

		if (link->state == LINK_READY)
			quiet = pring_consumer_sleeps(&link->in, true) &&
				(!full[i] || pring_producer_sleeps(&link->out));
	}
	return quiet;
}

bool shm_woken(const struct port *port)
{
	return port->shm && port->shm->woken;
}

void shm_awake(struct port *port)
{
	struct shm *shm = port->shm;

	for (unsigned i = 0; shm && i < shm->used; i++)
		if (shm->links[i].state == LINK_READY)
			pring_consumer_sleeps(&shm->links[i].in, false);
}
