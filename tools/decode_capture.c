/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capture files: libpcap reads the container, this file the link layer. A link layer that can't
 * carry IP in a way known here is refused when the file is opened, with its name.
 */
#include <errno.h>
#include <pcap/pcap.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "tools/decode_capture.h"

enum {
	ETHERTYPE_VLAN_C = 0x8100,
	ETHERTYPE_VLAN_S = 0x88a8,
	ETHERTYPE_VLAN_OLD = 0x9100,
	ETHERTYPE_4 = 0x0800,
	ETHERTYPE_6 = 0x86dd,
	ETHERTYPE_ADDRESS_RESOLUTION = 0x0806,
	ETHERTYPE_ROCE_V1 = 0x8915,
	ARPHRD_OF_LOOPBACK = 772,
	SLL_OUTGOING = 4,
};

struct capture {
	pcap_t *pcap;
	int link;
	uint64_t frames;
	uint64_t first_ns;
};

/* What stands before the IP packet. */
struct link_header {
	size_t len;
	uint16_t ethertype; /* 0: the IP version tells */
	bool second_sight;  /* the same frame as another in the file */
};

typedef bool (*link_parse)(struct link_header *h, const uint8_t *data, size_t len);

static bool parse_ethernet(struct link_header *h, const uint8_t *data, size_t len)
{
	if (len < 14)
		return false;
	h->len = 14;
	h->ethertype = frame_be16(data + 12);
	return true;
}

/*
 * The "any" device sees what goes through the loopback interface twice, on its way out and in.
 * libpcap keeps the one that comes in; so does this.
 */
static bool is_second_sight(unsigned arphrd, unsigned packet_type)
{
	return arphrd == ARPHRD_OF_LOOPBACK && packet_type == SLL_OUTGOING;
}

static bool parse_sll(struct link_header *h, const uint8_t *data, size_t len)
{
	if (len < 16)
		return false;
	h->len = 16;
	h->ethertype = frame_be16(data + 14);
	h->second_sight = is_second_sight(frame_be16(data + 2), frame_be16(data));
	return true;
}

static bool parse_sll2(struct link_header *h, const uint8_t *data, size_t len)
{
	if (len < 20)
		return false;
	h->len = 20;
	h->ethertype = frame_be16(data);
	h->second_sight = is_second_sight(frame_be16(data + 8), data[10]);
	return true;
}

static bool parse_raw(struct link_header *h, const uint8_t *data, size_t len)
{
	(void)h, (void)data;
	return len > 0;
}

/* The four bytes are an address family whose number depends on the system; the IP version doesn't.
 */
static bool parse_loopback(struct link_header *h, const uint8_t *data, size_t len)
{
	(void)data;
	h->len = 4;
	return len > 4;
}

static const struct {
	int link;
	link_parse parse;
} links[] = {
	{ DLT_EN10MB, parse_ethernet }, { DLT_LINUX_SLL, parse_sll },
	{ DLT_LINUX_SLL2, parse_sll2 }, { DLT_RAW, parse_raw },
	{ DLT_IPV4, parse_raw },	{ DLT_IPV6, parse_raw },
	{ DLT_NULL, parse_loopback },	{ DLT_LOOP, parse_loopback },
};

static link_parse link_find(int link)
{
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (links[i].link == link)
			return links[i].parse;
	return NULL;
}

static bool is_vlan(uint16_t ethertype)
{
	return ethertype == ETHERTYPE_VLAN_C || ethertype == ETHERTYPE_VLAN_S ||
	       ethertype == ETHERTYPE_VLAN_OLD;
}

static const char *other_name(uint16_t ethertype)
{
	switch (ethertype) {
	case ETHERTYPE_ADDRESS_RESOLUTION:
		return "ARP";
	case ETHERTYPE_ROCE_V1:
		return "RoCE v1";
	default:
		return "not IP";
	}
}

static void parse_link(int link, struct frame *f, const uint8_t *data, size_t len)
{
	struct link_header h = { 0 };

	f->kind = FRAME_OTHER;
	if (!link_find(link)(&h, data, len)) {
		f->what = "cut off";
		return;
	}
	if (h.second_sight) {
		f->what = "loopback copy";
		return;
	}
	data += h.len;
	len -= h.len;
	while (is_vlan(h.ethertype)) {
		if (len < 4) {
			f->what = "cut off";
			return;
		}
		h.ethertype = frame_be16(data + 2);
		data += 4;
		len -= 4;
	}
	if (h.ethertype && h.ethertype != ETHERTYPE_4 && h.ethertype != ETHERTYPE_6)
		f->what = other_name(h.ethertype);
	else
		frame_parse_ip(f, data, len);
}

static struct capture *capture_make(pcap_t *pcap, char *error, size_t error_len)
{
	struct capture *c;
	const char *name;
	int link = pcap_datalink(pcap);

	if (!link_find(link)) {
		name = pcap_datalink_val_to_description(link);
		snprintf(error, error_len, "link layer %d (%s) is not supported", link,
			 name ? name : "unknown");
		pcap_close(pcap);
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		snprintf(error, error_len, "out of memory");
		pcap_close(pcap);
		return NULL;
	}
	c->pcap = pcap;
	c->link = link;
	return c;
}

struct capture *capture_open(const char *path, char *error, size_t error_len)
{
	FILE *stream;

	if (strcmp(path, "-") == 0)
		return capture_open_stream(stdin, error, error_len);
	stream = fopen(path, "rb");
	if (!stream) {
		snprintf(error, error_len, "%s", strerror(errno));
		return NULL;
	}
	return capture_open_stream(stream, error, error_len);
}

struct capture *capture_open_stream(FILE *stream, char *error, size_t error_len)
{
	char reason[PCAP_ERRBUF_SIZE] = "";
	pcap_t *pcap = pcap_fopen_offline_with_tstamp_precision(stream, PCAP_TSTAMP_PRECISION_NANO,
								reason);

	if (!pcap) {
		snprintf(error, error_len, "not a pcap or pcapng capture (%s)", reason);
		fclose(stream);
		return NULL;
	}
	return capture_make(pcap, error, error_len);
}

void capture_close(struct capture *c)
{
	pcap_close(c->pcap); /* closes the stream */
	free(c);
}

int capture_next(struct capture *c, struct frame *f)
{
	struct pcap_pkthdr *header;
	const uint8_t *data;
	uint64_t time_ns;
	int ret = pcap_next_ex(c->pcap, &header, &data);

	if (ret == PCAP_ERROR_BREAK)
		return 0;
	if (ret != 1)
		return -EBADMSG;
	/* Any 64 bits may stand in the file: unsigned arithmetic, and no time before the first. */
	time_ns = (uint64_t)header->ts.tv_sec * NS_PER_SEC + (uint64_t)header->ts.tv_usec;
	if (c->frames == 0)
		c->first_ns = time_ns;
	memset(f, 0, sizeof(*f));
	f->number = ++c->frames;
	f->time_ns = time_ns > c->first_ns ? time_ns - c->first_ns : 0;
	parse_link(c->link, f, data, header->caplen);
	return 1;
}

const char *capture_error(struct capture *c)
{
	return pcap_geterr(c->pcap);
}
