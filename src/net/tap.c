/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The format is simple enough to write it directly: libpcap would bring D-Bus, systemd and, on some
 * systems, libibverbs itself into every program that runs on the adapter.
 */
#include "net/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "wire/icrc.h"
#include "wire/packet.h"

#define PCAP_MAGIC_NS 0xa1b23c4du
#define LINKTYPE_RAW  101
#define SNAPLEN	      65535
#define BUFFER	      (256 << 10) /* more than a burst of 64 KiB in packets of 16 bytes takes */

struct file_header {
	uint32_t magic;
	uint16_t major, minor;
	int32_t zone;
	uint32_t accuracy, snaplen, linktype;
};

struct record_header {
	uint32_t seconds, nanoseconds, captured, length;
};

struct tap {
	int fd;
	pid_t pid;
	bool failed;
	size_t used;
	uint8_t buf[BUFFER];
};

static int write_header(int fd)
{
	const struct file_header h = { .magic = PCAP_MAGIC_NS,
				       .major = 2,
				       .minor = 4,
				       .snaplen = SNAPLEN,
				       .linktype = LINKTYPE_RAW };

	return write(fd, &h, sizeof(h)) == (ssize_t)sizeof(h) ? 0 : -(errno ? errno : EIO);
}

/*
 * Alone: begin the file. Otherwise: wait until whoever is beginning it has done so. File systems
 * without locks count as being alone.
 */
static int join_file(int fd)
{
	struct stat st;
	int ret = 0;

	if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
		/* A pipe or a device can't be cut. */
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && ftruncate(fd, 0))
			return -errno;
		ret = write_header(fd);
	}
	flock(fd, LOCK_SH);
	return ret;
}

int tap_open(struct tap **out, const char *file)
{
	struct tap *tap = malloc(sizeof(*tap));
	int ret;

	if (!tap)
		return -ENOMEM;
	tap->fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	ret = tap->fd < 0 ? -errno : join_file(tap->fd);
	if (ret) {
		if (tap->fd >= 0)
			close(tap->fd);
		free(tap);
		return ret;
	}
	tap->pid = getpid();
	tap->failed = false;
	tap->used = 0;
	*out = tap;
	return 0;
}

void tap_abandon(struct tap *tap)
{
	close(tap->fd);
	free(tap);
}

void tap_close(struct tap *tap)
{
	tap_abandon(tap);
}

static uint32_t sum_words(uint32_t sum, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (; len > 1; p += 2, len -= 2)
		sum += (uint32_t)p[0] << 8 | p[1];
	return len ? sum + ((uint32_t)p[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void *reserve(struct tap *tap, size_t len)
{
	void *p = tap->buf + tap->used;

	tap->used += len;
	return memset(p, 0, len);
}

/* sum: of the pseudo header's addresses. */
static void put_udp(struct tap *tap, const struct path *path, uint32_t sum, const uint8_t *data,
		    size_t len)
{
	struct udphdr h = { 0 };
	uint16_t udp_len = (uint16_t)(sizeof(h) + len), check;

	h.uh_sport = htons(path->sport);
	h.uh_dport = htons(ROCE_UDP_PORT);
	h.uh_ulen = htons(udp_len);
	sum = sum_words(sum + IPPROTO_UDP + udp_len, &h, sizeof(h));
	check = fold(sum_words(sum, data, len));
	h.uh_sum = htons(check ? check : 0xffff);
	memcpy(reserve(tap, sizeof(h)), &h, sizeof(h));
	memcpy(reserve(tap, len), data, len);
}

static void put_ipv4(struct tap *tap, const struct path *path, uint16_t id, bool df,
		     const uint8_t *data, size_t len)
{
	struct ip h;

	memset(&h, 0, sizeof(h));
	h.ip_hl = 5;
	h.ip_v = 4;
	h.ip_tos = path->traffic_class;
	h.ip_len = htons((uint16_t)(sizeof(h) + sizeof(struct udphdr) + len));
	h.ip_id = htons(id);
	h.ip_off = htons(df ? IP_DF : 0);
	h.ip_ttl = path->hop_limit;
	h.ip_p = IPPROTO_UDP;
	memcpy(&h.ip_src, path->sgid.raw + 12, 4);
	memcpy(&h.ip_dst, path->dgid.raw + 12, 4);
	h.ip_sum = htons(fold(sum_words(0, &h, sizeof(h))));
	memcpy(reserve(tap, sizeof(h)), &h, sizeof(h));
	put_udp(tap, path, sum_words(0, &h.ip_src, 8), data, len);
}

static void put_ipv6(struct tap *tap, const struct path *path, const uint8_t *data, size_t len)
{
	struct ip6_hdr h = { 0 };

	h.ip6_flow = htonl(6u << 28 | (uint32_t)path->traffic_class << 20 | path->flow_label);
	h.ip6_plen = htons((uint16_t)(sizeof(struct udphdr) + len));
	h.ip6_nxt = IPPROTO_UDP;
	h.ip6_hlim = path->hop_limit;
	memcpy(&h.ip6_src, path->sgid.raw, 16);
	memcpy(&h.ip6_dst, path->dgid.raw, 16);
	memcpy(reserve(tap, sizeof(h)), &h, sizeof(h));
	put_udp(tap, path, sum_words(0, &h.ip6_src, 32), data, len);
}

static void put_packet(struct tap *tap, const struct path *path, const struct timespec *now,
		       uint16_t id, bool df, const uint8_t *data, size_t len)
{
	struct record_header h = { .seconds = (uint32_t)now->tv_sec,
				   .nanoseconds = (uint32_t)now->tv_nsec };
	size_t start = tap->used;

	reserve(tap, sizeof(h));
	if (gid_is_ipv4(&path->sgid))
		put_ipv4(tap, path, id, df, data, len);
	else
		put_ipv6(tap, path, data, len);
	h.captured = h.length = (uint32_t)(tap->used - start - sizeof(h));
	memcpy(tap->buf + start, &h, sizeof(h));
}

static void flush(struct tap *tap)
{
	size_t len = tap->used;

	tap->used = 0;
	if (len == 0 || tap->failed || getpid() != tap->pid)
		return;
	if (write(tap->fd, tap->buf, len) == (ssize_t)len)
		return;
	/* After half a record nothing more can be understood. */
	tap->failed = true;
	log_error("writing the capture file failed: %s; it ends here", strerror(errno));
}

/* A record's size at most, so that bursts of tiny packets are written in parts. */
static void make_room(struct tap *tap, size_t len)
{
	size_t need =
		sizeof(struct record_header) + sizeof(struct ip6_hdr) + sizeof(struct udphdr) + len;

	if (tap->used + need > sizeof(tap->buf))
		flush(tap);
}

void tap_sent(struct tap *tap, const struct path *path, const uint8_t *data, size_t len,
	      size_t seg_len, bool numbered)
{
	struct path sent = *path;
	struct timespec now;
	uint16_t id = 0;

	if (sent.hop_limit == 0)
		sent.hop_limit = 64;
	clock_gettime(CLOCK_REALTIME, &now);
	for (size_t at = 0; at < len; at += seg_len) {
		size_t n = len - at < seg_len ? len - at : seg_len;

		make_room(tap, n);
		put_packet(tap, &sent, &now, id, true, data + at, n);
		id = (uint16_t)(id + numbered);
	}
	flush(tap);
}

/* The identification and DF bit with which the ICRC is right. A packet whose ICRC is wrong gets 0.
 */
static uint16_t find_id(const struct path *path, uint16_t expected, const uint8_t *data, size_t len,
			bool *df)
{
	uint16_t id = expected;
	uint32_t icrc;

	*df = true;
	if (len < BTH_LEN + ICRC_LEN || !icrc_check(path, &id, data, len))
		return 0;
	memcpy(&icrc, data + len - ICRC_LEN, sizeof(icrc));
	*df = icrc_compute(path, id, data, len - ICRC_LEN) == le32toh(icrc);
	return id;
}

void tap_received(struct tap *tap, const struct path *path, const uint8_t *data, size_t len,
		  size_t seg_len)
{
	const bool ipv4 = gid_is_ipv4(&path->sgid);
	struct timespec now;
	uint16_t id = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	for (size_t at = 0; at < len; at += seg_len) {
		size_t n = len - at < seg_len ? len - at : seg_len;
		bool df = true;

		if (ipv4)
			id = find_id(path, id, data + at, n, &df);
		make_room(tap, n);
		put_packet(tap, path, &now, id, df, data + at, n);
		id++;
	}
	flush(tap);
}
