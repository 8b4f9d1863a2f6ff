/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket options, addresses and control messages of both families in one shape. */
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include "net/port_internal.h"

/* Linux 4.20; the C library's headers are older than the kernel's. */
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef IPV6_FLOWINFO
#define IPV6_FLOWINFO 11
#endif

#define RECEIVE_BUFFER_MAX (4 << 20)

int socket_set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) ? -errno : 0;
}

int socket_udp(bool ipv4)
{
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (!ipv4)
		socket_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	return fd;
}

void socket_raise_buffer(int fd, int option, int bytes)
{
	int force = option == SO_RCVBUF ? SO_RCVBUFFORCE : SO_SNDBUFFORCE;

	if (socket_set(fd, SOL_SOCKET, force, bytes))
		socket_set(fd, SOL_SOCKET, option, bytes); /* the kernel cuts it to its limit */
}

int socket_prepare_receive(int fd, bool ipv4)
{
	int ret = socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1);

	socket_raise_buffer(fd, SO_RCVBUF, RECEIVE_BUFFER_MAX);
	/* Older kernels lack it: bursts are then single packets. */
	socket_set(fd, IPPROTO_UDP, UDP_GRO, 1);
	if (ipv4) {
		ret = ret ? ret : socket_set(fd, IPPROTO_IP, IP_PKTINFO, 1);
		ret = ret ? ret : socket_set(fd, IPPROTO_IP, IP_RECVTTL, 1);
		ret = ret ? ret : socket_set(fd, IPPROTO_IP, IP_RECVTOS, 1);
		/* Only groups that this very socket joined, not all that the host did. */
		socket_set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	} else {
		/* The kernel's driver sends no checksum over IPv6. */
		socket_set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
		ret = ret ? ret : socket_set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
		ret = ret ? ret : socket_set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
		ret = ret ? ret : socket_set(fd, IPPROTO_IPV6, IPV6_FLOWINFO, 1);
		socket_set(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
	}
	return ret;
}

socklen_t address_set(union address *a, bool ipv4, const struct gid *gid, uint16_t udp_port,
		      unsigned ifindex)
{
	memset(a, 0, sizeof(*a));
	if (ipv4) {
		a->in.sin_family = AF_INET;
		a->in.sin_port = htons(udp_port);
		if (gid)
			memcpy(&a->in.sin_addr, gid->raw + 12, 4);
		return sizeof(a->in);
	}
	a->in6.sin6_family = AF_INET6;
	a->in6.sin6_port = htons(udp_port);
	a->in6.sin6_scope_id = ifindex;
	if (gid)
		memcpy(&a->in6.sin6_addr, gid->raw, 16);
	return sizeof(a->in6);
}

static void gid_from_ipv4(struct gid *gid, const struct in_addr *in)
{
	memset(gid->raw, 0, 10);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, in, 4);
}

void address_gid(const union address *a, struct gid *gid, uint16_t *udp_port)
{
	if (a->sa.sa_family == AF_INET) {
		gid_from_ipv4(gid, &a->in.sin_addr);
		*udp_port = ntohs(a->in.sin_port);
	} else {
		memcpy(gid->raw, &a->in6.sin6_addr, 16);
		*udp_port = ntohs(a->in6.sin6_port);
	}
}

unsigned path_scope(const struct path *path)
{
	if (gid_is_multicast(&path->dgid) || gid_is_link_local(&path->dgid) ||
	    gid_is_link_local(&path->sgid))
		return path->ifindex;
	return 0;
}

static int control_int(const struct cmsghdr *c)
{
	int value;

	memcpy(&value, CMSG_DATA(c), sizeof(value));
	return value;
}

static void read_control_ipv4(const struct cmsghdr *c, struct path *path)
{
	struct in_pktinfo info;

	switch (c->cmsg_type) {
	case IP_PKTINFO:
		memcpy(&info, CMSG_DATA(c), sizeof(info));
		gid_from_ipv4(&path->dgid, &info.ipi_addr);
		path->ifindex = (uint32_t)info.ipi_ifindex;
		break;
	case IP_TTL:
		path->hop_limit = (uint8_t)control_int(c);
		break;
	case IP_TOS:
		path->traffic_class = *CMSG_DATA(c);
		break;
	default:
		break;
	}
}

static void read_control_ipv6(const struct cmsghdr *c, struct path *path)
{
	struct in6_pktinfo info;
	uint32_t flowinfo;

	switch (c->cmsg_type) {
	case IPV6_PKTINFO:
		memcpy(&info, CMSG_DATA(c), sizeof(info));
		memcpy(path->dgid.raw, &info.ipi6_addr, 16);
		path->ifindex = (uint32_t)info.ipi6_ifindex;
		break;
	case IPV6_HOPLIMIT:
		path->hop_limit = (uint8_t)control_int(c);
		break;
	case IPV6_FLOWINFO: /* absent when all of it is zero */
		memcpy(&flowinfo, CMSG_DATA(c), sizeof(flowinfo));
		flowinfo = ntohl(flowinfo);
		path->traffic_class = (uint8_t)(flowinfo >> 20);
		path->flow_label = flowinfo & 0xfffff;
		break;
	default:
		break;
	}
}

void message_path(struct msghdr *msg, bool ipv4, struct path *path, size_t *seg_len)
{
	path->ifindex = 0;
	path->flow_label = 0;
	path->traffic_class = 0;
	path->hop_limit = 0;
	memset(&path->dgid, 0, sizeof(path->dgid));
	address_gid(msg->msg_name, &path->sgid, &path->sport);
	*seg_len = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
			*seg_len = (size_t)control_int(c);
		else if (ipv4 && c->cmsg_level == IPPROTO_IP)
			read_control_ipv4(c, path);
		else if (!ipv4 && c->cmsg_level == IPPROTO_IPV6)
			read_control_ipv6(c, path);
	}
}

void message_add_control(struct msghdr *msg, int level, int type, const void *value, size_t len)
{
	struct cmsghdr *c = (void *)((uint8_t *)msg->msg_control + msg->msg_controllen);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), value, len);
	/* The padding is read by the kernel too: nothing for a memory checker to complain about. */
	memset(CMSG_DATA(c) + len, 0, CMSG_SPACE(len) - CMSG_LEN(len));
	msg->msg_controllen += CMSG_SPACE(len);
}
