/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "tools/devices.h"
#include "tools/json_text.h"

static const char *boolean(bool b)
{
	return b ? "true" : "false";
}

static void member(const char *name, const char *value)
{
	printf("\"%s\":", name);
	json_string(stdout, value);
}

static void print_gid(const struct rocelink_gid *g)
{
	char gid[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, &g->gid, gid, sizeof(gid));
	printf("{\"index\":%d,", g->index);
	member("gid", gid);
	putchar(',');
	member("type", device_gid_type(g->type));
	putchar(',');
	member("interface", g->ifname);
	putchar(',');
	member("address", g->address);
	printf(",\"present\":%s}", boolean(g->present));
}

static void print_port(const struct device_port *p)
{
	printf("{\"port\":%u", p->number);
	if (p->queried) {
		putchar(',');
		member("state", ibv_port_state_str(p->attr.state));
		printf(",\"active\":%s,\"active_mtu\":%u,\"max_mtu\":%u,\"lid\":%u,",
		       boolean(p->attr.state == IBV_PORT_ACTIVE),
		       rocelink_mtu_bytes(p->attr.active_mtu), rocelink_mtu_bytes(p->attr.max_mtu),
		       p->attr.lid);
		member("link_layer", device_link_layer(p->attr.link_layer));
	}
	if (*p->error) {
		putchar(',');
		member("error", p->error);
	}
	fputs(",\"gids\":[", stdout);
	for (int i = 0; i < p->n_gids; i++) {
		if (i)
			putchar(',');
		print_gid(&p->gids[i]);
	}
	fputs("]}", stdout);
}

static void print_device(const struct device_info *d)
{
	putchar('{');
	member("name", d->name);
	printf(",\"adapter\":%s,", boolean(d->adapter));
	member("driver", d->driver);
	printf(",\"node_guid\":\"%016llx\"", (unsigned long long)d->guid);
	if (d->open_errno) {
		putchar(',');
		member("error", strerror(d->open_errno));
	} else {
		putchar(',');
		member("firmware", d->attr.fw_ver);
		printf(",\"max_qp\":%d,\"max_qp_wr\":%d,\"max_sge\":%d,\"max_cq\":%d,\"max_cqe\":%"
		       "d,"
		       "\"max_mr\":%d,\"max_mr_size\":%llu,\"max_qp_init_rd_atom\":%d,"
		       "\"max_qp_rd_atom\":%d",
		       d->attr.max_qp, d->attr.max_qp_wr, d->attr.max_sge, d->attr.max_cq,
		       d->attr.max_cqe, d->attr.max_mr, (unsigned long long)d->attr.max_mr_size,
		       d->attr.max_qp_init_rd_atom, d->attr.max_qp_rd_atom);
	}
	fputs(",\"ports\":[", stdout);
	for (int i = 0; i < d->attr.phys_port_cnt; i++) {
		if (i)
			putchar(',');
		print_port(&d->ports[i]);
	}
	fputs("]}", stdout);
}

static void print_choice(const struct device_choice *choice)
{
	fputs(",\"to\":{", stdout);
	member("host", choice->host);
	if (choice->found) {
		putchar(',');
		member("device", choice->gid.device);
		printf(",\"port\":%u,\"gid_index\":%d,", choice->gid.port, choice->gid.index);
		member("address", choice->gid.address);
		putchar(',');
		member("why", choice->gid.why);
	} else {
		putchar(',');
		member("error", choice->err.text);
	}
	putchar('}');
}

void devices_print_json(const struct device_info *list, int n, const struct device_choice *choice)
{
	fputs("{\"devices\":[", stdout);
	for (int i = 0; i < n; i++) {
		if (i)
			putchar(',');
		print_device(&list[i]);
	}
	putchar(']');
	if (choice->host)
		print_choice(choice);
	puts("}");
}
