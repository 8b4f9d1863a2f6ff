/* SPDX-License-Identifier: BSD-2-Clause */
/* The results, for people and as JSON. */
#include <stdlib.h>

#include "base/units.h"
#include "tools/json_text.h"
#include "tools/pingpong.h"

struct figures {
	double min, p50, p90, p99, p999, max, mean; /* us */
	double bytes_per_sec, messages_per_sec;
};

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Nearest rank: the smallest sample that at least this share of all are not above. */
static double rank(const struct pp *pp, double share)
{
	double at = share * pp->n_samples;
	unsigned i = (unsigned)at;

	if ((double)i < at)
		i++;
	return (double)pp->samples[i ? i - 1 : 0] / (double)NS_PER_US;
}

static void fill(struct pp *pp, struct figures *f)
{
	/* The ping-pong moves a message each way in an iteration. */
	double messages = pp->stream_ns ? (double)pp->arrived : 2.0 * pp->plan.iters;
	double seconds =
		(double)(pp->stream_ns ? pp->stream_ns : pp->latency_ns) / (double)NS_PER_SEC;
	double sum = 0;

	*f = (struct figures){ 0 };
	if (seconds > 0)
		f->messages_per_sec = messages / seconds;
	f->bytes_per_sec = f->messages_per_sec * pp->plan.size;
	if (!pp->n_samples)
		return;
	qsort(pp->samples, pp->n_samples, sizeof(*pp->samples), by_size);
	for (unsigned i = 0; i < pp->n_samples; i++)
		sum += (double)pp->samples[i];
	f->mean = sum / pp->n_samples / (double)NS_PER_US;
	f->min = rank(pp, 0);
	f->p50 = rank(pp, 0.5);
	f->p90 = rank(pp, 0.9);
	f->p99 = rank(pp, 0.99);
	f->p999 = rank(pp, 0.999);
	f->max = rank(pp, 1);
}

static const char *kind(const struct pp *pp)
{
	return pp->plan.op >= PP_READ ? "round trip" : "half round trip";
}

static uint64_t lost(const struct pp *pp)
{
	return pp->plan.iters - pp->arrived;
}

static void report_json(const struct pp *pp, const struct figures *f)
{
	const struct rocelink_qp_info *q = &pp->info[0];

	fputs("{\"role\":", stdout);
	json_string(stdout, pp->client ? "client" : "server");
	printf(",\"type\":\"%s\",\"op\":\"%s\",\"size\":%u,\"iterations\":%u,\"queue_pairs\":%u",
	       pp_type_name(pp->plan.type), pp_op_name(pp->plan.op), pp->plan.size, pp->plan.iters,
	       pp->qps);
	fputs(",\"device\":", stdout);
	json_string(stdout, q->gid.device);
	printf(",\"gid_index\":%d,\"path_mtu\":%u", q->gid.index, q->path_mtu);
	if (pp->n_samples)
		printf(",\"latency_kind\":\"%s\",\"latency_us\":{\"min\":%.3f,\"p50\":%.3f,"
		       "\"p90\":%.3f,\"p99\":%.3f,\"p99_9\":%.3f,\"max\":%.3f,\"mean\":%.3f}",
		       kind(pp), f->min, f->p50, f->p90, f->p99, f->p999, f->max, f->mean);
	if (f->bytes_per_sec > 0)
		printf(",\"bandwidth_kind\":\"%s\",\"bytes_per_second\":%.0f,"
		       "\"messages_per_second\":%.0f",
		       pp->stream_ns ? "stream" : "ping-pong", f->bytes_per_sec,
		       f->messages_per_sec);
	if (!pp_reliable(pp) && !pp->o->compat)
		printf(",\"lost_messages\":%llu,\"lost_exchanges\":%llu",
		       (unsigned long long)lost(pp), (unsigned long long)pp->unanswered);
	if (pp->plan.verify)
		printf(",\"verified_messages\":%llu", (unsigned long long)pp->verified);
	puts("}");
}

static void report_text(const struct pp *pp, const struct figures *f)
{
	const struct rocelink_qp_info *q = &pp->info[0];

	printf("%s %s, %u bytes, %u iterations", pp_type_name(pp->plan.type),
	       pp_op_name(pp->plan.op), pp->plan.size, pp->plan.iters);
	if (pp->qps > 1)
		printf(" on %u queue pairs", pp->qps);
	printf("; %s GID %d (%s), path MTU %u\n", q->gid.device, q->gid.index, q->gid.address,
	       q->path_mtu);
	if (pp->n_samples) {
		printf("  latency, %-15s  %9s %9s %9s %9s %9s %9s %9s\n", kind(pp), "min", "p50",
		       "p90", "p99", "p99.9", "max", "mean");
		printf("  %-24s  %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f us\n", "", f->min,
		       f->p50, f->p90, f->p99, f->p999, f->max, f->mean);
	}
	/* A server of READs and atomics has nothing to measure. */
	if (pp->client || pp->plan.op < PP_READ)
		printf("  bandwidth, %-13s  %.2f MB/s, %.3f Gb/s, %.0f messages/s\n",
		       pp->stream_ns ? "streaming" : "ping-pong", f->bytes_per_sec / 1e6,
		       f->bytes_per_sec * 8 / 1e9, f->messages_per_sec);
	if (pp->unanswered)
		printf("  of the latency's %u exchanges %llu had no answer: a message was lost\n",
		       pp->plan.iters, (unsigned long long)pp->unanswered);
	if (!pp_reliable(pp) && !pp->o->compat)
		printf("  of the stream's %u messages %llu were lost (%s repeats nothing)\n",
		       pp->plan.iters, (unsigned long long)lost(pp),
		       pp->plan.type == PP_UC ? "UC" : "UD");
	if (pp->verified)
		printf("  verified: %llu messages, every byte is right\n",
		       (unsigned long long)pp->verified);
}

void pp_report(struct pp *pp)
{
	struct figures f;

	fill(pp, &f);
	if (pp->o->json)
		report_json(pp, &f);
	else
		report_text(pp, &f);
}

void pp_report_failure(const struct pp_options *o, const struct rocelink_error *err)
{
	fflush(stdout);
	fprintf(stderr, "rocelink pingpong: %s\n", err->text);
	/* The library's sentence is about its options. */
	if (err->code == ROCELINK_SECURITY || err->reason == ROCELINK_REASON_AUTH)
		fputs("rocelink pingpong: here that is --secret-file FILE or --plain, the same on "
		      "both sides\n",
		      stderr);
	if (!o->json)
		return;
	fputs("{\"error\":", stdout);
	json_string(stdout, err->text);
	fputs(",\"code\":", stdout);
	json_string(stdout, rocelink_code_name(err->code));
	puts("}");
}
