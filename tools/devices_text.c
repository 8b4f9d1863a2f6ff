/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "tools/devices.h"

static void print_gid(const struct rocelink_gid *g, bool chosen, bool verbose)
{
	char gid[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, &g->gid, gid, sizeof(gid));
	printf("%s  GID %-3d %-10s %-12s %s", chosen ? "->" : "  ", g->index,
	       device_gid_type(g->type), *g->ifname ? g->ifname : "-",
	       *g->address ? g->address : gid);
	if (verbose)
		printf("   %s", gid);
	puts(g->present || g->type == ROCELINK_GID_IB ? ""
						      : "   (the interface lacks this address)");
}

static void print_port(const struct device_port *p, const struct device_choice *choice,
		       bool verbose)
{
	if (!p->queried) {
		printf("  port %u cannot be queried\n", p->number);
		return;
	}
	printf("  port %u %s, path MTU %u", p->number, ibv_port_state_str(p->attr.state),
	       rocelink_mtu_bytes(p->attr.active_mtu));
	if (verbose)
		printf(" (at most %u)", rocelink_mtu_bytes(p->attr.max_mtu));
	printf(", %s", device_link_layer(p->attr.link_layer));
	if (p->attr.lid || verbose)
		printf(", LID %u", p->attr.lid);
	putchar('\n');
	if (*p->error)
		printf("    %s\n", p->error);
	else if (p->n_gids == 0)
		puts("    no GID: its interface has no address");
	for (int i = 0; i < p->n_gids; i++)
		print_gid(&p->gids[i], device_gid_chosen(choice, &p->gids[i]), verbose);
}

static void print_limits(const struct ibv_device_attr *a)
{
	printf("  queue pairs %d, work requests per queue %d, scatter/gather entries %d\n",
	       a->max_qp, a->max_qp_wr, a->max_sge);
	printf("  completion queues %d of %d entries, memory regions %d of %llu bytes\n", a->max_cq,
	       a->max_cqe, a->max_mr, (unsigned long long)a->max_mr_size);
	printf("  READs and atomics outstanding per queue pair %d, served %d; atomics: %s\n",
	       a->max_qp_init_rd_atom, a->max_qp_rd_atom,
	       a->atomic_cap == IBV_ATOMIC_NONE	 ? "none"
	       : a->atomic_cap == IBV_ATOMIC_HCA ? "among this device's accesses"
						 : "also with the processor's");
}

static void print_device(const struct device_info *d, const struct device_choice *choice,
			 bool verbose)
{
	printf("%s  (%s%s%s)\n", d->name,
	       d->adapter ? "rocelink's adapter" : "device of the kernel",
	       *d->driver ? ", driver " : "", d->driver);
	if (d->open_errno) {
		printf("  cannot be opened: %s\n", strerror(d->open_errno));
		return;
	}
	if (verbose) {
		printf("  node GUID %016llx, firmware %s\n", (unsigned long long)d->guid,
		       *d->attr.fw_ver ? d->attr.fw_ver : "-");
		print_limits(&d->attr);
	}
	for (int i = 0; i < d->attr.phys_port_cnt; i++)
		print_port(&d->ports[i], choice, verbose);
}

void devices_print_text(const struct device_info *list, int n, const struct device_choice *choice,
			bool verbose)
{
	for (int i = 0; i < n; i++)
		print_device(&list[i], choice, verbose);
	if (choice->found)
		printf("\n-> to %s: %s port %u, GID %d (%s): %s\n", choice->host,
		       choice->gid.device, choice->gid.port, choice->gid.index, choice->gid.address,
		       choice->gid.why);
}
