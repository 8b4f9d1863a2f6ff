/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture.h"

#include <pcap/pcap.h>
#include <string.h>

#define ETHERNET_LEN 14

static unsigned be16_at(const uint8_t *b)
{
	return (unsigned)b[0] << 8 | b[1];
}

static void map_ipv4(struct gid *g, const uint8_t *address)
{
	memset(g, 0, sizeof(*g));
	memset(g->raw + 10, 0xff, 2);
	memcpy(g->raw + 12, address, 4);
}

/* The UDP header of an IP packet, or NULL when it carries something else. */
static const uint8_t *read_ip(struct capture_packet *p, const uint8_t *ip, size_t len)
{
	memset(p, 0, sizeof(*p));
	if (len >= 28 && ip[0] == 0x45 && ip[9] == 17) {
		map_ipv4(&p->path.sgid, ip + 12);
		map_ipv4(&p->path.dgid, ip + 16);
		p->path.traffic_class = ip[1];
		p->path.hop_limit = ip[8];
		p->ipv4_id = (uint16_t)be16_at(ip + 4);
		p->dont_fragment = ip[6] & 0x40;
		return ip + 20;
	}
	if (len >= 48 && ip[0] >> 4 == 6 && ip[6] == 17) {
		memcpy(p->path.sgid.raw, ip + 8, 16);
		memcpy(p->path.dgid.raw, ip + 24, 16);
		p->path.traffic_class = (uint8_t)(be16_at(ip) >> 4);
		p->path.flow_label = (uint32_t)(ip[1] & 0xf) << 16 | be16_at(ip + 2);
		p->path.hop_limit = ip[7];
		return ip + 40;
	}
	return NULL;
}

static bool read_frame(struct capture_packet *p, const uint8_t *frame, size_t len)
{
	const uint8_t *udp;
	size_t udp_len;

	if (len < ETHERNET_LEN)
		return false;
	udp = read_ip(p, frame + ETHERNET_LEN, len - ETHERNET_LEN);
	if (!udp || be16_at(udp + 2) != 4791)
		return false;
	udp_len = be16_at(udp + 4);
	if (udp_len < 8 || (size_t)(udp - frame) + udp_len > len)
		return false;
	p->path.sport = (uint16_t)be16_at(udp);
	p->data = udp + 8;
	p->len = udp_len - 8;
	return true;
}

int capture_each(const char *file, void (*visit)(const struct capture_packet *p, void *arg),
		 void *arg)
{
	char error[PCAP_ERRBUF_SIZE];
	pcap_t *pcap = pcap_open_offline(file, error);
	struct pcap_pkthdr *header;
	struct capture_packet p;
	const uint8_t *frame;
	int found = 0;

	if (!pcap)
		return -1;
	for (unsigned number = 1; pcap_next_ex(pcap, &header, &frame) == 1; number++) {
		if (!read_frame(&p, frame, header->caplen))
			continue;
		p.frame = number;
		visit(&p, arg);
		found++;
	}
	pcap_close(pcap);
	return found;
}
