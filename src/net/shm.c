/* SPDX-License-Identifier: BSD-2-Clause */
/* Making links and ending them; shm_traffic.c has what goes through them. */
#include "net/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "net/shm_internal.h"

#define SEALS	      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SEGMENT_MAGIC 0x726c6b33u /* changes with the layout */
#define REFUSED_FOR_S 2		  /* a block whose owner refused is asked again after that */

static bool bit_get(_Atomic uint64_t *bits, unsigned n)
{
	return atomic_load_explicit(&bits[n / 64], memory_order_relaxed) >> (n % 64) & 1;
}

static void bit_set(_Atomic uint64_t *bits, unsigned n, bool on)
{
	uint64_t mask = UINT64_C(1) << (n % 64);

	if (on)
		atomic_fetch_or(&bits[n / 64], mask);
	else
		atomic_fetch_and(&bits[n / 64], ~mask);
}

static bool is_ours(const struct port *port, unsigned block)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		if (port->blocks[i].rx.fd >= 0 && port->blocks[i].number == block)
			return true;
	return false;
}

static void write_our_blocks(const struct port *port, struct shm_link *link)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++)
		if (port->blocks[i].rx.fd >= 0)
			bit_set(link->segment->blocks[link->side], port->blocks[i].number, true);
}

void shm_block_changed(struct port *port, unsigned block, bool owned)
{
	struct shm *shm = port->shm;

	if (!shm)
		return;
	shm->of_block[block] = 0;
	for (unsigned i = 0; i < shm->used; i++)
		if (shm->links[i].segment)
			bit_set(shm->links[i].segment->blocks[shm->links[i].side], block, owned);
}

static struct shm_link *link_new(struct shm *shm)
{
	struct shm_link *link = NULL;

	for (unsigned i = 0; i < SHM_LINKS_MAX && !link; i++)
		if (shm->links[i].state == LINK_FREE)
			link = &shm->links[i];
	if (!link)
		return NULL;
	if ((unsigned)(link - shm->links) >= shm->used)
		shm->used = (unsigned)(link - shm->links) + 1;
	*link = (struct shm_link){ .rx = { .fd = -1, .kind = RX_LINK } };
	return link;
}

static void *map(int fd)
{
	void *p = mmap(NULL, sizeof(struct segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* A child has no part in its parent's connections. */
	madvise(p, sizeof(struct segment), MADV_DONTFORK);
	return p;
}

static void unmap(struct shm_link *link)
{
	if (link->segment)
		munmap(link->segment, sizeof(*link->segment));
	link->segment = NULL;
}

/* The end of a link: what it was to the world it no longer is; FREE once nobody refers to it. */
static void link_end(struct port *port, struct shm_link *link, enum link_state state)
{
	struct shm *shm = port->shm;

	if (link->state == LINK_OFFERED)
		shm->pending--;
	if (link->state == LINK_READY)
		port->stats.links--;
	port_unwatch_close(port, &link->rx);
	unmap(link);
	for (unsigned i = 0; i < QPN_BLOCKS; i++)
		if (shm->of_block[i] == shm_index(port, link) + 1)
			shm->of_block[i] = 0;
	link->state = link->refs ? state : LINK_FREE;
	shm->changed = true;
}

static void set_up(struct shm_link *link, struct segment *segment, unsigned side)
{
	link->segment = segment;
	link->side = side;
	pring_producer_init(&link->out, &segment->rings[side]);
	pring_consumer_init(&link->in, &segment->rings[link->self ? side : 1 - side]);
}

void shm_link_ready(struct port *port, struct shm_link *link)
{
	link->state = LINK_READY;
	port->stats.links++;
	port->shm->changed = true;
	/* Unless told otherwise: for all we know the program sleeps. */
	pring_consumer_sleeps(&link->in, true);
}

static void remember_refusal(struct shm *shm, unsigned block, uint64_t now_ns)
{
	shm->refused_until_s[block] = (uint32_t)(now_ns / NS_PER_SEC) + REFUSED_FOR_S;
}

void shm_link_refused(struct port *port, struct shm_link *link)
{
	log_info("the owner of QPN block %u doesn't take the same-host path: UDP it is",
		 link->block);
	remember_refusal(port->shm, link->block, link->due_ns);
	link_end(port, link, LINK_REFUSED);
}

void shm_link_died(struct port *port, struct shm_link *link, const char *why)
{
	log_info("same-host link %u: %s", shm_index(port, link), why);
	link_end(port, link, LINK_DEAD);
}

/* Memory and the peer's end of the socket go to the owner of the block. */
static int send_offer(const struct port *port, unsigned block, int memory, int socket)
{
	struct block_message head = block_message_make(BLOCK_OFFER);
	struct sockaddr_un un;
	struct iovec iov = { .iov_base = &head, .iov_len = sizeof(head) };
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(2 * sizeof(int))];
	struct msghdr msg = { .msg_name = &un,
			      .msg_namelen = block_address(&un, block),
			      .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control };
	const int fds[2] = { memory, socket };

	message_add_control(&msg, SOL_SOCKET, SCM_RIGHTS, fds, sizeof(fds));
	return sendmsg(port->forward_fd, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int memory_new(struct segment **segment)
{
	int fd = memfd_create("rocelink", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	*segment = NULL;
	if (fd < 0)
		return -errno;
	/* Sealed, neither side can shrink it under the other. */
	if (ftruncate(fd, sizeof(struct segment)) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		*segment = map(fd);
	if (*segment) {
		(*segment)->magic = SEGMENT_MAGIC;
		return fd;
	}
	close(fd);
	return -ENOMEM;
}

static int offer(struct port *port, struct shm_link *link, unsigned block)
{
	struct segment *segment;
	int pair[2], memory, ret;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
		return -errno;
	memory = memory_new(&segment);
	if (memory < 0) {
		close(pair[0]);
		close(pair[1]);
		return memory;
	}
	set_up(link, segment, 0);
	write_our_blocks(port, link);
	link->rx.fd = pair[0];
	ret = port_watch(port, &link->rx);
	if (!ret)
		ret = send_offer(port, block, memory, pair[1]);
	close(memory);
	close(pair[1]);
	return ret;
}

static struct shm_link *offer_link(struct port *port, unsigned block, uint64_t now_ns)
{
	struct shm *shm = port->shm;
	struct shm_link *link = link_new(shm);
	int ret;

	if (!link)
		return NULL;
	ret = offer(port, link, block);
	if (ret) {
		log_debug("no same-host link to QPN block %u: %s", block, strerror(-ret));
		remember_refusal(shm, block, now_ns);
		port_unwatch_close(port, &link->rx);
		unmap(link);
		return NULL;
	}
	link->state = LINK_OFFERED;
	link->block = block;
	link->due_ns = now_ns + SHM_OFFER_WAIT_NS;
	shm->pending++;
	shm->of_block[block] = (uint8_t)(shm_index(port, link) + 1);
	return link;
}

size_t shm_memory_size(void)
{
	return sizeof(struct segment);
}

static bool memory_is_right(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_size == (off_t)shm_memory_size() &&
	       (fcntl(fd, F_GET_SEALS) & SEALS) == SEALS;
}

static int accept_link(struct port *port, struct shm_link *link, int memory, int socket)
{
	const char yes = SHM_ACCEPT;
	struct segment *segment;
	int ret;

	if (!memory_is_right(memory))
		return -EPROTO;
	segment = map(memory);
	if (!segment)
		return -ENOMEM;
	set_up(link, segment, 1);
	if (segment->magic != SEGMENT_MAGIC)
		return -EPROTO;
	write_our_blocks(port, link);
	link->rx.fd = socket;
	ret = port_watch(port, &link->rx);
	if (!ret && send(socket, &yes, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		ret = -errno;
	return ret;
}

void shm_offered(struct port *port, int memory, int socket)
{
	struct shm_link *link = port->shm ? link_new(port->shm) : NULL;
	int ret = link ? accept_link(port, link, memory, socket) : -EOPNOTSUPP;

	close(memory);
	if (!ret) {
		shm_link_ready(port, link);
		return;
	}
	log_debug("refused a same-host link: %s", strerror(-ret));
	if (link) {
		if (link->rx.fd >= 0)
			port_unwatch_close(port, &link->rx);
		else
			close(socket);
		unmap(link);
	} else {
		close(socket);
	}
}

static struct shm_link *self_link(struct port *port)
{
	struct shm_link *link = link_new(port->shm);
	struct segment *segment;

	if (!link)
		return NULL;
	segment = mmap(NULL, sizeof(*segment), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	if (segment == MAP_FAILED)
		return NULL;
	madvise(segment, sizeof(*segment), MADV_DONTFORK);
	link->self = true;
	set_up(link, segment, 0);
	link->state = LINK_READY;
	port->shm->self = link;
	write_our_blocks(port, link);
	return link;
}

static struct shm_link *known_link(struct port *port, unsigned block)
{
	struct shm *shm = port->shm;
	struct shm_link *link;

	if (shm->of_block[block]) {
		link = &shm->links[shm->of_block[block] - 1];
		if (link->state == LINK_OFFERED ||
		    bit_get(link->segment->blocks[link->self ? link->side : 1 - link->side], block))
			return link;
		shm->of_block[block] = 0;
	}
	for (unsigned i = 0; i < shm->used; i++) {
		link = &shm->links[i];
		if (link->state != LINK_READY || link->self ||
		    !bit_get(link->segment->blocks[1 - link->side], block))
			continue;
		shm->of_block[block] = (uint8_t)(i + 1);
		return link;
	}
	return NULL;
}

enum shm_state shm_state(struct port *port, struct shm_link *link, uint64_t now_ns)
{
	if (link->state == LINK_OFFERED && now_ns >= link->due_ns)
		shm_link_refused(port, link);
	switch (link->state) {
	case LINK_OFFERED:
		return SHM_PENDING;
	case LINK_READY:
		return SHM_READY;
	case LINK_DEAD:
		return SHM_DEAD;
	case LINK_REFUSED:
	case LINK_FREE:
		break;
	}
	return SHM_NONE;
}

static struct shm_link *make_link(struct port *port, unsigned block, uint64_t now_ns)
{
	struct shm *shm = port->shm;
	struct shm_link *link;

	if (is_ours(port, block)) {
		link = shm->self ? shm->self : self_link(port);
		if (link)
			shm->of_block[block] = (uint8_t)(shm_index(port, link) + 1);
		return link;
	}
	if (shm->refused_until_s[block] > now_ns / NS_PER_SEC)
		return NULL;
	return offer_link(port, block, now_ns);
}

enum shm_state shm_find(struct port *port, unsigned block, uint64_t now_ns, struct shm_link **link)
{
	enum shm_state state = SHM_NONE;

	*link = NULL;
	if (!port->shm || block >= QPN_BLOCKS)
		return SHM_NONE;
	*link = known_link(port, block);
	if (!*link)
		*link = make_link(port, block, now_ns);
	if (*link)
		state = shm_state(port, *link, now_ns);
	if (state == SHM_NONE)
		*link = NULL;
	return state;
}

void shm_hold(struct shm_link *link)
{
	link->refs++;
}

void shm_release(struct shm_link *link)
{
	link->refs--;
	if (link->refs == 0 && (link->state == LINK_DEAD || link->state == LINK_REFUSED))
		link->state = LINK_FREE;
}

unsigned shm_index(const struct port *port, const struct shm_link *link)
{
	return (unsigned)(link - port->shm->links);
}

bool shm_changed(struct port *port)
{
	bool changed = port->shm && port->shm->changed;

	if (changed)
		port->shm->changed = false;
	return changed;
}

uint64_t shm_next_due(const struct port *port)
{
	const struct shm *shm = port->shm;
	uint64_t due = TIME_NEVER;

	if (!shm || !shm->pending)
		return due;
	for (unsigned i = 0; i < shm->used; i++)
		if (shm->links[i].state == LINK_OFFERED && shm->links[i].due_ns < due)
			due = shm->links[i].due_ns;
	return due;
}

void shm_expire(struct port *port, uint64_t now_ns)
{
	struct shm *shm = port->shm;

	if (!shm || !shm->pending)
		return;
	for (unsigned i = 0; i < shm->used; i++)
		shm_state(port, &shm->links[i], now_ns);
}

int shm_init(struct port *port)
{
	port->shm = calloc(1, sizeof(*port->shm));
	return port->shm ? 0 : -ENOMEM;
}

void shm_close(struct port *port, bool abandon)
{
	struct shm *shm = port->shm;

	for (unsigned i = 0; shm && i < shm->used; i++) {
		if (shm->links[i].rx.fd >= 0)
			close(shm->links[i].rx.fd);
		/* A forked child has no mapping (MADV_DONTFORK). */
		if (!abandon)
			unmap(&shm->links[i]);
	}
	free(shm);
	port->shm = NULL;
}
