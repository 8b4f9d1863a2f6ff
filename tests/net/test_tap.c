/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The capture, read by libpcap: every packet bit by bit, headers included, as the wire would have
 * it; with the file shared by two ports, begun anew, unwritable, and after a fork.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"
#include "net/tap.h"
#include "wire/icrc.h"

static char file[64];
static struct endpoint a, b;
static struct endpoint *both[] = { &a, &b };

static int set_up(void **state)
{
	int fd;

	(void)state;
	strcpy(file, "/tmp/rocelink-tap-XXXXXX");
	fd = mkstemp(file);
	close(fd);
	unlink(file);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(file);
	return 0;
}

static pcap_t *open_capture(void)
{
	char error[PCAP_ERRBUF_SIZE];
	pcap_t *p =
		pcap_open_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, error);

	if (!p)
		fail_msg("%s", error);
	assert_int_equal(pcap_datalink(p), DLT_RAW);
	return p;
}

static unsigned count_packets(void)
{
	pcap_t *p = open_capture();
	struct pcap_pkthdr *head;
	const u_char *data;
	unsigned n = 0;
	int ret;

	while ((ret = pcap_next_ex(p, &head, &data)) == 1)
		n++;
	assert_int_equal(ret, PCAP_ERROR_BREAK); /* the end, and no half record before it */
	pcap_close(p);
	return n;
}

static uint16_t checksum(uint32_t sum, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		sum += i % 2 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static void check_ipv4(const uint8_t *p, size_t len, const struct path *path, uint16_t id, bool df,
		       const uint8_t *data, size_t data_len)
{
	assert_int_equal(len, 28 + data_len);
	assert_int_equal(p[0], 0x45);
	assert_int_equal(p[1], path->traffic_class);
	assert_int_equal(p[2] << 8 | p[3], len);
	assert_int_equal(p[4] << 8 | p[5], id);
	assert_int_equal(p[6] << 8 | p[7], df ? 0x4000 : 0);
	assert_int_equal(p[8], path->hop_limit);
	assert_int_equal(p[9], 17);
	assert_int_equal(checksum(0, p, 20), 0xffff);
	assert_memory_equal(p + 12, path->sgid.raw + 12, 4);
	assert_memory_equal(p + 16, path->dgid.raw + 12, 4);
	assert_int_equal(p[20] << 8 | p[21], path->sport);
	assert_int_equal(p[22] << 8 | p[23], ROCE_UDP_PORT);
	assert_int_equal(p[24] << 8 | p[25], 8 + data_len);
	assert_int_equal(checksum((uint32_t)(17 + 8 + data_len), p + 12, len - 12), 0xffff);
	assert_memory_equal(p + 28, data, data_len);
}

static void check_ipv6(const uint8_t *p, size_t len, const struct path *path, const uint8_t *data,
		       size_t data_len)
{
	assert_int_equal(len, 48 + data_len);
	assert_int_equal(p[0] >> 4, 6);
	assert_int_equal((p[0] & 0xf) << 4 | p[1] >> 4, path->traffic_class);
	assert_int_equal(p[4] << 8 | p[5], 8 + data_len);
	assert_int_equal(p[6], 17);
	assert_int_equal(p[7], path->hop_limit);
	assert_memory_equal(p + 8, path->sgid.raw, 16);
	assert_memory_equal(p + 24, path->dgid.raw, 16);
	assert_int_equal(p[40] << 8 | p[41], path->sport);
	assert_int_equal(p[42] << 8 | p[43], ROCE_UDP_PORT);
	assert_int_equal(checksum((uint32_t)(17 + 8 + data_len), p + 8, len - 8), 0xffff);
	assert_memory_equal(p + 48, data, data_len);
}

/* One side captures: its packets out and in are in the file in that order. */
static void exchange(const char *address)
{
	struct path path = path_of(address, address, 0xc111);
	struct timespec before, after;
	struct pcap_pkthdr *head;
	const u_char *data;
	pcap_t *p;

	path.traffic_class = 0x28;
	path.hop_limit = 9;
	clock_gettime(CLOCK_REALTIME, &before);
	endpoint_open(&a, file);
	endpoint_open(&b, NULL);
	for (unsigned i = 0; i < 20; i++)
		endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 1000);
	endpoint_queue(&a, &path, endpoint_qpn(&b, 1), 20, 1);
	endpoint_send(&a);
	endpoints_await(both, 2, 21);
	for (unsigned i = 0; i < 20; i++)
		endpoint_queue(&b, &path, endpoint_qpn(&a, 1), 100 + i, 1000);
	endpoint_send(&b);
	endpoints_await(both, 2, 41);
	clock_gettime(CLOCK_REALTIME, &after);

	p = open_capture();
	for (unsigned i = 0; i < 41; i++) {
		const struct endpoint *e = i < 21 ? &b : &a;
		unsigned k = i < 21 ? i : i - 21;
		size_t len;
		const uint8_t *packet = endpoint_packet(e, k, NULL, &len);

		assert_int_equal(pcap_next_ex(p, &head, &data), 1);
		assert_int_equal(head->caplen, head->len);
		assert_true(head->ts.tv_sec >= before.tv_sec && head->ts.tv_sec <= after.tv_sec);
		assert_in_range(head->ts.tv_usec, 0, 999999999);
		if (gid_is_ipv4(&path.sgid))
			check_ipv4(data, head->caplen, &path, (uint16_t)k, true, packet, len);
		else
			check_ipv6(data, head->caplen, &path, packet, len);
	}
	assert_int_equal(pcap_next_ex(p, &head, &data), PCAP_ERROR_BREAK);
	pcap_close(p);
	endpoint_close(&a);
	endpoint_close(&b);
}

static void test_exchange_ipv4(void **state)
{
	(void)state;
	exchange("127.0.0.1");
}

static void test_exchange_ipv6(void **state)
{
	(void)state;
	exchange("::1");
}

static void test_private_file(void **state)
{
	struct stat st;
	struct tap *tap;

	(void)state;
	umask(0);
	assert_int_equal(tap_open(&tap, file), 0);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	tap_close(tap);
	assert_int_equal(count_packets(), 0);
	assert_int_equal(tap_open(&tap, "/nowhere/at/all.pcap"), -ENOENT);
}

/* A packet as another adapter numbers it: any ID, DF or not; the tap finds both. */
static void test_foreign_identification(void **state)
{
	struct path path = path_of("192.0.2.99", "192.0.2.1", 0xc222);
	uint8_t packet[64] = { 0x04, 0x40, 0xff, 0xff, 0, 0, 0, 0x11 }, data[64];
	struct pcap_pkthdr *head;
	const u_char *read;
	struct tap *tap;
	uint32_t icrc;
	pcap_t *p;

	(void)state;
	assert_int_equal(tap_open(&tap, file), 0);
	icrc = htole32(icrc_compute(&path, 0xbeef, packet, 60));
	memcpy(packet + 60, &icrc, 4);
	tap_received(tap, &path, packet, 64, 64);
	memcpy(data, packet, 64);
	data[63] ^= 1; /* a wrong ICRC has no identification */
	data[20] ^= 1;
	tap_received(tap, &path, data, 64, 64);
	tap_received(tap, &path, packet, 5, 5);
	tap_close(tap);
	p = open_capture();
	assert_int_equal(pcap_next_ex(p, &head, &read), 1);
	check_ipv4(read, head->caplen, &path, 0xbeef, true, packet, 64);
	assert_int_equal(pcap_next_ex(p, &head, &read), 1);
	check_ipv4(read, head->caplen, &path, 0, true, data, 64);
	assert_int_equal(pcap_next_ex(p, &head, &read), 1);
	check_ipv4(read, head->caplen, &path, 0, true, packet, 5);
	pcap_close(p);
}

static void test_without_df(void **state)
{
	/* A packet of the kernel's driver; the ICRC is that of its header with DF cleared, from an
	 * independent computation: CRC-32 is linear, so clearing DF changes it by a constant of the
	 * length. */
	struct path path = path_of("192.0.2.99", "192.0.2.1", 0xc222);
	uint8_t header[20] = { 0x45, 0xff, 0,	64 + 28, 0x12, 0x34, 0,	  0, 0xff, 17,
			       0xff, 0xff, 192, 0,	 2,    99,   192, 0, 2,	   1 };
	uint8_t udp[8] = { 0xc2, 0x22, 0x12, 0xb7, 0, 72, 0xff, 0xff };
	uint8_t packet[64] = { 0x04, 0x40, 0xff, 0xff, 0, 0, 0, 0x11 };
	uint8_t all[8 + 20 + 8 + 60];
	uint32_t crc = 0xffffffff;
	struct pcap_pkthdr *head;
	const u_char *read;
	struct tap *tap;
	pcap_t *p;

	(void)state;
	memset(all, 0xff, 8);
	memcpy(all + 8, header, 20);
	memcpy(all + 28, udp, 8);
	memcpy(all + 36, packet, 60);
	all[36 + 4] = 0xff;
	for (unsigned i = 0; i < sizeof(all); i++) {
		crc ^= all[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
	}
	crc = htole32(~crc);
	memcpy(packet + 60, &crc, 4);
	assert_int_equal(tap_open(&tap, file), 0);
	tap_received(tap, &path, packet, 64, 64);
	tap_close(tap);
	p = open_capture();
	assert_int_equal(pcap_next_ex(p, &head, &read), 1);
	check_ipv4(read, head->caplen, &path, 0x1234, false, packet, 64);
	pcap_close(p);
}

/* Two writers at once share a file; one that comes when nobody writes begins it anew. */
static void test_shared_file(void **state)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xc111);

	(void)state;
	for (unsigned round = 0; round < 2; round++) {
		endpoint_open(&a, file);
		endpoint_open(&b, file);
		for (unsigned i = 0; i < 10; i++)
			endpoint_queue(&a, &path, endpoint_qpn(&b, 1), i, 100);
		endpoint_send(&a);
		endpoints_await(both, 2, 10);
		endpoint_close(&a);
		endpoint_close(&b);
		assert_int_equal(count_packets(), 20);
	}
}

/* kill -9 leaves whole records; a fork's child writes none. */
static void test_death_and_fork(void **state)
{
	struct path path = path_of("127.0.0.1", "127.0.0.1", 0xc111);
	uint8_t packet[64] = { 0 };
	struct tap *tap;
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0) {
		if (tap_open(&tap, file))
			_exit(1);
		for (unsigned i = 0; i < 100; i++)
			tap_sent(tap, &path, packet, 64, 64, true);
		raise(SIGKILL);
	}
	waitpid(pid, &status, 0);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(count_packets(), 100);

	assert_int_equal(tap_open(&tap, file), 0);
	tap_sent(tap, &path, packet, 64, 64, true);
	pid = fork();
	if (pid == 0) {
		tap_sent(tap, &path, packet, 64, 64, true);
		tap_abandon(tap);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	tap_sent(tap, &path, packet, 64, 64, true);
	tap_close(tap);
	assert_int_equal(count_packets(), 2);
}

static void test_tiny_packets_in_a_long_burst(void **state)
{
	static uint8_t data[64000];
	struct path path = path_of("::1", "::1", 0xc111);
	struct tap *tap;

	(void)state;
	assert_int_equal(tap_open(&tap, file), 0);
	tap_received(tap, &path, data, sizeof(data), 4);
	tap_close(tap);
	assert_int_equal(count_packets(), sizeof(data) / 4);
}

static void test_full_disk(void **state)
{
	struct path path = path_of("::1", "::1", 0xc111);
	uint8_t packet[64] = { 0 };
	struct tap *tap;

	(void)state;
	assert_int_equal(tap_open(&tap, "/dev/full"), -ENOSPC);
	assert_int_equal(tap_open(&tap, "/dev/null"), 0);
	tap_sent(tap, &path, packet, 64, 64, true);
	tap_close(tap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_exchange_ipv4),  TEST(test_exchange_ipv6),
		TEST(test_private_file),   TEST(test_foreign_identification),
		TEST(test_without_df),	   TEST(test_shared_file),
		TEST(test_death_and_fork), TEST(test_tiny_packets_in_a_long_burst),
		TEST(test_full_disk),
	};

	if (!namespace_enter()) {
		print_message("no network namespace can be made here: skipped\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
